#include "hash/sha256.h"

void sha256_begin(struct sha256 *hash)
{
    sha256_init(&hash->context);
}

void sha256_add(struct sha256 *hash, const void *data, size_t len)
{
    sha256_update(&hash->context, len, data);
}

char *sha256_end(struct sha256 *hash, char out[SHA256_TEXT_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[SHA256_DIGEST_SIZE];

    sha256_digest(&hash->context, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[SHA256_TEXT_SIZE - 1] = '\0';
    return out;
}
