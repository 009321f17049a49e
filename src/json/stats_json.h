/* Statistics as JSON and back: the answer of GET /v1/stats and of `belay stats --json`. */
#ifndef JSON_STATS_JSON_H
#define JSON_STATS_JSON_H

#include <jansson.h>

#include "belay.h"

/* A new reference, or NULL without memory. */
json_t *wire_stats(const struct belay_stats *stats, const struct belay_stats_query *query);

/* NULL if `json` is no statistics, or without memory. */
struct belay_stats *json_read_stats(const json_t *json);

#endif
