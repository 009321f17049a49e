/* SHA-256 by nettle, a small archive; OpenSSL would slow the program's start. */
#ifndef HASH_SHA256_H
#define HASH_SHA256_H

#include <stdbool.h>
#include <stddef.h>

#include <nettle/sha2.h>

struct sha256 {
    struct sha256_ctx context;
};

enum { SHA256_TEXT_SIZE = 2 * SHA256_DIGEST_SIZE + 1 };

void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *data, size_t len);
/* In hexadecimal, lower case. Returns `out`. */
char *sha256_end(struct sha256 *hash, char out[SHA256_TEXT_SIZE]);

#endif
