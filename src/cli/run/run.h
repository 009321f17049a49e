/* Hold a lock while a command runs, and what others may add to that. */
#ifndef CLI_RUN_RUN_H
#define CLI_RUN_RUN_H

#include "cli/core/cli.h"
#include "cli/core/lock_options.h"
#include "cli/run/guardian.h"
#include "cli/run/run_result.h"

extern const struct option_group ending_group; /* --kill-after, --conflict-exit-code, --result */

struct run_callbacks {
    /* Before the lock is taken: to change what is asked for. */
    enum belay_code (*prepare)(void *context, struct lock_request *request, struct belay_error *err);
    /*
     * Under the lock, before COMMAND is started. `lock` is NULL if locking is switched
     * off. Unless it returns BELAY_OK, COMMAND is not started, and the lock is released.
     */
    enum belay_code (*before)(void *context, struct belay_client *client, struct belay_lock *lock,
                              struct guardian_job *job, struct belay_error *err);
    /* When COMMAND has ended, before the lock is released. It may make the result worse. */
    void (*after)(void *context, struct run_result *result);
    void *context;
};

/* The command after "--" of the options; `hooks` may be NULL. Returns the exit code. */
int run_exec(struct cli_context *context, const struct options *options, const struct run_callbacks *hooks);

#endif
