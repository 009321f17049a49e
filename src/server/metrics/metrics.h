/*
 * GET /metrics, for Prometheus: events of locks (S0.7, S4.11), and the server itself. The number of series is bounded:
 * labels are the level, profile, environment and stack of a key, never the key; stacks beyond the first two hundred
 * are counted as "other".
 */
#ifndef SERVER_METRICS_METRICS_H
#define SERVER_METRICS_METRICS_H

#include "base/buf.h"
#include "belay.h"

struct metrics;
struct server;

struct metrics *metrics_new(const struct belay_config *config); /* NULL: no memory. Borrows `config`. */
void metrics_free(struct metrics *metrics);

void metrics_event(struct metrics *metrics, const struct belay_event *event);

/* A sync wrote commits to disk. */
void metrics_synced(struct metrics *metrics, int64_t took_us);

#endif
