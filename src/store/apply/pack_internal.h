/* Numbers and strings in the binary form of entries and records; for src/store/apply only. */
#ifndef STORE_APPLY_PACK_INTERNAL_H
#define STORE_APPLY_PACK_INTERNAL_H

#include <string.h>

#include "store/apply/pack.h"
#include "store/apply/varint.h"

enum { SEEN_MAX = 16 };

/* A string that was written in full. */
struct seen {
    const char *text; /* borrowed */
    size_t len;
};

struct writer {
    struct buf *to;
    struct seen seen[SEEN_MAX];
    size_t n_seen;
};

struct reader {
    const unsigned char *at;
    const unsigned char *end;
    const char *seen[SEEN_MAX];
    size_t n_seen;
    bool bad;
};

/* ---- numbers and strings ---- */

static inline void put_unsigned(struct writer *w, uint64_t value)
{
    unsigned char *at = buf_room(w->to, VARINT_MAX);

    if (at != NULL) {
        buf_took(w->to, varint_write(at, value));
    }
}

static inline void put_int(struct writer *w, int64_t value)
{
    put_unsigned(w, zigzag(value));
}

/* 0: NULL. Odd: a reference to an earlier string. Even: its length, then the string. */
static inline void put_text(struct writer *w, const char *text)
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
    if (w->n_seen < SEEN_MAX) {
        w->seen[w->n_seen++] = (struct seen){ text, len };
    }
}

static inline uint64_t get_unsigned(struct reader *r)
{
    uint64_t value = 0;

    if (!varint_read(&r->at, r->end, &value)) {
        r->bad = true;
    }
    return value;
}

static inline int64_t get_int(struct reader *r)
{
    return zigzag_back(get_unsigned(r));
}

static inline const char *get_text(struct reader *r)
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
    if (r->n_seen < SEEN_MAX) {
        r->seen[r->n_seen++] = text;
    }
    return text;
}

/* A string that must not be NULL. */
static inline const char *get_given(struct reader *r)
{
    const char *text = get_text(r);

    if (text == NULL) {
        r->bad = true;
        return "";
    }
    return text;
}

/* The number of elements that follow, each of one byte at least. */
static inline size_t get_count(struct reader *r)
{
    uint64_t n = get_unsigned(r);

    if (n > (uint64_t)(r->end - r->at)) {
        r->bad = true;
        return 0;
    }
    return (size_t)n;
}

static inline enum belay_mode get_mode(struct reader *r)
{
    uint64_t mode = get_unsigned(r);

    r->bad = r->bad || mode > BELAY_SLOTS;
    return (enum belay_mode)mode;
}

/* Lock ids, or keys. */
static inline void put_ids(struct writer *w, const char *const *ids, size_t n)
{
    put_unsigned(w, n);
    for (size_t i = 0; i < n; i++) {
        put_text(w, ids[i]);
    }
}

static inline void put_meta(struct writer *w, const struct belay_meta *meta, size_t n)
{
    put_unsigned(w, n);
    for (size_t i = 0; i < n; i++) {
        put_text(w, meta[i].name);
        put_text(w, meta[i].value);
    }
}

/* ---- pack_tickets.c: the queue of a record in memory ---- */
void pack_tickets(struct writer *w, const struct belay_record *record);
/* Their strings stay where they are; `row` has its key. False: no memory. */
bool unpack_tickets(struct reader *r, struct row *row);

#endif
