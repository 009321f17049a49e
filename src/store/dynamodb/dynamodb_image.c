/* The records after a batch. They are read only if neither the request nor the answer contains them. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/dynamodb/dynamodb_plan.h"

/*
 * A read after a transaction may find the next holder: the lock was renewed, and forced before
 * it could be read. The caller retries and gets the error then.
 */
static enum belay_code check_prolonged(const struct plan *plan, const struct belay_commit *out,
                                       struct belay_error *err)
{
    const struct belay_write *write = &plan->batch->writes[0];
    const struct belay_record *record = &out->records[0];
    const char *id = (write->set & BELAY_SET_IDENTITY) != 0 ? write->values->lock_id : write->lock_id;

    if ((write->set & (BELAY_SET_LEASE | BELAY_SET_ACQUIRED)) != BELAY_SET_LEASE || id == NULL ||
        (record->held && strcmp(record->lock_id, id) == 0)) {
        return BELAY_OK;
    }
    return error_set(err, BELAY_UNKNOWN, "lock '%s' was renewed, and lost before it could be read",
                     write->key);
}

/* The present records. A transaction returns none, so they are read. */
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
    if (code == BELAY_OK) {
        code = check_prolonged(plan, out, err);
    }
    /* The batch was applied; only its result is unknown. */
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

/* The lock that was ended: its holder, and its outcome. */
static void mark_ended(const struct plan *plan, struct belay_record *record)
{
    record->held = false;
    record->outcome = plan->batch->writes[0].values->outcome;
    record->freed_ms = plan->now_ms;
    record->freed_at_unix_ms = plan->now_ms;
}

/* Deleted: the record is gone, and the caller learns which lock it was. */
static enum belay_code image_of_deleted(struct ddb_store *store, const struct plan *plan, json_t *old,
                                        struct belay_commit *out, struct belay_error *err)
{
    const struct belay_write *write = &plan->batch->writes[0];
    struct belay_record *record = &out->records[0];
    struct ddb_items nothing = { 0 };
    enum belay_code code = image_of_item(store, plan, old, out, err);

    if (code == BELAY_OK) {
        mark_ended(plan, record);
        record->revision = 0;
        (void)ddb_seen_put(&store->seen, write->key, &nothing, record, plan->now_ms);
    }
    return code;
}

/* The write contained a whole holder: that is the record now. */
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

/* ---- a lock with others above it that was ended ------------------------------ */

bool plan_looks_before(const struct plan *plan)
{
    const struct belay_batch *batch = plan->batch;

    return batch->n_writes > 1 && batch->writes[0].condition == BELAY_IF_HELD_BY &&
           (batch->writes[0].set & BELAY_SET_RELEASED) != 0;
}

enum belay_code plan_look_before(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                                 struct belay_error *err)
{
    const struct belay_write *write = &plan->batch->writes[0];
    size_t n = plan->batch->n_writes;
    const char **keys;
    struct belay_record record = { 0 };
    bool is_it;
    enum belay_code code;

    if (plan->before != NULL) {
        return BELAY_OK; /* it belonged to that id, and an id has a lock only once */
    }
    keys = calloc(n, sizeof *keys);
    plan->before = calloc(n, sizeof *plan->before);
    if (keys == NULL || plan->before == NULL) {
        free((void *)keys);
        return error_no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        keys[i] = plan->batch->writes[i].key;
    }
    code = ddb_read_locks(store, keys, n, plan->before, err);
    free((void *)keys);
    if (code == BELAY_OK) {
        code = ddb_record(store, write->key, &plan->before[0], &record, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    is_it = record.held && strcmp(record.lock_id, write->lock_id) == 0;
    belay_record_release(&record);
    if (!is_it) {
        *refusal = (struct refusal){ .by_item = true, .known = true, .items = plan->before[0] };
        memset(&plan->before[0], 0, sizeof plan->before[0]);
        return BELAY_REFUSED;
    }
    return BELAY_OK;
}

static bool is_dropped(const char *const *ids, size_t n, const char *id)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(ids[i], id) == 0) {
            return true;
        }
    }
    return false;
}

/* Without the intents that the write removed. Such a batch drops no tickets. */
static void drop_intents(const struct belay_write *write, struct belay_record *record)
{
    size_t kept = 0;

    for (size_t i = 0; i < record->n_intents; i++) {
        struct belay_intent *intent = &record->intents[i];

        if (is_dropped(write->drop_intents, write->n_drop_intents, intent->lock_id)) {
            free(intent->lock_id);
            free(intent->key);
        } else {
            record->intents[kept++] = *intent;
        }
    }
    record->n_intents = kept;
}

/* A new revision; where an attribute has it, the one that was written. */
static uint64_t new_revision(const struct ddb_store *store, const struct plan *plan, size_t write,
                             uint64_t before)
{
    const char *name = layout_name_of(store->layout, FIELD_REVISION);
    uint64_t revision = before ^ 2;

    for (size_t i = 0; name != NULL && i < plan->n; i++) {
        const struct action *action = &plan->actions[i];

        if (action->write == write && action->of == OF_ITEM) {
            (void)item_uint(action->expr.assigned, name, &revision);
        }
    }
    return revision;
}

static enum belay_code image_of_ended(struct ddb_store *store, const struct plan *plan,
                                      struct belay_commit *out, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && i < plan->batch->n_writes; i++) {
        const struct belay_write *write = &plan->batch->writes[i];
        struct belay_record *record = &out->records[i];

        code = ddb_record(store, write->key, &plan->before[i], record, err);
        if (code != BELAY_OK || record->revision == 0) {
            continue;
        }
        drop_intents(write, record);
        record->freed_ms = (write->set & BELAY_SET_FREED) != 0 ? plan->now_ms : record->freed_ms;
        record->revision =
            i == 0 && store->layout->release_deletes ? 0 : new_revision(store, plan, i, record->revision);
    }
    if (code == BELAY_OK) {
        mark_ended(plan, &out->records[0]);
    }
    return code;
}

static enum belay_code make_images(struct ddb_store *store, const struct plan *plan, json_t *image,
                                   struct belay_commit *out, struct belay_error *err)
{
    const struct belay_batch *batch = plan->batch;
    const struct action *action = &plan->actions[0];

    if (plan->before != NULL) {
        return image_of_ended(store, plan, out, err);
    }
    if (batch->n_writes == 1 && plan->n == 1 && action->of == OF_ITEM && action->kind == ACTION_DELETE) {
        return image_of_deleted(store, plan, image, out, err);
    }
    if (batch->n_writes == 1 && plan->n == 1 && action->of == OF_ITEM && action->kind == ACTION_UPDATE) {
        return image_of_item(store, plan, image, out, err);
    }
    if (batch->n_writes == 1 && layout_is_foreign(store->layout) && store->params.fence_table == NULL &&
        (batch->writes[0].set & BELAY_SET_HOLDER) == BELAY_SET_HOLDER &&
        !ddb_changes_queue(&batch->writes[0])) {
        return image_of_taken(store, plan, out, err);
    }
    return read_images(store, plan, out, err);
}

/*
 * Where no attribute has the length of the lease, it is estimated from its beginning, and a
 * holder must not overestimate its own (L6).
 */
static void keep_lengths(const struct plan *plan, struct belay_commit *out)
{
    for (size_t i = 0; i < plan->batch->n_writes; i++) {
        const struct belay_write *write = &plan->batch->writes[i];

        if ((write->set & BELAY_SET_LEASE) != 0 && out->records[i].revision != 0) {
            out->records[i].ttl_ms = write->values->ttl_ms;
            out->records[i].ttl_is_estimate = false;
        }
    }
}

/* Not every layout has a word for every outcome; here it is known. */
static void keep_outcome(const struct plan *plan, struct belay_commit *out)
{
    const struct belay_write *write = &plan->batch->writes[0];

    if ((write->set & BELAY_SET_RELEASED) != 0 && out->records[0].lock_id[0] != '\0' &&
        !out->records[0].held) {
        out->records[0].outcome = write->values->outcome;
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
    keep_outcome(plan, out);
    return find_token(plan, out, err);
}
