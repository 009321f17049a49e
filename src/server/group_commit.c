/*
 * Group commit: the loop carries out requests in memory, and one fsync makes many of them durable.
 *
 * Every commit has a log sequence number (LSN). An answer, or a message on a stream, takes the LSN of the newest
 * commit at the moment when it is made: it may tell of its own commit, and of everything it read. It is sent once
 * the durable LSN has reached that number (http/answer.c).
 *
 *     sockets      loop                                      thread           disk
 *     -------      ----                                      ------           ----
 *     requests --> commit 1..20, answers wait for 1..20
 *                  end of turn: sync starts ---------------> write, fsync --> 1..20
 *     requests --> commit 21..35, answers wait for 21..35         |
 *                  on_synced: durable = 20 <----------------------+
 *                  next sync starts -----------------------> write, fsync --> 21..35
 *     answers <--- send what waits for 1..20
 *
 * When a sync starts: at the end of a turn of the loop (group_commit_end_turn()) or of a sync, if none is in
 * progress and there is an answer that waits for it. It is put off
 *   - while more requests can be read, for GATHER_MS: clients come in convoys, and those behind the first would
 *     wait for a sync of their own. A client that is alone does not wait; nor does a waiter that just got its lock,
 *     with the queue behind it.
 *   - while no answer waits, for DELAY_MS: a client that only joins a queue is told nothing, and a release that
 *     comes meanwhile would wait for that sync and then for its own.
 *
 * Where it runs: in the thread, beside the loop, if THREAD_MIN or more connections wait for it; else in the loop,
 * because the hand-over to a thread and back takes as long as a sync. Webhooks are written to their own file after
 * the sync (webhooks_pump()), and therefore always have it in the loop.
 *
 * If it fails: it is unknown what is on disk. The durable LSN stays where it is, so no waiting answer is ever sent;
 * the server logs the error and stops. Clients repeat their requests with the same lock id.
 */
#include "server/core/group_commit.h"

#include <assert.h>
#include <stddef.h>

#include "base/clock.h"
#include "server/core/server.h"
#include "server/events/event_stream.h"
#include "server/metrics/metrics.h"
#include "server/webhooks/webhooks.h"

enum { DELAY_MS = 5, GATHER_MS = 2, THREAD_MIN = 20 };

static void on_commit_timer(struct timer *timer)
{
    (void)timer; /* it has woken the loop, which is all it is for */
}

static void wake_at(struct server *server, int64_t at_ms)
{
    if (at_ms != INT64_MAX) {
        (void)loop_timer_set(server->loop, &server->group_commit.timer, at_ms);
    } else {
        loop_timer_cancel(server->loop, &server->group_commit.timer);
    }
}

static bool is_durable(const struct server *server)
{
    return belay_client_durable_lsn(server->client) == belay_client_committed_lsn(server->client);
}

/* Connections whose answers the next sync would send; not counted beyond THREAD_MIN. */
static size_t n_waiting(const struct server *server)
{
    return http_server_count_waiting(server->http, belay_client_durable_lsn(server->client), THREAD_MIN);
}

/* Whether it is before *until_ms, which is set to `span_ms` from now if it was 0. */
static bool is_before(int64_t *until_ms, int64_t span_ms, int64_t now_ms)
{
    if (*until_ms == 0) {
        *until_ms = now_ms + span_ms;
    }
    return now_ms < *until_ms;
}

static bool may_delay(struct server *server)
{
    if (http_server_is_waiting(server->http) || server->webhooks->n > 0 || server->is_draining) {
        return false;
    }
    return is_before(&server->group_commit.delay_until_ms, DELAY_MS, loop_now_ms(server->loop));
}

static bool may_gather(struct server *server)
{
    size_t n = n_waiting(server);

    if (n == 0 || n >= THREAD_MIN || server->group_commit.has_handover || is_durable(server) ||
        server->is_draining || !loop_is_ready(server->loop)) {
        return false;
    }
    return is_before(&server->group_commit.gather_until_ms, GATHER_MS, loop_now_ms(server->loop));
}

/* ---- one sync ---- */

static void begin_sync(struct server *server)
{
    struct group_commit *commit = &server->group_commit;

    assert(!commit->is_syncing && !server->has_failed);
    commit->delay_until_ms = commit->gather_until_ms = 0;
    commit->has_handover = false;
    commit->result = (struct sync_result){ .err = BELAY_ERROR_INIT, .has_commits = !is_durable(server) };
}

/* In the loop or in the thread. */
static void sync_now(struct server *server)
{
    struct sync_result *result = &server->group_commit.result;
    int64_t began_us = clock_boot_us();

    assert(result->code == BELAY_OK && result->err.code == BELAY_OK);
    result->code = belay_client_sync(server->client, &result->err);
    result->took_us = clock_boot_us() - began_us;
}

static void run_in_thread(struct pool_job *job)
{
    struct server *server = CONTAINER_OF(job, struct server, group_commit.job);

    sync_now(server);
    loop_post(server->loop, &server->group_commit.done);
}

static bool is_worth_a_thread(const struct server *server)
{
    return n_waiting(server) >= THREAD_MIN && webhooks_are_idle(server->webhooks) && !server->is_draining;
}

static bool start_in_thread(struct server *server)
{
    struct group_commit *commit = &server->group_commit;

    assert(!commit->is_syncing && !commit->done.is_queued);
    commit->is_syncing = pool_add(commit->pool, &commit->job);
    return commit->is_syncing;
}

/* Send what is durable up to `lsn`, or stop. Events come after that: a stream with nothing to send can take more. */
static void send_durable(struct server *server, struct sync_result *result, uint64_t lsn)
{
    assert(!server->has_failed && lsn <= belay_client_committed_lsn(server->client));
    if (result->code == BELAY_OK) {
        if (result->has_commits) {
            metrics_synced(server->metrics, result->took_us);
        }
        http_server_set_durable(server->http, lsn);
        event_stream_pump(server->events);
    } else {
        log_note(&server->log, LOG_ERROR, "store", "%s; the server stops without answering",
                 result->err.text);
        server->has_failed = true;
        loop_stop(server->loop);
    }
    belay_error_release(&result->err);
}

/* To send the answers takes about as long as a sync, so the next one starts before that if it is worth a thread. */
static void on_synced(struct loop_task *task)
{
    struct server *server = CONTAINER_OF(task, struct server, group_commit.done);
    struct sync_result result = server->group_commit.result;
    uint64_t lsn = belay_client_durable_lsn(server->client);

    assert(server->group_commit.is_syncing && result.took_us >= 0);
    server->group_commit.is_syncing = false;
    if (server->http == NULL) {
        belay_error_release(&result.err);
        return;
    }
    if (result.code == BELAY_OK && is_worth_a_thread(server)) {
        begin_sync(server);
        (void)start_in_thread(server);
    }
    send_durable(server, &result, lsn);
    log_flush(&server->log); /* the turn may end while the next sync is in progress */
}

void group_commit_end_turn(void *context)
{
    struct server *server = context;
    struct group_commit *commit = &server->group_commit;
    int64_t next_ms = belay_client_poll(server->client);

    commit->n_turns++;
    if (server->http == NULL) {
        return; /* the last turns, for what threads still had to do */
    }
    wake_at(server, next_ms);
    if (commit->is_syncing || server->has_failed || may_gather(server)) {
        return; /* on_synced() wakes the loop, as do the requests that can be read */
    }
    event_stream_pump(server->events);
    if (may_delay(server)) {
        wake_at(server, next_ms < commit->delay_until_ms ? next_ms : commit->delay_until_ms);
    } else {
        begin_sync(server);
        if (!is_worth_a_thread(server) || !start_in_thread(server)) {
            sync_now(server);
            if (commit->result.code == BELAY_OK && !webhooks_are_idle(server->webhooks)) {
                webhooks_pump(server); /* which answers, too */
            }
            send_durable(server, &commit->result, belay_client_durable_lsn(server->client));
        }
        if (http_server_is_waiting(server->http) && !commit->is_syncing && !server->has_failed) {
            wake_at(server, 0); /* another thread has committed meanwhile */
        }
    }
    log_flush(&server->log);
}

bool group_commit_open(struct server *server)
{
    struct group_commit *commit = &server->group_commit;

    commit->timer.fire = on_commit_timer;
    commit->job.work = run_in_thread;
    commit->done.run = on_synced;
    commit->pool = pool_new(1);
    return commit->pool != NULL;
}

void group_commit_close(struct server *server)
{
    pool_free(server->group_commit.pool);
    server->group_commit.pool = NULL;
}
