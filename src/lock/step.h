/* Steps that all kinds of operation share: requests to the store, retries, the end. For src/lock/ only. */
#ifndef LOCK_STEP_H
#define LOCK_STEP_H

#include "lock/op.h"

/* The states of one kind of operation: less than this. */
enum { OP_STATES_MAX = 10 };

/* A set of states: bit `state`. */
#define OP_FROM(state) (1U << (state))

/* The transitions of one kind of operation. */
struct op_steps {
    /* from[state]: the states that it may follow. An operation starts in state 0. */
    uint16_t from[OP_STATES_MAX];
    void (*start)(struct op *op, int64_t now_ms);
    /* The batch was committed (BELAY_OK), refused, or refused because of a freeze (BELAY_FROZEN). */
    void (*on_commit)(struct op *op, enum belay_code code, struct belay_commit *result, int64_t sent_ms,
                      int64_t now_ms);
    /* op->records were read; or op->blocker, if op->blocker_key is set. */
    void (*on_records)(struct op *op, int64_t now_ms);
    void (*on_wake)(struct op *op, int64_t now_ms);
    /* The store failed. `committing`: in a commit, else in a read. */
    void (*on_fault)(struct op *op, enum belay_code code, const struct belay_error *err, bool committing,
                     int64_t now_ms);
};

extern const struct op_steps acquire_steps;
extern const struct op_steps change_steps; /* adopt, renew, release and force */

/* ---- requests to the store ---- */

/* Begin a batch: one write for each key and each ancestor, with no condition and nothing to set yet. */
void step_begin_batch(struct op *op);
/* Every write of the batch requires that its record is unchanged since op->records were read. */
void step_if_unchanged(struct op *op);
/* Add to the batch: put the intents of `lock_id` on the ancestors. */
void step_put_intents(struct op *op, const char *lock_id, int64_t ttl_ms);
/* Add to the batch: drop the intents of `lock_id`. Uses op->drops. False: no memory, and the operation has ended. */
bool step_drop_intents(struct op *op, const char *lock_id);
/* Allocate op->drops for `room` ids. NULL: no memory, and the operation has ended. */
const char **step_drop_room(struct op *op, size_t room);
/* Add an event about key number `target` to the batch, with the request's lock id and owner. */
struct belay_event *step_event(struct op *op, size_t target, enum belay_level level, const char *type);
/* Enter `state` and want: the commit of the batch. */
void step_commit(struct op *op, int state, int64_t now_ms);
/* The same: the records of the keys and their ancestors. */
void step_look(struct op *op, int state, int64_t now_ms);
/* The same: the record of a key below, which becomes op->blocker. */
void step_read_blocker(struct op *op, int state, const char *key, int64_t now_ms);
/* The same: a wait. Forgets op->records. */
void step_wait(struct op *op, int state, int64_t until_ms);

/* ---- answers of the store ---- */

/*
 * The boot time from which the lease of a lock counts that records[0] shows as ours: computed from
 * what is left of it, and not after the first write that may have acquired it (L5).
 */
int64_t step_found_sent_ms(const struct op *op);
/* Of a request for several keys: op->room's records of the locks that have ended, one for each key. */
struct belay_record *step_ended(struct op *op);
/* Move the records of a commit to op->records. */
void step_adopt_records(struct op *op, struct belay_commit *result);
/* Set op->wakes: the waiters in op->records whose turn it may be now. */
void step_find_wakes(struct op *op);

/*
 * The store failed. True: retry at *out_retry_ms. False: the operation has ended, with `code` or
 * with BELAY_UNKNOWN.
 */
bool step_survives_fault(struct op *op, enum belay_code code, const struct belay_error *err,
                         int64_t give_up_ms, int64_t now_ms, int64_t *out_retry_ms);

/* End the operation. */
void step_done(struct op *op, enum belay_code code);
/* End it with BELAY_OK. The locks are in op->records; the lease counts from `sent_ms`. */
void step_succeed(struct op *op, int64_t sent_ms);
void step_done_no_memory(struct op *op);

/* A random number below `n` (n > 0). */
int64_t step_random(uint64_t *rng, int64_t n);

#endif
