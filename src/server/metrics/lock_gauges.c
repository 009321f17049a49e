#include "server/metrics/lock_gauges.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "server/core/server.h"
#include "server/core/work.h"
#include "server/metrics/text_format.h"

/* DynamoDB charges for a scan: it is done less often there. */
enum { COUNTED_MAX = 10000, EVERY_MS = 15000, EVERY_MS_NETWORK = 60000, HOUR_MS = 3600000 };

struct counts {
    size_t active;
    size_t holders; /* of the active ones */
    size_t expired;
    size_t stale;
    size_t over_an_hour;
    int64_t oldest_ms;
    int64_t now_unix_ms;
    bool is_whole;
};

struct lock_gauges {
    struct work work;
    struct server *server; /* borrowed */
    void (*done)(struct server *server);
    int64_t asked_ms;    /* 0: never */
    struct counts fresh; /* the worker's, while the work is pending */
    bool is_fresh;
    struct counts counts; /* the last result */
    bool has_counts;
};

/* Since when a lock is held: by the first of its present holders. */
static int64_t held_since_ms(const struct belay_info *info)
{
    int64_t since_ms = info->locked_at_unix_ms;

    for (size_t i = 0; i < info->n_holders; i++) {
        const struct belay_info *holder = &info->holders[i];

        if (holder->status == BELAY_STATUS_ACTIVE && holder->locked_at_unix_ms < since_ms) {
            since_ms = holder->locked_at_unix_ms;
        }
    }
    return since_ms;
}

/* A lock with several holders is one lock: stale if one of them is, and as old as the oldest. */
static bool count_lock(void *context, const struct belay_info *info)
{
    struct counts *counts = context;

    if (info->status == BELAY_STATUS_ACTIVE) {
        int64_t held_ms = counts->now_unix_ms - held_since_ms(info);

        counts->active++;
        counts->holders += count_active(info);
        counts->stale += info->is_stale;
        counts->over_an_hour += held_ms > HOUR_MS;
        counts->oldest_ms = held_ms > counts->oldest_ms ? held_ms : counts->oldest_ms;
    } else {
        counts->expired++;
    }
    return true;
}

static struct lock_gauges *gauges_of(struct work *work)
{
    return CONTAINER_OF(work, struct lock_gauges, work);
}

static void count_locks(struct work *work)
{
    struct lock_gauges *gauges = gauges_of(work);
    struct belay_query query = BELAY_QUERY_INIT;
    bool more = false;

    gauges->fresh = (struct counts){ .now_unix_ms = clock_unix_ms() };
    query.limit = COUNTED_MAX;
    gauges->is_fresh =
        belay_list(gauges->server->client, &query, count_lock, &gauges->fresh, &more, NULL) == BELAY_OK;
    gauges->fresh.is_whole = !more;
}

static void on_locks_counted(struct work *work)
{
    struct lock_gauges *gauges = gauges_of(work);

    if (!work->is_cancelled && gauges->is_fresh) {
        gauges->counts = gauges->fresh;
        gauges->has_counts = true;
    }
    gauges->done(gauges->server);
}

struct lock_gauges *lock_gauges_new(void)
{
    struct lock_gauges *gauges = calloc(1, sizeof *gauges);

    if (gauges != NULL) {
        gauges->work.work = count_locks;
        gauges->work.done = on_locks_counted;
    }
    return gauges;
}

void lock_gauges_free(struct lock_gauges *gauges)
{
    free(gauges);
}

static void write_counts(const struct counts *counts, struct buf *out)
{
    text_head(out, "belay_locks", "gauge", "Locks by status, of the first ten thousand.");
    buf_addf(out, "belay_locks{status=\"active\"} %zu\nbelay_locks{status=\"expired\"} %zu\n", counts->active,
             counts->expired);
    text_gauge(out, "belay_lock_holders",
               "Holders of active locks: a shared lock or one with slots may have several.",
               (double)counts->holders);
    text_gauge(out, "belay_locks_stale", "Active locks of which a holder missed its heartbeats.",
               (double)counts->stale);
    text_gauge(out, "belay_locks_held_over_hour", "Active locks held for more than an hour.",
               (double)counts->over_an_hour);
    text_gauge(out, "belay_lock_oldest_held_seconds", "How long the oldest present holder has held its lock.",
               (double)counts->oldest_ms / 1000.0);
    text_gauge(out, "belay_locks_counted_all", "0 if there are more locks than were counted.",
               counts->is_whole ? 1 : 0);
}

bool lock_gauges_refresh(struct lock_gauges *gauges, struct server *server,
                         void (*done)(struct server *server))
{
    int64_t now_ms = loop_now_ms(server->loop);
    int64_t every_ms = server->is_store_local ? EVERY_MS : EVERY_MS_NETWORK;

    if (work_is_pending(&gauges->work)) {
        return true;
    }
    gauges->server = server;
    gauges->done = done;
    if (gauges->asked_ms == 0 || now_ms - gauges->asked_ms >= every_ms) {
        if (work_queue(server->workers, WORK_SCAN, &gauges->work)) {
            gauges->asked_ms = now_ms;
        }
    }
    return work_is_pending(&gauges->work);
}

void lock_gauges_write(const struct lock_gauges *gauges, struct buf *out)
{
    if (gauges->has_counts) {
        write_counts(&gauges->counts, out);
    }
}
