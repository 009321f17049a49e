/* Input: turns the bytes that were read into requests, and calls the handler. */
#include "server/http/http_internal.h"

#include <assert.h>
#include <string.h>

bool conn_can_take(const struct conn *conn)
{
    size_t unsent = conn_unsent(conn);

    /* HTTP/1.0 ends a stream by closing: no request may be queued behind one. */
    if (conn->last != NULL && conn->last->minor == 0) {
        return false;
    }
    /* Whatever the answers wait for. */
    for (const struct request *request = conn->first; request != NULL; request = request->next) {
        unsent += request->ready.len;
    }
    return conn->state == CONN_OPEN && !conn->is_broken && !conn->is_last && unsent < MAX_UNSENT &&
           conn->n_queued < conn->server->limits.max_pipelined && conn->stops_at == NULL;
}

static void queue_add(struct conn *conn, struct request *request)
{
    assert(request->conn == conn && !request->is_answered);
    request->next = NULL;
    if (conn->last == NULL) {
        assert(conn->first == NULL && conn->n_queued == 0);
        conn->first = request;
    } else {
        conn->last->next = request;
    }
    conn->last = request;
    conn->n_queued++;
}

static void notify_hangup(struct request *request, enum http_hangup what)
{
    if (request->notice != NULL) {
        request->notice(&request->pub, what, request->notice_context);
    }
}

void conn_tell_half_closed(struct conn *conn)
{
    struct request *request = conn->first;
    bool was_busy = conn->is_busy;

    conn->is_busy = true;
    while (request != NULL) {
        if (request->is_answered || request->was_told_half_closed) {
            request = request->next;
            continue;
        }
        request->was_told_half_closed = true;
        notify_hangup(request, HTTP_HALF_CLOSED);
        request = conn->first; /* the notice may have answered it, and others */
    }
    conn->is_busy = was_busy;
}

static void dispatch_request(struct conn *conn)
{
    struct request *request = conn->current;

    assert(conn->state == CONN_OPEN && request->is_head_done && request->refuse_status == 0);
    conn->current = NULL;
    request->pub.body = request->body.len > 0 ? request->body.data : "";
    request->pub.body_len = request->body.len;
    if (!request->is_keep_alive) {
        conn->is_last = true;
    }
    queue_add(conn, request);
    conn->server->handle(conn->server->context, &request->pub);
    if (conn->is_half_closed) {
        conn_tell_half_closed(conn);
    }
}

/*
 * The handler refuses it, whatever its body is. A short body is skipped when it
 * arrives, and the connection goes on; else this is the last answer.
 */
static void dispatch_unwanted(struct conn *conn)
{
    struct request *request = conn->current;

    if (request->body_kind == BODY_LENGTH && request->body_left <= MAX_SKIPPED && !request->wants_continue) {
        conn->skip_left = request->body_left;
    } else {
        request->is_keep_alive = false;
        conn->must_linger = true;
    }
    request->wants_continue = false;
    dispatch_request(conn);
}

static const char *refusal_code(int status)
{
    switch (status) {
    case 408:
        return "request_timeout";
    case 413:
        return "body_too_large";
    case 414:
        return "path_too_long";
    case 417:
        return "expectation_failed";
    case 431:
        return "headers_too_large";
    case 501:
        return "not_implemented";
    case 503:
        return "unavailable";
    case 505:
        return "version_not_supported";
    default:
        return "bad_request";
    }
}

void conn_refuse(struct conn *conn, int status, const char *text)
{
    struct request *request = conn->current != NULL ? conn->current : request_new(conn);

    conn->current = NULL;
    conn->is_last = true;
    conn->must_linger = true;
    conn->stash.len = 0;
    server_notice(conn->server, conn, status, text);
    if (request == NULL) {
        conn->is_broken = true;
        return;
    }
    request->is_keep_alive = false;
    request->wants_continue = false;
    queue_add(conn, request);
    http_answer_error(&request->pub, status, refusal_code(status), text);
}

/* An empty line in front of a request, which some clients send after a body. False: it is none. */
static bool skip_blank(struct conn *conn, char c)
{
    char wanted = conn->blank_bytes % 2 == 0 ? '\r' : '\n';

    if (c != wanted) {
        return false;
    }
    conn->blank_bytes++;
    return true;
}

/* Input to the current request, until it is complete, refused, or needs more. Returns the bytes taken. */
static size_t input_current(struct conn *conn, const char *data, size_t len)
{
    struct request *request = conn->current;
    size_t taken = 0;
    bool is_complete = false;

    if (!request->is_head_done) {
        taken = head_input(conn, data, len);
        if (!request->is_head_done && request->refuse_status == 0) {
            return taken;
        }
    }
    if (request->refuse_status == 0 && request->pub.is_unwanted) {
        dispatch_unwanted(conn);
        return taken;
    }
    if (request->refuse_status == 0) {
        taken += body_input(request, data + taken, len - taken, &is_complete);
    }
    if (request->refuse_status != 0) {
        conn_refuse(conn, request->refuse_status, request->refuse_text);
        return len;
    }
    if (is_complete) {
        dispatch_request(conn);
    } else if (request->wants_continue) {
        if (request->body.len > 0 || request->around_bytes > 0) {
            request->wants_continue = false; /* the client did not wait for it */
        }
        conn_send_continue(conn);
    }
    return taken;
}

size_t conn_input(struct conn *conn, const char *data, size_t len)
{
    size_t at = 0;
    bool was_busy = conn->is_busy;
    int n = 0;

    conn->is_busy = true;
    while (at < len && n < REQUESTS_PER_INPUT && conn_can_take(conn)) {
        if (conn->skip_left > 0) {
            size_t part = len - at < conn->skip_left ? len - at : (size_t)conn->skip_left;

            conn->skip_left -= part;
            at += part;
            continue;
        }
        if (conn->current == NULL) {
            if (skip_blank(conn, data[at])) {
                at++;
                continue;
            }
            if (conn->blank_bytes % 2 != 0 || conn->blank_bytes > MAX_BLANK_BYTES) {
                conn_refuse(conn, 400, "the request is malformed");
                break;
            }
            conn->blank_bytes = 0;
            conn->current = request_new(conn);
            if (conn->current == NULL) {
                conn->is_broken = true;
                break;
            }
        }
        at += input_current(conn, data + at, len - at);
        n += conn->current == NULL ? 1 : 0;
    }
    conn->is_busy = was_busy;
    if (conn->is_last && at < len) {
        conn->must_linger = true;
        at = len; /* input after the last request is discarded */
    }
    return at;
}

void conn_input_stash(struct conn *conn)
{
    size_t len = conn->stash.len;
    size_t taken;

    if (len == 0 || !conn_can_take(conn)) {
        return;
    }
    taken = conn_input(conn, conn->stash.data, len);
    if (conn->is_last || taken >= len) {
        buf_release(&conn->stash);
        conn->stash = (struct buf)BUF_INIT(READ_SIZE);
        return;
    }
    memmove(conn->stash.data, conn->stash.data + taken, len - taken);
    conn->stash.len = len - taken;
}
