#include "http_client/uri.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http_parse/url.h"

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

void uri_add_parameter(struct buf *url, const char *name, const char *value)
{
    if (value != NULL) {
        buf_addf(url, "%c%s=", url->len > 0 && strchr(url->data, '?') != NULL ? '&' : '?', name);
        uri_encode(url, value, strlen(value), false);
    }
}

static char *copy_part(struct url_part part)
{
    return strndup(part.at, part.len);
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

bool uri_parse(const char *text, struct uri *out)
{
    struct uri uri = { 0 };
    struct url url;

    if (!url_split(text, &url) || url.has_user || url.has_fragment) {
        return false;
    }
    uri.tls = url.is_tls;
    uri.port = url.port;
    uri.host = copy_part(url.host);
    uri.path = copy_part(url.path);
    uri.query = copy_part(url.query);
    uri.authority =
        uri.host == NULL ? NULL : make_authority(uri.host, url.has_port, url.port, uri.tls ? 443 : 80);
    if (uri.authority == NULL || uri.path == NULL || uri.query == NULL) {
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
