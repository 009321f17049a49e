#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/store_url.h"
#include "http_client/uri.h"
#include "store/s3/s3_internal.h"

enum { BUCKET_MIN = 3, BUCKET_MAX = 63, DEFAULT_TIMEOUT_MS = 60000 };

static const struct store_url_text texts[] = {
    { "region", offsetof(struct s3_params, region) },
    { "endpoint", offsetof(struct s3_params, endpoint) },
    { "profile", offsetof(struct s3_params, profile) },
    { NULL, 0 },
};

void s3_params_release(struct s3_params *params)
{
    free(params->bucket);
    free(params->prefix);
    store_url_free_texts(texts, params);
    *params = (struct s3_params){ 0 };
}

static enum belay_code set_s3_param(void *context, const char *name, const char *value,
                                    struct belay_error *err)
{
    struct s3_params *params = context;

    if (strcmp(name, "timeout") == 0) {
        return belay_parse_duration(value, &params->timeout_ms) && params->timeout_ms > 0
                   ? BELAY_OK
                   : error_set(err, BELAY_INVALID,
                               "store parameter timeout='%.40s' is no duration such as 60s", value);
    }
    return BELAY_NOT_FOUND;
}

static const struct store_url_kind kind = {
    .scheme = "s3://",
    .known = "region=R, endpoint=URL, profile=NAME and timeout=D",
    .texts = texts,
    .set = set_s3_param,
};

static bool is_bucket(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");

    return n >= BUCKET_MIN && n <= BUCKET_MAX && text[n] == '\0';
}

/* "a/b" and "a/b/" mean the same. */
static enum belay_code set_prefix(struct s3_params *params, const char *text, struct belay_error *err)
{
    struct buf prefix = BUF_INIT(BELAY_BLOB_NAME_MAX + 1); /* with its '/' */
    size_t n = strlen(text);

    while (n > 0 && text[n - 1] == '/') {
        n--;
    }
    buf_add(&prefix, text, n);
    if (n > 0 && belay_blob_name_check(prefix.failed ? NULL : prefix.data, err) != BELAY_OK) {
        buf_release(&prefix);
        return error_wrap(err, "the prefix of s3://%s", params->bucket);
    }
    if (n > 0) {
        buf_adds(&prefix, "/");
    }
    params->prefix = buf_take(&prefix);
    return params->prefix == NULL ? error_no_memory(err) : BELAY_OK;
}

static char *s3_params_url(const struct s3_params *params)
{
    struct buf url = BUF_INIT(16384);
    char timeout[32];

    buf_addf(&url, "s3://%s", params->bucket);
    if (params->prefix[0] != '\0') {
        buf_adds(&url, "/");
        store_url_add_place(&url, params->prefix);
        if (!url.failed) {
            url.data[--url.len] = '\0'; /* the '/' at its end */
        }
    }
    store_url_add_texts(&url, texts, params);
    if (params->timeout_ms != DEFAULT_TIMEOUT_MS) {
        (void)snprintf(timeout, sizeof timeout, "%lldms", (long long)params->timeout_ms);
        store_url_add_param(&url, "timeout", timeout);
    }
    return buf_take(&url);
}

enum belay_code s3_params_parse(const char *text, struct s3_params *out_params, char **out_url,
                                struct belay_error *err)
{
    struct s3_params params = { .timeout_ms = DEFAULT_TIMEOUT_MS };
    char *slash;
    enum belay_code code = store_url_parse(&kind, text, &params, &params.bucket, NULL, err);

    if (code != BELAY_OK) {
        s3_params_release(&params);
        return code;
    }
    slash = strchr(params.bucket, '/');
    if (slash != NULL) {
        *slash++ = '\0';
    }
    if (!is_bucket(params.bucket)) {
        code = error_set(err, BELAY_INVALID, "'%.80s' is not the name of a bucket; write s3://BUCKET/PREFIX",
                         params.bucket);
    }
    if (code == BELAY_OK) {
        code = set_prefix(&params, slash == NULL ? "" : slash, err);
    }
    if (code == BELAY_OK && out_url != NULL) {
        *out_url = s3_params_url(&params);
        code = *out_url == NULL ? error_no_memory(err) : BELAY_OK;
    }
    if (code != BELAY_OK) {
        s3_params_release(&params);
        return code;
    }
    *out_params = params;
    return BELAY_OK;
}
