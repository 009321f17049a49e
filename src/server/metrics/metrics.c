#include "server/metrics/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/api/pending_acquire.h"
#include "server/core/routes.h"
#include "server/core/server.h"
#include "server/dashboard/dashboard_stream.h"
#include "server/events/event_stream.h"
#include "server/metrics/lock_gauges.h"
#include "server/metrics/shared_db_counts.h"
#include "server/metrics/text_format.h"
#include "server/notify/notify.h"
#include "telemetry/telemetry.h"

enum { SERIES_MAX = 200, LABEL_MAX = 64 };

/* The counters of locks, in the order of `counters`. */
enum {
    ACQUIRED,
    REFUSED,
    HEARTBEAT,
    HEARTBEAT_FAILED,
    STALE,
    EXPIRED,
    FORCED,
    LOST,
    FAILED,
    RELEASED,
    N_COUNTERS
};

static const struct {
    const char *event;
    const char *name;
    const char *label; /* within braces, after the others; "" */
    const char *help;
} counters[N_COUNTERS] = {
    [ACQUIRED] = { "lock.acquired", "belay_lock_acquisitions_total", ",result=\"success\"",
                   "Requests for a lock, by result." },
    [REFUSED] = { "lock.refused", "belay_lock_acquisitions_total", ",result=\"failure\"", NULL },
    [HEARTBEAT] = { "lock.renewed", "belay_lock_heartbeats_total", ",result=\"success\"",
                    "Lease renewals, by result." },
    [HEARTBEAT_FAILED] = { "heartbeat.failed", "belay_lock_heartbeats_total", ",result=\"failure\"", NULL },
    [STALE] = { "lock.stale", "belay_lock_stale_detected_total", "",
                "Locks whose holder missed its heartbeats." },
    [EXPIRED] = { "lock.taken_over", "belay_lock_expired_total", "",
                  "Locks that expired and were taken over by another holder." },
    [FORCED] = { "lock.forced", "belay_lock_forced_total", "",
                 "Locks force-released by a client other than the holder." },
    [LOST] = { "lock.lost", "belay_lock_lost_total", "", "Locks that their holder reported lost." },
    /* Before RELEASED, which matches the rest. */
    [FAILED] = { "lock.released", "belay_lock_released_total", ",outcome=\"failed\"",
                 "Locks released by their holder, by outcome." },
    [RELEASED] = { "lock.released", "belay_lock_released_total", ",outcome=\"completed\"", NULL },
};

static const double seconds_long[] = { .1, .5, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400 };
/* Of belay_client_store_counts(); the last bucket has no upper bound. */
static const double batch_sizes[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512 };
enum { BATCH_BOUNDS = BELAY_BATCH_BUCKETS - 1 };
_Static_assert(sizeof batch_sizes / sizeof batch_sizes[0] == BATCH_BOUNDS, "a bound for each");

/* The metrics of locks with the same labels. */
struct series {
    char labels[6 * LABEL_MAX]; /* as printed, without the braces */
    uint64_t counts[N_COUNTERS];
    struct histogram acquire;
    struct histogram wait;
    struct histogram held;
};

struct metrics {
    const struct belay_config *config;
    struct series *series[SERIES_MAX + 1]; /* the last is for all others */
    size_t n_series;
    struct belay_parsed_key last_form; /* of the last event */
    struct series *last;               /* its series; NULL: none yet */
    struct histogram commit;
    struct histogram sync;
    int64_t started_unix;
    struct lock_gauges *gauges; /* owned */
    struct exchange *waiting;   /* for lock_gauges */
};

struct metrics *metrics_new(const struct belay_config *config)
{
    struct metrics *metrics = calloc(1, sizeof *metrics);

    if (metrics == NULL) {
        return NULL;
    }
    metrics->config = config;
    metrics->started_unix = (int64_t)time(NULL);
    metrics->gauges = lock_gauges_new();
    if (metrics->gauges == NULL) {
        metrics_free(metrics);
        return NULL;
    }
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    if (metrics == NULL) {
        return;
    }
    for (size_t i = 0; i <= SERIES_MAX; i++) {
        free(metrics->series[i]);
    }
    lock_gauges_free(metrics->gauges);
    free(metrics);
}

/* ---- what happens ---- */

static void write_labels(char *out, size_t size, const struct belay_parsed_key *form)
{
    struct buf text = BUF_INIT(size);

    text_label(&text, "", "level", form->level, LABEL_MAX);
    text_label(&text, ",", "profile", form->profile, LABEL_MAX);
    text_label(&text, ",", "environment", form->environment, LABEL_MAX);
    text_label(&text, ",", "stack", form->stack, LABEL_MAX);
    (void)snprintf(out, size, "%s", text.failed || text.data == NULL ? "level=\"other\"" : text.data);
    buf_release(&text);
}

static bool form_is(const struct belay_parsed_key *a, const struct belay_parsed_key *b)
{
    return strcmp(a->level, b->level) == 0 && strcmp(a->profile, b->profile) == 0 &&
           strcmp(a->environment, b->environment) == 0 && strcmp(a->stack, b->stack) == 0;
}

/* NULL only without memory. */
static struct series *find_series(struct metrics *metrics, const struct belay_parsed_key *form)
{
    char labels[sizeof metrics->series[0]->labels];
    size_t i;

    write_labels(labels, sizeof labels, form);
    for (i = 0; i < metrics->n_series; i++) {
        if (strcmp(metrics->series[i]->labels, labels) == 0) {
            return metrics->series[i];
        }
    }
    if (i == SERIES_MAX) {
        (void)snprintf(labels, sizeof labels,
                       "level=\"other\",profile=\"other\",environment=\"other\",stack=\"other\"");
    }
    if (metrics->series[i] == NULL) {
        metrics->series[i] = calloc(1, sizeof *metrics->series[i]);
        if (metrics->series[i] == NULL) {
            return NULL;
        }
        memcpy(metrics->series[i]->labels, labels, sizeof labels);
        metrics->n_series += i < SERIES_MAX;
    }
    return metrics->series[i];
}

static struct series *series_for(struct metrics *metrics, const char *key)
{
    struct belay_parsed_key form;

    belay_key_parse(metrics->config, key, &form);
    if (metrics->last == NULL || !form_is(&form, &metrics->last_form)) {
        metrics->last = find_series(metrics, &form);
        metrics->last_form = form;
    }
    return metrics->last;
}

void metrics_event(struct metrics *metrics, const struct belay_event *event)
{
    struct series *series = series_for(metrics, event->key);
    double seconds = (double)event->duration_ms / 1000.0;
    size_t kind = 0;

    if (event->commit_us > 0) {
        histogram_add(&metrics->commit, HISTOGRAM_BOUNDS(histogram_short_s), (double)event->commit_us / 1e6);
    }
    if (series == NULL) {
        return;
    }
    while (kind < N_COUNTERS &&
           (strcmp(event->type, counters[kind].event) != 0 ||
            (kind == FAILED && (event->reason == NULL || strcmp(event->reason, "failed") != 0)))) {
        kind++;
    }
    if (kind < N_COUNTERS) {
        series->counts[kind]++;
    }
    if (event->duration_ms < 0) {
        return;
    }
    if (kind == ACQUIRED) {
        histogram_add(&series->acquire, HISTOGRAM_BOUNDS(histogram_short_s), seconds);
    } else if (kind == RELEASED || kind == FAILED || kind == FORCED) {
        histogram_add(&series->held, HISTOGRAM_BOUNDS(seconds_long), seconds);
    } else if (kind == N_COUNTERS && strcmp(event->type, "wait.ended") == 0) {
        histogram_add(&series->wait, HISTOGRAM_BOUNDS(seconds_long), seconds);
    }
}

void metrics_synced(struct metrics *metrics, int64_t took_us)
{
    histogram_add(&metrics->sync, HISTOGRAM_BOUNDS(histogram_short_s), (double)took_us / 1e6);
}

/* ---- as text ---- */

static void write_counters(const struct metrics *metrics, struct buf *out)
{
    const char *before = "";

    for (size_t i = 0; i < N_COUNTERS; i++) {
        if (strcmp(before, counters[i].name) != 0) {
            text_head(out, counters[i].name, "counter", counters[i].help);
            before = counters[i].name;
        }
        for (size_t j = 0; j <= SERIES_MAX; j++) {
            const struct series *series = metrics->series[j];

            if (series != NULL) {
                buf_addf(out, "%s{%s%s} %llu\n", counters[i].name, series->labels, counters[i].label,
                         (unsigned long long)series->counts[i]);
            }
        }
    }
}

static void write_lock_histograms(const struct metrics *metrics, struct buf *out)
{
    text_head(out, "belay_lock_acquire_duration_seconds", "histogram",
              "Time from the request to the lock, including the wait.");
    for (size_t i = 0; i <= SERIES_MAX; i++) {
        if (metrics->series[i] != NULL) {
            text_histogram(out, "belay_lock_acquire_duration_seconds", metrics->series[i]->labels,
                           &metrics->series[i]->acquire, HISTOGRAM_BOUNDS(histogram_short_s));
        }
    }
    text_head(out, "belay_lock_wait_duration_seconds", "histogram",
              "Time spent waiting in the queue, with or without success.");
    for (size_t i = 0; i <= SERIES_MAX; i++) {
        if (metrics->series[i] != NULL) {
            text_histogram(out, "belay_lock_wait_duration_seconds", metrics->series[i]->labels,
                           &metrics->series[i]->wait, HISTOGRAM_BOUNDS(seconds_long));
        }
    }
    text_head(out, "belay_lock_held_duration_seconds", "histogram",
              "Time from the acquisition of a lock to its end.");
    for (size_t i = 0; i <= SERIES_MAX; i++) {
        if (metrics->series[i] != NULL) {
            text_histogram(out, "belay_lock_held_duration_seconds", metrics->series[i]->labels,
                           &metrics->series[i]->held, HISTOGRAM_BOUNDS(seconds_long));
        }
    }
}

static void route_labels(char *out, size_t size, size_t i)
{
    (void)snprintf(out, size, "method=\"%s\",route=\"%s\"", i == n_routes ? "other" : routes[i].method,
                   i == n_routes ? "other" : routes[i].path);
}

static void write_requests(const struct route_counts *requests, struct buf *out)
{
    char labels[160];

    text_head(out, "belay_http_requests_total", "counter", "HTTP requests, by route and class of status.");
    for (size_t i = 0; i <= n_routes; i++) {
        route_labels(labels, sizeof labels, i);
        for (size_t status = 1; status <= 5; status++) {
            if (requests[i].by_status[status] != 0) {
                buf_addf(out, "belay_http_requests_total{%s,status=\"%zuxx\"} %llu\n", labels, status,
                         (unsigned long long)requests[i].by_status[status]);
            }
        }
    }
    text_head(out, "belay_http_request_duration_seconds", "histogram",
              "Time from an HTTP request to its reply, including waits.");
    for (size_t i = 0; i <= n_routes; i++) {
        if (requests[i].took.count != 0) {
            route_labels(labels, sizeof labels, i);
            text_histogram(out, "belay_http_request_duration_seconds", labels, &requests[i].took,
                           HISTOGRAM_BOUNDS(histogram_short_s));
        }
    }
}

static void write_notify_count(struct buf *out, const char *name, const char *result,
                               unsigned long long value)
{
    buf_adds(out, "belay_notifications_total");
    text_label(out, "{", "target", name, NOTIFY_NAME_SIZE);
    buf_addf(out, ",result=\"%s\"} %llu\n", result, value);
}

/* Nothing if no target is configured. */
static void write_notifications(const struct notify *notify, struct buf *out)
{
    struct notify_counts counts;

    if (!notify_counts_at(notify, 0, &counts)) {
        return;
    }
    text_head(out, "belay_notifications_total", "counter",
              "Notifications sent or dropped, and calls that failed, by target.");
    for (size_t i = 0; notify_counts_at(notify, i, &counts); i++) {
        write_notify_count(out, counts.name, "sent", counts.sent);
        write_notify_count(out, counts.name, "failed", counts.failed);
        write_notify_count(out, counts.name, "dropped", counts.dropped);
    }
    text_head(out, "belay_notifications_queued", "gauge",
              "Notifications that are still to be sent, by target.");
    for (size_t i = 0; notify_counts_at(notify, i, &counts); i++) {
        buf_adds(out, "belay_notifications_queued");
        text_label(out, "{", "target", counts.name, NOTIFY_NAME_SIZE);
        buf_addf(out, "} %zu\n", counts.queued);
    }
}

/* The store: belay_client_store_counts() has the sizes of its batches. */
static void write_store(const struct server *server, struct buf *out)
{
    const struct metrics *metrics = server->metrics;
    struct belay_store_counts counts;
    struct histogram batch = { .count = 0 };

    belay_client_store_counts(server->client, &counts);
    for (size_t i = 0; i < BATCH_BOUNDS; i++) {
        batch.buckets[i] = counts.batches[i];
    }
    batch.count = counts.syncs;
    batch.sum = (double)counts.commits;
    text_head(out, "belay_store_commit_duration_seconds", "histogram", "Time the store took for a change.");
    text_histogram(out, "belay_store_commit_duration_seconds", "", &metrics->commit,
                   HISTOGRAM_BOUNDS(histogram_short_s));
    text_head(out, "belay_store_commit_batch_size", "histogram",
              "Changes in one batch to disk or to the network.");
    text_histogram(out, "belay_store_commit_batch_size", "", &batch, HISTOGRAM_BOUNDS(batch_sizes));
    text_head(out, "belay_store_sync_duration_seconds", "histogram", "Time to sync a batch to disk.");
    text_histogram(out, "belay_store_sync_duration_seconds", "", &metrics->sync,
                   HISTOGRAM_BOUNDS(histogram_short_s));
    text_head(out, "belay_store_errors_total", "counter",
              "Reads and changes that the store failed to answer.");
    buf_addf(out, "belay_store_errors_total %llu\n", (unsigned long long)counts.errors);
}

static double resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file == NULL) {
        return 0;
    }
    if (fscanf(file, "%*u %lu", &pages) != 1) {
        pages = 0;
    }
    (void)fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void write_metrics(struct server *server, struct buf *out)
{
    struct metrics *metrics = server->metrics;

    write_counters(metrics, out);
    write_lock_histograms(metrics, out);
    lock_gauges_write(metrics->gauges, out);
    write_requests(server->route_counts, out);
    shared_db_counts_write(server->shared_db_counts, out);
    write_notifications(server->notify, out);
    write_store(server, out);
    text_gauge(out, "belay_locking_enabled", "0 while the kill switch grants every lock.",
               belay_client_locking_enabled(server->client) ? 1 : 0);
    text_gauge(out, "belay_waiting", "Acquire requests that wait in the queue.",
               (double)server->pending_acquires->n);
    text_gauge(out, "belay_event_listeners", "Clients that listen to the event stream.",
               (double)event_stream_count(server->events));
    text_gauge(out, "belay_dashboards", "Open dashboards.",
               (double)dashboard_stream_count(server->dashboard));
    text_gauge(out, "belay_connections", "Open connections.", (double)http_server_connections(server->http));
    text_head(out, "belay_spans_dropped_total", "counter", "Trace spans that were not delivered.");
    buf_addf(out, "belay_spans_dropped_total %llu\n",
             (unsigned long long)telemetry_dropped_spans(server->telemetry));
    text_head(out, "belay_build_info", "gauge", "The version of belay.");
    buf_addf(out, "belay_build_info{version=\"%s\"} 1\n", belay_version());
    text_gauge(out, "process_start_time_seconds", "Start time of the server.", (double)metrics->started_unix);
    text_gauge(out, "process_resident_memory_bytes", "Resident memory.", resident_bytes());
}

static void answer(struct exchange *x)
{
    struct buf out = BUF_INIT(8 << 20);

    if (x->request == NULL) {
        exchange_end(x, 499); /* the client is gone, or the server stops */
        return;
    }
    write_metrics(x->server, &out);
    if (out.failed) {
        reply_problem(x, 503, "no_memory", "no memory");
    } else {
        reply_text(x, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    }
    buf_release(&out);
}

static void on_counted(struct server *server)
{
    while (server->metrics->waiting != NULL) {
        struct exchange *x = server->metrics->waiting;

        server->metrics->waiting = x->next;
        answer(x);
    }
}

/* A store on the network may take long: the reply has the last count. */
void handle_metrics(struct exchange *x)
{
    struct metrics *metrics = x->server->metrics;

    if (!exchange_sees_all(x)) {
        return;
    }
    if (!lock_gauges_refresh(metrics->gauges, x->server, on_counted) || !x->server->is_store_local) {
        answer(x);
        return;
    }
    x->next = metrics->waiting;
    metrics->waiting = x;
}
