/* The canonical request: one form for all spellings of a request. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "aws/sigv4.h"
#include "base/text.h"
#include "http_client/uri.h"

/*
 * Removes "." and "..", and empty segments. Only a '/' at the end of the original stays:
 * "/a/b/.." is "/a", unlike in RFC 3986, as the services do it.
 */
static void normalise_path(struct buf *out, const char *path)
{
    const char *segment = path;

    while (*segment != '\0') {
        size_t len;

        segment += strspn(segment, "/");
        len = strcspn(segment, "/");
        if (len == 2 && memcmp(segment, "..", 2) == 0) {
            while (out->len > 0 && out->data[--out->len] != '/') {
            }
        } else if (len > 0 && !(len == 1 && *segment == '.')) {
            buf_adds(out, "/");
            buf_add(out, segment, len);
        }
        segment += len;
    }
    if (segment[-1] == '/' || out->len == 0) {
        buf_adds(out, "/");
    }
}

/* S3 signs the path as it was sent; characters that cannot be sent are encoded. */
static void add_plain_path(struct buf *out, const char *path)
{
    for (const char *c = path; *c != '\0'; c++) {
        if (*c == '%') {
            buf_add(out, c, 1);
        } else {
            uri_encode(out, c, 1, true);
        }
    }
}

static void add_path(struct buf *out, const struct sigv4_request *request)
{
    const char *path = request->path == NULL || *request->path == '\0' ? "/" : request->path;
    struct buf normal = BUF_INIT(out->max);

    if (request->is_s3) {
        add_plain_path(out, path);
        return;
    }
    normalise_path(&normal, path);
    if (normal.failed) {
        out->failed = true;
    } else {
        uri_encode(out, normal.data, normal.len, true);
    }
    buf_release(&normal);
}

struct pair {
    char *name;   /* owned */
    char *value;  /* owned */
    size_t place; /* of a header; 0 of a parameter */
};

static void free_pairs(struct pair *pairs, size_t n)
{
    for (size_t i = 0; pairs != NULL && i < n; i++) {
        free(pairs[i].name);
        free(pairs[i].value);
    }
    free(pairs);
}

/* Repeated headers keep the order in which they were given; parameters of one name are ordered by their values. */
static int compare_pairs(const void *a, const void *b)
{
    const struct pair *left = a;
    const struct pair *right = b;
    int order = strcmp(left->name, right->name);

    return order != 0                    ? order
           : left->place != right->place ? (left->place > right->place ? 1 : -1)
                                         : strcmp(left->value, right->value);
}

static char *recode(const char *text, size_t len)
{
    struct buf plain = BUF_INIT(len);
    struct buf encoded = BUF_INIT(3 * len);

    uri_decode(&plain, text, len);
    if (plain.failed) {
        encoded.failed = true;
    } else {
        uri_encode(&encoded, plain.data == NULL ? "" : plain.data, plain.len, false);
    }
    buf_release(&plain);
    return buf_take(&encoded);
}

static void add_query(struct buf *out, const char *query)
{
    size_t n = 0;
    size_t most = 1;
    struct pair *pairs;

    for (const char *c = query; *c != '\0'; c++) {
        most += *c == '&';
    }
    pairs = calloc(most, sizeof *pairs);
    out->failed = out->failed || pairs == NULL;
    while (pairs != NULL && *query != '\0') {
        size_t len = strcspn(query, "&");
        const char *equals = memchr(query, '=', len);
        size_t name_len = equals == NULL ? len : (size_t)(equals - query);

        if (len > 0) {
            pairs[n].name = recode(query, name_len);
            pairs[n].value = equals == NULL ? strdup("") : recode(equals + 1, len - name_len - 1);
            out->failed = out->failed || pairs[n].name == NULL || pairs[n].value == NULL;
            n++;
        }
        query += len + (query[len] == '&');
    }
    if (!out->failed) {
        qsort(pairs, n, sizeof *pairs, compare_pairs);
        for (size_t i = 0; i < n; i++) {
            buf_addf(out, "%s%s=%s", i == 0 ? "" : "&", pairs[i].name, pairs[i].value);
        }
    }
    free_pairs(pairs, n);
}

static bool is_header_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Removes blanks at the ends, and joins several into one. */
static char *squeeze(const char *value)
{
    struct buf out = BUF_INIT(strlen(value));

    for (const char *c = value; *c != '\0'; c++) {
        if (!is_header_blank(*c)) {
            if (out.len > 0 && is_header_blank(c[-1])) {
                buf_adds(&out, " ");
            }
            buf_add(&out, c, 1);
        }
    }
    return buf_take(&out);
}

static void add_headers(struct buf *out, struct buf *names, const struct sigv4_request *request)
{
    size_t n = request->n_headers;
    struct pair *pairs = calloc(n == 0 ? 1 : n, sizeof *pairs);

    out->failed = out->failed || pairs == NULL;
    for (size_t i = 0; pairs != NULL && i < n; i++) {
        pairs[i].name = strdup(request->headers[i].name);
        text_lower(pairs[i].name);
        pairs[i].value = squeeze(request->headers[i].value);
        pairs[i].place = i;
        out->failed = out->failed || pairs[i].name == NULL || pairs[i].value == NULL;
    }
    if (!out->failed) {
        qsort(pairs, n, sizeof *pairs, compare_pairs);
        for (size_t i = 0; i < n; i++) {
            if (i > 0 && strcmp(pairs[i].name, pairs[i - 1].name) == 0) {
                buf_addf(out, ",%s", pairs[i].value);
                continue;
            }
            buf_addf(out, "%s%s:%s", i == 0 ? "" : "\n", pairs[i].name, pairs[i].value);
            buf_addf(names, "%s%s", i == 0 ? "" : ";", pairs[i].name);
        }
        buf_adds(out, "\n");
    }
    free_pairs(pairs, n);
}

void sigv4_canonical(const struct sigv4_request *request, const char *payload_hash, struct buf *out_canonical,
                     struct buf *out_signed_headers)
{
    buf_addf(out_canonical, "%s\n", request->method);
    add_path(out_canonical, request);
    buf_adds(out_canonical, "\n");
    add_query(out_canonical, request->query == NULL ? "" : request->query);
    buf_adds(out_canonical, "\n");
    add_headers(out_canonical, out_signed_headers, request);
    buf_addf(out_canonical, "\n%s\n%s", out_signed_headers->data == NULL ? "" : out_signed_headers->data,
             payload_hash);
}
