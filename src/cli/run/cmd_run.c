#include "cli/commands/commands.h"
#include "cli/run/run.h"

static const struct option_group run_group = {
    "Options of run",
    OPTION_TABLE(
        OPT_TEXT("adopt", "LOCK_ID",
                 "run under the lock with this id, acquired before by 'belay acquire'; each id can be "
                 "adopted once"),
        OPT_FLAG("best-effort", "if the store is unreachable, warn and run without a lock"),
        OPT_FLAG("allow-empty-key", "if KEY is the empty string, warn and run COMMAND without a lock"))
};

static int exec_run(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    return run_exec(context, options, NULL, err);
}

const struct cli_command cmd_run = {
    .name = "run",
    .synopsis = "[OPTIONS] KEY... -- COMMAND [ARG...]",
    .summary = "hold the lock while COMMAND runs",
    .about =
        "Acquires the lock KEY, runs COMMAND, releases the lock when COMMAND ends, and exits with COMMAND's "
        "exit code. While COMMAND runs, belay renews the lease in the background. The lease lasts 2m unless "
        "--ttl or a profile says otherwise.\n\n"
        "If another client holds the lock, belay prints the holder and exits with 75. With --wait it waits "
        "in the queue.\n\n"
        "Several keys, up to 16, are acquired together: all of them or none, under one lock id. Two "
        "commands that name the same keys in a different order cannot deadlock. With --shared or --slots "
        "several clients can hold the lock; docs/locks.md describes all kinds of locks.\n\n"
        "COMMAND finds BELAY_KEY, BELAY_LOCK_ID, BELAY_TOKEN and BELAY_STORE in its environment. With "
        "several keys, BELAY_KEY and BELAY_TOKEN are those of the first, and BELAY_TOKENS has one line "
        "'TOKEN KEY' "
        "for each. Standard input is passed through. Signals sent to belay go to COMMAND's process group. On "
        "a terminal, Ctrl-C "
        "goes to COMMAND; Ctrl-Z stops both, and COMMAND continues only if the lease is still valid.\n\n"
        "If the lease is lost, COMMAND is ended (TERM, then KILL) before another client can get the lock, "
        "and belay exits with 76. A second process, lease-guardian, does the same if belay is stopped or "
        "killed: it ends COMMAND and all its descendants, then releases the lock.\n\n"
        "With --adopt, COMMAND runs under a lock that another process acquired. The lock gets a new id and "
        "keeps its ttl unless --ttl is given; the heartbeat is that of the lock's profile, or a quarter of "
        "the "
        "ttl.\n\n"
        "With --allow-empty-key, an empty KEY means that COMMAND needs no lock. BELAY_KEY, BELAY_LOCK_ID and "
        "BELAY_TOKEN are then not set, and --result has \"locked\": false.",
    .groups = { &key_group, &lock_group, &kind_group, &run_group, &run_end_group },
    .min_args = 0,
    .max_args = CLI_MANY_KEYS,
    .takes_key = true,
    .takes_command = true,
    .exits = { { 0, "COMMAND ended with 0; any other exit code of COMMAND is passed on" },
               { 64, "the command line is wrong; COMMAND was not run" },
               { 69, "the store is unreachable; COMMAND was not run" },
               { 74, "whether the lock was acquired is unknown; COMMAND was not run" },
               { 75,
                 "another client holds the lock, a freeze refuses it, or the wait timed out; COMMAND was not "
                 "run" },
               { 76, "the lease was lost while COMMAND ran" },
               { 77, "not permitted, or --adopt: that id no longer holds the lock; COMMAND was not run" },
               { 78, "the configuration or the store's schema is wrong; COMMAND was not run" },
               { 126, "COMMAND cannot be executed" },
               { 127, "COMMAND was not found" },
               { 128, "plus N: COMMAND was ended by signal N" } },
    .examples = { { "belay run deploy-api-prod -- ./deploy.sh api", "one deployment at a time" },
                  { "belay run --wait 10m --ttl 30s nightly -- make backup",
                    "wait up to ten minutes for the lock" },
                  { "belay run --adopt \"$LOCK_ID\" build-router-plt -- make",
                    "run under a lock that an earlier step acquired" },
                  { "belay run deploy-api deploy-web -- ./deploy.sh", "hold both locks, or none" },
                  { "belay run --allow-empty-key \"$LOCK\" -- make",
                    "without a lock if the variable LOCK is empty" } },
    .exec = exec_run,
};
