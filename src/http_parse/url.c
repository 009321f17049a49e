#include "http_parse/url.h"

#include <string.h>
#include <strings.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_host_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
           c == '_';
}

/* Hexadecimal, and the name of an interface after '%'. */
static bool is_ipv6(struct url_part host)
{
    size_t i = 0;

    while (i < host.len && strchr("0123456789abcdefABCDEF:.", host.at[i]) != NULL) {
        i++;
    }
    if (i == 0 || (i < host.len && (host.at[i] != '%' || i + 1 == host.len))) {
        return false;
    }
    for (i++; i < host.len; i++) {
        if (!is_host_char(host.at[i]) && host.at[i] != '%' && host.at[i] != '~') {
            return false;
        }
    }
    return true;
}

static bool is_plain_host(struct url_part host)
{
    for (size_t i = 0; i < host.len; i++) {
        if (!is_host_char(host.at[i])) {
            return false;
        }
    }
    return host.len > 0;
}

static bool split_port(const char *at, const char *end, struct url *url)
{
    unsigned port = 0;

    if (at == end) {
        return true; /* none */
    }
    if (*at != ':' || at + 1 == end) {
        return false;
    }
    for (at++; at < end; at++) {
        if (!is_digit(*at)) {
            return false;
        }
        port = 10 * port + (unsigned)(*at - '0');
        if (port > 65535) {
            return false;
        }
    }
    url->has_port = true;
    url->port = port;
    return true;
}

/* [user@]host[:port] */
static bool split_authority(const char *at, const char *end, struct url *url)
{
    const char *user_end = memchr(at, '@', (size_t)(end - at));
    const char *host_end;

    if (user_end != NULL) {
        url->has_user = true;
        at = user_end + 1;
        if (memchr(at, '@', (size_t)(end - at)) != NULL) {
            return false;
        }
    }
    if (at < end && *at == '[') {
        host_end = memchr(at, ']', (size_t)(end - at));
        if (host_end == NULL) {
            return false;
        }
        url->host = (struct url_part){ at + 1, (size_t)(host_end - at - 1) };
        return is_ipv6(url->host) && split_port(host_end + 1, end, url);
    }
    host_end = memchr(at, ':', (size_t)(end - at));
    host_end = host_end == NULL ? end : host_end;
    url->host = (struct url_part){ at, (size_t)(host_end - at) };
    return is_plain_host(url->host) && split_port(host_end, end, url);
}

bool url_split(const char *text, struct url *out)
{
    struct url url = { .is_tls = strncasecmp(text, "https://", 8) == 0 };
    const char *at = text + (url.is_tls ? 8 : 7);
    size_t len;

    if (!url.is_tls && strncasecmp(text, "http://", 7) != 0) {
        return false;
    }
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c <= ' ' || *c == 0x7f) {
            return false;
        }
    }
    url.port = url.is_tls ? 443 : 80;
    len = strcspn(at, "/?#");
    if (!split_authority(at, at + len, &url)) {
        return false;
    }
    at += len;
    len = strcspn(at, "?#");
    url.path = (struct url_part){ at, len };
    at += len;
    if (*at == '?') {
        len = strcspn(at + 1, "#");
        url.query = (struct url_part){ at + 1, len };
        at += 1 + len;
    }
    url.query.at = url.query.at == NULL ? at : url.query.at;
    url.has_fragment = *at == '#';
    *out = url;
    return true;
}
