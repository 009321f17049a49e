#include "cli/core/lock_id.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

bool has_lock_id(const struct cli_context *context, const struct options *options)
{
    if (options_has(options, "id") && options_has(options, "owner")) {
        (void)cli_fail(context, BELAY_INVALID, "--id and --owner exclude each other");
        return false;
    }
    if (!options_has(options, "id") && !options_has(options, "owner")) {
        (void)cli_fail(context, BELAY_INVALID,
                       "--id is missing: give the lock id that 'belay acquire' printed");
        return false;
    }
    return true;
}

/* An owner is a name, not a secret. It is enough where every process of the owner may have the lock. */
static enum belay_code check_reentrant(const struct cli_context *context, const struct options *options,
                                       const char *key, struct belay_error *err)
{
    struct belay_profile profile;
    enum belay_code code =
        belay_key_profile(context->config, options_text(options, "profile"), key, &profile, err);

    if (code != BELAY_OK || profile.reentrant) {
        return code;
    }
    return profile.name == NULL
               ? error_set(err, BELAY_INVALID,
                           "--owner needs a re-entrant profile, such as --profile execution; otherwise give "
                           "the lock id (--id)")
               : error_set(err, BELAY_INVALID,
                           "--owner needs a re-entrant profile, and '%s' is not: give the lock id (--id)",
                           profile.name);
}

enum belay_code read_lock_id(struct cli_context *context, const struct options *options, const char *key,
                             char out_id[BELAY_ID_MAX + 1], struct belay_error *err)
{
    const char *id = options_text(options, "id");
    struct belay_client *client;
    struct belay_info *info = NULL;
    enum belay_code code;

    if (id != NULL && (size_t)snprintf(out_id, BELAY_ID_MAX + 1, "%s", id) <= BELAY_ID_MAX) {
        return BELAY_OK;
    }
    if (id != NULL) {
        return error_set(err, BELAY_INVALID, "'%.80s' is not a lock id: at most %d characters", id,
                         BELAY_ID_MAX);
    }
    code = check_reentrant(context, options, key, err);
    if (code == BELAY_OK) {
        code = cli_existing_client(context, &client, err);
    }
    if (code == BELAY_OK) {
        code = belay_find_own(client, key, options_text(options, "owner"), NULL, &info, err);
    }
    if (code == BELAY_OK) {
        (void)snprintf(out_id, BELAY_ID_MAX + 1, "%s", info->lock_id);
    }
    belay_info_free(info);
    return code;
}

/* ---- the lock of an outer command ---- */

bool inherited_next(const char **at, struct inherited_line *out)
{
    size_t len = *at == NULL ? 0 : strcspn(*at, "\n");
    const char *space = len == 0 ? NULL : memchr(*at, ' ', len);

    if (space == NULL) {
        return false;
    }
    out->token = *at;
    out->token_len = (size_t)(space - *at);
    out->key = space + 1;
    out->key_len = len - out->token_len - 1;
    *at += len + ((*at)[len] == '\n');
    return true;
}

bool inherited_lock_find(const char *key, char out_token[INHERITED_TOKEN_SIZE])
{
    const char *inherited = env_text("BELAY_KEY");
    const char *token = env_text("BELAY_TOKEN");
    const char *tokens = env_text("BELAY_TOKENS");
    struct inherited_line line;

    while (inherited_next(&tokens, &line)) {
        if (strlen(key) == line.key_len && memcmp(key, line.key, line.key_len) == 0) {
            (void)snprintf(
                out_token, INHERITED_TOKEN_SIZE, "%.*s",
                (int)(line.token_len < INHERITED_TOKEN_SIZE ? line.token_len : INHERITED_TOKEN_SIZE),
                line.token);
            return true;
        }
    }
    (void)snprintf(out_token, INHERITED_TOKEN_SIZE, "%s", token == NULL ? "" : token);
    return inherited != NULL && strcmp(inherited, key) == 0;
}
