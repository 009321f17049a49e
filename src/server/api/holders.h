/*
 * Holders that wait to learn that they have lost their lock (L6): one request each, answered when another client has
 * ended the lock, or when its time is over.
 *
 * An event of this server's client causes a read of the lock at once, as does a wake-up by another client of the
 * store. Not every store passes those on, so the lock is read once more when the time is over; on a store on the
 * network that time is short.
 */
#ifndef SERVER_API_HOLDERS_H
#define SERVER_API_HOLDERS_H

#include "belay.h"
#include "server/http/loop.h"

enum { HOLDER_BUCKETS = 4096, HOLDERS_MAX = 20000, HOLDER_NETWORK_MS = 8000 };

struct exchange;

struct holder {
    struct holder *next;
    struct holder **bucket; /* of holders.buckets */
    struct holders *all;    /* borrowed */
    struct exchange *x;
    struct timer timer;
    char lock_id[BELAY_ID_MAX + 1];
};

struct holders {
    struct holder *buckets[HOLDER_BUCKETS]; /* by lock id */
    size_t n;
};

/* A lock may have ended: read it in the loop's next turn. */
void holders_event(struct holders *all, const struct belay_event *event);

/* The same for the holder with this lock id; NULL: for all. */
void holders_wake(struct holders *all, const char *lock_id);

/* Reply to all: the server stops. */
void holders_stop(struct holders *all);
void holders_release(struct holders *all);

#endif
