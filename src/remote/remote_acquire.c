/*
 * Acquire. The server has the queue. A wait is a series of requests with one lock id; each waits
 * for a slice of the time, at most a third of the ttl (L6), and the server keeps our place from
 * one to the next. The first slice is short: its answer names the holder, to be shown.
 *
 *     send --granted-------------------------------> done
 *      ^  \--held--> time or attempts are up ------> leave the queue, done
 *      |        \--> report the wait --+
 *      |  \--no answer--> too often ---|-----------> done
 *      |             \--> back off ----+
 *      +-------------------------------+
 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/items.h"
#include "client/report.h"
#include "lock/lease.h"
#include "remote/remote_internal.h"

enum {
    SLICE_FIRST_MS = 10,
    SLICE_MAX_MS = 10000,
    SLICE_SEVERAL_MS = 2500, /* see slice_max_ms() */
    SLICES_PER_TTL = 3,
    LEAVE_MS = 2000
};

struct acquiring {
    struct remote *remote;
    struct op_request *request;
    const struct wait_hooks *hooks; /* NULL: none */
    struct belay_cancel *cancel;    /* NULL: none */
    struct op_result *result;       /* the caller's */
    struct belay_error *err;        /* likewise */
    json_t *body;                   /* owned */
    bool is_done;
    enum belay_code code;    /* once it is done */
    int slices;              /* that were answered */
    int faults;              /* in a row */
    int64_t fault_ms;        /* boot clock: when the first of them was sent */
    bool answered;           /* the server has answered at least once */
    bool queued;             /* the server may have a place for us in the queue */
    bool was_unknown;        /* an answer was lost since the last refusal */
    int64_t unknown_ms;      /* boot clock: before the first of the requests whose answer was lost */
    int64_t next_attempt_ms; /* boot clock; 0: not planned yet */
    uint64_t rng;
    struct wait_told told;
};

/* ---- the wait ---- */

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/*
 * A front that hangs does not renew our ticket, and a ticket that was renewed last by it is valid for 7 s or more on
 * PostgreSQL. Within a slice and REMOTE_ANSWER_SEVERAL_MS, the next front must be asked.
 */
static int64_t slice_max_ms(const struct acquiring *a)
{
    return a->slices == 0 ? SLICE_FIRST_MS : a->remote->n_fronts == 1 ? SLICE_MAX_MS : SLICE_SEVERAL_MS;
}

static int64_t slice_ms(const struct acquiring *a, int64_t now_ms)
{
    int64_t ms = lesser(slice_max_ms(a), a->request->ttl_ms / SLICES_PER_TTL);

    assert(a->request->ttl_ms > 0);
    if (!op_may_wait(a->request)) {
        return 0;
    }
    if (op_give_up_ms(a->request) != INT64_MAX) {
        ms = lesser(ms, op_give_up_ms(a->request) - now_ms);
    }
    if (a->next_attempt_ms != 0) {
        ms = lesser(ms, a->next_attempt_ms - now_ms);
    }
    return ms < 1 ? 1 : ms;
}

static void report_wait(struct acquiring *a, size_t position, int64_t now_ms)
{
    bool retries = a->next_attempt_ms < op_give_up_ms(a->request);

    report_waiting(a->hooks, &a->told,
                   &(struct belay_wait_info){ .holder = a->err->holder,
                                              .position = position,
                                              .waited_ms = now_ms - a->request->began_ms,
                                              .retry_ms = retries ? a->next_attempt_ms - now_ms : 0,
                                              .attempt = a->request->attempt,
                                              .frozen = a->err->code == BELAY_FROZEN ? a->err->text : NULL });
}

/* ---- the end ---- */

static void done(struct acquiring *a, enum belay_code code)
{
    assert(!a->is_done && (code == BELAY_OK || code == BELAY_REDIRECTED || a->err->code == code));
    a->is_done = true;
    a->code = code;
}

/* Leave the queue, and release the lock in case it was granted at this moment. */
static void leave_servers_queue(struct acquiring *a, enum belay_code code)
{
    struct remote_call call = { .path = "/v1/release",
                                .timeout_ms = LEAVE_MS,
                                .tries = a->remote->n_fronts > 1 ? 1 : 0 };
    json_t *body;

    if (a->queued) {
        body = remote_keys_body(a->request);
        (void)json_object_set_new(body, "lock_id", json_string(a->request->lock_id));
        (void)json_object_set_new(body, "outcome", json_string("failed"));
        (void)remote_post(a->remote, &call, body, NULL);
    }
    done(a, code);
}

static void leave_cancelled(struct acquiring *a)
{
    leave_servers_queue(
        a, error_set(a->err, BELAY_CANCELLED, "cancelled while waiting for lock '%s'", a->request->key));
}

/* ---- the answers ---- */

/* If an earlier request may have acquired the lock, its lease counts from before that request (L5). */
static void on_granted(struct acquiring *a, const json_t *answer, int64_t sent_ms)
{
    enum belay_code code = remote_read_result(a->remote, a->request, answer, sent_ms, a->result, a->err);

    if (code == BELAY_OK && a->was_unknown) {
        a->result->deadline_ms =
            lesser(a->result->deadline_ms, lease_deadline_ms(a->unknown_ms, a->result->info->ttl_ms, 0));
    }
    done(a, code);
}

/* The lock is held, or frozen. */
static void on_not_free(struct acquiring *a, enum belay_code code, const json_t *answer, int64_t took_ms,
                        int64_t slice)
{
    struct op_request *request = a->request;
    const json_t *position = json_object_get(json_object_get(answer, "error"), "position");
    int64_t now_ms = clock_boot_ms();

    assert(code == BELAY_HELD || code == BELAY_FROZEN);
    assert(took_ms >= 0 && slice >= 0);
    a->slices++;
    a->faults = 0;
    a->was_unknown = false;
    a->queued = a->queued || slice > 0;
    a->answered = true;
    if (a->next_attempt_ms != 0 && now_ms >= a->next_attempt_ms) {
        request->attempt++;
        a->next_attempt_ms = 0;
    }
    if (!op_may_wait(request) || now_ms >= op_give_up_ms(request)) {
        leave_servers_queue(a, code);
        return;
    }
    if (request->attempts > 0 && request->attempt >= request->attempts) {
        (void)error_wrap(a->err, "failed to acquire lock after %d attempts", request->attempt);
        leave_servers_queue(a, code);
        return;
    }
    if (a->next_attempt_ms == 0) {
        a->next_attempt_ms = now_ms + op_backoff_ms(request, request->attempt, &a->rng);
    }
    report_wait(a, json_is_integer(position) ? (size_t)json_integer_value(position) : BELAY_POSITION_UNKNOWN,
                now_ms);
    if (took_ms < slice / 2) {
        client_sleep(slice / 2 - took_ms, a->cancel); /* the queue is full, so the server did not wait */
    }
}

/* Not leave_servers_queue(): a caller that repeats with the same id must find the lock, or its place. */
static void done_unknown(struct acquiring *a)
{
    a->err->code = BELAY_UNKNOWN;
    done(a, error_wrap(a->err,
                       "lock '%s': the server's answer was lost, and it may have happened: repeat with "
                       "the same id, %s",
                       a->request->key, a->request->lock_id));
}

/* Retry for as long as the wait lasts, if the server has answered before; else only a few times. */
static void on_no_answer(struct acquiring *a, enum belay_code code, bool was_answered, int64_t sent_ms)
{
    assert(code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN);
    if (code == BELAY_UNKNOWN && !a->was_unknown) {
        a->was_unknown = true;
        a->unknown_ms = sent_ms;
    }
    a->answered = a->answered || was_answered || code == BELAY_UNKNOWN;
    a->faults++;
    a->fault_ms = a->faults == 1 ? sent_ms : a->fault_ms;
    if (remote_should_retry(a->remote, a->faults, REMOTE_TRIES, a->fault_ms) ||
        (a->answered && clock_boot_ms() < op_give_up_ms(a->request))) {
        client_sleep(remote_backoff_ms(a->remote, a->faults), a->cancel);
    } else if (a->was_unknown) {
        done_unknown(a);
    } else {
        done(a, code); /* not leave_servers_queue(): the server does not answer */
    }
}

/*
 * The time for an answer, besides the slice. With several fronts it is short: if this one does not
 * answer, our ticket must still be valid at the next one, and so must most of a lease that this one
 * may have granted.
 */
static int64_t response_limit_ms(const struct acquiring *a)
{
    return a->remote->n_fronts == 1 ? REMOTE_ANSWER_MS
                                    : lesser(REMOTE_ANSWER_SEVERAL_MS, a->request->ttl_ms / SLICES_PER_TTL);
}

static void send_acquire(struct acquiring *a)
{
    int64_t sent_ms = clock_boot_ms();
    int64_t slice = slice_ms(a, sent_ms);
    struct remote_call call = { .method = "POST",
                                .path = "/v1/acquire",
                                /* With several keys, the message names the one that is held. */
                                .key = a->request->joint == NULL ? a->request->key : NULL,
                                .lock_id = a->request->lock_id,
                                .body = a->body,
                                .timeout_ms = slice + response_limit_ms(a),
                                .cancel = a->cancel };
    json_t *answer = NULL;
    enum belay_code code;

    (void)json_object_set_new(a->body, "wait_ms", json_integer(slice));
    code = remote_send(a->remote, &call, &answer, a->err);
    switch (code) {
    case BELAY_OK:
        on_granted(a, answer, sent_ms);
        break;
    case BELAY_HELD:
    case BELAY_FROZEN:
        on_not_free(a, code, answer, clock_boot_ms() - sent_ms, slice);
        break;
    case BELAY_UNREACHABLE:
    case BELAY_UNKNOWN:
        on_no_answer(a, code, answer != NULL, sent_ms);
        break;
    case BELAY_REDIRECTED:
        done(a, code); /* not leave_servers_queue(): the place is for the restart at the other backend */
        break;
    case BELAY_CANCELLED:
        a->queued = true; /* perhaps: the answer was not awaited */
        leave_cancelled(a);
        break;
    default:
        if (a->was_unknown && !remote_is_answer(code)) {
            done_unknown(a);
        } else {
            leave_servers_queue(a, code);
        }
    }
    json_decref(answer);
}

static json_t *acquire_body(const struct op_request *request)
{
    json_t *body = remote_keys_body(request);
    json_t *rest = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:b}", "lock_id", request->lock_id, "locked_by",
                             request->owner, "locked_by_name", request->owner_name, "ttl_ms",
                             (json_int_t)request->ttl_ms, "heartbeat_ms", (json_int_t)request->heartbeat_ms,
                             "stale_after_ms", (json_int_t)request->stale_after_ms, "reentrant",
                             request->reentrant ? 1 : 0);

    if (body == NULL || json_object_update(body, rest) != 0) {
        json_decref(body);
        body = NULL;
    }
    json_decref(rest);
    if (request->mode == BELAY_SHARED) {
        (void)json_object_set_new(body, "shared", json_true());
    } else if (request->mode == BELAY_SLOTS) {
        (void)json_object_set_new(body, "slots", json_integer(request->slots));
    }
    remote_set_metadata(body, request->metadata, request->n_metadata);
    if (request->ignore_freeze) {
        (void)json_object_set_new(body, "ignore_freeze", json_true());
        (void)json_object_set_new(body, "reason", json_string(request->reason + sizeof FREEZE_IGNORED - 1));
    }
    return body;
}

enum belay_code remote_acquire(struct remote *remote, struct op_request *request,
                               const struct wait_hooks *hooks, struct op_result *out_result,
                               struct belay_error *err)
{
    struct acquiring a = { .remote = remote,
                           .request = request,
                           .hooks = hooks,
                           .cancel = hooks == NULL ? NULL : hooks->cancel,
                           .result = out_result,
                           .err = err,
                           .rng = request->seed,
                           .body = acquire_body(request) };

    assert(err != NULL && request->kind == OP_ACQUIRE && request->lock_id != NULL);
    if (request->attempt == 0) {
        request->attempt = 1;
    }
    if (a.body == NULL) {
        return error_no_memory(err);
    }
    while (!a.is_done) {
        if (belay_cancel_requested(a.cancel)) {
            leave_cancelled(&a);
        } else {
            send_acquire(&a);
        }
    }
    assert(a.code != BELAY_OK || out_result->info != NULL);
    json_decref(a.body);
    return a.code;
}
