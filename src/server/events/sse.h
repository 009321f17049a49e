/*
 * Streams of Server-Sent Events: those who are on one, sending to them, and the
 * ends it can come to. What is sent is its owner's affair (event_stream.h, dashboard_stream.h).
 */
#ifndef SERVER_EVENTS_SSE_H
#define SERVER_EVENTS_SSE_H

#include "belay.h"

struct exchange;
struct streams;

/* One of them. The first member of whatever its owner keeps of it; made with calloc(), freed by its end. */
struct stream {
    struct stream *next;
    struct stream **back;
    struct streams *all; /* borrowed */
    struct exchange *x;  /* owned while it lasts */
    bool is_cut;         /* reads too slowly: its end is on its way */
};

struct streams {
    struct stream *first;
    size_t n;
    const char *name;                      /* for the log */
    void (*on_empty)(struct streams *all); /* the last one is gone; may be NULL */
};

/* Answer `x` with a stream. `stream` belongs to it from here on. */
void stream_begin(struct streams *all, struct stream *stream, struct exchange *x);
void stream_send(struct stream *stream, const char *text, size_t len);
void streams_send(struct streams *all, const char *text, size_t len); /* to all of them */

/* End one, or all of them; who is there comes back with Last-Event-ID. */
void stream_end(struct stream *stream);
void streams_end(struct streams *all);
/* The client is gone. */
void stream_forget(struct stream *stream);

/* The id of the last event of the store, so that a stream can begin after it. */
enum belay_code stream_last_event(struct belay_client *client, uint64_t *out_id, struct belay_error *err);

#endif
