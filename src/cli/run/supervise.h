/*
 * belay while COMMAND runs: signals and the terminal between the two, the
 * lease's deadline to the guardian, and Ctrl-Z.
 */
#ifndef CLI_RUN_SUPERVISE_H
#define CLI_RUN_SUPERVISE_H

#include "cli/core/cli.h"
#include "cli/run/command_process.h"
#include "cli/run/guardian.h"

enum supervise_end {
    SUPERVISE_ENDED,          /* `status` is COMMAND's wait status */
    SUPERVISE_NOT_STARTED,    /* `failure` is an errno */
    SUPERVISE_STATUS_UNKNOWN, /* the guardian was killed, and COMMAND's status is not known */
    SUPERVISE_STUCK           /* COMMAND could not be ended: it may still run */
};

struct supervise {
    const struct cli_context *context;
    struct guardian *guardian;
    struct belay_lock *lock; /* NULL: it runs without one */
    int64_t publish_ms;      /* how often the deadline is passed on */
    atomic_bool lost;        /* set by belay_lock_options.on_lost, after `why` */
    char why[256];
    struct terminal_mode mode; /* the terminal's, from before GUARDIAN_START: COMMAND may change it at once */

    enum supervise_end end;
    pid_t command;
    int status;
    int failure;
    bool was_ended; /* because of its lease, or in place of a dead guardian */
    bool guardian_died;
    int die_by_signal; /* a signal that whoever waits for us should see as COMMAND's parent would; 0: none */
};

/* Block every signal in this thread; supervise_run() reads them. */
void supervise_block_signals(void);

/* After GUARDIAN_START; returns when COMMAND is gone. The terminal is ours again then. */
void supervise_run(struct supervise *supervise);

/* End this process by a signal, as COMMAND ended. */
void supervise_die_by_signal(int number);

#endif
