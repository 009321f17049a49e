/*
 * One poll for all waiters of a process, on a store that wakes no waiters.
 *
 * A waiter on such a store polls. When its poll is due, it also reads the keys of the other
 * waiters that are due soon, or wait for the same keys, and leaves each of them the result:
 * many waiters cost as much as one.
 *
 *     enter --> sleep --> leave --> read: the result that another poller left, or else
 *                                         read the store for all pollers that are in
 *
 * A result was asked for after its poller entered, so it is never older than that poller's
 * own last write. Each result is used once; a poll that is due without one reads the store.
 */
#ifndef CLIENT_SHARED_POLL_H
#define CLIENT_SHARED_POLL_H

#include <pthread.h>

#include "belay/store.h"
#include "lock/op.h"

/* The records that a poll has read. */
struct poll_result {
    enum belay_code code;
    int64_t store_now_ms;
    int64_t asked_ms; /* boot clock, before the store was asked */
    int64_t seen_ms;  /* boot clock, when it had answered */
    struct belay_error err;
    size_t n;                     /* of the records, as many as were asked for; 0 after a fault */
    struct belay_record *records; /* owned */
};
void poll_result_release(struct poll_result *result);

/* A waiter. All zero before it enters for the first time. */
struct poller {
    struct poller *next;
    struct poller *previous;
    struct poller *next_served;
    const char *const *keys; /* borrowed, while it is in */
    size_t n;
    int64_t due_ms;
    int64_t span_ms; /* how long it waits this time */
    bool in;
    bool coming;                /* another poller is reading its keys */
    struct poll_result *result; /* owned; NULL: none so far */
};
void poller_release(struct poller *poller); /* when it is not in */

struct shared_poll {
    pthread_mutex_t mutex;
    pthread_cond_t answered;
    struct poller *first;
};

void shared_poll_init(struct shared_poll *poll);
void shared_poll_release(struct shared_poll *poll);

/* It waits for a change of these keys, at most OP_KEYS_MAX, until due_ms. */
void shared_poll_enter(struct shared_poll *poll, struct poller *poller, const char *const *keys, size_t n,
                       int64_t due_ms);
/* It waits no longer. Its result is dropped if it was woken before it was due. */
void shared_poll_leave(struct shared_poll *poll, struct poller *poller);
/* The result that another poller left, or what the store returns. The caller releases *out. */
void shared_poll_read(struct shared_poll *poll, struct belay_store *store, struct poller *poller,
                      const char *const *keys, size_t n, struct poll_result *out);

#endif
