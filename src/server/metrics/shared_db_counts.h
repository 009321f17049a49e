/* The counters of S3.9, by database, for GET /metrics. */
#ifndef SERVER_METRICS_SHARED_DB_COUNTS_H
#define SERVER_METRICS_SHARED_DB_COUNTS_H

#include "base/buf.h"
#include "belay.h"
#include "server/metrics/text_format.h"

enum { SHARED_DB_DATABASES_MAX = 200, SHARED_DB_KINDS = 9 };

struct shared_db_count {
    char database[256];
    uint64_t n[SHARED_DB_KINDS]; /* by the outcome of a stop or start */
};

struct shared_db_counts {
    struct shared_db_count databases[SHARED_DB_DATABASES_MAX + 1]; /* the last is for all others */
    size_t n;
    struct histogram retries;   /* lock_acquire_retries */
    struct histogram durations; /* lock_acquire_duration, in seconds */
};

/* Count an event of the audit trail; those that are not about databases are ignored. */
void shared_db_counts_event(struct shared_db_counts *counts, const struct belay_event *event);
void shared_db_counts_write(const struct shared_db_counts *counts, struct buf *out);

#endif
