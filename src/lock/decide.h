/*
 * Which client may take the lock now: a pure function of the records.
 *
 * The records are the key's own and its ancestors'. A holder of the key or of an
 * ancestor stands in the way, and so does an intent on the key, which is a
 * holder below it. Waiters stand in the way of those who came later: every
 * ticket on the key's record (for the key or for something below it), and on an
 * ancestor's record those that wait for that ancestor itself.
 *
 * A free lock is kept for its first waiter for one claim time; after that the
 * second may have it, and so on. So a waiter that is stopped, or died in a way
 * the store cannot see, holds up the queue for one claim time and no longer (L4).
 */
#ifndef LOCK_DECIDE_H
#define LOCK_DECIDE_H

#include "lock/op.h"

enum verdict {
    VERDICT_TAKE,    /* nothing blocks us */
    VERDICT_MINE,    /* request.lock_id holds it already: an earlier try succeeded */
    VERDICT_USED,    /* request.lock_id had it, and that is over (L5) */
    VERDICT_REENTER, /* our owner holds it under another id, and asked to share */
    VERDICT_BLOCKED,
    VERDICT_NOT_OURS /* request.lock_id has a ticket that another credential took */
};

struct decision {
    enum verdict verdict;
    bool queued;           /* we have a ticket in every record */
    size_t ahead;          /* live waiters before us */
    size_t blocker;        /* index of the record whose holder, intent or queue blocks us */
    const char *below_key; /* blocked by an intent: the key below that is held; else NULL */
    int64_t may_try_ms;    /* store's clock: when we may take it if nothing changes */
};

/* `records`: request.key's and then its ancestors', as of `now_ms` on the store's clock. */
struct decision decide(const struct op_request *request, const struct belay_record *records, int64_t now_ms);

#endif
