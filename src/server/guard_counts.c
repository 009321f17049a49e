#include "server/guard_counts.h"

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
    if (i == GUARD_DATABASES_MAX) {
        return &counts->databases[GUARD_DATABASES_MAX - 1];
    }
    if (i == counts->n) {
        counts->n++;
        (void)snprintf(counts->databases[i].database, sizeof counts->databases[i].database, "%s", database);
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
    (void)pthread_mutex_lock(&counts->mutex);
    count = find(counts, meta_of(event, "db_identifier"));
    count->stopped += strcmp(what, "stopped") == 0;
    count->skipped_shared_active += strcmp(what, "skipped_shared_active") == 0;
    count->skipped_lock += strcmp(what, "skipped_lock") == 0;
    count->skipped += strcmp(what, "skipped") == 0;
    count->errors += strcmp(what, "error") == 0;
    count->started += strcmp(what, "started") == 0;
    count_lock(counts, strtol(meta_of(event, "lock_acquire_attempts"), NULL, 10),
               strtoll(meta_of(event, "lock_acquire_ms"), NULL, 10));
    (void)pthread_mutex_unlock(&counts->mutex);
}
