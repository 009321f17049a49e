/* Shared by the files of the S3 store. */
#ifndef STORE_S3_S3_INTERNAL_H
#define STORE_S3_S3_INTERNAL_H

#include "aws/aws.h"
#include "store/s3/s3_blob.h"

struct s3_params {
    char *bucket; /* all owned */
    char *prefix; /* "" or "a/b/" */
    char *region;
    char *endpoint;
    char *profile;
    int64_t timeout_ms;
};
enum belay_code s3_params_parse(const char *text, struct s3_params *out_params, char **out_url,
                                struct belay_error *err);
void s3_params_release(struct s3_params *params);

struct s3_store {
    struct belay_blob_store base;
    struct s3_params params;
    struct aws_client *aws; /* owned */
    bool in_path;           /* the bucket is in the path, not in the host name */
    bool is_probed;
};

enum { S3_HEADERS_MAX = 4 };

/* A request for one object, or for the bucket if the name is NULL. */
struct s3_call {
    const char *method;
    const char *operation;
    const char *name;  /* of the blob, without the prefix */
    const char *query; /* encoded; NULL: none */
    struct http_client_header headers[S3_HEADERS_MAX];
    size_t n_headers;
    const void *body;
    size_t body_len;
    bool reads_only;
};
/* As aws_call(). */
enum belay_code s3_call(struct s3_store *store, const struct s3_call *call, struct aws_response *response,
                        struct belay_error *err);

/* BELAY_CONFIG. */
enum belay_code s3_say_no_bucket(const struct s3_store *store, struct belay_error *err);

/* The SHA-256 in base64, as in S3's checksum headers. */
enum { S3_SUM_SIZE = 64 };
bool s3_checksum(const void *data, size_t len, char out[S3_SUM_SIZE]);

/* One conditional PUT, without a read after an unclear result. */
enum belay_code s3_put_once(struct s3_store *store, const char *name, const void *data, size_t len,
                            const struct belay_blob_tag *expected, struct aws_response *response,
                            struct belay_error *err);

/* Makes sure, once, that the server honours conditions (s3_probe.c). */
enum belay_code s3_probe(struct s3_store *store, struct belay_error *err);

/* The blob port's list() (s3_list.c). */
enum belay_code s3_list(struct belay_blob_store *base, const char *prefix, bool shallow, belay_blob_fn fn,
                        void *context, struct belay_error *err);

#endif
