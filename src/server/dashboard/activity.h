/*
 * Statistics of the last day by minute: locks acquired and refused, time waited and held. Of fixed size.
 */
#ifndef SERVER_DASHBOARD_ACTIVITY_H
#define SERVER_DASHBOARD_ACTIVITY_H

#include <jansson.h>
#include <stdint.h>

#include "belay.h"

enum { ACTIVITY_HOURS = 24, ACTIVITY_MINUTES = ACTIVITY_HOURS * 60, ACTIVITY_SPANS = 56 };

struct activity_minute {
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
    uint32_t held[ACTIVITY_SPANS]; /* locks by how long they were held: two spans for each doubling */
};

struct activity {
    struct activity_minute minutes[ACTIVITY_MINUTES]; /* a ring */
    uint64_t n;                                       /* events counted so far */
};

void activity_add(struct activity *activity, const struct belay_event *event);

/* The last `hours`, in at most a few hundred steps, oldest first. NULL without memory. */
json_t *activity_json(const struct activity *activity, int64_t hours, int64_t now_unix_ms);

#endif
