/*
 * The second process of `belay run`. It starts COMMAND, and ends COMMAND and
 * all that descends from it before the lease is over, whatever becomes of belay.
 *
 *     shell
 *       `- belay       the shell's group: renews the lease, passes signals on
 *            `- guardian    a group of its own: knows the deadline
 *                 `- COMMAND     a group of its own, in the foreground
 *                      `- ...         adopted by the guardian if orphaned
 *
 * All are of one session, so that job control works. The guardian blocks every
 * signal; kill -9 of belay, or of belay's group, does not reach it. The two
 * talk over a socket, where the end of file means that the other one is dead,
 * and share a page of memory with the job and the deadline.
 */
#ifndef CLI_RUN_GUARDIAN_H
#define CLI_RUN_GUARDIAN_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "belay.h"
#include "telemetry/telemetry.h"

enum guardian_message_type {
    /* from belay */
    GUARDIAN_START,    /* the job is in the page: start COMMAND */
    GUARDIAN_SIGNAL,   /* pass the signal `value` to COMMAND's group */
    GUARDIAN_CONTINUE, /* the lease is proved: COMMAND may go on, with the terminal if we have it */
    GUARDIAN_END,      /* the lease is lost: end COMMAND */
    GUARDIAN_DONE,     /* the lock is released: nothing is left to do */
    /* from the guardian */
    GUARDIAN_STARTED,     /* `value`: COMMAND's process id */
    GUARDIAN_NOT_STARTED, /* `value`: errno */
    GUARDIAN_STOPPED,     /* `value`: the signal that stopped COMMAND */
    GUARDIAN_ENDING,      /* COMMAND was told to end: END, or the lease nears its end */
    GUARDIAN_ENDED        /* `value`: COMMAND's wait status; if it was ended, nobody is left */
};

struct guardian_message {
    int32_t type; /* enum guardian_message_type */
    int32_t value;
};

enum { GUARDIAN_URL_SIZE = 5000, GUARDIAN_PATH_SIZE = 4200 };

/* What COMMAND runs under. */
struct guardian_job {
    char key[BELAY_KEY_MAX + 1];
    char lock_id[BELAY_ID_MAX + 1]; /* empty: it runs without a lock */
    char store_url[GUARDIAN_URL_SIZE];
    char state_url[GUARDIAN_URL_SIZE];        /* of a deployment; empty: it is none */
    char state_file[GUARDIAN_PATH_SIZE];      /* the state as it was loaded */
    char state_out[GUARDIAN_PATH_SIZE];       /* where COMMAND puts the new one */
    char traceparent[BELAY_TRACEPARENT_SIZE]; /* empty: none */
    uint64_t token;                           /* 0: none */
    int64_t kill_after_ms;
    bool release; /* ours to release should belay die: not so with a re-entered lock */
};

struct guardian_shared {
    _Atomic int64_t deadline_boot_ms; /* INT64_MAX: no lease */
    _Atomic int64_t ended_boot_ms;    /* when COMMAND had ended */
    atomic_bool has_job;
    struct guardian_job job;
};

struct guardian {
    pid_t pid;
    pid_t belay_group;
    int socket;                     /* -1: no link */
    int tty;                        /* -1: no terminal */
    struct guardian_shared *shared; /* shared with the other process */
    bool alone;                     /* belay has no other child than this one */
};

struct guardian_setup {
    char **argv;             /* COMMAND; the memory it lies in is overwritten once COMMAND runs */
    const char *config_path; /* of --config, or NULL */
    struct sigaction old_sigpipe;
};

/*
 * Start the guardian, which waits for GUARDIAN_START. To be called before there is
 * a thread or a store. False, with errno, if it cannot be started.
 */
bool guardian_start(struct guardian *guardian, const struct guardian_setup *setup);

/* May be called from any thread; never blocks. */
void guardian_send(const struct guardian *guardian, enum guardian_message_type type, int value);

/* The next message; false if the guardian is dead. */
bool guardian_receive(const struct guardian *guardian, struct guardian_message *out_message);

/* Go away without a word, as if we were dead: the guardian goes on trying to end COMMAND. */
void guardian_abandon(struct guardian *guardian);

/* Let the guardian go, and wait until it is gone. */
void guardian_stop(struct guardian *guardian);

/*
 * The guardian was killed: end COMMAND in its stead. Returns when nobody is
 * left; true if COMMAND's wait status is known. `command` is 0 if nobody knows
 * whether COMMAND was started.
 */
bool guardian_take_over(struct guardian *guardian, pid_t command, int *out_status);

/* ---- between guardian_link.c and guardian.c ----------------------------- */

/* The guardian's life; does not return. `mask` are the signals blocked before. */
_Noreturn void guardian_main(struct guardian *guardian, const struct guardian_setup *setup,
                             const sigset_t *mask);

#endif
