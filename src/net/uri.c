#include "net/uri.h"

#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

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

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void uri_decode(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int high = text[i] == '%' && i + 2 < len ? hex_value(text[i + 1]) : -1;
        int low = high >= 0 ? hex_value(text[i + 2]) : -1;

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

/* A part as our own copy, so that nobody must know which allocator it came from. */
static char *part_of(CURLU *handle, CURLUPart which, unsigned flags)
{
    char *part = NULL;
    char *copy = NULL;
    CURLUcode rc = curl_url_get(handle, which, &part, flags);

    if (rc == CURLUE_OK) {
        copy = strdup(part);
    } else if (rc == CURLUE_NO_QUERY || rc == CURLUE_NO_PORT || rc == CURLUE_NO_USER ||
               rc == CURLUE_NO_FRAGMENT) {
        copy = strdup("");
    }
    curl_free(part);
    return copy;
}

static char *make_authority(CURLU *handle)
{
    struct buf text = BUF_INIT(1024);
    char *host = part_of(handle, CURLUPART_HOST, 0);
    char *port = part_of(handle, CURLUPART_PORT, CURLU_NO_DEFAULT_PORT);

    if (host != NULL && port != NULL) {
        buf_addf(&text, *port == '\0' ? "%s" : "%s:%s", host, port);
    } else {
        text.failed = true;
    }
    free(host);
    free(port);
    return buf_take(&text);
}

static void strip_brackets(char *host)
{
    size_t len = host == NULL ? 0 : strlen(host);

    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        memmove(host, host + 1, len - 2);
        host[len - 2] = '\0';
    }
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
    CURLU *handle = curl_url();
    struct uri uri = { 0 };
    char *scheme = NULL;
    char *user = NULL;
    char *fragment = NULL;
    bool ok = false;

    if (handle == NULL || curl_url_set(handle, CURLUPART_URL, text, CURLU_PATH_AS_IS) != CURLUE_OK) {
        goto done;
    }
    scheme = part_of(handle, CURLUPART_SCHEME, 0);
    user = part_of(handle, CURLUPART_USER, 0);
    fragment = part_of(handle, CURLUPART_FRAGMENT, 0);
    uri.host = part_of(handle, CURLUPART_HOST, 0);
    uri.path = part_of(handle, CURLUPART_PATH, 0);
    uri.query = part_of(handle, CURLUPART_QUERY, 0);
    uri.authority = make_authority(handle);
    if (scheme == NULL || user == NULL || fragment == NULL || uri.host == NULL || uri.path == NULL ||
        uri.query == NULL || uri.authority == NULL || *user != '\0' || *fragment != '\0') {
        goto done;
    }
    uri.tls = strcmp(scheme, "https") == 0;
    if (!uri.tls && strcmp(scheme, "http") != 0) {
        goto done;
    }
    strip_brackets(uri.host);
    strip_slashes(uri.path);
    *out = uri;
    memset(&uri, 0, sizeof uri);
    ok = true;

done:
    free(scheme);
    free(user);
    free(fragment);
    uri_release(&uri);
    curl_url_cleanup(handle);
    return ok;
}

void uri_release(struct uri *uri)
{
    free(uri->host);
    free(uri->authority);
    free(uri->path);
    free(uri->query);
    memset(uri, 0, sizeof *uri);
}
