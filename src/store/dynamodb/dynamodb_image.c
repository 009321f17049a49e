/* The records after a batch was done, without reading where what was sent or came back says it. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/dynamodb/dynamodb_plan.h"

/* The records as they are now. A transaction brings none, so they are read. */
static enum belay_code read_images(struct ddb_store *store, const struct plan *plan, struct belay_commit *out,
                                   struct belay_error *err)
{
    size_t n = plan->batch->n_writes;
    const char **keys = calloc(n + 1, sizeof *keys);
    int64_t now_ms;
    enum belay_code code;

    if (keys == NULL) {
        return error_no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        keys[i] = plan->batch->writes[i].key;
    }
    code = ddb_get(&store->base, keys, n, out->records, &now_ms, err);
    free((void *)keys);
    /* It was done; what could not be read is the answer. */
    return code == BELAY_OK || code == BELAY_NO_MEMORY ? code : BELAY_UNKNOWN;
}

static enum belay_code find_token(const struct plan *plan, struct belay_commit *out, struct belay_error *err)
{
    for (size_t i = 0; i < plan->batch->n_writes; i++) {
        const struct belay_write *write = &plan->batch->writes[i];

        if ((write->set & BELAY_SET_IDENTITY) == 0 || out->records[i].revision == 0) {
            continue;
        }
        if (strcmp(out->records[i].lock_id, write->values->lock_id) != 0) {
            return error_set(err, BELAY_UNKNOWN,
                             "lock '%s' was taken, and lost before its token could be read", write->key);
        }
        out->token = out->records[i].token;
    }
    return BELAY_OK;
}

static enum belay_code image_of_item(struct ddb_store *store, const struct plan *plan, json_t *item,
                                     struct belay_commit *out, struct belay_error *err)
{
    struct ddb_items items = { .item = item };

    return ddb_record(store, plan->batch->writes[0].key, &items, &out->records[0], err);
}

/* Deleted: there is no record, but who asks may still want to know whose it was. */
static enum belay_code image_of_deleted(struct ddb_store *store, const struct plan *plan, json_t *old,
                                        struct belay_commit *out, struct belay_error *err)
{
    const struct belay_write *write = &plan->batch->writes[0];
    struct belay_record *record = &out->records[0];
    struct ddb_items nothing = { 0 };
    enum belay_code code = image_of_item(store, plan, old, out, err);

    if (code == BELAY_OK) {
        record->held = false;
        record->outcome = write->values->outcome;
        record->freed_ms = plan->now_ms;
        record->freed_at_unix_ms = plan->now_ms;
        record->revision = 0;
        (void)ddb_seen_put(&store->seen, write->key, &nothing, record, plan->now_ms);
    }
    return code;
}

/* All that a holder consists of was written: that is what lies there now. */
static enum belay_code image_of_taken(struct ddb_store *store, const struct plan *plan,
                                      struct belay_commit *out, struct belay_error *err)
{
    const struct action *action = &plan->actions[0];
    json_t *item = json_copy(action->key);
    enum belay_code code;

    if (item == NULL || json_object_update(item, action->expr.assigned) != 0) {
        json_decref(item);
        return error_no_memory(err);
    }
    code = image_of_item(store, plan, item, out, err);
    json_decref(item);
    return code;
}

static enum belay_code make_images(struct ddb_store *store, const struct plan *plan, json_t *image,
                                   struct belay_commit *out, struct belay_error *err)
{
    const struct belay_batch *batch = plan->batch;
    const struct action *action = &plan->actions[0];

    if (batch->n_writes == 1 && plan->n == 1 && action->of == OF_ITEM && action->kind == ACTION_DELETE) {
        return image_of_deleted(store, plan, image, out, err);
    }
    if (batch->n_writes == 1 && plan->n == 1 && action->of == OF_ITEM && action->kind == ACTION_UPDATE) {
        return image_of_item(store, plan, image, out, err);
    }
    if (batch->n_writes == 1 && layout_is_foreign(store->layout) && store->params.fence_table == NULL &&
        (batch->writes[0].set & BELAY_SET_HOLDER) == BELAY_SET_HOLDER &&
        !ddb_changes_line(&batch->writes[0])) {
        return image_of_taken(store, plan, out, err);
    }
    return read_images(store, plan, out, err);
}

/*
 * Where no attribute says how long the lease was, it can only be guessed from
 * when it began, and a holder must not guess too much of its own (L6).
 */
static void keep_lengths(const struct plan *plan, struct belay_commit *out)
{
    for (size_t i = 0; i < plan->batch->n_writes; i++) {
        const struct belay_write *write = &plan->batch->writes[i];

        if ((write->set & BELAY_SET_LEASE) != 0 && out->records[i].revision != 0) {
            out->records[i].ttl_ms = write->values->ttl_ms;
            out->records[i].ttl_is_guess = false;
        }
    }
}

enum belay_code plan_images(struct ddb_store *store, const struct plan *plan, json_t *image,
                            struct belay_commit *out, struct belay_error *err)
{
    enum belay_code code = make_images(store, plan, image, out, err);

    if (code != BELAY_OK) {
        return code;
    }
    keep_lengths(plan, out);
    return find_token(plan, out, err);
}
