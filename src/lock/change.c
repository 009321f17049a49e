/*
 * Adopt, renew, release, force: one conditional batch each, which names the lock
 * id and so can be sent again without harm. Refused, it returns the present
 * holder (L3).
 *
 *   [LEARNING: the ttl, if it is not given] --> CHANGING --done--> done
 *                                                ^  |  \--refused--> done
 *                                                |  v
 *                                             RECOVERING (the store failed)
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "lock/info.h"
#include "lock/step.h"

enum change_state { LEARNING, CHANGING, RECOVERING };

/* ---- what is written ---- */

/* Our intent on every ancestor, in place of `old_id`'s. */
static void put_intents(struct op *op, const char *const *old_id, int64_t ttl_ms)
{
    op->intent =
        (struct belay_put_intent){ .lock_id = op->request.lock_id, .key = op->request.key, .ttl_ms = ttl_ms };
    for (size_t i = 1; i < op->batch.n_writes; i++) {
        op->writes[i].put_intent = &op->intent;
        op->writes[i].drop_intents = old_id;
        op->writes[i].n_drop_intents = old_id == NULL ? 0 : 1;
    }
}

static void drop_intents(struct op *op)
{
    for (size_t i = 1; i < op->batch.n_writes; i++) {
        op->writes[i].set = BELAY_SET_FREED;
        op->writes[i].drop_intents = &op->request.lock_id;
        op->writes[i].n_drop_intents = 1;
    }
}

static int64_t ttl_ms(const struct op *op)
{
    return op->request.ttl_ms != 0 ? op->request.ttl_ms : op->records[0].ttl_ms;
}

static void write_renew(struct op *op)
{
    op->writes[0].condition = BELAY_IF_LIVE_BY;
    op->writes[0].lock_id = op->request.lock_id;
    op->writes[0].set = BELAY_SET_LEASE;
    op->values.ttl_ms = ttl_ms(op); /* the same for the lease and the intents, whoever changes it meanwhile */
    op->writes[0].ttl_if_unknown_ms = op->request.ttl_if_unknown_ms;
    put_intents(op, NULL, ttl_ms(op));
    (void)step_event(op, BELAY_LEVEL_INFO, "lock.renewed");
}

static void write_adopt(struct op *op)
{
    const struct op_request *request = &op->request;
    struct belay_event *event;

    op->writes[0].condition = BELAY_IF_LIVE_BY;
    op->writes[0].lock_id = request->old_id;
    op->writes[0].set = BELAY_SET_IDENTITY | BELAY_SET_LIVENESS | BELAY_SET_LEASE;
    op->values.lock_id = (char *)request->lock_id;
    op->values.acquired_by = (char *)request->acquired_by;
    op->values.durable = request->durable;
    op->values.heartbeat_ms = request->heartbeat_ms;
    op->values.stale_after_ms = request->stale_after_ms;
    op->values.ttl_ms = ttl_ms(op);
    op->writes[0].ttl_if_unknown_ms = request->ttl_if_unknown_ms;
    if (request->owner != NULL) {
        op->writes[0].set |= BELAY_SET_OWNER;
        op->values.owner = (char *)request->owner;
        op->values.owner_name = (char *)request->owner_name;
    }
    if (request->n_metadata > 0) {
        op->writes[0].set |= BELAY_SET_METADATA;
        op->values.metadata = (struct belay_meta *)request->metadata;
        op->values.n_metadata = request->n_metadata;
    }
    put_intents(op, &op->request.old_id, ttl_ms(op));
    op->batch.durable = request->durable;
    event = step_event(op, BELAY_LEVEL_INFO, "lock.adopted");
    event->token = BELAY_TOKEN_OF_BATCH;
}

static void write_release(struct op *op)
{
    op->writes[0].condition = BELAY_IF_HELD_BY;
    op->writes[0].lock_id = op->request.lock_id;
    op->writes[0].set = BELAY_SET_RELEASED;
    op->values.outcome = op->request.outcome;
    drop_intents(op);
    step_event(op, BELAY_LEVEL_INFO, "lock.released")->duration_ms = BELAY_DURATION_HELD;
    op->events[0].reason = belay_outcome_name(op->request.outcome);
    op->events[0].by = op->request.by;
}

static void write_force(struct op *op)
{
    struct belay_event *event;

    op->writes[0].condition = BELAY_IF_HELD_BY;
    op->writes[0].lock_id = op->request.lock_id;
    op->writes[0].set = BELAY_SET_RELEASED;
    op->values.outcome = BELAY_OUTCOME_FORCED;
    drop_intents(op);
    event = step_event(op, BELAY_LEVEL_WARNING, "lock.forced");
    event->duration_ms = BELAY_DURATION_HELD;
    event->by = op->request.by;
    event->reason = op->request.reason;
}

static void change(struct op *op, int64_t now_ms)
{
    step_begin_batch(op);
    memset(&op->values, 0, sizeof op->values);
    switch (op->request.kind) {
    case OP_ACQUIRE:
        assert(!"acquire.c runs it");
        break;
    case OP_ADOPT:
        write_adopt(op);
        break;
    case OP_RENEW:
        write_renew(op);
        break;
    case OP_RELEASE:
        write_release(op);
        break;
    case OP_FORCE:
        write_force(op);
        break;
    }
    step_commit(op, CHANGING, now_ms);
}

/* ---- being answered ---- */

/* The id is the record's, but its holding is over. */
static void say_over(struct op *op, const struct belay_record *record)
{
    if (record->held) {
        (void)error_set(&op->err, BELAY_LOST, "lock '%s': the lease has ended", op->request.key);
    } else if (record->outcome == BELAY_OUTCOME_FORCED) {
        (void)error_set(&op->err, BELAY_LOST, "lock '%s' was released by force", op->request.key);
    } else {
        (void)error_set(&op->err, BELAY_LOST, "lock '%s' was released", op->request.key);
    }
}

/* The lock is another client's, or free: nothing was changed, and the error names the holder. */
static void say_not_holder(struct op *op, const struct belay_record *record)
{
    struct belay_info *info = info_from_record(record, op->records_now_ms);

    if (info == NULL) {
        step_done_no_memory(op);
        return;
    }
    if (info->status == BELAY_STATUS_ACTIVE) {
        (void)info_say_held(&op->err, BELAY_NOT_HOLDER, op->request.key, info, 0, 0);
        (void)error_wrap(&op->err, "not the holder");
        return;
    }
    (void)error_set(&op->err, BELAY_NOT_HOLDER, "not the holder: lock '%s' was last held by %s, and is %s",
                    op->request.key, info->locked_by, belay_status_name(info->status));
    error_set_holder(&op->err, info);
}

/* It was never taken, as far as the store knows. */
static bool is_none(const struct belay_record *record)
{
    return record->revision == 0 || record->lock_id == NULL || record->lock_id[0] == '\0';
}

/*
 * The lock is gone, or another client's, and an earlier write of ours, whose answer was
 * lost, may be why: then it must not be reported as lost.
 *
 *     there is no record                   it was given back, if the store keeps none of that
 *     the last to give it back was we      so it was; but a force does not count as giving back: its
 *                                          holder did so before, and ours ended nothing
 *     else                                 unknown
 */
static bool may_have_ended_it(const struct op *op, const struct belay_record *record)
{
    bool is_ours = !is_none(record) && strcmp(record->lock_id, op->request.lock_id) == 0;

    return (op->request.kind == OP_RELEASE || op->request.kind == OP_FORCE) &&
           (op->was_unknown || op->request.is_restart) && !is_ours &&
           (!is_none(record) || op->request.capabilities.release_deletes);
}

/* Ended before, and nothing in the store says more of it than that: what is not known stays empty. */
static void succeed_gone(struct op *op, enum belay_outcome outcome, bool found_done, int64_t sent_ms)
{
    const struct op_request *request = &op->request;
    struct belay_record ended = { .key = (char *)request->key,
                                  .lock_id = (char *)request->lock_id,
                                  .owner = (char *)request->owner,
                                  .owner_name = (char *)request->owner_name,
                                  .outcome = outcome };

    belay_record_release(&op->record);
    if (!belay_record_copy(&ended, &op->record)) {
        step_done_no_memory(op);
        return;
    }
    op->record_now_ms = op->records_now_ms;
    op->sent_ms = sent_ms;
    op->found_done = found_done;
    step_done(op, BELAY_OK);
}

static void on_perhaps_ended(struct op *op, const struct belay_record *record, int64_t sent_ms)
{
    const struct op_request *request = &op->request;
    bool is_remembered = record->released_id != NULL && strcmp(record->released_id, request->lock_id) == 0;

    if (is_remembered && op->request.kind == OP_FORCE && !is_none(record)) {
        say_not_holder(op, record);
        step_done(op, op->err.code);
        return;
    }
    if (!is_none(record) && !is_remembered) {
        (void)error_set(&op->err, BELAY_UNKNOWN, "lock '%s': whether it was released is not known",
                        request->key);
        step_done(op, BELAY_UNKNOWN);
        return;
    }
    /* What lies there now is the next one's, and not to be shown as ours. */
    succeed_gone(op, op->request.kind == OP_FORCE ? BELAY_OUTCOME_FORCED : request->outcome, true, sent_ms);
}

static void on_refused(struct op *op, int64_t sent_ms)
{
    const struct belay_record *record = &op->records[0];
    const char *id = op->request.kind == OP_ADOPT ? op->request.old_id : op->request.lock_id;

    if (may_have_ended_it(op, record)) {
        on_perhaps_ended(op, record, sent_ms);
        return;
    }
    if (is_none(record) && op->request.kind == OP_RELEASE && op->request.capabilities.release_deletes) {
        /* A store that keeps nothing of a lock that was given back: it is gone, and that is what was wanted (S1.3). */
        succeed_gone(op, BELAY_OUTCOME_NONE, false, sent_ms);
        return;
    }
    if (is_none(record)) {
        (void)error_set(&op->err, BELAY_NOT_FOUND, "no such lock: '%s'", op->request.key);
    } else if (op->request.kind == OP_ADOPT && strcmp(record->lock_id, op->request.lock_id) == 0 &&
               record_is_live(record, op->records_now_ms)) {
        op->found_done = op->was_unknown;
        step_succeed(op, step_found_sent_ms(op)); /* done before (L5) */
        return;
    } else if (strcmp(record->lock_id, id) != 0) {
        say_not_holder(op, record);
    } else if (op->request.kind == OP_RELEASE || op->request.kind == OP_FORCE) {
        op->found_done = op->was_unknown && !record->held && record->outcome == op->values.outcome;
        step_succeed(op, sent_ms); /* over already, and not taken since (L3) */
        return;
    } else {
        say_over(op, record);
    }
    step_done(op, op->err.code);
}

static void on_commit(struct op *op, enum belay_code code, struct belay_commit *result, int64_t sent_ms,
                      int64_t now_ms)
{
    (void)now_ms;
    assert(op->state == CHANGING);
    step_adopt_records(op, result);
    if (code == BELAY_REFUSED) {
        on_refused(op, sent_ms);
        return;
    }
    if (op->request.kind == OP_RELEASE || op->request.kind == OP_FORCE) {
        step_find_wakes(op);
    }
    step_succeed(op, sent_ms);
}

/*
 * An intent has its lock's ttl, which only the record knows if the caller does
 * not say. A look that failed is repeated: without the ttl the intents would be
 * over at once, and the lock open from above.
 */
static void begin(struct op *op, int64_t now_ms)
{
    bool puts_intents =
        (op->request.kind == OP_ADOPT || op->request.kind == OP_RENEW) && op->request.n_ancestors > 0;

    if (puts_intents && ttl_ms(op) == 0) {
        step_look(op, LEARNING, now_ms);
    } else {
        change(op, now_ms);
    }
}

/* Another's ttl, or none, says nothing of a lock that the id may get before we write. */
static void on_records(struct op *op, int64_t now_ms)
{
    const struct belay_record *record = &op->records[0];
    const char *id = op->request.kind == OP_ADOPT ? op->request.old_id : op->request.lock_id;

    assert(op->state == LEARNING);
    if (record->revision != 0 && record->held && record->lock_id != NULL &&
        strcmp(record->lock_id, id) == 0) {
        if (record->ttl_is_estimate && op->request.ttl_if_unknown_ms > 0) {
            int64_t left_ms = record->expires_ms - op->records_now_ms;

            op->request.ttl_ms =
                op->request.ttl_if_unknown_ms > left_ms ? op->request.ttl_if_unknown_ms : left_ms;
        } else if (record->ttl_is_estimate) {
            step_done(op, error_set(&op->err, BELAY_INVALID,
                                    "lock '%s': the store does not keep how long its lease is: say the ttl "
                                    "(--ttl) or the profile (--profile)",
                                    op->request.key));
            return;
        }
        change(op, now_ms);
    } else {
        on_refused(op, op->asked_ms);
    }
}

static void on_wake(struct op *op, int64_t now_ms)
{
    assert(op->state == RECOVERING);
    begin(op, now_ms);
}

static void on_fault(struct op *op, enum belay_code code, const struct belay_error *err, bool committing,
                     int64_t now_ms)
{
    int64_t retry_ms;

    if (committing && code == BELAY_UNKNOWN && op->asked_ms < op->first_unknown_ms) {
        op->first_unknown_ms = op->asked_ms;
    }
    if (step_survives_fault(op, code, err, 0, now_ms, &retry_ms)) {
        step_wait(op, RECOVERING, retry_ms);
    }
}

static const struct op_steps steps = { on_commit, on_records, on_wake, on_fault };

void step_start_change(struct op *op, int64_t now_ms)
{
    op->steps = &steps;
    begin(op, now_ms);
}
