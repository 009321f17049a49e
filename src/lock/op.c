#include "lock/op.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lock/lease.h"
#include "lock/step.h"

enum {
    FAULTS_MAX = 3,
    FAULTS_FOR_MS = 5000, /* a store that keeps one waiting so long before it fails is not asked again */
    FAULT_BACKOFF_MS = 50,
    FAULT_BACKOFF_MAX_MS = 5000,
    TIMEOUT_MIN_MS = 1000
};

size_t op_request_keys(const struct op_request *request, const char *out_keys[OP_KEYS_MAX])
{
    out_keys[0] = request->key;
    memcpy(out_keys + 1, request->ancestors, request->n_ancestors * sizeof *out_keys);
    return 1 + request->n_ancestors;
}

void op_start(struct op *op, const struct op_request *request, int64_t now_ms)
{
    assert(request->key != NULL && request->lock_id != NULL);
    assert(request->n_ancestors <= BELAY_ANCESTORS_MAX);
    assert(request->kind != OP_ADOPT || request->old_id != NULL);
    memset(op, 0, offsetof(struct op, writes));
    op->request = *request;
    if (op->request.began_ms == 0) {
        op->request.began_ms = now_ms;
    }
    op->asked_ms = now_ms;
    op->first_unknown_ms = INT64_MAX;
    op->rng = request->seed;
    if (request->kind == OP_ACQUIRE) {
        step_start_acquire(op, now_ms);
    } else {
        step_start_change(op, now_ms);
    }
}

int64_t step_random(uint64_t *rng, int64_t n)
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15U; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (int64_t)((z ^ (z >> 31)) % (uint64_t)n);
}

/* ---- asking ---- */

static void forget_records(struct op *op)
{
    for (size_t i = 0; i <= op->request.n_ancestors; i++) {
        belay_record_release(&op->records[i]);
    }
    op->n_wakes = 0; /* they pointed into the records */
}

void step_begin_batch(struct op *op)
{
    op->batch = (struct belay_batch){ .writes = op->writes,
                                      .n_writes = 1 + op->request.n_ancestors,
                                      .events = op->events };
    for (size_t i = 0; i < op->batch.n_writes; i++) {
        op->writes[i] = (struct belay_write){ .key = i == 0 ? op->request.key : op->request.ancestors[i - 1],
                                              .values = &op->values };
    }
}

void step_if_unchanged(struct op *op)
{
    for (size_t i = 0; i < op->batch.n_writes; i++) {
        op->writes[i].condition = op->records[i].revision == 0 ? BELAY_IF_ABSENT : BELAY_IF_UNCHANGED;
        op->writes[i].revision = op->records[i].revision;
    }
}

struct belay_event *step_event(struct op *op, enum belay_level level, const char *type)
{
    assert(op->batch.n_events < OP_EVENTS_MAX);
    struct belay_event *event = &op->events[op->batch.n_events++];

    *event = (struct belay_event){ .level = level,
                                   .type = type,
                                   .key = op->request.key,
                                   .lock_id = op->request.lock_id,
                                   .locked_by = op->request.owner,
                                   .locked_by_name = op->request.owner_name,
                                   .metadata = op->request.metadata,
                                   .n_metadata = op->request.n_metadata,
                                   .duration_ms = -1 };
    if (event->n_metadata == 0) {
        event->metadata = NULL; /* the store takes that of the record, if it is this lock's */
    }
    return event;
}

/*
 * A lease counts from before its write was sent: an answer that takes a quarter
 * of it leaves time for another try. And no caller waits longer than it
 * asked for, as far as an answer can be expected within that at all.
 */
static int64_t timeout_ms(const struct op *op, int64_t now_ms)
{
    int64_t timeout = op->request.ttl_ms > 0 ? op->request.ttl_ms / 4 : 0;

    if (op->request.wait_ms > 0) {
        int64_t left = op->request.began_ms + op->request.wait_ms - now_ms;

        timeout = timeout == 0 || left < timeout ? left : timeout;
        timeout = timeout == 0 ? 1 : timeout;
    }
    return timeout != 0 && timeout < TIMEOUT_MIN_MS ? TIMEOUT_MIN_MS : timeout;
}

void step_commit(struct op *op, int state, int64_t now_ms)
{
    assert(op->want != OP_DONE);
    op->batch.timeout_ms = timeout_ms(op, now_ms);
    op->state = state;
    op->asked_ms = now_ms;
    op->polling = false;
    op->want = OP_COMMIT;
}

void step_look(struct op *op, int state, int64_t now_ms)
{
    assert(op->want != OP_DONE);
    op->state = state;
    op->asked_ms = now_ms;
    op->blocker_key = NULL;
    op->n_keys = op_request_keys(&op->request, op->keys);
    op->want = OP_GET;
}

void step_read_blocker(struct op *op, int state, const char *key, int64_t now_ms)
{
    assert(op->want != OP_DONE && key != NULL);
    op->state = state;
    op->asked_ms = now_ms;
    op->polling = false;
    op->blocker_key = key;
    op->keys[0] = key;
    op->n_keys = 1;
    op->want = OP_GET;
}

/* A waiter reads the records again before it acts; a copy of a long queue in each waiter would be the queue squared. */
void step_wait(struct op *op, int state, int64_t until_ms)
{
    assert(op->want != OP_DONE);
    forget_records(op);
    op->state = state;
    op->wait_until_ms = until_ms;
    op->polling = false;
    op->want = OP_WAIT;
}

/* ---- being answered ---- */

void step_adopt_records(struct op *op, struct belay_commit *result)
{
    forget_records(op);
    for (size_t i = 0; i < result->n_records && i <= op->request.n_ancestors; i++) {
        op->records[i] = result->records[i];
        memset(&result->records[i], 0, sizeof result->records[i]);
    }
    op->records_now_ms = result->now_ms;
}

/* Gone, or its ticket has expired: no waiter listens any more. */
static bool is_gone(const struct op *op, const struct belay_ticket *ticket)
{
    return ticket->dead || op->records_now_ms >= ticket->expires_ms;
}

static bool is_first_for_its_key(const struct op *op, const struct belay_record *record, size_t t)
{
    for (size_t i = 0; i < t; i++) {
        if (!is_gone(op, &record->tickets[i]) &&
            strcmp(record->tickets[i].key, record->tickets[t].key) == 0) {
            return false;
        }
    }
    return true;
}

/*
 * The first in the queue, and the first for each other key in it: those do not all
 * exclude each other, so several may go at once. Those behind them for the same
 * key have nothing to win yet but a race. One woken too many looks and sleeps
 * again.
 */
void step_find_wakes(struct op *op)
{
    size_t most = 0;

    op->n_wakes = 0;
    for (size_t i = 0; i < OP_KEYS_MAX; i++) {
        most += op->records[i].n_tickets;
    }
    if (most == 0) {
        return;
    }
    free(op->wakes);
    op->wakes = calloc(most, sizeof *op->wakes);
    for (size_t i = 0; op->wakes != NULL && i < OP_KEYS_MAX; i++) {
        const struct belay_record *record = &op->records[i];
        bool first = true;

        for (size_t t = 0; t < record->n_tickets; t++) {
            const struct belay_ticket *ticket = &record->tickets[t];

            if (is_gone(op, ticket)) {
                continue;
            }
            if (first || (strcmp(ticket->key, record->key) != 0 && is_first_for_its_key(op, record, t))) {
                op->wakes[op->n_wakes++] = ticket->lock_id;
            }
            first = false;
        }
    }
}

bool step_survives_fault(struct op *op, enum belay_code code, const struct belay_error *err,
                         int64_t give_up_ms, int64_t now_ms, int64_t *out_retry_ms)
{
    bool transient = code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN;
    const char *why = err == NULL || err->text[0] == '\0' ? NULL : err->text;
    int64_t backoff = FAULT_BACKOFF_MS;
    bool again;

    if (op->faults++ == 0) {
        op->faults_since_ms = op->asked_ms;
    }
    again = op->faults < FAULTS_MAX && now_ms - op->faults_since_ms < FAULTS_FOR_MS;
    if (transient && !op->cancelled && (again || (op->answered && now_ms < give_up_ms))) {
        for (int i = 1; i < op->faults && backoff < FAULT_BACKOFF_MAX_MS; i++) {
            backoff *= 2;
        }
        *out_retry_ms = now_ms + backoff / 2 + step_random(&op->rng, backoff);
        return true;
    }
    /* What may have happened is not undone by a later failure. */
    if (op->was_unknown && transient) {
        code = BELAY_UNKNOWN;
    }
    if (code == BELAY_UNKNOWN) {
        (void)error_set(&op->err, code,
                        "lock '%s': the store's answer was lost, and it may have happened: "
                        "repeat with the same id, %s%s%s%s",
                        op->request.key, op->request.lock_id, why == NULL ? "" : " (", why == NULL ? "" : why,
                        why == NULL ? "" : ")");
    } else {
        (void)error_set(&op->err, code, "%s", err == NULL ? "" : err->text);
    }
    step_done(op, code);
    return false;
}

/* Every operation ends once. */
void step_done(struct op *op, enum belay_code code)
{
    assert(op->want != OP_DONE);
    op->code = code;
    op->want = OP_DONE;
}

void step_succeed(struct op *op, int64_t sent_ms)
{
    belay_record_release(&op->record);
    op->record = op->records[0];
    memset(&op->records[0], 0, sizeof op->records[0]);
    op->record_now_ms = op->records_now_ms;
    op->sent_ms = sent_ms;
    op->deadline_ms = lease_deadline_ms(sent_ms, op->record.ttl_ms, op->request.capabilities.margin_ms);
    step_done(op, BELAY_OK);
}

int64_t step_found_sent_ms(const struct op *op)
{
    const struct belay_record *own = &op->records[0];
    int64_t left_ms = own->expires_ms - op->records_now_ms - op->request.capabilities.read_clock_lag_ms;
    int64_t sent_ms = op->asked_ms + left_ms - own->ttl_ms;

    return sent_ms < op->first_unknown_ms ? sent_ms : op->first_unknown_ms;
}

void step_done_no_memory(struct op *op)
{
    step_done(op, error_no_memory(&op->err));
}

/* ---- for the runner of an operation ---- */

void op_on_commit(struct op *op, enum belay_code code, struct belay_commit *result,
                  const struct belay_error *err, int64_t sent_ms, int64_t now_ms)
{
    assert(op->want == OP_COMMIT);
    op->n_wakes = 0;
    if (code == BELAY_OK || code == BELAY_REFUSED || code == BELAY_FROZEN) {
        op->answered = true;
        op->faults = 0;
        op->commit_failed = false;
        op->steps->on_commit(op, code, result, sent_ms, now_ms);
        return;
    }
    op->was_unknown = op->was_unknown || code == BELAY_UNKNOWN;
    op->commit_failed = true;
    op->steps->on_fault(op, code, err, true, now_ms);
}

void op_on_get(struct op *op, enum belay_code code, struct belay_record *records, int64_t store_now_ms,
               const struct belay_error *err, int64_t now_ms)
{
    assert(op->want == OP_GET);
    if (code != BELAY_OK) {
        op->steps->on_fault(op, code, err, false, now_ms);
        return;
    }
    op->answered = true;
    if (!op->commit_failed) {
        op->faults = 0; /* else we would go round for ever on a disk that is full but can be read */
    }
    if (op->blocker_key != NULL) {
        belay_record_release(&op->blocker);
        op->blocker = records[0];
    } else {
        forget_records(op);
        memcpy(op->records, records, op->n_keys * sizeof *records);
        op->records_now_ms = store_now_ms;
    }
    memset(records, 0, op->n_keys * sizeof *records);
    op->steps->on_records(op, now_ms);
}

void op_on_look(struct op *op, enum belay_code code, struct belay_record *records, int64_t store_now_ms,
                const struct belay_error *err, int64_t asked_ms, int64_t seen_ms)
{
    assert(asked_ms <= seen_ms && op->polling);
    op->asked_ms = asked_ms; /* a lease that is found to be ours counts from there */
    op_on_get(op, code, records, store_now_ms, err, seen_ms);
}

void op_on_wake(struct op *op, int64_t now_ms)
{
    assert(op->want == OP_WAIT);
    op->steps->on_wake(op, now_ms);
}

int64_t op_valid_for_ms(const struct op *op, int64_t now_ms)
{
    bool is_holders =
        op->request.kind == OP_ACQUIRE || op->request.kind == OP_ADOPT || op->request.kind == OP_RENEW;

    if (op->code != BELAY_OK || !is_holders) {
        return -1;
    }
    return op->deadline_ms > now_ms ? op->deadline_ms - now_ms : 0;
}

void op_stop(struct op *op, enum belay_code code, struct belay_error *err)
{
    (void)error_move(&op->err, code, err);
    step_done(op, code);
}

void op_cancel(struct op *op)
{
    op->cancelled = true;
}

void op_destroy(struct op *op)
{
    forget_records(op);
    belay_record_release(&op->blocker);
    belay_record_release(&op->record);
    belay_error_release(&op->err);
    free(op->wakes);
    free(op->drops);
    op->wakes = NULL;
    op->drops = NULL;
}
