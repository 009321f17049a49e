/*
 * AWS Signature Version 4.
 *     canonical request --SHA-256--> string to sign --HMAC with a key of the day--> signature
 * Path and query are given exactly as they are sent. All services but S3 sign the path
 * normalised and encoded once more; S3 signs it as it is.
 */
#ifndef AWS_SIGV4_H
#define AWS_SIGV4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "belay.h"
#include "http_client/http.h"

enum { SIGV4_HASH_SIZE = 65, SIGV4_DATE_SIZE = 17 };

struct sigv4_request {
    const char *method;
    const char *path;                         /* percent-encoded, begins with '/'; "" is "/" */
    const char *query;                        /* percent-encoded, without '?'; NULL or "": none */
    const struct http_client_header *headers; /* all headers to sign, including "host" */
    size_t n_headers;
    const void *body;
    size_t body_len;
    bool is_s3; /* the path is signed as it is, and x-amz-content-sha256 is sent and signed */
};

struct sigv4_identity {
    const char *access_key_id;
    const char *secret_access_key;
    const char *session_token; /* NULL: none */
    const char *region;
    const char *service;
    int64_t unix_ms; /* the time of signing, by the server's clock as far as known */
};

/* The caller sends these besides the headers that it gave. */
struct sigv4_signature {
    char *authorization;                /* owned */
    char amz_date[SIGV4_DATE_SIZE];     /* x-amz-date */
    char payload_hash[SIGV4_HASH_SIZE]; /* x-amz-content-sha256, for S3 */
    char signature[SIGV4_HASH_SIZE];
};

/* Remembers the keys of the day; any number of threads may use one. */
struct sigv4_signer;
struct sigv4_signer *sigv4_signer_new(void); /* NULL without memory */
void sigv4_signer_free(struct sigv4_signer *signer);

/*
 * Sign with headers. x-amz-date, x-amz-security-token (if there is a token) and
 * x-amz-content-sha256 (for S3) are signed as well, and the caller sends
 * them; they may not be among the headers given.
 */
enum belay_code sigv4_sign(struct sigv4_signer *signer, const struct sigv4_request *request,
                           const struct sigv4_identity *identity, struct sigv4_signature *out_signature,
                           struct belay_error *err);
void sigv4_signature_release(struct sigv4_signature *signature);

/* The canonical request; *out_signed_headers gets "host;x-amz-date". In canonical.c. */
void sigv4_canonical(const struct sigv4_request *request, const char *payload_hash, struct buf *out_canonical,
                     struct buf *out_signed_headers);

#endif
