/*
 * Which client may take the lock now: a pure function of the records.
 *
 * The records are the key's own and its ancestors', or those of several keys. A
 * holder of the key or of an ancestor stands in the way, and so does an intent on
 * the key, which is a holder below it. Waiters stand in the way of those that came
 * later: every ticket on the key's record (for the key or for something below it),
 * and on an ancestor's record those that wait for that ancestor itself.
 *
 * Two get along if both are shared, or if both want a slot of the same lock and there
 * is one for each:
 *
 *                          exclusive   shared    slots N
 *     exclusive                -          -          -
 *     shared                   -         yes         -
 *     slots N, same key        -          -      while fewer than N hold it
 *
 * A shared lock below a key gets along with shared locks of that key, too. A waiter that
 * does not get along with one ahead of it does not overtake it, even if it gets along
 * with the holders: else the one ahead might never have its turn.
 *
 * A free lock is kept for its first waiter for one claim time; after that the
 * second may have it, and so on. So a waiter that is stopped, or died in a way
 * the store cannot see, holds up the queue for one claim time and no longer (L4). A
 * waiter for several keys cannot claim one that is free while another is held: its
 * place is kept until its ticket expires, which is soon if it does not put it again.
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
    VERDICT_NOT_OURS,    /* request.lock_id has a ticket that another credential took */
    VERDICT_OTHER_SLOTS, /* the lock is held with another number of slots */
    VERDICT_FULL         /* shared by as many as a record can hold */
};

struct decision {
    enum verdict verdict;
    bool queued;           /* we have a ticket in every record */
    size_t ahead;          /* live waiters before us */
    size_t blocker;        /* index of the record whose holder, intent or queue blocks us */
    const char *holder_id; /* re-enter: the lock id of our owner's lock */
    const char *below_key; /* blocked by an intent: the key below that is held; else NULL */
    int64_t may_try_ms;    /* store's clock: when we may take it if nothing changes */
};

/* `records`: those of the request's keys, then their ancestors', as of `now_ms` on the store's clock. */
struct decision decide(const struct op_request *request, const struct belay_record *records, int64_t now_ms);

/* How many of `slots` slots are free on a record that is not held in another mode. */
int decide_free_slots(const struct belay_record *record, int slots, int64_t margin_ms, int64_t now_ms);

/* Say in `err` that the lock is held with other slots than `slots`. Returns BELAY_INVALID. */
enum belay_code decide_say_other_slots(struct belay_error *err, const char *key, int slots,
                                       const struct belay_record *held);

/* How a ticket ahead of the request on its record gets along with it. */
enum clash {
    CLASH_NONE, /* both may hold at once; or it waits for another key below an ancestor */
    CLASH_SLOT, /* both want a slot of this lock */
    CLASH_TURN  /* one after the other */
};
enum clash decide_clash(const struct op_request *request, const struct belay_record *record, bool is_target,
                        const struct belay_ticket *ticket);

#endif
