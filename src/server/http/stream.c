/* Answers without a known end. HTTP/1.1 gets chunks; HTTP/1.0 gets a connection that closes. */
#include "server/http/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void http_stream_begin(struct http_request *pub, int status, const struct http_header *headers,
                       size_t n_headers)
{
    struct request *request = (struct request *)pub;
    struct buf *to;

    assert(!request->is_answered && !request->is_streaming);
    if (!answer_headers_are_sound(headers, n_headers)) {
        server_notice(request->conn->server, request->conn, 500, "a stream had a malformed header");
        headers = NULL;
        n_headers = 0;
        status = 500;
    }
    request->is_streaming = true;
    request->is_chunked = request->minor > 0;
    if (!request->is_chunked) {
        request->is_keep_alive = false;
        request->conn->is_last = true;
    }
    to = answer_target(request);
    answer_head(request, to, status, headers, n_headers);
    buf_adds(to, request->is_chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    answer_added(request);
}

static size_t waiting_bytes(const struct request *request)
{
    return request->conn->first == request ? conn_unsent(request->conn) : request->ready.len;
}

bool http_stream_send(struct http_request *pub, const void *data, size_t len)
{
    struct request *request = (struct request *)pub;
    struct conn *conn = request->conn;
    struct buf *to;
    char size_line[24];

    assert(request->is_streaming && !request->is_answered);
    if (conn->state == CONN_DEAD || conn->is_broken) {
        return false;
    }
    if (len == 0 || pub->is_head) {
        return true; /* an empty chunk would be the end */
    }
    if (waiting_bytes(request) + len > conn->server->limits.max_stream_bytes) {
        server_notice(conn->server, conn, 0, "a stream's reader is too slow and is cut off");
        conn->is_broken = true;
        conn_later(conn);
        return false;
    }
    to = answer_target(request);
    if (request->is_chunked) {
        (void)snprintf(size_line, sizeof size_line, "%zx\r\n", len);
        buf_adds(to, size_line);
    }
    buf_add(to, data, len);
    if (request->is_chunked) {
        buf_adds(to, "\r\n");
    }
    answer_added(request);
    return !conn->is_broken;
}

void http_stream_end(struct http_request *pub)
{
    struct request *request = (struct request *)pub;

    assert(request->is_streaming && !request->is_answered);
    if (request->is_chunked && !pub->is_head && request->conn->state != CONN_DEAD) {
        struct buf *to = answer_target(request);
        buf_adds(to, "0\r\n\r\n");
        request->conn->is_broken = request->conn->is_broken || to->failed;
    }
    answer_finished(request);
}
