/* The parts of an http:// or https:// URL. */
#ifndef HTTP_PARSE_URL_H
#define HTTP_PARSE_URL_H

#include <stdbool.h>
#include <stddef.h>

struct url_part {
    const char *at; /* borrowed; into the URL */
    size_t len;
};

struct url {
    bool is_tls;
    bool has_user;     /* and perhaps a password: before '@' */
    bool has_fragment; /* after '#' */
    bool has_port;
    unsigned port;        /* 80 or 443 if has_port is false */
    struct url_part host; /* without the brackets of an IPv6 address; not empty */
    struct url_part path; /* with its '/'; empty if there is none */
    struct url_part query;
};

/* False if the text is not such a URL: then *out is not written. */
bool url_split(const char *text, struct url *out);

#endif
