#include "cli/core/lock_id.h"

#include <stdio.h>

#include "base/error.h"

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

/* An owner is a name, not a secret. Where every process of an owner may have the lock, it is enough. */
static enum belay_code check_profile(const struct cli_context *context, const struct options *options,
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
    code = check_profile(context, options, key, err);
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
