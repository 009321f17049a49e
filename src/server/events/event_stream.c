/*
 * Events are read from the store once for all listeners that are up to date. A listener that is behind gets a piece at
 * a time, so that one that resumes after a week does not delay the others. One read is in progress at a time, as work
 * (core/event_log.h):
 *
 *     marked --> read what is new, for all --> read a piece for each that is behind --> pause --> marked
 *
 * Many may be behind: after TURN_US the pause comes, and the next turn goes on with those that are left. New events are
 * read and sent during the pause, too.
 *
 * An event of this server marks the stream at once. Events of other processes on the same file or database are polled
 * for, four times a second while there are listeners.
 */
#include "server/events/event_stream.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "server/core/event_log.h"
#include "server/core/server.h"
#include "server/core/sse.h"
#include "json/json_write.h"

enum {
    LISTENERS_MAX = 1000,
    PIECE_EVENTS = 200, /* read at once */
    PIECE_MS = 10,      /* between two turns of pieces: time for other work, and for the readers */
    TURN_US = 2000,     /* of pieces, whose number is that of the listeners that are behind */
    REST_MS = 5,        /* after a turn, even if events mark the stream without end */
    LOOK_MS = 250,
    ALIVE_MS = 15000,
    EVENT_MAX = 1 << 20
};

struct event_listener {
    struct stream stream;
    uint64_t serial; /* tells it from others, before and after it */
    uint64_t after;  /* the last event that was sent to it or did not match */
    bool is_due;     /* if it is behind, its next piece is to be read in this round */
    char prefix[BELAY_KEY_MAX + 1];
};

struct event_stream {
    struct streams streams; /* of struct event_listener */
    struct server *server;  /* borrowed */
    uint64_t tail;          /* the last event that was read for listeners that are up to date */
    atomic_bool is_marked;  /* there may be new events; set by any thread */
    struct event_log log;   /* what is being read, one piece at a time */
    uint64_t reading_for;   /* the serial of a listener that is behind; 0: all that are up to date */
    uint64_t last_serial;
    int64_t pause_until_ms; /* no piece is read before this time */
    int64_t turn_until_us;  /* nor after this one */
    bool has_more;          /* to read at once, not only when the store has been asked again */
    bool is_going_on;
    struct timer look_timer;
    struct timer alive_timer;
};

size_t event_stream_count(const struct event_stream *events)
{
    return events->streams.n;
}

/* ---- sending ---- */

static struct event_listener *first_listener(const struct event_stream *events)
{
    return (struct event_listener *)events->streams.first;
}

static struct event_listener *next_listener(const struct event_listener *listener)
{
    return (struct event_listener *)listener->stream.next;
}

/* The key of a freeze's event is its pattern. */
static bool may_see_event(const struct exchange *x, const struct belay_event *event)
{
    return text_has_prefix(event->type, "freeze.") ? exchange_may_see_pattern(x, event->key)
                                                   : exchange_may_see(x, event->key);
}

static void send_event(struct event_listener *listener, const struct belay_event *event)
{
    struct buf out = BUF_INIT(EVENT_MAX);
    char *line;

    assert(event->id > listener->after); /* each event once, in order */
    listener->after = event->id;
    if (!text_has_prefix(event->key, listener->prefix) || !may_see_event(listener->stream.x, event)) {
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
    const struct event_listener *listener = first_listener(events);

    while (listener != NULL && !can_hear(listener)) {
        listener = next_listener(listener);
    }
    return listener != NULL;
}

/* ---- reading ---- */

static void look_in(struct event_stream *events, int64_t in_ms)
{
    (void)loop_timer_set(events->server->loop, &events->look_timer,
                         loop_now_ms(events->server->loop) + in_ms);
}

static bool is_behind(const struct event_stream *events, const struct event_listener *listener)
{
    return listener->is_due && listener->after < events->tail && !listener->stream.is_cut;
}

/* In a round, which may take several turns, each listener that is behind gets one piece. */
static void begin_turn(struct event_stream *events)
{
    struct event_listener *listener = first_listener(events);
    bool may_read = clock_boot_ms() >= events->pause_until_ms;

    events->turn_until_us = may_read ? clock_boot_us() + TURN_US : 0;
    while (listener != NULL && !is_behind(events, listener)) {
        listener = next_listener(listener);
    }
    if (listener != NULL) {
        return; /* a round is not over */
    }
    for (listener = first_listener(events); listener != NULL; listener = next_listener(listener)) {
        listener->is_due = true;
    }
}

static void send_new(struct event_stream *events)
{
    const struct event_log *log = &events->log;
    uint64_t from = events->tail;

    for (size_t i = 0; i < log->n; i++) {
        const struct belay_event *event = &log->events[i].event;

        for (struct event_listener *listener = first_listener(events); listener != NULL;
             listener = next_listener(listener)) {
            if (listener->after >= from && listener->after < event->id && can_hear(listener)) {
                send_event(listener, event);
            }
        }
        events->tail = event->id;
    }
    events->has_more = log->n >= PIECE_EVENTS;
    begin_turn(events);
}

/* The listener may have gone while its events were read. */
static struct event_listener *find_listener(const struct event_stream *events, uint64_t serial)
{
    struct event_listener *listener = first_listener(events);

    while (listener != NULL && listener->serial != serial) {
        listener = next_listener(listener);
    }
    return listener;
}

static void send_old(struct event_stream *events, struct event_listener *listener)
{
    const struct event_log *log = &events->log;

    for (size_t i = 0; i < log->n && !listener->stream.is_cut && log->events[i].event.id <= events->tail;
         i++) {
        if (log->events[i].event.id > listener->after) {
            send_event(listener, &log->events[i].event);
        }
    }
    if (log->code == BELAY_OK && log->n < PIECE_EVENTS && !listener->stream.is_cut &&
        listener->after < events->tail) {
        listener->after = events->tail;
    }
    events->has_more = events->has_more || (listener->after < events->tail && !listener->stream.is_cut);
}

/* The next listener that is behind, each once in a round. NULL: none is left, or the turn is over. */
static struct event_listener *next_behind(struct event_stream *events)
{
    bool is_over = clock_boot_us() >= events->turn_until_us;

    for (struct event_listener *listener = first_listener(events); listener != NULL;
         listener = next_listener(listener)) {
        bool wants_piece = is_behind(events, listener);

        if (wants_piece && is_over) {
            events->has_more = true;
            return NULL;
        }
        listener->is_due = false;
        if (wants_piece && can_hear(listener)) {
            return listener;
        }
        events->has_more = events->has_more || wants_piece;
    }
    return NULL;
}

/* Read for one listener after the other, then pause. */
static void go_on(struct event_stream *events)
{
    struct event_listener *listener;

    if (events->is_going_on) {
        return; /* called by done() of a read that ended at once */
    }
    events->is_going_on = true;
    while (!work_is_pending(&events->log.work) && (listener = next_behind(events)) != NULL) {
        events->reading_for = listener->serial;
        events->has_more = !event_log_read(&events->log, events->server->workers, WORK_READ, listener->after,
                                           0, PIECE_EVENTS) ||
                           events->has_more;
    }
    events->is_going_on = false;
    if (!work_is_pending(&events->log.work) && events->streams.n > 0) {
        if (events->turn_until_us > 0) {
            events->pause_until_ms = clock_boot_ms() + REST_MS;
        }
        look_in(events, events->has_more ? PIECE_MS : LOOK_MS);
    }
}

static void on_events_read(struct work *work)
{
    struct event_stream *events = CONTAINER_OF(work, struct event_stream, log.work);
    struct event_listener *listener =
        events->reading_for == 0 ? NULL : find_listener(events, events->reading_for);

    if (work->is_cancelled) {
        return;
    }
    if (events->reading_for == 0) {
        send_new(events);
    } else if (listener != NULL) {
        send_old(events, listener);
    }
    event_log_release(&events->log);
    go_on(events);
}

void event_stream_pump(struct event_stream *events)
{
    if (!events->is_marked || events->streams.n == 0) {
        events->is_marked = false;
        return;
    }
    if (work_is_pending(&events->log.work) || !can_any_hear(events)) {
        return; /* still marked */
    }
    events->is_marked = false;
    events->reading_for = 0;
    if (!event_log_read(&events->log, events->server->workers, WORK_READ, events->tail, 0, PIECE_EVENTS)) {
        look_in(events, LOOK_MS);
    }
}

void event_stream_mark(struct event_stream *events)
{
    events->is_marked = true;
}

static void on_look(struct timer *timer)
{
    event_stream_mark(CONTAINER_OF(timer, struct event_stream, look_timer));
}

static void on_alive(struct timer *timer)
{
    struct event_stream *events = CONTAINER_OF(timer, struct event_stream, alive_timer);

    streams_send(&events->streams, ": keep-alive\n\n", 14);
    if (events->streams.n > 0) {
        (void)loop_timer_set(events->server->loop, timer, loop_now_ms(events->server->loop) + ALIVE_MS);
    }
}

/* ---- coming and going ---- */

static void on_no_listeners(struct streams *all)
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
        events->streams.on_empty = on_no_listeners;
        events->server = server;
        events->look_timer.fire = on_look;
        events->alive_timer.fire = on_alive;
    }
    return events;
}

void event_stream_begin(struct event_stream *events)
{
    event_log_init(&events->log, events->server->client, on_events_read);
}

void event_stream_free(struct event_stream *events)
{
    if (events != NULL) {
        event_log_release(&events->log);
        free(events);
    }
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

/* The id lets a client that is cut off before its first event go on where it began. */
static void listen_to(struct event_stream *events, struct event_listener *listener, struct exchange *x)
{
    char hello[64];
    int len = snprintf(hello, sizeof hello, "retry: 2000\nid: %llu\n: belay\n\n",
                       (unsigned long long)listener->after);

    if (events->streams.n == 0) {
        (void)loop_timer_set(events->server->loop, &events->alive_timer,
                             loop_now_ms(events->server->loop) + ALIVE_MS);
    }
    listener->serial = ++events->last_serial;
    stream_begin(&events->streams, &listener->stream, x);
    stream_send(&listener->stream, hello, (size_t)len);
    event_stream_mark(events);
}

static void read_last_event(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;

    x->last_event = 0;
    if (stream_last_event(x->server->client, &x->last_event, &err) != BELAY_OK) {
        reply_error(x, &err);
    }
    belay_error_release(&err);
}

static void begin_listener(struct exchange *x)
{
    struct event_stream *events = x->server->events;
    struct event_listener *listener = NULL;
    uint64_t after = 0;
    bool is_given = false;

    (void)read_last_id(x, &is_given, &after); /* handle_events() has checked it */
    if (!streams_have_room(&events->streams, x, LISTENERS_MAX) || x->server->is_draining ||
        (listener = calloc(1, sizeof *listener)) == NULL) {
        reply_problem(x, 503, "busy", "too many clients listen to events, of %d at most; retry later",
                      LISTENERS_MAX);
        return;
    }
    if (http_query_get(x->request->query, "prefix", listener->prefix, sizeof listener->prefix) ==
        HTTP_MALFORMED) {
        reply_problem(x, 400, "invalid", "prefix is over %d bytes or not percent-encoded", BELAY_KEY_MAX);
        free(listener);
        return;
    }
    if (events->streams.n == 0) {
        events->tail = x->last_event;
    }
    /* An id that is not reached yet is that of another store, or of one that was restored. */
    listener->after = is_given && after < x->last_event ? after : x->last_event;
    listen_to(events, listener, x);
}

void handle_events(struct exchange *x)
{
    uint64_t after;
    bool is_given;

    if (!read_last_id(x, &is_given, &after)) {
        reply_problem(x, 400, "invalid", "Last-Event-ID must be the id of an event, a whole number");
        return;
    }
    if (x->request->is_head) {
        reply_text(x, 200, "text/event-stream", "", 0);
        return;
    }
    exchange_read(x, WORK_READ, read_last_event, begin_listener);
}
