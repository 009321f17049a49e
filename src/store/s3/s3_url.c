#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "net/uri.h"
#include "store/s3/s3_internal.h"

enum { BUCKET_MIN = 3, BUCKET_MAX = 63, DEFAULT_TIMEOUT_MS = 60000 };

void s3_params_release(struct s3_params *params)
{
    free(params->bucket);
    free(params->prefix);
    free(params->region);
    free(params->endpoint);
    free(params->profile);
    *params = (struct s3_params){ 0 };
}

static enum belay_code keep(char **field, const char *value, struct belay_error *err)
{
    free(*field);
    *field = strdup(value);
    return *field == NULL ? error_no_memory(err) : BELAY_OK;
}

static enum belay_code set_param(struct s3_params *params, char *text, struct belay_error *err)
{
    char *value = strchr(text, '=');

    if (value != NULL) {
        *value++ = '\0';
    }
    if (value != NULL && *value != '\0') {
        if (strcmp(text, "region") == 0) {
            return keep(&params->region, value, err);
        }
        if (strcmp(text, "endpoint") == 0) {
            return keep(&params->endpoint, value, err);
        }
        if (strcmp(text, "profile") == 0) {
            return keep(&params->profile, value, err);
        }
        if (strcmp(text, "timeout") == 0) {
            return belay_parse_duration(value, &params->timeout_ms) && params->timeout_ms > 0
                       ? BELAY_OK
                       : error_set(err, BELAY_INVALID,
                                   "store parameter timeout='%.40s' is no duration such as 60s", value);
        }
    }
    return error_set(
        err, BELAY_INVALID,
        "store parameter '%.60s' %s; valid are region=R, endpoint=URL, profile=NAME and timeout=D", text,
        value == NULL || *value == '\0' ? "has no value or is not known" : "is not known");
}

static enum belay_code set_params(struct s3_params *params, char *text, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    char *one;

    while (code == BELAY_OK && (one = strsep(&text, "&,")) != NULL) {
        if (*one != '\0') {
            code = set_param(params, one, err);
        }
    }
    return code;
}

static bool is_bucket(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");

    return n >= BUCKET_MIN && n <= BUCKET_MAX && text[n] == '\0';
}

/* "a/b" and "a/b/" mean the same. */
static enum belay_code set_prefix(struct s3_params *params, const char *text, struct belay_error *err)
{
    struct buf prefix = BUF_INIT(BELAY_BLOB_NAME_MAX);
    size_t n = strlen(text);

    while (n > 0 && text[n - 1] == '/') {
        n--;
    }
    buf_add(&prefix, text, n);
    if (n > 0 && belay_blob_name_check(prefix.data, err) != BELAY_OK) {
        buf_release(&prefix);
        return error_wrap(err, "the prefix of s3://%s", params->bucket);
    }
    if (n > 0) {
        buf_adds(&prefix, "/");
    }
    params->prefix = buf_take(&prefix);
    buf_release(&prefix);
    return params->prefix == NULL ? error_no_memory(err) : BELAY_OK;
}

static char *full_url(const struct s3_params *params)
{
    struct buf url = BUF_INIT(8192);
    const char *const values[] = { params->region, params->endpoint, params->profile };
    static const char *const names[] = { "region", "endpoint", "profile" };
    char sign = '?';
    char *text;

    buf_addf(&url, "s3://%s/%s", params->bucket, params->prefix);
    if (url.data[url.len - 1] == '/') {
        url.data[--url.len] = '\0';
    }
    for (size_t i = 0; i < 3; i++) {
        if (values[i] != NULL) {
            buf_addf(&url, "%c%s=%s", sign, names[i], values[i]);
            sign = '&';
        }
    }
    if (params->timeout_ms != DEFAULT_TIMEOUT_MS) {
        buf_addf(&url, "%ctimeout=%lldms", sign, (long long)params->timeout_ms);
    }
    text = buf_take(&url);
    buf_release(&url);
    return text;
}

enum belay_code s3_params_parse(const char *text, struct s3_params *out_params, char **out_url,
                                struct belay_error *err)
{
    struct s3_params params = { .timeout_ms = DEFAULT_TIMEOUT_MS };
    char *copy = strdup(text);
    char *query;
    char *slash;
    enum belay_code code;

    if (copy == NULL) {
        return error_no_memory(err);
    }
    query = strchr(copy, '?');
    if (query != NULL) {
        *query++ = '\0';
    }
    slash = strchr(copy, '/');
    if (slash != NULL) {
        *slash++ = '\0';
    }
    code = is_bucket(copy) ? keep(&params.bucket, copy, err)
                           : error_set(err, BELAY_INVALID,
                                       "'%.80s' is not the name of a bucket; write s3://BUCKET/PREFIX", copy);
    if (code == BELAY_OK) {
        code = set_prefix(&params, slash == NULL ? "" : slash, err);
    }
    if (code == BELAY_OK && query != NULL) {
        code = set_params(&params, query, err);
    }
    if (code == BELAY_OK && out_url != NULL) {
        *out_url = full_url(&params);
        code = *out_url == NULL ? error_no_memory(err) : BELAY_OK;
    }
    free(copy);
    if (code != BELAY_OK) {
        s3_params_release(&params);
        return code;
    }
    *out_params = params;
    return BELAY_OK;
}
