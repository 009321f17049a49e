#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/core/lock_id.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"
#include "json/json_write.h"

/* One lock to check. */
struct check_target {
    char *key;               /* owned */
    const char *id;          /* borrowed; NULL: the token decides */
    uint64_t token;          /* 0: the id decides */
    struct belay_info *info; /* owned; NULL: not checked yet */
};

/* An acquisition of several keys has one target for each. */
struct check_list {
    struct check_target targets[BELAY_KEYS_MAX];
    size_t n;
};

static void check_list_release(struct check_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->targets[i].key);
        belay_info_free(list->targets[i].info);
    }
}

/* ---- what to check ------------------------------------------------------- */

static enum belay_code parse_token(const char *origin, const char *text, uint64_t *out_token,
                                   struct belay_error *err)
{
    unsigned long long value;

    errno = 0;
    value = strspn(text, "0123456789") == strlen(text) ? strtoull(text, NULL, 10) : 0;
    if (value == 0 || errno != 0) {
        return error_set(err, BELAY_INVALID, "%s is '%.60s': a token is a whole number from 1", origin, text);
    }
    *out_token = value;
    return BELAY_OK;
}

static enum belay_code add_target(struct check_list *list, const char *key, size_t len,
                                  struct belay_error *err)
{
    char *copy;

    if (list->n == BELAY_KEYS_MAX) {
        return error_set(err, BELAY_INVALID, "more than %d keys: give them in several commands",
                         BELAY_KEYS_MAX);
    }
    copy = strndup(key, len);
    if (copy == NULL) {
        return error_no_memory(err);
    }
    list->targets[list->n++].key = copy;
    return BELAY_OK;
}

/* All keys of the command that this one runs in; with --token, which belongs to one key, only the first. */
static enum belay_code read_inherited_keys(const struct options *options, struct check_list *list,
                                           struct belay_error *err)
{
    const char *tokens = options_has(options, "token") ? NULL : env_text("BELAY_TOKENS");
    const char *inherited = env_text("BELAY_KEY");
    struct inherited_line line;
    enum belay_code code = BELAY_OK;

    if (inherited == NULL) {
        return error_set(
            err, BELAY_INVALID,
            "no lock given: run this inside 'belay run KEY -- COMMAND', which sets BELAY_KEY and "
            "BELAY_LOCK_ID, or give KEY --id LOCK_ID");
    }
    while (code == BELAY_OK && inherited_next(&tokens, &line)) {
        code = add_target(list, line.key, line.key_len, err);
    }
    if (code == BELAY_OK && tokens != NULL && *tokens != '\0') {
        return error_set(err, BELAY_INVALID, "BELAY_TOKENS has the line '%.60s': each is TOKEN KEY", tokens);
    }
    return code == BELAY_OK && list->n == 0 ? add_target(list, inherited, strlen(inherited), err) : code;
}

/* KEY, the options that name one, or those of the environment. */
static enum belay_code read_target_keys(struct cli_context *context, const struct options *options,
                                        struct check_list *list, struct belay_error *err)
{
    struct key_arguments keys = { NULL, NULL, 0 };
    enum belay_code code;

    if (!names_lock(options)) {
        return read_inherited_keys(options, list, err);
    }
    code = read_key_arguments(context, options, &keys, err);
    if (code == BELAY_OK && keys.n > 1 && options_has(options, "token")) {
        code = error_set(err, BELAY_INVALID, "--token is that of one key: give one KEY, or --id");
    }
    for (size_t i = 0; code == BELAY_OK && i < keys.n; i++) {
        code = add_target(list, keys.keys[i], strlen(keys.keys[i]), err);
    }
    key_arguments_release(&keys);
    return code;
}

static enum belay_code say_no_id(struct cli_context *context, const char *key, struct belay_error *err)
{
    struct belay_client *client;
    const char *inherited = env_text("BELAY_KEY");

    /* 'belay run' sets no id then; the library says that the lock is not protected. */
    if (cli_existing_client(context, &client, err) != BELAY_OK || !belay_client_locking_enabled(client)) {
        return err->code;
    }
    if (inherited != NULL && strcmp(inherited, key) == 0) {
        return error_set(err, BELAY_INVALID,
                         "BELAY_LOCK_ID is not set: COMMAND runs without the lock '%.200s', or its "
                         "environment was cleared; give --id LOCK_ID or --token N",
                         key);
    }
    return error_set(err, BELAY_INVALID,
                     "--id is missing: give the lock id that 'belay acquire' printed, or --token N to verify "
                     "a token of '%.200s'",
                     key);
}

/*
 * The id and the token are those of the command line or, if it has neither, those of the
 * environment, if the lock there is the same one. Never one of each: they may be of two locks.
 */
static enum belay_code read_target(struct cli_context *context, const struct options *options,
                                   struct check_target *target, struct belay_error *err)
{
    const char *origin = "--token";
    const char *token = options_text(options, "token");
    char inherited[INHERITED_TOKEN_SIZE];

    target->id = options_text(options, "id");
    if (target->id == NULL && token == NULL && inherited_lock_find(target->key, inherited)) {
        origin = env_text("BELAY_TOKENS") == NULL ? "BELAY_TOKEN" : "a token of BELAY_TOKENS";
        token = inherited[0] == '\0' ? NULL : inherited;
        target->id = env_text("BELAY_LOCK_ID");
    }
    if (token != NULL) {
        return parse_token(origin, token, &target->token, err);
    }
    return target->id == NULL ? say_no_id(context, target->key, err) : BELAY_OK;
}

static enum belay_code read_targets(struct cli_context *context, const struct options *options,
                                    struct check_list *list, struct belay_error *err)
{
    enum belay_code code = read_target_keys(context, options, list, err);

    for (size_t i = 0; code == BELAY_OK && i < list->n; i++) {
        code = read_target(context, options, &list->targets[i], err);
    }
    return code;
}

/* ---- the check ----------------------------------------------------------- */

static void print_valid_for(const struct belay_info *info)
{
    char span[CLOCK_TEXT_SIZE];

    if (info->status != BELAY_STATUS_NONE) {
        print_line_escaped(stdout, "Held '%s': valid for %s", info->key,
                           clock_format_span(span, info->valid_for_ms));
    }
}

/* One lock, or {"lock_id", "locks"} as after acquiring several keys. */
static int print_checked_json(const struct cli_context *context, const struct check_list *list)
{
    const struct belay_info *first = list->targets[0].info;
    json_t *locks;

    assert(first != NULL);
    if (list->n == 1) {
        return lock_print_json(context, first);
    }
    locks = json_array();
    for (size_t i = 0; i < list->n; i++) {
        (void)json_array_append_new(locks, wire_grant(list->targets[i].info));
    }
    return lock_print_locks_json(context, first->lock_id, locks);
}

/* Not held, for whatever reason, is one exit code: the caller must stop. */
static int report_not_held(const struct cli_context *context, const struct belay_error *err)
{
    int code = cli_error(context, err);

    return err->code == BELAY_LOST || err->code == BELAY_NOT_HOLDER || err->code == BELAY_NOT_FOUND ? CLI_LOST
                                                                                                    : code;
}

static int check_target(struct cli_context *context, struct check_target *target, int64_t min_valid_ms)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client;
    int code = CLI_OK;

    if (cli_existing_client(context, &client, &err) != BELAY_OK ||
        belay_check(client, target->key, target->id, target->token, min_valid_ms, &target->info, &err) !=
            BELAY_OK) {
        code = report_not_held(context, &err);
    }
    /* The analyzer loses the keys of the other targets, which check_list_release() frees. */
    belay_error_release(&err); /* NOLINT(clang-analyzer-unix.Malloc) */
    return code;
}

static int check_targets(struct cli_context *context, struct check_list *list, int64_t min_valid_ms)
{
    for (size_t i = 0; i < list->n; i++) {
        int code = check_target(context, &list->targets[i], min_valid_ms);

        if (code != CLI_OK || list->targets[i].info == NULL) {
            return code;
        }
    }
    if (context->json) {
        return print_checked_json(context, list);
    }
    for (size_t i = 0; !context->quiet && i < list->n; i++) {
        print_valid_for(list->targets[i].info);
    }
    return CLI_OK;
}

static int exec_check(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct check_list list = { 0 };
    int64_t min_valid_ms = 0;
    int code = CLI_OK;

    (void)options_duration(options, "for", &min_valid_ms);
    if (read_targets(context, options, &list, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else {
        code = check_targets(context, &list, min_valid_ms);
    }
    check_list_release(&list);
    return code;
}

static const struct option_group group = {
    "Options",
    OPTION_TABLE(OPT_TEXT("id", "LOCK_ID", "the lock id that must hold the lock; default: BELAY_LOCK_ID"),
                 OPT_TEXT("token", "N", "the token that must be the current one; default: BELAY_TOKEN"),
                 OPT_DURATION("for", "the lock must be valid for at least this long; default: no minimum"))
};

const struct cli_command cmd_check = {
    .name = "check",
    .synopsis = "[KEY... --id LOCK_ID] [--token N] [--for D]",
    .summary = "check that a lock is still held",
    .about =
        "Asks the store whether the lock is still held by this lock id, with this token. Inside 'belay run' "
        "and 'belay deploy' no arguments are needed: the lock is that of BELAY_KEY, BELAY_LOCK_ID and "
        "BELAY_TOKEN; of several keys, each is checked with its token in BELAY_TOKENS. Use it before a step "
        "that cannot be undone. Nothing is changed.\n\n"
        "With --token and without --id, it checks whether the lock is held with this token. A program that "
        "receives a token with a request can check it this way.\n\n"
        "A lock can be lost right after the check. For a write that must not come late, let the receiver "
        "reject old tokens (docs/fencing.md). With --for D the check fails if the lease ends sooner than D "
        "from now: choose a D that is longer than the next step takes. The holder itself may rely on the "
        "lock at "
        "least as long as belay reports.\n\n"
        "While locking is switched off, the check succeeds with a warning.",
    .groups = { &group, &key_group },
    .max_args = CLI_MANY_KEYS,
    .takes_key = true,
    .exits = { { 0, "held, and valid for long enough" },
               { 64, "the command line is wrong, or names no lock or no id" },
               { 69, "the store is unreachable: it is not known whether the lock is held" },
               { 76, "not held: expired, released, forced, held by another client, or ending too soon" },
               { 77, "not permitted" },
               CLI_EXIT_CONFIG },
    .examples = { { "belay run deploy-api-prod -- sh -c 'belay check --for 30s && ./migrate'",
                    "check before the dangerous step" },
                  { "belay check deploy-api-prod --id \"$id\" --json", "as JSON, with valid_for_ms" },
                  { "belay check deploy-api-prod --token 7", "verify a token" } },
    .exec = exec_check,
};
