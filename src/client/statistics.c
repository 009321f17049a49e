/* Statistics of a client's own store; src/stats computes them. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"
#include "stats/stats.h"

enum { STOP_EVERY = 256 }; /* events */

struct reading {
    const struct belay_stats_query *query;
    struct stats *stats; /* owned */
    size_t n;            /* events so far */
    bool failed;
    bool stopped;
};

static bool on_oldest(void *context, const struct belay_event *event)
{
    int64_t *oldest_unix_ms = context;

    *oldest_unix_ms = event->at_unix_ms;
    return false;
}

static bool is_included(const struct belay_stats_query *query, const struct belay_event *event)
{
    return event->at_unix_ms >= query->since_unix_ms &&
           (query->includes == NULL || event->key == NULL || query->includes(query->context, event->key));
}

static bool on_stats_event(void *context, const struct belay_event *event)
{
    struct reading *reading = context;
    const struct belay_stats_query *query = reading->query;

    if (reading->n++ % STOP_EVERY == 0 && query->should_stop != NULL && query->should_stop(query->context)) {
        reading->stopped = true;
        return false;
    }
    reading->failed = is_included(reading->query, event) && !stats_add(reading->stats, event);
    return !reading->failed;
}

enum belay_code local_stats(struct backend *backend, const struct belay_stats_query *query,
                            struct belay_stats **out_stats, struct belay_error *err)
{
    struct belay_client *client = local_client(backend);
    struct belay_store *store = client->store;
    const struct belay_events_query all = { 0 };
    const struct belay_events_query wanted = { .key = query->key, .prefix = query->prefix };
    struct reading reading = { .query = query };
    struct belay_stats *result = NULL;
    int64_t oldest_unix_ms = 0;
    enum belay_code code = BELAY_OK;

    if (store->ops->events == NULL) {
        return error_set(
            err, BELAY_INVALID,
            "%.200s keeps no events, so there are no statistics; stores on SQLite and PostgreSQL "
            "have them, and so have the metrics of every machine (docs/telemetry.md)",
            client->url);
    }
    reading.stats = stats_new(query->by, client->config);
    if (reading.stats == NULL) {
        return error_no_memory(err);
    }
    code = client_count(client, false, store_events(store, &all, on_oldest, &oldest_unix_ms, err));
    if (code == BELAY_OK) {
        code = client_count(client, false, store_events(store, &wanted, on_stats_event, &reading, err));
    }
    if (code == BELAY_OK && reading.stopped) {
        code = error_set(err, BELAY_CANCELLED, "the statistics are not wanted any more");
    }
    if (code == BELAY_OK && !reading.failed) {
        result = stats_result(reading.stats);
    }
    stats_free(reading.stats);
    if (result == NULL) {
        return code == BELAY_OK ? error_no_memory(err) : code;
    }
    result->until_unix_ms = clock_unix_ms();
    result->oldest_unix_ms = oldest_unix_ms;
    result->from_unix_ms = oldest_unix_ms == 0                     ? 0
                           : query->since_unix_ms > oldest_unix_ms ? query->since_unix_ms
                                                                   : oldest_unix_ms;
    *out_stats = result;
    return BELAY_OK;
}

enum belay_code belay_stats(struct belay_client *client, const struct belay_stats_query *query,
                            struct belay_stats **out_stats, struct belay_error *err)
{
    static const struct belay_stats_query everything = BELAY_STATS_QUERY_INIT;
    enum belay_code code = BELAY_OK;

    query = query == NULL ? &everything : query;
    if (query->key != NULL && query->prefix != NULL) {
        return error_set(err, BELAY_INVALID, "a key and a prefix exclude each other");
    }
    if (query->by != BELAY_STATS_BY_NOTHING && belay_stats_by_name(query->by) == NULL) {
        return error_set(err, BELAY_INVALID, "statistics are by day, by profile or by key");
    }
    if (query->key != NULL) {
        code = belay_key_check(client->config, NULL, query->key, err);
    }
    if (code == BELAY_OK) {
        ROUTE(&client->route, code, err, stats, query, out_stats);
    }
    return code;
}
