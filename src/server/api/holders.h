/*
 * Holders that wait to hear that their lock is no longer theirs (L6): one request
 * each, answered when somebody else has ended the lock, or when its time is over.
 *
 * An event of this server's own client has the lock looked at, at once. A store that
 * others write, too, is looked at once more when the time is over, which is
 * therefore short there.
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

/* Somebody's lock may have ended: have it looked at in the loop's next turn. */
void holders_event(struct holders *all, const struct belay_event *event);

/* Look at the lock and answer. */
void holder_answer(struct holder *holder);
/* Its client is gone. */
void holder_forget(struct holder *holder);

/* Answer all: the server stops. */
void holders_stop(struct holders *all);
void holders_release(struct holders *all);

#endif
