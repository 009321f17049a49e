/* The calls of a client: by lock id, by when they want to look again, and those that can go on. */
#ifndef CLIENT_CALL_TABLE_H
#define CLIENT_CALL_TABLE_H

#include "base/pool.h"
#include "client/lookout.h"
#include "lock/op.h"

/* The store's answer to what an operation wanted. */
struct client_step {
    enum belay_code code;
    int64_t sent_ms; /* boot clock, before it was asked */
    int64_t took_us; /* a commit, if anybody is told of events */
    struct belay_commit result;
    struct belay_record records[OP_KEYS_MAX];
    int64_t store_now_ms;
    struct belay_error err;
    bool is_look; /* then all of it is in `look` */
    struct look look;
};

/* Those of a client, by lock id and by when they want to look again. */
struct call_table {
    struct belay_call **buckets; /* owned; NULL until there is a first call */
    struct belay_call **heap;    /* owned; waiting, soonest first */
    size_t n_heap;
    size_t cap_heap;
    struct belay_call *ready; /* in the order in which they became so */
    struct belay_call **ready_end;
};

struct belay_call {
    struct belay_call *next_in_bucket;
    struct belay_call *next_ready;
    bool is_ready;
    size_t heap_at; /* place in the heap, plus 1; 0: not in it */
    struct op op;
    bool is_out;    /* a thread asks the store for it: then nobody else may touch op or step */
    bool was_woken; /* meanwhile: what it is being told may be out of date */
    struct pool_job job;
    struct client_step step;
    struct belay_call *next_back; /* threads.c */
    struct looker looker;
    char *key; /* owned, as is all below that is text */
    char *lock_id;
    char *old_id;
    char *owner;
    char *owner_name;
    char *by;
    char *reason;
    struct belay_meta *metadata;
    size_t n_metadata;
    char *ancestors[BELAY_ANCESTORS_MAX];
    struct belay_client *client; /* borrowed */
    belay_call_fn fn;
    void *context;
};

bool call_table_add(struct call_table *table, struct belay_call *call);
void call_table_remove(struct call_table *table, struct belay_call *call);
struct belay_call *call_table_find(struct call_table *table, const char *lock_id);
void call_table_set_ready(struct call_table *table, struct belay_call *call);
struct belay_call *call_table_next_ready(struct call_table *table);
/* Have it wait until op.wait_until_ms. False without memory. */
bool call_table_wait(struct call_table *table, struct belay_call *call);
struct belay_call *call_table_soonest(const struct call_table *table); /* NULL: none waits */
struct belay_call *call_table_any(const struct call_table *table);
void call_table_release(struct call_table *table);

#endif
