/* A batch made into requests. */
#ifndef STORE_DYNAMODB_DYNAMODB_PLAN_H
#define STORE_DYNAMODB_DYNAMODB_PLAN_H

#include "store/dynamodb/dynamodb_internal.h"

enum action_kind { ACTION_UPDATE, ACTION_DELETE, ACTION_CHECK };
enum action_of { OF_ITEM, OF_LINE, OF_FENCE };

/* What is done to one item. */
struct action {
    enum action_kind kind;
    enum action_of of;
    size_t write;      /* which of the batch it belongs to */
    const char *table; /* borrowed */
    json_t *key;       /* owned */
    struct expr expr;
};

struct plan {
    const struct belay_batch *batch; /* borrowed */
    int64_t now_ms;                  /* what the writes say the time is */
    struct action *actions;          /* owned */
    size_t n;
    bool *leave_out;        /* owned; of the writes: there is no item, and that is no error */
    struct ddb_items *seen; /* owned; of the writes: what their conditions speak of */
    bool *has_seen;         /* owned */
    /* owned; of the writes: what lay there before a batch that ends a lock, as a transaction brings
       nothing back, and what is read afterwards may be the next holder's; NULL: not looked at */
    struct ddb_items *before;
};

/* What stood in the way. */
struct refusal {
    bool conflict; /* only others who were at it at the same moment */
    size_t write;
    bool by_item;           /* the lock's item did not meet the condition */
    bool known;             /* `items` is all there is: nothing need be read */
    struct ddb_items items; /* owned; what came back */
};
void refusal_release(struct refusal *refusal);

enum belay_code plan_init(struct plan *plan, const struct belay_batch *batch, struct belay_error *err);
void plan_release(struct plan *plan);
/* Make the actions, at the time it is now. BELAY_REFUSED: it can be seen that they would be. */
enum belay_code plan_make(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                          struct belay_error *err);
/* *out_image: after one update the item as it is now, after a deletion as it was; the caller releases it. */
enum belay_code plan_send(struct ddb_store *store, struct plan *plan, json_t **out_image,
                          struct refusal *refusal, struct belay_error *err);
/* Whether what the batch ends can only be known by looking at it before. */
bool plan_looks_before(const struct plan *plan);
/* Look, once. BELAY_REFUSED: the lock is not the one that is to be ended. */
enum belay_code plan_look_before(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                                 struct belay_error *err);
/* Fill out->records, of which there is one for each write, and the token. */
enum belay_code plan_images(struct ddb_store *store, const struct plan *plan, json_t *image,
                            struct belay_commit *out, struct belay_error *err);

/* What undoes a batch, as far as what it did is still ours. */
struct opposite;
struct reversal {
    struct belay_batch batch;
    struct belay_write *writes; /* owned */
    struct opposite *opposites; /* owned */
};
bool reversal_make(struct reversal *reversal, const struct belay_batch *batch); /* false: no memory */
void reversal_release(struct reversal *reversal);

#endif
