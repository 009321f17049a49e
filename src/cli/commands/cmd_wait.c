#include <stdlib.h>

#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/core/wait_display.h"

static int exec_wait(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_lock_options wait = BELAY_LOCK_OPTIONS_INIT;
    struct belay_client *client;
    struct wait_display *waiting = NULL;
    char *key = NULL;
    enum belay_code code;

    wait.wait_ms = BELAY_WAIT_FOREVER;
    (void)options_duration(options, "wait", &wait.wait_ms);
    code = read_key_argument(context, options, 0, &key, err);
    if (code == BELAY_OK) {
        code = read_kind(options, &wait, err);
    }
    if (code == BELAY_OK) {
        code = cli_existing_client(context, &client, err);
    }
    if (code == BELAY_OK) {
        waiting = wait_display_new(context, key, WAIT_UNQUEUED);
        wait.on_waiting = wait_display_update;
        wait.context = waiting;
        wait.cancel = cli_cancel(context);
        cli_allow_leaving();
        code = belay_wait_until_free(client, key, &wait, err);
        cli_forbid_leaving();
        wait_display_free(waiting);
    }
    if (code == BELAY_OK) {
        cli_note(context, "lock '%s' is free%s", key,
                 context->is_new_store ? ": the store did not exist and is created now" : "");
    } else {
        (void)cli_error(context, err);
    }
    free(key);
    return cli_exit_code(code == BELAY_UNREACHABLE && cli_signal() != 0 ? BELAY_CANCELLED : code);
}

static const struct option_group group = {
    "Options", OPTION_TABLE(OPT_DURATION("wait", "give up after this time; default: wait forever"))
};

const struct cli_command cmd_wait = {
    .name = "wait",
    .synopsis = "KEY [--wait D] [--shared | --slots N]",
    .summary = "wait until a lock is free, without acquiring it",
    .about =
        "Returns when the lock is free: released, expired, or never acquired. It does not acquire the "
        "lock, so another client may hold it a moment later. With --shared or --slots it returns when the "
        "lock could be acquired in that way, beside its holders. 'belay run --wait' and 'belay acquire "
        "--wait' wait in the queue and acquire it.",
    .groups = { &group, &kind_group, &key_group },
    .max_args = 1,
    .takes_key = true,
    .exits = { { 0, "the lock is free" },
               CLI_EXIT_USAGE,
               CLI_EXIT_NO_STORE,
               CLI_EXIT_UNREACHABLE,
               { 75, "still held when the wait timed out" } },
    .examples = { { "belay wait db-migration && ./start-server", "start when the migration is done" },
                  { "belay wait db-migration --wait 0 || echo busy", "check without waiting" } },
    .exec = exec_wait,
};
