#include "server/core/group_commit.h"

#include <stddef.h>

#include "base/clock.h"
#include "server/core/server.h"
#include "server/events/event_stream.h"
#include "server/metrics/metrics.h"
#include "server/webhooks/webhooks.h"

/*
 * A sync takes as long as a dozen requests. So who has asked already is heard
 * before it, unless the first of them has waited for long. If many wait for it, a
 * thread does it and the loop goes on with the next ones, whose answers wait for
 * the sync after it. If few do, handing it over would cost them more than it
 * brings the others.
 */
enum { SYNC_LATER_MS = 5, GATHER_MS = 2, SYNC_ASIDE = 20 };

static void on_timer(struct timer *timer)
{
    (void)timer; /* it has woken the loop, which is all it is for */
}

static void wake_at(struct server *server, int64_t at_ms)
{
    if (at_ms != INT64_MAX) {
        (void)loop_timer_set(server->loop, &server->turn.timer, at_ms);
    } else {
        loop_timer_cancel(server->loop, &server->turn.timer);
    }
}

/* Whether it is before the time in *by_ms, which is `span_ms` from now if it was not set. */
static bool is_before(int64_t *by_ms, int64_t span_ms, int64_t now_ms)
{
    if (*by_ms == 0) {
        *by_ms = now_ms + span_ms;
    }
    return now_ms < *by_ms;
}

/*
 * Whether the sync can wait for company: nobody is to be told anything, as when
 * all that has happened is that somebody stands in line. A release that comes
 * meanwhile would otherwise wait for that sync, and then for its own.
 */
static bool may_sync_later(struct server *server)
{
    if (http_server_has_held(server->http) || server->hooks->n > 0 || server->is_draining) {
        return false;
    }
    return is_before(&server->turn.sync_by_ms, SYNC_LATER_MS, loop_now_ms(server->loop));
}

/*
 * Whether there are others whom the same sync can serve. Who is alone does not wait
 * for anybody; nor does who has stood in line, and with whom all of that line.
 */
static bool may_gather(struct server *server)
{
    size_t n = http_server_held(server->http);

    if (n == 0 || n >= SYNC_ASIDE || server->turn.has_granted || belay_client_is_synced(server->client) ||
        server->is_draining || !loop_is_ready(server->loop)) {
        return false;
    }
    return is_before(&server->turn.gather_by_ms, GATHER_MS, loop_now_ms(server->loop));
}

/* What was sealed is on disk, and may be told; or nobody knows. */
static void tell(struct server *server, struct synced *result)
{
    if (result->code == BELAY_OK) {
        if (result->has_commits) {
            metrics_synced(server->metrics, result->took_us);
        }
        http_server_let_out(server->http);
        log_flush(&server->log);
    } else {
        /* Nobody can be told how it went: who asked must ask again, with the same id. */
        log_note(&server->log, LOG_ERROR, "store", "%s; the server stops without answering",
                 result->err.text);
        log_flush(&server->log);
        server->has_failed = true;
        loop_stop(server->loop);
    }
    belay_error_release(&result->err);
}

static void begin(struct server *server)
{
    struct turn *turn = &server->turn;

    turn->sync_by_ms = turn->gather_by_ms = 0;
    turn->has_granted = false;
    turn->result = (struct synced){ .err = BELAY_ERROR_INIT, .has_commits = metrics_sync_begins(server) };
}

static void sync_now(struct server *server)
{
    struct synced *result = &server->turn.result;
    int64_t began_us = clock_boot_us();

    result->code = belay_client_sync(server->client, &result->err);
    result->took_us = clock_boot_us() - began_us;
}

static void work(struct pool_job *job)
{
    struct server *server = (struct server *)(void *)((char *)job - offsetof(struct server, turn.job));

    sync_now(server);
    loop_post(server->loop, &server->turn.synced);
}

/* Webhooks are about all that has happened so far, which two syncs would have on disk one half at a time. */
static bool is_worth_a_thread(const struct server *server)
{
    return http_server_held(server->http) >= SYNC_ASIDE && !belay_client_is_synced(server->client) &&
           hooks_are_idle(server->hooks) && !server->is_draining;
}

static bool sync_aside(struct server *server)
{
    struct turn *turn = &server->turn;

    turn->is_syncing = pool_add(turn->pool, &turn->job);
    if (turn->is_syncing) {
        http_server_seal(server->http);
    }
    return turn->is_syncing;
}

/* To send the answers takes about as long as a sync: the next one begins before it, if there are enough for one. */
static void on_synced(struct loop_task *task)
{
    struct server *server = (struct server *)(void *)((char *)task - offsetof(struct server, turn.synced));
    struct synced result = server->turn.result;

    server->turn.is_syncing = false;
    if (server->http == NULL) {
        belay_error_release(&result.err);
        return;
    }
    http_server_unseal(server->http);
    if (result.code == BELAY_OK && is_worth_a_thread(server)) {
        begin(server);
        (void)sync_aside(server);
    }
    tell(server, &result);
    if (server->turn.is_syncing) {
        feed_pump(server->feed); /* else the end of the turn does it */
    }
}

static void sync(struct server *server)
{
    begin(server);
    if (is_worth_a_thread(server) && sync_aside(server)) {
        return;
    }
    sync_now(server);
    if (server->turn.result.code == BELAY_OK) {
        hooks_pump(server); /* which answers, too */
        http_server_seal(server->http);
        http_server_unseal(server->http);
    }
    tell(server, &server->turn.result);
}

void turn_end(void *context)
{
    struct server *server = context;
    struct turn *turn = &server->turn;
    int64_t next_ms = belay_client_poll(server->client);

    turn->number++;
    if (server->http == NULL) {
        return; /* the last turns, of what the threads still had: nobody is left to tell */
    }
    wake_at(server, next_ms);
    if (turn->is_syncing || server->has_failed || may_gather(server)) {
        return; /* the end of a sync is a turn of its own */
    }
    feed_pump(server->feed);
    if (may_sync_later(server)) {
        wake_at(server, next_ms < turn->sync_by_ms ? next_ms : turn->sync_by_ms);
    } else {
        sync(server);
    }
    log_flush(&server->log);
}

bool turn_open(struct server *server)
{
    struct turn *turn = &server->turn;

    turn->timer.fire = on_timer;
    turn->job.work = work;
    turn->synced.run = on_synced;
    turn->pool = pool_new(1);
    return turn->pool != NULL;
}

void turn_close(struct server *server)
{
    pool_free(server->turn.pool);
    server->turn.pool = NULL;
}
