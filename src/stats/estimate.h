/* The past holds of a lock, from its history: see belay_past_holds() and belay_estimate_turns(). */
#ifndef STATS_ESTIMATE_H
#define STATS_ESTIMATE_H

#include "belay.h"

/* Call it for each event of the lock's history, oldest first. Keeps the last BELAY_HOLDS_MAX holds. */
void holds_add(struct belay_holds *holds, const struct belay_event *event);

#endif
