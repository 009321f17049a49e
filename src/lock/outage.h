/*
 * Reports about a store that does not answer while a loop keeps trying: its beginning, a reminder every ten
 * seconds, another kind of failure, and its end.
 */
#ifndef LOCK_OUTAGE_H
#define LOCK_OUTAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "belay.h"

struct outage {
    bool is_on;
    enum belay_code code; /* the one that was last told */
    int64_t since_ms;     /* boot clock */
    int64_t told_ms;      /* boot clock */
};

/* An attempt has failed with `code`. True: tell it. */
bool outage_note(struct outage *outage, enum belay_code code, int64_t now_ms);

/* An attempt has succeeded. True: tell it; *out_lasted_ms is since when attempts had failed. */
bool outage_end(struct outage *outage, int64_t now_ms, int64_t *out_lasted_ms);

#endif
