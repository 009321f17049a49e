/*
 * One look for all who wait, on a store that wakes nobody.
 *
 * Who waits there looks again and again. When it is due, it looks also for those
 * of the same process who wait for the same keys, or will be due soon, and they
 * take what it saw for their own look: many waiters cost as much as one.
 *
 *     enter --> sleep --> leave --> look: told meanwhile, or ask the store for
 *                                         all who are in, and tell them
 *
 * What one is told was asked for after it entered. So it is never older than its
 * own last write, and it is told of each look once: a look that is due and brings
 * nothing new goes to the store.
 */
#ifndef CLIENT_SHARED_POLL_H
#define CLIENT_SHARED_POLL_H

#include <pthread.h>

#include "belay/store.h"
#include "lock/op.h"

/* What was seen. */
struct look {
    enum belay_code code;
    int64_t store_now_ms;
    int64_t asked_ms; /* boot clock, before the store was asked */
    int64_t seen_ms;  /* boot clock, when it had answered */
    struct belay_error err;
    size_t n;                                 /* of the records, as many as were asked for; 0 after a fault */
    struct belay_record records[OP_KEYS_MAX]; /* owned */
};
void look_release(struct look *look);

/* Somebody who waits. All zero before it enters for the first time. */
struct looker {
    struct looker *next;
    struct looker *previous;
    struct looker *next_told;
    const char *keys[OP_KEYS_MAX]; /* the texts are borrowed, while it is in */
    size_t n;
    int64_t due_ms;
    int64_t span_ms; /* how long it waits this time */
    bool in;
    bool coming;       /* somebody asks the store for it just now */
    struct look *news; /* owned; NULL: it was told nothing */
};
void looker_release(struct looker *looker); /* when it is not in */

struct lookout {
    pthread_mutex_t mutex;
    pthread_cond_t answered;
    struct looker *first;
};

void lookout_init(struct lookout *lookout);
void lookout_release(struct lookout *lookout);

/* It waits for news of these keys, at most OP_KEYS_MAX, until due_ms. */
void lookout_enter(struct lookout *lookout, struct looker *looker, const char *const *keys, size_t n,
                   int64_t due_ms);
/* It waits no longer. What it was told counts if it is due; who was woken before that looks anew. */
void lookout_leave(struct lookout *lookout, struct looker *looker);
/* What it was told, or what the store says. The caller releases *out. */
void lookout_look(struct lookout *lookout, struct belay_store *store, struct looker *looker,
                  const char *const *keys, size_t n, struct look *out);

#endif
