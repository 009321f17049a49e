/* GET /v1/stats: statistics from the history, of the keys that the token may see. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "server/core/server.h"
#include "json/stats_json.h"

struct stats_texts {
    char key[BELAY_KEY_MAX + 1];
    char prefix[BELAY_KEY_MAX + 1];
};

static enum belay_code read_by(const struct exchange *x, enum belay_stats_by *out, struct belay_error *err)
{
    char text[16];
    enum http_found found = http_query_get(x->query, "by", text, sizeof text);

    if (found == HTTP_ABSENT || (found == HTTP_FOUND && *text == '\0')) {
        return BELAY_OK;
    }
    for (int by = BELAY_STATS_BY_DAY; found == HTTP_FOUND && by <= BELAY_STATS_BY_KEY; by++) {
        if (strcmp(text, belay_stats_by_name((enum belay_stats_by)by)) == 0) {
            *out = (enum belay_stats_by)by;
            return BELAY_OK;
        }
    }
    return error_set(err, BELAY_INVALID, "by must be day, profile or key");
}

static enum belay_code read_since_filter(const struct exchange *x, int64_t *out_unix_ms,
                                         struct belay_error *err)
{
    char text[64];
    enum http_found found = http_query_get(x->query, "since", text, sizeof text);

    if (found == HTTP_ABSENT || (found == HTTP_FOUND && *text == '\0') ||
        (found == HTTP_FOUND && clock_parse_since(text, clock_unix_ms(), out_unix_ms))) {
        return BELAY_OK;
    }
    return error_set(err, BELAY_INVALID,
                     "since must be a duration such as 7d, or a time such as 2026-11-10T00:00:00Z");
}

static enum belay_code read_stats_filters(const struct exchange *x, struct stats_texts *texts,
                                          struct belay_stats_query *query, struct belay_error *err)
{
    enum belay_code code = query_key(x->query, "key", texts->key, &query->key, err);

    if (code == BELAY_OK) {
        code = query_key(x->query, "prefix", texts->prefix, &query->prefix, err);
    }
    if (code == BELAY_OK) {
        code = read_by(x, &query->by, err);
    }
    return code == BELAY_OK ? read_since_filter(x, &query->since_unix_ms, err) : code;
}

static bool may_count_key(void *context, const char *key)
{
    return exchange_may_see(context, key);
}

static bool is_unwanted(void *context)
{
    struct exchange *x = context;

    return atomic_load(&x->read.is_unwanted);
}

static void ask_stats(struct exchange *x)
{
    struct belay_stats_query query = BELAY_STATS_QUERY_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_stats *stats = NULL;
    struct stats_texts texts;

    query.includes = may_count_key;
    query.context = x;
    query.should_stop = is_unwanted;
    if (read_stats_filters(x, &texts, &query, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else if (query.key != NULL && !exchange_may_touch(x, query.key)) {
        /* answered */
    } else if (belay_stats(x->server->client, &query, &stats, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else {
        reply(x, 200, wire_stats(stats, &query));
    }
    belay_stats_free(stats);
    belay_error_release(&err);
}

void handle_stats(struct exchange *x)
{
    exchange_read(x, WORK_STATS, ask_stats, NULL);
}
