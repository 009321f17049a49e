#include "stats/durations.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/saturate.h"

enum { STEP_BITS = 5, EXACT = 1 << (STEP_BITS + 1) }; /* below EXACT each millisecond has a bucket */
#define LONGEST_MS ((INT64_C(1) << 40) - 1) /* 34 years; a longer duration is due to a wrong clock */

/* The place of its bucket; from EXACT on there are 32 places for each doubling. */
static uint16_t place_of_duration(int64_t ms)
{
    int doublings = 0;

    while (ms >> doublings >= EXACT) {
        doublings++;
    }
    return (uint16_t)((int64_t)doublings * (EXACT / 2) + (ms >> doublings));
}

/* The index of the first bucket whose place is not before `place`. */
static size_t find_bucket(const struct durations *set, uint16_t place)
{
    size_t low = 0;
    size_t high = set->n_buckets;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (set->buckets[middle].place < place) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool insert_bucket(struct durations *set, size_t i, uint16_t place)
{
    assert(i <= set->n_buckets);
    if (set->n_buckets == set->capacity) {
        size_t capacity = set->capacity == 0 ? 8 : 2 * set->capacity;
        struct duration_bucket *buckets = realloc(set->buckets, capacity * sizeof *buckets);

        if (buckets == NULL) {
            return false;
        }
        set->buckets = buckets;
        set->capacity = capacity;
    }
    memmove(&set->buckets[i + 1], &set->buckets[i], (set->n_buckets - i) * sizeof set->buckets[0]);
    set->buckets[i] = (struct duration_bucket){ .place = place };
    set->n_buckets++;
    return true;
}

bool durations_add(struct durations *set, int64_t ms)
{
    uint16_t place;
    size_t i;

    if (ms < 0) {
        return true;
    }
    ms = ms > LONGEST_MS ? LONGEST_MS : ms;
    place = place_of_duration(ms);
    i = find_bucket(set, place);
    if ((i == set->n_buckets || set->buckets[i].place != place) && !insert_bucket(set, i, place)) {
        return false;
    }
    set->buckets[i].n++;
    set->buckets[i].total_ms += ms;
    set->n++;
    set->total_ms = add_saturated(set->total_ms, ms);
    set->longest_ms = ms > set->longest_ms ? ms : set->longest_ms;
    return true;
}

/* The shortest duration that at least `percent` of all do not exceed: the nearest rank. */
static int64_t percentile(const struct durations *set, unsigned percent)
{
    uint64_t rank = (set->n * percent + 99) / 100;
    uint64_t seen = 0;

    for (size_t i = 0; i < set->n_buckets; i++) {
        const struct duration_bucket *bucket = &set->buckets[i];

        seen += bucket->n;
        if (seen >= rank) {
            return (bucket->total_ms + bucket->n / 2) / bucket->n;
        }
    }
    assert(set->n == 0);
    return -1;
}

struct belay_durations durations_sum(const struct durations *set)
{
    if (set->n == 0) {
        return (struct belay_durations){ 0, -1, -1, -1, -1 };
    }
    return (struct belay_durations){ .count = set->n,
                                     .median_ms = percentile(set, 50),
                                     .p90_ms = percentile(set, 90),
                                     .longest_ms = set->longest_ms,
                                     .total_ms = set->total_ms };
}

void durations_release(struct durations *set)
{
    free(set->buckets);
    *set = (struct durations){ 0 };
}
