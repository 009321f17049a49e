#include "stats/estimate.h"

#include <stdlib.h>
#include <string.h>

#include "base/saturate.h"

void holds_add(struct belay_holds *holds, const struct belay_event *event)
{
    if (event->duration_ms < 0 ||
        (strcmp(event->type, "lock.released") != 0 && strcmp(event->type, "lock.forced") != 0)) {
        return;
    }
    if (holds->n == BELAY_HOLDS_MAX) {
        holds->n--;
        memmove(&holds->ms[0], &holds->ms[1], holds->n * sizeof holds->ms[0]);
    }
    holds->ms[holds->n++] = event->duration_ms;
}

static int by_length(const void *a, const void *b)
{
    const int64_t *one = a;
    const int64_t *other = b;

    return *one < *other ? -1 : *one > *other;
}

static int64_t median(const int64_t *sorted, size_t n)
{
    return sorted[(n - 1) / 2];
}

/* The time that a hold still needs: by the median of the past holds that were longer. -1: none was longer. */
static int64_t rest_of(const struct belay_holds *sorted, int64_t so_far_ms)
{
    size_t i = 0;

    so_far_ms = so_far_ms < 0 ? 0 : so_far_ms; /* clocks differ */
    while (i < sorted->n && sorted->ms[i] <= so_far_ms) {
        i++;
    }
    return i == sorted->n ? -1 : median(&sorted->ms[i], sorted->n - i) - so_far_ms;
}

static void fill_turns(int64_t *out, size_t n, int64_t value)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = value;
    }
}

/*
 * places[i] is the time until place i of the lock is free. There is one place, or one for each
 * slot. Returns their number; 0: a holder is overdue.
 */
static size_t free_times(const struct belay_holds *sorted, const struct belay_info *lock, int64_t now_unix_ms,
                         int64_t places[BELAY_HOLDERS_MAX])
{
    const struct belay_info *holders = lock->n_holders > 0 ? lock->holders : lock;
    size_t n_holders = lock->n_holders > 0 ? lock->n_holders : 1;
    size_t slots = lock->mode == BELAY_SLOTS && lock->slots > 0 ? (size_t)lock->slots : 1;
    size_t n = 0;

    for (size_t i = 0; i < n_holders && n < BELAY_HOLDERS_MAX; i++) {
        if (holders[i].status == BELAY_STATUS_ACTIVE) {
            places[n] = rest_of(sorted, now_unix_ms - holders[i].locked_at_unix_ms);
            if (places[n++] < 0) {
                return 0;
            }
        }
    }
    while (n < slots && n < BELAY_HOLDERS_MAX) {
        places[n++] = 0;
    }
    return n;
}

void belay_estimate_turns(const struct belay_holds *holds, const struct belay_info *lock, int64_t now_unix_ms,
                          int64_t *out_turns_ms, size_t n_turns)
{
    int64_t places[BELAY_HOLDERS_MAX];
    struct belay_holds sorted = *holds;
    size_t n_places;

    if (holds->n < BELAY_HOLDS_MIN || holds->n > BELAY_HOLDS_MAX || lock->mode == BELAY_SHARED) {
        fill_turns(out_turns_ms, n_turns, BELAY_TURN_UNKNOWN);
        return;
    }
    qsort(sorted.ms, sorted.n, sizeof sorted.ms[0], by_length);
    n_places = free_times(&sorted, lock, now_unix_ms, places);
    if (n_places == 0) {
        fill_turns(out_turns_ms, n_turns, BELAY_TURN_OVERDUE);
        return;
    }
    for (size_t i = 0; i < n_turns; i++) {
        size_t first = 0;

        for (size_t j = 1; j < n_places; j++) {
            first = places[j] < places[first] ? j : first;
        }
        out_turns_ms[i] = places[first];
        places[first] = add_saturated(places[first], median(sorted.ms, sorted.n));
    }
}
