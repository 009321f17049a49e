#include "server/http/http_server.h"

#include <string.h>

#include "base/text.h"

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

bool http_decode(struct http_slice raw, char *out, size_t out_size)
{
    return text_decode_percent(raw.data, raw.len, false, out, out_size);
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

enum http_found http_query_get(const char *query, const char *name, char *out, size_t out_size)
{
    struct http_slice found;
    struct http_slice value;
    char text[64]; /* no parameter has so long a name */

    while (http_query_next(&query, &found, &value)) {
        if (text_decode_percent(found.data, found.len, true, text, sizeof text) && strcmp(text, name) == 0) {
            return text_decode_percent(value.data, value.len, true, out, out_size) ? HTTP_FOUND
                                                                                   : HTTP_MALFORMED;
        }
    }
    return HTTP_ABSENT;
}
