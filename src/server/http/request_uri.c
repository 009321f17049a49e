#include "server/http/http_server.h"

#include <string.h>

size_t http_path_split(const char *path, struct http_slice *out, size_t max)
{
    size_t count = 0;

    if (*path == '/') {
        path++;
    }
    for (;;) {
        size_t len = (size_t)(strchrnul(path, '/') - path);
        if (count < max) {
            out[count] = (struct http_slice){ path, len };
        }
        count++;
        if (path[len] == '\0') {
            return count;
        }
        path += len + 1;
    }
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

/* The byte at raw[*at], moving *at behind it; -1 if it is not well-formed, or a NUL. */
static int decode_one(struct http_slice raw, size_t *at)
{
    int high;
    int low;

    if (raw.data[*at] != '%') {
        return (unsigned char)raw.data[(*at)++];
    }
    if (raw.len - *at < 3) {
        return -1;
    }
    high = hex_value(raw.data[*at + 1]);
    low = hex_value(raw.data[*at + 2]);
    *at += 3;
    if (high < 0 || low < 0 || (high == 0 && low == 0)) {
        return -1;
    }
    return high * 16 + low;
}

/* What is in front of the first '%' is as it is. */
static size_t copy_plain(struct http_slice raw, char *out, size_t out_size)
{
    size_t room = raw.len < out_size ? raw.len : out_size;
    size_t len = strnlen(raw.data, room);
    const char *escape = memchr(raw.data, '%', len);

    len = escape == NULL ? len : (size_t)(escape - raw.data);
    memcpy(out, raw.data, len);
    return len;
}

static bool decode(struct http_slice raw, bool plus_is_space, char *out, size_t out_size)
{
    size_t len = plus_is_space ? 0 : copy_plain(raw, out, out_size);

    for (size_t at = len; at < raw.len;) {
        bool is_plus = plus_is_space && raw.data[at] == '+';
        int byte = decode_one(raw, &at);
        if (byte <= 0 || len + 1 >= out_size) {
            return false;
        }
        out[len++] = is_plus ? ' ' : (char)byte;
    }
    if (len >= out_size) {
        return false;
    }
    out[len] = '\0';
    return true;
}

bool http_decode(struct http_slice raw, char *out, size_t out_size)
{
    return decode(raw, false, out, out_size);
}

bool http_query_next(const char **cursor, struct http_slice *out_name, struct http_slice *out_value)
{
    const char *pair = *cursor;
    size_t len;
    size_t name_len;

    while (*pair == '&') {
        pair++;
    }
    if (*pair == '\0') {
        return false;
    }
    len = strcspn(pair, "&");
    name_len = strcspn(pair, "=&");
    *out_name = (struct http_slice){ pair, name_len };
    *out_value = (struct http_slice){ pair + name_len, 0 };
    if (pair[name_len] == '=') {
        *out_value = (struct http_slice){ pair + name_len + 1, len - name_len - 1 };
    }
    *cursor = pair + len;
    return true;
}

/* Whether the raw text decodes to `name`, without a place to decode it to. */
static bool decodes_to(struct http_slice raw, const char *name)
{
    size_t at = 0;

    while (at < raw.len) {
        bool is_plus = raw.data[at] == '+';
        int byte = decode_one(raw, &at);
        if (byte <= 0 || *name == '\0' || (is_plus ? ' ' : (char)byte) != *name) {
            return false;
        }
        name++;
    }
    return *name == '\0';
}

enum http_found http_query_get(const char *query, const char *name, char *out, size_t out_size)
{
    struct http_slice found_name;
    struct http_slice value;

    while (http_query_next(&query, &found_name, &value)) {
        if (decodes_to(found_name, name)) {
            return decode(value, true, out, out_size) ? HTTP_FOUND : HTTP_MALFORMED;
        }
    }
    return HTTP_ABSENT;
}
