/* Strings, random bytes, UUIDs and lists of metadata. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "belay.h"

/* Valid UTF-8 without control characters, 1 to `max` bytes. */
bool text_is_clean(const char *text, size_t max);

/* How many of the first `len` bytes need no escape in JSON: visible ASCII and spaces, no '"' and no '\\'. */
size_t text_plain(const char *text, size_t len);

/* "00" to "99", one after the other, for fast formatting: every answer has times and numbers. */
extern const char text_digit_pairs[201];
static inline void text_two_digits(char out[2], unsigned value)
{
    assert(value < 100);
    memcpy(out, text_digit_pairs + 2 * (size_t)value, 2);
}

/* In decimal; faster than printf(). The result is at the end of `space`: it ends in the last byte, with '\0'. */
enum { NUMBER_TEXT_SIZE = 21 }; /* 20 digits, or 19 with a sign */
char *number_text(char space[NUMBER_TEXT_SIZE], uint64_t value);
char *signed_number_text(char space[NUMBER_TEXT_SIZE], int64_t value);

bool text_has_prefix(const char *text, const char *prefix);

static inline const char *text_or_empty(const char *text)
{
    return text == NULL ? "" : text;
}
/* NULL is the same as NULL only. */
static inline bool text_is_same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}
/* Two lists with the same texts in the same order. */
bool texts_are_same(char *const *a, size_t n_a, char *const *b, size_t n_b);
/* A copy that the caller frees; NULL of NULL. Without memory it is NULL, and *ok becomes false. */
char *text_copy(const char *text, bool *ok);

/* To copy strings into one piece of memory. How much room one takes, with its end; 0 for NULL. */
size_t text_room(const char *text);
/* Copy it to *at, which moves behind it. NULL stays NULL. */
char *text_place(char **at, const char *text);

/* The value of an environment variable; NULL if it is unset or empty. */
const char *env_text(const char *name);

/* To lower case, in place; ASCII only. NULL stays NULL. */
void text_lower(char *text);

/* The value of a hexadecimal digit; -1: it is none. */
int text_hex_digit(char c);
/* Two digits for each of n bytes, in lower case, and the end of the string. */
void text_hex(char *out, const unsigned char *bytes, size_t n);
/*
 * Decode percent-encoding, perhaps in place. False: a '%' without two digits, a zero byte, or longer than `size`
 * with its end.
 */
bool text_decode_percent(const char *text, size_t len, bool plus_is_space, char *out, size_t size);

/* In a pattern '*' matches any run of characters; every other character matches itself. */
bool text_matches(const char *text, const char *pattern);
/* Whether a text could match both patterns. */
bool text_patterns_meet(const char *a, const char *b);

/*
 * For hash tables in memory; NULL hashes as "". Faster than FNV, but not the same on every machine: never store it. Not
 * for input that an attacker chooses.
 */
uint64_t text_hash(const char *text);

/* A version 4 UUID. False if the system has no random bytes. */
enum { UUID_TEXT_SIZE = 37 };
bool uuid_make(char out[UUID_TEXT_SIZE]);
/* A version 7 UUID: a timestamp, then 74 random bits. For lock ids. */
bool uuid_make_at(int64_t unix_ms, char out[UUID_TEXT_SIZE]);
bool random_bytes(void *out, size_t n);
/*
 * The version of an item that is being put: random, so that an item that was deleted and put again differs from the
 * old one; odd, so never 0; and below 2^53, which JSON and DynamoDB can represent.
 */
uint64_t random_version(void);

/* Copies a list of metadata; free it with meta_free(). NULL for an empty list or without memory. */
struct belay_meta *meta_copy(const struct belay_meta *from, size_t n);
void meta_free(struct belay_meta *meta, size_t n);
/* The bytes of all names and values. */
size_t meta_size(const struct belay_meta *meta, size_t n);
/* The value of an entry; NULL: there is none of that name. */
const char *meta_find(const struct belay_meta *meta, size_t n, const char *name);

#endif
