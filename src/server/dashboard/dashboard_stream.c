/*
 * An event marks its key as changed. A tick reads the changed keys, writes them as JSON once and sends that to every
 * viewer. The pause after a tick grows with its length, so that the share of time stays the same.
 *
 * Events of this server arrive as they happen. Those of other processes on the same file are read from the store's
 * event log. Ids of events are consecutive, so a gap between two events of this server is where others wrote: only gaps
 * and the end of the log are read.
 *
 * A store that is not on this machine has other servers as well, and ids with gaps. There all events are read from the
 * log, this server's too, by a worker:
 *
 *     tick --> read the end of the log --> read gaps --> gather --> read rows --> tell --> pause --> tick
 *
 * Such a store may not answer when the server starts. Then the first tick after it does finds where the log ends, and
 * viewers read the whole list.
 */
#include "server/dashboard/dashboard_stream.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/core/event_log.h"
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
    WAITING_MS = 10,     /* until a tick that finds a viewer waiting for a sync looks again */
    PAUSE_FACTOR = 400,  /* the pause after a tick, as a multiple of its length */
    SEND_US = 15,        /* the cost of sending to one viewer */
    SEND_BYTES_US = 200, /* bytes that cost one more microsecond: copied twice, and perhaps received here */
    TICK_EVENTS = 500,   /* read at once */
    NETWORK_PIECES = 20, /* of so many events, in one tick on a store that is read off the loop */
    ACTIVITY_MS = 2000,  /* how often a change of the statistics alone is sent */
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

enum log_part { LOG_NONE, LOG_START, LOG_END, LOG_SEED, LOG_GAP };

struct dashboard_stream {
    struct streams viewers;
    struct server *server; /* borrowed */
    struct changes changes;
    struct activity activity;
    uint64_t activity_told; /* activity.n when it was last sent */
    bool has_log;
    bool wants_start; /* it could not be read at the start: where does it end? */
    uint64_t start;   /* the last event before the start */
    uint64_t tail;    /* the last known event */
    struct gap gaps[GAPS_MAX];
    size_t n_gaps;
    struct event_log log;     /* what is being read, one piece at a time */
    enum log_part part;       /* which */
    size_t log_left;          /* events that may still be read this time */
    bool wants_end;           /* the end of the log is to be read */
    bool wants_seed;          /* it is to be found where the statistics of the time before the start begin */
    bool is_behind;           /* there is more at the end of the log than was read */
    bool is_reading_on;       /* read_on() is on the stack */
    bool is_ticking;          /* the tick goes on when the log was read */
    struct exchange *waiting; /* for the log, too; linked by `next` */
    bool is_seeded;           /* the log before the start was read, or is among the gaps */
    bool has_missed;          /* viewers must be told to read the whole list */
    int64_t told_ms;
    int64_t stale_ms;
    struct lock_rows rows;
    size_t sent;      /* bytes to each viewer in this tick */
    int64_t began_us; /* of the tick, in CPU time of the loop's thread */
    struct timer tick_timer;
};

/* Whether events are known to be in the log that were not read yet. */
static bool has_more_log(const struct dashboard_stream *dashboard)
{
    return dashboard->n_gaps > 0 || dashboard->is_behind;
}

/* ---- sending ---- */

/* An id promises that nothing before it is missing. Without one, a viewer that reconnects gets the changes again. */
static void add_event_id(const struct dashboard_stream *dashboard, struct buf *out)
{
    if (dashboard->has_log && !has_more_log(dashboard) && dashboard->changes.n == 0) {
        buf_addf(out, "id: %llu\n", (unsigned long long)dashboard->tail);
    }
}

static void send_to_viewers(struct dashboard_stream *dashboard, const struct buf *out)
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

    add_event_id(dashboard, &out);
    buf_adds(&out, "event: reset\ndata: {}\n\n");
    if (only == NULL) {
        send_to_viewers(dashboard, &out);
    } else if (!out.failed) {
        stream_send(only, out.data, out.len);
    }
    buf_release(&out);
}

/* ---- what has changed ---- */

/* Choose what to read from the store; returns whether there is anything. */
static bool choose_rows(struct dashboard_stream *dashboard)
{
    int64_t now_ms = loop_now_ms(dashboard->server->loop);
    bool has_numbers =
        dashboard->activity.n != dashboard->activity_told && now_ms - dashboard->told_ms >= ACTIVITY_MS;

    assert(dashboard->rows.n_keys == 0 && dashboard->rows.json == NULL);
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

    add_event_id(dashboard, out);
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
static void send_rows(struct dashboard_stream *dashboard)
{
    struct buf out = BUF_INIT((size_t)1 << 20);

    assert(dashboard->rows.json != NULL && dashboard->rows.tells);
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
    assert(after < upto && dashboard->n_gaps <= GAPS_MAX);
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
        if (!dashboard->server->is_store_local && (dashboard->has_log || dashboard->wants_start)) {
            return; /* it is read from the log, with those of other servers */
        }
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

/* ---- reading the log ---- */

static void seed(struct dashboard_stream *dashboard);

/* As if the server had begun now. */
static void take_start(struct dashboard_stream *dashboard)
{
    const struct event_log *log = &dashboard->log;

    assert(dashboard->wants_start && !dashboard->has_log);
    if (log->code != BELAY_OK) {
        dashboard->wants_start = log->code != BELAY_NOT_FOUND;
        dashboard->log_left = 0; /* until the next tick, or request */
        return;
    }
    dashboard->wants_start = false;
    dashboard->has_log = true;
    dashboard->start = dashboard->tail = log->n > 0 ? log->events[0].event.id : 0;
    dashboard->has_missed = dashboard->viewers.n > 0;
    if (dashboard->waiting != NULL) {
        seed(dashboard);
    }
}

static void take_end(struct dashboard_stream *dashboard)
{
    const struct event_log *log = &dashboard->log;

    for (size_t i = 0; i < log->n; i++) {
        if (log->events[i].event.id > dashboard->tail) {
            activity_add(&dashboard->activity, &log->events[i].event);
            mark_event(dashboard, &log->events[i].event);
            dashboard->tail = log->events[i].event.id;
        }
    }
    dashboard->is_behind = log->n == log->most;
    dashboard->wants_end = dashboard->is_behind && !dashboard->server->is_store_local;
}

/* The first event of the statistics. */
static void take_seed(struct dashboard_stream *dashboard)
{
    const struct event_log *log = &dashboard->log;

    if (log->n > 0 && log->events[0].event.id <= dashboard->start) {
        add_gap(dashboard, log->events[0].event.id - 1, dashboard->start, true);
    }
}

static void take_gap(struct dashboard_stream *dashboard)
{
    const struct event_log *log = &dashboard->log;
    struct gap *gap = &dashboard->gaps[dashboard->n_gaps - 1];

    assert(dashboard->part == LOG_GAP && dashboard->n_gaps > 0 && dashboard->n_gaps <= GAPS_MAX);
    for (size_t i = 0; i < log->n && gap->after < gap->upto; i++) {
        const struct belay_event *event = &log->events[i].event;

        gap->after = event->id;
        if (event->id <= gap->upto) {
            activity_add(&dashboard->activity, event);
        }
        if (event->id <= gap->upto && !gap->is_old) {
            mark_event(dashboard, event);
        }
    }
    if (log->code != BELAY_OK || log->n < log->most || gap->after >= gap->upto) {
        dashboard->n_gaps--;
    }
}

/* Begin to read what is next: the end of the log, then gaps, the newest first, which matters most to viewers. */
static bool read_next(struct dashboard_stream *dashboard)
{
    size_t most = dashboard->log_left < TICK_EVENTS ? dashboard->log_left : TICK_EVENTS;
    uint64_t after = dashboard->tail;

    if (most == 0) {
        return false;
    }
    dashboard->part = dashboard->wants_start  ? LOG_START
                      : dashboard->wants_end  ? LOG_END
                      : dashboard->wants_seed ? LOG_SEED
                      : dashboard->n_gaps > 0 ? LOG_GAP
                                              : LOG_NONE;
    switch (dashboard->part) {
    case LOG_NONE:
        return false;
    case LOG_START:
        return event_log_read(&dashboard->log, dashboard->server->workers, WORK_READ, 0, 1, 1);
    case LOG_END:
        dashboard->wants_end = false;
        break;
    case LOG_SEED:
        dashboard->wants_seed = false;
        return event_log_read(&dashboard->log, dashboard->server->workers, WORK_READ, 0, SEED_EVENTS, 1);
    case LOG_GAP:
        after = dashboard->gaps[dashboard->n_gaps - 1].after;
        break;
    }
    return event_log_read(&dashboard->log, dashboard->server->workers, WORK_READ, after, 0, most);
}

static void log_was_read(struct dashboard_stream *dashboard);

/* Until all is read, or as much as there is time for. On a store on this machine every read ends at once. */
static void read_on(struct dashboard_stream *dashboard)
{
    if (dashboard->is_reading_on) {
        return;
    }
    dashboard->is_reading_on = true;
    while (!work_is_pending(&dashboard->log.work) && read_next(dashboard)) {
    }
    dashboard->is_reading_on = false;
    if (!work_is_pending(&dashboard->log.work)) {
        log_was_read(dashboard);
    }
}

static void on_log_read(struct work *work)
{
    struct dashboard_stream *dashboard = CONTAINER_OF(work, struct dashboard_stream, log.work);
    size_t spent = dashboard->log.n + 1;

    assert(dashboard->part != LOG_NONE && dashboard->log.n <= dashboard->log.most);
    if (work->is_cancelled) {
        spent = dashboard->log_left;
    } else if (dashboard->part == LOG_START) {
        take_start(dashboard);
    } else if (dashboard->part == LOG_END) {
        take_end(dashboard);
    } else if (dashboard->part == LOG_SEED) {
        take_seed(dashboard);
    } else {
        take_gap(dashboard);
    }
    dashboard->log_left -= spent < dashboard->log_left ? spent : dashboard->log_left;
    event_log_release(&dashboard->log);
    read_on(dashboard);
}

/* In the end log_was_read() is called. */
static void read_log(struct dashboard_stream *dashboard)
{
    if (!work_is_pending(&dashboard->log.work)) {
        dashboard->wants_end = dashboard->has_log;
        dashboard->log_left = dashboard->server->is_store_local ? 2 * (size_t)TICK_EVENTS
                                                                : NETWORK_PIECES * (size_t)TICK_EVENTS;
        read_on(dashboard);
    }
}

/* The statistics of the hours before the start, at the first request for them. */
static void seed(struct dashboard_stream *dashboard)
{
    if (dashboard->is_seeded || !dashboard->has_log || dashboard->start == 0) {
        return;
    }
    dashboard->is_seeded = true;
    if (!dashboard->server->is_store_local) {
        dashboard->wants_seed = true; /* its ids do not say how many events there are */
    } else {
        add_gap(dashboard, dashboard->start > SEED_EVENTS ? dashboard->start - SEED_EVENTS : 0,
                dashboard->start, true);
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

    assert(spent_us >= 0);
    dashboard->sent = 0;
    pause_ms = pause_ms < TICK_MS ? TICK_MS : pause_ms > TICK_MAX_MS ? TICK_MAX_MS : pause_ms;
    (void)loop_timer_set(dashboard->server->loop, &dashboard->tick_timer,
                         loop_now_ms(dashboard->server->loop) + pause_ms);
}

static void end_tick(struct dashboard_stream *dashboard)
{
    if (dashboard->viewers.n > 0 || has_more_log(dashboard)) {
        tick_again(dashboard, cpu_us() - dashboard->began_us);
    }
}

static void on_rows(struct work *work)
{
    struct dashboard_stream *dashboard = CONTAINER_OF(work, struct dashboard_stream, rows.work);

    if (!dashboard->server->is_store_local || dashboard->rows.wants_stale) {
        /* A worker read the rows: what the loop did meanwhile does not count. */
        dashboard->began_us = cpu_us();
    }
    for (size_t i = 0; i < dashboard->rows.n_stale && dashboard->viewers.n > 0; i++) {
        changes_mark(&dashboard->changes, dashboard->rows.stale[i], CHANGE_OTHER);
    }
    if (dashboard->rows.tells && dashboard->rows.json != NULL && dashboard->viewers.n > 0) {
        send_rows(dashboard);
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
    struct dashboard_stream *dashboard = CONTAINER_OF(timer, struct dashboard_stream, tick_timer);
    struct loop *loop = dashboard->server->loop;

    if (work_is_pending(&dashboard->rows.work)) {
        return; /* on_rows() sets the timer again */
    }
    if (is_any_waiting(dashboard) && loop_timer_set(loop, timer, loop_now_ms(loop) + WAITING_MS)) {
        return;
    }
    dashboard->began_us = cpu_us();
    dashboard->is_ticking = true;
    read_log(dashboard);
}

/* The second half of a tick. */
static void tick_rows(struct dashboard_stream *dashboard)
{
    assert(!dashboard->is_ticking && !work_is_pending(&dashboard->rows.work));
    if (!dashboard->server->is_store_local) {
        dashboard->began_us = cpu_us(); /* a worker read the log */
    }
    if (dashboard->viewers.n == 0 || !choose_rows(dashboard)) {
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

static void answer_activity(struct dashboard_stream *dashboard);

static void log_was_read(struct dashboard_stream *dashboard)
{
    bool is_ticking = dashboard->is_ticking;

    dashboard->is_ticking = false;
    answer_activity(dashboard);
    if (is_ticking) {
        tick_rows(dashboard);
    } else if (has_more_log(dashboard)) {
        tick_again(dashboard, 0);
    }
}

/* ---- coming and going ---- */

static void on_no_viewers(struct streams *all)
{
    changes_clear(&((struct dashboard_stream *)all)->changes);
}

struct dashboard_stream *dashboard_stream_new(struct server *server)
{
    struct dashboard_stream *dashboard = calloc(1, sizeof *dashboard);

    if (dashboard != NULL) {
        dashboard->viewers.name = "dashboards";
        dashboard->viewers.on_empty = on_no_viewers;
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
        event_log_release(&dashboard->log);
        free(dashboard);
    }
}

void dashboard_stream_begin(struct dashboard_stream *dashboard)
{
    const struct server *server = dashboard->server;
    bool may_ask =
        server->is_store_local || server->identity.id[0] != '\0'; /* else it would not answer again */
    enum belay_code code =
        may_ask ? stream_last_event(server->client, &dashboard->start, NULL) : BELAY_UNREACHABLE;

    dashboard->has_log = code == BELAY_OK;
    dashboard->wants_start = code != BELAY_OK && code != BELAY_NOT_FOUND;
    dashboard->tail = dashboard->start;
    lock_rows_init(&dashboard->rows, dashboard->server->client, on_rows);
    event_log_init(&dashboard->log, dashboard->server->client, on_log_read);
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

struct resuming {
    struct dashboard_stream *dashboard;
    size_t n;
};

static bool on_resumed(void *context, const struct belay_event *event)
{
    struct resuming *resuming = context;

    if (event->id > resuming->dashboard->tail) {
        return false;
    }
    mark_event(resuming->dashboard, event);
    return ++resuming->n < RESUME_EVENTS;
}

/*
 * Mark what has changed since the last event that the viewer got. Other viewers get it twice, which is harmless. A
 * store on the network is not read here: the viewer reads the whole list.
 */
static void resume(struct dashboard_stream *dashboard, struct stream *viewer, const char *last_id)
{
    uint64_t after = strtoull(last_id, NULL, 10);
    struct resuming resuming = { dashboard, 0 };

    if (dashboard->has_log && after == dashboard->tail) {
        return;
    }
    if (!dashboard->has_log || !dashboard->server->is_store_local || after > dashboard->tail ||
        dashboard->tail - after > RESUME_EVENTS) {
        send_reset(dashboard, viewer);
        return;
    }
    (void)belay_events(dashboard->server->client, NULL, after, 0, on_resumed, &resuming, NULL);
}

static void begin_stream(struct dashboard_stream *dashboard, struct stream *viewer, struct exchange *x)
{
    struct buf hello = BUF_INIT(512);

    assert(dashboard->viewers.n < VIEWERS_MAX);
    stream_begin(&dashboard->viewers, viewer, x);
    add_event_id(dashboard, &hello);
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
    viewer = streams_have_room(&dashboard->viewers, x, VIEWERS_MAX) && !x->server->is_draining
                 ? calloc(1, sizeof *viewer)
                 : NULL;
    if (viewer == NULL) {
        reply_problem(x, 503, "busy", "too many dashboards are open, of %d at most; retry later",
                      VIEWERS_MAX);
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

static void answer_activity(struct dashboard_stream *dashboard)
{
    while (dashboard->waiting != NULL) {
        struct exchange *x = dashboard->waiting;
        json_t *body = activity_json(&dashboard->activity, x->hours, clock_unix_ms());

        dashboard->waiting = x->next;
        if (body != NULL) {
            (void)json_object_set_new(body, "is_complete", json_boolean(!has_more_log(dashboard)));
        }
        reply(x, 200, body);
    }
}

void handle_activity(struct exchange *x)
{
    struct dashboard_stream *dashboard = x->server->dashboard;
    struct belay_error err = BELAY_ERROR_INIT;

    if (!exchange_sees_all(x)) {
        return;
    }
    x->hours = HISTORY_HOURS_DEFAULT;
    if (query_number(x->query, "hours", 1, ACTIVITY_HOURS, &x->hours, &err) != BELAY_OK) {
        reply_error(x, &err);
        belay_error_release(&err);
        return;
    }
    x->next = dashboard->waiting;
    dashboard->waiting = x;
    seed(dashboard);
    read_log(dashboard);
}
