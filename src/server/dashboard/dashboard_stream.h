/*
 * What dashboards are told: which locks have changed, gathered and sent to all
 * of them at once, a few times a second at most. However much happens and however
 * many look on, it takes less than a hundredth of the server's time.
 */
#ifndef SERVER_DASHBOARD_DASHBOARD_STREAM_H
#define SERVER_DASHBOARD_DASHBOARD_STREAM_H

#include "belay.h"

struct server;
struct live;

struct live *live_new(struct server *server);
void live_free(struct live *live); /* after live_stop() */

/* Once the store is open. */
void live_begin(struct live *live);
size_t live_count(const struct live *live); /* how many look on */

/* This server has caused an event. */
void live_event(struct live *live, const struct belay_event *event);

/* End all streams; those who look on come back with Last-Event-ID. */
void live_stop(struct live *live);

#endif
