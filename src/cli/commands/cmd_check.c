#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"

/* One lock to check. */
struct check_target {
    char *key;      /* owned */
    const char *id; /* borrowed; NULL: the token decides */
    uint64_t token; /* 0: the id decides */
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
    }
}

/* ---- what to check ------------------------------------------------------- */

/* A variable that is set to something; NULL: it is not. */
static const char *environment(const char *name)
{
    const char *value = getenv(name);

    return value == NULL || *value == '\0' ? NULL : value;
}

static enum belay_code read_token(const char *origin, const char *text, uint64_t *out_token,
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

/* KEY, the options that name one, or BELAY_KEY. */
static enum belay_code read_key(struct cli_context *context, const struct options *options, char **out_key,
                                struct belay_error *err)
{
    const char *inherited = environment("BELAY_KEY");
    bool is_named = options->n_args > 0 || options_has(options, "stack") ||
                    options_has(options, "environment") || options_has(options, "service") ||
                    options_has(options, "component");

    if (is_named) {
        return read_key_argument(context, options, 0, out_key, err);
    }
    if (inherited == NULL) {
        return error_set(
            err, BELAY_INVALID,
            "no lock given: run this inside 'belay run KEY -- COMMAND', which sets BELAY_KEY and "
            "BELAY_LOCK_ID, or give KEY --id LOCK_ID");
    }
    *out_key = strdup(inherited);
    return *out_key == NULL ? error_no_memory(err) : BELAY_OK;
}

static enum belay_code say_no_id(struct cli_context *context, const char *key, struct belay_error *err)
{
    struct belay_client *client;
    const char *inherited = environment("BELAY_KEY");

    /* 'belay run' sets no id then; the library says that the lock is not protected. */
    if (cli_client(context, &client, err) != BELAY_OK || !belay_client_locking_enabled(client)) {
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
    const char *inherited = environment("BELAY_KEY");
    const char *origin = "--token";
    const char *token = options_text(options, "token");

    target->id = options_text(options, "id");
    if (target->id == NULL && token == NULL && inherited != NULL && strcmp(inherited, target->key) == 0) {
        origin = "BELAY_TOKEN";
        token = environment("BELAY_TOKEN");
        target->id = environment("BELAY_LOCK_ID");
    }
    if (token != NULL) {
        return read_token(origin, token, &target->token, err);
    }
    return target->id == NULL ? say_no_id(context, target->key, err) : BELAY_OK;
}

static enum belay_code read_list(struct cli_context *context, const struct options *options,
                                 struct check_list *list, struct belay_error *err)
{
    enum belay_code code = read_key(context, options, &list->targets[0].key, err);

    if (code != BELAY_OK) {
        return code;
    }
    list->n = 1;
    return read_target(context, options, &list->targets[0], err);
}

/* ---- the check ----------------------------------------------------------- */

static int print_held(const struct cli_context *context, const struct belay_info *info)
{
    char span[CLOCK_TEXT_SIZE];

    if (context->json) {
        return lock_print_json(context, info);
    }
    if (!context->quiet && info->status != BELAY_STATUS_NONE) {
        (void)fputs("Held '", stdout);
        print_escaped(stdout, info->key);
        (void)printf("': valid for %s\n", clock_format_span(span, info->valid_for_ms));
    }
    return CLI_OK;
}

/* Not held, for whatever reason, is one exit code: the caller must stop. */
static int report(const struct cli_context *context, const struct belay_error *err)
{
    int code = cli_error(context, err);

    return err->code == BELAY_LOST || err->code == BELAY_NOT_HOLDER || err->code == BELAY_NOT_FOUND ? CLI_LOST
                                                                                                    : code;
}

static int check_one(struct cli_context *context, const struct check_target *target, int64_t min_valid_ms)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client;
    struct belay_info *info = NULL;
    int code;

    if (cli_client(context, &client, &err) != BELAY_OK ||
        belay_check(client, target->key, target->id, target->token, min_valid_ms, &info, &err) != BELAY_OK) {
        code = report(context, &err);
    } else {
        code = print_held(context, info);
    }
    belay_info_free(info);
    belay_error_release(&err);
    return code;
}

static int exec_check(struct cli_context *context, const struct options *options)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct check_list list = { 0 };
    int64_t min_valid_ms = 0;
    int code = CLI_OK;

    (void)options_duration(options, "for", &min_valid_ms);
    if (read_list(context, options, &list, &err) != BELAY_OK) {
        code = cli_error(context, &err);
    }
    for (size_t i = 0; code == CLI_OK && i < list.n; i++) {
        code = check_one(context, &list.targets[i], min_valid_ms);
    }
    check_list_release(&list);
    belay_error_release(&err);
    return code;
}

static const struct option_def defs[] = {
    { .name = "id",
      .kind = OPTION_TEXT,
      .value = "LOCK_ID",
      .help = "the lock id that must hold the lock; default: BELAY_LOCK_ID" },
    { .name = "token",
      .kind = OPTION_TEXT,
      .value = "N",
      .help = "the token that must be the current one; default: BELAY_TOKEN" },
    { .name = "for",
      .kind = OPTION_DURATION,
      .value = "D",
      .help = "the lock must be valid for at least this long; default: for any time" },
    { .name = NULL },
};
static const struct option_group group = { "Options", defs };

const struct cli_command cmd_check = {
    .name = "check",
    .synopsis = "[KEY --id LOCK_ID] [--token N] [--for D]",
    .summary = "check that a lock is still held",
    .about =
        "Asks the store whether the lock is still held by this lock id, with this token. Inside 'belay run' "
        "and 'belay deploy' no arguments are needed: the lock is that of BELAY_KEY, BELAY_LOCK_ID and "
        "BELAY_TOKEN. Use it before a step that cannot be undone. Nothing is changed.\n\n"
        "With --token and without --id, it checks whether the token is the current one and its lock is "
        "held. That is for a receiver that was sent the token.\n\n"
        "A lock can be lost right after the check. For a write that must not come late, let the receiver "
        "reject old tokens (docs/fencing.md). --for D gives the step that follows its time: belay says no if "
        "the lease ends sooner. The time that it reports is never longer than the holder itself may rely on "
        "the lock.\n\n"
        "While locking is switched off, the check succeeds with a warning.",
    .groups = { &group, &key_group },
    .max_args = 1,
    .takes_key = true,
    .exits = { { 0, "held, and valid for long enough" },
               { 64, "the command line is wrong, or names no lock or no id" },
               { 69, "the store is unreachable: it is not known whether the lock is held" },
               { 76, "not held: expired, released, forced, taken by another, or ending too soon" },
               { 77, "not permitted" },
               CLI_EXIT_CONFIG },
    .examples = { { "belay run deploy-api-prod -- sh -c 'belay check --for 30s && ./migrate'",
                    "check before the dangerous step" },
                  { "belay check deploy-api-prod --id \"$id\" --json", "as JSON, with valid_for_ms" },
                  { "belay check deploy-api-prod --token 7", "verify a token" } },
    .exec = exec_check,
};
