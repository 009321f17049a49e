/*
 * Statistics of a history of events, for belay_stats(). A hold or a wait is counted when it ends: that event has its
 * duration, so it counts even if the event of its beginning is no longer kept.
 */
#ifndef STATS_STATS_H
#define STATS_STATS_H

#include "belay.h"

struct stats;

/* `config` (borrowed) has the profiles. NULL: no memory. */
struct stats *stats_new(enum belay_stats_by by, const struct belay_config *config);
void stats_free(struct stats *stats);

/* Count an event. False: no memory. */
bool stats_add(struct stats *stats, const struct belay_event *event);

/* The result, except from_unix_ms, until_unix_ms and oldest_unix_ms. The caller frees it; NULL: no memory. */
struct belay_stats *stats_result(const struct stats *stats);

#endif
