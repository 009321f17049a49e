/* How long a lock was held before. What belay_past_holds() returns, and belay_estimate_turns() is computed from. */
#ifndef STATS_ESTIMATE_H
#define STATS_ESTIMATE_H

#include "belay.h"

/* Take the next event of the lock's history, oldest first: one that ends a hold replaces the oldest of too many. */
void holds_add(struct belay_holds *holds, const struct belay_event *event);

#endif
