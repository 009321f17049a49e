/*
 * What dashboards are told: which locks have changed, gathered and sent to all
 * of them at once, a few times a second at most. However much happens and however
 * many look on, it takes less than a hundredth of the server's time.
 */
#ifndef SERVER_DASHBOARD_DASHBOARD_STREAM_H
#define SERVER_DASHBOARD_DASHBOARD_STREAM_H

#include "belay.h"

struct server;
struct dashboard_stream;

struct dashboard_stream *dashboard_stream_new(struct server *server);
void dashboard_stream_free(struct dashboard_stream *dashboard); /* after live_stop() */

/* Once the store is open. */
void dashboard_stream_begin(struct dashboard_stream *dashboard);
size_t dashboard_stream_count(const struct dashboard_stream *dashboard); /* how many look on */

/* This server has caused an event. */
void dashboard_stream_event(struct dashboard_stream *dashboard, const struct belay_event *event);

/* End all streams; those who look on come back with Last-Event-ID. */
void dashboard_stream_stop(struct dashboard_stream *dashboard);

#endif
