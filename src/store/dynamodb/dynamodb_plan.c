#include "store/dynamodb/dynamodb_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

void refusal_release(struct refusal *refusal)
{
    json_decref(refusal->item);
    json_decref(refusal->line);
    memset(refusal, 0, sizeof *refusal);
}

/* ---- making ------------------------------------------------------------------- */

enum belay_code plan_init(struct plan *plan, const struct belay_batch *batch, struct belay_error *err)
{
    memset(plan, 0, sizeof *plan);
    plan->batch = batch;
    plan->actions = calloc(2 * batch->n_writes, sizeof *plan->actions);
    plan->leave_out = calloc(batch->n_writes, sizeof *plan->leave_out);
    return plan->actions == NULL || plan->leave_out == NULL ? error_no_memory(err) : BELAY_OK;
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
    free(plan->actions);
    free(plan->leave_out);
    memset(plan, 0, sizeof *plan);
}

static struct action *add_action(struct plan *plan, enum action_kind kind, size_t write, json_t *key)
{
    struct action *action = &plan->actions[plan->n++];

    *action = (struct action){ .kind = kind, .write = write, .key = key };
    expr_init(&action->expr);
    return action;
}

enum belay_code plan_make(struct ddb_store *store, struct plan *plan, struct belay_error *err)
{
    forget_actions(plan);
    plan->now_ms = ddb_clock_write_ms(store);
    for (size_t i = 0; i < plan->batch->n_writes; i++) {
        const struct belay_write *write = &plan->batch->writes[i];
        json_t *key = ddb_item_key(store->layout, write->key);
        struct action *action = add_action(plan, plan->leave_out[i] ? ACTION_CHECK : ACTION_UPDATE, i, key);

        if (key == NULL) {
            return error_no_memory(err);
        }
        if (plan->leave_out[i]) {
            expr_and(&action->expr, "attribute_not_exists(%s)",
                     expr_name(&action->expr, store->layout->keys[0].name).text);
            continue;
        }
        ddb_write_condition(store, write, plan->now_ms, &action->expr);
        ddb_write_fields(store, write, plan->now_ms, &action->expr);
        ddb_write_line(write, plan->now_ms, &action->expr);
    }
    return BELAY_OK;
}

/* ---- sending ------------------------------------------------------------------- */

static json_t *make_request(const struct ddb_store *store, struct action *action)
{
    json_t *request = json_pack("{s:s,s:O,s:s}", "TableName", store->params.table, "Key", action->key,
                                "ReturnValuesOnConditionCheckFailure", "ALL_OLD");

    if (request != NULL && !expr_finish(&action->expr, request)) {
        json_decref(request);
        request = NULL;
    }
    return request;
}

static enum belay_code send_one(struct ddb_store *store, struct plan *plan, json_t **out_image,
                                struct refusal *refusal, struct belay_error *err)
{
    json_t *request = make_request(store, &plan->actions[0]);
    struct ddb_answer answer;
    enum belay_code code;

    if (request == NULL || json_object_set_new(request, "ReturnValues", json_string("ALL_NEW")) != 0) {
        json_decref(request);
        return error_no_memory(err);
    }
    code = ddb_call(store, "UpdateItem", request, &answer, err);
    if (code == BELAY_OK) {
        *out_image = json_incref(json_object_get(answer.body, "Attributes"));
    } else if (code == BELAY_REFUSED) {
        refusal->conflict =
            answer.error_code == NULL || strcmp(answer.error_code, "ConditionalCheckFailedException") != 0;
        refusal->item = json_incref(json_object_get(answer.body, "Item"));
    }
    ddb_answer_release(&answer);
    return code;
}

static json_t *make_transaction(const struct ddb_store *store, struct plan *plan)
{
    static const char *const names[] = { "Update", "Delete", "ConditionCheck" };
    char token[UUID_TEXT_SIZE];
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < plan->n; i++) {
        json_t *one = make_request(store, &plan->actions[i]);

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

/* The first condition that did not hold; or that there was none, only rivals. */
static enum belay_code read_reasons(const struct plan *plan, const json_t *body, struct refusal *refusal,
                                    struct belay_error *err)
{
    const json_t *reasons = json_object_get(body, "CancellationReasons");
    const char *other = NULL;

    for (size_t i = 0; i < json_array_size(reasons) && i < plan->n; i++) {
        const json_t *reason = json_array_get(reasons, i);
        const char *code = json_string_value(json_object_get(reason, "Code"));

        if (code != NULL && strcmp(code, "ConditionalCheckFailed") == 0) {
            refusal->write = plan->actions[i].write;
            refusal->item = json_incref(json_object_get(reason, "Item"));
            return BELAY_REFUSED;
        }
        if (code != NULL && strcmp(code, "None") != 0) {
            other = code;
        }
    }
    if (other == NULL || strcmp(other, "TransactionConflict") == 0 || strstr(other, "Throttl") != NULL ||
        strstr(other, "Throughput") != NULL) {
        refusal->conflict = true;
        return BELAY_REFUSED;
    }
    return error_set(err, BELAY_INVALID, "dynamodb cancelled a transaction with %s", other);
}

static enum belay_code send_all(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                                struct belay_error *err)
{
    json_t *request = make_transaction(store, plan);
    struct ddb_answer answer;
    enum belay_code code = ddb_call(store, "TransactWriteItems", request, &answer, err);

    if (code == BELAY_REFUSED) {
        code = read_reasons(plan, answer.body, refusal, err);
    }
    ddb_answer_release(&answer);
    return code;
}

enum belay_code plan_send(struct ddb_store *store, struct plan *plan, json_t **out_image,
                          struct refusal *refusal, struct belay_error *err)
{
    return plan->n == 1 ? send_one(store, plan, out_image, refusal, err)
                        : send_all(store, plan, refusal, err);
}
