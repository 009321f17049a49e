/* Histograms, for /metrics. */
#ifndef SERVER_CORE_HISTOGRAM_H
#define SERVER_CORE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { HISTOGRAM_MAX = 15 };

/* The bounds are not stored: hundreds of histograms share them, and the caller passes them. */
struct histogram {
    uint64_t buckets[HISTOGRAM_MAX]; /* not cumulative */
    uint64_t count;
    double sum;
};
#define HISTOGRAM_BOUNDS(bounds) (bounds), sizeof(bounds) / sizeof((bounds)[0])

/* Of what takes from a fraction of a millisecond to seconds. */
static const double histogram_short_s[] = { .0005, .001, .0025, .005, .01, .025, .05,
                                            .1,    .25,  .5,    1,    2.5, 5,    10 };

static inline void histogram_add(struct histogram *histogram, const double *bounds, size_t n, double value)
{
    size_t i = 0;

    while (i < n && value > bounds[i]) {
        i++;
    }
    if (i < n) {
        histogram->buckets[i]++;
    }
    histogram->count++;
    histogram->sum += value;
}

#endif
