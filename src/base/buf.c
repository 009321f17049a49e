#include "base/buf.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { ARRAY_FIRST = 16 };

bool buf_reserve(struct buf *buf, size_t more)
{
    size_t cap = buf->cap == 0 ? 128 : buf->cap;
    char *data;

    assert(buf->len <= buf->max && (buf->cap == 0 || buf->len < buf->cap));
    if (buf->failed || more > buf->max - buf->len) {
        buf->failed = true;
        return false;
    }
    if (buf->len + more + 1 <= buf->cap) {
        return true;
    }
    while (cap < buf->len + more + 1) {
        cap *= 2;
    }
    data = realloc(buf->data, cap);
    if (data == NULL) {
        buf->failed = true;
        return false;
    }
    assert(cap > buf->len + more); /* with the '\0' */
    buf->data = data;
    buf->cap = cap;
    return true;
}

void buf_add_slowly(struct buf *buf, const void *data, size_t len)
{
    if (!buf_reserve(buf, len)) {
        return;
    }
    if (len > 0) {
        memcpy(buf->data + buf->len, data, len);
    }
    buf->len += len;
    buf->data[buf->len] = '\0';
}

void buf_add_quoted(struct buf *buf, const char *text, size_t len)
{
    char *at = buf_room(buf, len + 2);

    if (at == NULL) {
        return;
    }
    *at++ = '"';
    memcpy(at, text, len);
    at[len] = '"';
    buf_took(buf, len + 2);
}

void buf_add_number(struct buf *buf, int64_t value)
{
    char space[NUMBER_TEXT_SIZE];
    const char *text = signed_number_text(space, value);

    buf_add(buf, text, (size_t)(space + sizeof space - 1 - text));
}

/* Formats into the free space; only a longer text is formatted a second time. */
void buf_vaddf(struct buf *buf, const char *format, va_list args)
{
    size_t room = buf->failed || buf->cap == 0 ? 0 : buf->cap - buf->len;
    va_list again;
    int n;

    assert(buf->cap == 0 || buf->len < buf->cap);
    va_copy(again, args);
    n = vsnprintf(room == 0 ? NULL : buf->data + buf->len, room, format, again);
    va_end(again);
    if (n < 0 || !buf_reserve(buf, (size_t)n)) {
        buf->failed = true;
        if (room > 0) {
            buf->data[buf->len] = '\0';
        }
        return;
    }
    if ((size_t)n >= room) {
        (void)vsnprintf(buf->data + buf->len, (size_t)n + 1, format, args);
    }
    buf->len += (size_t)n;
}

void buf_addf(struct buf *buf, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    buf_vaddf(buf, format, args);
    va_end(args);
}

void *buf_room_slowly(struct buf *buf, size_t most)
{
    return buf_reserve(buf, most) ? buf->data + buf->len : NULL;
}

char *buf_take(struct buf *buf)
{
    char *data;

    buf_add(buf, "", 0);
    if (buf->failed) {
        free(buf->data);
    }
    data = buf->failed ? NULL : buf->data;
    buf->data = NULL;
    buf->len = buf->cap = 0;
    return data;
}

void buf_release(struct buf *buf)
{
    free(buf->data);
    buf->data = NULL;
    buf->len = buf->cap = 0;
    buf->failed = false;
}

void *array_grow(void *array, size_t size, size_t n, size_t *cap)
{
    size_t wanted = *cap == 0 ? ARRAY_FIRST : 2 * *cap;
    void *grown;

    if (n <= *cap) {
        return array;
    }
    wanted = wanted < n ? n : wanted;
    grown = realloc(array, wanted * size);
    *cap = grown == NULL ? *cap : wanted;
    return grown;
}
