/*
 * The asynchronous operations of a client ("calls"): a hash table by lock id, to wake one; a heap by the time at which
 * they poll again; and a list of those that can continue. A call is in one place at a time:
 *
 *     begin_call() --> READY <------- woken, cancelled, or due -------- WAITING (in the heap)
 *                        |                                                 ^
 *                        | belay_client_poll()                             | OP_WAIT
 *                        v                                                 |
 *                   continue_call() does what the operation wants ---------+-- OP_DONE --> callback, freed
 *                        |     ^
 *           OP_COMMIT or |     | threads_next(): the store has answered
 *           OP_GET, with |     |
 *           threads      v     |
 *                   IN FLIGHT: a worker thread or the store's loop asks the store
 *
 * All of it belongs to the thread that polls; op and step belong to the asking side while the call is in flight.
 * A wake-up or an abandonment is then only noted, and takes effect with the answer.
 */
#ifndef CLIENT_ASYNC_TABLE_H
#define CLIENT_ASYNC_TABLE_H

#include "base/pool.h"
#include "client/shared_poll.h"
#include "lock/op.h"

/* The store's answer to what an operation wanted. */
struct store_step {
    enum belay_code code;
    int64_t sent_us;     /* boot clock, before it was asked */
    int64_t sent_ms;     /* the same in milliseconds */
    int64_t answered_ms; /* of a commit: boot clock */
    int64_t took_us;     /* of a commit */
    struct belay_commit result;
    bool is_shared;                      /* `seen` is from a shared poll: its times are those of the poll */
    struct poll_result seen;             /* of a commit only `err` */
    struct belay_pending_commit pending; /* batch NULL: commit() does it */
};

struct async_table {
    struct belay_async **buckets; /* owned; NULL until there is a first call */
    struct belay_async **heap;    /* owned; waiting, soonest first */
    size_t n_heap;
    size_t cap_heap;
    struct belay_async *ready; /* a list, in the order in which they became ready */
    struct belay_async **ready_end;
    struct belay_async *spare; /* owned; memory for the next calls, linked by next_ready */
    size_t n_spare;
};

struct belay_async {
    struct belay_async *next_in_bucket;
    size_t bucket;
    struct belay_async *next_ready;
    bool is_ready;
    bool is_granted;   /* by the kill switch: the store is not asked */
    bool is_in_flight; /* the store is asked, perhaps by a thread: nothing else may touch op or step */
    bool was_woken;    /* in flight: the records in the answer may be older than the wake-up */
    bool is_abandoned; /* in flight: when the answer is there, it is freed without a callback */
    size_t heap_at;    /* place in the heap, plus 1; 0: not in it */
    int64_t queued_ms; /* boot clock: since when it is in flight */
    struct pool_job job;
    struct store_step *step;           /* owned; for the thread; NULL: none has asked yet */
    struct belay_async *next_answered; /* threads.c */
    struct poller poller;
    struct belay_client *client; /* borrowed */
    belay_async_fn fn;
    void *context;
    size_t size; /* of this memory; set once, what is before it for each call */
    struct op op;
    struct belay_meta metadata[]; /* what op.request borrows: this, and behind it all its texts */
};

/* Memory for a call of `size` bytes: only `size` is set. NULL without memory. */
struct belay_async *async_table_alloc(struct async_table *table, size_t size);
void async_table_free(struct async_table *table, struct belay_async *call);

bool async_table_add(struct async_table *table, struct belay_async *call);
void async_table_remove(struct async_table *table, struct belay_async *call);
/* Not one that is abandoned: its client may have come back with the same id. */
struct belay_async *async_table_find(struct async_table *table, const char *lock_id);
void async_table_set_ready(struct async_table *table, struct belay_async *call);
struct belay_async *async_table_next_ready(struct async_table *table);
/* Put it into the heap, until op.wait_until_ms. False without memory. */
bool async_table_wait(struct async_table *table, struct belay_async *call);
/* A waiting call polls at `at_ms` at the latest. */
void async_table_wake_by(struct async_table *table, struct belay_async *call, int64_t at_ms);
/* The same for all calls that wait because of a freeze. */
void async_table_wake_frozen_by(struct async_table *table, int64_t at_ms);
/* Have all calls poll again: those that wait at once, those in flight after their answer. */
void async_table_wake_all(struct async_table *table);
struct belay_async *async_table_soonest(const struct async_table *table); /* NULL: none waits */
struct belay_async *async_table_any(const struct async_table *table);
void async_table_release(struct async_table *table);

#endif
