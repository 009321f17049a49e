/*
 * Acquire. The server keeps the line; we ask in slices under one lock id, each at
 * most a third of the ttl (L6), and it keeps our place from one to the next. The
 * first slice is short: after it we know who is in the way, and can show it.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "lock/lease.h"
#include "remote/remote_internal.h"

enum {
    SLICE_FIRST_MS = 10,
    SLICE_MAX_MS = 10000,
    SLICES_PER_TTL = 3,
    ANSWER_MS = 10000, /* beyond the slice */
    LEAVE_MS = 2000
};

struct acquiring {
    struct remote *remote;
    struct op *op;
    const struct run_hooks *hooks; /* NULL: none */
    struct belay_cancel *cancel;   /* NULL: none */
    json_t *body;                  /* owned */
    int slices;                    /* that were answered */
    int faults;                    /* in a row */
    int64_t fault_ms;              /* boot clock: when the first of them was sent */
    bool in_line;                  /* the server may keep a place for us */
    bool was_unknown;
    int64_t unknown_ms; /* boot clock: before the first request whose answer was lost since */
    char told_id[BELAY_ID_MAX + 1];
    size_t told_position;
    int told_attempt;
};

/* ---- the wait ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t slice_ms(const struct acquiring *a, int64_t now_ms)
{
    const struct op *op = a->op;
    int64_t ms = least(a->slices == 0 ? SLICE_FIRST_MS : SLICE_MAX_MS, op->request.ttl_ms / SLICES_PER_TTL);

    if (!op_may_wait(&op->request)) {
        return 0;
    }
    if (op_give_up_ms(&op->request) != INT64_MAX) {
        ms = least(ms, op_give_up_ms(&op->request) - now_ms);
    }
    if (op->next_attempt_ms != 0) {
        ms = least(ms, op->next_attempt_ms - now_ms);
    }
    return ms < 1 ? 1 : ms;
}

static void tell(struct acquiring *a, int64_t now_ms)
{
    struct op *op = a->op;
    const struct belay_info *holder = op->err.holder;
    const char *id = holder == NULL || holder->lock_id == NULL ? "" : holder->lock_id;
    bool retries = op->next_attempt_ms < op_give_up_ms(&op->request);
    struct belay_wait_info waiting = { .holder = holder,
                                       .position = op->waiting.position,
                                       .waited_ms = now_ms - op->request.began_ms,
                                       .retry_ms = retries ? op->next_attempt_ms - now_ms : 0,
                                       .attempt = op->waiting.attempt };

    if (a->hooks == NULL || a->hooks->on_waiting == NULL || holder == NULL) {
        return;
    }
    if (a->told_attempt == waiting.attempt && a->told_position == waiting.position &&
        strcmp(a->told_id, id) == 0) {
        return;
    }
    a->told_attempt = waiting.attempt;
    a->told_position = waiting.position;
    (void)snprintf(a->told_id, sizeof a->told_id, "%s", id);
    a->hooks->on_waiting(a->hooks->context, &waiting);
}

/* ---- the end ---- */

/* The place in line is for the next one; and so is a lock that was granted this very moment. */
static void leave(struct acquiring *a)
{
    const struct op_request *request = &a->op->request;
    struct remote_call call = { .method = "POST", .path = "/v1/release", .timeout_ms = LEAVE_MS };
    json_t *answer = NULL;
    json_t *body;

    if (!a->in_line) {
        return;
    }
    body =
        json_pack("{s:s, s:s, s:s}", "key", request->key, "lock_id", request->lock_id, "outcome", "failed");
    call.body = body;
    (void)remote_send(a->remote, &call, &answer, NULL);
    json_decref(answer);
    json_decref(body);
}

static void end(struct acquiring *a, enum belay_code code)
{
    leave(a);
    a->op->code = code;
    a->op->want = OP_DONE;
}

static void end_cancelled(struct acquiring *a)
{
    end(a,
        error_set(&a->op->err, BELAY_CANCELLED, "cancelled while waiting for lock '%s'", a->op->request.key));
}

static void end_unknown(struct acquiring *a)
{
    /* Not leave(): who asks again with the same id must find what there is. */
    a->in_line = false;
    end(a, error_set(&a->op->err, BELAY_UNKNOWN,
                     "lock '%s': the server's answer was lost, and it may have happened: repeat with the "
                     "same id, %s",
                     a->op->request.key, a->op->request.lock_id));
}

/* ---- being answered ---- */

static void on_held(struct acquiring *a, const json_t *answer, int64_t took_ms, int64_t slice)
{
    struct op *op = a->op;
    json_t *error = json_object_get(answer, "error");
    int64_t now_ms = clock_boot_ms();

    a->slices++;
    a->faults = 0;
    a->was_unknown = false;
    a->in_line = a->in_line || slice > 0;
    op->answered = true;
    op->waiting.holder = op->err.holder;
    op->waiting.position = (size_t)json_integer_value(json_object_get(error, "position"));
    if (op->next_attempt_ms != 0 && now_ms >= op->next_attempt_ms) {
        op->waiting.attempt++;
        op->next_attempt_ms = 0;
    }
    if (!op_may_wait(&op->request) || now_ms >= op_give_up_ms(&op->request)) {
        end(a, BELAY_HELD);
        return;
    }
    if (op->request.attempts > 0 && op->waiting.attempt >= op->request.attempts) {
        (void)error_wrap(&op->err, "failed to acquire lock after %d attempts", op->waiting.attempt);
        end(a, BELAY_HELD);
        return;
    }
    if (op->next_attempt_ms == 0) {
        op->next_attempt_ms = now_ms + op_backoff_ms(&op->request, op->waiting.attempt, &op->rng);
    }
    tell(a, now_ms);
    if (took_ms < slice / 2) {
        remote_sleep(slice / 2 - took_ms, a->cancel); /* it does not let us wait: the line is full */
    }
}

/* A server that was there once is waited for; one that never was is a mistake, and said at once. */
static void on_fault(struct acquiring *a, enum belay_code code, bool was_answered, int64_t sent_ms)
{
    struct op *op = a->op;
    int64_t now_ms = clock_boot_ms();

    if (code == BELAY_UNKNOWN && !a->was_unknown) {
        a->was_unknown = true;
        a->unknown_ms = sent_ms;
    }
    op->answered = op->answered || was_answered || code == BELAY_UNKNOWN;
    a->faults++;
    a->fault_ms = a->faults == 1 ? sent_ms : a->fault_ms;
    if (remote_is_patient(a->remote, a->faults, REMOTE_TRIES, a->fault_ms) ||
        (op->answered && now_ms < op_give_up_ms(&op->request))) {
        remote_sleep(remote_backoff_ms(a->remote, a->faults), a->cancel);
    } else if (a->was_unknown) {
        end_unknown(a);
    } else {
        a->in_line = false; /* it cannot be told */
        end(a, code);
    }
}

/* A lock that an earlier request of ours may have taken counts from before that one was sent (L5). */
static void limit_deadline(struct acquiring *a)
{
    struct op *op = a->op;
    int64_t deadline_ms;

    if (op->code == BELAY_OK && a->was_unknown) {
        deadline_ms = lease_deadline_ms(a->unknown_ms, op->record.ttl_ms, 0);
        op->deadline_ms = deadline_ms < op->deadline_ms ? deadline_ms : op->deadline_ms;
    }
}

static void ask(struct acquiring *a)
{
    struct op *op = a->op;
    int64_t sent_ms = clock_boot_ms();
    int64_t slice = slice_ms(a, sent_ms);
    struct remote_call call = { .method = "POST",
                                .path = "/v1/acquire",
                                .key = op->request.key,
                                .lock_id = op->request.lock_id,
                                .body = a->body,
                                .timeout_ms = slice + ANSWER_MS,
                                .cancel = a->cancel };
    json_t *answer = NULL;
    enum belay_code code;

    (void)json_object_set_new(a->body, "wait_ms", json_integer(slice));
    code = remote_send(a->remote, &call, &answer, &op->err);
    switch (code) {
    case BELAY_OK:
        remote_succeed(a->remote, op, answer, sent_ms);
        limit_deadline(a);
        break;
    case BELAY_HELD:
        on_held(a, answer, clock_boot_ms() - sent_ms, slice);
        break;
    case BELAY_UNREACHABLE:
    case BELAY_UNKNOWN:
        on_fault(a, code, answer != NULL, sent_ms);
        break;
    case BELAY_REDIRECTED:
        a->in_line = false; /* the place is kept for who asks in the other place */
        end(a, code);
        break;
    case BELAY_CANCELLED:
        a->in_line = true; /* the answer was not waited for */
        end_cancelled(a);
        break;
    default:
        end(a, code);
    }
    json_decref(answer);
}

static json_t *make_body(const struct op_request *request)
{
    json_t *metadata = json_object();
    json_t *body;

    for (size_t i = 0; i < request->n_metadata; i++) {
        (void)json_object_set_new(metadata, request->metadata[i].name,
                                  json_string(request->metadata[i].value));
    }
    body = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:o}", "key", request->key, "lock_id",
                     request->lock_id, "locked_by", request->owner, "locked_by_name", request->owner_name,
                     "ttl_ms", (json_int_t)request->ttl_ms, "heartbeat_ms", (json_int_t)request->heartbeat_ms,
                     "stale_after_ms", (json_int_t)request->stale_after_ms, "reentrant",
                     request->reentrant ? 1 : 0, "metadata", metadata);
    return body;
}

void remote_acquire(struct remote *remote, struct op *op, const struct run_hooks *hooks)
{
    struct acquiring a = { .remote = remote,
                           .op = op,
                           .hooks = hooks,
                           .cancel = hooks == NULL ? NULL : hooks->cancel,
                           .body = make_body(&op->request) };

    op->want = OP_GET;
    op->next_attempt_ms = 0;
    if (a.body == NULL) {
        end(&a, error_no_memory(&op->err));
    }
    while (op->want != OP_DONE) {
        if (belay_cancel_requested(a.cancel)) {
            end_cancelled(&a);
        } else {
            ask(&a);
        }
    }
    json_decref(a.body);
}
