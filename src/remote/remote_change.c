/* Adopt, renew, release, force: one request each, which names the lock id and can be sent again. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/report.h"
#include "lock/lease.h"
#include "remote/remote_internal.h"
#include "json/json_read.h"

enum {
    TIMEOUT_MAX_MS = 10000,
    TIMEOUT_MIN_MS = 200,
    RELEASE_TRIES = 6 /* some three seconds, the time of a restart: the next one waits for it */
};

/*
 * The server decides how long the client may rely on the lock (L6): only the server knows its
 * store's margin, and how much is left of a lease that began before this request (when an
 * earlier answer was lost, or the lock was granted while the client kept its place).
 *
 * If the server does not say, the largest possible margin is assumed, half of the ttl: no
 * server grants a ttl of less than twice its store's margin.
 */
static int64_t deadline_of(const struct belay_info *info, int64_t sent_ms)
{
    int64_t at_most_ms = lease_deadline_ms(0, info->ttl_ms, 0);
    int64_t valid_ms = info->valid_for_ms >= 0 ? info->valid_for_ms
                                               : lease_deadline_ms(0, info->expires_in_ms, info->ttl_ms / 2);

    return sent_ms + (valid_ms < 0 ? 0 : valid_ms < at_most_ms ? valid_ms : at_most_ms);
}

static bool is_span(int64_t ms)
{
    return ms >= 0 && ms <= 2 * BELAY_TTL_MAX_MS;
}

enum belay_code remote_read_result(struct remote *remote, const struct op_request *request,
                                   const json_t *lock, int64_t sent_ms, struct op_result *out_result,
                                   struct belay_error *err)
{
    const json_t *locks = json_object_get(lock, "locks"); /* of a request for several keys */
    struct belay_info *info = locks != NULL ? json_read_locks(locks) : json_read_lock(lock);
    bool is_held;

    if (info == NULL || info->lock_id == NULL || info->n_joint + 1 != op_n_targets(request) ||
        !is_span(info->ttl_ms) || !is_span(info->expires_in_ms)) {
        belay_info_free(info);
        return remote_say_not_belay(remote, err);
    }
    is_held = info->status == BELAY_STATUS_ACTIVE || info->status == BELAY_STATUS_EXPIRED;
    *out_result = (struct op_result){ .info = info,
                                      .sent_ms = is_held && info->expires_in_ms < info->ttl_ms
                                                     ? sent_ms - (info->ttl_ms - info->expires_in_ms)
                                                     : sent_ms,
                                      .deadline_ms = deadline_of(info, sent_ms),
                                      .reentered = request->kind == OP_ACQUIRE && request->reentrant &&
                                                   strcmp(info->lock_id, request->lock_id) != 0 };
    info->valid_for_ms = -1; /* from here on only the deadline counts */
    return BELAY_OK;
}

json_t *remote_keys_body(const struct op_request *request)
{
    json_t *keys;

    if (request->joint == NULL) {
        return json_pack("{s:s}", "key", request->key);
    }
    keys = json_array();
    for (size_t i = 0; i < request->joint->n_keys; i++) {
        (void)json_array_append_new(keys, json_string(request->joint->keys[i]));
    }
    return json_pack("{s:o}", "keys", keys);
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

void remote_set_metadata(json_t *body, const struct belay_meta *metadata, size_t n)
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
    remote_set_metadata(body, request->metadata, request->n_metadata);
}

/* A renewal must not wait longer for its answer than the lease can bear. */
static int64_t timeout_of(const struct op_request *request)
{
    int64_t ms = request->ttl_ms / 3;

    if (request->kind != OP_RENEW || ms == 0 || ms > TIMEOUT_MAX_MS) {
        return TIMEOUT_MAX_MS;
    }
    return ms < TIMEOUT_MIN_MS ? TIMEOUT_MIN_MS : ms;
}

/* What each kind of change sends; `path` is room for a path that has to be made. */
static void fill_change(const struct op_request *request, struct remote_call *call, json_t *body,
                        struct buf *path)
{
    set_text(body, "lock_id", request->lock_id);
    switch (request->kind) {
    case OP_ADOPT:
        call->path = "/v1/adopt";
        fill_adopt(body, request);
        set_span(body, "ttl_ms", request->ttl_ms);
        break;
    case OP_RENEW:
        call->path = "/v1/renew";
        set_span(body, "ttl_ms", request->ttl_ms);
        break;
    case OP_RELEASE:
        call->path = "/v1/release";
        call->tries = RELEASE_TRIES;
        set_text(body, "outcome", request->outcome == BELAY_OUTCOME_FAILED ? "failed" : "completed");
        break;
    case OP_FORCE:
    case OP_ACQUIRE:
        call->method = "DELETE";
        remote_add_path(path, request->key, "");
        call->path = path->failed ? "" : path->data;
        (void)json_object_del(body, "key");
        set_text(body, "reason", request->reason);
        set_text(body, "by", request->by);
        break;
    }
}

static enum belay_code remote_change(struct remote *remote, const struct op_request *request,
                                     struct op_result *out_result, struct belay_error *err)
{
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    json_t *body = remote_keys_body(request);
    struct remote_call call = { .method = "POST",
                                .body = body,
                                .key = request->key,
                                .lock_id = request->kind == OP_FORCE ? NULL : request->lock_id,
                                .is_held = request->kind != OP_ADOPT,
                                .is_release = request->kind == OP_RELEASE,
                                .is_restart = request->is_restart,
                                .timeout_ms = timeout_of(request) };
    int64_t sent_ms = clock_boot_ms();
    json_t *answer = NULL;
    enum belay_code code;

    fill_change(request, &call, body, &path);
    code = body == NULL ? error_no_memory(err) : remote_send_again(remote, &call, &answer, err);
    if (code == BELAY_OK) {
        code = remote_read_result(remote, request, answer, sent_ms, out_result, err);
    }
    json_decref(answer);
    json_decref(body);
    buf_release(&path);
    return code;
}

enum belay_code remote_run(struct backend *base, struct op_request *request, const struct wait_hooks *hooks,
                           struct op_result *out_result, struct belay_error *err)
{
    struct remote *remote = (struct remote *)base;
    struct belay_error unheard = BELAY_ERROR_INIT; /* for a caller that wants no text */
    enum belay_code code;

    err = err == NULL ? &unheard : err;
    code = request->kind == OP_ACQUIRE ? remote_acquire(remote, request, hooks, out_result, err)
                                       : remote_change(remote, request, out_result, err);
    report_outcome(remote->on_event, remote->context, request, code, out_result, err);
    belay_error_release(&unheard);
    return code;
}

enum belay_code remote_post(struct remote *remote, struct remote_call *call, json_t *body,
                            struct belay_error *err)
{
    json_t *answer = NULL;
    enum belay_code code;

    call->method = "POST";
    call->body = body;
    code = body == NULL       ? error_no_memory(err)
           : call->tries == 0 ? remote_send(remote, call, &answer, err)
                              : remote_send_again(remote, call, &answer, err);
    json_decref(answer);
    json_decref(body);
    return code;
}

enum belay_code remote_await_loss(struct backend *base, const struct op_request *request, int64_t wait_ms,
                                  struct belay_cancel *cancel, struct belay_error *err)
{
    json_t *body = remote_keys_body(request);
    struct remote_call call = { .path = "/v1/held",
                                .key = request->key,
                                .lock_id = request->lock_id,
                                .is_held = true,
                                .timeout_ms = wait_ms + TIMEOUT_MAX_MS,
                                .cancel = cancel };

    set_text(body, "lock_id", request->lock_id);
    set_span(body, "wait_ms", wait_ms);
    return remote_post((struct remote *)base, &call, body, err);
}

enum belay_code remote_note(struct backend *base, const struct belay_event *event, struct belay_error *err)
{
    struct remote_call call = { .path = "/v1/lost", .key = event->key, .tries = 1 };
    json_t *body = json_pack("{s:s, s:s}", "key", event->key, "lock_id", event->lock_id);

    set_text(body, "locked_by", event->locked_by);
    set_text(body, "locked_by_name", event->locked_by_name);
    set_text(body, "reason", event->reason);
    set_span(body, "token", (int64_t)event->token);
    remote_set_metadata(body, event->metadata, event->n_metadata);
    return remote_post((struct remote *)base, &call, body, err);
}
