/* Answers without a known end. HTTP/1.1 gets chunks; HTTP/1.0 gets a connection that closes. */
#include "server/http/http_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void http_stream_begin(struct http_request *request, int status, const struct http_header *headers,
                       size_t n_headers)
{
    struct request *own = (struct request *)request;
    struct buf *to;

    assert(!own->is_answered && !own->is_streaming);
    own->is_streaming = true;
    own->is_chunked = own->minor > 0;
    if (!own->is_chunked) {
        own->is_keep_alive = false;
        own->conn->is_last = true;
    }
    to = answer_target(own);
    if (!answer_head(own, to, status, headers, n_headers)) {
        server_notice(own->conn->server, own->conn, 500, "a stream had a malformed header");
        (void)answer_head(own, to, 500, NULL, 0);
    }
    buf_adds(to, own->is_chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    answer_added(own);
}

static size_t waiting_bytes(const struct request *request)
{
    return request->ready.len + (request->conn->first == request ? conn_unsent(request->conn) : 0);
}

bool http_stream_send(struct http_request *request, const void *data, size_t len)
{
    struct request *own = (struct request *)request;
    struct conn *conn = own->conn;
    struct buf *to;
    char size_line[24];

    assert(own->is_streaming && !own->is_answered);
    assert(conn->state == CONN_OPEN || conn->state == CONN_DEAD);
    if (conn->state == CONN_DEAD || conn->is_broken) {
        return false;
    }
    if (len == 0 || request->is_head) {
        return true; /* an empty chunk would be the end */
    }
    if (waiting_bytes(own) + len > conn->server->limits.max_stream_bytes) {
        server_notice(conn->server, conn, 0, "a stream's reader is too slow: the connection is closed");
        conn->is_broken = true;
        conn_later(conn);
        return false;
    }
    to = answer_target(own);
    if (own->is_chunked) {
        (void)snprintf(size_line, sizeof size_line, "%zx\r\n", len);
        buf_adds(to, size_line);
    }
    buf_add(to, data, len);
    if (own->is_chunked) {
        buf_adds(to, "\r\n");
    }
    answer_added(own);
    return !conn->is_broken;
}

bool http_stream_is_waiting(const struct http_request *request)
{
    return !answer_is_durable((const struct request *)request);
}

void http_stream_end(struct http_request *request)
{
    struct request *own = (struct request *)request;

    assert(own->is_streaming && !own->is_answered);
    if (own->is_chunked && !request->is_head && own->conn->state != CONN_DEAD) {
        struct buf *to = answer_target(own);
        buf_adds(to, "0\r\n\r\n");
        own->conn->is_broken = own->conn->is_broken || to->failed;
    }
    answer_finished(own);
}
