#include "server/metrics/lock_gauges.h"

#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "server/core/server.h"
#include "server/core/work.h"
#include "server/metrics/text_format.h"

/* A scan of a table is paid for: it is asked for less often. */
enum { COUNTED_MAX = 10000, EVERY_MS = 15000, EVERY_MS_NETWORK = 60000, HOUR_MS = 3600000 };

struct counts {
    size_t active;
    size_t expired;
    size_t stale;
    size_t over_an_hour;
    int64_t oldest_ms;
    int64_t now_unix_ms;
    bool is_whole;
};

struct census {
    struct work work;
    struct server *server; /* borrowed */
    void (*done)(struct server *server);
    int64_t asked_ms;    /* 0: never */
    struct counts fresh; /* the worker's, while the work is pending */
    bool has_fresh;
    struct counts counts; /* the loop's */
    bool has_counts;
};

static bool count_lock(void *context, const struct belay_info *info)
{
    struct counts *counts = context;

    if (info->status == BELAY_STATUS_ACTIVE) {
        int64_t held_ms = counts->now_unix_ms - info->locked_at_unix_ms;

        counts->active++;
        counts->stale += info->is_stale;
        counts->over_an_hour += held_ms > HOUR_MS;
        counts->oldest_ms = held_ms > counts->oldest_ms ? held_ms : counts->oldest_ms;
    } else {
        counts->expired++;
    }
    return true;
}

static struct census *census_of(struct work *work)
{
    return (struct census *)(void *)((char *)work - offsetof(struct census, work));
}

static void count(struct work *work)
{
    struct census *census = census_of(work);
    struct belay_query query = BELAY_QUERY_INIT;
    bool more = false;

    census->fresh = (struct counts){ .now_unix_ms = (int64_t)time(NULL) * 1000 };
    query.limit = COUNTED_MAX;
    census->has_fresh =
        belay_list(census->server->client, &query, count_lock, &census->fresh, &more, NULL) == BELAY_OK;
    census->fresh.is_whole = !more;
}

static void counted(struct work *work)
{
    struct census *census = census_of(work);

    if (census->has_fresh) {
        census->counts = census->fresh;
        census->has_counts = true;
        census->has_fresh = false;
    }
    census->done(census->server);
}

struct census *census_new(void)
{
    struct census *census = calloc(1, sizeof *census);

    if (census != NULL) {
        census->work.work = count;
        census->work.done = counted;
    }
    return census;
}

void census_free(struct census *census)
{
    free(census);
}

static void write_counts(const struct counts *counts, struct buf *out)
{
    text_head(out, "belay_locks", "gauge", "Locks by status, of the first ten thousand.");
    buf_addf(out, "belay_locks{status=\"active\"} %zu\nbelay_locks{status=\"expired\"} %zu\n", counts->active,
             counts->expired);
    text_gauge(out, "belay_locks_stale", "Active locks whose holder missed its heartbeats.",
               (double)counts->stale);
    text_gauge(out, "belay_locks_held_over_hour", "Active locks held for more than an hour.",
               (double)counts->over_an_hour);
    text_gauge(out, "belay_lock_oldest_held_seconds", "How long the oldest active lock has been held.",
               (double)counts->oldest_ms / 1000.0);
    text_gauge(out, "belay_locks_counted_all", "0 if there are more locks than were counted.",
               counts->is_whole ? 1 : 0);
}

bool census_refresh(struct census *census, struct server *server, void (*done)(struct server *server))
{
    int64_t now_ms = loop_now_ms(server->loop);
    int64_t every_ms = server->is_store_local ? EVERY_MS : EVERY_MS_NETWORK;

    if (work_is_pending(&census->work)) {
        return true;
    }
    census->server = server;
    census->done = done;
    if (census->asked_ms == 0 || now_ms - census->asked_ms >= every_ms) {
        if (work_queue(server->workers, WORK_SCAN, &census->work)) {
            census->asked_ms = now_ms;
        }
    }
    return work_is_pending(&census->work);
}

void census_write(const struct census *census, struct buf *out)
{
    if (census->has_counts) {
        write_counts(&census->counts, out);
    }
}
