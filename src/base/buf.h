/*
 * A string that grows up to a limit. After a failure (no memory, too long) every further call
 * does nothing, so that a caller checks once, at the end.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf {
    char *data; /* owned; always ends in '\0' once anything was added */
    size_t len;
    size_t cap;
    size_t max;
    bool failed;
};
#define BUF_INIT(max_len)                                                                                    \
    {                                                                                                        \
        NULL, 0, 0, (max_len), false                                                                         \
    }

void buf_add_slowly(struct buf *buf, const void *data, size_t len); /* only for buf_add() */
void *buf_room_slowly(struct buf *buf, size_t most);                /* only for buf_room() */

/* Inline, because answers, logs and journals consist of many small pieces. */
static inline void buf_add(struct buf *buf, const void *data, size_t len)
{
    if (buf->failed || len >= buf->cap - buf->len || len > buf->max - buf->len) {
        buf_add_slowly(buf, data, len);
        return;
    }
    if (len > 0) {
        memcpy(buf->data + buf->len, data, len);
    }
    buf->len += len;
    buf->data[buf->len] = '\0';
}

/* A place for `most` bytes; NULL after a failure. buf_took() says how many were written. */
static inline void *buf_room(struct buf *buf, size_t most)
{
    if (buf->failed || most >= buf->cap - buf->len || most > buf->max - buf->len) {
        return buf_room_slowly(buf, most);
    }
    return buf->data + buf->len;
}

static inline void buf_took(struct buf *buf, size_t len)
{
    assert(len < buf->cap - buf->len); /* buf_room() gave that much */
    buf->len += len;
    buf->data[buf->len] = '\0';
}

static inline void buf_adds(struct buf *buf, const char *text)
{
    buf_add(buf, text, strlen(text));
}

/* The text between double quotes, unescaped. */
void buf_add_quoted(struct buf *buf, const char *text, size_t len);
/* In decimal; faster than printf(). */
void buf_add_number(struct buf *buf, int64_t value);
void buf_addf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vaddf(struct buf *buf, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
/* Reserves space for `more` bytes, when the length is known in advance; false after a failure. */
bool buf_reserve(struct buf *buf, size_t more);
/* The string, which the caller frees; NULL after a failure. Leaves the buffer empty. */
char *buf_take(struct buf *buf);
void buf_release(struct buf *buf);

/*
 * For an array: room for n elements of `size` bytes; the capacity at least doubles. Returns the array, which may have
 * moved. NULL: no memory, and the array is unchanged.
 */
void *array_grow(void *array, size_t size, size_t n, size_t *cap);

#endif
