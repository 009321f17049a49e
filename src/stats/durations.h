/*
 * A set of durations, for percentiles, in bounded memory.
 *
 * Durations within 3 % of each other share a bucket, which has their number and their sum. A
 * percentile is the mean of its bucket: exact if the bucket has one value, else within 3 %.
 */
#ifndef STATS_DURATIONS_H
#define STATS_DURATIONS_H

#include "belay.h"

struct duration_bucket {
    int64_t total_ms;
    uint32_t n;
    uint16_t place; /* in the order of durations */
};

struct durations {
    struct duration_bucket *buckets; /* owned; in the order of `place`, without empty ones */
    size_t n_buckets;
    size_t capacity;
    uint64_t n;
    int64_t total_ms;
    int64_t longest_ms;
};

/* Add a duration; a negative one is not known, and ignored. False: no memory. */
bool durations_add(struct durations *set, int64_t ms);
struct belay_durations durations_sum(const struct durations *set);
void durations_release(struct durations *set);

#endif
