/*
 * Statistics from a history of events: what belay_stats() returns. A hold and a wait are counted by the event that
 * ends them, which says how long they were, so an event whose beginning is no longer kept counts in full.
 */
#ifndef STATS_STATS_H
#define STATS_STATS_H

#include "belay.h"

struct stats;

/* `config` (borrowed) knows the profiles of keys. NULL without memory. */
struct stats *stats_new(enum belay_stats_by by, const struct belay_config *config);
void stats_free(struct stats *stats);

/* False without memory. */
bool stats_add(struct stats *stats, const struct belay_event *event);

/* The result without its times; NULL without memory. */
struct belay_stats *stats_result(const struct stats *stats);

#endif
