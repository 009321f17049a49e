#include "store/s3/s3_blob.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/buf.h"
#include "base/error.h"
#include "http_client/uri.h"
#include "store/blob/blob_store.h"
#include "store/s3/s3_internal.h"

enum { SLOWEST_BYTES_PER_MS = 256, CONFLICTS_MAX = 8, CONFLICT_PAUSE_MS = 50, SHA256_SIZE = 32 };

/* ---- requests ------------------------------------------------------------------------- */

enum belay_code s3_call(struct s3_store *store, const struct s3_call *call, struct aws_response *response,
                        struct belay_error *err)
{
    struct buf path = BUF_INIT(16384);
    char before_host[80];
    struct aws_request request = { .service = AWS_S3,
                                   .operation = call->operation,
                                   .method = call->method,
                                   .query = call->query,
                                   .headers = call->headers,
                                   .n_headers = call->n_headers,
                                   .body = call->body,
                                   .body_len = call->body_len,
                                   .reads_only = call->reads_only,
                                   .retry = AWS_RETRY_STANDARD,
                                   .max_answer = BELAY_BLOB_SIZE_MAX };
    enum belay_code code;

    request.timeout_ms = store->params.timeout_ms + (int64_t)(call->body_len / SLOWEST_BYTES_PER_MS);
    if (store->in_path) {
        buf_addf(&path, "/%s", store->params.bucket);
    } else {
        (void)snprintf(before_host, sizeof before_host, "%s.", store->params.bucket);
        request.host_prefix = before_host;
    }
    if (call->name != NULL) {
        buf_adds(&path, "/");
        uri_encode(&path, store->params.prefix, strlen(store->params.prefix), true);
        uri_encode(&path, call->name, strlen(call->name), true);
    } else if (!store->in_path) {
        buf_adds(&path, "/");
    }
    if (path.failed) {
        memset(response, 0, sizeof *response);
        buf_release(&path);
        return error_no_memory(err);
    }
    request.path = path.data;
    code = aws_call(store->aws, &request, response, err);
    buf_release(&path);
    return code;
}

enum belay_code s3_say_no_bucket(const struct s3_store *store, struct belay_error *err)
{
    return error_set(err, BELAY_CONFIG, "there is no bucket '%s'", store->params.bucket);
}

static bool is_bucket_missing(enum belay_code code, const struct aws_response *response)
{
    return code == BELAY_NOT_FOUND && response->error_code != NULL &&
           strcmp(response->error_code, "NoSuchBucket") == 0;
}

bool s3_checksum(const void *data, size_t len, char out[S3_SUM_SIZE])
{
    unsigned char digest[SHA256_SIZE];

    return EVP_Digest(len == 0 ? "" : data, len, digest, NULL, EVP_sha256(), NULL) == 1 &&
           EVP_EncodeBlock((unsigned char *)out, digest, sizeof digest) > 0;
}

static enum belay_code read_tag(const struct s3_store *store, const struct aws_response *response,
                                struct belay_blob_tag *out_tag, struct belay_error *err)
{
    const char *etag = http_response_header(&response->http, "etag");

    if (etag == NULL || *etag == '\0' || strlen(etag) > BELAY_BLOB_TAG_MAX) {
        return error_set(err, BELAY_CONFIG, "the S3 server of bucket '%s' sends no usable ETag",
                         store->params.bucket);
    }
    strcpy(out_tag->text, etag);
    out_tag->hint[0] = '\0';
    return BELAY_OK;
}

/* ---- get ------------------------------------------------------------------------------- */

static bool is_whole(const struct http_response *http)
{
    const char *wanted = http_response_header(http, "x-amz-checksum-sha256");
    const char *type = http_response_header(http, "x-amz-checksum-type");
    char sum[S3_SUM_SIZE];

    /* The checksum of a multipart upload is another one. */
    if (wanted == NULL || strchr(wanted, '-') != NULL || (type != NULL && strcmp(type, "FULL_OBJECT") != 0)) {
        return true;
    }
    return s3_checksum(http->body, http->body_len, sum) && strcmp(sum, wanted) == 0;
}

static enum belay_code get_unless(struct s3_store *store, const char *name,
                                  const struct belay_blob_tag *known, struct belay_blob *out_blob,
                                  struct belay_error *err)
{
    struct s3_call call = { .method = "GET",
                            .operation = "GetObject",
                            .name = name,
                            .headers = { { "x-amz-checksum-mode", "ENABLED" } },
                            .n_headers = 1,
                            .reads_only = true };
    struct aws_response response;
    struct belay_blob blob = { 0 };
    enum belay_code code;

    if (known != NULL) {
        call.headers[call.n_headers++] = (struct http_client_header){ "If-None-Match", known->text };
    }
    code = s3_call(store, &call, &response, err);
    if (known != NULL && code == BELAY_REFUSED && response.http.status == 304) {
        belay_error_release(err);
        aws_response_release(&response);
        return BELAY_OK;
    }
    if (is_bucket_missing(code, &response)) {
        code = s3_say_no_bucket(store, err);
    }
    if (code == BELAY_OK && !is_whole(&response.http)) {
        code = error_set(err, BELAY_BAD_CONTENT, "'%.300s' in s3://%s is damaged: its checksum is wrong",
                         name, store->params.bucket);
    }
    if (code == BELAY_OK) {
        code = read_tag(store, &response, &blob.tag, err);
    }
    if (code == BELAY_OK) {
        blob.data = response.http.body;
        blob.len = response.http.body_len;
        response.http.body = NULL; /* passed to the caller */
        blob_progress(&store->base, blob.len, blob.len);
        *out_blob = blob;
    }
    aws_response_release(&response);
    return code;
}

static enum belay_code s3_get_if_changed(struct belay_blob_store *base, const char *name,
                                         const struct belay_blob_tag *known, struct belay_blob *out_blob,
                                         struct belay_error *err)
{
    enum belay_code code = belay_blob_name_check(name, err);

    return code == BELAY_OK ? get_unless((struct s3_store *)base, name, known, out_blob, err) : code;
}

static enum belay_code s3_get(struct belay_blob_store *base, const char *name, struct belay_blob *out_blob,
                              struct belay_error *err)
{
    return s3_get_if_changed(base, name, NULL, out_blob, err);
}

/* ---- put ------------------------------------------------------------------------------- */

enum belay_code s3_put_once(struct s3_store *store, const char *name, const void *data, size_t len,
                            const struct belay_blob_tag *expected, struct aws_response *response,
                            struct belay_error *err)
{
    char sum[S3_SUM_SIZE];
    struct s3_call call = {
        .method = "PUT", .operation = "PutObject", .name = name, .body = data, .body_len = len, .n_headers = 3
    };

    if (!s3_checksum(data, len, sum)) {
        memset(response, 0, sizeof *response);
        return error_set(err, BELAY_BUG, "no SHA-256");
    }
    call.headers[0] = expected == NULL ? (struct http_client_header){ "If-None-Match", "*" }
                                       : (struct http_client_header){ "If-Match", expected->text };
    call.headers[1] = (struct http_client_header){ "x-amz-checksum-sha256", sum };
    call.headers[2] = (struct http_client_header){ "Content-Type", "application/json" };
    return s3_call(store, &call, response, err);
}

/* The content that is found after a write with an unclear result. */
enum found {
    FOUND_OURS,     /* the content that was to be written */
    FOUND_EXPECTED, /* the content before the write */
    FOUND_OTHER,
    FOUND_UNKNOWN /* it could not be read */
};

static enum found compare_content(struct s3_store *store, const char *name, const void *data, size_t len,
                                  const struct belay_blob_tag *expected, struct belay_blob_tag *out_tag)
{
    struct belay_blob blob = { 0 };
    enum belay_code code = get_unless(store, name, NULL, &blob, NULL);
    enum found found = FOUND_UNKNOWN;

    if (code == BELAY_NOT_FOUND) {
        found = expected == NULL ? FOUND_EXPECTED : FOUND_OTHER;
    } else if (code == BELAY_OK && blob.len == len && memcmp(blob.data, data, len) == 0) {
        *out_tag = blob.tag;
        found = FOUND_OURS;
    } else if (code == BELAY_OK) {
        found = expected != NULL && strcmp(blob.tag.text, expected->text) == 0 ? FOUND_EXPECTED : FOUND_OTHER;
    }
    belay_blob_release(&blob);
    return found;
}

static enum belay_code say_changed(const char *name, struct belay_error *err)
{
    return error_set(err, BELAY_REFUSED, "'%.400s' has changed", name);
}

static bool is_conflict(const struct aws_response *response)
{
    return response->http.status == 409;
}

/*
 * 412: another client's content is there, unless an earlier attempt of this call succeeded.
 * 409: a concurrent write; read, and retry. No answer: read whether the content is there.
 */
static enum belay_code settle_put(struct s3_store *store, const char *name, const void *data, size_t len,
                                  const struct belay_blob_tag *expected, enum belay_code code,
                                  const struct aws_response *response, struct belay_blob_tag *out_tag,
                                  bool *again, struct belay_error *err)
{
    *again = false;
    if (code == BELAY_OK) {
        return read_tag(store, response, out_tag, err);
    }
    if (is_bucket_missing(code, response)) {
        return s3_say_no_bucket(store, err);
    }
    if (code == BELAY_REFUSED && !response->in_doubt && !is_conflict(response)) {
        return say_changed(name, err);
    }
    if (code != BELAY_REFUSED && code != BELAY_UNKNOWN && code != BELAY_NOT_FOUND) {
        return code;
    }
    switch (compare_content(store, name, data, len, expected, out_tag)) {
    case FOUND_OURS:
        return BELAY_OK;
    case FOUND_OTHER:
        return say_changed(name, err);
    case FOUND_EXPECTED:
        *again = code == BELAY_REFUSED;
        return code;
    case FOUND_UNKNOWN:
        break;
    }
    return code == BELAY_UNKNOWN
               ? code
               : error_set(err, BELAY_UNKNOWN, "'%.300s' may or may not have been written", name);
}

static enum belay_code s3_put_if(struct belay_blob_store *base, const char *name, const void *data,
                                 size_t len, const struct belay_blob_tag *expected,
                                 struct belay_blob_tag *out_tag, struct belay_error *err)
{
    struct s3_store *store = (struct s3_store *)base;
    enum belay_code code = blob_put_check(name, len, err);
    bool again = true;

    if (code == BELAY_OK) {
        code = s3_probe(store, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    blob_progress(&store->base, 0, len);
    for (int i = 0; again && i < CONFLICTS_MAX; i++) {
        struct aws_response response;

        platform_sleep_ms(platform_system(), i * CONFLICT_PAUSE_MS);
        code = s3_put_once(store, name, data, len, expected, &response, err);
        code = settle_put(store, name, data, len, expected, code, &response, out_tag, &again, err);
        aws_response_release(&response);
    }
    blob_progress(&store->base, len, len);
    return code;
}

/* ---- the rest --------------------------------------------------------------------------- */

static enum belay_code s3_remove(struct belay_blob_store *base, const char *name, struct belay_error *err)
{
    struct s3_call call = { .method = "DELETE", .operation = "DeleteObject", .name = name };
    struct aws_response response;
    enum belay_code code = belay_blob_name_check(name, err);

    if (code != BELAY_OK) {
        return code;
    }
    code = s3_call((struct s3_store *)base, &call, &response, err);
    aws_response_release(&response);
    return code == BELAY_NOT_FOUND ? BELAY_OK : code;
}

static void s3_close(struct belay_blob_store *base)
{
    struct s3_store *store = (struct s3_store *)base;

    aws_close(store->aws);
    s3_params_release(&store->params);
    free(store);
}

static const struct belay_blob_ops s3_ops = {
    .name = "s3",
    .close = s3_close,
    .get = s3_get,
    .put_if = s3_put_if,
    .list = s3_list,
    .remove = s3_remove,
    .get_if_changed = s3_get_if_changed,
};

enum belay_code s3_blob_open(const char *bucket_and_params, struct belay_blob_store **out_store,
                             char **out_url, struct belay_error *err)
{
    struct s3_store *store = calloc(1, sizeof *store);
    struct aws_options options = { 0 };
    char *url = NULL;
    enum belay_code code;

    if (store == NULL) {
        return error_no_memory(err);
    }
    store->base.ops = &s3_ops;
    code = s3_params_parse(bucket_and_params, &store->params, &url, err);
    if (code == BELAY_OK) {
        options.region = store->params.region;
        options.profile = store->params.profile;
        options.endpoints[AWS_S3] = store->params.endpoint;
        code = aws_open(&options, &store->aws, err);
    }
    if (code != BELAY_OK) {
        free(url);
        s3_params_release(&store->params);
        free(store);
        return code;
    }
    /* With a dot in the bucket's name no certificate matches the host. */
    store->in_path = aws_endpoint_is_set(store->aws, AWS_S3) || strchr(store->params.bucket, '.') != NULL;
    if (out_url != NULL) {
        *out_url = url;
        url = NULL;
    }
    free(url);
    *out_store = &store->base;
    return BELAY_OK;
}
