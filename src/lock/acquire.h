/* An acquisition: acquire.c decides and waits, acquire_batch.c writes. For src/lock/ only. */
#ifndef LOCK_ACQUIRE_H
#define LOCK_ACQUIRE_H

#include "lock/op.h"

/* acquire.c has a drawing. */
enum acquire_state {
    TRYING,
    LOOKING,
    CLAIMING,
    TAKING,
    REENTERING,
    READING_BLOCKER,
    QUEUEING,
    WAITING,
    RECOVERING,
    LEAVING
};

/* TRYING: acquire a lock that is not held and has no waiters, without reading its record first. */
void acquire_try_free(struct op *op, int64_t now_ms);
/* TAKING: acquire the lock if op->records have not changed since they were read. */
void acquire_take(struct op *op, int64_t now_ms);
/* Whether a write can use BELAY_IF_OCCUPIED and BELAY_IF_NEXT. */
bool acquire_takes_turns(const struct op *op);
/* CLAIMING: acquire the lock if it is our turn, without reading its record first. */
void acquire_claim(struct op *op, int64_t now_ms);
/* REENTERING: our owner holds the lock as `holder_id`; renew that lease. */
void acquire_reenter(struct op *op, const char *holder_id, int64_t now_ms);
/* QUEUEING: put a ticket on every key. `again`: we had one before. `is_broken`: no longer on every key. */
void acquire_queue(struct op *op, bool again, bool is_broken, int64_t now_ms);
/* When to put the ticket again, on the boot clock. INT64_MAX: a ticket of this store does not expire. */
int64_t acquire_renew_ticket_ms(const struct op *op, int64_t now_ms);
/* LEAVING: leave the queue, and record the refusal; op->code and op->err are set. `why` is for the event. */
void acquire_leave(struct op *op, const char *why, int64_t now_ms);

/* The first of the request's keys that is below record i, which is an ancestor's. */
size_t acquire_first_below(const struct op_request *request, size_t i);

#endif
