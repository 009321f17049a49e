/*
 * A head as nearly every client sends it, whole and without anything odd, read a
 * line at a time instead of a byte at a time. What is not so plain, or wrong, is left to
 * the library, which parse.c uses: nothing is refused here.
 */
#include "server/http/internal.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

enum { LENGTH_DIGITS = 9 };

struct quick {
    const char *at;
    const char *end;
    bool has_length;
};

/* A line without its CR LF; false if it is not there, or empty. */
static bool next_line(struct quick *quick, const char **out, size_t *out_len)
{
    const char *lf = memchr(quick->at, '\n', (size_t)(quick->end - quick->at));

    if (lf == NULL || lf - quick->at < 2 || lf[-1] != '\r') {
        return false;
    }
    *out = quick->at;
    *out_len = (size_t)(lf - 1 - quick->at);
    quick->at = lf + 1;
    return true;
}

static void keep(struct request *request, const char *text, size_t len)
{
    buf_add(&request->text, text, len);
    buf_add(&request->text, "", 1);
}

static bool take_method(const char *line, size_t len, enum http_method *out, size_t *out_len)
{
    static const struct {
        const char *name; /* with the space behind it */
        enum http_method method;
    } methods[] = { { "POST ", HTTP_POST },
                    { "GET ", HTTP_GET },
                    { "PUT ", HTTP_PUT },
                    { "DELETE ", HTTP_DELETE },
                    { "HEAD ", HTTP_HEAD } };

    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        size_t n = strlen(methods[i].name);

        if (len > n && memcmp(line, methods[i].name, n) == 0) {
            *out = methods[i].method;
            *out_len = n;
            return true;
        }
    }
    return false;
}

static bool take_request_line(struct conn *conn, struct quick *quick)
{
    static const char version[] = " HTTP/1.1";
    struct request *request = conn->current;
    enum http_method method;
    const char *line;
    const char *target;
    size_t len;
    size_t n;

    if (!next_line(quick, &line, &len) || !take_method(line, len, &method, &n) ||
        len - n < sizeof version - 1 || text_plain(line, len) != len) {
        return false;
    }
    target = line + n;
    len -= n + sizeof version - 1;
    if (memcmp(target + len, version, sizeof version - 1) != 0 || len == 0 || *target != '/' ||
        len > conn->server->limits.max_target_bytes || memchr(target, ' ', len) != NULL ||
        memchr(target, '#', len) != NULL) {
        return false;
    }
    keep(request, target, len);
    request->target_len = len;
    conn->parser.method = (unsigned char)method;
    conn->parser.http_major = 1;
    conn->parser.http_minor = 1;
    return true;
}

static bool begins(const char *name, const char *word)
{
    return strncasecmp(name, word, strlen(word)) == 0;
}

/*
 * What the library itself looks at: how the connection goes on, and where the request
 * ends. It takes some longer names for these.
 */
static bool is_for_library(struct quick *quick, const char *name, const char *value, size_t len)
{
    switch (tolower((unsigned char)*name)) {
    case 'c':
        if (strcasecmp(name, "Content-Length") == 0) {
            bool is_first = !quick->has_length;

            quick->has_length = true;
            return !is_first || len > LENGTH_DIGITS || strspn(value, "0123456789") != len;
        }
        return begins(name, "Content-Length") || begins(name, "Connection");
    case 'p':
        return begins(name, "Proxy-Connection");
    case 't':
        return begins(name, "Transfer-Encoding");
    case 'u':
        return begins(name, "Upgrade");
    default:
        return false;
    }
}

static bool take_header(struct request *request, struct quick *quick, const char *line, size_t len)
{
    const char *end = line + len;
    const char *colon = memchr(line, ':', len);
    const char *value = colon == NULL ? end : colon + 1;
    struct header_at *at = &request->at[request->n_headers];

    while (value < end && (*value == ' ' || *value == '\t')) {
        value++;
    }
    if (value == end || request->n_headers == MAX_HEADERS ||
        text_plain(value, (size_t)(end - value)) != (size_t)(end - value)) {
        return false;
    }
    at->name = (uint32_t)request->text.len;
    keep(request, line, (size_t)(colon - line));
    at->value = (uint32_t)request->text.len;
    keep(request, value, (size_t)(end - value));
    request->n_headers++;
    return !request->text.failed && strlen(request->text.data + at->name) == (size_t)(colon - line) &&
           head_name_is_sound(request->text.data + at->name) &&
           !is_for_library(quick, request->text.data + at->name, request->text.data + at->value,
                           (size_t)(end - value));
}

static bool take_head(struct conn *conn, struct quick *quick)
{
    const char *from = quick->at;
    const char *line;
    size_t len;

    if (!take_request_line(conn, quick)) {
        return false;
    }
    conn->current->line_bytes = (size_t)(quick->at - from);
    while (next_line(quick, &line, &len)) {
        if (!take_header(conn->current, quick, line, len)) {
            return false;
        }
    }
    if (quick->end - quick->at < 2 || memcmp(quick->at, "\r\n", 2) != 0) {
        return false;
    }
    quick->at += 2;
    return (size_t)(quick->at - from) <= conn->server->limits.max_head_bytes && !conn->current->text.failed;
}

size_t quick_head(struct conn *conn, const char *data, size_t len)
{
    struct request *request = conn->current;
    struct quick quick = { data, data + len, false };

    if (request->head_bytes > 0) {
        return 0; /* the library has begun with it */
    }
    if (!take_head(conn, &quick)) {
        request->text.len = 0;
        request->text.failed = false;
        request->n_headers = request->target_len = request->line_bytes = 0;
        return 0;
    }
    request->is_keep_alive = true;
    request->is_head_done = true;
    return (size_t)(quick.at - data);
}
