/* GET /v1/events: a stream of Server-Sent Events, which a client can resume. */
#ifndef SERVER_EVENTS_EVENT_STREAM_H
#define SERVER_EVENTS_EVENT_STREAM_H

#include "belay.h"

struct server;
struct event_stream;

struct event_stream *event_stream_new(struct server *server);
void event_stream_begin(struct event_stream *events); /* once the server has its client */
void event_stream_free(struct event_stream *events);  /* after event_stream_stop() */

size_t event_stream_count(const struct event_stream *events); /* listeners */

/* There are new events in the store. */
void event_stream_mark(struct event_stream *events);
/* Send new events; at the end of a turn. */
void event_stream_pump(struct event_stream *events);

/* End all streams; listeners reconnect with Last-Event-ID. */
void event_stream_stop(struct event_stream *events);
/* The same for those of a session (sessions.h). */
void event_stream_end_session(struct event_stream *events, uint64_t session);

#endif
