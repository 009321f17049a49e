/*
 * The work of belay while COMMAND runs: forward signals, hand over the terminal, keep the guardian's deadline up to
 * date, and handle Ctrl-Z.
 */
#ifndef CLI_RUN_SUPERVISE_H
#define CLI_RUN_SUPERVISE_H

#include "cli/core/cli.h"
#include "cli/run/command_process.h"
#include "cli/run/guardian.h"

enum supervise_end {
    SUPERVISE_ENDED,          /* `status` is COMMAND's wait status */
    SUPERVISE_NOT_STARTED,    /* `failure` is an errno */
    SUPERVISE_STATUS_UNKNOWN, /* the guardian was killed, and COMMAND's wait status is unknown */
    SUPERVISE_STUCK           /* COMMAND could not be killed and may still run */
};

struct supervise {
    const struct cli_context *context;
    struct guardian *guardian;
    struct belay_lock *lock; /* NULL: COMMAND runs without a lock */
    sigset_t signals;        /* those that supervise_block_signals() blocks, and supervise_run() reads */
    int64_t publish_ms;      /* how often the guardian learns the deadline */
    atomic_bool lost;        /* set by belay_lock_options.on_lost, after `why` */
    char why[256];
    struct terminal_mode mode; /* of the terminal before GUARDIAN_START: COMMAND may change it at once */

    enum supervise_end end;
    pid_t command;
    int status;
    int failure;
    bool was_ended; /* COMMAND was ended because of its lease */
    bool guardian_died;
    int die_by_signal; /* the signal that our parent should see as the cause of our end; 0: none */
};

/* Block every signal in this thread; supervise_run() reads them from a signalfd. */
void supervise_block_signals(struct supervise *supervise);

/* Call it after GUARDIAN_START. Returns when COMMAND has ended and the terminal is belay's again. */
void supervise_run(struct supervise *supervise);

/* End this process by the signal that ended COMMAND. */
void supervise_die_by_signal(int number);

#endif
