/* Adopt, renew, release, force: one request each, which names the lock id and can be sent again. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "lock/lease.h"
#include "remote/remote_internal.h"
#include "json/json_read.h"

enum {
    TIMEOUT_MAX_MS = 10000,
    TIMEOUT_MIN_MS = 200,
    RELEASE_TRIES = 6 /* some three seconds, the time of a restart: the next one waits for it */
};

static void done(struct op *op, enum belay_code code)
{
    op->code = code;
    op->want = OP_DONE;
}

/*
 * How long the lock may be relied upon is for the server to say: only it knows
 * its store's margin, and what is left of a lock that was ours before this
 * request, after an answer that was lost or while a place was kept for us (L6).
 *
 * One that does not say it is taken for the most careful there is: no server
 * grants a ttl of less than twice its store's margin.
 */
static int64_t deadline_of(const json_t *lock, const struct belay_record *record, int64_t sent_ms)
{
    const json_t *valid = json_object_get(lock, "valid_for_ms");
    int64_t valid_ms = json_integer_value(valid);
    int64_t at_most_ms = lease_deadline_ms(0, record->ttl_ms, 0);

    if (!json_is_integer(valid)) {
        valid_ms = lease_deadline_ms(0, record->expires_ms, record->ttl_ms / 2);
    }
    return sent_ms + (valid_ms < 0 ? 0 : valid_ms < at_most_ms ? valid_ms : at_most_ms);
}

static bool is_span(int64_t ms)
{
    return ms >= 0 && ms <= 2 * BELAY_TTL_MAX_MS;
}

void remote_succeed(struct remote *remote, struct op *op, const json_t *lock, int64_t sent_ms)
{
    struct belay_record record = { 0 };

    if (!json_read_record(lock, &record) || record.lock_id == NULL || !is_span(record.ttl_ms) ||
        !is_span(record.expires_ms)) {
        belay_record_release(&record);
        done(op, remote_say_not_belay(remote, &op->err));
        return;
    }
    belay_record_release(&op->record);
    op->record = record;
    op->record_now_ms = 0;
    op->sent_ms = sent_ms;
    if (record.held && record.expires_ms < record.ttl_ms) {
        op->sent_ms -= record.ttl_ms - record.expires_ms;
    }
    op->deadline_ms = deadline_of(lock, &record, sent_ms);
    op->reentered = op->request.kind == OP_ACQUIRE && op->request.reentrant &&
                    strcmp(record.lock_id, op->request.lock_id) != 0;
    done(op, BELAY_OK);
}

static void set_text(json_t *body, const char *name, const char *text)
{
    if (text != NULL) {
        (void)json_object_set_new(body, name, json_string(text));
    }
}

static void set_span(json_t *body, const char *name, int64_t ms)
{
    if (ms > 0) {
        (void)json_object_set_new(body, name, json_integer(ms));
    }
}

static void set_metadata(json_t *body, const struct belay_meta *metadata, size_t n)
{
    json_t *all = json_object();

    for (size_t i = 0; i < n; i++) {
        set_text(all, metadata[i].name, metadata[i].value);
    }
    (void)json_object_set_new(body, "metadata", all);
}

static void fill_adopt(json_t *body, const struct op_request *request)
{
    set_text(body, "lock_id", request->old_id);
    set_text(body, "new_lock_id", request->lock_id);
    set_text(body, "locked_by", request->owner);
    set_text(body, "locked_by_name", request->owner == NULL ? NULL : request->owner_name);
    set_span(body, "heartbeat_ms", request->heartbeat_ms);
    set_span(body, "stale_after_ms", request->stale_after_ms);
    set_metadata(body, request->metadata, request->n_metadata);
}

/* A renewal must not wait longer for its answer than the lease can bear. */
static int64_t timeout_of(const struct op *op)
{
    int64_t ms = op->request.ttl_ms / 3;

    if (op->request.kind != OP_RENEW || ms == 0 || ms > TIMEOUT_MAX_MS) {
        return TIMEOUT_MAX_MS;
    }
    return ms < TIMEOUT_MIN_MS ? TIMEOUT_MIN_MS : ms;
}

static void change(struct remote *remote, struct op *op, struct remote_call *call, json_t *body)
{
    int64_t sent_ms = clock_boot_ms();
    json_t *answer = NULL;
    enum belay_code code;

    call->body = body;
    call->key = op->request.key;
    call->lock_id = op->request.kind == OP_FORCE ? NULL : op->request.lock_id;
    call->is_held = op->request.kind != OP_ADOPT;
    call->is_release = op->request.kind == OP_RELEASE;
    call->was_begun = op->request.is_restart;
    call->timeout_ms = timeout_of(op);
    code = body == NULL ? error_no_memory(&op->err) : remote_send_again(remote, call, &answer, &op->err);
    if (code == BELAY_OK) {
        remote_succeed(remote, op, answer, sent_ms);
    } else {
        done(op, code);
    }
    json_decref(answer);
}

void remote_run(struct client_remote *base, struct op *op, const struct run_hooks *hooks)
{
    struct remote *remote = (struct remote *)base;
    const struct op_request *request = &op->request;
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    struct remote_call call = { .method = "POST" };
    json_t *body;

    if (op->request.kind == OP_ACQUIRE) {
        remote_acquire(remote, op, hooks);
        return;
    }
    body = json_pack("{s:s}", "key", request->key);
    set_text(body, "lock_id", request->lock_id);
    switch (op->request.kind) {
    case OP_ADOPT:
        call.path = "/v1/adopt";
        fill_adopt(body, request);
        set_span(body, "ttl_ms", request->ttl_ms);
        break;
    case OP_RENEW:
        call.path = "/v1/renew";
        set_span(body, "ttl_ms", request->ttl_ms);
        break;
    case OP_RELEASE:
        call.path = "/v1/release";
        call.tries = RELEASE_TRIES;
        set_text(body, "outcome", request->outcome == BELAY_OUTCOME_FAILED ? "failed" : "completed");
        break;
    case OP_FORCE:
    case OP_ACQUIRE:
        call.method = "DELETE";
        remote_add_path(&path, request->key, "");
        call.path = path.failed ? "" : path.data;
        (void)json_object_del(body, "key");
        set_text(body, "reason", request->reason);
        set_text(body, "by", request->by);
        break;
    }
    change(remote, op, &call, body);
    json_decref(body);
    buf_release(&path);
}

enum belay_code remote_held(struct client_remote *base, const char *key, const char *lock_id, int64_t wait_ms,
                            struct belay_cancel *cancel, struct belay_error *err)
{
    struct remote_call call = { .method = "POST",
                                .path = "/v1/held",
                                .key = key,
                                .lock_id = lock_id,
                                .is_held = true,
                                .timeout_ms = wait_ms + TIMEOUT_MAX_MS,
                                .cancel = cancel };
    json_t *answer = NULL;
    json_t *body =
        json_pack("{s:s, s:s, s:I}", "key", key, "lock_id", lock_id, "wait_ms", (json_int_t)wait_ms);
    enum belay_code code;

    call.body = body;
    code = body == NULL ? error_no_memory(err) : remote_send((struct remote *)base, &call, &answer, err);
    json_decref(answer);
    json_decref(body);
    return code;
}

enum belay_code remote_note_lost(struct client_remote *base, const struct belay_event *event,
                                 struct belay_error *err)
{
    struct remote_call call = { .method = "POST", .path = "/v1/lost", .key = event->key, .tries = 1 };
    json_t *answer = NULL;
    json_t *body = json_pack("{s:s, s:s}", "key", event->key, "lock_id", event->lock_id);
    enum belay_code code;

    set_text(body, "locked_by", event->locked_by);
    set_text(body, "locked_by_name", event->locked_by_name);
    set_text(body, "reason", event->reason);
    set_span(body, "token", (int64_t)event->token);
    set_metadata(body, event->metadata, event->n_metadata);
    call.body = body;
    code =
        body == NULL ? error_no_memory(err) : remote_send_again((struct remote *)base, &call, &answer, err);
    json_decref(answer);
    json_decref(body);
    return code;
}
