/*
 * Statistics of the last day by minute: locks acquired and refused, time waited and held. Of fixed size.
 */
#ifndef SERVER_DASHBOARD_STATS_H
#define SERVER_DASHBOARD_STATS_H

#include <jansson.h>
#include <stdint.h>

#include "belay.h"

enum { STATS_HOURS = 24, STATS_MINUTES = STATS_HOURS * 60, STATS_SPANS = 56 };

struct stats_minute {
    int64_t minute; /* since 1970; 0: empty */
    uint32_t acquired;
    uint32_t released;
    uint32_t refused;
    uint32_t renewed;
    uint32_t forced;
    uint32_t taken_over;
    uint32_t waits;
    int64_t wait_ms; /* the sum of all waits */
    int64_t wait_max_ms;
    int64_t held_ms;
    int64_t held_max_ms;
    uint32_t held[STATS_SPANS]; /* locks by how long they were held: two spans for each doubling */
};

struct stats {
    struct stats_minute minutes[STATS_MINUTES]; /* a ring */
    uint64_t n;                                 /* events counted so far */
};

void stats_add(struct stats *stats, const struct belay_event *event);

/* The last `hours`, in at most a few hundred steps, oldest first. NULL without memory. */
json_t *stats_json(const struct stats *stats, int hours, int64_t now_unix_ms);

#endif
