/*
 * Reading a request: its head, then its body.
 *
 * src/http_parse finds the parts of a head, and this file collects them. Debian builds libhttp-parser without its
 * strict mode (whatever its header says), so it accepts what a proxy in front of this server may read differently:
 * bare line feeds, folded lines, spaces before a colon, a wrong byte in place of a line feed. All that is refused
 * here. For the same reason the library never sees a body.
 *
 * When the head is complete: whether it is valid, whether there is a body, and what the client expects.
 */
#include "server/http/http_internal.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

/* "GET /x HTTP/1.1\r\n": what is around method and target when every space is single. */
enum { LINE_AROUND = sizeof "  HTTP/1.1\r\n" - 1 };

/* The first reason counts. Returns false. */
static bool refuse(struct request *request, int status, const char *text)
{
    if (request->refuse_status == 0) {
        request->refuse_status = status;
        request->refuse_text = text;
    }
    return false;
}

/* ---- the parts of a head, once it is complete ---- */

/* tchar of RFC 9110. */
/* clang-format off */
static const bool is_tchar[256] = {
    ['!'] = 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, /* no "(),/ */
    ['0'] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    ['A'] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    ['^'] = 1, 1, 1, /* _ and ` */
    ['a'] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    ['|'] = 1, ['~'] = 1,
};
/* clang-format on */

bool head_name_is_sound(const char *name)
{
    if (*name == '\0') {
        return false;
    }
    while (is_tchar[(unsigned char)*name]) {
        name++;
    }
    return *name == '\0';
}

/* The library lets a control character pass at the beginning of a value. */
bool head_value_is_sound(const char *value, size_t len)
{
    for (size_t at = text_plain(value, len); at < len; at++) {
        if (((unsigned char)value[at] < ' ' && value[at] != '\t') || value[at] == 0x7f) {
            return false;
        }
    }
    return true;
}

/* Turn the offsets into strings. A NUL inside one would cut it short: not allowed. */
static bool take_headers(struct request *request)
{
    for (size_t i = 0; i < request->n_headers; i++) {
        const char *name = request->text.data + request->at[i].name;
        char *value = request->text.data + request->at[i].value;
        size_t end = i + 1 < request->n_headers ? request->at[i + 1].name : request->text.len;
        size_t len = strlen(value);

        if (strlen(name) + 1 != request->at[i].value - request->at[i].name ||
            len + 1 != end - request->at[i].value || !head_name_is_sound(name)) {
            return refuse(request, 400, "the name of a header is malformed");
        }
        if (!head_value_is_sound(value, len)) {
            return refuse(request, 400, "a header has a control character");
        }
        while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t')) {
            value[--len] = '\0';
        }
        request->headers[i] = (struct http_header){ name, value };
    }
    request->pub.headers = request->headers;
    request->pub.n_headers = request->n_headers;
    return true;
}

static bool take_target(struct request *request)
{
    char *target = request->text.data;
    char *query;

    for (size_t i = 0; i < request->target_len; i++) {
        /* Only visible ASCII, as the RFC has it; everything else comes percent-encoded. */
        if (target[i] < 0x21 || target[i] > 0x7e || target[i] == '#') {
            return refuse(request, 400, "the path has characters that must be percent-encoded");
        }
    }
    if (*target != '/' && strcmp(target, "*") != 0) {
        /* "http://host/path", as clients send it to a proxy, is accepted. */
        char *authority = strstr(target, "://");
        size_t host_len;
        if (authority == NULL || strcspn(target, "/?") != (size_t)(authority - target) + 1) {
            return refuse(request, 400, "the path does not begin with '/'");
        }
        target = authority + 3;
        host_len = strcspn(target, "/?");
        if (target[host_len] == '/') {
            target += host_len;
        } else {
            /* "http://host?query": the bytes in front of the query have room for the '/'. */
            target += host_len;
            *--target = '/';
        }
    }
    query = strchr(target, '?');
    request->pub.path = target;
    request->pub.query = "";
    if (query != NULL) {
        *query = '\0';
        request->pub.query = query + 1;
    }
    return true;
}

static bool parse_length(const char *text, uint64_t *out)
{
    uint64_t value = 0;

    if (*text == '\0' || strlen(text) > 18) {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return false;
        }
        value = value * 10 + (uint64_t)(*text - '0');
    }
    *out = value;
    return true;
}

struct framing {
    const char *length;
    const char *encoding;
    const char *host;
    const char *expect;
};

/* Headers that decide where the request ends, or which host it is for, may come only once. */
static bool take_framing(struct request *request, struct framing *out)
{
    struct framing found = { NULL, NULL, NULL, NULL };
    const struct {
        const char *name;
        const char **slot;
    } wanted[] = { { "Content-Length", &found.length },
                   { "Transfer-Encoding", &found.encoding },
                   { "Host", &found.host },
                   { "Expect", &found.expect } };

    for (size_t i = 0; i < request->n_headers; i++) {
        const struct http_header *header = &request->headers[i];
        size_t k = 0;

        while (k < sizeof wanted / sizeof wanted[0] && strcasecmp(header->name, wanted[k].name) != 0) {
            k++;
        }
        if (k == sizeof wanted / sizeof wanted[0]) {
            continue;
        }
        if (*wanted[k].slot != NULL) {
            return refuse(request, 400, "a header comes twice that may come once");
        }
        *wanted[k].slot = header->value;
    }
    *out = found;
    return true;
}

/* Before the body is read: whether it is wanted, and how large it may be. */
static void take_limit(struct request *request)
{
    const struct http_server *server = request->conn->server;

    if (server->admit == NULL) {
        return;
    }
    request->pub.is_unwanted = !server->admit(server->context, &request->pub, &request->max_body);
    if (request->max_body > MAX_ANSWER) {
        request->max_body = MAX_ANSWER;
    }
    request->body.max = request->max_body;
}

/* `n_there` bytes behind the head have arrived: a body that ends in them is not asked about. */
static bool take_body_kind(struct request *request, const struct framing *framing, size_t n_there)
{
    if (framing->length != NULL && framing->encoding != NULL) {
        return refuse(request, 400, "Content-Length and Transfer-Encoding exclude each other");
    }
    if (framing->encoding != NULL) {
        if (request->minor == 0) {
            return refuse(request, 400, "HTTP/1.0 has no Transfer-Encoding");
        }
        if (strcasecmp(framing->encoding, "chunked") != 0) {
            return refuse(request, 501, "the only Transfer-Encoding known here is chunked");
        }
        take_limit(request);
        request->body_kind = BODY_CHUNKED;
        request->chunk = CHUNK_SIZE_FIRST;
    } else if (framing->length != NULL) {
        if (!parse_length(framing->length, &request->body_left)) {
            return refuse(request, 400, "the body's length is not a number");
        }
        if (request->body_left > n_there || request->body_left > request->max_body) {
            take_limit(request);
        }
        if (request->body_left > request->max_body && !request->pub.is_unwanted) {
            return refuse(request, 413, "the body is too large");
        }
        request->body_len = request->body_left;
        request->body_kind = request->body_left > 0 ? BODY_LENGTH : BODY_NONE;
    }
    return true;
}

static bool take_expectation(struct request *request, const char *expect)
{
    if (expect == NULL || request->minor == 0) {
        return true;
    }
    if (strcasecmp(expect, "100-continue") != 0) {
        return refuse(request, 417, "the only expectation known here is 100-continue");
    }
    request->wants_continue = request->body_kind != BODY_NONE;
    return true;
}

static bool head_finish(struct request *request, const http_parse_state *parser, size_t n_there)
{
    struct framing framing = { NULL, NULL, NULL, NULL };

    request->minor = parser->http_minor == 0 ? 0 : 1;
    request->pub.method = http_parse_method(parser);
    request->pub.is_head = parser->method == HTTP_HEAD;
    request->body_from_ms = loop_now_ms(request->conn->server->loop);
    if (parser->http_major != 1) {
        return refuse(request, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    }
    if (request->last_byte != '\n' ||
        request->line_bytes != strlen(request->pub.method) + request->target_len + LINE_AROUND) {
        return refuse(request, 400, "the request is malformed");
    }
    if (parser->method == HTTP_CONNECT) {
        return refuse(request, 501, "this is not a proxy");
    }
    if (!take_headers(request) || !take_target(request) || !take_framing(request, &framing)) {
        return false;
    }
    if (framing.host == NULL && request->minor > 0) {
        return refuse(request, 400, "the Host header is missing");
    }
    if (framing.host != NULL && strpbrk(framing.host, " \t,/@") != NULL) {
        return refuse(request, 400, "the Host header is malformed");
    }
    return take_body_kind(request, &framing, n_there) && take_expectation(request, framing.expect);
}

/* ---- the bytes of a head ---- */

static struct request *request_of_parser(http_parse_state *parser)
{
    return parser->data;
}

/* A piece of a part of the head. The first one ends the text of the part before it. */
static int collect_part(struct request *request, enum text_part part, const char *at, size_t len)
{
    if (request->part != part) {
        if (request->part != PART_NONE) {
            buf_add(&request->text, "", 1);
        }
        request->part = part;
        if (part == PART_NAME && request->n_headers == MAX_HEADERS) {
            refuse(request, 431, "there are too many headers");
            return 1;
        }
        if (part == PART_NAME) {
            request->at[request->n_headers++].name = (uint32_t)request->text.len;
        } else if (part == PART_VALUE) {
            request->at[request->n_headers - 1].value = (uint32_t)request->text.len;
        }
    }
    if (part == PART_TARGET) {
        request->target_len += len;
    }
    if (request->target_len > request->conn->server->limits.max_target_bytes) {
        refuse(request, 414, "the path and query are too long");
        return 1;
    }
    buf_add(&request->text, at, len);
    return request->text.failed ? 1 : 0;
}

static int on_target(http_parse_state *parser, const char *at, size_t len)
{
    return collect_part(request_of_parser(parser), PART_TARGET, at, len);
}

static int on_field_name(http_parse_state *parser, const char *at, size_t len)
{
    return collect_part(request_of_parser(parser), PART_NAME, at, len);
}

static int on_field_value(http_parse_state *parser, const char *at, size_t len)
{
    return collect_part(request_of_parser(parser), PART_VALUE, at, len);
}

static int on_head_end(http_parse_state *parser)
{
    struct request *request = request_of_parser(parser);

    request->is_keep_alive = http_parse_keeps_alive(parser);
    parser->upgrade = 0; /* no other protocol is supported: treat the request as an ordinary one */
    return collect_part(request, PART_NONE, "", 0) == 0 ? 1 : -1; /* 1: there is no body (for the library) */
}

static int on_message_end(http_parse_state *parser)
{
    request_of_parser(parser)->is_head_done = true;
    return http_parse_pause(parser);
}

static const http_parse_callbacks callbacks = {
    .on_url = on_target,
    .on_header_field = on_field_name,
    .on_header_value = on_field_value,
    .on_headers_complete = on_head_end,
    .on_message_complete = on_message_end,
};

void head_begin(struct request *request)
{
    http_parse_requests(&request->conn->parser, &callbacks, request);
}

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
static void refuse_parsed(struct request *request, enum http_parse_result problem, char first)
{
    switch (problem) {
    case HTTP_PARSE_BAD_METHOD:
        if (request->head_bytes == 0 && (first < 'A' || first > 'Z')) {
            refuse(request, 400, first == 0x16 ? "this port does not speak TLS" : "this is not HTTP");
        } else {
            refuse(request, 501, "the method is not known here");
        }
        break;
    case HTTP_PARSE_BAD_VERSION:
        refuse(request, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
        break;
    case HTTP_PARSE_HEAD_TOO_LONG:
        refuse(request, 431, "the headers are too long");
        break;
    case HTTP_PARSE_BAD_LENGTH:
        refuse(request, 400, "the body's length is not clear");
        break;
    default:
        /* The callbacks fail without a reason of their own only when the text is full. */
        if (request->text.failed) {
            refuse(request, 431, "the headers are too long");
        }
        refuse(request, 400, "the request is malformed");
        break;
    }
}

size_t head_input(struct conn *conn, const char *data, size_t len)
{
    struct request *request = conn->current;
    size_t taken;
    enum http_parse_result problem = http_parse_run(&conn->parser, data, len, &taken);

    if (problem != HTTP_PARSE_MORE && problem != HTTP_PARSE_PAUSED) {
        refuse_parsed(request, problem, *data);
        return taken;
    }
    if (!lines_are_sound(request, data, taken)) {
        refuse(request, 400, "a line must end in CR LF and not begin with white space");
        return taken;
    }
    request->head_bytes += taken;
    if (taken > 0) {
        request->last_byte = data[taken - 1];
    }
    if (request->head_bytes > conn->server->limits.max_head_bytes) {
        refuse(request, 431, "the headers are too long");
    } else if (request->is_head_done) {
        head_finish(request, &conn->parser.state, len - taken);
    }
    return taken;
}

/* ---- the body: of a known length, or chunked; malformed chunks are refused ---- */

/* Data of the body. Returns the bytes taken. */
static size_t take_data(struct request *request, const char *data, size_t len)
{
    struct http_server *server = request->conn->server;
    size_t part = len < request->body_left ? len : (size_t)request->body_left;
    size_t most = server->limits.max_bodies_bytes;

    if (part > request->max_body - request->body.len) {
        refuse(request, 413, "the body is too large");
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
        refuse(request, 503, "too many bodies are being received");
        return part;
    }
    buf_add(&request->body, data, part);
    if (request->body.failed) {
        refuse(request, 503, "there is no memory for the body");
        return part;
    }
    server->bodies_bytes += part;
    request->counted += part;
    request->body_left -= part;
    return part;
}

static void malformed(struct request *request)
{
    refuse(request, 400, "the chunked body is malformed");
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
            refuse(request, 413, "the body is too large");
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
            refuse(request, 413, "the body has more chunk headers than body");
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
