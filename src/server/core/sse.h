/*
 * Streams of Server-Sent Events: begin, send, end. Their owners decide what is sent (event_stream.h,
 * dashboard_stream.h).
 */
#ifndef SERVER_CORE_SSE_H
#define SERVER_CORE_SSE_H

#include "belay.h"

struct exchange;
struct streams;

/* The first member of the owner's struct for one client, which calloc() makes and the end of the stream frees. */
struct stream {
    struct stream *next;
    struct stream **back;
    struct streams *all; /* borrowed */
    struct exchange *x;  /* owned */
    bool is_cut;         /* its client reads too slowly: it is being ended */
};

struct streams {
    struct stream *first;
    size_t n;
    const char *name;                      /* for the log */
    void (*on_empty)(struct streams *all); /* the last stream has ended; may be NULL */
};

/* Whether the client's token may have one more of `most` streams. */
bool streams_have_room(const struct streams *all, const struct exchange *x, size_t most);
/* Reply to `x` with a stream. Takes `stream`. */
void stream_begin(struct streams *all, struct stream *stream, struct exchange *x);
void stream_send(struct stream *stream, const char *text, size_t len);
void streams_send(struct streams *all, const char *text, size_t len); /* to all of them */

/* End one, or all; clients reconnect with Last-Event-ID. */
void stream_end(struct stream *stream);
void streams_end(struct streams *all);
void streams_end_session(struct streams *all, uint64_t session); /* those that it authorized */
/* The client is gone. */
void stream_forget(struct stream *stream);

/* The id of the last event in the store: a stream begins after it. */
enum belay_code stream_last_event(struct belay_client *client, uint64_t *out_id, struct belay_error *err);

#endif
