/*
 * Answers: written in one piece, and sent in the order of the requests. One is sent only after every commit that it may
 * reflect is durable.
 *
 *     answer made --> request.ready, with request.lsn = what is committed now
 *                          |
 *          its turn (`first`), and lsn <= durable_lsn     (answer_advance())
 *                          v
 *                      conn.out --> socket
 *
 * A connection is in http_server.waiting while its next answer waits for its LSN only.
 */
#include "server/http/http_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/utf8.h"

#define CONTINUE_LINE "HTTP/1.1 100 Continue\r\n\r\n"

/* ---- the head ---- */

/* The words after a status. Clients go by the number; the words are for people who read a trace. */
static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        { 100, "Continue" },
        { 200, "OK" },
        { 201, "Created" },
        { 202, "Accepted" },
        { 204, "No Content" },
        { 301, "Moved Permanently" },
        { 302, "Found" },
        { 303, "See Other" },
        { 304, "Not Modified" },
        { 307, "Temporary Redirect" },
        { 308, "Permanent Redirect" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 406, "Not Acceptable" },
        { 408, "Request Timeout" },
        { 409, "Conflict" },
        { 410, "Gone" },
        { 411, "Length Required" },
        { 412, "Precondition Failed" },
        { 413, "Payload Too Large" },
        { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 422, "Unprocessable Entity" },
        { 423, "Locked" },
        { 428, "Precondition Required" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 502, "Bad Gateway" },
        { 503, "Service Unavailable" },
        { 504, "Gateway Timeout" },
        { 505, "HTTP Version Not Supported" },
        { 507, "Insufficient Storage" },
    };

    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Unknown";
}

/* While the server drains, the connection ends with the last request that is in progress on it. */
static bool closes_after(struct request *request)
{
    struct conn *conn = request->conn;

    if (conn->server->is_draining && conn->last == request && conn->current == NULL && conn->stash.len == 0) {
        request->is_keep_alive = false;
        conn->is_last = true;
    }
    return !request->is_keep_alive;
}

/* "Date: …\r\n", made once a second. */
static const char *date_line(struct http_server *server)
{
    /* Not strftime(): its names follow the locale. */
    static const char *const days[] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
    static const char *const months[] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
    time_t now = time(NULL);
    struct tm tm;

    if ((int64_t)now == server->date_s || gmtime_r(&now, &tm) == NULL) {
        return server->date;
    }
    server->date_s = (int64_t)now;
    (void)snprintf(server->date, sizeof server->date, "Date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n",
                   days[tm.tm_wday % 7], tm.tm_mday % 100, months[tm.tm_mon % 12],
                   (tm.tm_year + 1900) % 10000, tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
    return server->date;
}

bool answer_head(struct request *request, struct buf *to, int status, const struct http_header *headers,
                 size_t n_headers)
{
    assert(status >= 100 && status < 600 && request->conn != NULL);
    for (size_t i = 0; i < n_headers; i++) {
        if (!head_name_is_sound(headers[i].name) ||
            !head_value_is_sound(headers[i].value, strlen(headers[i].value))) {
            return false;
        }
    }
    buf_adds(to, "HTTP/1.1 ");
    buf_add_number(to, status);
    buf_adds(to, " ");
    buf_adds(to, reason_of(status));
    buf_adds(to, "\r\n");
    buf_adds(to, date_line(request->conn->server));
    if (closes_after(request)) {
        buf_adds(to, "Connection: close\r\n");
    } else if (request->minor == 0) {
        buf_adds(to, "Connection: keep-alive\r\n");
    }
    for (size_t i = 0; i < n_headers; i++) {
        buf_adds(to, headers[i].name);
        buf_adds(to, ": ");
        buf_adds(to, headers[i].value);
        buf_adds(to, "\r\n");
    }
    return true;
}

/* ---- the connections that wait for durability ---- */

bool answer_is_durable(const struct request *request)
{
    return request->lsn <= request->conn->server->durable_lsn;
}

void answer_stop_waiting(struct conn *conn)
{
    if (conn->waiting_at == NULL) {
        return;
    }
    assert(*conn->waiting_at == conn);
    *conn->waiting_at = conn->next_waiting;
    if (conn->next_waiting != NULL) {
        conn->next_waiting->waiting_at = conn->waiting_at;
    }
    conn->waiting_at = NULL;
}

static void begin_waiting(struct conn *conn)
{
    struct http_server *server = conn->server;

    assert(conn->state == CONN_OPEN);
    if (conn->waiting_at != NULL) {
        return;
    }
    conn->next_waiting = server->waiting;
    conn->waiting_at = &server->waiting;
    if (server->waiting != NULL) {
        server->waiting->waiting_at = &conn->next_waiting;
    }
    server->waiting = conn;
}

/* Add the connection to those that wait, or remove it, as its first answer demands. */
static void update_waiting(struct conn *conn)
{
    if (conn->first != NULL && !answer_is_durable(conn->first)) {
        begin_waiting(conn);
    } else {
        answer_stop_waiting(conn);
    }
}

/* ---- from the request to the connection ---- */

/* Where its bytes go. They may tell of all that is committed by now, whether this request did it or saw it. */
struct buf *answer_target(struct request *request)
{
    struct http_server *server = request->conn->server;

    if (server->committed_lsn != NULL) {
        uint64_t lsn = server->committed_lsn(server->context);

        assert(lsn >= request->lsn);
        request->lsn = lsn;
    }
    return &request->ready;
}

/* Bytes were added to what answer_target() gave. */
void answer_added(struct request *request)
{
    struct conn *conn = request->conn;

    if (conn->state == CONN_DEAD) {
        return; /* conn_close() frees it */
    }
    if (request->ready.failed) {
        conn->is_broken = true;
    }
    if (conn->first == request) {
        answer_advance(conn);
    }
    if (!conn->is_busy) {
        conn_flush(conn);
    }
    if (conn->is_broken) {
        conn_later(conn);
    }
}

/* Whether something is left to do that no event of the socket will trigger. */
static bool needs_settling(const struct conn *conn)
{
    return conn->is_broken || conn->is_last || conn->is_half_closed || conn->stash.len > 0 ||
           conn_unsent(conn) > 0 || conn->server->is_draining || (conn->interest & EPOLLIN) == 0;
}

/* Schedule what is left to do for the connection after its answers were sent. */
static void after_sending(struct conn *conn)
{
    if (needs_settling(conn)) {
        conn_later(conn);
    } else if (conn->first == NULL && conn->current == NULL) {
        conn_deadline(conn, loop_now_ms(conn->server->loop) + conn->server->limits.idle_ms);
    }
}

void answer_advance(struct conn *conn)
{
    struct request *request;

    assert(conn->state == CONN_OPEN);
    while ((request = conn->first) != NULL && answer_is_durable(request)) {
        if (request->ready.len > 0) {
            conn_add_out(conn, &request->ready);
        }
        if (!request->is_answered || request->shared.data != NULL) {
            break;
        }
        assert(conn->n_queued > 0 && request->conn == conn && request->lsn <= conn->server->durable_lsn);
        conn->first = request->next;
        conn->n_queued--;
        if (conn->first == NULL) {
            assert(conn->last == request && conn->n_queued == 0);
            conn->last = NULL;
        }
        request_free(request);
    }
    update_waiting(conn);
    assert((conn->first == NULL) == (conn->last == NULL) && (conn->first == NULL) == (conn->n_queued == 0));
    if (conn->first == NULL) {
        conn_send_continue(conn);
    }
}

void answer_finished(struct request *request)
{
    struct conn *conn = request->conn;

    assert(!request->is_answered); /* every request is answered once */
    if (request->ready.failed) {
        conn->is_broken = true;
    }
    request->is_answered = true;
    if (conn->stops_at == request) {
        conn->stops_at = NULL;
    }
    if (conn->state == CONN_DEAD) {
        return; /* conn_close() frees it */
    }
    if (conn->first == request) {
        answer_advance(conn);
    }
    if (conn->is_busy) {
        return;
    }
    conn_flush(conn);
    if (conn->waiting_at == NULL) {
        after_sending(conn);
    }
}

void http_server_set_durable(struct http_server *server, uint64_t lsn)
{
    struct conn *next;

    assert(lsn >= server->durable_lsn);
    server->durable_lsn = lsn;
    for (struct conn *conn = server->waiting; conn != NULL; conn = next) {
        next = conn->next_waiting;
        assert(conn->state == CONN_OPEN && conn->first != NULL);
        if (answer_is_durable(conn->first)) {
            answer_advance(conn);
            conn_flush(conn);
            after_sending(conn);
        }
    }
}

bool http_server_is_waiting(const struct http_server *server)
{
    return server->waiting != NULL;
}

size_t http_server_count_waiting(const struct http_server *server, uint64_t lsn, size_t limit)
{
    size_t n = 0;

    for (const struct conn *conn = server->waiting; conn != NULL && n < limit; conn = conn->next_waiting) {
        n += conn->first->lsn > lsn && !conn->first->is_streaming ? 1 : 0;
    }
    return n;
}

/* Answer "Expect: 100-continue", once all requests before it are answered. */
void conn_send_continue(struct conn *conn)
{
    if (conn->first != NULL || conn->current == NULL || !conn->current->wants_continue) {
        return;
    }
    conn->current->wants_continue = false;
    buf_add(conn_out(conn), CONTINUE_LINE, sizeof CONTINUE_LINE - 1);
}

void http_probe(struct http_request *request)
{
    struct request *own = (struct request *)request;
    struct conn *conn = own->conn;

    if (conn->first == own && !own->is_answered && !own->is_streaming && own->minor >= 1) {
        buf_add(conn_out(conn), CONTINUE_LINE, sizeof CONTINUE_LINE - 1);
        conn_later(conn);
    }
}

/* ---- answering ---- */

static bool status_has_body(int status)
{
    return status >= 200 && status != 204 && status != 304;
}

/* All but the body. Returns the buffer for the body; NULL: a 500 was sent instead. */
static struct buf *begin_answer(struct request *request, int status, const struct http_header *headers,
                                size_t n_headers, size_t body_len)
{
    struct buf *to = answer_target(request);

    assert(!request->is_answered && !request->is_streaming);
    if (!answer_head(request, to, status, headers, n_headers)) {
        server_notice(request->conn->server, request->conn, 500, "an answer had a malformed header");
        http_answer_error(&request->pub, 500, "internal", "the answer could not be sent");
        return NULL;
    }
    if (status_has_body(status)) {
        buf_adds(to, "Content-Length: ");
        buf_add_number(to, (int64_t)body_len);
        buf_adds(to, "\r\n");
    }
    buf_adds(to, "\r\n");
    return to;
}

void http_answer(struct http_request *request, int status, const struct http_header *headers,
                 size_t n_headers, const void *body, size_t body_len)
{
    struct request *own = (struct request *)request;
    struct buf *to = begin_answer(own, status, headers, n_headers, body_len);

    if (to == NULL) {
        return;
    }
    if (status_has_body(status) && !request->is_head) {
        buf_add(to, body, body_len);
    }
    answer_finished(own);
}

void http_answer_shared(struct http_request *request, int status, const struct http_header *headers,
                        size_t n_headers, const struct http_shared *body)
{
    struct request *own = (struct request *)request;

    if (!status_has_body(status) || request->is_head || body->len <= SPARE_OUT) {
        http_answer(request, status, headers, n_headers, body->data, body->len);
        body->release(body->owner);
        return;
    }
    assert(own->shared.data == NULL && body->data != NULL);
    if (begin_answer(own, status, headers, n_headers, body->len) == NULL) {
        body->release(body->owner);
        return;
    }
    own->shared = *body;
    answer_finished(own);
}

void http_answer_error(struct http_request *request, int status, const char *code, const char *message)
{
    static const struct http_header type = { "Content-Type", "application/json" };
    struct buf body = BUF_INIT(READ_SIZE);

    buf_adds(&body, "{\"error\":{\"code\":");
    json_text_add(&body, code, strlen(code), JSON_TEXT_SAFE);
    buf_adds(&body, ",\"message\":");
    json_text_add(&body, message, strlen(message), JSON_TEXT_SAFE);
    buf_adds(&body, ",\"lock\":null}}\n");
    http_answer(request, status, &type, 1, body.failed ? "" : body.data, body.failed ? 0 : body.len);
    buf_release(&body);
}
