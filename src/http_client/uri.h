/* Percent-encoding as AWS requires it, and URL parsing. */
#ifndef HTTP_CLIENT_URI_H
#define HTTP_CLIENT_URI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Everything but A-Z a-z 0-9 - _ . ~ becomes %XX; '/' stays if `keep_slash`. */
void uri_encode(struct buf *out, const char *text, size_t len, bool keep_slash);

/* %XX becomes the byte; any other % stays. '+' stays '+'. */
void uri_decode(struct buf *out, const char *text, size_t len);

/* Adds "&name=value", encoded; without the '&' if `out` is empty. */
void uri_add_query(struct buf *out, const char *name, const char *value);

/* Adds "?name=value" to a URL, or "&name=value" if it has a query, with the value encoded. Nothing if it is NULL. */
void uri_add_parameter(struct buf *url, const char *name, const char *value);

struct uri {
    bool tls;
    unsigned port;   /* the scheme's own if it names none */
    char *host;      /* owned; an IPv6 address without its brackets */
    char *authority; /* owned; host, with brackets, and the port unless it is the scheme's own */
    char *path;      /* owned; as written, without a '/' at the end: "" or "/..." */
    char *query;     /* owned; "" if there is none */
};

/* False if it is not an absolute http or https URL, or has a user, a password or a fragment. */
bool uri_parse(const char *text, struct uri *out);
void uri_release(struct uri *uri);

#endif
