/*
 * Whether a client may acquire the lock now: a pure function of the records.
 *
 * The records are those of the request's keys and of their ancestors. A request is
 * blocked by a holder of its key or of an ancestor, and by an intent on its key, which
 * stands for a holder below it. It is also blocked by waiters that came earlier: by every
 * ticket on the key's record (for the key or for one below it), and on an ancestor's
 * record by the tickets for that ancestor itself.
 *
 * Two clients are compatible if both are shared, or if both want a slot of the same lock
 * and there is one for each:
 *
 *                          exclusive   shared    slots N
 *     exclusive                -          -          -
 *     shared                   -         yes         -
 *     slots N, same key        -          -      while fewer than N hold it
 *
 * A shared lock below a key is compatible with shared locks on that key, too. A waiter
 * does not overtake an incompatible one ahead of it, even if it is compatible with the
 * holders: otherwise the one ahead might never have its turn.
 *
 * A free lock is reserved for its first waiter for one claim time; after that the second
 * may acquire it, and so on. So a waiter that is suspended, or died unnoticed by the
 * store, delays the queue by one claim time and no more (L4). A waiter for several keys
 * cannot claim one that is free while another is held: its place is kept until its ticket
 * expires, which is soon if it does not put it again.
 */
#ifndef LOCK_DECIDE_H
#define LOCK_DECIDE_H

#include "lock/op.h"

enum verdict {
    VERDICT_TAKE,    /* nothing blocks us */
    VERDICT_MINE,    /* request.lock_id holds the lock already: an earlier attempt succeeded */
    VERDICT_USED,    /* request.lock_id has held the lock and no longer does (L5) */
    VERDICT_REENTER, /* our owner holds the lock under another id, and the request is re-entrant */
    VERDICT_BLOCKED,
    VERDICT_NOT_OURS,    /* request.lock_id has a ticket that another credential put */
    VERDICT_OTHER_SLOTS, /* the lock is held with another number of slots */
    VERDICT_FULL,        /* the lock is shared by BELAY_HOLDERS_MAX holders */
    VERDICT_HEAVY        /* with the request's, the holders would have too much metadata */
};

struct decision {
    enum verdict verdict;
    bool queued;           /* we have a ticket in every record */
    size_t ahead;          /* live waiters before us */
    size_t blocker;        /* index of the record whose holder, intent or queue blocks us */
    const char *holder_id; /* with VERDICT_REENTER: the lock id of our owner's lock */
    const char *below_key; /* blocked by an intent: the key below that is held; else NULL */
    int64_t since_unix_ms; /* of our ticket in the first record; 0: there is none */
    int64_t may_try_ms;    /* store's clock: when we may acquire it if nothing changes */
};

/* `records`: of the request's keys, then of their ancestors, as of `now_ms` on the store's clock. */
struct decision decide(const struct op_request *request, const struct belay_record *records, int64_t now_ms);

/* How many of `slots` slots are free on a record that is not held in another mode. */
int decide_free_slots(const struct belay_record *record, int slots, int64_t margin_ms, int64_t now_ms);

/* Set `err`: the lock is held with another number of slots than `slots`. Returns BELAY_INVALID. */
enum belay_code decide_say_other_slots(struct belay_error *err, const char *key, int slots,
                                       const struct belay_record *held);

/*
 * Whether the holders of a lock that is shared or has slots would have more than BELAY_META_SUM_MAX of metadata
 * with that of the request: each read and each write of the lock handles all of it. An adoption replaces its holder's.
 */
bool decide_is_heavy(const struct op_request *request, const struct belay_record *record, int64_t now_ms);
/* Set `err` for that. Returns BELAY_HELD: holders end. */
enum belay_code decide_say_heavy(struct belay_error *err, const char *key);

/* Whether a ticket ahead of the request conflicts with it. */
enum clash {
    CLASH_NONE, /* both may hold at once; or the ticket waits for another key below an ancestor */
    CLASH_SLOT, /* both want a slot of this lock */
    CLASH_TURN  /* one holds after the other */
};
enum clash decide_clash(const struct op_request *request, const struct belay_record *record, bool is_target,
                        const struct belay_ticket *ticket);

#endif
