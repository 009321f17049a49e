#include "store/dynamodb/dynamodb_plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

void refusal_release(struct refusal *refusal)
{
    ddb_items_release(&refusal->items);
    memset(refusal, 0, sizeof *refusal);
}

/* ---- making ------------------------------------------------------------------- */

enum { ACTIONS_PER_WRITE = 3 };

enum belay_code plan_init(struct plan *plan, const struct belay_batch *batch, struct belay_error *err)
{
    memset(plan, 0, sizeof *plan);
    plan->batch = batch;
    plan->actions = calloc(ACTIONS_PER_WRITE * batch->n_writes, sizeof *plan->actions);
    plan->leave_out = calloc(batch->n_writes, sizeof *plan->leave_out);
    plan->seen = calloc(batch->n_writes, sizeof *plan->seen);
    plan->has_seen = calloc(batch->n_writes, sizeof *plan->has_seen);
    return plan->actions == NULL || plan->leave_out == NULL || plan->seen == NULL || plan->has_seen == NULL
               ? error_no_memory(err)
               : BELAY_OK;
}

static void forget_actions(struct plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        json_decref(plan->actions[i].key);
        expr_release(&plan->actions[i].expr);
    }
    plan->n = 0;
}

void plan_release(struct plan *plan)
{
    if (plan->actions != NULL) {
        forget_actions(plan);
    }
    for (size_t i = 0; plan->seen != NULL && i < plan->batch->n_writes; i++) {
        ddb_items_release(&plan->seen[i]);
    }
    for (size_t i = 0; plan->before != NULL && i < plan->batch->n_writes; i++) {
        ddb_items_release(&plan->before[i]);
    }
    free(plan->before);
    free(plan->actions);
    free(plan->leave_out);
    free(plan->seen);
    free(plan->has_seen);
    memset(plan, 0, sizeof *plan);
}

/* Takes over `key`. */
static struct action *add_action(struct plan *plan, enum action_of of, size_t write, const char *table,
                                 json_t *key)
{
    struct action *action = &plan->actions[plan->n++];

    assert(plan->n <= ACTIONS_PER_WRITE * plan->batch->n_writes && write < plan->batch->n_writes);
    *action = (struct action){ .kind = ACTION_CHECK, .of = of, .write = write, .table = table, .key = key };
    expr_init(&action->expr);
    action->expr.failed = action->expr.failed || key == NULL;
    return action;
}

/* Drops the last action if it has no change and no condition. */
static void drop_if_empty(struct plan *plan)
{
    struct action *last = &plan->actions[plan->n - 1];

    assert(plan->n > 0);
    if (last->kind == ACTION_CHECK && last->expr.condition.len == 0) {
        json_decref(last->key);
        expr_release(&last->expr);
        plan->n--;
    }
}

/* Whether the condition refers to items that were read before. */
static bool needs_seen(const struct ddb_store *store, const struct belay_write *write)
{
    if (!layout_is_foreign(store->layout)) {
        return ddb_holders_need_item(write);
    }
    if (write->condition == BELAY_IF_UNCHANGED) {
        return write->revision != 0;
    }
    return ddb_names_holder(write) &&
           (ddb_is_foreign_id(write->lock_id) || layout_name_of(store->layout, FIELD_LOCK_ID) == NULL);
}

/* Whether the record is the one that the write's condition refers to. */
static bool is_record_of_condition(const struct belay_write *write, const struct belay_record *record)
{
    if (ddb_names_holder(write)) {
        return write->co_holder ? ddb_holder_find(record, write->lock_id) != NULL
                                : record->held && strcmp(record->lock_id, write->lock_id) == 0;
    }
    return write->condition != BELAY_IF_UNCHANGED || record->revision == write->revision;
}

/* Finds these items, in memory or by a read; BELAY_REFUSED if they are not those of the write's condition. */
static enum belay_code find_seen(struct ddb_store *store, struct plan *plan, size_t i,
                                 struct refusal *refusal, struct belay_error *err)
{
    const struct belay_write *write = &plan->batch->writes[i];
    struct belay_record record = { 0 };
    struct ddb_items items = { 0 };
    bool same;
    enum belay_code code;

    if (write->condition == BELAY_IF_UNCHANGED &&
        ddb_seen_find(&store->seen, write->key, write->revision, &plan->seen[i])) {
        plan->has_seen[i] = true;
        return BELAY_OK;
    }
    code = ddb_read_locks(store, &write->key, 1, &items, err);
    if (code == BELAY_OK) {
        code = ddb_record(store, write->key, &items, &record, err);
    }
    if (code != BELAY_OK) {
        ddb_items_release(&items);
        return code;
    }
    same = is_record_of_condition(write, &record);
    belay_record_release(&record);
    if (same) {
        plan->seen[i] = items;
        plan->has_seen[i] = true;
        return BELAY_OK;
    }
    *refusal = (struct refusal){ .write = i, .by_item = true, .known = true, .items = items };
    return BELAY_REFUSED;
}

static bool deletes(const struct ddb_store *store, const struct belay_write *write)
{
    return (write->set & BELAY_SET_RELEASED) != 0 && store->layout->release_deletes;
}

/* A queue in the lock's own item. Without a condition on it if it is no longer known. */
static void plan_inner_queue(struct ddb_store *store, const struct plan *plan,
                             const struct belay_write *write, struct expr *expr)
{
    struct ddb_items seen = { 0 };

    if (write->condition == BELAY_IF_UNCHANGED && write->revision != 0) {
        (void)ddb_seen_find(&store->seen, write->key, write->revision, &seen);
    }
    ddb_write_queue(write, seen.item, plan->now_ms, expr);
    ddb_items_release(&seen);
}

/* The lock's item: condition and changes. */
static void plan_item(struct ddb_store *store, struct plan *plan, size_t i)
{
    const struct belay_write *write = &plan->batch->writes[i];
    struct action *action =
        add_action(plan, OF_ITEM, i, store->params.table, ddb_item_key(store->layout, write->key));
    struct expr *expr = &action->expr;

    if (plan->leave_out[i]) {
        expr_and_absent(expr, store->layout->keys[0].name);
        return;
    }
    ddb_write_condition(store, write, plan->has_seen[i] ? &plan->seen[i] : NULL, plan->now_ms, expr);
    if (deletes(store, write)) {
        action->kind = ACTION_DELETE;
    } else {
        ddb_write_fields(store, write, plan->has_seen[i] ? plan->seen[i].item : NULL, plan->now_ms, expr);
        if (!layout_is_foreign(store->layout)) {
            plan_inner_queue(store, plan, write, expr);
        }
        action->kind = expr_updates(expr) ? ACTION_UPDATE : ACTION_CHECK;
    }
    if (action->kind != ACTION_CHECK && !ddb_creates_item(store, write)) {
        expr_and(expr, "attribute_exists(%s)", expr_name(expr, store->layout->keys[0].name).text);
    }
    drop_if_empty(plan);
}

/* After this write the queue is empty, as far as it was read. */
static bool empties_queue(const struct belay_write *write, const struct ddb_items *seen)
{
    size_t n = json_array_size(json_object_get(json_object_get(seen->queue, QUEUE_WAITING), "SS"));
    size_t m = json_array_size(json_object_get(json_object_get(seen->queue, QUEUE_INTENTS), "SS"));

    return seen->queue != NULL && write->put_ticket == NULL && write->n_put_intents == 0 &&
           n == write->n_drop_tickets && m == write->n_drop_intents;
}

/* The queue's own item, in a layout that has one. */
static void plan_queue(struct ddb_store *store, struct plan *plan, size_t i)
{
    const struct belay_write *write = &plan->batch->writes[i];
    const struct ddb_items *seen = plan->has_seen[i] ? &plan->seen[i] : NULL;
    struct action *action =
        add_action(plan, OF_QUEUE, i, store->params.table, ddb_queue_key(store->layout, write->key));

    ddb_queue_condition(write, seen, &action->expr);
    if (ddb_changes_queue(write)) {
        action->kind = ACTION_UPDATE;
        if (write->condition == BELAY_IF_UNCHANGED && seen != NULL && empties_queue(write, seen)) {
            action->kind = ACTION_DELETE;
            return;
        }
        /* Known and required: ddb_queue_condition() needs its revision. */
        ddb_write_queue(write, write->condition == BELAY_IF_UNCHANGED && seen != NULL ? seen->queue : NULL,
                        plan->now_ms, &action->expr);
        ddb_write_queue_revision(&action->expr);
    }
    drop_if_empty(plan);
}

/* A counter that other programs cannot delete or overwrite (L2). */
static void plan_fence(struct ddb_store *store, struct plan *plan, size_t i)
{
    const struct belay_write *write = &plan->batch->writes[i];
    struct action *action =
        add_action(plan, OF_FENCE, i, store->params.fence_table, ddb_fence_key(store, write->key));

    assert(store->params.fence_table != NULL && write->values->lock_id != NULL);
    action->kind = ACTION_UPDATE;
    expr_set_next(&action->expr, "token", "token", plan->now_ms);
    expr_set(&action->expr, "lock_id", av_text(write->values->lock_id));
}

/* The client refuses everything else for a layout of another program (capabilities.has_modes). */
static bool knows_no_modes(const struct belay_write *write)
{
    const struct belay_put_ticket *ticket = write->put_ticket;

    return !write->co_holder && write->n_drop_holders == 0 &&
           (ticket == NULL || (ticket->mode == BELAY_EXCLUSIVE && !ticket->joint)) &&
           (write->n_put_intents == 0 || !write->put_intents[0].shared) &&
           ((write->set & BELAY_SET_ACQUIRED) == 0 || write->values->mode == BELAY_EXCLUSIVE);
}

enum belay_code plan_make(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                          struct belay_error *err)
{
    forget_actions(plan);
    plan->now_ms = ddb_clock_write_ms(store);
    for (size_t i = 0; i < plan->batch->n_writes; i++) {
        const struct belay_write *write = &plan->batch->writes[i];

        assert(!layout_is_foreign(store->layout) || knows_no_modes(write));
        if (needs_seen(store, write) && !plan->has_seen[i]) {
            enum belay_code code = find_seen(store, plan, i, refusal, err);

            if (code != BELAY_OK) {
                return code;
            }
        }
        plan_item(store, plan, i);
        if (layout_is_foreign(store->layout)) {
            plan_queue(store, plan, i);
        }
        if (store->params.fence_table != NULL && (write->set & BELAY_SET_IDENTITY) != 0) {
            plan_fence(store, plan, i);
        }
    }
    return BELAY_OK;
}

/* ---- sending ------------------------------------------------------------------- */

static json_t *make_request(struct action *action)
{
    json_t *request = json_pack("{s:s,s:O,s:s}", "TableName", action->table, "Key", action->key,
                                "ReturnValuesOnConditionCheckFailure", "ALL_OLD");

    if (request != NULL && !expr_finish(&action->expr, request)) {
        json_decref(request);
        request = NULL;
    }
    return request;
}

static void take_refused(struct refusal *refusal, const struct action *action, json_t *item)
{
    assert(action->write >= refusal->write); /* the first that failed */
    refusal->write = action->write;
    if (action->of == OF_ITEM) {
        refusal->by_item = true;
        refusal->items.item = json_incref(item);
    } else if (action->of == OF_QUEUE) {
        refusal->items.queue = json_incref(item);
        refusal->items.queue_known = true;
    }
}

static enum belay_code send_single(struct ddb_store *store, struct plan *plan, json_t **out_image,
                                   struct refusal *refusal, struct belay_error *err)
{
    struct action *action = &plan->actions[0];
    bool deletes_it = action->kind == ACTION_DELETE; /* a check alone is a transaction */
    json_t *request = make_request(action);
    struct ddb_answer answer;
    enum belay_code code;

    if (request == NULL ||
        json_object_set_new(request, "ReturnValues", json_string(deletes_it ? "ALL_OLD" : "ALL_NEW")) != 0) {
        json_decref(request);
        return error_no_memory(err);
    }
    code = ddb_call_within(store, deletes_it ? "DeleteItem" : "UpdateItem", request, plan->batch->timeout_ms,
                           &answer, err);
    if (code == BELAY_OK) {
        *out_image = json_incref(json_object_get(answer.body, "Attributes"));
    } else if (code == BELAY_REFUSED) {
        refusal->conflict =
            answer.error_code == NULL || strcmp(answer.error_code, "ConditionalCheckFailedException") != 0;
        take_refused(refusal, action, json_object_get(answer.body, "Item"));
    }
    ddb_answer_release(&answer);
    return code;
}

static json_t *make_transaction(struct plan *plan)
{
    static const char *const names[] = { "Update", "Delete", "ConditionCheck" };
    char token[UUID_TEXT_SIZE];
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < plan->n; i++) {
        json_t *one = make_request(&plan->actions[i]);

        if (one == NULL ||
            json_array_append_new(list, json_pack("{s:o}", names[plan->actions[i].kind], one)) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    if (list == NULL || !uuid_make(token)) {
        json_decref(list);
        return NULL;
    }
    return json_pack("{s:o,s:s}", "TransactItems", list, "ClientRequestToken", token);
}

/* The first condition that failed; or none, only a conflict. */
static enum belay_code read_reasons(const struct plan *plan, const json_t *body, struct refusal *refusal,
                                    struct belay_error *err)
{
    const json_t *reasons = json_object_get(body, "CancellationReasons");
    const char *other = NULL;
    size_t other_at = 0;
    bool failed = false;

    for (size_t i = 0; i < json_array_size(reasons) && i < plan->n; i++) {
        const json_t *reason = json_array_get(reasons, i);
        const char *code = json_string_value(json_object_get(reason, "Code"));

        if (failed && plan->actions[i].write != refusal->write) {
            break; /* of a later write */
        }
        if (code != NULL && strcmp(code, "ConditionalCheckFailed") == 0) {
            take_refused(refusal, &plan->actions[i], json_object_get(reason, "Item"));
            failed = true;
        } else if (code != NULL && strcmp(code, "None") != 0) {
            other = code;
            other_at = i;
        }
    }
    if (failed) {
        return BELAY_REFUSED;
    }
    if (other == NULL || strcmp(other, "TransactionConflict") == 0 || strstr(other, "Throttl") != NULL ||
        strstr(other, "Throughput") != NULL) {
        refusal->conflict = true;
        return BELAY_REFUSED;
    }
    if (ddb_says_too_large(
            json_string_value(json_object_get(json_array_get(reasons, other_at), "Message")))) {
        return error_set(err, BELAY_INVALID, "lock '%s': " DDB_TOO_LARGE,
                         plan->batch->writes[plan->actions[other_at].write].key);
    }
    return error_set(err, BELAY_INVALID, "dynamodb cancelled a transaction with %s", other);
}

static enum belay_code send_transaction(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                                        struct belay_error *err)
{
    json_t *request = make_transaction(plan);
    struct ddb_answer answer;
    enum belay_code code =
        ddb_call_within(store, "TransactWriteItems", request, plan->batch->timeout_ms, &answer, err);

    if (code == BELAY_REFUSED) {
        code = read_reasons(plan, answer.body, refusal, err);
    }
    ddb_answer_release(&answer);
    return code;
}

enum belay_code plan_send(struct ddb_store *store, struct plan *plan, json_t **out_image,
                          struct refusal *refusal, struct belay_error *err)
{
    assert(plan->n > 0);
    /* A single check is a transaction, too: there is no other request for it. */
    return plan->n == 1 && plan->actions[0].kind != ACTION_CHECK
               ? send_single(store, plan, out_image, refusal, err)
               : send_transaction(store, plan, refusal, err);
}
