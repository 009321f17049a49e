/*
 * What GET /metrics tells Prometheus: what happened to locks (S0.7, S4.11), and
 * how the server does. A series has labels of bounded number only: level,
 * profile, environment and stack of a key, and never the key; a stack beyond the
 * first two hundred is counted under the name "other".
 */
#ifndef SERVER_METRICS_METRICS_H
#define SERVER_METRICS_METRICS_H

#include "base/buf.h"
#include "belay.h"

struct metrics;
struct route;
struct server;

struct metrics *metrics_new(const struct belay_config *config); /* NULL: no memory. Borrows it. */
void metrics_free(struct metrics *metrics);

void metrics_event(struct metrics *metrics, const struct belay_event *event);
/* A request was answered; `route` is NULL if there was none for it. */
void metrics_request(struct metrics *metrics, const struct route *route, int status, int64_t took_us);

/* A sync wrote commits to disk. */
void metrics_synced(struct metrics *metrics, int64_t took_us);

#endif
