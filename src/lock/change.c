/*
 * Adopt, renew, release, force: one conditional batch each, which names the lock
 * id and so can be sent again without harm. Refused, it returns the present
 * holder (L3).
 *
 *   [LEARNING: the ttl, if it is not given] --> CHANGING --done--> done
 *                                              ^  ^  |  \--refused--> done [or FINDING what was done]
 *            refused: another mode, or one of  |  |  v
 *            several keys is over: without it -+  RECOVERING (the store failed)
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
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
    op->values.ttl_ms = ttl_ms(op); /* the same for the lease and the intents, whoever changes it meanwhile */
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

/* Locks that are over are left out of the batch; the events of the others are there already. */
static void leave_out_skipped(struct op *op)
{
    size_t n_targets = op_n_targets(&op->request);
    size_t kept = 0;

    for (size_t i = 0; i < op->batch.n_writes; i++) {
        if (i >= n_targets || !is_skipped(op, i)) {
            op->writes[kept++] = op->writes[i];
        }
    }
    op->batch.n_writes = kept;
}

static void change(struct op *op, int64_t now_ms)
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

/* ---- being answered ---- */

static const char *key_of(const struct op *op, const struct belay_record *record)
{
    return record->key != NULL ? record->key : op->request.key;
}

/* The id is the record's, but its holding is over. */
static void say_over(struct op *op, const struct belay_record *record)
{
    const char *key = key_of(op, record);

    if (record->held) {
        (void)error_set(&op->err, BELAY_LOST, "lock '%s': the lease has ended", key);
    } else if (record->outcome == BELAY_OUTCOME_FORCED) {
        (void)error_set(&op->err, BELAY_LOST, "lock '%s' was released by force", key);
    } else {
        (void)error_set(&op->err, BELAY_LOST, "lock '%s' was released", key);
    }
}

/* The lock is another client's, or free: nothing was changed, and the error names the holder. */
static void say_not_holder(struct op *op, const struct belay_record *record)
{
    struct belay_info *info = info_from_record(record, op->records_now_ms, true);

    if (info == NULL) {
        step_done_no_memory(op);
        return;
    }
    if (info->status == BELAY_STATUS_ACTIVE) {
        (void)info_say_held(&op->err, BELAY_NOT_HOLDER, key_of(op, record), info, 0, 0);
        (void)error_wrap(&op->err, "not the holder");
        return;
    }
    (void)error_set(&op->err, BELAY_NOT_HOLDER, "not the holder: lock '%s' was last held by %s, and is %s",
                    key_of(op, record), info->locked_by, belay_status_name(info->status));
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

/* A lock that ended, of which `now`, the record as it is now, says no more: what is not known stays empty. */
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

static void succeed_gone(struct op *op, enum belay_outcome outcome, bool found_done, int64_t sent_ms)
{
    belay_record_release(&op->record);
    if (!make_ended(op, key_of(op, &op->records[0]), &op->records[0], outcome, &op->record)) {
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
    bool is_remembered = record_was_released(record, request->lock_id);

    if (is_remembered && op->request.kind == OP_FORCE && !is_none(record)) {
        say_not_holder(op, record);
        step_done(op, op->err.code);
        return;
    }
    if (!is_none(record) && !is_remembered) {
        (void)error_set(&op->err, BELAY_UNKNOWN, "lock '%s': whether it was released is not known",
                        key_of(op, record));
        step_done(op, BELAY_UNKNOWN);
        return;
    }
    /* What lies there now is the next one's, and not to be shown as ours. */
    succeed_gone(op, op->request.kind == OP_FORCE ? BELAY_OUTCOME_FORCED : request->outcome, true, sent_ms);
}

/* The lock id that the record has to show for this operation to be possible. */
static const char *needed_id(const struct op *op)
{
    return op->request.kind == OP_ADOPT ? op->request.old_id : op->request.lock_id;
}

/* The lock is not as the condition has it: why, or that it was done before. */
static void judge_refusal(struct op *op, int64_t sent_ms)
{
    const struct belay_record *record = &op->records[0];
    bool is_released_before = op->request.kind == OP_RELEASE && record->mode != BELAY_EXCLUSIVE &&
                              record_was_released(record, op->request.lock_id);

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
        (void)error_set(&op->err, BELAY_NOT_FOUND, "no such lock: '%s'", key_of(op, record));
    } else if (strcmp(record->lock_id, needed_id(op)) != 0) {
        if (is_released_before) {
            succeed_gone(op, op->request.outcome, false, sent_ms); /* others still hold it (L3) */
            return;
        }
        say_not_holder(op, record);
    } else if (is_ending(op)) {
        op->found_done = op->was_unknown && !record->held && record->outcome == op->values.outcome;
        step_succeed(op, sent_ms); /* over already, and not taken since (L3) */
        return;
    } else {
        say_over(op, record);
    }
    step_done(op, op->err.code);
}

/* The record after the commit of the lock on that key; NULL: the commit was not about it. */
static const struct belay_record *record_after(const struct op *op, const char *key)
{
    for (size_t i = 0; i < op->batch.n_writes; i++) {
        if (op->records[i].key != NULL && strcmp(op->records[i].key, key) == 0) {
            return &op->records[i];
        }
    }
    return NULL;
}

/* Several locks have ended, now or before: the answer says so of each. */
static void succeed_all(struct op *op, int64_t sent_ms)
{
    struct belay_record *ended = step_ended(op);
    size_t n = op_n_targets(&op->request);

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
    op->record_now_ms = op->records_now_ms;
    op->sent_ms = sent_ms;
    step_done(op, BELAY_OK);
}

/* Of several locks one is over already: the others are still to be released. */
static void skip(struct op *op, size_t target, int64_t sent_ms, int64_t now_ms)
{
    op->skipped = (uint16_t)(op->skipped | 1U << target);
    if (op->code != BELAY_OK) {
        op->skipped_code = op->code;
    } else {
        belay_record_release(&step_ended(op)[target]);
        step_ended(op)[target] = op->record;
        memset(&op->record, 0, sizeof op->record);
    }
    if (op->skipped != (1U << op_n_targets(&op->request)) - 1) {
        op->want = OP_COMMIT; /* the operation goes on */
        change(op, now_ms);
    } else if (op->skipped_code != BELAY_OK) {
        op->code = op->skipped_code;
    } else {
        op->want = OP_COMMIT;
        succeed_all(op, sent_ms);
    }
}

static size_t target_of(const struct op *op, const char *key)
{
    size_t target = 0;

    while (strcmp(op_record_key(&op->request, target), key) != 0) {
        target++;
        assert(target < op_n_targets(&op->request));
    }
    return target;
}

static void on_refused(struct op *op, const struct belay_commit *result, int64_t sent_ms, int64_t now_ms)
{
    struct belay_record *record = &op->records[0];
    size_t target = target_of(op, op->writes[result->refused].key);
    bool is_adopted = op->request.kind == OP_ADOPT && !is_none(record) &&
                      (record_find_holder(record, op->request.lock_id) != NULL ||
                       strcmp(record->lock_id, op->request.lock_id) == 0);
    bool is_holder = record_find_holder(record, needed_id(op)) != NULL;

    /* Show the one in question: a renewal without a ttl keeps its own, not that of another holder. */
    if (!record_show_holder(record, is_adopted ? op->request.lock_id : needed_id(op))) {
        step_done_no_memory(op);
        return;
    }
    if (op->request.mode == BELAY_EXCLUSIVE && record->mode != BELAY_EXCLUSIVE && is_holder) {
        op->request.mode = record->mode; /* one of several holders, as we know now */
        change(op, now_ms);
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
        skip(op, target, sent_ms, now_ms);
    }
}

/* The lock of one of several holders is gone from the record, which shows another one. */
static bool shows_another(const struct op *op)
{
    const struct belay_record *record = &op->records[0];

    return record->mode != BELAY_EXCLUSIVE && record->lock_id != NULL &&
           strcmp(record->lock_id, op->request.lock_id) != 0;
}

static void on_commit(struct op *op, enum belay_code code, struct belay_commit *result, int64_t sent_ms,
                      int64_t now_ms)
{
    assert(op->state == CHANGING);
    step_adopt_records(op, result);
    if (code == BELAY_REFUSED) {
        on_refused(op, result, sent_ms, now_ms);
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
 * An intent has its lock's ttl, which only the record knows if the caller does
 * not say. A look that failed is repeated: without the ttl the intents would be
 * over at once, and the lock open from above.
 */
static void begin(struct op *op, int64_t now_ms)
{
    bool puts_intents =
        (op->request.kind == OP_ADOPT || op->request.kind == OP_RENEW) && op_n_ancestors(&op->request) > 0;

    if (puts_intents && ttl_ms(op) == 0) {
        step_look(op, LEARNING, now_ms);
    } else {
        change(op, now_ms);
    }
}

/* Another's ttl, or none, says nothing of a lock that the id may get before we write. */
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
    change(op, now_ms);
}

static void on_records(struct op *op, int64_t now_ms)
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

const struct op_steps change_steps = { begin, on_commit, on_records, on_wake, on_fault };
