#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/utf8.h"

static bool needs_escape(unsigned char c)
{
    return c < 0x20 || c > 0x7e || c == '"' || c == '\\';
}

#define EACH_BYTE(value) (UINT64_C(0x0101010101010101) * (value))

/*
 * Whether one of eight bytes needs an escape. A byte that needs none sets no high bit in any term and borrows nothing
 * from the next byte, so the first one that needs an escape is always seen. What it does to the bytes after it does not
 * matter.
 */
static inline bool has_escape(uint64_t bytes)
{
    uint64_t below_space = bytes - EACH_BYTE(0x20);
    uint64_t above_tilde = bytes | (bytes + EACH_BYTE(1));
    uint64_t quotes = ((bytes ^ EACH_BYTE('"')) - EACH_BYTE(1)) | ((bytes ^ EACH_BYTE('\\')) - EACH_BYTE(1));

    return ((below_space | above_tilde | quotes) & EACH_BYTE(0x80)) != 0;
}

size_t text_plain(const char *text, size_t len)
{
    size_t at = 0;
    uint64_t bytes;

    for (; len - at >= sizeof bytes; at += sizeof bytes) {
        memcpy(&bytes, text + at, sizeof bytes);
        if (has_escape(bytes)) {
            break;
        }
    }
    if (at > 0 && len - at < sizeof bytes) { /* the rest, with some bytes that were checked before */
        memcpy(&bytes, text + len - sizeof bytes, sizeof bytes);
        if (!has_escape(bytes)) {
            return len;
        }
    }
    while (at < len && !needs_escape((unsigned char)text[at])) {
        at++;
    }
    return at;
}

bool text_is_clean(const char *text, size_t max)
{
    size_t len = strnlen(text, max + 1);

    if (len == 0 || len > max) {
        return false;
    }
    for (size_t at = text_plain(text, len); at < len;) {
        uint32_t point;
        size_t n = utf8_read(text + at, len - at, &point);

        if (n == 0 || utf8_is_control(point)) {
            return false;
        }
        at += n;
    }
    return true;
}

const char text_digit_pairs[201] = "0001020304050607080910111213141516171819"
                                   "2021222324252627282930313233343536373839"
                                   "4041424344454647484950515253545556575859"
                                   "6061626364656667686970717273747576777879"
                                   "8081828384858687888990919293949596979899";

char *number_text(char space[NUMBER_TEXT_SIZE], uint64_t value)
{
    char *at = &space[NUMBER_TEXT_SIZE - 1];

    *at = '\0';
    for (; value >= 100; value /= 100) {
        at -= 2;
        text_two_digits(at, (unsigned)(value % 100));
    }
    if (value < 10) {
        *--at = (char)('0' + value);
    } else {
        at -= 2;
        text_two_digits(at, (unsigned)value);
    }
    return at;
}

char *signed_number_text(char space[NUMBER_TEXT_SIZE], int64_t value)
{
    char *at = number_text(space, value < 0 ? ~(uint64_t)value + 1 : (uint64_t)value);

    if (value < 0) {
        assert(at > space); /* INT64_MIN has 19 digits */
        *--at = '-';
    }
    return at;
}

bool text_matches(const char *text, const char *pattern)
{
    const char *star = NULL;
    const char *again = NULL;

    while (*text != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            again = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

/*
 * If both have a star, only the texts before the first star and after the last one can contradict each other: a star
 * of each matches whatever the other has in between.
 */
bool text_patterns_meet(const char *a, const char *b)
{
    const char *end_a = a + strlen(a);
    const char *end_b = b + strlen(b);

    if (strchr(a, '*') == NULL || strchr(b, '*') == NULL) {
        return strchr(a, '*') == NULL ? text_matches(a, b) : text_matches(b, a);
    }
    for (; *a != '*' && *b != '*'; a++, b++) {
        if (*a != *b) {
            return false;
        }
    }
    for (; end_a[-1] != '*' && end_b[-1] != '*'; end_a--, end_b--) {
        if (end_a[-1] != end_b[-1]) {
            return false;
        }
    }
    return true;
}

bool text_has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool texts_are_same(char *const *a, size_t n_a, char *const *b, size_t n_b)
{
    bool is_same = n_a == n_b;

    for (size_t i = 0; is_same && i < n_a; i++) {
        is_same = strcmp(a[i], b[i]) == 0;
    }
    return is_same;
}

char *text_copy(const char *text, bool *ok)
{
    char *copy = text == NULL ? NULL : strdup(text);

    *ok = *ok && (text == NULL || copy != NULL);
    return copy;
}

size_t text_room(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

char *text_place(char **at, const char *text)
{
    size_t size = text_room(text);
    char *copy = *at;

    *at += size;
    return text == NULL ? NULL : memcpy(copy, text, size);
}

void text_lower(char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        *text = *text >= 'A' && *text <= 'Z' ? (char)(*text - 'A' + 'a') : *text;
    }
}

const char *env_text(const char *name)
{
    const char *value = getenv(name);

    return value == NULL || *value == '\0' ? NULL : value;
}

void text_hex(char *out, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        *out++ = "0123456789abcdef"[bytes[i] >> 4];
        *out++ = "0123456789abcdef"[bytes[i] & 15];
    }
    *out = '\0';
}

int text_hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool text_decode_percent(const char *text, size_t len, bool plus_is_space, char *out, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        char byte = plus_is_space && text[i] == '+' ? ' ' : text[i];

        if (byte == '%') {
            int high = len - i > 2 ? text_hex_digit(text[i + 1]) : -1;
            int low = high >= 0 ? text_hex_digit(text[i + 2]) : -1;

            byte = low >= 0 ? (char)(high * 16 + low) : '\0';
            i += 2;
        }
        if (byte == '\0' || n + 1 >= size) {
            return false;
        }
        out[n++] = byte;
    }
    if (n >= size) {
        return false;
    }
    out[n] = '\0';
    return true;
}

static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32; /* the high bits of a product are mixed best, and tables use the low ones */
}

uint64_t text_hash(const char *text)
{
    size_t len = text == NULL ? 0 : strlen(text);
    uint64_t hash = len;
    uint64_t word = 0;
    const char *last;

    if (len < sizeof word) {
        if (len > 0) {
            memcpy(&word, text, len);
        }
    } else {
        for (last = text + len - sizeof word; text < last; text += sizeof word) {
            memcpy(&word, text, sizeof word);
            hash = hash_word(hash, word);
        }
        memcpy(&word, last, sizeof word); /* the rest, with bytes of the word before */
    }
    /* A second round, because keys differ most in the high bytes of the last word, and one product moves those up only. */
    return hash_word(hash_word(hash, word), 0);
}

bool random_bytes(void *out, size_t n)
{
    return getrandom(out, n, 0) == (ssize_t)n;
}

uint64_t random_version(void)
{
    uint64_t version = 0;

    (void)random_bytes(&version, sizeof version);
    return (version & ((UINT64_C(1) << 53) - 1)) | 1;
}

static void uuid_write(unsigned char b[16], unsigned version, char *out)
{
    static const char digits[] = "0123456789abcdef";

    b[6] = (unsigned char)((b[6] & 0x0f) | version << 4);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    for (size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *out++ = '-';
        }
        *out++ = digits[b[i] >> 4];
        *out++ = digits[b[i] & 0x0f];
    }
    *out = '\0';
}

bool uuid_make(char out[UUID_TEXT_SIZE])
{
    unsigned char b[16];

    if (!random_bytes(b, sizeof b)) {
        return false;
    }
    uuid_write(b, 4, out);
    return true;
}

bool uuid_make_at(int64_t unix_ms, char out[UUID_TEXT_SIZE])
{
    unsigned char b[16];

    if (!random_bytes(b, sizeof b)) {
        return false;
    }
    for (int i = 5; i >= 0; i--, unix_ms >>= 8) {
        b[i] = (unsigned char)(unix_ms & 0xff);
    }
    uuid_write(b, 7, out);
    return true;
}

struct belay_meta *meta_copy(const struct belay_meta *from, size_t n)
{
    struct belay_meta *copy;

    if (n == 0) {
        return NULL;
    }
    copy = calloc(n, sizeof *copy);
    for (size_t i = 0; copy != NULL && i < n; i++) {
        copy[i].name = strdup(from[i].name);
        copy[i].value = strdup(from[i].value);
        if (copy[i].name == NULL || copy[i].value == NULL) {
            meta_free(copy, n);
            return NULL;
        }
    }
    return copy;
}

const char *meta_find(const struct belay_meta *meta, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(meta[i].name, name) == 0) {
            return meta[i].value;
        }
    }
    return NULL;
}

size_t meta_size(const struct belay_meta *meta, size_t n)
{
    size_t size = 0;

    for (size_t i = 0; i < n; i++) {
        size += strlen(meta[i].name) + strlen(meta[i].value);
    }
    return size;
}

void meta_free(struct belay_meta *meta, size_t n)
{
    for (size_t i = 0; meta != NULL && i < n; i++) {
        free((char *)meta[i].name);
        free((char *)meta[i].value);
    }
    free(meta);
}
