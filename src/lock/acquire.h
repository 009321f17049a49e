/* An acquisition: acquire.c decides and waits, acquire_batch.c writes. For src/lock/ only. */
#ifndef LOCK_ACQUIRE_H
#define LOCK_ACQUIRE_H

#include "lock/op.h"

/* In acquire.c is a drawing. */
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

/* Take a lock that was never held or was released, and that has no waiters. */
void acquire_try_free(struct op *op, int64_t now_ms);
/* Take it from what op->records show: on the condition that they have not changed. */
void acquire_take(struct op *op, int64_t now_ms);
/* Whether the store can tell by itself that it is our turn, or that we must wait. */
bool acquire_takes_turns(const struct op *op);
/* Take it without looking, if it is our turn. */
void acquire_claim(struct op *op, int64_t now_ms);
/* Our owner's own lock under another id: prove and renew it. */
void acquire_reenter(struct op *op, const char *holder_id, int64_t now_ms);
/* Put a ticket on every key. `again`: we had one before. `is_broken`: not on every key any more. */
void acquire_queue(struct op *op, bool again, bool is_broken, int64_t now_ms);
/* When to put the ticket again; a store that names no time keeps it by itself. */
int64_t acquire_renew_ticket_ms(const struct op *op, int64_t now_ms);
/* Leave the queue, and report a refusal: op->code and op->err say why. */
void acquire_leave(struct op *op, const char *why, int64_t now_ms);

/* The first of the request's keys that is below record i, an ancestor. */
size_t acquire_first_below(const struct op_request *request, size_t i);

#endif
