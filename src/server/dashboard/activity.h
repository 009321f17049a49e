/*
 * Statistics of the last day by minute: locks acquired and refused, time waited and held. Of fixed size.
 */
#ifndef SERVER_DASHBOARD_ACTIVITY_H
#define SERVER_DASHBOARD_ACTIVITY_H

#include <jansson.h>
#include <stdint.h>

#include "belay.h"

enum { ACTIVITY_HOURS = 24, ACTIVITY_MINUTES = ACTIVITY_HOURS * 60, ACTIVITY_SPANS = 56 };

enum activity_kind {
    ACTIVITY_ACQUIRED,
    ACTIVITY_RELEASED, /* also by force */
    ACTIVITY_REFUSED,
    ACTIVITY_RENEWED,
    ACTIVITY_FORCED,
    ACTIVITY_TAKEN_OVER,
    ACTIVITY_WAITS,
    ACTIVITY_KINDS
};

struct activity_time {
    int64_t sum_ms;
    int64_t max_ms;
};

struct activity_minute {
    int64_t minute; /* since 1970; 0: empty */
    uint32_t counts[ACTIVITY_KINDS];
    struct activity_time wait;
    struct activity_time held;
    uint32_t spans[ACTIVITY_SPANS]; /* locks by how long they were held: two spans for each doubling */
};

struct activity {
    struct activity_minute minutes[ACTIVITY_MINUTES]; /* a ring */
    uint64_t n;                                       /* events counted so far */
};

void activity_add(struct activity *activity, const struct belay_event *event);

/* The last `hours`, in at most a few hundred steps, oldest first. NULL without memory. */
json_t *activity_json(const struct activity *activity, int64_t hours, int64_t now_unix_ms);

#endif
