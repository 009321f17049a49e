/* What the operations share: how they ask, end, and get over a store that fails. For src/lock/ only. */
#ifndef LOCK_STEP_H
#define LOCK_STEP_H

#include "lock/op.h"

/* How one kind of operation begins, and how it goes on once it is answered. */
struct op_steps {
    void (*start)(struct op *op, int64_t now_ms);
    /* The batch was done (BELAY_OK) or refused. */
    void (*on_commit)(struct op *op, enum belay_code code, struct belay_commit *result, int64_t sent_ms,
                      int64_t now_ms);
    /* op->records are as of now; or, if op->blocker_key was asked for, op->blocker is. */
    void (*on_records)(struct op *op, int64_t now_ms);
    void (*on_wake)(struct op *op, int64_t now_ms);
    /* Neither done nor refused. `committing`: it was a batch. */
    void (*on_fault)(struct op *op, enum belay_code code, const struct belay_error *err, bool committing,
                     int64_t now_ms);
};

extern const struct op_steps acquire_steps;
extern const struct op_steps change_steps; /* of all others */

/* ---- asking ---- */

/* Begin a batch: one write for each key and each ancestor, conditions and all else unset. */
void step_begin_batch(struct op *op);
/* Make every write depend on its record being as we saw it. */
void step_if_unchanged(struct op *op);
/* Put the locks' intents on the ancestors into the batch, under that lock id. */
void step_put_intents(struct op *op, const char *lock_id, int64_t ttl_ms);
/* Have the batch drop those of that lock id; uses op->drops. False: no memory, and the operation has ended. */
bool step_drop_intents(struct op *op, const char *lock_id);
/* Memory for the ids that a batch drops: op->drops. NULL: the operation has ended. */
const char **step_drop_room(struct op *op, size_t room);
/* An event with the request's id and owner and its key number `target`. */
struct belay_event *step_event(struct op *op, size_t target, enum belay_level level, const char *type);
/* Ask for the batch. */
void step_commit(struct op *op, int state, int64_t now_ms);
/* Ask for the records of the keys and their ancestors. */
void step_look(struct op *op, int state, int64_t now_ms);
/* Ask for the record of a key below, into op->blocker. */
void step_read_blocker(struct op *op, int state, const char *key, int64_t now_ms);
void step_wait(struct op *op, int state, int64_t until_ms);

/* ---- being answered ---- */

/*
 * The key's record shows a lock that is ours already. As of when its lease counts:
 * what is left of it now, and from before the first write that may have taken it (L5).
 */
int64_t step_found_sent_ms(const struct op *op);
/* Of a request for several keys: room for the answer about each lock that has ended. */
struct belay_record *step_ended(struct op *op);
/* Take over the records that a commit brought. */
void step_adopt_records(struct op *op, struct belay_commit *result);
/* Fill op->wakes with the waiters in `records` whose turn it may be. */
void step_find_wakes(struct op *op);

/*
 * The store could not be reached, or its answer was lost. True: it is worth
 * trying again at *out_retry_ms. False: the operation has ended with `code`.
 */
bool step_survives_fault(struct op *op, enum belay_code code, const struct belay_error *err,
                         int64_t give_up_ms, int64_t now_ms, int64_t *out_retry_ms);

void step_done(struct op *op, enum belay_code code);
/* Done, with records[0] as the lock (and those of further keys behind it); the lease counts from `sent_ms`. */
void step_succeed(struct op *op, int64_t sent_ms);
void step_done_no_memory(struct op *op);

/* A random number below `n` (n > 0). */
int64_t step_random(uint64_t *rng, int64_t n);

#endif
