/* The requests of a batch. */
#ifndef STORE_DYNAMODB_DYNAMODB_PLAN_H
#define STORE_DYNAMODB_DYNAMODB_PLAN_H

#include "store/dynamodb/dynamodb_internal.h"

enum plan_action_kind { ACTION_UPDATE, ACTION_DELETE, ACTION_CHECK };
enum action_of { OF_ITEM, OF_QUEUE, OF_FENCE };

/* One change of one item. */
struct action {
    enum plan_action_kind kind;
    enum action_of of;
    size_t write;      /* index of its write in the batch */
    const char *table; /* borrowed */
    json_t *key;       /* owned */
    struct expr expr;
};

struct plan {
    const struct belay_batch *batch; /* borrowed */
    int64_t now_ms;                  /* the time that the writes contain */
    struct action *actions;          /* owned */
    size_t n;
    bool *leave_out;        /* owned; one for each write: the item is absent, which is no error */
    struct ddb_items *seen; /* owned; one for each write: the items that its condition refers to */
    bool *has_seen;         /* owned */
    /*
     * owned; one for each write: the items before a batch that ends a lock. A transaction
     * returns nothing, and a later read may find the next holder. NULL: not read
     */
    struct ddb_items *before;
};

/* Why a request was refused. */
struct refusal {
    bool conflict; /* only a concurrent transaction */
    size_t write;
    bool by_item;           /* the lock's item did not meet the condition */
    bool known;             /* `items` is complete: nothing has to be read */
    struct ddb_items items; /* owned; returned with the refusal */
};
void refusal_release(struct refusal *refusal);

enum belay_code plan_init(struct plan *plan, const struct belay_batch *batch, struct belay_error *err);
void plan_release(struct plan *plan);
/* Makes the actions for the present time. BELAY_REFUSED: the service would certainly refuse them. */
enum belay_code plan_make(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                          struct belay_error *err);
/* *out_image: after an update the new item, after a deletion the old one; the caller releases it. */
enum belay_code plan_send(struct ddb_store *store, struct plan *plan, json_t **out_image,
                          struct refusal *refusal, struct belay_error *err);
/* Whether the lock that the batch ends must be read before. */
bool plan_looks_before(const struct plan *plan);
/* Reads it once. BELAY_REFUSED: it is not the lock that is to be ended. */
enum belay_code plan_look_before(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                                 struct belay_error *err);
/* Fills out->records, one for each write, and the token. */
enum belay_code plan_images(struct ddb_store *store, const struct plan *plan, json_t *image,
                            struct belay_commit *out, struct belay_error *err);

/* Reverts a batch, as far as its changes are still in place. */
struct inverse;
struct compensation {
    struct belay_batch batch;
    struct belay_write *writes; /* owned */
    struct inverse *inverses;   /* owned */
};
bool compensation_make(struct compensation *compensation,
                       const struct belay_batch *batch); /* false: no memory */
void compensation_release(struct compensation *compensation);

#endif
