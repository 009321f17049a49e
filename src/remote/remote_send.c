/* Requests to a server, with their retries and timeouts, and the errors in its answers. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "client/items.h"
#include "http_client/uri.h"
#include "lock/info.h"
#include "remote/remote_internal.h"
#include "json/json_read.h"

/* ---- answers ---- */

enum belay_code remote_say_not_belay(const struct remote *remote, struct belay_error *err)
{
    const char *url = remote_front(remote)->url;

    return error_set(
        err, BELAY_CONFIG,
        "%.200s does not answer as a belay server does: check the host, the port and any proxy in "
        "between; 'curl %.200s/healthz' shows what is there",
        url, url);
}

static enum belay_code say_not_permitted(const struct remote *remote, int status, const char *message,
                                         struct belay_error *err)
{
    if (remote->auth_file == NULL) {
        return error_set(err, BELAY_NOT_PERMITTED,
                         "%s: set BELAY_AUTH_TOKEN to a token, or BELAY_AUTH_FILE to a file that has one",
                         status == 401 ? "the server wants a token" : message);
    }
    if (status == 401) {
        return error_set(
            err, BELAY_NOT_PERMITTED,
            "the server does not know the token in %.200s: set BELAY_AUTH_TOKEN to the right one, "
            "or BELAY_AUTH_FILE to a file that has it",
            remote->auth_file);
    }
    return error_set(
        err, BELAY_NOT_PERMITTED,
        "%s: set BELAY_AUTH_TOKEN to a token that may, or BELAY_AUTH_FILE to a file that has one, "
        "instead of %.200s",
        message, remote->auth_file);
}

static enum belay_code code_of_answer(int status, const char *name)
{
    if (status == 503 || status == 429) {
        return BELAY_UNREACHABLE;
    }
    for (int code = BELAY_HELD; status != 504 && code <= BELAY_BUG; code++) {
        if (strcmp(belay_code_name((enum belay_code)code), name) == 0) {
            return (enum belay_code)code;
        }
    }
    if (strcmp(belay_code_name(BELAY_FROZEN), name) == 0) {
        return BELAY_FROZEN;
    }
    return status >= 500                    ? BELAY_UNKNOWN
           : status == 409                  ? BELAY_HELD
           : status == 404 || status == 405 ? BELAY_CONFIG /* a path that every server has */
                                            : BELAY_INVALID;
}

enum belay_code remote_judge(const struct remote *remote, int status, const json_t *body, const char *key,
                             struct belay_error *err)
{
    const json_t *error = json_object_get(body, "error");
    const char *name = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    struct belay_info *holder;
    enum belay_code code;

    if (status == 200) {
        return body == NULL ? remote_say_not_belay(remote, err) : BELAY_OK;
    }
    if (status == 401 || status == 403) {
        return say_not_permitted(remote, status, message == NULL ? "the server refuses" : message, err);
    }
    if (name == NULL || message == NULL) {
        /* 501: not a belay server. Other statuses from 500 on may come from a proxy before one. */
        return status >= 500 && status != 501
                   ? error_set(
                         err, status == 503 ? BELAY_UNREACHABLE : BELAY_UNKNOWN,
                         "%.200s answers with status %d and not as a belay server does: check the server "
                         "and any proxy before it",
                         remote_front(remote)->url, status)
                   : remote_say_not_belay(remote, err);
    }
    code = code_of_answer(status, name);
    assert(code != BELAY_OK && code != BELAY_REFUSED && code != BELAY_REDIRECTED);
    if (code == BELAY_CONFIG && status < 500) {
        return remote_say_not_belay(remote, err);
    }
    holder = json_read_lock(json_object_get(error, "lock"));
    /* If the lock is not held, it is reserved for a waiter; only the server's message says until when. */
    if (code == BELAY_HELD && holder != NULL && holder->status == BELAY_STATUS_ACTIVE) {
        return info_say_held(err, code, key == NULL ? holder->key : key, holder, 0, 0);
    }
    (void)error_set(err, code, "%s", message);
    error_set_holder(err, holder);
    return code;
}

/* ---- sending ---- */

void remote_add_path(struct buf *out, const char *key, const char *rest)
{
    buf_adds(out, "/v1/locks/");
    uri_encode(out, key, strlen(key), false);
    buf_adds(out, rest);
}

/* The headers of every request. Returns their number. */
static size_t add_usual_headers(const struct remote *remote,
                                struct http_client_header headers[REMOTE_HEADERS])
{
    size_t n = 0;

    headers[n++] = (struct http_client_header){ "Content-Type", "application/json" };
    if (remote->authorization != NULL) {
        headers[n++] = (struct http_client_header){ "Authorization", remote->authorization };
    }
    if (remote->n_fronts > 1) {
        headers[n++] = (struct http_client_header){ "Belay-Store",
                                                    atomic_load(&remote->has_id) ? remote->store_id : "?" };
    }
    return n;
}

/* Make the server's spans children of ours. "belay=hold": this client reports the span of the hold itself. */
static size_t trace_headers(const struct remote *remote, const struct remote_call *call,
                            char traceparent[BELAY_TRACEPARENT_SIZE], struct http_client_header *headers)
{
    size_t n = 0;

    if (call->lock_id == NULL || remote->traceparent == NULL ||
        !remote->traceparent(remote->context, call->lock_id, call->is_held, traceparent)) {
        return 0;
    }
    headers[n++] = (struct http_client_header){ "traceparent", traceparent };
    if (call->is_held) {
        headers[n++] = (struct http_client_header){ "tracestate", "belay=hold" };
    }
    return n;
}

enum belay_code remote_exchange(struct remote *remote, const struct remote_front *front,
                                const struct http_client_request *asked, struct http_response *out_response,
                                struct belay_error *err)
{
    struct http_client_header headers[REMOTE_HEADERS + REMOTE_MORE_HEADERS];
    struct http_client_request request = *asked;
    struct buf url = BUF_INIT(REMOTE_URL_MAX);
    size_t n = add_usual_headers(remote, headers);
    enum belay_code code;

    assert(asked->n_headers <= REMOTE_MORE_HEADERS && n <= REMOTE_HEADERS);
    for (size_t i = 0; i < asked->n_headers; i++) {
        headers[n++] = asked->headers[i];
    }
    buf_addf(&url, "%s%s", front->url, text_or_empty(asked->url));
    request.url = url.data;
    request.headers = headers;
    request.n_headers = n;
    request.direct = front->direct;
    request.wake_fd = asked->cancel == NULL ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (request.wake_fd >= 0) {
        belay_cancel_bind_fd(asked->cancel, request.wake_fd);
    }
    code = url.failed || asked->url == NULL ? error_no_memory(err)
                                            : http_send(front->http, &request, out_response, err);
    if (request.wake_fd >= 0) {
        belay_cancel_bind_fd(asked->cancel, -1);
        (void)close(request.wake_fd);
    }
    buf_release(&url);
    return code;
}

/* Warn once if the server's locking is switched off. */
static void note_locking_off(struct remote *remote, const struct http_response *response)
{
    const char *locking = http_response_header(response, "belay-locking");
    char text[512];

    if (locking != NULL && strcmp(locking, "off") == 0 && !atomic_exchange(&remote->is_off, true) &&
        remote->on_warning != NULL) {
        (void)snprintf(text, sizeof text,
                       "locking is switched off at the server %.300s: its locks protect nothing",
                       remote_front(remote)->url);
        remote->on_warning(remote->context, text);
    }
}

/*
 * Remember the store of the first answer. Later requests name it, and a server with another store
 * refuses them: a list may name servers of different stores by mistake.
 */
static void note_store_id(struct remote *remote, const struct http_response *response)
{
    const char *id = remote->n_fronts > 1 ? http_response_header(response, "belay-store") : NULL;

    if (id != NULL && strlen(id) < sizeof remote->store_id && !atomic_exchange(&remote->takes_id, true)) {
        (void)snprintf(remote->store_id, sizeof remote->store_id, "%s", id);
        atomic_store(&remote->has_id, true);
    }
}

enum belay_code remote_send(struct remote *remote, const struct remote_call *call, json_t **out_body,
                            struct belay_error *err)
{
    const struct remote_front *front = remote_front(remote);
    struct http_client_header headers[REMOTE_MORE_HEADERS];
    char traceparent[BELAY_TRACEPARENT_SIZE];
    struct http_response response = { 0 };
    char *body = call->body == NULL ? NULL : json_dumps(call->body, JSON_COMPACT);
    const struct http_client_request request = {
        .method = call->method,
        .url = call->path,
        .headers = headers,
        .n_headers = trace_headers(remote, call, traceparent, headers),
        .body = body,
        .body_len = strlen(text_or_empty(body)),
        .timeout_ms = call->timeout_ms,
        .may_repeat = call->is_read || strcmp(call->method, "GET") == 0,
        .cancel = call->cancel,
    };
    enum belay_code code = call->body != NULL && body == NULL
                               ? error_no_memory(err)
                               : remote_exchange(remote, front, &request, &response, err);

    *out_body = NULL;
    if (code == BELAY_OK) {
        note_locking_off(remote, &response);
        note_store_id(remote, &response);
        *out_body = json_loadb(response.body, response.body_len, JSON_REJECT_DUPLICATES, NULL);
        code = remote_judge(remote, response.status, *out_body, call->key, err);
    }
    code = request.may_repeat ? remote_read_fault(code, err) : code;
    http_response_release(&response);
    free(body);
    return remote_fault(remote, front, code, err);
}

enum belay_code remote_read_fault(enum belay_code code, struct belay_error *err)
{
    if (code == BELAY_UNKNOWN && err != NULL) {
        err->code = BELAY_UNREACHABLE;
    }
    return code == BELAY_UNKNOWN ? BELAY_UNREACHABLE : code;
}

const struct remote_front *remote_front(const struct remote *remote)
{
    return &remote->fronts[atomic_load(&remote->current)];
}

enum belay_code remote_fault(struct remote *remote, const struct remote_front *used, enum belay_code code,
                             struct belay_error *err)
{
    size_t at = (size_t)(used - remote->fronts);

    assert(at < remote->n_fronts);
    if (code != BELAY_UNREACHABLE && code != BELAY_UNKNOWN) {
        return code;
    }
    /* Unless another thread has changed it already. */
    (void)atomic_compare_exchange_strong(&remote->current, &at, (at + 1) % remote->n_fronts);
    if (remote->moved != NULL && remote->moved(remote->owner)) {
        return error_set(err, BELAY_REDIRECTED, "the server has gone");
    }
    return code;
}

int64_t remote_backoff_ms(const struct remote *remote, int faults)
{
    int64_t ms = remote->is_local ? LOCAL_BACKOFF_MS : REMOTE_BACKOFF_MS;
    int64_t most_ms = remote->is_local ? LOCAL_BACKOFF_MAX_MS : REMOTE_BACKOFF_MAX_MS;
    int n = (int)remote->n_fronts;

    if (faults % n != 0) {
        return 0;
    }
    for (int i = 1; i < faults / n && ms < most_ms; i++) {
        ms *= 2;
    }
    return ms < most_ms ? ms : most_ms;
}

bool remote_should_retry(const struct remote *remote, int faults, int tries, int64_t began_ms)
{
    /* A local server that does not answer for so long is suspended. */
    return remote->is_local ? clock_boot_ms() - began_ms < LOCAL_TIMEOUT_MS
                            : faults < tries * (int)remote->n_fronts;
}

/* 0: no limit of its own. */
static int64_t full_limit_ms(const struct remote *remote, const struct remote_call *call)
{
    return remote->answer_ms > 0 && (call->timeout_ms == 0 || call->timeout_ms > remote->answer_ms)
               ? remote->answer_ms
               : call->timeout_ms;
}

/* The time for attempt number `attempt`, from 1, by attempt_limit_ms() without the lease. */
static int64_t usual_limit_ms(const struct remote *remote, const struct remote_call *call, int attempt)
{
    int64_t first_ms = call->first_timeout_ms > 0 ? call->first_timeout_ms : REMOTE_ANSWER_SEVERAL_MS;
    bool is_usual =
        call->timeout_ms == 0 || (call->timeout_ms > first_ms && call->timeout_ms <= REMOTE_ANSWER_MS);

    return is_usual && attempt <= (int)remote->n_fronts ? first_ms : full_limit_ms(remote, call);
}

/*
 * How long to wait for an answer before the next of several fronts is asked, as one of them may hang:
 *
 *  - The first attempt at each front has a short timeout. Later ones have the full.
 *  - The renewal of a held lease has half of the time for which the lease can still be relied on, shared by
 *    the fronts that were not asked yet. The other half is the holder's: `belay run` ends its command so long
 *    before the deadline, and the front that does answer needs a moment too.
 *
 * A single front has the whole timeout: to give up earlier would gain nothing.
 */
static int64_t attempt_limit_ms(const struct remote *remote, const struct remote_call *call, int attempt)
{
    int n = (int)remote->n_fronts;
    int64_t limit_ms;
    int64_t share_ms;

    assert(attempt >= 1);
    if (n == 1) {
        return full_limit_ms(remote, call);
    }
    limit_ms = usual_limit_ms(remote, call, attempt);
    if (call->rely_until_ms == 0) {
        return limit_ms;
    }
    share_ms = (call->rely_until_ms - clock_boot_ms()) / 2 / (attempt < n ? n - attempt + 1 : 1);
    share_ms = share_ms > REMOTE_RENEW_SEVERAL_MIN_MS ? share_ms : REMOTE_RENEW_SEVERAL_MIN_MS;
    return limit_ms == 0 || share_ms < limit_ms ? share_ms : limit_ms;
}

enum belay_code remote_send_get(struct remote *remote, struct buf *path, const char *key, json_t **out_body,
                                struct belay_error *err)
{
    return remote_send_get_until(remote, path, key, NULL, out_body, err);
}

enum belay_code remote_send_get_until(struct remote *remote, struct buf *path, const char *key,
                                      struct belay_cancel *cancel, json_t **out_body, struct belay_error *err)
{
    struct remote_call call = { .method = "GET", .path = path->data, .key = key, .cancel = cancel };
    enum belay_code code =
        path->failed ? error_no_memory(err) : remote_send_again(remote, &call, out_body, err);

    buf_release(path);
    return code;
}

bool remote_is_answer(enum belay_code code)
{
    switch (code) {
    case BELAY_OK:
    case BELAY_HELD:
    case BELAY_FROZEN:
    case BELAY_LOST:
    case BELAY_NOT_HOLDER:
    case BELAY_NOT_FOUND:
    case BELAY_ID_USED:
    case BELAY_INVALID: /* so would the first attempt have been, or the list names servers of several stores */
    case BELAY_CANCELLED:
    case BELAY_REDIRECTED:
        return true;
    default:
        return false;
    }
}

enum belay_code remote_send_again(struct remote *remote, const struct remote_call *call, json_t **out_body,
                                  struct belay_error *err)
{
    struct belay_error unheard = BELAY_ERROR_INIT; /* if the caller has none */
    struct remote_call attempt = *call;
    int tries = remote->tries > 0 ? remote->tries : call->tries == 0 ? REMOTE_TRIES : call->tries;
    int64_t began_ms = clock_boot_ms();
    bool was_unknown = false;
    enum belay_code code;

    err = err == NULL ? &unheard : err;
    for (int faults = 1;; faults++) {
        attempt.timeout_ms = attempt_limit_ms(remote, call, faults);
        if (call->out_sent_ms != NULL) {
            *call->out_sent_ms = clock_boot_ms();
        }
        code = remote_send(remote, &attempt, out_body, err);
        was_unknown = was_unknown || code == BELAY_UNKNOWN;
        if ((code != BELAY_UNREACHABLE && code != BELAY_UNKNOWN) ||
            !remote_should_retry(remote, faults, tries, began_ms)) {
            break;
        }
        json_decref(*out_body);
        client_sleep(remote_backoff_ms(remote, faults), call->cancel);
    }
    if (was_unknown && !remote_is_answer(code)) {
        if (code != BELAY_UNREACHABLE && code != BELAY_UNKNOWN) {
            (void)error_wrap(err, "an answer was lost, and it may have happened");
        }
        code = err->code = BELAY_UNKNOWN;
    }
    if (code == BELAY_NOT_HOLDER && call->is_release && (was_unknown || call->is_restart)) {
        /* Our own request may have released it, and another client may have acquired it since. */
        code = error_set(err, BELAY_UNKNOWN, "lock '%s': whether it was released is not known", call->key);
    }
    belay_error_release(&unheard);
    return code;
}
