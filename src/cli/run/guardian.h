/*
 * The second process of `belay run`. It starts COMMAND, and ends COMMAND with all its descendants before the
 * lease expires, even if belay is stopped or killed.
 *
 *     shell
 *       `- belay       the shell's group: renews the lease, forwards signals
 *            `- guardian    a group of its own: knows the deadline
 *                 `- COMMAND     a group of its own, in the foreground
 *                      `- ...         adopted by the guardian if orphaned
 *
 * All of them belong to one session, so that job control works. The guardian blocks every signal; kill -9 of
 * belay, or of belay's group, does not reach it. The two processes exchange messages over a socket, where end of
 * file means that the peer is dead, and share memory with the job and the deadline.
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
    GUARDIAN_START,    /* the job is in the shared memory: start COMMAND */
    GUARDIAN_SIGNAL,   /* send the signal `value` to COMMAND's group */
    GUARDIAN_CONTINUE, /* the lease is valid: continue COMMAND, in the foreground if belay is there */
    GUARDIAN_END,      /* the lease is lost: end COMMAND */
    GUARDIAN_DONE,     /* the lock is released: exit */
    /* from the guardian */
    GUARDIAN_STARTED,     /* `value`: COMMAND's process id */
    GUARDIAN_NOT_STARTED, /* `value`: errno */
    GUARDIAN_STOPPED,     /* `value`: the signal that stopped COMMAND */
    GUARDIAN_ENDING,      /* TERM was sent to COMMAND: after END, or because the lease is about to expire */
    GUARDIAN_ENDED        /* `value`: COMMAND's wait status; after ENDING no descendant is left */
};

struct guardian_message {
    int32_t type; /* enum guardian_message_type */
    int32_t value;
};

enum { GUARDIAN_URL_SIZE = 5000, GUARDIAN_PATH_SIZE = 4200 };

struct guardian_job {
    char key[BELAY_KEY_MAX + 1];
    char more_keys[BELAY_KEYS_MAX - 1][BELAY_KEY_MAX + 1]; /* that were acquired with it */
    size_t n_more_keys;
    char lock_id[BELAY_ID_MAX + 1];           /* empty: COMMAND runs without a lock */
    char store_url[GUARDIAN_URL_SIZE];        /* for COMMAND: without a password */
    char release_url[GUARDIAN_URL_SIZE];      /* for the guardian's own release; empty: the same */
    char state_url[GUARDIAN_URL_SIZE];        /* `belay deploy` only, else empty; so the two paths */
    char state_file[GUARDIAN_PATH_SIZE];      /* the state as it was loaded */
    char state_out[GUARDIAN_PATH_SIZE];       /* where COMMAND puts the new state */
    char traceparent[BELAY_TRACEPARENT_SIZE]; /* empty: none */
    uint64_t token;                           /* 0: none */
    uint64_t more_tokens[BELAY_KEYS_MAX - 1]; /* of more_keys */
    int64_t kill_after_ms;
    bool release; /* the guardian releases the lock if belay dies; false for a re-entered lock */
};

struct guardian_shared {
    _Atomic int64_t deadline_boot_ms; /* INT64_MAX: no lease */
    _Atomic int64_t ended_boot_ms;    /* when COMMAND ended */
    atomic_bool has_job;
    struct guardian_job job;
};

struct guardian {
    pid_t pid;
    pid_t belay_group;
    int socket;                     /* -1: no link */
    int tty;                        /* -1: no terminal */
    struct guardian_shared *shared; /* mapped in both processes */
    bool alone;                     /* the guardian is belay's only child */
};

struct guardian_setup {
    char **argv;             /* COMMAND; overwritten in the guardian once COMMAND runs */
    const char *config_path; /* of --config, or NULL */
    struct sigaction old_sigpipe;
};

/*
 * Fork the guardian, which waits for GUARDIAN_START. Call it before any thread or store exists. False with errno
 * on failure.
 */
bool guardian_start(struct guardian *guardian, const struct guardian_setup *setup);

/* Call it from any thread; never blocks. */
void guardian_send(const struct guardian *guardian, enum guardian_message_type type, int value);

/* Blocks for the next message; false if the guardian is dead. */
bool guardian_receive(const struct guardian *guardian, struct guardian_message *out_message);

/* Close the link as if belay were dead: the guardian keeps trying to end COMMAND. */
void guardian_abandon(struct guardian *guardian);

/* Tell the guardian to exit, and wait until it has. */
void guardian_stop(struct guardian *guardian);

/*
 * The guardian was killed: end COMMAND from belay's own process. Returns when no descendant is left; true if
 * COMMAND's wait status is known. `command` is 0 if COMMAND may or may not have been started.
 */
bool guardian_take_over(struct guardian *guardian, pid_t command, int *out_status);

#endif
