/* FNV-1a in 64 bits, for hash tables and change detection. Not for input that an attacker chooses. */
#ifndef BASE_FNV_H
#define BASE_FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV_INIT UINT64_C(0xcbf29ce484222325)

static inline uint64_t fnv_byte(uint64_t hash, unsigned char byte)
{
    return (hash ^ byte) * UINT64_C(0x100000001b3);
}

static inline uint64_t fnv_bytes(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < len; i++) {
        hash = fnv_byte(hash, bytes[i]);
    }
    return hash;
}

/* NULL hashes as "". */
static inline uint64_t fnv_text(uint64_t hash, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        hash = fnv_byte(hash, (unsigned char)*text);
    }
    return hash;
}

/* For several texts in a row: UTF-8 never contains the byte 0xff, so "ab", "c" and "a", "bc" differ. */
static inline uint64_t fnv_field(uint64_t hash, const char *text)
{
    return fnv_byte(fnv_text(hash, text), 0xff);
}

#endif
