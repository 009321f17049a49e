/* Bodies: of a known length, or chunked. Malformed chunks are refused. */
#include "server/http/http_internal.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"

/* Data of the body. Returns the bytes taken. */
static size_t take_data(struct request *request, const char *data, size_t len)
{
    struct http_server *server = request->conn->server;
    size_t part = len < request->body_left ? len : (size_t)request->body_left;
    size_t most = server->limits.max_bodies_bytes;

    if (part > request->max_body - request->body.len) {
        request_refuse(request, 413, "the body is too large");
        return part;
    }
    if (request->body_kind == BODY_CHUNKED) {
        request->body_len = request->body.len + part;
    }
    if (request->body_len > SMALL_BODY) {
        most -= most / 8; /* large bodies must not keep out small ones, least of all renewals */
    }
    /* The limit on connections bounds the tiny ones. */
    if (request->body_len > TINY_BODY &&
        (server->bodies_bytes > most || part > most - server->bodies_bytes)) {
        request_refuse(request, 503, "too many bodies are being received");
        return part;
    }
    buf_add(&request->body, data, part);
    if (request->body.failed) {
        request_refuse(request, 503, "there is no memory for the body");
        return part;
    }
    server->bodies_bytes += part;
    request->counted += part;
    request->body_left -= part;
    return part;
}

static void malformed(struct request *request)
{
    request_refuse(request, 400, "the chunked body is malformed");
}

static void size_byte(struct request *request, char c)
{
    int digit = text_hex_digit(c);

    if (digit >= 0) {
        if (request->chunk == CHUNK_SIZE_FIRST) {
            request->body_left = 0;
        }
        request->body_left = request->body_left * 16 + (uint64_t)digit;
        request->chunk = CHUNK_SIZE;
        if (request->body_left > request->max_body - request->body.len) {
            request_refuse(request, 413, "the body is too large");
        }
    } else if (request->chunk == CHUNK_SIZE && c == '\r') {
        request->chunk = CHUNK_SIZE_LF;
    } else if (request->chunk == CHUNK_SIZE && c == ';') {
        request->chunk = CHUNK_EXTENSION;
    } else {
        malformed(request);
    }
}

/* Text that is ignored, up to its CR. */
static void ignored_byte(struct request *request, char c, enum chunk_state after_cr)
{
    if (c == '\r') {
        request->chunk = after_cr;
    } else if (((unsigned char)c < ' ' && c != '\t') || c == 0x7f) {
        malformed(request);
    }
}

static void expect_byte(struct request *request, char c, char wanted, enum chunk_state next)
{
    if (c != wanted) {
        malformed(request);
    }
    request->chunk = next;
}

/* One byte outside the data. */
static void chunk_byte(struct request *request, char c, bool *out_is_complete)
{
    switch (request->chunk) {
    case CHUNK_SIZE_FIRST:
    case CHUNK_SIZE:
        size_byte(request, c);
        break;
    case CHUNK_EXTENSION:
        ignored_byte(request, c, CHUNK_SIZE_LF);
        break;
    case CHUNK_SIZE_LF:
        expect_byte(request, c, '\n', request->body_left > 0 ? CHUNK_DATA : TRAILER_FIRST);
        break;
    case CHUNK_DATA_CR:
        expect_byte(request, c, '\r', CHUNK_DATA_LF);
        break;
    case CHUNK_DATA_LF:
        expect_byte(request, c, '\n', CHUNK_SIZE_FIRST);
        break;
    case TRAILER_FIRST:
        request->chunk = TRAILER;
        if (c == ' ' || c == '\t') {
            malformed(request);
        }
        ignored_byte(request, c, TRAILER_END_LF);
        break;
    case TRAILER:
        ignored_byte(request, c, TRAILER_LF);
        break;
    case TRAILER_LF:
        expect_byte(request, c, '\n', TRAILER_FIRST);
        break;
    case TRAILER_END_LF:
        expect_byte(request, c, '\n', CHUNK_SIZE_FIRST);
        *out_is_complete = request->refuse_status == 0;
        break;
    case CHUNK_DATA:
        assert(false); /* chunks_input() takes the data */
        break;
    }
}

static size_t chunks_input(struct request *request, const char *data, size_t len, bool *out_is_complete)
{
    size_t max_around = request->conn->server->limits.max_head_bytes;
    size_t taken = 0;

    while (taken < len && !*out_is_complete && request->refuse_status == 0) {
        if (request->chunk == CHUNK_DATA) {
            taken += take_data(request, data + taken, len - taken);
            if (request->body_left == 0) {
                request->chunk = CHUNK_DATA_CR;
            }
            continue;
        }
        chunk_byte(request, data[taken++], out_is_complete);
        if (++request->around_bytes > max_around + CHUNK_OVERHEAD * request->body.len) {
            request_refuse(request, 413, "the body has more chunk headers than body");
        }
    }
    return taken;
}

size_t body_input(struct request *request, const char *data, size_t len, bool *out_is_complete)
{
    size_t taken = 0;
    bool is_complete = false;

    if (request->body_kind == BODY_CHUNKED) {
        taken = chunks_input(request, data, len, &is_complete);
    } else {
        taken = request->body_kind == BODY_LENGTH ? take_data(request, data, len) : 0;
        is_complete = request->body_left == 0 && request->refuse_status == 0;
    }
    *out_is_complete = is_complete;
    return taken;
}
