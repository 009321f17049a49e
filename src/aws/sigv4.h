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
    const char *path;  /* percent-encoded, begins with '/'; "" is "/" */
    const char *query; /* percent-encoded, without '?'; NULL or "": none */
    /* Borrowed. All headers to sign, including "host"; room for SIGV4_HEADERS more. */
    struct http_client_header *headers;
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

/* The values of the headers that sigv4_sign() adds. */
struct sigv4_signature {
    char *authorization;                /* owned */
    char amz_date[SIGV4_DATE_SIZE];     /* x-amz-date */
    char payload_hash[SIGV4_HASH_SIZE]; /* x-amz-content-sha256, for S3 */
};

/* Remembers the keys of the day; any number of threads may use one. */
struct sigv4_signer;
struct sigv4_signer *sigv4_signer_new(void); /* NULL without memory */
void sigv4_signer_free(struct sigv4_signer *signer);

/*
 * Sign with headers. Adds x-amz-date, x-amz-security-token (if there is a token) and
 * x-amz-content-sha256 (for S3), which are signed as well, and Authorization. None of them may be among the headers
 * given. Their values are in *signature, which starts empty and must outlive the headers.
 */
enum { SIGV4_HEADERS = 4 };
enum belay_code sigv4_sign(struct sigv4_signer *signer, struct sigv4_request *request,
                           const struct sigv4_identity *identity, struct sigv4_signature *signature,
                           struct belay_error *err);
void sigv4_signature_release(struct sigv4_signature *signature);

/* The canonical request; *out_signed_headers gets "host;x-amz-date". In canonical.c. */
void sigv4_canonical(const struct sigv4_request *request, const char *payload_hash, struct buf *out_canonical,
                     struct buf *out_signed_headers);

#endif
