/* The server's clock, which answers tell, beside this machine's boot clock, which nobody sets. */
#include <stdio.h>

#include "base/clock.h"
#include "base/saturate.h"
#include "store/postgresql/postgresql_internal.h"

enum { STEP_REPORTED_MS = 1000 };

int64_t pg_server_ms(struct pg_store *store)
{
    int64_t now_ms;

    (void)pthread_mutex_lock(&store->mutex);
    now_ms = clock_boot_ms() + store->clock_offset_ms;
    (void)pthread_mutex_unlock(&store->mutex);
    return now_ms;
}

int64_t pg_deadline_ms(struct pg_store *store, int64_t left_ms)
{
    bool known;

    (void)pthread_mutex_lock(&store->mutex);
    known = store->has_clock;
    (void)pthread_mutex_unlock(&store->mutex);
    return known ? add_saturated(pg_server_ms(store), left_ms) : INT64_MAX;
}

/*
 * The answer was made between asking and now, so the offset is known up to the time that took. The
 * clock jumped forward if the least that the offset can be is more than the most that it could be.
 */
void pg_saw_clock(struct pg_store *store, int64_t now_ms, int64_t asked_boot_ms)
{
    int64_t offset_ms = now_ms - clock_boot_ms();
    int64_t limit_ms =
        store->params.clock_step_ms > STEP_REPORTED_MS ? store->params.clock_step_ms : STEP_REPORTED_MS;
    int64_t step_ms = 0;
    char text[160];

    (void)pthread_mutex_lock(&store->mutex);
    if (store->has_clock && offset_ms - store->clock_most_ms > limit_ms) {
        step_ms = offset_ms - store->clock_most_ms;
        store->jumped_to_ms = now_ms;
    }
    store->has_clock = true;
    store->clock_offset_ms = offset_ms;
    store->clock_most_ms = now_ms - asked_boot_ms;
    (void)pthread_mutex_unlock(&store->mutex);
    if (step_ms > 0 && store->options.on_warning != NULL) {
        (void)snprintf(
            text, sizeof text,
            "the clock of the PostgreSQL server jumped forward by %lld ms: all leases begin again, "
            "but some may have ended too early",
            (long long)step_ms);
        store->options.on_warning(store->options.warn_context, text);
    }
}

bool pg_mend_clock(struct pg_store *store)
{
    char text[24];
    const char *values[] = { text };
    struct pg_call call = { PG_CLOCK_JUMPED, values, 1, false, 0 };
    PGresult *result = NULL;
    int64_t jumped_to_ms;
    bool done;

    (void)pthread_mutex_lock(&store->mutex);
    jumped_to_ms = store->jumped_to_ms;
    store->jumped_to_ms = 0;
    (void)pthread_mutex_unlock(&store->mutex);
    if (jumped_to_ms == 0) {
        return false;
    }
    (void)snprintf(text, sizeof text, "%lld", (long long)jumped_to_ms);
    done = pg_call(store, &call, &result, NULL) == BELAY_OK;
    PQclear(result);
    if (!done) {
        (void)pthread_mutex_lock(&store->mutex);
        store->jumped_to_ms = jumped_to_ms; /* the next answer tries again */
        (void)pthread_mutex_unlock(&store->mutex);
    }
    return done;
}
