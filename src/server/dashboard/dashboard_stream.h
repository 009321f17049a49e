/*
 * GET /v1/live: the locks that have changed, collected and sent to all dashboards at once, at most a few times a
 * second. It takes less than a hundredth of the server's time, whatever the number of changes and viewers.
 */
#ifndef SERVER_DASHBOARD_DASHBOARD_STREAM_H
#define SERVER_DASHBOARD_DASHBOARD_STREAM_H

#include "belay.h"

struct server;
struct dashboard_stream;

struct dashboard_stream *dashboard_stream_new(struct server *server);
void dashboard_stream_free(struct dashboard_stream *dashboard); /* after dashboard_stream_stop() */

/* Once the store is open. */
void dashboard_stream_begin(struct dashboard_stream *dashboard);
size_t dashboard_stream_count(const struct dashboard_stream *dashboard); /* viewers */

/* This server has caused an event. */
void dashboard_stream_event(struct dashboard_stream *dashboard, const struct belay_event *event);

/* End all streams; viewers reconnect with Last-Event-ID. */
void dashboard_stream_stop(struct dashboard_stream *dashboard);
/* The same for those of a session (sessions.h). */
void dashboard_stream_end_session(struct dashboard_stream *dashboard, uint64_t session);

#endif
