/*
 * Numbers, strings and metadata in as few bytes as they need, written to a buffer and read in place.
 *
 * A number has seven bits in a byte, the lowest first; the last byte is below 0x80. A string keeps its '\0', so that a
 * reader can borrow it. From the second time on a string is a reference to the first.
 */
#ifndef BASE_PACKED_H
#define BASE_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "belay.h"

enum { VARINT_MAX = 10 }; /* bytes */

/* Returns the number of bytes. */
static inline size_t varint_write(unsigned char out[VARINT_MAX], uint64_t value)
{
    size_t n = 0;

    while (value >= 0x80) {
        out[n++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    out[n++] = (unsigned char)value;
    return n;
}

/* Moves *at behind the number. False: there is none. */
static inline bool varint_read(const unsigned char **at, const unsigned char *end, uint64_t *out_value)
{
    const unsigned char *from = *at;
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && from != end; shift += 7) {
        unsigned char byte = *from++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *at = from;
            *out_value = value;
            return true;
        }
    }
    return false;
}

/* The sign becomes the lowest bit, so that small negative numbers are short, too. */
static inline uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0);
}

static inline int64_t zigzag_back(uint64_t value)
{
    return (int64_t)(value >> 1 ^ (~(value & 1) + 1));
}

enum { PACKED_SEEN_MAX = 16 };

/* A string that was written in full. */
struct packed_seen {
    const char *text; /* borrowed */
    size_t len;
};

struct packed_writer {
    struct buf *to;
    struct packed_seen seen[PACKED_SEEN_MAX];
    size_t n_seen;
};

struct packed_reader {
    const unsigned char *at;
    const unsigned char *end;
    const char *seen[PACKED_SEEN_MAX];
    size_t n_seen;
    bool bad;
};

static inline void put_unsigned(struct packed_writer *w, uint64_t value)
{
    unsigned char *at = buf_room(w->to, VARINT_MAX);

    if (at != NULL) {
        buf_took(w->to, varint_write(at, value));
    }
}

static inline void put_int(struct packed_writer *w, int64_t value)
{
    put_unsigned(w, zigzag(value));
}

/* 0: NULL. Odd: a reference to an earlier string. Even: its length, then the string. */
static inline void put_text(struct packed_writer *w, const char *text)
{
    size_t len;

    if (text == NULL) {
        put_unsigned(w, 0);
        return;
    }
    len = strlen(text);
    for (size_t i = 0; i < w->n_seen; i++) {
        if (w->seen[i].text == text || (w->seen[i].len == len && memcmp(w->seen[i].text, text, len) == 0)) {
            put_unsigned(w, i << 1 | 1);
            return;
        }
    }
    put_unsigned(w, (uint64_t)(len + 1) << 1);
    buf_add(w->to, text, len + 1);
    if (w->n_seen < PACKED_SEEN_MAX) {
        w->seen[w->n_seen++] = (struct packed_seen){ text, len };
    }
}

static inline void put_texts(struct packed_writer *w, const char *const *texts, size_t n)
{
    put_unsigned(w, n);
    for (size_t i = 0; i < n; i++) {
        put_text(w, texts[i]);
    }
}

static inline void put_meta(struct packed_writer *w, const struct belay_meta *meta, size_t n)
{
    put_unsigned(w, n);
    for (size_t i = 0; i < n; i++) {
        put_text(w, meta[i].name);
        put_text(w, meta[i].value);
    }
}

static inline uint64_t get_unsigned(struct packed_reader *r)
{
    uint64_t value = 0;

    if (!varint_read(&r->at, r->end, &value)) {
        r->bad = true;
    }
    return value;
}

static inline int64_t get_int(struct packed_reader *r)
{
    return zigzag_back(get_unsigned(r));
}

static inline const char *get_text(struct packed_reader *r)
{
    uint64_t tag = get_unsigned(r);
    const char *text = (const char *)r->at;
    uint64_t len = (tag >> 1) - 1;

    if (tag == 0) {
        return NULL;
    }
    if ((tag & 1) != 0) {
        if (tag >> 1 >= r->n_seen) {
            r->bad = true;
            return "";
        }
        return r->seen[tag >> 1];
    }
    if (len >= (uint64_t)(r->end - r->at) || text[len] != '\0' || memchr(text, '\0', len) != NULL) {
        r->bad = true;
        return "";
    }
    r->at += len + 1;
    if (r->n_seen < PACKED_SEEN_MAX) {
        r->seen[r->n_seen++] = text;
    }
    return text;
}

/* A string that must not be NULL. */
static inline const char *get_given(struct packed_reader *r)
{
    const char *text = get_text(r);

    if (text == NULL) {
        r->bad = true;
        return "";
    }
    return text;
}

/* The number of elements that follow, each of one byte at least. */
static inline size_t get_count(struct packed_reader *r)
{
    uint64_t n = get_unsigned(r);

    if (n > (uint64_t)(r->end - r->at)) {
        r->bad = true;
        return 0;
    }
    return (size_t)n;
}

#endif
