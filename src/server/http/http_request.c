/* The requests of a connection: from its bytes to the handler, what a handler may do with one, and their memory. */
#include "server/http/http_internal.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- for the handler ---- */

const char *http_header(const struct http_request *request, const char *name)
{
    int first = tolower((unsigned char)*name);

    for (size_t i = 0; i < request->n_headers; i++) {
        if (tolower((unsigned char)*request->headers[i].name) == first &&
            strcasecmp(request->headers[i].name, name) == 0) {
            return request->headers[i].value;
        }
    }
    return NULL;
}

void http_on_hangup(struct http_request *request, http_hangup_notice *notice, void *context)
{
    struct request *own = (struct request *)request;

    assert(!own->is_answered && own->notice == NULL);
    own->notice = notice;
    own->notice_context = context;
}

void http_mark_known(struct http_request *request)
{
    ((struct request *)request)->conn->is_known = true;
}

void http_read_no_more(struct http_request *request)
{
    struct request *own = (struct request *)request;

    assert(!own->is_answered);
    own->conn->stops_at = own;
}

char *http_take_body(struct http_request *request, size_t *out_len)
{
    struct request *own = (struct request *)request;
    size_t len = own->body.len;
    char *body = buf_take(&own->body);

    if (body != NULL) {
        *out_len = len;
        request->body = "";
        request->body_len = 0;
    }
    return body;
}

void request_release_shared(struct request *request)
{
    struct http_shared shared = request->shared;

    request->shared = (struct http_shared){ 0 };
    if (shared.release != NULL) {
        shared.release(shared.owner);
    }
}

/* ---- memory ---- */

/* Empty it for its next use; a large one is freed. */
static void reuse(struct buf *buf, size_t keep, size_t max)
{
    if (buf->cap > keep) {
        buf_release(buf);
    }
    buf->len = 0;
    buf->max = max;
    buf->failed = false;
}

static struct request *request_new(struct conn *conn)
{
    struct http_server *server = conn->server;
    struct request *request = server->spare_requests;
    struct buf text = BUF_INIT(0);
    struct buf body = BUF_INIT(0);
    struct buf ready = BUF_INIT(0);

    if (request != NULL) {
        assert(server->n_spare_requests > 0 && request->conn == NULL);
        server->spare_requests = request->next;
        server->n_spare_requests--;
        text = request->text;
        body = request->body;
        ready = request->ready;
    } else {
        request = malloc(sizeof *request);
        if (request == NULL) {
            return NULL;
        }
    }
    /* The two arrays have counters: to clear them would take longer than all the rest. */
    memset(request, 0, offsetof(struct request, at));
    memset((char *)request + offsetof(struct request, n_headers), 0,
           sizeof *request - offsetof(struct request, n_headers));
    request->text = text;
    request->body = body;
    request->ready = ready;
    reuse(&request->text, SPARE_TEXT, server->limits.max_head_bytes + MAX_HEADERS * 2 + 2);
    reuse(&request->body, SPARE_BODY, server->limits.max_body_bytes);
    reuse(&request->ready, SPARE_TEXT, MAX_ANSWER);
    request->max_body = server->limits.max_body_bytes;
    request->conn = conn;
    request->pub.id = ++server->last_id;
    request->pub.peer = &conn->peer;
    request->pub.is_tls = conn->ssl != NULL;
    request->pub.received_ms = loop_now_ms(server->loop);
    request->pub.method = "";
    request->pub.path = "";
    request->pub.query = "";
    request->pub.body = "";
    head_begin(request);
    return request;
}

static void request_destroy(struct request *request)
{
    buf_release(&request->text);
    buf_release(&request->body);
    buf_release(&request->ready);
    free(request);
}

void request_free(struct request *request)
{
    struct http_server *server;

    if (request == NULL) {
        return;
    }
    assert(request->conn != NULL); /* else it is spare already */
    server = request->conn->server;
    assert(server->bodies_bytes >= request->counted);
    server->bodies_bytes -= request->counted;
    request_release_shared(request);
    request->conn = NULL;
    if (server->n_spare_requests >= SPARE_REQUESTS) {
        request_destroy(request);
        return;
    }
    reuse(&request->text, SPARE_TEXT, 0);
    reuse(&request->body, SPARE_BODY, 0);
    reuse(&request->ready, SPARE_TEXT, 0);
    request->next = server->spare_requests;
    server->spare_requests = request;
    server->n_spare_requests++;
}

void requests_release(struct http_server *server)
{
    while (server->spare_requests != NULL) {
        struct request *request = server->spare_requests;
        server->spare_requests = request->next;
        request_destroy(request);
    }
    server->n_spare_requests = 0;
}

/* ---- from the bytes of a connection to the handler ---- */

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
    assert(request->body.len <= request->max_body && !conn->is_last);
    conn->current = NULL;
    request->pub.body = request->body.len > 0 ? request->body.data : "";
    request->pub.body_len = request->body.len;
    if (!request->is_keep_alive) {
        conn->is_last = true;
    }
    request->pub.is_stale = conn->is_input_stale;
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

    assert(status >= 400 && status < 600 && conn->state == CONN_OPEN);
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

    assert(request != NULL && len > 0);
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
        assert(at <= len);
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
