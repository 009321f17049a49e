/*
 * The head of a request: libhttp-parser finds its parts, and this file collects
 * them. Debian builds that library without its strict mode (whatever its
 * header says), so it accepts what a proxy in front of this server may read
 * differently: bare line feeds, folded lines, spaces before a colon, a wrong
 * byte in place of a line feed. All that is refused here. For the same reason
 * the library never sees a body: body.c reads those.
 */
#include "server/http/http_internal.h"

#include <string.h>

static struct request *of(http_parser *parser)
{
    return parser->data;
}

/* End the text that is being collected; the next part begins. */
static int part_begin(struct request *request, enum text_part part)
{
    if (request->part != PART_NONE) {
        buf_add(&request->text, "", 1);
    }
    request->part = part;
    return request->text.failed ? 1 : 0;
}

static int on_target(http_parser *parser, const char *at, size_t len)
{
    struct request *request = of(parser);

    request->part = PART_TARGET;
    request->target_len += len;
    if (request->target_len > request->conn->server->limits.max_target_bytes) {
        request_refuse(request, 414, "the path and query are too long");
        return 1;
    }
    buf_add(&request->text, at, len);
    return request->text.failed ? 1 : 0;
}

static int on_name(http_parser *parser, const char *at, size_t len)
{
    struct request *request = of(parser);

    if (request->part != PART_NAME) {
        if (part_begin(request, PART_NAME) != 0) {
            return 1;
        }
        if (request->n_headers == MAX_HEADERS) {
            request_refuse(request, 431, "there are too many headers");
            return 1;
        }
        request->at[request->n_headers++].name = (uint32_t)request->text.len;
    }
    buf_add(&request->text, at, len);
    return request->text.failed ? 1 : 0;
}

static int on_value(http_parser *parser, const char *at, size_t len)
{
    struct request *request = of(parser);

    if (request->part != PART_VALUE) {
        if (part_begin(request, PART_VALUE) != 0) {
            return 1;
        }
        request->at[request->n_headers - 1].value = (uint32_t)request->text.len;
    }
    buf_add(&request->text, at, len);
    return request->text.failed ? 1 : 0;
}

static int on_head_end(http_parser *parser)
{
    struct request *request = of(parser);

    request->is_keep_alive = http_should_keep_alive(parser) != 0;
    parser->upgrade = 0; /* no other protocol is supported: treat the request as an ordinary one */
    return part_begin(request, PART_NONE) == 0 ? 1 : -1; /* 1: there is no body (for the library) */
}

static int on_end(http_parser *parser)
{
    of(parser)->is_head_done = true;
    http_parser_pause(parser, 1);
    return 0;
}

static const http_parser_settings settings = {
    .on_url = on_target,
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_headers_complete = on_head_end,
    .on_message_complete = on_end,
};

/* Every line ends in CR LF, and none begins with white space (a folded header). */
static bool lines_are_sound(struct request *request, const char *data, size_t len)
{
    const char *from = data;
    const char *end = data + len;
    const char *lf;

    if (request->last_byte == '\n' && (*data == ' ' || *data == '\t')) {
        return false;
    }
    while ((lf = memchr(from, '\n', (size_t)(end - from))) != NULL) {
        char before = lf == data ? request->last_byte : lf[-1];
        if (before != '\r' || (lf + 1 < end && (lf[1] == ' ' || lf[1] == '\t'))) {
            return false;
        }
        if (request->line_bytes == 0) {
            request->line_bytes = request->head_bytes + (size_t)(lf - data) + 1;
        }
        from = lf + 1;
    }
    return true;
}

/* Translate the library's error for the client. */
static void refuse_parsed(struct request *request, const http_parser *parser, char first)
{
    switch (HTTP_PARSER_ERRNO(parser)) {
    case HPE_INVALID_METHOD:
        if (request->head_bytes == 0 && (first < 'A' || first > 'Z')) {
            request_refuse(request, 400, first == 0x16 ? "this port does not speak TLS" : "this is not HTTP");
        } else {
            request_refuse(request, 501, "the method is not known here");
        }
        break;
    case HPE_INVALID_VERSION:
        request_refuse(request, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
        break;
    case HPE_HEADER_OVERFLOW:
        request_refuse(request, 431, "the headers are too long");
        break;
    case HPE_UNEXPECTED_CONTENT_LENGTH:
    case HPE_INVALID_CONTENT_LENGTH:
        request_refuse(request, 400, "the body's length is not clear");
        break;
    default:
        /* The callbacks fail without a reason of their own only when the text is full. */
        if (request->text.failed) {
            request_refuse(request, 431, "the headers are too long");
        }
        request_refuse(request, 400, "the request is malformed");
        break;
    }
}

size_t head_input(struct conn *conn, const char *data, size_t len)
{
    struct request *request = conn->current;
    size_t taken = http_parser_execute(&conn->parser, &settings, data, len);
    enum http_errno problem = HTTP_PARSER_ERRNO(&conn->parser);

    if (problem != HPE_OK && problem != HPE_PAUSED) {
        refuse_parsed(request, &conn->parser, *data);
        return taken;
    }
    if (!lines_are_sound(request, data, taken)) {
        request_refuse(request, 400, "a line must end in CR LF and not begin with white space");
        return taken;
    }
    request->head_bytes += taken;
    if (taken > 0) {
        request->last_byte = data[taken - 1];
    }
    if (request->head_bytes > conn->server->limits.max_head_bytes) {
        request_refuse(request, 431, "the headers are too long");
    } else if (request->is_head_done) {
        head_finish(request, &conn->parser, len - taken);
    }
    return taken;
}
