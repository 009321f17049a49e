#include "server/guard_counts.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

const int guard_retry_limits[GUARD_RETRY_BUCKETS] = { 0, 1, 2, 5, 10 };
const int64_t guard_duration_ms[GUARD_DURATION_BUCKETS] = { 5, 25, 100, 500, 1000, 5000, 30000 };

static const char *meta_of(const struct belay_event *event, const char *name)
{
    for (size_t i = 0; i < event->n_metadata; i++) {
        if (strcmp(event->metadata[i].name, name) == 0) {
            return event->metadata[i].value;
        }
    }
    return "";
}

static struct guard_count *find(struct guard_counts *counts, const char *database)
{
    size_t i = 0;

    while (i < counts->n && strcmp(counts->databases[i].database, database) != 0) {
        i++;
    }
    if (i == counts->n) {
        counts->n += i < GUARD_DATABASES_MAX;
        (void)snprintf(counts->databases[i].database, sizeof counts->databases[i].database, "%s",
                       i < GUARD_DATABASES_MAX ? database : "other");
    }
    return &counts->databases[i];
}

static void count_lock(struct guard_counts *counts, long attempts, int64_t ms)
{
    long retries = attempts > 0 ? attempts - 1 : 0;
    size_t r = 0;
    size_t d = 0;

    while (r < GUARD_RETRY_BUCKETS && retries > guard_retry_limits[r]) {
        r++;
    }
    while (d < GUARD_DURATION_BUCKETS && ms > guard_duration_ms[d]) {
        d++;
    }
    counts->retries[r]++;
    counts->durations[d]++;
    counts->n_acquired++;
    counts->sum_ms += ms;
    counts->sum_retries += retries;
}

void guard_count_event(struct guard_counts *counts, const struct belay_event *event)
{
    const char *what;
    struct guard_count *count;

    if (!text_has_prefix(event->type, "db.") || strstr(event->type, ".decided") != NULL) {
        return;
    }
    what = strrchr(event->type, '.') + 1;
    count = find(counts, meta_of(event, "db_identifier"));
    count->stopped += strcmp(what, "stopped") == 0;
    count->skipped_shared_active += strcmp(what, "skipped_shared_active") == 0;
    count->skipped_lock += strcmp(what, "skipped_lock") == 0;
    count->skipped += strcmp(what, "skipped") == 0;
    count->errors += strcmp(what, "error") == 0;
    count->started += strcmp(what, "started") == 0;
    count_lock(counts, strtol(meta_of(event, "lock_acquire_attempts"), NULL, 10),
               strtoll(meta_of(event, "lock_acquire_ms"), NULL, 10));
}

/* ---- for Prometheus ---- */

static void write_counter(const struct guard_counts *counts, size_t offset, const char *name,
                          const char *help, struct buf *out)
{
    bool begun = false;

    for (size_t i = 0; i <= GUARD_DATABASES_MAX; i++) {
        const struct guard_count *count = &counts->databases[i];
        uint64_t n;

        memcpy(&n, (const char *)count + offset, sizeof n);
        if (count->database[0] == '\0') {
            continue;
        }
        if (!begun) {
            buf_addf(out, "# HELP %s %s\n# TYPE %s counter\n", name, help, name);
            begun = true;
        }
        /* An identifier has nothing in it that would have to be escaped (belay/guard.h). */
        buf_addf(out, "%s{db_identifier=\"%s\"} %llu\n", name, count->database, (unsigned long long)n);
    }
}

static void write_lock(const struct guard_counts *counts, struct buf *out)
{
    uint64_t sum = 0;

    buf_adds(out, "# HELP belay_db_lock_acquire_retries Tries for a database's lock after the first.\n"
                  "# TYPE belay_db_lock_acquire_retries histogram\n");
    for (size_t i = 0; i < GUARD_RETRY_BUCKETS; i++) {
        sum += counts->retries[i];
        buf_addf(out, "belay_db_lock_acquire_retries_bucket{le=\"%d\"} %llu\n", guard_retry_limits[i],
                 (unsigned long long)sum);
    }
    buf_addf(
        out,
        "belay_db_lock_acquire_retries_bucket{le=\"+Inf\"} %llu\nbelay_db_lock_acquire_retries_sum %lld\n"
        "belay_db_lock_acquire_retries_count %llu\n",
        (unsigned long long)counts->n_acquired, (long long)counts->sum_retries,
        (unsigned long long)counts->n_acquired);
    buf_adds(out, "# HELP belay_db_lock_acquire_duration_seconds How long a database's lock was waited for.\n"
                  "# TYPE belay_db_lock_acquire_duration_seconds histogram\n");
    sum = 0;
    for (size_t i = 0; i < GUARD_DURATION_BUCKETS; i++) {
        sum += counts->durations[i];
        buf_addf(out, "belay_db_lock_acquire_duration_seconds_bucket{le=\"%g\"} %llu\n",
                 (double)guard_duration_ms[i] / 1000.0, (unsigned long long)sum);
    }
    buf_addf(
        out,
        "belay_db_lock_acquire_duration_seconds_bucket{le=\"+Inf\"} %llu\n"
        "belay_db_lock_acquire_duration_seconds_sum %g\nbelay_db_lock_acquire_duration_seconds_count %llu\n",
        (unsigned long long)counts->n_acquired, (double)counts->sum_ms / 1000.0,
        (unsigned long long)counts->n_acquired);
}

void guard_counts_write(const struct guard_counts *counts, struct buf *out)
{
    static const struct {
        size_t offset;
        const char *name;
        const char *help;
    } all[] = {
        { offsetof(struct guard_count, stopped), "belay_db_stop_stopped_total", "Databases stopped." },
        { offsetof(struct guard_count, skipped_shared_active), "belay_db_stop_skipped_shared_active_total",
          "Stops that were skipped because another application uses the database, or may." },
        { offsetof(struct guard_count, skipped_lock), "belay_db_stop_skipped_lock_total",
          "Stops and starts that were skipped because somebody else was at it." },
        { offsetof(struct guard_count, errors), "belay_db_errors_total", "Stops and starts that failed." },
        { offsetof(struct guard_count, started), "belay_db_start_started_total", "Databases started." },
    };

    if (counts->n_acquired == 0) {
        return;
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        write_counter(counts, all[i].offset, all[i].name, all[i].help, out);
    }
    write_lock(counts, out);
}
