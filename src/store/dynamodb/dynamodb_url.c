#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/store_url.h"
#include "store/dynamodb/dynamodb_internal.h"

enum { TABLE_MIN = 3, TABLE_MAX = 255, SKEW_DEFAULT_MS = 2000, SKEW_MAX_MS = 3600 * 1000 };

static bool is_table(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

    return n >= TABLE_MIN && n <= TABLE_MAX && text[n] == '\0';
}

static enum belay_code fail_table(const char *text, struct belay_error *err)
{
    return error_set(
        err, BELAY_INVALID,
        "'%.80s' is not the name of a DynamoDB table: %d to %d letters, digits, '_', '.' and '-'", text,
        TABLE_MIN, TABLE_MAX);
}

static enum belay_code parse_skew(const char *value, int64_t *out_ms, struct belay_error *err)
{
    int64_t ms;

    if (!belay_parse_duration(value, &ms) || ms < 0 || ms > SKEW_MAX_MS) {
        return error_set(err, BELAY_INVALID,
                         "store parameter max_clock_skew='%.40s' is no duration of at most 1h, such as 2s",
                         value);
    }
    *out_ms = ms;
    return BELAY_OK;
}

static const struct store_url_text texts[] = {
    { "layout", offsetof(struct ddb_params, layout) },
    { "region", offsetof(struct ddb_params, region) },
    { "endpoint", offsetof(struct ddb_params, endpoint) },
    { "profile", offsetof(struct ddb_params, profile) },
    { "fence_table", offsetof(struct ddb_params, fence_table) },
    { NULL, 0 },
};

static enum belay_code set_dynamodb_param(void *context, const char *name, const char *value,
                                          struct belay_error *err)
{
    struct ddb_params *params = context;

    if (strcmp(name, "max_clock_skew") == 0) {
        return parse_skew(value, &params->max_skew_ms, err);
    }
    if (strcmp(name, "observe") == 0) {
        params->observe = strcmp(value, "1") == 0;
        return params->observe || strcmp(value, "0") == 0
                   ? BELAY_OK
                   : error_set(err, BELAY_INVALID, "store parameter observe='%.40s' must be 0 or 1", value);
    }
    if (strcmp(name, "freezes") == 0) {
        params->freezes = strcmp(value, "on") == 0;
        return params->freezes || strcmp(value, "off") == 0
                   ? BELAY_OK
                   : error_set(err, BELAY_INVALID, "store parameter freezes='%.40s' must be on or off",
                               value);
    }
    return BELAY_NOT_FOUND;
}

static const struct store_url_kind kind = {
    .scheme = "dynamodb:",
    .known = "layout=NAME, region=R, endpoint=URL, profile=NAME, fence_table=NAME, max_clock_skew=DURATION, "
             "observe=1 and freezes=on",
    .texts = texts,
    .set = set_dynamodb_param,
};

enum belay_code ddb_params_parse(const char *text, struct ddb_params *out_params, struct belay_error *err)
{
    struct ddb_params params = { .max_skew_ms = SKEW_DEFAULT_MS };
    enum belay_code code = store_url_parse(&kind, text, &params, &params.table, NULL, err);

    if (code == BELAY_OK && !is_table(params.table)) {
        code = fail_table(params.table, err);
    }
    if (code == BELAY_OK && params.fence_table != NULL && !is_table(params.fence_table)) {
        code = fail_table(params.fence_table, err);
    }
    if (code != BELAY_OK) {
        ddb_params_release(&params);
        return code;
    }
    *out_params = params;
    return BELAY_OK;
}

void ddb_params_release(struct ddb_params *params)
{
    free(params->table);
    store_url_free_texts(texts, params);
    memset(params, 0, sizeof *params);
}

char *ddb_params_url(const struct ddb_params *params)
{
    struct buf url = BUF_INIT(8192);
    char skew[CLOCK_TEXT_SIZE];

    buf_addf(&url, "dynamodb:%s", params->table);
    store_url_add_texts(&url, texts, params);
    if (params->max_skew_ms != SKEW_DEFAULT_MS) {
        store_url_add_param(&url, "max_clock_skew", clock_format_duration(skew, params->max_skew_ms));
    }
    store_url_add_param(&url, "observe", params->observe ? "1" : NULL);
    store_url_add_param(&url, "freezes", params->freezes ? "on" : NULL);
    return buf_take(&url);
}
