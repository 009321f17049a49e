#include "server/metrics/shared_db_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const struct {
    const char *event;
    const char *name; /* of the metric: as in CloudWatch, with a prefix */
    const char *help;
} kinds[SHARED_DB_KINDS] = {
    { "db.stop.stopped", "belay_db_stop_stopped_total", "Databases stopped." },
    { "db.stop.skipped_shared_active", "belay_db_stop_skipped_shared_active_total",
      "Stops skipped because another application uses the database, or may use it." },
    { "db.stop.skipped_lock", "belay_db_stop_skipped_lock_total",
      "Stops skipped because another operation was in progress." },
    { "db.stop.skipped", "belay_db_stop_skipped_total", "Stops skipped for another reason." },
    { "db.stop.error", "belay_db_stop_error_total", "Stops that failed." },
    { "db.start.started", "belay_db_start_started_total", "Databases started." },
    { "db.start.skipped_lock", "belay_db_start_skipped_lock_total",
      "Starts skipped because another operation was in progress." },
    { "db.start.skipped", "belay_db_start_skipped_total", "Starts skipped for another reason." },
    { "db.start.error", "belay_db_start_error_total", "Starts that failed." },
};
static const double retry_bounds[] = { 0, 1, 2, 5, 10 };
static const double second_bounds[] = { .005, .025, .1, .5, 1, 5, 30 };

static const char *meta_of_event(const struct belay_event *event, const char *name)
{
    for (size_t i = 0; i < event->n_metadata; i++) {
        if (strcmp(event->metadata[i].name, name) == 0) {
            return event->metadata[i].value;
        }
    }
    return "";
}

static struct shared_db_count *find_count(struct shared_db_counts *counts, const char *database)
{
    size_t i = 0;

    while (i < counts->n && strcmp(counts->databases[i].database, database) != 0) {
        i++;
    }
    if (i == counts->n) {
        counts->n += i < SHARED_DB_DATABASES_MAX;
        (void)snprintf(counts->databases[i].database, sizeof counts->databases[i].database, "%s",
                       i < SHARED_DB_DATABASES_MAX ? database : "other");
    }
    return &counts->databases[i];
}

void shared_db_counts_event(struct shared_db_counts *counts, const struct belay_event *event)
{
    size_t kind = 0;
    long tries;

    if (!text_has_prefix(event->type, "db.")) {
        return; /* most events are of locks */
    }
    while (kind < SHARED_DB_KINDS && strcmp(event->type, kinds[kind].event) != 0) {
        kind++;
    }
    if (kind == SHARED_DB_KINDS) {
        return;
    }
    find_count(counts, meta_of_event(event, "db_identifier"))->n[kind]++;
    tries = strtol(meta_of_event(event, "lock_acquire_attempts"), NULL, 10);
    histogram_add(&counts->retries, HISTOGRAM_BOUNDS(retry_bounds), tries > 0 ? (double)(tries - 1) : 0);
    histogram_add(&counts->durations, HISTOGRAM_BOUNDS(second_bounds),
                  (double)strtoll(meta_of_event(event, "lock_acquire_ms"), NULL, 10) / 1000.0);
}

/* ---- for Prometheus ---- */

static void write_kind(const struct shared_db_counts *counts, size_t kind, struct buf *out)
{
    text_head(out, kinds[kind].name, "counter", kinds[kind].help);
    for (size_t i = 0; i <= SHARED_DB_DATABASES_MAX; i++) {
        const struct shared_db_count *count = &counts->databases[i];

        if (count->database[0] != '\0') {
            buf_adds(out, kinds[kind].name);
            text_label(out, "{", "db_identifier", count->database, sizeof count->database);
            buf_addf(out, "} %llu\n", (unsigned long long)count->n[kind]);
        }
    }
}

void shared_db_counts_write(const struct shared_db_counts *counts, struct buf *out)
{
    for (size_t i = 0; i < SHARED_DB_KINDS; i++) {
        write_kind(counts, i, out);
    }
    text_head(out, "belay_db_lock_acquire_retries", "histogram",
              "Attempts to acquire a database's lock after the first.");
    text_histogram(out, "belay_db_lock_acquire_retries", "", &counts->retries,
                   HISTOGRAM_BOUNDS(retry_bounds));
    text_head(out, "belay_db_lock_acquire_duration_seconds", "histogram",
              "Time spent waiting for a database's lock.");
    text_histogram(out, "belay_db_lock_acquire_duration_seconds", "", &counts->durations,
                   HISTOGRAM_BOUNDS(second_bounds));
}
