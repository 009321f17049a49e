#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "telemetry/sinks.h"

static void add_metric(struct metric *out, size_t *n, const char *name, double value, const char *unit,
                       char statsd)
{
    assert(*n < METRICS_MAX);
    out[(*n)++] = (struct metric){ .name = name, .value = value, .unit = unit, .statsd = statsd };
}

/* clang-format off */
static const struct {
    const char *event;
    const char *counter;
} counters[] = {
    { "lock.acquired", "lock.acquisition.success" },
    { "lock.refused", "lock.acquisition.failure" },
    { "lock.renewed", "lock.heartbeat.success" },
    { "heartbeat.failed", "lock.heartbeat.failure" },
    { "lock.stale", "lock.stale.detected" },
    { "lock.taken_over", "lock.expired" }, /* S0.7: the lease expired without a release */
    { "lock.forced", "lock.forced" },
    { "lock.lost", "lock.lost" },
    { "db.stop.stopped", "db.stop.stopped" }, /* S3.9 */
    { "db.stop.skipped_shared_active", "db.stop.skipped_shared_active" },
    { "db.stop.skipped_lock", "db.stop.skipped_lock" },
    { "db.stop.skipped", "db.stop.skipped" },
    { "db.stop.error", "db.stop.error" },
    { "db.start.started", "db.start.started" },
    { "db.start.skipped_lock", "db.start.skipped_lock" },
    { "db.start.skipped", "db.start.skipped" },
    { "db.start.error", "db.start.error" },
};
/* clang-format on */

static const char *meta_or_empty(const struct belay_event *event, const char *name)
{
    const char *value = meta_find(event->metadata, event->n_metadata, name);

    return value == NULL ? "" : value;
}

bool event_is_of_database(const struct belay_event *event)
{
    return strncmp(event->type, "db.", 3) == 0;
}

const char *event_database(const struct belay_event *event)
{
    return meta_or_empty(event, "db_identifier");
}

/* How the database's lock was acquired (S3.9). */
static void add_lock_of_database(struct metric *out, size_t *n, const struct belay_event *event)
{
    long tries = strtol(meta_or_empty(event, "lock_acquire_attempts"), NULL, 10);
    long ms = strtol(meta_or_empty(event, "lock_acquire_ms"), NULL, 10);

    add_metric(out, n, "lock.acquire.retries", tries > 1 ? (double)(tries - 1) : 0, "Count", 'c');
    add_metric(out, n, "lock.acquire.duration", (double)ms, "Milliseconds", 'm');
}

size_t metric_map_event(const struct belay_event *event, struct metric out[METRICS_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        if (strcmp(event->type, counters[i].event) == 0) {
            add_metric(out, &n, counters[i].counter, 1, "Count", 'c');
        }
    }
    if (n > 0 && event_is_of_database(event)) {
        add_lock_of_database(out, &n, event);
    }
    if (event->duration_ms < 0) {
        return n;
    }
    if (strcmp(event->type, "lock.acquired") == 0) {
        add_metric(out, &n, "lock.acquisition.duration", (double)event->duration_ms, "Milliseconds", 'm');
    } else if (strcmp(event->type, "lock.released") == 0 || strcmp(event->type, "lock.forced") == 0) {
        add_metric(out, &n, "lock.held.duration", (double)event->duration_ms / 1000.0, "Seconds", 'm');
    } else if (strcmp(event->type, "lock.renewed") == 0) {
        add_metric(out, &n, "lock.held.age", (double)event->duration_ms / 1000.0, "Seconds", 'g');
    } else if (strcmp(event->type, "wait.ended") == 0) {
        add_metric(out, &n, "lock.wait.duration", (double)event->duration_ms, "Milliseconds", 'm');
    }
    return n;
}
