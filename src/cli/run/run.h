/* Run a command under a lock: `belay run`, and the callbacks through which `belay deploy` extends it. */
#ifndef CLI_RUN_RUN_H
#define CLI_RUN_RUN_H

#include "cli/core/cli.h"
#include "cli/core/lock_options.h"
#include "cli/run/guardian.h"

extern const struct option_group run_end_group; /* --kill-after, --conflict-exit-code, --result */

/* How a run ended, for --result FILE. */
struct run_result {
    const char *key;    /* NULL: the command line names no valid key */
    const char *result; /* "completed", "failed", "lost", "not_acquired", "cancelled" */
    int exit_code;
    int signal;                    /* that ended COMMAND; 0: none */
    char reason[700];              /* empty: none */
    const struct belay_info *lock; /* its last known state; NULL: COMMAND had no lock, or did not run */
};

/* Before the lock is acquired, check that the file can be written later. */
enum belay_code run_result_check(const char *path, struct belay_error *err);

/* Write one JSON object. The file is replaced atomically. */
enum belay_code run_result_write(const char *path, const struct run_result *result, struct belay_error *err);

struct run_callbacks {
    /* Before the lock is acquired: may change the request. */
    enum belay_code (*prepare)(void *context, struct lock_request *request, struct belay_error *err);
    /*
     * Under the lock, before COMMAND starts. `lock` is NULL if locking is disabled. Unless it returns BELAY_OK,
     * COMMAND does not start and the lock is released.
     */
    enum belay_code (*before)(void *context, struct belay_client *client, struct belay_lock *lock,
                              struct guardian_job *job, struct belay_error *err);
    /* After COMMAND ended, before the lock is released. It may turn success into failure. */
    void (*after)(void *context, struct run_result *result);
    void *context;
};

/* Run the command after "--"; `callbacks` may be NULL. Returns the exit code. */
int run_exec(struct cli_context *context, const struct options *options,
             const struct run_callbacks *callbacks, struct belay_error *err);

#endif
