/* Adopt, renew, release, force: one request each. It has the lock id, so it can be sent again. */
#include <assert.h>
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
    HELD_SEVERAL_MS = 4000,
    RELEASE_TRIES = 6 /* about three seconds, the time of a restart: other clients wait for the lock */
};

/*
 * The server says how long the client may rely on the lock (L6): only the server knows its
 * store's margin, and how much is left of a lease that began before this request (if an earlier
 * answer was lost, or the lock was granted between two requests of a wait).
 *
 * If the server does not say it, the largest possible margin is assumed, half of the ttl: no
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

    assert(sent_ms >= 0);
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
    info->valid_for_ms = -1; /* the deadline replaces it */
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

void remote_set_text(json_t *body, const char *name, const char *text)
{
    if (text != NULL) {
        (void)json_object_set_new(body, name, json_string(text));
    }
}

static void set_positive(json_t *body, const char *name, int64_t number)
{
    if (number > 0) {
        (void)json_object_set_new(body, name, json_integer(number));
    }
}

void remote_set_metadata(json_t *body, const struct belay_meta *metadata, size_t n)
{
    json_t *all = json_object();

    for (size_t i = 0; i < n; i++) {
        remote_set_text(all, metadata[i].name, metadata[i].value);
    }
    (void)json_object_set_new(body, "metadata", all);
}

static void fill_adopt(json_t *body, const struct op_request *request)
{
    remote_set_text(body, "lock_id", request->old_id);
    remote_set_text(body, "new_lock_id", request->lock_id);
    remote_set_text(body, "locked_by", request->owner);
    remote_set_text(body, "locked_by_name", request->owner == NULL ? NULL : request->owner_name);
    set_positive(body, "heartbeat_ms", request->heartbeat_ms);
    set_positive(body, "stale_after_ms", request->stale_after_ms);
    remote_set_metadata(body, request->metadata, request->n_metadata);
}

/* A renewal that is not answered must leave time in the lease for another one. */
static int64_t timeout_of(const struct op_request *request)
{
    int64_t ms = request->ttl_ms / 3;

    if (request->kind != OP_RENEW || ms == 0 || ms > TIMEOUT_MAX_MS) {
        return TIMEOUT_MAX_MS;
    }
    return ms < TIMEOUT_MIN_MS ? TIMEOUT_MIN_MS : ms;
}

/* Set path, method and body by the kind of change. `path` has the memory of a path that is made. */
static void fill_change(const struct op_request *request, struct remote_call *call, json_t *body,
                        struct buf *path)
{
    remote_set_text(body, "lock_id", request->lock_id);
    switch (request->kind) {
    case OP_ADOPT:
        call->path = "/v1/adopt";
        fill_adopt(body, request);
        set_positive(body, "ttl_ms", request->ttl_ms);
        break;
    case OP_RENEW:
        call->path = "/v1/renew";
        set_positive(body, "ttl_ms", request->ttl_ms);
        break;
    case OP_RELEASE:
        call->path = "/v1/release";
        call->tries = RELEASE_TRIES;
        remote_set_text(body, "outcome", request->outcome == BELAY_OUTCOME_FAILED ? "failed" : "completed");
        break;
    case OP_ACQUIRE:
        assert(!"remote_acquire() sends it");
        break;
    case OP_FORCE:
        call->method = "DELETE";
        remote_add_path(path, request->key, "");
        call->path = path->failed ? "" : path->data;
        (void)json_object_del(body, "key");
        remote_set_text(body, "reason", request->reason);
        remote_set_text(body, "by", request->by);
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
                                .rely_until_ms = request->rely_until_ms,
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
    struct belay_error unheard = BELAY_ERROR_INIT; /* if the caller has none */
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

/*
 * With several fronts a request is short, so that one that hangs does not hide a loss for long: within ten seconds the
 * next one is asked (L6).
 */
enum belay_code remote_await_loss(struct backend *base, const struct op_request *request, int64_t wait_ms,
                                  struct belay_cancel *cancel, struct belay_error *err)
{
    struct remote *remote = (struct remote *)base;
    bool is_several = remote->n_fronts > 1;
    int64_t asked_ms = is_several && wait_ms > HELD_SEVERAL_MS ? HELD_SEVERAL_MS : wait_ms;
    json_t *body = remote_keys_body(request);
    struct remote_call call = { .path = "/v1/held",
                                .key = request->key,
                                .lock_id = request->lock_id,
                                .is_held = true,
                                .timeout_ms =
                                    asked_ms + (is_several ? REMOTE_ANSWER_SEVERAL_MS : TIMEOUT_MAX_MS),
                                .cancel = cancel };

    remote_set_text(body, "lock_id", request->lock_id);
    set_positive(body, "wait_ms", asked_ms);
    return remote_post(remote, &call, body, err);
}

enum belay_code remote_note(struct backend *base, const struct belay_event *event, struct belay_error *err)
{
    struct remote_call call = { .path = "/v1/lost", .key = event->key, .tries = 1 };
    json_t *body = json_pack("{s:s, s:s}", "key", event->key, "lock_id", event->lock_id);

    remote_set_text(body, "locked_by", event->locked_by);
    remote_set_text(body, "locked_by_name", event->locked_by_name);
    remote_set_text(body, "reason", event->reason);
    set_positive(body, "token", (int64_t)event->token);
    remote_set_metadata(body, event->metadata, event->n_metadata);
    return remote_post((struct remote *)base, &call, body, err);
}
