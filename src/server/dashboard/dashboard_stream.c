/*
 * An event marks its key as changed. A tick reads the changed keys, writes them as JSON once and sends that to every
 * viewer. The pause after a tick grows with its length, so that the share of time stays the same.
 *
 * Events of this server arrive as they happen. Those of other processes on the same file are read from the store's
 * event log. Ids of events are consecutive, so a gap between two events of this server is where others wrote: only gaps
 * and the end of the log are read.
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
#include "server/core/sse.h"
#include "server/dashboard/activity.h"
#include "server/dashboard/changed_keys.h"
#include "server/dashboard/lock_rows.h"
#include "json/json_write.h"

enum {
    VIEWERS_MAX = 1000,
    TICK_MS = 250,
    TICK_MAX_MS = 5000,
    WAITING_MS = 10,    /* until a tick that finds a viewer waiting for a sync looks again */
    PAUSE_FACTOR = 400, /* the pause after a tick, as a multiple of its length */
    SEND_US = 15,       /* the cost of sending to one viewer */
    SEND_BYTES_US =
        200, /* bytes that cost one more microsecond: copied twice, and received on this machine */
    TICK_EVENTS = 500,
    ACTIVITY_MS = 2000, /* how often a change of the statistics alone is sent */
    STALE_MS = 15000,
    RESUME_EVENTS = 2000,
    SEED_EVENTS = 200000, /* of the log, for the statistics of the day before the start */
    GAPS_MAX = 256,
    HISTORY_HOURS_DEFAULT = 6
};

/* A part of the event log that is still to be read. */
struct gap {
    uint64_t after;
    uint64_t upto;
    bool is_old; /* before the start: counted, but viewers need not be told */
};

struct dashboard_stream {
    struct streams viewers;
    struct server *server; /* borrowed */
    struct changes changes;
    struct activity activity;
    uint64_t activity_told; /* activity.n when it was last sent */
    bool has_log;
    uint64_t start; /* the last event before the start */
    uint64_t tail;  /* the last known event */
    struct gap gaps[GAPS_MAX];
    size_t n_gaps;
    bool is_seeded;  /* the log before the start was read, or is among the gaps */
    bool has_missed; /* viewers must be told to read the whole list */
    int64_t told_ms;
    int64_t stale_ms;
    struct lock_rows rows;
    size_t sent;      /* bytes to each viewer in this tick */
    int64_t began_us; /* of the tick, in CPU time of the loop's thread */
    struct timer tick_timer;
};

/* ---- sending ---- */

/* An id promises that nothing before it is missing. Without one, a viewer that reconnects gets the changes again. */
static void add_id(const struct dashboard_stream *dashboard, struct buf *out)
{
    if (dashboard->has_log && dashboard->n_gaps == 0 && dashboard->changes.n == 0) {
        buf_addf(out, "id: %llu\n", (unsigned long long)dashboard->tail);
    }
}

static void send_all(struct dashboard_stream *dashboard, const struct buf *out)
{
    if (!out->failed) {
        streams_send(&dashboard->viewers, out->data, out->len);
        dashboard->sent += out->len;
    }
}

/* A viewer that gets this reads the whole list again. */
static void send_reset(struct dashboard_stream *dashboard, struct stream *only)
{
    struct buf out = BUF_INIT(256);

    add_id(dashboard, &out);
    buf_adds(&out, "event: reset\ndata: {}\n\n");
    if (only == NULL) {
        send_all(dashboard, &out);
    } else if (!out.failed) {
        stream_send(only, out.data, out.len);
    }
    buf_release(&out);
}

/* ---- what has changed ---- */

/* Choose what to read from the store; returns whether there is anything. */
static bool gather(struct dashboard_stream *dashboard)
{
    int64_t now_ms = loop_now_ms(dashboard->server->loop);
    bool has_numbers =
        dashboard->activity.n != dashboard->activity_told && now_ms - dashboard->told_ms >= ACTIVITY_MS;

    if (dashboard->has_missed || dashboard->changes.overrun) {
        dashboard->has_missed = false;
        changes_clear(&dashboard->changes);
        send_reset(dashboard, NULL);
    }
    lock_rows_take(&dashboard->rows, &dashboard->changes);
    dashboard->rows.tells = dashboard->rows.n_keys > 0 || has_numbers;
    if (now_ms - dashboard->stale_ms >= STALE_MS) {
        /* A missed heartbeat is no event, so stale locks are polled for. And a keepalive for the viewers. */
        dashboard->stale_ms = now_ms;
        dashboard->rows.wants_stale = true;
        streams_send(&dashboard->viewers, ": keep-alive\n\n", 14);
    }
    return dashboard->rows.tells || dashboard->rows.wants_stale;
}

/* Takes `rows`. */
static void write_rows(const struct dashboard_stream *dashboard, json_t *rows, struct buf *out)
{
    char *line = wire_line(json_pack("{s:o, s:b, s:o}", "now", wire_time(clock_unix_ms()), "has_numbers",
                                     dashboard->activity.n != dashboard->activity_told, "locks", rows));

    add_id(dashboard, out);
    buf_addf(out, "event: locks\ndata: %s\n\n", line == NULL ? "{}" : line);
    free(line);
}

static bool is_limited(const struct stream *viewer)
{
    return viewer->x->token != NULL && viewer->x->token->n_keys > 0;
}

/* The rows whose keys this viewer's token may see. */
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

/* Send the rows: written once for the viewers that may see all keys, and once for each of the others. */
static void tell(struct dashboard_stream *dashboard)
{
    struct buf out = BUF_INIT((size_t)1 << 20);

    write_rows(dashboard, json_incref(dashboard->rows.json), &out);
    for (struct stream *viewer = dashboard->viewers.first; viewer != NULL && !out.failed;
         viewer = viewer->next) {
        struct buf own = BUF_INIT((size_t)1 << 20);

        if (is_limited(viewer)) {
            write_rows(dashboard, rows_for(viewer, dashboard->rows.json), &own);
        }
        if (!is_limited(viewer) || !own.failed) {
            stream_send(viewer, is_limited(viewer) ? own.data : out.data,
                        is_limited(viewer) ? own.len : out.len);
        }
        buf_release(&own);
    }
    dashboard->sent += out.len;
    dashboard->activity_told = dashboard->activity.n;
    dashboard->told_ms = loop_now_ms(dashboard->server->loop);
    buf_release(&out);
}

/* ---- events ---- */

/* A waiter for a key is queued at the keys above it too. */
static void mark_above(struct dashboard_stream *dashboard, const char *key)
{
    char *above[BELAY_ANCESTORS_MAX];
    size_t n = belay_key_ancestors(dashboard->server->config, key, above);

    for (size_t i = 0; i < n; i++) {
        if (above[i] != NULL) {
            changes_mark(&dashboard->changes, above[i], CHANGE_OTHER);
        }
        free(above[i]);
    }
}

static void mark_event(struct dashboard_stream *dashboard, const struct belay_event *event)
{
    if (dashboard->viewers.n == 0 || strcmp(event->type, "lock.refused") == 0) {
        return;
    }
    if (strncmp(event->type, "wait.", 5) == 0) {
        mark_above(dashboard, event->key);
    }
    changes_mark(&dashboard->changes, event->key,
                 strcmp(event->type, "lock.acquired") == 0   ? CHANGE_TAKEN
                 : strcmp(event->type, "lock.released") == 0 ? CHANGE_FREED
                                                             : CHANGE_OTHER);
}

static void add_gap(struct dashboard_stream *dashboard, uint64_t after, uint64_t upto, bool is_old)
{
    if (dashboard->n_gaps == GAPS_MAX) {
        memmove(&dashboard->gaps[0], &dashboard->gaps[1], (GAPS_MAX - 1) * sizeof dashboard->gaps[0]);
        dashboard->n_gaps--;
        dashboard->has_missed = dashboard->viewers.n > 0;
    }
    dashboard->gaps[dashboard->n_gaps++] = (struct gap){ after, upto, is_old };
}

void dashboard_stream_event(struct dashboard_stream *dashboard, const struct belay_event *event)
{
    if (event->id != 0) {
        if (event->id <= dashboard->tail) {
            return; /* read from the log before */
        }
        if (event->id > dashboard->tail + 1) {
            add_gap(dashboard, dashboard->tail, event->id - 1, false);
        }
        dashboard->tail = event->id;
    }
    activity_add(&dashboard->activity, event);
    mark_event(dashboard, event);
}

struct log_reading {
    struct dashboard_stream *dashboard;
    uint64_t upto;
    uint64_t last;
    size_t n;
    size_t most;
    bool counts;
    bool marks;
};

static bool on_log(void *context, const struct belay_event *event)
{
    struct log_reading *reading = context;

    if (event->id > reading->upto) {
        reading->last = reading->upto;
        return false;
    }
    if (reading->counts) {
        activity_add(&reading->dashboard->activity, event);
    }
    if (reading->marks) {
        mark_event(reading->dashboard, event);
    }
    reading->last = event->id;
    return ++reading->n < reading->most;
}

/* Read the newest gap first, which matters most to viewers. Returns how many events were read. */
static size_t read_gap(struct dashboard_stream *dashboard, size_t most)
{
    struct gap *gap = &dashboard->gaps[dashboard->n_gaps - 1];
    struct log_reading reading = { dashboard, gap->upto, gap->after, 0, most, true, !gap->is_old };
    enum belay_code code =
        belay_events(dashboard->server->client, NULL, gap->after, 0, on_log, &reading, NULL);

    gap->after = reading.last;
    if (code != BELAY_OK || reading.n < most || gap->after >= gap->upto) {
        dashboard->n_gaps--;
    }
    return reading.n;
}

static void read_end(struct dashboard_stream *dashboard, size_t most)
{
    struct log_reading reading = { dashboard, UINT64_MAX, dashboard->tail, 0, most, true, true };

    (void)belay_events(dashboard->server->client, NULL, dashboard->tail, 0, on_log, &reading, NULL);
    dashboard->tail = reading.last;
}

static void read_log(struct dashboard_stream *dashboard)
{
    size_t n = 0;

    if (!dashboard->has_log) {
        return;
    }
    read_end(dashboard, TICK_EVENTS);
    for (size_t i = 0; i < GAPS_MAX && n < TICK_EVENTS && dashboard->n_gaps > 0; i++) {
        n += read_gap(dashboard, TICK_EVENTS - n);
    }
}

/* The statistics of the hours before the start, at the first request for them. */
static void seed(struct dashboard_stream *dashboard)
{
    if (!dashboard->is_seeded && dashboard->has_log) {
        dashboard->is_seeded = true;
        if (dashboard->start > 0) {
            add_gap(dashboard, dashboard->start > SEED_EVENTS ? dashboard->start - SEED_EVENTS : 0,
                    dashboard->start, true);
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

/* `spent_us` by the loop, without sending. */
static void tick_again(struct dashboard_stream *dashboard, int64_t spent_us)
{
    int64_t each_us = dashboard->sent > 0 ? SEND_US + (int64_t)(dashboard->sent / SEND_BYTES_US) : 0;
    int64_t pause_ms = (spent_us + (int64_t)dashboard->viewers.n * each_us) * PAUSE_FACTOR / 1000;

    dashboard->sent = 0;
    pause_ms = pause_ms < TICK_MS ? TICK_MS : pause_ms > TICK_MAX_MS ? TICK_MAX_MS : pause_ms;
    (void)loop_timer_set(dashboard->server->loop, &dashboard->tick_timer,
                         loop_now_ms(dashboard->server->loop) + pause_ms);
}

static void end_tick(struct dashboard_stream *dashboard)
{
    if (dashboard->viewers.n > 0 || dashboard->n_gaps > 0) {
        tick_again(dashboard, cpu_us() - dashboard->began_us);
    }
}

static void on_rows(struct work *work)
{
    struct dashboard_stream *dashboard =
        (struct dashboard_stream *)(void *)((char *)work - offsetof(struct dashboard_stream, rows.work));

    if (!dashboard->server->is_store_local || dashboard->rows.wants_stale) {
        dashboard->began_us =
            cpu_us(); /* a worker read the rows: what the loop did meanwhile does not count */
    }
    for (size_t i = 0; i < dashboard->rows.n_stale && dashboard->viewers.n > 0; i++) {
        changes_mark(&dashboard->changes, dashboard->rows.stale[i], CHANGE_OTHER);
    }
    if (dashboard->rows.tells && dashboard->rows.json != NULL && dashboard->viewers.n > 0) {
        tell(dashboard);
    }
    lock_rows_clear(&dashboard->rows);
    end_tick(dashboard);
}

/* A viewer whose last message still waits for a sync gets no other: under load it would wait for ever. */
static bool is_any_waiting(const struct dashboard_stream *dashboard)
{
    const struct stream *stream = dashboard->viewers.first;

    while (stream != NULL && !http_stream_is_waiting(stream->x->request)) {
        stream = stream->next;
    }
    return stream != NULL;
}

static void on_tick(struct timer *timer)
{
    struct dashboard_stream *dashboard =
        (struct dashboard_stream *)(void *)((char *)timer - offsetof(struct dashboard_stream, tick_timer));
    struct loop *loop = dashboard->server->loop;

    if (work_is_pending(&dashboard->rows.work)) {
        return; /* on_rows() sets the timer again */
    }
    if (is_any_waiting(dashboard) && loop_timer_set(loop, timer, loop_now_ms(loop) + WAITING_MS)) {
        return;
    }
    dashboard->began_us = cpu_us();
    read_log(dashboard);
    if (dashboard->viewers.n == 0 || !gather(dashboard)) {
        end_tick(dashboard);
        return;
    }
    if (!work_queue(dashboard->server->workers, dashboard->rows.wants_stale ? WORK_SCAN : WORK_READ,
                    &dashboard->rows.work)) {
        dashboard->has_missed = true;
        lock_rows_clear(&dashboard->rows);
        end_tick(dashboard);
    }
}

/* ---- coming and going ---- */

static void on_empty(struct streams *all)
{
    changes_clear(&((struct dashboard_stream *)all)->changes);
}

struct dashboard_stream *dashboard_stream_new(struct server *server)
{
    struct dashboard_stream *dashboard = calloc(1, sizeof *dashboard);

    if (dashboard != NULL) {
        dashboard->viewers.name = "dashboards";
        dashboard->viewers.on_empty = on_empty;
        dashboard->server = server;
        dashboard->tick_timer.fire = on_tick;
    }
    return dashboard;
}

size_t dashboard_stream_count(const struct dashboard_stream *dashboard)
{
    return dashboard->viewers.n;
}

void dashboard_stream_free(struct dashboard_stream *dashboard)
{
    if (dashboard != NULL) {
        changes_clear(&dashboard->changes);
        lock_rows_clear(&dashboard->rows);
        free(dashboard);
    }
}

void dashboard_stream_begin(struct dashboard_stream *dashboard)
{
    dashboard->has_log = stream_last_event(dashboard->server->client, &dashboard->start, NULL) == BELAY_OK;
    dashboard->tail = dashboard->start;
    lock_rows_init(&dashboard->rows, dashboard->server->client, on_rows);
}

void dashboard_stream_stop(struct dashboard_stream *dashboard)
{
    streams_end(&dashboard->viewers);
    loop_timer_cancel(dashboard->server->loop, &dashboard->tick_timer);
}

void dashboard_stream_end_session(struct dashboard_stream *dashboard, uint64_t session)
{
    streams_end_session(&dashboard->viewers, session);
}

/* Mark what has changed since the last event that the viewer got. Other viewers get it twice, which is harmless. */
static void resume(struct dashboard_stream *dashboard, struct stream *viewer, const char *last_id)
{
    uint64_t after = strtoull(last_id, NULL, 10);
    struct log_reading reading = { dashboard, dashboard->tail, after, 0, RESUME_EVENTS, false, true };

    if (!dashboard->has_log || after > dashboard->tail || dashboard->tail - after > RESUME_EVENTS) {
        send_reset(dashboard, viewer);
        return;
    }
    (void)belay_events(dashboard->server->client, NULL, after, 0, on_log, &reading, NULL);
}

static void begin_stream(struct dashboard_stream *dashboard, struct stream *viewer, struct exchange *x)
{
    struct buf hello = BUF_INIT(512);

    stream_begin(&dashboard->viewers, viewer, x);
    add_id(dashboard, &hello);
    buf_addf(&hello, "event: hello\ndata: {\"keeps_events\":%s}\n\n", dashboard->has_log ? "true" : "false");
    if (!hello.failed) {
        stream_send(viewer, hello.data, hello.len);
    }
    buf_release(&hello);
}

void handle_dashboard_stream(struct exchange *x)
{
    struct dashboard_stream *dashboard = x->server->dashboard;
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
    viewer = dashboard->viewers.n >= VIEWERS_MAX || x->server->is_draining ? NULL : calloc(1, sizeof *viewer);
    if (viewer == NULL) {
        reply_problem(x, 503, "busy", "more than %d dashboards are open; retry later", VIEWERS_MAX);
        return;
    }
    if (dashboard->viewers.n == 0) {
        tick_again(dashboard, 0);
    }
    begin_stream(dashboard, viewer, x);
    if (last_id != NULL && *last_id != '\0') {
        resume(dashboard, viewer, last_id);
    }
}

/* ---- numbers ---- */

void handle_activity(struct exchange *x)
{
    struct dashboard_stream *dashboard = x->server->dashboard;
    char text[8] = "";
    enum http_found found = http_query_get(x->request->query, "hours", text, sizeof text);
    long hours = found == HTTP_ABSENT                                  ? HISTORY_HOURS_DEFAULT
                 : strspn(text, "0123456789") == strlen(text) && *text ? strtol(text, NULL, 10)
                                                                       : 0;
    json_t *body;

    if (!exchange_sees_all(x)) {
        return;
    }
    if (found == HTTP_MALFORMED || hours < 1 || hours > ACTIVITY_HOURS) {
        reply_problem(x, 400, "invalid", "hours must be a whole number from 1 to %d", ACTIVITY_HOURS);
        return;
    }
    seed(dashboard);
    read_log(dashboard);
    if (dashboard->n_gaps > 0) {
        tick_again(dashboard, 0);
    }
    body = activity_json(&dashboard->activity, (int)hours, clock_unix_ms());
    if (body != NULL) {
        (void)json_object_set_new(body, "is_complete", json_boolean(dashboard->n_gaps == 0));
    }
    reply(x, 200, body);
}
