/*
 * Events are read from the store once for all who are up to date, and for each
 * of those who are still catching up in pieces, so that one who comes back after
 * a week does not hold up the others.
 *
 * What this server does itself is seen at once. What other processes do on the
 * same file is looked for four times a second, while anybody listens.
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
#include "server/events/sse.h"
#include "json/json_write.h"

enum {
    LISTENERS_MAX = 1000,
    PIECE_EVENTS = 200, /* read in one go */
    PIECE_MS = 10,      /* between two pieces: time for the others, and for the reader */
    LOOK_MS = 250,
    ALIVE_MS = 15000,
    EVENT_MAX = 1 << 20
};

struct listener {
    struct stream stream;
    uint64_t after; /* the last event it has had, or did not want */
    char prefix[BELAY_KEY_MAX + 1];
};

struct feed {
    struct streams streams; /* of struct listener */
    struct server *server;  /* borrowed */
    uint64_t tail;          /* the last event that was read for those who are up to date */
    atomic_bool is_marked;  /* by whichever thread has caused an event */
    struct timer look_timer;
    struct timer alive_timer;
};

size_t feed_count(const struct feed *feed)
{
    return feed->streams.n;
}

/* ---- sending ---- */

static struct listener *first_of(const struct feed *feed)
{
    return (struct listener *)feed->streams.first;
}

static struct listener *next_of(const struct listener *listener)
{
    return (struct listener *)listener->stream.next;
}

static void send_event(struct listener *listener, const struct belay_event *event)
{
    struct buf out = BUF_INIT(EVENT_MAX);
    char *line;

    listener->after = event->id;
    if (!text_has_prefix(event->key, listener->prefix) || !exchange_may_see(listener->stream.x, event->key)) {
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
static bool can_hear(const struct listener *listener)
{
    return !http_stream_is_waiting(listener->stream.x->request);
}

static bool can_any_hear(const struct feed *feed)
{
    const struct listener *listener = first_of(feed);

    while (listener != NULL && !can_hear(listener)) {
        listener = next_of(listener);
    }
    return listener != NULL;
}

/* ---- reading ---- */

struct piece {
    struct feed *feed;
    struct listener *listener; /* NULL: all who are up to date */
    uint64_t from;
    size_t n;
};

static bool on_new(void *context, const struct belay_event *event)
{
    struct piece *piece = context;
    struct feed *feed = piece->feed;

    for (struct listener *listener = first_of(feed); listener != NULL; listener = next_of(listener)) {
        if (listener->after >= piece->from && can_hear(listener)) {
            send_event(listener, event);
        }
    }
    feed->tail = event->id;
    return ++piece->n < PIECE_EVENTS;
}

static bool on_old(void *context, const struct belay_event *event)
{
    struct piece *piece = context;

    send_event(piece->listener, event);
    return ++piece->n < PIECE_EVENTS && !piece->listener->stream.is_cut && event->id < piece->feed->tail;
}

static void look_again(struct feed *feed, int64_t in_ms)
{
    (void)loop_timer_set(feed->server->loop, &feed->look_timer, loop_now_ms(feed->server->loop) + in_ms);
}

/* Returns whether there is more for it. */
static bool catch_up(struct feed *feed, struct listener *listener)
{
    struct piece piece = { .feed = feed, .listener = listener };
    enum belay_code code = belay_events(feed->server->client, NULL, listener->after, 0, on_old, &piece, NULL);

    if (code == BELAY_OK && piece.n < PIECE_EVENTS && !listener->stream.is_cut) {
        listener->after = listener->after < feed->tail ? feed->tail : listener->after;
    }
    return listener->after < feed->tail && !listener->stream.is_cut;
}

void feed_pump(struct feed *feed)
{
    struct piece piece = { .feed = feed, .from = feed->tail };
    bool more;

    if (!feed->is_marked || feed->streams.n == 0) {
        feed->is_marked = false;
        return;
    }
    if (!can_any_hear(feed)) {
        return; /* still marked */
    }
    feed->is_marked = false;
    for (struct listener *listener = first_of(feed); listener != NULL; listener = next_of(listener)) {
        listener->after = listener->after > feed->tail ? feed->tail : listener->after;
    }
    (void)belay_events(feed->server->client, NULL, feed->tail, 0, on_new, &piece, NULL);
    more = piece.n >= PIECE_EVENTS;
    for (struct listener *listener = first_of(feed); listener != NULL; listener = next_of(listener)) {
        if (listener->after < feed->tail && !listener->stream.is_cut) {
            more = !can_hear(listener) || catch_up(feed, listener) || more;
        }
    }
    look_again(feed, more ? PIECE_MS : LOOK_MS);
}

void feed_mark(struct feed *feed)
{
    feed->is_marked = true;
}

static void on_look(struct timer *timer)
{
    feed_mark((struct feed *)(void *)((char *)timer - offsetof(struct feed, look_timer)));
}

static void on_alive(struct timer *timer)
{
    struct feed *feed = (struct feed *)(void *)((char *)timer - offsetof(struct feed, alive_timer));

    streams_send(&feed->streams, ": keep-alive\n\n", 14);
    if (feed->streams.n > 0) {
        (void)loop_timer_set(feed->server->loop, timer, loop_now_ms(feed->server->loop) + ALIVE_MS);
    }
}

/* ---- coming and going ---- */

static void on_empty(struct streams *all)
{
    struct feed *feed = (struct feed *)all;

    loop_timer_cancel(feed->server->loop, &feed->look_timer);
    loop_timer_cancel(feed->server->loop, &feed->alive_timer);
}

struct feed *feed_new(struct server *server)
{
    struct feed *feed = calloc(1, sizeof *feed);

    if (feed != NULL) {
        feed->streams.name = "events";
        feed->streams.on_empty = on_empty;
        feed->server = server;
        feed->look_timer.fire = on_look;
        feed->alive_timer.fire = on_alive;
    }
    return feed;
}

void feed_free(struct feed *feed)
{
    free(feed);
}

void feed_stop(struct feed *feed)
{
    streams_end(&feed->streams);
}

/* Where to go on: after the event they have had, or from now on. */
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

static void listen_to(struct feed *feed, struct listener *listener, struct exchange *x)
{
    static const char hello[] = "retry: 2000\n: belay\n\n";

    if (feed->streams.n == 0) {
        (void)loop_timer_set(feed->server->loop, &feed->alive_timer,
                             loop_now_ms(feed->server->loop) + ALIVE_MS);
    }
    stream_begin(&feed->streams, &listener->stream, x);
    stream_send(&listener->stream, hello, sizeof hello - 1);
    feed_mark(feed);
}

void handle_events(struct exchange *x)
{
    struct feed *feed = x->server->feed;
    struct belay_error err = BELAY_ERROR_INIT;
    struct listener *listener = NULL;
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
    if (feed->streams.n >= LISTENERS_MAX || x->server->is_draining ||
        (listener = calloc(1, sizeof *listener)) == NULL) {
        reply_problem(x, 503, "busy", "no more than %d may listen to events; come back later", LISTENERS_MAX);
        return;
    }
    if (http_query_get(x->request->query, "prefix", listener->prefix, sizeof listener->prefix) ==
        HTTP_MALFORMED) {
        reply_problem(x, 400, "invalid", "prefix is over %d bytes or not percent-encoded", BELAY_KEY_MAX);
        free(listener);
        return;
    }
    if (feed->streams.n == 0 && stream_last_event(x->server->client, &feed->tail, &err) != BELAY_OK) {
        reply_error(x, &err);
        belay_error_release(&err);
        free(listener);
        return;
    }
    listener->after = is_given ? after : feed->tail;
    listen_to(feed, listener, x);
}
