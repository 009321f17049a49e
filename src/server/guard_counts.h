/* The numbers of S3.9, by database, as GET /metrics tells them. The loop's. */
#ifndef SERVER_GUARD_COUNTS_H
#define SERVER_GUARD_COUNTS_H

#include "base/buf.h"
#include "belay.h"

enum { GUARD_DATABASES_MAX = 200, GUARD_RETRY_BUCKETS = 5, GUARD_DURATION_BUCKETS = 7 };

struct guard_count {
    char database[256];
    uint64_t stopped;               /* db_stop_stopped */
    uint64_t skipped_shared_active; /* db_stop_skipped_shared_active */
    uint64_t skipped_lock;          /* db_stop_skipped_lock */
    uint64_t skipped;
    uint64_t errors;
    uint64_t started;
};

struct guard_counts {
    struct guard_count databases[GUARD_DATABASES_MAX + 1]; /* the last is for all others */
    size_t n;
    uint64_t retries[GUARD_RETRY_BUCKETS + 1];      /* lock_acquire_retries: 0, 1, 2, 5, 10, more */
    uint64_t durations[GUARD_DURATION_BUCKETS + 1]; /* lock_acquire_duration: see guard_duration_ms, more */
    uint64_t n_acquired;
    int64_t sum_ms;
    int64_t sum_retries;
};
extern const int guard_retry_limits[GUARD_RETRY_BUCKETS];
extern const int64_t guard_duration_ms[GUARD_DURATION_BUCKETS];

/* An event of the audit trail; those that are not about databases do nothing. */
void guard_count_event(struct guard_counts *counts, const struct belay_event *event);
void guard_counts_write(const struct guard_counts *counts, struct buf *out);

#endif
