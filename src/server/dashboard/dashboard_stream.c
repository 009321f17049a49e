/*
 * An event marks its key as changed; a tick reads what has become of the changed
 * keys and sends it, once made, to every viewer. A tick that took long is
 * followed by a longer pause, so that the share of time stays the same.
 *
 * What this server does is seen as it happens. What other processes do on the
 * same file is read from the store's log. Ids of events are consecutive, so that a
 * gap between two of our own is where others may have been: only gaps, and the
 * end of the log, are read.
 */
#include "server/dashboard/dashboard_stream.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/core/server.h"
#include "server/dashboard/changed_keys.h"
#include "server/dashboard/lock_rows.h"
#include "server/dashboard/stats.h"
#include "server/events/sse.h"
#include "json/json_write.h"

enum {
    VIEWERS_MAX = 1000,
    TICK_MS = 250,
    TICK_MAX_MS = 5000,
    WAITING_MS = 10,     /* until a tick that finds a viewer waiting for a sync looks again */
    PAUSE_FACTOR = 400,  /* the pause after a tick, in lengths of the tick */
    SEND_US = 15,        /* what it takes to send to a viewer, after the tick */
    SEND_BYTES_US = 200, /* and so many bytes take one more, copied twice and received on this machine */
    TICK_EVENTS = 500,
    STATS_MS = 2000, /* that only numbers have changed is told this often */
    STALE_MS = 15000,
    RESUME_EVENTS = 2000,
    SEED_EVENTS = 200000, /* of the log, for the numbers of the day before the start */
    GAPS_MAX = 256,
    HISTORY_HOURS_DEFAULT = 6
};

/* A part of the log that is still to be read. */
struct gap {
    uint64_t after;
    uint64_t upto;
    bool is_old; /* of before the start: only counted, as nobody has been told otherwise */
};

struct live {
    struct streams viewers;
    struct server *server; /* borrowed */
    struct changes changes;
    struct stats stats;
    uint64_t stats_told; /* stats.n when it was last told */
    bool has_log;
    uint64_t start; /* the last event of before the start */
    uint64_t tail;  /* the last event that we know of */
    struct gap gaps[GAPS_MAX];
    size_t n_gaps;
    bool is_seeded;  /* the log of before the start is read, or among the gaps */
    bool has_missed; /* more changed than can be told one by one */
    int64_t told_ms;
    int64_t stale_ms;
    struct look look;
    size_t sent;      /* bytes to each viewer in this tick */
    int64_t began_us; /* the tick, in time of the loop's thread */
    struct timer tick_timer;
};

/* ---- sending ---- */

/* Nothing is left out that an id would promise: without one, who comes back gets the changes again. */
static void add_id(const struct live *live, struct buf *out)
{
    if (live->has_log && live->n_gaps == 0 && live->changes.n == 0) {
        buf_addf(out, "id: %llu\n", (unsigned long long)live->tail);
    }
}

static void send_all(struct live *live, const struct buf *out)
{
    if (!out->failed) {
        streams_send(&live->viewers, out->data, out->len);
        live->sent += out->len;
    }
}

/* Who gets this asks for the list anew. */
static void send_reset(struct live *live, struct stream *only)
{
    struct buf out = BUF_INIT(256);

    add_id(live, &out);
    buf_adds(&out, "event: reset\ndata: {}\n\n");
    if (only == NULL) {
        send_all(live, &out);
    } else if (!out.failed) {
        stream_send(only, out.data, out.len);
    }
    buf_release(&out);
}

/* ---- what has changed ---- */

/* What to look for before it can be told; returns whether there is anything. */
static bool gather(struct live *live)
{
    int64_t now_ms = loop_now_ms(live->server->loop);
    bool has_numbers = live->stats.n != live->stats_told && now_ms - live->told_ms >= STATS_MS;

    if (live->has_missed || live->changes.overrun) {
        live->has_missed = false;
        changes_clear(&live->changes);
        send_reset(live, NULL);
    }
    look_take(&live->look, &live->changes);
    live->look.tells = live->look.n_keys > 0 || has_numbers;
    if (now_ms - live->stale_ms >= STALE_MS) {
        /* That a heartbeat is missing is no event: somebody has to look. And a sign of life for who looks on. */
        live->stale_ms = now_ms;
        live->look.wants_stale = true;
        streams_send(&live->viewers, ": keep-alive\n\n", 14);
    }
    return live->look.tells || live->look.wants_stale;
}

/* Takes the rows. */
static void write_rows(const struct live *live, json_t *rows, struct buf *out)
{
    char *line = wire_line(json_pack("{s:o, s:b, s:o}", "now", wire_time(clock_unix_ms()), "has_numbers",
                                     live->stats.n != live->stats_told, "locks", rows));

    add_id(live, out);
    buf_addf(out, "event: locks\ndata: %s\n\n", line == NULL ? "{}" : line);
    free(line);
}

static bool is_limited(const struct stream *viewer)
{
    return viewer->x->token != NULL && viewer->x->token->n_keys > 0;
}

/* Those of keys that this viewer's token may see. */
static json_t *rows_for(const struct stream *viewer, const json_t *rows)
{
    json_t *seen = json_array();

    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        const char *key = json_string_value(json_object_get(row, "key"));

        if (key != NULL && exchange_may_see(viewer->x, key)) {
            (void)json_array_append(seen, row);
        }
    }
    return seen;
}

/* What was looked for: written once for all who may see all of it, and once for each of the others. */
static void tell(struct live *live)
{
    struct buf out = BUF_INIT((size_t)1 << 20);

    write_rows(live, json_incref(live->look.rows), &out);
    for (struct stream *viewer = live->viewers.first; viewer != NULL && !out.failed; viewer = viewer->next) {
        struct buf own = BUF_INIT((size_t)1 << 20);

        if (is_limited(viewer)) {
            write_rows(live, rows_for(viewer, live->look.rows), &own);
        }
        if (!is_limited(viewer) || !own.failed) {
            stream_send(viewer, is_limited(viewer) ? own.data : out.data,
                        is_limited(viewer) ? own.len : out.len);
        }
        buf_release(&own);
    }
    live->sent += out.len;
    live->stats_told = live->stats.n;
    live->told_ms = loop_now_ms(live->server->loop);
    buf_release(&out);
}

/* ---- events ---- */

/* Who waits for a key stands in line at the keys above it too. */
static void mark_above(struct live *live, const char *key)
{
    char *above[BELAY_ANCESTORS_MAX];
    size_t n = belay_key_ancestors(live->server->config, key, above);

    for (size_t i = 0; i < n; i++) {
        if (above[i] != NULL) {
            changes_mark(&live->changes, above[i], CHANGE_OTHER);
        }
        free(above[i]);
    }
}

static void mark_event(struct live *live, const struct belay_event *event)
{
    if (live->viewers.n == 0 || strcmp(event->type, "lock.refused") == 0) {
        return;
    }
    if (strncmp(event->type, "wait.", 5) == 0) {
        mark_above(live, event->key);
    }
    changes_mark(&live->changes, event->key,
                 strcmp(event->type, "lock.acquired") == 0   ? CHANGE_TAKEN
                 : strcmp(event->type, "lock.released") == 0 ? CHANGE_FREED
                                                             : CHANGE_OTHER);
}

static void add_gap(struct live *live, uint64_t after, uint64_t upto, bool is_old)
{
    if (live->n_gaps == GAPS_MAX) {
        memmove(&live->gaps[0], &live->gaps[1], (GAPS_MAX - 1) * sizeof live->gaps[0]);
        live->n_gaps--;
        live->has_missed = live->viewers.n > 0;
    }
    live->gaps[live->n_gaps++] = (struct gap){ after, upto, is_old };
}

void live_event(struct live *live, const struct belay_event *event)
{
    if (event->id != 0) {
        if (event->id <= live->tail) {
            return; /* read from the log before we were told */
        }
        if (event->id > live->tail + 1) {
            add_gap(live, live->tail, event->id - 1, false);
        }
        live->tail = event->id;
    }
    stats_add(&live->stats, event);
    mark_event(live, event);
}

struct reading {
    struct live *live;
    uint64_t upto;
    uint64_t last;
    size_t n;
    size_t most;
    bool counts;
    bool marks;
};

static bool on_log(void *context, const struct belay_event *event)
{
    struct reading *reading = context;

    if (event->id > reading->upto) {
        reading->last = reading->upto;
        return false;
    }
    if (reading->counts) {
        stats_add(&reading->live->stats, event);
    }
    if (reading->marks) {
        mark_event(reading->live, event);
    }
    reading->last = event->id;
    return ++reading->n < reading->most;
}

/* Read the newest gap first: it is what people look at. Returns how many events were read. */
static size_t read_gap(struct live *live, size_t most)
{
    struct gap *gap = &live->gaps[live->n_gaps - 1];
    struct reading reading = { live, gap->upto, gap->after, 0, most, true, !gap->is_old };
    enum belay_code code = belay_events(live->server->client, NULL, gap->after, 0, on_log, &reading, NULL);

    gap->after = reading.last;
    if (code != BELAY_OK || reading.n < most || gap->after >= gap->upto) {
        live->n_gaps--;
    }
    return reading.n;
}

static void read_end(struct live *live, size_t most)
{
    struct reading reading = { live, UINT64_MAX, live->tail, 0, most, true, true };

    (void)belay_events(live->server->client, NULL, live->tail, 0, on_log, &reading, NULL);
    live->tail = reading.last;
}

static void read_log(struct live *live)
{
    size_t n = 0;

    if (!live->has_log) {
        return;
    }
    read_end(live, TICK_EVENTS);
    for (size_t i = 0; i < GAPS_MAX && n < TICK_EVENTS && live->n_gaps > 0; i++) {
        n += read_gap(live, TICK_EVENTS - n);
    }
}

/* The numbers of the hours before the start, once somebody wants them. */
static void seed(struct live *live)
{
    if (!live->is_seeded && live->has_log) {
        live->is_seeded = true;
        if (live->start > 0) {
            add_gap(live, live->start > SEED_EVENTS ? live->start - SEED_EVENTS : 0, live->start, true);
        }
    }
}

/* ---- the tick ---- */

static int64_t cpu_us(void)
{
    struct timespec now = { 0 };

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* `spent_us` by the loop, besides what it takes to send. */
static void tick_again(struct live *live, int64_t spent_us)
{
    int64_t each_us = live->sent > 0 ? SEND_US + (int64_t)(live->sent / SEND_BYTES_US) : 0;
    int64_t pause_ms = (spent_us + (int64_t)live->viewers.n * each_us) * PAUSE_FACTOR / 1000;

    live->sent = 0;
    pause_ms = pause_ms < TICK_MS ? TICK_MS : pause_ms > TICK_MAX_MS ? TICK_MAX_MS : pause_ms;
    (void)loop_timer_set(live->server->loop, &live->tick_timer, loop_now_ms(live->server->loop) + pause_ms);
}

static void end_tick(struct live *live)
{
    if (live->viewers.n > 0 || live->n_gaps > 0) {
        tick_again(live, cpu_us() - live->began_us);
    }
}

static void on_looked(struct work *work)
{
    struct live *live = (struct live *)(void *)((char *)work - offsetof(struct live, look.work));

    if (!live->server->is_store_local || live->look.wants_stale) {
        live->began_us = cpu_us(); /* a worker did it: what the loop did meanwhile does not count */
    }
    for (size_t i = 0; i < live->look.n_stale && live->viewers.n > 0; i++) {
        changes_mark(&live->changes, live->look.stale[i], CHANGE_OTHER);
    }
    if (live->look.tells && live->look.rows != NULL && live->viewers.n > 0) {
        tell(live);
    }
    look_clear(&live->look);
    end_tick(live);
}

/* A viewer whose last message still waits for a sync gets no other: under load it would wait for ever. */
static bool is_any_waiting(const struct live *live)
{
    const struct stream *stream = live->viewers.first;

    while (stream != NULL && !http_stream_is_waiting(stream->x->request)) {
        stream = stream->next;
    }
    return stream != NULL;
}

static void on_tick(struct timer *timer)
{
    struct live *live = (struct live *)(void *)((char *)timer - offsetof(struct live, tick_timer));
    struct loop *loop = live->server->loop;

    if (work_is_pending(&live->look.work)) {
        return; /* on_looked() sets the timer again */
    }
    if (is_any_waiting(live) && loop_timer_set(loop, timer, loop_now_ms(loop) + WAITING_MS)) {
        return;
    }
    live->began_us = cpu_us();
    read_log(live);
    if (live->viewers.n == 0 || !gather(live)) {
        end_tick(live);
        return;
    }
    if (!work_queue(live->server->workers, live->look.wants_stale ? WORK_SCAN : WORK_READ,
                    &live->look.work)) {
        live->has_missed = true;
        look_clear(&live->look);
        end_tick(live);
    }
}

/* ---- coming and going ---- */

static void on_empty(struct streams *all)
{
    changes_clear(&((struct live *)all)->changes);
}

struct live *live_new(struct server *server)
{
    struct live *live = calloc(1, sizeof *live);

    if (live != NULL) {
        live->viewers.name = "dashboards";
        live->viewers.on_empty = on_empty;
        live->server = server;
        live->tick_timer.fire = on_tick;
    }
    return live;
}

size_t live_count(const struct live *live)
{
    return live->viewers.n;
}

void live_free(struct live *live)
{
    if (live != NULL) {
        changes_clear(&live->changes);
        look_clear(&live->look);
        free(live);
    }
}

void live_begin(struct live *live)
{
    live->has_log = stream_last_event(live->server->client, &live->start, NULL) == BELAY_OK;
    live->tail = live->start;
    look_init(&live->look, live->server->client, on_looked);
}

void live_stop(struct live *live)
{
    streams_end(&live->viewers);
    loop_timer_cancel(live->server->loop, &live->tick_timer);
}

/* What has changed since the event they have had. Other viewers hear it twice, which does no harm. */
static void resume(struct live *live, struct stream *viewer, const char *last_id)
{
    uint64_t after = strtoull(last_id, NULL, 10);
    struct reading reading = { live, live->tail, after, 0, RESUME_EVENTS, false, true };

    if (!live->has_log || after > live->tail || live->tail - after > RESUME_EVENTS) {
        send_reset(live, viewer);
        return;
    }
    (void)belay_events(live->server->client, NULL, after, 0, on_log, &reading, NULL);
}

static void begin_stream(struct live *live, struct stream *viewer, struct exchange *x)
{
    struct buf hello = BUF_INIT(512);

    stream_begin(&live->viewers, viewer, x);
    add_id(live, &hello);
    buf_addf(&hello, "event: hello\ndata: {\"keeps_events\":%s}\n\n", live->has_log ? "true" : "false");
    if (!hello.failed) {
        stream_send(viewer, hello.data, hello.len);
    }
    buf_release(&hello);
}

void handle_live(struct exchange *x)
{
    struct live *live = x->server->live;
    const char *last_id = http_header(x->request, "Last-Event-ID");
    struct stream *viewer;

    if (last_id != NULL && (strspn(last_id, "0123456789") != strlen(last_id) || strlen(last_id) > 19)) {
        reply_problem(x, 400, "invalid", "Last-Event-ID must be the id of an event, a whole number");
        return;
    }
    if (x->request->is_head) {
        reply_text(x, 200, "text/event-stream", "", 0);
        return;
    }
    viewer = live->viewers.n >= VIEWERS_MAX || x->server->is_draining ? NULL : calloc(1, sizeof *viewer);
    if (viewer == NULL) {
        reply_problem(x, 503, "busy", "no more than %d may look on; come back later", VIEWERS_MAX);
        return;
    }
    if (live->viewers.n == 0) {
        tick_again(live, 0);
    }
    begin_stream(live, viewer, x);
    if (last_id != NULL && *last_id != '\0') {
        resume(live, viewer, last_id);
    }
}

/* ---- numbers ---- */

void handle_stats(struct exchange *x)
{
    struct live *live = x->server->live;
    char text[8] = "";
    enum http_found found = http_query_get(x->request->query, "hours", text, sizeof text);
    long hours = found == HTTP_ABSENT                                  ? HISTORY_HOURS_DEFAULT
                 : strspn(text, "0123456789") == strlen(text) && *text ? strtol(text, NULL, 10)
                                                                       : 0;
    json_t *body;

    if (!exchange_sees_all(x)) {
        return;
    }
    if (found == HTTP_MALFORMED || hours < 1 || hours > STATS_HOURS) {
        reply_problem(x, 400, "invalid", "hours must be a whole number from 1 to %d", STATS_HOURS);
        return;
    }
    seed(live);
    read_log(live);
    if (live->n_gaps > 0) {
        tick_again(live, 0);
    }
    body = stats_json(&live->stats, (int)hours, clock_unix_ms());
    if (body != NULL) {
        (void)json_object_set_new(body, "is_complete", json_boolean(live->n_gaps == 0));
    }
    reply(x, 200, body);
}
