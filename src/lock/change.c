/*
 * Adopt, renew, release, force: one conditional batch each. It names the lock id, so it
 * can be sent again without harm. If it is refused, the error has the present holder (L3).
 *
 *   [LEARNING: the ttl, if it is not given] --> CHANGING --done--> done
 *                                              ^  ^  |  \--refused--> done [or FINDING what was done]
 *            refused: another mode, or one of  |  |  v
 *            several keys is over: without it -+  RECOVERING (the store failed)
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "lock/decide.h"
#include "lock/info.h"
#include "lock/step.h"

enum change_state { LEARNING, CHANGING, FINDING, RECOVERING };

/* ---- what is written ---- */

static int64_t ttl_ms(const struct op *op)
{
    return op->request.ttl_ms != 0 ? op->request.ttl_ms : op->records[0].ttl_ms;
}

static bool is_ending(const struct op *op)
{
    return op->request.kind == OP_RELEASE || op->request.kind == OP_FORCE;
}

static bool is_skipped(const struct op *op, size_t target)
{
    assert(target < op_n_targets(&op->request));
    return (op->skipped >> target & 1) != 0;
}

/* One write for the lock on each key, on condition that `lock_id` holds it. */
static void write_locks(struct op *op, enum belay_condition condition, const char *lock_id, unsigned set)
{
    for (size_t i = 0; i < op_n_targets(&op->request); i++) {
        if (!is_skipped(op, i)) {
            op->writes[i].condition = condition;
            op->writes[i].lock_id = lock_id;
            op->writes[i].set = set;
            op->writes[i].co_holder = op->request.mode != BELAY_EXCLUSIVE;
            op->writes[i].any_mode = op->request.capabilities.finds_mode && op->request.joint == NULL &&
                                     is_ending(op) && op->request.mode == BELAY_EXCLUSIVE;
            op->writes[i].ttl_if_unknown_ms = op->request.ttl_if_unknown_ms;
        }
    }
}

static void write_renew(struct op *op)
{
    write_locks(op, BELAY_IF_LIVE_BY, op->request.lock_id, BELAY_SET_LEASE);
    op->values.ttl_ms = ttl_ms(op); /* the same for the lease and the intents */
    step_put_intents(op, op->request.lock_id, ttl_ms(op));
    for (size_t i = 0; i < op_n_targets(&op->request); i++) {
        (void)step_event(op, i, BELAY_LEVEL_INFO, "lock.renewed");
    }
}

static void write_adopt(struct op *op)
{
    const struct op_request *request = &op->request;
    unsigned set = BELAY_SET_IDENTITY | BELAY_SET_LIVENESS | BELAY_SET_LEASE;

    op->values.lock_id = (char *)request->lock_id;
    op->values.acquired_by = (char *)request->acquired_by;
    op->values.durable = request->durable;
    op->values.heartbeat_ms = request->heartbeat_ms;
    op->values.stale_after_ms = request->stale_after_ms;
    op->values.ttl_ms = ttl_ms(op);
    if (request->owner != NULL) {
        set |= BELAY_SET_OWNER;
        op->values.owner = (char *)request->owner;
        op->values.owner_name = (char *)request->owner_name;
    }
    if (request->n_metadata > 0) {
        set |= BELAY_SET_METADATA;
        op->values.metadata = (struct belay_meta *)request->metadata;
        op->values.n_metadata = request->n_metadata;
    }
    write_locks(op, BELAY_IF_LIVE_BY, request->old_id, set);
    step_put_intents(op, request->lock_id, ttl_ms(op));
    op->batch.durable = request->durable;
    for (size_t i = 0; i < op_n_targets(request); i++) {
        step_event(op, i, BELAY_LEVEL_INFO, "lock.adopted")->token = BELAY_TOKEN_OF_BATCH;
    }
}

/* End the locks, by their holder or by force. */
static void write_end(struct op *op)
{
    bool is_forced = op->request.kind == OP_FORCE;
    size_t n = op_n_targets(&op->request);

    write_locks(op, BELAY_IF_HELD_BY, op->request.lock_id, BELAY_SET_RELEASED);
    op->values.outcome = is_forced ? BELAY_OUTCOME_FORCED : op->request.outcome;
    for (size_t i = n; i < op->batch.n_writes; i++) {
        op->writes[i].set = BELAY_SET_FREED;
    }
    for (size_t i = 0; i < n; i++) {
        struct belay_event *event;

        if (!is_skipped(op, i)) {
            event = step_event(op, i, is_forced ? BELAY_LEVEL_WARNING : BELAY_LEVEL_INFO,
                               is_forced ? "lock.forced" : "lock.released");
            event->duration_ms = BELAY_DURATION_HELD;
            event->by = op->request.by;
            event->reason = is_forced ? op->request.reason : belay_outcome_name(op->request.outcome);
        }
    }
}

/* Remove the writes of skipped locks from the batch. They have no events in it. */
static void leave_out_skipped(struct op *op)
{
    size_t n_targets = op_n_targets(&op->request);
    size_t kept = 0;

    for (size_t i = 0; i < op->batch.n_writes; i++) {
        if (i >= n_targets || !is_skipped(op, i)) {
            op->writes[kept++] = op->writes[i];
        }
    }
    assert(kept > 0); /* what is skipped whole is not written */
    op->batch.n_writes = kept;
}

static void write_change(struct op *op, int64_t now_ms)
{
    const char *dropped_id = op->request.kind == OP_ADOPT ? op->request.old_id : op->request.lock_id;

    step_begin_batch(op);
    memset(&op->values, 0, sizeof op->values);
    if (op->request.kind != OP_RENEW && op_n_ancestors(&op->request) > 0 &&
        !step_drop_intents(op, dropped_id)) {
        return;
    }
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
    case OP_FORCE:
        write_end(op);
        break;
    }
    leave_out_skipped(op);
    step_commit(op, CHANGING, now_ms);
}

/* ---- answers of the store ---- */

static const char *record_key(const struct op *op, const struct belay_record *record)
{
    return record->key != NULL ? record->key : op->request.key;
}

/* The record still has the lock id, but the lease is over. */
static void say_lost(struct op *op, const struct belay_record *record)
{
    const char *key = record_key(op, record);

    if (record->held) {
        (void)error_set(&op->err, BELAY_LOST, "lock '%s': the lease has ended", key);
    } else if (record->outcome == BELAY_OUTCOME_FORCED) {
        (void)error_set(&op->err, BELAY_LOST, "lock '%s' was released by force", key);
    } else {
        (void)error_set(&op->err, BELAY_LOST, "lock '%s' was released", key);
    }
}

/* Another client has the lock, or it is free: nothing was changed, and the error names the last holder. */
static void say_other_holder(struct op *op, const struct belay_record *record)
{
    struct belay_info *info = info_from_record(record, op->records_now_ms, true);

    if (info == NULL) {
        (void)error_no_memory(&op->err);
        return;
    }
    if (info->status == BELAY_STATUS_ACTIVE) {
        (void)info_say_held(&op->err, BELAY_NOT_HOLDER, record_key(op, record), info, 0, 0);
        (void)error_wrap(&op->err, "not the holder");
        return;
    }
    (void)error_set(&op->err, BELAY_NOT_HOLDER, "not the holder: lock '%s' was last held by %s, and is %s",
                    record_key(op, record), info->locked_by, belay_status_name(info->status));
    error_set_holder(&op->err, info);
}

/* The store does not know that the lock was ever held. */
static bool was_never_held(const struct belay_record *record)
{
    return record->revision == 0 || record->lock_id == NULL || record->lock_id[0] == '\0';
}

/*
 * The lock is gone, or another client has it, and the reason may be an earlier write of ours whose
 * answer was lost: then it must not be reported as lost. on_perhaps_ended() decides:
 *
 *     there is no record                     released, if the store deletes released locks
 *     our id is in released_ids, release     released
 *     our id is in released_ids, force       not by us: the holder had released it before
 *     else                                   unknown
 */
static bool may_have_ended_it(const struct op *op, const struct belay_record *record)
{
    bool is_ours = !was_never_held(record) && strcmp(record->lock_id, op->request.lock_id) == 0;

    return is_ending(op) && (op->was_unknown || op->request.is_restart) && !is_ours &&
           (!was_never_held(record) || op->request.capabilities.release_deletes);
}

/* The answer about a lock that has ended and is not in `now`, the present record. Unknown fields stay empty. */
static bool make_ended(const struct op *op, const char *key, const struct belay_record *now,
                       enum belay_outcome outcome, struct belay_record *out_record)
{
    const struct op_request *request = &op->request;
    struct belay_record ended = { .key = (char *)key,
                                  .lock_id = (char *)request->lock_id,
                                  .owner = (char *)request->owner,
                                  .owner_name = (char *)request->owner_name,
                                  .outcome = outcome,
                                  .mode = request->mode,
                                  .slots = now->slots,
                                  .freed_at_unix_ms = now->freed_at_unix_ms };

    return belay_record_copy(&ended, out_record);
}

/* op->record is set: it is of a lock that has ended. */
static void succeed_ended(struct op *op, int64_t sent_ms)
{
    op->record_now_ms = op->records_now_ms;
    op->info = info_borrow(&op->record, op->record_now_ms);
    op->sent_ms = sent_ms;
    step_done(op, BELAY_OK);
}

static void succeed_gone(struct op *op, enum belay_outcome outcome, bool found_done, int64_t sent_ms)
{
    belay_record_release(&op->record);
    if (!make_ended(op, record_key(op, &op->records[0]), &op->records[0], outcome, &op->record)) {
        step_done_no_memory(op);
        return;
    }
    op->found_done = found_done;
    succeed_ended(op, sent_ms);
}

static void on_perhaps_ended(struct op *op, const struct belay_record *record, int64_t sent_ms)
{
    const struct op_request *request = &op->request;
    bool is_remembered = record_was_released(record, request->lock_id);

    assert(is_ending(op) && (op->was_unknown || request->is_restart));
    if (is_remembered && op->request.kind == OP_FORCE && !was_never_held(record)) {
        say_other_holder(op, record);
        step_done(op, op->err.code);
        return;
    }
    if (!was_never_held(record) && !is_remembered) {
        (void)error_set(&op->err, BELAY_UNKNOWN, "lock '%s': whether it was released is not known",
                        record_key(op, record));
        step_done(op, BELAY_UNKNOWN);
        return;
    }
    /* The record may be the next holder's, so it is not returned as ours. */
    succeed_gone(op, op->request.kind == OP_FORCE ? BELAY_OUTCOME_FORCED : request->outcome, true, sent_ms);
}

/* The lock id that must hold the lock for this operation to succeed. */
static const char *needed_id(const struct op *op)
{
    return op->request.kind == OP_ADOPT ? op->request.old_id : op->request.lock_id;
}

/* The condition does not hold. End with the reason, or with success if it was done before. */
static void judge_refusal(struct op *op, int64_t sent_ms)
{
    const struct belay_record *record = &op->records[0];
    bool is_released_before = op->request.kind == OP_RELEASE && record->mode != BELAY_EXCLUSIVE &&
                              record_was_released(record, op->request.lock_id);

    if (may_have_ended_it(op, record)) {
        on_perhaps_ended(op, record, sent_ms);
        return;
    }
    if (was_never_held(record) && op->request.kind == OP_RELEASE &&
        op->request.capabilities.release_deletes) {
        succeed_gone(op, BELAY_OUTCOME_NONE, false, sent_ms); /* released before, for all we know (S1.3) */
        return;
    }
    if (was_never_held(record)) {
        (void)error_set(&op->err, BELAY_NOT_FOUND, "no such lock: '%s'", record_key(op, record));
    } else if (strcmp(record->lock_id, needed_id(op)) != 0) {
        if (is_released_before) {
            succeed_gone(op, op->request.outcome, false, sent_ms); /* others still hold it (L3) */
            return;
        }
        say_other_holder(op, record);
    } else if (is_ending(op)) {
        op->found_done = op->was_unknown && !record->held && record->outcome == op->values.outcome;
        step_succeed(op, sent_ms); /* it has ended before, and was not acquired since (L3) */
        return;
    } else {
        say_lost(op, record);
    }
    step_done(op, op->err.code);
}

/* The record of that key after the commit; NULL: the batch had no write for it. */
static const struct belay_record *record_after(const struct op *op, const char *key)
{
    for (size_t i = 0; i < op->batch.n_writes; i++) {
        if (op->records[i].key != NULL && strcmp(op->records[i].key, key) == 0) {
            return &op->records[i];
        }
    }
    return NULL;
}

/* All of several locks have ended, now or before. */
static void succeed_all(struct op *op, int64_t sent_ms)
{
    struct belay_record *ended = step_ended(op);
    size_t n = op_n_targets(&op->request);

    assert(n > 1 && is_ending(op));
    for (size_t i = 0; i < n; i++) {
        const char *key = op_record_key(&op->request, i);
        const struct belay_record *now = is_skipped(op, i) ? NULL : record_after(op, key);
        bool is_shown = now != NULL && now->lock_id != NULL && !now->held &&
                        strcmp(now->lock_id, op->request.lock_id) == 0;

        if (now != NULL && !(is_shown ? belay_record_copy(now, &ended[i])
                                      : make_ended(op, key, now, op->values.outcome, &ended[i]))) {
            step_done_no_memory(op);
            return;
        }
    }
    belay_record_release(&op->record);
    op->record = ended[0];
    memset(&ended[0], 0, sizeof ended[0]);
    op->more = ended + 1;
    op->n_more = n - 1;
    succeed_ended(op, sent_ms);
}

/*
 * Of several locks, that of `target` had ended before. judge_refusal() has set the answer about it
 * and the state OP_DONE: keep the answer, and continue with the other locks.
 */
static void skip_target(struct op *op, size_t target, int64_t sent_ms, int64_t now_ms)
{
    assert(op->want == OP_DONE && is_ending(op) && !is_skipped(op, target));
    op->skipped = (uint16_t)(op->skipped | 1U << target);
    if (op->code != BELAY_OK) {
        op->skipped_code = op->code;
    } else {
        belay_record_release(&step_ended(op)[target]);
        step_ended(op)[target] = op->record;
        memset(&op->record, 0, sizeof op->record);
    }
    if (op->skipped != (1U << op_n_targets(&op->request)) - 1) {
        op->want = OP_COMMIT; /* not done: step_commit() requires that */
        write_change(op, now_ms);
    } else if (op->skipped_code != BELAY_OK) {
        op->code = op->skipped_code;
    } else {
        op->want = OP_COMMIT;
        succeed_all(op, sent_ms);
    }
}

static size_t target_with_key(const struct op *op, const char *key)
{
    size_t target = 0;

    while (strcmp(op_record_key(&op->request, target), key) != 0) {
        target++;
        assert(target < op_n_targets(&op->request));
    }
    return target;
}

/*
 * The first write of an adoption is for an exclusive lock. If it is refused, the record shows the other holders, but
 * of several keys only that of the first: there each holder may have its part of the metadata.
 */
static bool adopts_too_much(const struct op *op, const struct belay_record *record)
{
    const struct op_request *request = &op->request;

    if (request->kind != OP_ADOPT || record->mode == BELAY_EXCLUSIVE) {
        return false;
    }
    return request->joint == NULL
               ? decide_is_heavy(request, record, op->records_now_ms)
               : meta_size(request->metadata, request->n_metadata) > BELAY_META_SUM_MAX / BELAY_HOLDERS_MAX;
}

static void on_refusal(struct op *op, const struct belay_commit *result, int64_t sent_ms, int64_t now_ms)
{
    struct belay_record *record = &op->records[0];
    size_t target = target_with_key(op, op->writes[result->refused].key);
    bool is_adopted = op->request.kind == OP_ADOPT && !was_never_held(record) &&
                      (record_find_holder(record, op->request.lock_id) != NULL ||
                       strcmp(record->lock_id, op->request.lock_id) == 0);
    bool is_holder = record_find_holder(record, needed_id(op)) != NULL;

    /* Show our holder: a renewal without a ttl keeps its own ttl, not that of another holder. */
    if (!record_show_holder(record, is_adopted ? op->request.lock_id : needed_id(op))) {
        step_done_no_memory(op);
        return;
    }
    if (is_holder && !is_adopted && adopts_too_much(op, record)) {
        step_done(op, decide_say_heavy(&op->err, record->key));
        return;
    }
    if (op->request.mode == BELAY_EXCLUSIVE && record->mode != BELAY_EXCLUSIVE && is_holder) {
        op->request.mode = record->mode; /* it is one of several holders: try again with co_holder */
        write_change(op, now_ms);
        return;
    }
    if (is_adopted && record_is_live(record, op->records_now_ms)) {
        op->found_done = op->was_unknown;
        if (op->request.joint != NULL) {
            step_look(op, FINDING, now_ms);
        } else {
            step_succeed(op, step_found_sent_ms(op)); /* done before (L5) */
        }
        return;
    }
    judge_refusal(op, sent_ms);
    if (op->request.joint != NULL && is_ending(op)) {
        skip_target(op, target, sent_ms, now_ms);
    }
}

/* Our holder was one of several and is gone from the record, which shows another one. */
static bool shows_another(const struct op *op)
{
    const struct belay_record *record = &op->records[0];

    return record->mode != BELAY_EXCLUSIVE && record->lock_id != NULL &&
           strcmp(record->lock_id, op->request.lock_id) != 0;
}

static void change_on_commit(struct op *op, enum belay_code code, struct belay_commit *result,
                             int64_t sent_ms, int64_t now_ms)
{
    assert(op->state == CHANGING && code != BELAY_FROZEN); /* a freeze forbids only new holders */
    step_adopt_records(op, result);
    if (code == BELAY_REFUSED) {
        on_refusal(op, result, sent_ms, now_ms);
        return;
    }
    if (!is_ending(op)) {
        step_succeed(op, sent_ms);
        return;
    }
    if (op->writes[0].any_mode) {
        op->request.mode = op->records[0].mode; /* as the store found it */
    }
    step_find_wakes(op);
    if (op->skipped_code != BELAY_OK) {
        step_done(op, op->skipped_code);
    } else if (op->request.joint != NULL && (op->skipped != 0 || op->request.mode != BELAY_EXCLUSIVE)) {
        succeed_all(op, sent_ms);
    } else if (shows_another(op)) {
        succeed_gone(op, op->values.outcome, false, sent_ms);
    } else {
        step_succeed(op, sent_ms);
    }
}

/*
 * An intent has the ttl of its lock. If the caller gives no ttl, it is read from the record first:
 * with a ttl of 0 the intents would expire at once, and clients could acquire the ancestors.
 */
static void change_start(struct op *op, int64_t now_ms)
{
    bool puts_intents =
        (op->request.kind == OP_ADOPT || op->request.kind == OP_RENEW) && op_n_ancestors(&op->request) > 0;

    if (puts_intents && ttl_ms(op) == 0) {
        step_look(op, LEARNING, now_ms);
    } else {
        write_change(op, now_ms);
    }
}

/* The ttl of another holder does not count: refuse, as the write would. */
static void on_learned(struct op *op, int64_t now_ms)
{
    const struct belay_record *record = &op->records[0];

    if (record->revision == 0 || !record->held || record->lock_id == NULL ||
        strcmp(record->lock_id, needed_id(op)) != 0) {
        judge_refusal(op, op->asked_ms);
        return;
    }
    op->request.mode = record->mode;
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
    write_change(op, now_ms);
}

static void change_on_records(struct op *op, int64_t now_ms)
{
    const char *id = op->state == FINDING ? op->request.lock_id : needed_id(op);

    assert(op->state == LEARNING || op->state == FINDING);
    if (!record_show_holder(&op->records[0], id)) {
        step_done_no_memory(op);
    } else if (op->state == FINDING) {
        step_succeed(op, step_found_sent_ms(op)); /* done before (L5) */
    } else {
        on_learned(op, now_ms);
    }
}

static void change_on_wake(struct op *op, int64_t now_ms)
{
    assert(op->state == RECOVERING);
    change_start(op, now_ms);
}

static void change_on_fault(struct op *op, enum belay_code code, const struct belay_error *err,
                            bool committing, int64_t now_ms)
{
    int64_t retry_ms;

    assert(op->state != RECOVERING && committing == (op->state == CHANGING));
    if (committing && code == BELAY_UNKNOWN && op->asked_ms < op->first_unknown_ms) {
        op->first_unknown_ms = op->asked_ms;
    }
    if (step_survives_fault(op, code, err, 0, now_ms, &retry_ms)) {
        step_wait(op, RECOVERING, retry_ms);
    }
}

const struct op_steps change_steps = {
    .from = { [LEARNING] = OP_FROM(LEARNING) | OP_FROM(RECOVERING),
              [CHANGING] = OP_FROM(LEARNING) | OP_FROM(CHANGING) | OP_FROM(RECOVERING),
              [FINDING] = OP_FROM(CHANGING),
              [RECOVERING] = OP_FROM(LEARNING) | OP_FROM(CHANGING) | OP_FROM(FINDING) },
    .start = change_start,
    .on_commit = change_on_commit,
    .on_records = change_on_records,
    .on_wake = change_on_wake,
    .on_fault = change_on_fault
};
