#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/core/lock_id.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"

static void print_released(const struct key_arguments *keys)
{
    for (size_t i = 0; i < keys->n; i++) {
        print_line_escaped(stdout, "Released '%s'", keys->keys[i]);
    }
}

int release_exec(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    const char *outcome = options_text(options, "outcome");
    struct belay_client *client;
    struct belay_info *info = NULL;
    char id[BELAY_ID_MAX + 1];
    struct key_arguments keys = { NULL, NULL, 0 };
    int code = CLI_OK;

    if (read_key_arguments(context, options, &keys, err) != BELAY_OK ||
        read_lock_id(context, options, keys.first, id, err) != BELAY_OK ||
        cli_existing_client(context, &client, err) != BELAY_OK ||
        belay_release_keys(client, keys.keys, keys.n, id,
                           outcome != NULL && strcmp(outcome, "failed") == 0 ? BELAY_OUTCOME_FAILED
                                                                             : BELAY_OUTCOME_COMPLETED,
                           &info, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else if (context->json && info != NULL && keys.n > 1) {
        code = lock_print_grant_json(context, info, keys.keys, keys.n);
    } else if (context->json && info != NULL) {
        code = lock_print_json(context, info);
    } else if (!context->quiet && !context->json) {
        print_released(&keys);
    }
    belay_info_free(info);
    key_arguments_release(&keys);
    return code;
}

static int exec_release(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    if (!has_lock_id(context, options)) {
        cli_hint(context, "to end the lock of another client: belay unlock KEY --force");
        return CLI_USAGE;
    }
    return release_exec(context, options, err);
}

static const struct option_group group = {
    "Options", OPTION_TABLE(ID_OR_OWNER, OPT_CHOICE("outcome", "completed|failed",
                                                    "how the work ended; default: completed"))
};

const struct cli_command cmd_release = {
    .name = "release",
    .synopsis = "KEY... (--id LOCK_ID | --owner ID) [--outcome completed|failed]",
    .summary = "release a lock",
    .about = "Releases the lock, so that the next waiter gets it at once. This needs the lock id, which only "
             "the holder knows; 'belay unlock' ends the lock of another client. Releasing a "
             "lock twice is not an error, unless another client acquired it in between.\n\n"
             "Keys that were acquired together can be released together.\n\n" ABOUT_OWNER,
    .groups = { &group, &key_group },
    .max_args = CLI_MANY_KEYS,
    .takes_key = true,
    .exits = { { 0, "released, now or before" },
               CLI_EXIT_USAGE,
               { 66, "there is no such lock; 0 on a store that does not keep released locks" },
               CLI_EXIT_UNREACHABLE,
               { 74, "unknown: the lock may have been released; repeat the command" },
               { 77, "not the holder; nothing was changed" } },
    .examples = { { "belay release nightly-backup --id \"$id\"", "the work is done" },
                  { "belay release nightly-backup --id \"$id\" --outcome failed", "the work failed" },
                  { "belay release deploy-api deploy-web --id \"$id\"", "locks that were acquired together" },
                  { "belay release terraform-prod --owner execution-1 --profile execution",
                    "the owner's lock, without its id" } },
    .exec = exec_release,
};
