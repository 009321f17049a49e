#include "aws/sigv4.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "aws/credentials.h"
#include "base/error.h"

enum { KEY_SIZE = 32, CACHE_SIZE = 8, DAY_SIZE = 9, MAX_CANONICAL = 4 << 20 };
static const char algorithm[] = "AWS4-HMAC-SHA256";

/* A signing key of the day, found by the hash of its inputs: secret, day, region, service. */
struct cached_key {
    unsigned char made_from[KEY_SIZE];
    unsigned char key[KEY_SIZE];
    bool used;
};

struct sigv4_signer {
    pthread_mutex_t mutex;
    struct cached_key keys[CACHE_SIZE];
    size_t next;
};

struct sigv4_signer *sigv4_signer_new(void)
{
    struct sigv4_signer *signer = calloc(1, sizeof *signer);

    if (signer != NULL) {
        (void)pthread_mutex_init(&signer->mutex, NULL);
    }
    return signer;
}

void sigv4_signer_free(struct sigv4_signer *signer)
{
    if (signer == NULL) {
        return;
    }
    (void)pthread_mutex_destroy(&signer->mutex);
    OPENSSL_cleanse(signer, sizeof *signer);
    free(signer);
}

static void to_hex(const unsigned char *bytes, char out[SIGV4_HASH_SIZE])
{
    static const char hex[] = "0123456789abcdef";

    for (size_t i = 0; i < KEY_SIZE; i++) {
        out[2 * i] = hex[bytes[i] >> 4];
        out[2 * i + 1] = hex[bytes[i] & 15];
    }
    out[2 * KEY_SIZE] = '\0';
}

static bool sha256(const void *data, size_t len, unsigned char out[KEY_SIZE])
{
    return EVP_Digest(data, len, out, NULL, EVP_sha256(), NULL) == 1;
}

static bool hmac(const unsigned char *key, size_t key_len, const char *text, unsigned char out[KEY_SIZE])
{
    return HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)text, strlen(text), out, NULL) !=
           NULL;
}

/* Lower-case hex of SHA-256. False if libcrypto fails. */
static bool hash_hex(const void *data, size_t len, char out[SIGV4_HASH_SIZE])
{
    unsigned char digest[KEY_SIZE];

    if (!sha256(len == 0 ? "" : data, len, digest)) {
        return false;
    }
    to_hex(digest, out);
    return true;
}

/* "20150830T123600Z" */
static void write_date(int64_t unix_ms, char out[SIGV4_DATE_SIZE])
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm tm;

    memset(&tm, 0, sizeof tm);
    (void)gmtime_r(&seconds, &tm);
    if (strftime(out, SIGV4_DATE_SIZE, "%Y%m%dT%H%M%SZ", &tm) == 0) {
        out[0] = '\0'; /* a clock beyond the year 9999: the server will refuse it */
    }
}

static bool derive_key(const struct sigv4_identity *identity, const char *day, unsigned char out[KEY_SIZE])
{
    struct buf secret = BUF_INIT(4096);
    unsigned char key[KEY_SIZE];
    bool ok;

    buf_addf(&secret, "AWS4%s", identity->secret_access_key);
    ok = !secret.failed && hmac((const unsigned char *)secret.data, secret.len, day, key) &&
         hmac(key, sizeof key, identity->region, key) && hmac(key, sizeof key, identity->service, key) &&
         hmac(key, sizeof key, "aws4_request", out);
    wipe_buf(&secret);
    OPENSSL_cleanse(key, sizeof key);
    return ok;
}

static bool hash_of_origin(const struct sigv4_identity *identity, const char *day,
                           unsigned char out[KEY_SIZE])
{
    struct buf text = BUF_INIT(8192);
    bool ok;

    buf_addf(&text, "%s\n%s\n%s\n%s", day, identity->region, identity->service, identity->secret_access_key);
    ok = !text.failed && sha256(text.data, text.len, out);
    wipe_buf(&text);
    return ok;
}

static bool signing_key(struct sigv4_signer *signer, const struct sigv4_identity *identity, const char *day,
                        unsigned char out[KEY_SIZE])
{
    unsigned char origin[KEY_SIZE];
    bool found = false;

    if (!hash_of_origin(identity, day, origin)) {
        return false;
    }
    (void)pthread_mutex_lock(&signer->mutex);
    for (size_t i = 0; i < CACHE_SIZE && !found; i++) {
        if (signer->keys[i].used && memcmp(signer->keys[i].made_from, origin, KEY_SIZE) == 0) {
            memcpy(out, signer->keys[i].key, KEY_SIZE);
            found = true;
        }
    }
    if (!found && derive_key(identity, day, out)) {
        struct cached_key *slot = &signer->keys[signer->next++ % CACHE_SIZE];

        memcpy(slot->made_from, origin, KEY_SIZE);
        memcpy(slot->key, out, KEY_SIZE);
        slot->used = true;
        found = true;
    }
    (void)pthread_mutex_unlock(&signer->mutex);
    return found;
}

/* `scope` is DAY/REGION/SERVICE/aws4_request. */
static bool sign_text(struct sigv4_signer *signer, const struct sigv4_identity *identity, const char *date,
                      const char *scope, const struct buf *canonical, char out[SIGV4_HASH_SIZE])
{
    struct buf text = BUF_INIT(2048);
    unsigned char key[KEY_SIZE];
    char hash[SIGV4_HASH_SIZE];
    char day[DAY_SIZE];
    bool ok = !canonical->failed && hash_hex(canonical->data, canonical->len, hash);

    if (ok) {
        (void)snprintf(day, sizeof day, "%.8s", date);
        buf_addf(&text, "%s\n%s\n%s\n%s", algorithm, date, scope, hash);
        ok = !text.failed && signing_key(signer, identity, day, key) && hmac(key, sizeof key, text.data, key);
    }
    if (ok) {
        to_hex(key, out);
    }
    buf_release(&text);
    OPENSSL_cleanse(key, sizeof key);
    return ok;
}

static void add_header(struct sigv4_request *request, const char *name, const char *value)
{
    request->headers[request->n_headers++] = (struct http_client_header){ name, value };
}

enum belay_code sigv4_sign(struct sigv4_signer *signer, struct sigv4_request *request,
                           const struct sigv4_identity *identity, struct sigv4_signature *signature,
                           struct belay_error *err)
{
    struct buf canonical = BUF_INIT(MAX_CANONICAL);
    struct buf names = BUF_INIT(65536);
    struct buf authorization = BUF_INIT(65536 + 1024);
    struct buf scope = BUF_INIT(1024);
    char hash[SIGV4_HASH_SIZE];
    bool ok;

    write_date(identity->unix_ms, signature->amz_date);
    buf_addf(&scope, "%.8s/%s/%s/aws4_request", signature->amz_date, identity->region, identity->service);
    ok = !scope.failed && hash_hex(request->body, request->body_len, signature->payload_hash);
    if (ok) {
        add_header(request, "x-amz-date", signature->amz_date);
        if (identity->session_token != NULL) {
            add_header(request, "x-amz-security-token", identity->session_token);
        }
        if (request->is_s3) {
            add_header(request, "x-amz-content-sha256", signature->payload_hash);
        }
        sigv4_canonical(request, signature->payload_hash, &canonical, &names);
        ok = !names.failed && sign_text(signer, identity, signature->amz_date, scope.data, &canonical, hash);
    }
    if (ok) {
        buf_addf(&authorization, "%s Credential=%s/%s, SignedHeaders=%s, Signature=%s", algorithm,
                 identity->access_key_id, scope.data, names.data, hash);
        signature->authorization = buf_take(&authorization);
        add_header(request, "Authorization", signature->authorization);
    }
    buf_release(&canonical);
    buf_release(&names);
    buf_release(&scope);
    return ok && signature->authorization != NULL
               ? BELAY_OK
               : error_set(err, BELAY_NO_MEMORY, "cannot sign: the request is too large, or out of memory");
}

void sigv4_signature_release(struct sigv4_signature *signature)
{
    free(signature->authorization);
    memset(signature, 0, sizeof *signature);
}
