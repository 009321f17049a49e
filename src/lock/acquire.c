/*
 * Acquire: try, look, decide; then take, wait in the queue, or give up.
 *
 *     TRYING ----acquired-----------------------------------------------> done
 *        | refused
 *        v
 *     LOOKING --> (decide) --free--------> TAKING ------acquired--------> done
 *        ^  ^        |  \---our owner's--> REENTERING --renewed---------> done
 *        |  |        | blocked
 *        |  |        v
 *        |  | [READING_BLOCKER] --no ticket yet--> QUEUEING --+
 *        |  |        | has a ticket                           |
 *        |  |        v                                        |
 *        |  +---- WAITING <-----------------------------------+
 *        | woken,    |  \--the same, with takes_turns--> CLAIMING ------> done
 *        | or due    |
 *        |           | the time is up, out of attempts, or cancelled
 *        |           v
 *        |        LEAVING ----------------------------------------------> done
 *        |
 *     RECOVERING <-- the store failed, or writes were refused too often
 *
 * If a write of TAKING, REENTERING, QUEUEING or CLAIMING is refused, it decides again: from the record in the
 * answer if that is the only one, else from those that it reads when LOOKING.
 *
 * TRYING acquires only a lock that is not held and whose queue is empty. Everything else
 * is decided from the records, and written on condition that they have not changed since.
 * An attempt that a freeze refuses continues like any other refused one: LOOKING, then
 * QUEUEING and WAITING, or LEAVING.
 *
 * If the store's capabilities have takes_turns, a waiter that is woken is CLAIMING instead of
 * LOOKING: it acquires the lock in one step if it is the first. If it is refused, it decides
 * from the record in the answer.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fnv.h"
#include "base/saturate.h"
#include "lock/acquire.h"
#include "lock/decide.h"
#include "lock/info.h"
#include "lock/step.h"

enum {
    BACKOFF_FIRST_MS = 500,
    BACKOFF_MAX_MS = 60000,
    CONFLICTS_AT_ONCE = 4, /* refused writes in a row before a pause */
    CONFLICT_BACKOFF_MAX_MS = 250,
    LOOK_OFTEN = 3,   /* a waiter with at most so many ahead polls every poll_ms: its turn may come soon */
    LOOK_SELDOM = 20, /* a waiter far back in the queue polls after so many poll_ms at most */
    LEAVE_TRIES = 3,
    LEAVE_SLOW_MS = 500, /* no retry if the store took so long to fail */
    POLL_PART = 5        /* a poll is early by a random part of the interval, up to 1/POLL_PART of it */
};

/* ---- how long to wait ---- */

bool op_may_wait(const struct op_request *request)
{
    return request->wait_ms != 0 || request->attempts > 1;
}

int64_t op_give_up_ms(const struct op_request *request)
{
    if (request->wait_ms > 0) {
        return add_saturated(request->began_ms, request->wait_ms);
    }
    return op_may_wait(request) ? INT64_MAX : request->began_ms;
}

/* Set the time of the next attempt. It is shown only if it comes before the end of the wait. */
static void plan_attempt(struct op *op, int64_t now_ms)
{
    assert(op->waiting.attempt > 0);
    op->next_attempt_ms = now_ms + op_backoff_ms(&op->request, op->waiting.attempt, &op->rng);
    op->waiting.retry_ms = op->next_attempt_ms < op_give_up_ms(&op->request) ? op->next_attempt_ms : now_ms;
}

int64_t op_backoff_ms(const struct op_request *request, int attempt, uint64_t *rng)
{
    static const int64_t steps[] = { 5000, 10000, 30000, 60000 }; /* S4.9 */
    int64_t delay = BACKOFF_FIRST_MS;
    int n = attempt - 1;

    assert(attempt > 0);
    if (request->stepped_backoff) {
        return steps[n < 3 ? n : 3];
    }
    while (n-- > 0 && delay < BACKOFF_MAX_MS) {
        delay *= 2;
    }
    delay = delay < BACKOFF_MAX_MS ? delay : BACKOFF_MAX_MS;
    return delay / 2 + step_random(rng, delay / 2 + 1);
}

/* ---- the end ---- */

/* A write of ours whose outcome is unknown could still acquire the lock. */
static bool may_yet_take(const struct op *op)
{
    return op->unknown_free || (op->unknown_revision != 0 && op->unknown_revision == op->records[0].revision);
}

/* Leave the queue and end with `code`; op->err is set. */
static void give_up_waiting(struct op *op, enum belay_code code, const char *why, int64_t now_ms)
{
    if (code != BELAY_ID_USED && may_yet_take(op)) {
        code = BELAY_UNKNOWN;
        (void)error_set(&op->err, code,
                        "lock '%s': an answer of the store was lost, and the lock may yet become ours: "
                        "repeat with the same id, %s",
                        op->request.key, op->request.lock_id);
    }
    assert(code != BELAY_OK && op->err.code == code);
    op->code = code;
    acquire_leave(op, why, now_ms);
}

/* The id has held the lock before, and never acquires it again (L5). The next waiters must not wait for us. */
static void say_used(struct op *op, int64_t now_ms)
{
    (void)error_set(&op->err, BELAY_ID_USED,
                    "lock '%s': the id %s had this lock, which is over; take a new id", op->request.key,
                    op->request.lock_id);
    if (op->queued) {
        give_up_waiting(op, BELAY_ID_USED, "the id was used before", now_ms);
    } else {
        step_done(op, BELAY_ID_USED);
    }
}

/* Another credential waits under this id: its ticket must stay as it is. */
static void say_not_ours(struct op *op)
{
    step_done(
        op, error_set(&op->err, BELAY_ID_USED,
                      "lock '%s': the id %s has a place in the queue that another token took; take a new id",
                      op->request.key, op->request.lock_id));
}

/*
 * A ticket that an earlier request of this wait has put, perhaps through a server that is gone: the wait counts from
 * there. The times of two machines are compared, so a ticket of the future is one of now.
 */
static void count_from_ticket(struct op *op, int64_t since_unix_ms)
{
    const struct op_request *request = &op->request;

    if (since_unix_ms > 0 && since_unix_ms < request->began_unix_ms) {
        op->waiting.since_unix_ms = since_unix_ms;
        op->waiting.since_ms = request->began_ms - (request->began_unix_ms - since_unix_ms);
    }
}

static void succeed(struct op *op, bool reentered, int64_t sent_ms)
{
    op->reentered = reentered;
    op->queued = false;
    belay_error_release(&op->err);
    op->waiting.holder = NULL;
    step_succeed(op, sent_ms);
}

/* An earlier write of ours acquired the lock (L5). The lease counts from before the first that may have. */
static void succeed_earlier(struct op *op)
{
    if (!record_show_holder(&op->records[0], op->request.lock_id)) {
        step_done_no_memory(op);
        return;
    }
    op->found_done = op->was_unknown;
    op->found_waited = op->was_unknown && op->queued;
    succeed(op, false, step_found_sent_ms(op));
}

/* Our owner holds the lock under another id, which the record shows. */
static void succeed_reentered(struct op *op, int64_t sent_ms)
{
    const char *holder_id = decide(&op->request, op->records, op->records_now_ms).holder_id;

    if (holder_id != NULL && !record_show_holder(&op->records[0], holder_id)) {
        step_done_no_memory(op);
        return;
    }
    succeed(op, true, sent_ms);
}

/* ---- blocked ---- */

/* The first key of the request that is blocked, which op->err is about from now on. */
static const char *blocked_key(struct op *op, const struct decision *decision)
{
    size_t i = decision->blocker;

    assert(i < op_n_records(&op->request));
    op->blocked = i < op_n_targets(&op->request) ? i : acquire_first_below(&op->request, i);
    return op_record_key(&op->request, op->blocked);
}

/* Set op->err to the holder that blocks us. False: no memory. */
static bool describe_blocker(struct op *op, const struct decision *decision)
{
    const struct belay_record *holder = &op->records[decision->blocker];
    struct belay_info *info;

    assert(decision->blocker < op_n_records(&op->request));
    assert(decision->below_key == NULL || op->blocker.key != NULL); /* it was read */
    if (decision->below_key != NULL) {
        holder = &op->blocker;
    }
    /* The queue of a held lock is not shown. */
    info = info_from_record(holder, op->records_now_ms, !record_is_live(holder, op->records_now_ms));
    if (info == NULL) {
        return false;
    }
    (void)info_say_held(&op->err, BELAY_HELD, blocked_key(op, decision), info,
                        op->request.capabilities.margin_ms,
                        holder->expires_ms + op->request.capabilities.margin_ms - op->records_now_ms);
    op->waiting.holder = op->err.holder;
    op->is_described = true;
    return true;
}

/* A hash of the holder and our place in the queue: if it changes, the lock changes hands. */
static uint64_t hash_holder(const struct op *op, int64_t ahead)
{
    const struct belay_info *holder = op->waiting.holder;

    return fnv_text(FNV_INIT + (uint64_t)ahead, holder == NULL ? NULL : holder->lock_id);
}

/*
 * The time to the next poll, if it is earlier than usual; 0: it is not. Most locks are held
 * either for a moment or for long, so after a change of the holder the interval is short and
 * then doubles.
 */
static int64_t early_look_ms(struct op *op, int64_t ahead)
{
    int64_t span_ms = op->request.capabilities.first_poll_ms;
    uint64_t holder = hash_holder(op, ahead);

    if (span_ms == 0 || ahead > LOOK_OFTEN) {
        return 0;
    }
    if (holder != op->seen_holder) {
        op->seen_holder = holder;
        op->early_looks = 0;
    }
    for (int i = 0; i < op->early_looks && span_ms < op->request.capabilities.poll_ms; i++) {
        span_ms *= 2;
    }
    if (span_ms >= op->request.capabilities.poll_ms) {
        return 0;
    }
    op->early_looks++;
    return span_ms - span_ms / 4 + step_random(&op->rng, span_ms / 2 + 1);
}

/*
 * The usual time to the next poll. It is early by a random part, so that waiters do not poll at
 * the same moment; it is never late, because the next waiter would take us for dead.
 */
static int64_t look_again_ms(struct op *op, int64_t ahead)
{
    int64_t polls = ahead <= LOOK_OFTEN ? 1 : ahead - LOOK_OFTEN + 1;
    int64_t span_ms = (polls < LOOK_SELDOM ? polls : LOOK_SELDOM) * op->request.capabilities.poll_ms;

    return span_ms - span_ms / 20 - step_random(&op->rng, span_ms / POLL_PART + 1);
}

/*
 * True: do not wake up for the next attempt; it counts when the waiter polls next. An attempt this
 * far back cannot succeed, and there may be many such waiters. Not if the attempts are limited.
 */
static bool is_far_back(const struct op *op, const struct decision *decision)
{
    return decision->ahead > LOOK_OFTEN && op->request.attempts == 0 && acquire_takes_turns(op);
}

static void wait_in_queue(struct op *op, const struct decision *decision, int64_t now_ms)
{
    int64_t early_ms = early_look_ms(op, (int64_t)decision->ahead);
    int64_t until_ms = now_ms + (early_ms > 0 ? early_ms : look_again_ms(op, (int64_t)decision->ahead));
    int64_t may_try_ms = now_ms + (decision->may_try_ms - op->records_now_ms);

    assert(op->queued && decision->queued);
    if (may_try_ms > now_ms && may_try_ms < until_ms) {
        until_ms = may_try_ms;
    }
    if (op->is_frozen && op->frozen_until_ms < until_ms) {
        until_ms = op->frozen_until_ms;
    }
    if (op->next_attempt_ms < until_ms && !is_far_back(op, decision)) {
        until_ms = op->next_attempt_ms;
    }
    if (op->ticket_until_ms < until_ms) {
        until_ms = op->ticket_until_ms; /* a ticket that expires loses its place */
    }
    if (op_give_up_ms(&op->request) < until_ms) {
        until_ms = op_give_up_ms(&op->request);
    }
    assert(until_ms < INT64_MAX); /* a waiter polls, even if nothing wakes it */
    step_wait(op, WAITING, until_ms);
    op->polling = true;
}

static bool is_queue_full(const struct op *op)
{
    bool is_full = false;

    for (size_t i = 0; i < op_n_targets(&op->request); i++) {
        const struct belay_record *record = &op->records[i];

        is_full = is_full || record->n_tickets + record->n_between + record->n_behind >= BELAY_QUEUE_MAX;
    }
    return is_full;
}

static void on_blocked(struct op *op, const struct decision *decision, int64_t now_ms)
{
    bool tries_are_up = op->request.attempts > 0 && op->waiting.attempt >= op->request.attempts;
    enum belay_code code = op->is_frozen ? BELAY_FROZEN : BELAY_HELD;

    assert(decision->verdict == VERDICT_BLOCKED || decision->verdict == VERDICT_TAKE);
    op->waiting.position = decision->ahead;
    if (!op->is_frozen && !op->is_described && !describe_blocker(op, decision)) {
        step_done_no_memory(op);
        return;
    }
    if (!op_may_wait(&op->request) || tries_are_up || now_ms >= op_give_up_ms(&op->request)) {
        if (tries_are_up && op->request.attempts > 1) {
            (void)error_wrap(&op->err, "failed to acquire lock after %d attempts", op->waiting.attempt);
        }
        give_up_waiting(op, code, tries_are_up ? "out of attempts" : "timed out", now_ms);
        return;
    }
    if (op->next_attempt_ms == 0) {
        plan_attempt(op, now_ms);
    }
    if (!decision->queued && is_queue_full(op)) {
        (void)error_wrap(&op->err, "%d already wait", BELAY_QUEUE_MAX);
        give_up_waiting(op, code, "the queue is full", now_ms);
        return;
    }
    if (!decision->queued || now_ms >= op->ticket_until_ms) {
        acquire_queue(op, op->queued, op->queued && !decision->queued, now_ms);
        return;
    }
    wait_in_queue(op, decision, now_ms);
}

/* The lock is held in a mode that the request can never join. */
static void refuse_mode(struct op *op, const struct decision *decision, int64_t now_ms)
{
    const char *key = blocked_key(op, decision);

    assert(op->request.mode != BELAY_EXCLUSIVE);
    if (decision->verdict == VERDICT_OTHER_SLOTS) {
        (void)decide_say_other_slots(&op->err, key, op->request.slots, &op->records[decision->blocker]);
        give_up_waiting(op, BELAY_INVALID, "the lock has another number of slots", now_ms);
    } else if (decision->verdict == VERDICT_HEAVY) {
        (void)decide_say_heavy(&op->err, key);
        give_up_waiting(op, BELAY_HELD, "too much metadata of the holders", now_ms);
    } else {
        (void)error_set(&op->err, BELAY_HELD, "lock '%s' is shared by %d holders, which are the most", key,
                        BELAY_HOLDERS_MAX);
        give_up_waiting(op, BELAY_HELD, "too many holders", now_ms);
    }
}

/* Decide from op->records, and continue. */
static void decide_next(struct op *op, int64_t now_ms)
{
    struct decision decision = decide(&op->request, op->records, op->records_now_ms);

    if (decision.verdict == VERDICT_NOT_OURS) {
        say_not_ours(op);
        return;
    }
    count_from_ticket(op, decision.since_unix_ms);
    if (!op->queued && decision.queued && op->records[0].n_tickets > 0 &&
        (decision.verdict == VERDICT_TAKE || decision.verdict == VERDICT_BLOCKED)) {
        op->queued = true; /* an earlier operation with this id has queued */
    }
    if (op->cancelled && decision.verdict != VERDICT_MINE) {
        (void)error_set(&op->err, BELAY_CANCELLED, "cancelled while waiting for lock '%s'", op->request.key);
        give_up_waiting(op, BELAY_CANCELLED, "cancelled", now_ms);
        return;
    }
    switch (decision.verdict) {
    case VERDICT_TAKE:
        if (op->conflicts > CONFLICTS_AT_ONCE && now_ms >= op_give_up_ms(&op->request)) {
            break; /* the time is up, and the records may change for ever */
        }
        if (op->is_frozen) {
            break;
        }
        acquire_take(op, now_ms);
        /* When a freeze ends, each waiter ahead of us has one claim time. */
        op->batch.freeze_grace_ms = (int64_t)decision.ahead * op->request.capabilities.claim_ms;
        return;
    case VERDICT_MINE:
        succeed_earlier(op);
        return;
    case VERDICT_REENTER:
        acquire_reenter(op, decision.holder_id, now_ms);
        return;
    case VERDICT_USED:
        say_used(op, now_ms);
        return;
    case VERDICT_OTHER_SLOTS:
    case VERDICT_FULL:
    case VERDICT_HEAVY:
        refuse_mode(op, &decision, now_ms);
        return;
    case VERDICT_NOT_OURS: /* above */
    case VERDICT_BLOCKED:
        break;
    }
    if (decision.below_key != NULL && !op->is_frozen &&
        (op->blocker.key == NULL || strcmp(op->blocker.key, decision.below_key) != 0)) {
        step_read_blocker(op, READING_BLOCKER, decision.below_key, now_ms);
        return;
    }
    on_blocked(op, &decision, now_ms);
}

/* ---- answers of the store ---- */

/* The next waiter polls before our lease ends, so it need not be woken: on a remote store that costs a request. */
static bool next_waiter_looks_in_time(const struct op *op)
{
    const struct belay_store_capabilities *capabilities = &op->request.capabilities;

    return !capabilities->is_local && op->request.ttl_ms > (int64_t)LOOK_SELDOM * capabilities->poll_ms;
}

static void on_done(struct op *op, struct belay_commit *result, int64_t sent_ms, int64_t now_ms)
{
    step_adopt_records(op, result);
    op->conflicts = 0;
    switch ((enum acquire_state)op->state) {
    case TRYING:
    case CLAIMING:
    case TAKING:
        /* The first waiter knows only the end of the old lease; it must poll at the end of ours (L4). */
        if (!next_waiter_looks_in_time(op)) {
            step_find_wakes(op);
        }
        succeed(op, false, sent_ms);
        return;
    case REENTERING:
        succeed_reentered(op, sent_ms);
        return;
    case QUEUEING:
        if (!op->queued) {
            op->queued = true;
            op->waiting.since_ms = now_ms;
        }
        op->ticket_until_ms = acquire_renew_ticket_ms(op, now_ms);
        /* If the write required unchanged records, only our ticket is new, and err is still right. */
        op->is_described = op->is_described && op->writes[0].condition != BELAY_IF_OCCUPIED;
        decide_next(op, now_ms);
        return;
    case LEAVING:
        step_find_wakes(op);
        step_done(op, op->code);
        return;
    case LOOKING:
    case READING_BLOCKER:
    case WAITING:
    case RECOVERING:
        assert(!"no commit is in progress in this state");
    }
}

/*
 * A freeze forbids new holders only. The records say whether we hold the lock already (L5,
 * re-entry), so they are read before we wait or give up.
 */
static void on_frozen(struct op *op, const struct belay_commit *result, int64_t now_ms)
{
    assert(op->batch.check_freezes);
    assert(op->state == TRYING || op->state == CLAIMING || op->state == TAKING);
    (void)error_set(&op->err, BELAY_FROZEN, "lock '%s': %s", op->request.key, result->frozen);
    op->waiting.holder = NULL; /* error_set() has freed it */
    op->blocked = 0;
    op->is_frozen = true;
    op->frozen_until_ms = result->frozen_for_ms == INT64_MAX
                              ? INT64_MAX
                              : now_ms + (result->frozen_for_ms > 0 ? result->frozen_for_ms : 1);
    if (op->state == TAKING) {
        decide_next(op, now_ms);
    } else {
        step_look(op, LOOKING, now_ms);
    }
}

static void acquire_on_commit(struct op *op, enum belay_code code, struct belay_commit *result,
                              int64_t sent_ms, int64_t now_ms)
{
    if (code == BELAY_OK) {
        on_done(op, result, sent_ms, now_ms);
        return;
    }
    op->is_described = false;
    if (code == BELAY_FROZEN) {
        on_frozen(op, result, now_ms);
        return;
    }
    if (op->state == LEAVING) {
        step_done(op, op->code);
        return;
    }
    if (op->state == TRYING && op->batch.note_refusal) {
        op->kept_event_id = result->event_id;
    }
    if (op->state != TRYING && op->state != CLAIMING && ++op->conflicts > CONFLICTS_AT_ONCE) {
        step_wait(op, RECOVERING, now_ms + step_random(&op->rng, CONFLICT_BACKOFF_MAX_MS));
        return;
    }
    if (op_n_records(&op->request) == 1) {
        /* The answer has the only record: a read would return the same. */
        step_adopt_records(op, result);
        decide_next(op, now_ms);
        return;
    }
    step_look(op, LOOKING, now_ms);
}

static void acquire_on_records(struct op *op, int64_t now_ms)
{
    assert(op->state == LOOKING || op->state == READING_BLOCKER);
    assert((op->blocker_key != NULL) == (op->state == READING_BLOCKER));
    op->is_described = false;
    if (op->state == READING_BLOCKER) {
        op->blocker_key = NULL;
    }
    decide_next(op, now_ms);
}

static void acquire_on_wake(struct op *op, int64_t now_ms)
{
    assert(op->state == WAITING || op->state == RECOVERING);
    assert(op->state != WAITING || (op->queued && op->next_attempt_ms > 0));
    if (op->state == WAITING && now_ms >= op->next_attempt_ms) {
        op->waiting.attempt++;
        plan_attempt(op, now_ms);
    }
    belay_record_release(&op->blocker);
    op->is_frozen = false; /* the next attempt finds out */
    if (op->state != WAITING || !op->queued || op->cancelled || !acquire_takes_turns(op)) {
        step_look(op, LOOKING, now_ms);
    } else if (now_ms >= op->ticket_until_ms) {
        acquire_queue(op, true, false, now_ms);
    } else {
        acquire_claim(op, now_ms);
    }
}

/* A ticket expires by itself, but until then it delays the next waiter: so retry, unless that takes long. */
static void leave_again(struct op *op, enum belay_code code, int64_t now_ms)
{
    bool transient = code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN;

    if (transient && op->queued && ++op->faults < LEAVE_TRIES && now_ms - op->asked_ms < LEAVE_SLOW_MS) {
        step_commit(op, LEAVING, now_ms);
    } else {
        step_done(op, op->code);
    }
}

static void acquire_on_fault(struct op *op, enum belay_code code, const struct belay_error *err,
                             bool committing, int64_t now_ms)
{
    bool taking = committing && (op->state == TRYING || op->state == CLAIMING || op->state == TAKING);
    int64_t retry_ms;

    assert(op->state != WAITING && op->state != RECOVERING);
    assert(committing == (op->state != LOOKING && op->state != READING_BLOCKER));
    if (op->state == LEAVING) {
        leave_again(op, code, now_ms);
        return;
    }
    if (code == BELAY_ID_USED && op->state == QUEUEING && acquire_takes_turns(op)) {
        op->must_look = true; /* another process may have acquired it with this id */
        step_look(op, LOOKING, now_ms);
        return;
    }
    if (code == BELAY_ID_USED) {
        say_used(op, now_ms);
        return;
    }
    if (taking && code == BELAY_UNKNOWN) {
        op->first_unknown_ms = op->asked_ms < op->first_unknown_ms ? op->asked_ms : op->first_unknown_ms;
        if (op->writes[0].condition == BELAY_IF_UNCHANGED) {
            op->unknown_revision = op->writes[0].revision;
        } else {
            op->unknown_free = true;
        }
    }
    if (op->state == QUEUEING && code == BELAY_UNKNOWN) {
        op->queued = true; /* perhaps; dropping a ticket that is not there does no harm */
    }
    if (step_survives_fault(op, code, err, op_give_up_ms(&op->request), now_ms, &retry_ms)) {
        step_wait(op, RECOVERING, retry_ms);
    }
}

static void acquire_start(struct op *op, int64_t now_ms)
{
    op->waiting.attempt = op->request.attempt > 0 ? op->request.attempt : 1;
    op->waiting.since_ms = now_ms;
    op->waiting.since_unix_ms = op->request.began_unix_ms;
    acquire_try_free(op, now_ms);
}

/* The states that wait for an answer of the store which is passed to decide_next(). */
#define ASKING                                                                                               \
    (OP_FROM(TRYING) | OP_FROM(LOOKING) | OP_FROM(CLAIMING) | OP_FROM(TAKING) | OP_FROM(REENTERING) |        \
     OP_FROM(QUEUEING))

const struct op_steps acquire_steps = {
    .from = { [TRYING] = OP_FROM(TRYING),
              [LOOKING] = (ASKING & ~OP_FROM(LOOKING)) | OP_FROM(WAITING) | OP_FROM(RECOVERING),
              [CLAIMING] = OP_FROM(WAITING),
              [TAKING] = ASKING,
              [REENTERING] = ASKING,
              [READING_BLOCKER] = ASKING,
              [QUEUEING] = ASKING | OP_FROM(READING_BLOCKER) | OP_FROM(WAITING),
              [WAITING] = ASKING | OP_FROM(READING_BLOCKER),
              [RECOVERING] = ASKING | OP_FROM(READING_BLOCKER),
              [LEAVING] = ASKING | OP_FROM(READING_BLOCKER) | OP_FROM(LEAVING) },
    .start = acquire_start,
    .on_commit = acquire_on_commit,
    .on_records = acquire_on_records,
    .on_wake = acquire_on_wake,
    .on_fault = acquire_on_fault
};
