/*
 * Events are read from the store once for all listeners that are up to date. A listener that is behind gets a piece at
 * a time, so that one that resumes after a week does not delay the others.
 *
 * Events of this server are sent at once. Those of other processes on the same file are polled for four times a second
 * while there are listeners.
 */
#include "server/events/event_stream.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "server/core/server.h"
#include "server/core/sse.h"
#include "json/json_write.h"

enum {
    LISTENERS_MAX = 1000,
    PIECE_EVENTS = 200, /* read at once */
    PIECE_MS = 10,      /* between two pieces: time for other work, and for the reader */
    LOOK_MS = 250,
    ALIVE_MS = 15000,
    EVENT_MAX = 1 << 20
};

struct event_listener {
    struct stream stream;
    uint64_t after; /* the last event that was sent to it or did not match */
    char prefix[BELAY_KEY_MAX + 1];
};

struct event_stream {
    struct streams streams; /* of struct event_listener */
    struct server *server;  /* borrowed */
    uint64_t tail;          /* the last event that was read for listeners that are up to date */
    atomic_bool is_marked;  /* there may be new events; set by any thread */
    struct timer look_timer;
    struct timer alive_timer;
};

size_t event_stream_count(const struct event_stream *events)
{
    return events->streams.n;
}

/* ---- sending ---- */

static struct event_listener *first_of(const struct event_stream *events)
{
    return (struct event_listener *)events->streams.first;
}

static struct event_listener *next_of(const struct event_listener *listener)
{
    return (struct event_listener *)listener->stream.next;
}

/* The key of a freeze's event is its pattern. */
static bool may_see(const struct exchange *x, const struct belay_event *event)
{
    return text_has_prefix(event->type, "freeze.") ? exchange_may_see_pattern(x, event->key)
                                                   : exchange_may_see(x, event->key);
}

static void send_event(struct event_listener *listener, const struct belay_event *event)
{
    struct buf out = BUF_INIT(EVENT_MAX);
    char *line;

    listener->after = event->id;
    if (!text_has_prefix(event->key, listener->prefix) || !may_see(listener->stream.x, event)) {
        return;
    }
    line = wire_line(event_for(listener->stream.x, event));
    if (line != NULL) {
        buf_addf(&out, "id: %llu\nevent: %s\ndata: %s\n\n", (unsigned long long)event->id, event->type, line);
    }
    if (out.data != NULL && !out.failed) {
        stream_send(&listener->stream, out.data, out.len);
    }
    buf_release(&out);
    free(line);
}

/* A listener whose last event still waits for a sync gets no other: under load it would wait for ever. */
static bool can_hear(const struct event_listener *listener)
{
    return !http_stream_is_waiting(listener->stream.x->request);
}

static bool can_any_hear(const struct event_stream *events)
{
    const struct event_listener *listener = first_of(events);

    while (listener != NULL && !can_hear(listener)) {
        listener = next_of(listener);
    }
    return listener != NULL;
}

/* ---- reading ---- */

struct piece {
    struct event_stream *events;
    struct event_listener *listener; /* NULL: all that are up to date */
    uint64_t from;
    size_t n;
};

static bool on_new(void *context, const struct belay_event *event)
{
    struct piece *piece = context;
    struct event_stream *events = piece->events;

    for (struct event_listener *listener = first_of(events); listener != NULL; listener = next_of(listener)) {
        if (listener->after >= piece->from && can_hear(listener)) {
            send_event(listener, event);
        }
    }
    events->tail = event->id;
    return ++piece->n < PIECE_EVENTS;
}

static bool on_old(void *context, const struct belay_event *event)
{
    struct piece *piece = context;

    send_event(piece->listener, event);
    return ++piece->n < PIECE_EVENTS && !piece->listener->stream.is_cut && event->id < piece->events->tail;
}

static void look_again(struct event_stream *events, int64_t in_ms)
{
    (void)loop_timer_set(events->server->loop, &events->look_timer,
                         loop_now_ms(events->server->loop) + in_ms);
}

/* Returns whether there is more to read for it. */
static bool catch_up(struct event_stream *events, struct event_listener *listener)
{
    struct piece piece = { .events = events, .listener = listener };
    enum belay_code code =
        belay_events(events->server->client, NULL, listener->after, 0, on_old, &piece, NULL);

    if (code == BELAY_OK && piece.n < PIECE_EVENTS && !listener->stream.is_cut) {
        listener->after = listener->after < events->tail ? events->tail : listener->after;
    }
    return listener->after < events->tail && !listener->stream.is_cut;
}

void event_stream_pump(struct event_stream *events)
{
    struct piece piece = { .events = events, .from = events->tail };
    bool more;

    if (!events->is_marked || events->streams.n == 0) {
        events->is_marked = false;
        return;
    }
    if (!can_any_hear(events)) {
        return; /* still marked */
    }
    events->is_marked = false;
    for (struct event_listener *listener = first_of(events); listener != NULL; listener = next_of(listener)) {
        listener->after = listener->after > events->tail ? events->tail : listener->after;
    }
    (void)belay_events(events->server->client, NULL, events->tail, 0, on_new, &piece, NULL);
    more = piece.n >= PIECE_EVENTS;
    for (struct event_listener *listener = first_of(events); listener != NULL; listener = next_of(listener)) {
        if (listener->after < events->tail && !listener->stream.is_cut) {
            more = !can_hear(listener) || catch_up(events, listener) || more;
        }
    }
    look_again(events, more ? PIECE_MS : LOOK_MS);
}

void event_stream_mark(struct event_stream *events)
{
    events->is_marked = true;
}

static void on_look(struct timer *timer)
{
    event_stream_mark(
        (struct event_stream *)(void *)((char *)timer - offsetof(struct event_stream, look_timer)));
}

static void on_alive(struct timer *timer)
{
    struct event_stream *events =
        (struct event_stream *)(void *)((char *)timer - offsetof(struct event_stream, alive_timer));

    streams_send(&events->streams, ": keep-alive\n\n", 14);
    if (events->streams.n > 0) {
        (void)loop_timer_set(events->server->loop, timer, loop_now_ms(events->server->loop) + ALIVE_MS);
    }
}

/* ---- coming and going ---- */

static void on_empty(struct streams *all)
{
    struct event_stream *events = (struct event_stream *)all;

    loop_timer_cancel(events->server->loop, &events->look_timer);
    loop_timer_cancel(events->server->loop, &events->alive_timer);
}

struct event_stream *event_stream_new(struct server *server)
{
    struct event_stream *events = calloc(1, sizeof *events);

    if (events != NULL) {
        events->streams.name = "events";
        events->streams.on_empty = on_empty;
        events->server = server;
        events->look_timer.fire = on_look;
        events->alive_timer.fire = on_alive;
    }
    return events;
}

void event_stream_free(struct event_stream *events)
{
    free(events);
}

void event_stream_stop(struct event_stream *events)
{
    streams_end(&events->streams);
}

void event_stream_end_session(struct event_stream *events, uint64_t session)
{
    streams_end_session(&events->streams, session);
}

/* Where to begin: after Last-Event-ID, or from now on. */
static bool read_last_id(const struct exchange *x, bool *out_given, uint64_t *out_id)
{
    char space[24];
    const char *text = http_header(x->request, "Last-Event-ID");
    enum http_found found = HTTP_FOUND;

    if (text == NULL) {
        found = http_query_get(x->request->query, "last_event_id", space, sizeof space);
        text = space;
    }
    *out_given = found != HTTP_ABSENT;
    if (found == HTTP_ABSENT) {
        return true;
    }
    if (found == HTTP_MALFORMED || *text == '\0' || strlen(text) > 19 ||
        strspn(text, "0123456789") != strlen(text)) {
        return false;
    }
    *out_id = strtoull(text, NULL, 10);
    return true;
}

static void listen_to(struct event_stream *events, struct event_listener *listener, struct exchange *x)
{
    static const char hello[] = "retry: 2000\n: belay\n\n";

    if (events->streams.n == 0) {
        (void)loop_timer_set(events->server->loop, &events->alive_timer,
                             loop_now_ms(events->server->loop) + ALIVE_MS);
    }
    stream_begin(&events->streams, &listener->stream, x);
    stream_send(&listener->stream, hello, sizeof hello - 1);
    event_stream_mark(events);
}

void handle_events(struct exchange *x)
{
    struct event_stream *events = x->server->events;
    struct belay_error err = BELAY_ERROR_INIT;
    struct event_listener *listener = NULL;
    uint64_t after = 0;
    bool is_given;

    if (!read_last_id(x, &is_given, &after)) {
        reply_problem(x, 400, "invalid", "Last-Event-ID must be the id of an event, a whole number");
        return;
    }
    if (x->request->is_head) {
        reply_text(x, 200, "text/event-stream", "", 0);
        return;
    }
    if (events->streams.n >= LISTENERS_MAX || x->server->is_draining ||
        (listener = calloc(1, sizeof *listener)) == NULL) {
        reply_problem(x, 503, "busy", "more than %d clients listen to events; retry later", LISTENERS_MAX);
        return;
    }
    if (http_query_get(x->request->query, "prefix", listener->prefix, sizeof listener->prefix) ==
        HTTP_MALFORMED) {
        reply_problem(x, 400, "invalid", "prefix is over %d bytes or not percent-encoded", BELAY_KEY_MAX);
        free(listener);
        return;
    }
    if (events->streams.n == 0 && stream_last_event(x->server->client, &events->tail, &err) != BELAY_OK) {
        reply_error(x, &err);
        belay_error_release(&err);
        free(listener);
        return;
    }
    listener->after = is_given ? after : events->tail;
    listen_to(events, listener, x);
}
