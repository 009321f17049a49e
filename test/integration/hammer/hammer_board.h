/*
 * What the processes of kinds_hammer tell each other: a board in memory that all of them map.
 *
 * A holder publishes a claim: these keys, in this mode, until this time on CLOCK_BOOTTIME, which
 * is the deadline that the library gave it. It withdraws the claim before it releases the lock.
 * So a claim is true even if its process is stopped or killed, and two claims that exclude each
 * other at one moment are a mistake of belay.
 *
 *     worker   acquire -> publish -> (check, extend the deadline)* -> withdraw -> release
 *     killed   the claim stands until its deadline; nobody else may get the lock before
 *     stopped  the same; once continued, it asks belay_lock_is_mine() before each step
 *
 * A claim has one writer. `version` is odd while the writer changes it and differs for each
 * claim, so that a reader who sees one version twice knows that the claim stood in between.
 */
#ifndef HAMMER_BOARD_H
#define HAMMER_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    N_WORKERS_MAX = 32,
    N_CLAIMS = 64, /* more than workers: the claim of a killed worker stands until its deadline */
    N_KEYS = 7,
    N_SLOTS = 3,
    N_FAULTS = 16,
    N_GRANTS = 1 << 18,
    WAIT_MS = 120000 /* for a busy machine */
};

enum kind {
    KIND_EXCLUSIVE,
    KIND_SHARED,
    KIND_SLOTS,
    KIND_JOINT_EXCLUSIVE,
    KIND_JOINT_SHARED,
    KIND_JOINT_SLOTS,
    N_KINDS
};
extern const char *const kind_names[N_KINDS];

enum count {
    COUNT_LOST,     /* leases that ended while their holder was stopped or slow */
    COUNT_STOPPED,  /* of these: by a process that was stopped past its lease */
    COUNT_TROUBLE,  /* the store did not answer, or its answer was lost */
    COUNT_REPEATED, /* acquisitions found again by their lock id */
    COUNT_CHECKS,   /* of the whole board */
    COUNT_ASKED,    /* checks of a key in the store */
    COUNT_CROWDED,  /* moments at which all slots of a key were taken */
    COUNT_TOGETHER, /* moments at which several held one key */
    N_COUNTS
};
extern const char *const count_names[N_COUNTS];

/* The first of them with slots, the next without, the last two in a hierarchy. */
enum { KEY_SLOTS_END = 2, KEY_PARENT = 5, KEY_CHILD = 6 };
extern const char *const key_names[N_KEYS];

struct claim {
    atomic_uint version;
    atomic_uint keys; /* bits of key_names */
    atomic_int kind;
    _Atomic int64_t until_boot_ms; /* 0: none */
    atomic_int pid;                /* of its writer; 0: free. Set by the driver. */
};

struct grant {
    atomic_int key; /* + 1; 0: not written */
    _Atomic uint64_t token;
};

struct board {
    int64_t ttl_ms;
    atomic_bool is_over; /* no new acquisitions */
    atomic_uint n_turns; /* of all processes: the kinds take turns */
    struct claim claims[N_CLAIMS];
    _Atomic uint64_t highest[N_KEYS]; /* token that a holder has published */
    atomic_size_t n_grants;
    struct grant grants[N_GRANTS];
    atomic_ullong done[N_KINDS];
    atomic_ullong done_by[N_WORKERS_MAX];
    atomic_ullong counts[N_COUNTS];
    _Atomic int64_t longest_wait_ms;
    atomic_size_t n_faults;
    char faults[N_FAULTS][400];
};

struct board *
board_new(int64_t ttl_ms); /* shared with processes that are forked later; ends the program on failure */
void board_count(struct board *board, enum count count);
__attribute__((format(printf, 2, 3))) void board_fault(struct board *board, const char *format, ...);

/* By the claim's own process. */
void claim_publish(struct claim *claim, unsigned keys, enum kind kind, int64_t until_boot_ms);
void claim_extend(struct claim *claim, int64_t until_boot_ms);
void claim_withdraw(struct claim *claim);

/* Record a fault if claims that stand at the same moment exclude each other. */
void board_check(struct board *board);

/* Note the token of a new holder. Record a fault if it is not above `seen`, the highest before it asked. */
void board_grant(struct board *board, int key, uint64_t token, uint64_t seen);
/* At the end: no token of a key was granted twice. */
void board_check_tokens(struct board *board);

bool kind_is_shared(enum kind kind);
bool kind_is_slots(enum kind kind);

#endif
