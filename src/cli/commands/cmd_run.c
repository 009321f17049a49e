/* belay run: its options and its manual; run.c does it. */
#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/run/run.h"

static const struct option_def run_defs[] = {
    { .name = "adopt",
      .kind = OPTION_TEXT,
      .value = "LOCK_ID",
      .help = "take over the lock that somebody acquired for this job; its id is good for one job" },
    { .name = "best-effort",
      .kind = OPTION_FLAG,
      .help = "run without a lock, with a warning, if the store cannot be reached" },
    { .name = NULL },
};
static const struct option_group run_group = { "Options of run", run_defs };

static int exec_run(struct cli_context *context, const struct options *options)
{
    return run_exec(context, options, NULL);
}

const struct cli_command cmd_run = {
    .name = "run",
    .synopsis = "[OPTIONS] KEY -- COMMAND [ARG...]",
    .summary = "hold the lock while COMMAND runs",
    .about =
        "Acquires the lock, runs COMMAND, releases the lock when COMMAND ends, and exits with COMMAND's own "
        "code. The lease (2m unless a profile or --ttl says otherwise) is renewed in the background for as "
        "long as COMMAND runs.\n\n"
        "COMMAND finds BELAY_KEY, BELAY_LOCK_ID, BELAY_TOKEN and BELAY_STORE in its environment. Signals are "
        "passed to its process group; its standard input is left alone. It has the terminal if belay has it: "
        "Ctrl-C goes to COMMAND, Ctrl-Z stops both, and COMMAND is continued once the lease is proved.\n\n"
        "If the lease is lost COMMAND is ended, with TERM and then KILL, before anybody else can have the "
        "lock; "
        "the exit code is 76 then, whatever COMMAND says. A second process, lease-guardian, sees to that "
        "even if "
        "belay itself is stopped or killed: it ends COMMAND with all its descendants, and releases the lock "
        "as soon as they are gone.",
    .groups = { &key_group, &lock_group, &run_group, &ending_group },
    .min_args = 0,
    .max_args = 1,
    .takes_key = true,
    .takes_command = true,
    .exits = { { 0, "COMMAND ended with 0; any other code of COMMAND is passed on" },
               { 64, "the command line is wrong; COMMAND was not run" },
               { 69, "the store could not be reached; COMMAND was not run" },
               { 75, "held by someone else, or the wait timed out; COMMAND was not run" },
               { 76, "the lease was lost while COMMAND ran" },
               { 77, "--adopt: the lock is not that id's any more; COMMAND was not run" },
               { 126, "COMMAND cannot be executed" },
               { 127, "COMMAND was not found" },
               { 128, "and N: COMMAND was ended by signal N" } },
    .examples = { { "belay run deploy-api-prod -- ./deploy.sh api", "one deploy at a time" },
                  { "belay run --wait 10m --ttl 30s nightly -- make backup", "wait for the one before" },
                  { "belay run --adopt \"$LOCK_ID\" build-router-plt -- make",
                    "take over the lock that was acquired for this job" } },
    .exec = exec_run,
};
