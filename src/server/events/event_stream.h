/* Those who listen to events: Server-Sent Events, with resume. */
#ifndef SERVER_EVENTS_EVENT_STREAM_H
#define SERVER_EVENTS_EVENT_STREAM_H

#include "belay.h"

struct server;
struct event_stream;

struct event_stream *event_stream_new(struct server *server);
void event_stream_free(struct event_stream *events); /* after feed_stop() */

size_t event_stream_count(const struct event_stream *events); /* how many listen */

/* Something happened in the store. */
void event_stream_mark(struct event_stream *events);
/* Send what is new; at the end of a turn. */
void event_stream_pump(struct event_stream *events);

/* End all streams; those who listen come back with Last-Event-ID. */
void event_stream_stop(struct event_stream *events);

#endif
