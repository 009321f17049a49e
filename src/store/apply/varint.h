/*
 * Numbers in as few bytes as they need: seven bits in a byte, the lowest first; the last byte is below 0x80. Shared by
 * the binary form of records and entries, and by the column `numbers` of the SQLite store.
 */
#ifndef STORE_APPLY_VARINT_H
#define STORE_APPLY_VARINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
