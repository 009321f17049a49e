#include "server/metrics/lock_gauges.h"

#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "server/core/errand.h"
#include "server/core/server.h"
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
    struct errand errand;
    struct server *server; /* borrowed */
    void (*done)(struct server *server);
    int64_t asked_ms;    /* 0: never */
    struct counts fresh; /* whose thread has the errand */
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

static struct census *of_errand(struct errand *errand)
{
    return (struct census *)(void *)((char *)errand - offsetof(struct census, errand));
}

static void count(struct errand *errand)
{
    struct census *census = of_errand(errand);
    struct belay_query query = BELAY_QUERY_INIT;
    bool more = false;

    census->fresh = (struct counts){ .now_unix_ms = (int64_t)time(NULL) * 1000 };
    query.limit = COUNTED_MAX;
    census->has_fresh =
        belay_list(census->server->client, &query, count_lock, &census->fresh, &more, NULL) == BELAY_OK;
    census->fresh.is_whole = !more;
}

static void counted(struct errand *errand)
{
    struct census *census = of_errand(errand);

    if (census->has_fresh) {
        census->counts = census->fresh;
        census->has_counts = true;
        census->has_fresh = false;
    }
    if (census->done != NULL) {
        census->done(census->server);
    }
}

struct census *census_new(void)
{
    struct census *census = calloc(1, sizeof *census);

    if (census != NULL) {
        census->errand.work = count;
        census->errand.done = counted;
        census->errand.is_long = true;
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
    int64_t every_ms = server->asks == NULL ? EVERY_MS : EVERY_MS_NETWORK;

    if (census->errand.is_out) {
        return true; /* a thread reads it: nothing is to be touched */
    }
    census->server = server;
    census->done = NULL; /* not while it may be counted at once */
    if (census->asked_ms == 0 || now_ms - census->asked_ms >= every_ms) {
        if (errand_send(server, &census->errand)) {
            census->asked_ms = now_ms;
        }
    }
    census->done = done;
    return census->errand.is_out;
}

void census_write(const struct census *census, struct buf *out)
{
    if (census->has_counts) {
        write_counts(&census->counts, out);
    }
}
