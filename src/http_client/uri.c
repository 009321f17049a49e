#include "http_client/uri.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <http_parser.h>

#include "base/text.h"

static bool is_unreserved(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '~';
}

void uri_encode(struct buf *out, const char *text, size_t len, bool keep_slash)
{
    static const char hex[] = "0123456789ABCDEF";

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        char encoded[3] = { '%', hex[c >> 4], hex[c & 15] };

        if (is_unreserved(text[i]) || (keep_slash && c == '/')) {
            buf_add(out, &text[i], 1);
        } else {
            buf_add(out, encoded, sizeof encoded);
        }
    }
}

void uri_decode(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int high = text[i] == '%' && i + 2 < len ? text_hex_digit(text[i + 1]) : -1;
        int low = high >= 0 ? text_hex_digit(text[i + 2]) : -1;

        if (low >= 0) {
            char byte = (char)(high * 16 + low);
            buf_add(out, &byte, 1);
            i += 2;
        } else {
            buf_add(out, &text[i], 1);
        }
    }
}

void uri_add_query(struct buf *out, const char *name, const char *value)
{
    if (out->len > 0) {
        buf_adds(out, "&");
    }
    uri_encode(out, name, strlen(name), false);
    buf_adds(out, "=");
    uri_encode(out, value, strlen(value), false);
}

/* Without the brackets of an IPv6 address. */
static char *part_of(const char *text, const struct http_parser_url *url, enum http_parser_url_fields which)
{
    return strndup(text + url->field_data[which].off, url->field_data[which].len);
}

static char *make_authority(const char *host, bool has_port, unsigned port, unsigned usual)
{
    struct buf text = BUF_INIT(1024);
    const char *open = strchr(host, ':') != NULL ? "[" : "";
    const char *close = *open != '\0' ? "]" : "";

    buf_addf(&text, "%s%s%s", open, host, close);
    if (has_port && port != usual) {
        buf_addf(&text, ":%u", port);
    }
    return buf_take(&text);
}

static void strip_slashes(char *path)
{
    size_t len = strlen(path);

    while (len > 0 && path[len - 1] == '/') {
        path[--len] = '\0';
    }
}

static bool has(const struct http_parser_url *url, enum http_parser_url_fields which)
{
    return (url->field_set & (1U << which)) != 0;
}

bool uri_parse(const char *text, struct uri *out)
{
    struct http_parser_url url;
    struct uri uri = { 0 };

    http_parser_url_init(&url);
    uri.tls = strncasecmp(text, "https://", 8) == 0;
    if ((!uri.tls && strncasecmp(text, "http://", 7) != 0) ||
        http_parser_parse_url(text, strlen(text), 0, &url) != 0 || !has(&url, UF_HOST) ||
        has(&url, UF_USERINFO) || has(&url, UF_FRAGMENT)) {
        return false;
    }
    uri.port = has(&url, UF_PORT) ? url.port : uri.tls ? 443 : 80;
    uri.host = part_of(text, &url, UF_HOST);
    uri.path = part_of(text, &url, UF_PATH); /* empty if there is none */
    uri.query = part_of(text, &url, UF_QUERY);
    if (uri.host == NULL || uri.path == NULL || uri.query == NULL) {
        uri_release(&uri);
        return false;
    }
    uri.authority = make_authority(uri.host, has(&url, UF_PORT), url.port, uri.tls ? 443 : 80);
    if (uri.authority == NULL) {
        uri_release(&uri);
        return false;
    }
    strip_slashes(uri.path);
    *out = uri;
    return true;
}

void uri_release(struct uri *uri)
{
    free(uri->host);
    free(uri->authority);
    free(uri->path);
    free(uri->query);
    memset(uri, 0, sizeof *uri);
}
