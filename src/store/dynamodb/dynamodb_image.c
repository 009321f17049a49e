/* The records after a batch. They are read only if neither the request nor the answer contains them. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/dynamodb/dynamodb_plan.h"

static bool is_held_with_id(const struct belay_write *write, const struct belay_record *record,
                            const char *lock_id)
{
    return write->co_holder
               ? ddb_holder_find(record, lock_id) != NULL
               : record->held && record->mode == BELAY_EXCLUSIVE && strcmp(record->lock_id, lock_id) == 0;
}

/*
 * A read after a transaction may find the next holder: the lock was renewed, and forced before
 * it could be read. The caller retries and gets the error then.
 */
static enum belay_code check_prolonged(const struct plan *plan, const struct belay_commit *out,
                                       struct belay_error *err)
{
    for (size_t i = 0; i < plan->batch->n_writes; i++) {
        const struct belay_write *write = &plan->batch->writes[i];
        const char *id = (write->set & BELAY_SET_IDENTITY) != 0 ? write->values->lock_id : write->lock_id;

        if ((write->set & (BELAY_SET_LEASE | BELAY_SET_ACQUIRED)) == BELAY_SET_LEASE && id != NULL &&
            !is_held_with_id(write, &out->records[i], id)) {
            return error_set(err, BELAY_UNKNOWN, "lock '%s' was renewed, and lost before it could be read",
                             write->key);
        }
    }
    return BELAY_OK;
}

/* The key of each write; the caller frees the array. NULL: no memory. */
static const char **keys_of_writes(const struct plan *plan)
{
    const char **keys = calloc(plan->batch->n_writes, sizeof *keys);

    for (size_t i = 0; keys != NULL && i < plan->batch->n_writes; i++) {
        keys[i] = plan->batch->writes[i].key;
    }
    return keys;
}

/* The present records. A transaction returns none, so they are read. */
static enum belay_code read_images(struct ddb_store *store, const struct plan *plan, struct belay_commit *out,
                                   struct belay_error *err)
{
    const char **keys = keys_of_writes(plan);
    int64_t now_ms;
    enum belay_code code =
        keys == NULL ? error_no_memory(err)
                     : ddb_get(&store->base, keys, plan->batch->n_writes, out->records, &now_ms, err);

    free((void *)keys);
    if (code == BELAY_OK) {
        code = check_prolonged(plan, out, err);
    }
    /* The batch was applied; only its result is unknown. */
    return code == BELAY_OK || code == BELAY_NO_MEMORY ? code : BELAY_UNKNOWN;
}

/* Of the holder that the write made; false: it is not there any more. */
static bool token_of(const struct belay_write *write, const struct belay_record *record, uint64_t *out_token)
{
    const struct belay_holder *holder =
        write->co_holder ? ddb_holder_find(record, write->values->lock_id) : NULL;

    *out_token = holder != NULL ? holder->token : record->token;
    return holder != NULL || (!write->co_holder && record->mode == BELAY_EXCLUSIVE &&
                              strcmp(record->lock_id, write->values->lock_id) == 0);
}

static enum belay_code find_token(const struct plan *plan, struct belay_commit *out, struct belay_error *err)
{
    for (size_t i = 0; i < plan->batch->n_writes; i++) {
        const struct belay_write *write = &plan->batch->writes[i];
        uint64_t token;

        if ((write->set & BELAY_SET_IDENTITY) == 0 || out->records[i].revision == 0) {
            continue;
        }
        if (!token_of(write, &out->records[i], &token)) {
            return error_set(err, BELAY_UNKNOWN,
                             "lock '%s' was taken, and lost before its token could be read", write->key);
        }
        out->token = i == 0 || out->token == 0 ? token : out->token;
    }
    return BELAY_OK;
}

static enum belay_code image_of_item(struct ddb_store *store, const struct plan *plan, json_t *item,
                                     struct belay_commit *out, struct belay_error *err)
{
    struct ddb_items items = { .item = item };

    return ddb_record(store, plan->batch->writes[0].key, &items, &out->records[0], err);
}

/* The lock that was ended: its holder, and its outcome. One of several leaves it to the others. */
static enum belay_code mark_ended(const struct plan *plan, const struct belay_write *write,
                                  struct belay_record *record, struct belay_error *err)
{
    bool ok = true;

    if (write->co_holder) {
        ddb_holders_end(record, write->lock_id, &ok);
        ok = ok && (write->values->outcome == BELAY_OUTCOME_FORCED ||
                    belay_record_note_released(record, write->lock_id));
    } else {
        record->held = false;
    }
    record->outcome = record->held ? BELAY_OUTCOME_NONE : write->values->outcome;
    record->freed_ms = plan->now_ms;
    record->freed_at_unix_ms = plan->now_ms;
    return ok ? BELAY_OK : error_no_memory(err);
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
        code = mark_ended(plan, write, record, err);
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

/* ---- locks of several records that were ended -------------------------------- */

bool plan_looks_before(const struct plan *plan)
{
    const struct belay_batch *batch = plan->batch;

    return batch->n_writes > 1 && batch->writes[0].condition == BELAY_IF_HELD_BY &&
           (batch->writes[0].set & BELAY_SET_RELEASED) != 0;
}

/* BELAY_REFUSED: it is not the lock that the write is to end. */
static enum belay_code check_before(struct ddb_store *store, const struct plan *plan, size_t i,
                                    struct refusal *refusal, struct belay_error *err)
{
    const struct belay_write *write = &plan->batch->writes[i];
    struct belay_record record = { 0 };
    bool is_it;
    enum belay_code code;

    if (write->condition != BELAY_IF_HELD_BY) {
        return BELAY_OK;
    }
    code = ddb_record(store, write->key, &plan->before[i], &record, err);
    if (code != BELAY_OK) {
        return code;
    }
    is_it = is_held_with_id(write, &record, write->lock_id);
    belay_record_release(&record);
    if (!is_it) {
        *refusal = (struct refusal){ .write = i, .by_item = true, .known = true, .items = plan->before[i] };
        memset(&plan->before[i], 0, sizeof plan->before[i]);
        return BELAY_REFUSED;
    }
    return BELAY_OK;
}

enum belay_code plan_look_before(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                                 struct belay_error *err)
{
    size_t n = plan->batch->n_writes;
    const char **keys;
    enum belay_code code;

    if (plan->before != NULL) {
        return BELAY_OK; /* it belonged to that id, and an id has a lock only once */
    }
    keys = keys_of_writes(plan);
    plan->before = calloc(n, sizeof *plan->before);
    if (keys == NULL || plan->before == NULL) {
        free((void *)keys);
        return error_no_memory(err);
    }
    code = ddb_read_locks(store, keys, n, plan->before, err);
    free((void *)keys);
    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        code = check_before(store, plan, i, refusal, err);
    }
    return code;
}

/* Without the intents that the write removed. Such a batch drops no tickets. */
static void drop_intents(const struct belay_write *write, struct belay_record *record)
{
    size_t kept = 0;

    for (size_t i = 0; i < record->n_intents; i++) {
        struct belay_intent *intent = &record->intents[i];

        if (ddb_ids_contain(write->drop_intents, write->n_drop_intents, intent->lock_id)) {
            free(intent->lock_id);
            free(intent->key);
        } else {
            record->intents[kept++] = *intent;
        }
    }
    record->n_intents = kept;
}

/* A new revision; where an attribute has it, the one that was written. */
static uint64_t revision_after(const struct ddb_store *store, const struct plan *plan, size_t write,
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
        if ((write->set & BELAY_SET_RELEASED) != 0) {
            code = mark_ended(plan, write, record, err);
        }
        record->revision = (write->set & BELAY_SET_RELEASED) != 0 && store->layout->release_deletes
                               ? 0
                               : revision_after(store, plan, i, record->revision);
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

        if ((write->set & BELAY_SET_LEASE) != 0 && !write->co_holder && out->records[i].revision != 0) {
            out->records[i].ttl_ms = write->values->ttl_ms;
            out->records[i].ttl_is_estimate = false;
        }
    }
}

/* Not every layout has a word for every outcome; here it is known. */
static void keep_outcome(const struct plan *plan, struct belay_commit *out)
{
    for (size_t i = 0; i < plan->batch->n_writes; i++) {
        const struct belay_write *write = &plan->batch->writes[i];
        struct belay_record *record = &out->records[i];

        if ((write->set & BELAY_SET_RELEASED) != 0 && record->lock_id[0] != '\0' && !record->held) {
            record->outcome = write->values->outcome;
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
    keep_outcome(plan, out);
    return find_token(plan, out, err);
}
