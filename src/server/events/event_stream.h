/* Those who listen to events: Server-Sent Events, with resume. */
#ifndef SERVER_EVENTS_EVENT_STREAM_H
#define SERVER_EVENTS_EVENT_STREAM_H

#include "belay.h"

struct server;
struct feed;

struct feed *feed_new(struct server *server);
void feed_free(struct feed *feed); /* after feed_stop() */

size_t feed_count(const struct feed *feed); /* how many listen */

/* Something happened in the store. */
void feed_mark(struct feed *feed);
/* Send what is new; at the end of a turn. */
void feed_pump(struct feed *feed);

/* End all streams; those who listen come back with Last-Event-ID. */
void feed_stop(struct feed *feed);

#endif
