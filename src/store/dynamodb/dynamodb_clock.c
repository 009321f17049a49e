/*
 * Three clocks, and what each decides (L7):
 *   the local wall clock   the time that a write contains, within the bounds of the service's Date;
 *                          refused if it is wrong by more than max_clock_skew
 *   the boot clock         advances the others; a step of the wall clock changes nothing
 *   the service's Date     whether another client's lease has expired, and whether the wall clock is right
 * No deadline is written before the first Date: a process that is killed before its first
 * answer would leave a lease whose end its own, unchecked clock decided. A process with no
 * Date, or only an old one, asks for one first (ddb_ask_date()).
 */
#include <assert.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/dynamodb/dynamodb_internal.h"

enum {
    DRIFT = 1000 /* a boot clock drifts by less than 1 in this number */
};

int64_t ddb_boot_ms(const struct ddb_store *store)
{
    return store->hooks.boot_ms != NULL ? store->hooks.boot_ms(store->hooks.context) : clock_boot_ms();
}

static int64_t wall_ms(const struct ddb_store *store)
{
    return store->hooks.unix_ms != NULL ? store->hooks.unix_ms(store->hooks.context) : clock_unix_ms();
}

static void anchor_clock(struct ddb_store *store)
{
    store->clock.anchor_boot_ms = ddb_boot_ms(store);
    store->clock.anchor_unix_ms = wall_ms(store);
}

void ddb_clock_init(struct ddb_store *store)
{
    (void)pthread_mutex_init(&store->clock.mutex, NULL);
    anchor_clock(store);
}

void ddb_clock_release(struct ddb_store *store)
{
    (void)pthread_mutex_destroy(&store->clock.mutex);
}

/*
 * With the mutex held: the bounds at `boot_ms`. They are computed from those of the last answer and not kept, and the
 * drift is rounded up: however often they are read, none of it is lost.
 */
static void bounds_at(const struct ddb_clock *clock, int64_t boot_ms, int64_t *out_low_ms,
                      int64_t *out_high_ms)
{
    int64_t passed = boot_ms > clock->at_boot_ms ? boot_ms - clock->at_boot_ms : 0;
    int64_t drift = (passed + DRIFT - 1) / DRIFT;

    assert(!clock->has_date || clock->low_ms <= clock->high_ms);
    *out_low_ms = clock->low_ms + passed - drift;
    *out_high_ms = clock->high_ms + passed + drift;
}

void ddb_clock_set_date(struct ddb_store *store, int64_t date_unix_ms, int64_t sent_boot_ms)
{
    struct ddb_clock *clock = &store->clock;
    int64_t resolution = DDB_DATE_RESOLUTION_MS;
    int64_t boot_ms, low, high;

    if (store->hooks.date_ms != NULL) {
        date_unix_ms = store->hooks.date_ms(store->hooks.context);
        resolution = 1;
    }
    if (date_unix_ms == 0) {
        return;
    }
    (void)pthread_mutex_lock(&clock->mutex);
    boot_ms = ddb_boot_ms(store); /* with the mutex: another thread's bounds must not be of a later time */
    low = date_unix_ms;           /* when it answered; the answer was later */
    assert(boot_ms >= sent_boot_ms);
    high = date_unix_ms + resolution - 1 + (boot_ms - sent_boot_ms);
    if (clock->has_date) {
        int64_t old_low, old_high;

        bounds_at(clock, boot_ms, &old_low, &old_high);
        /* Bounds that do not overlap belong to a clock that was set, or to another machine. */
        if (low <= old_high && high >= old_low) {
            low = low > old_low ? low : old_low;
            high = high < old_high ? high : old_high;
        }
    }
    assert(low <= high);
    clock->low_ms = low;
    clock->high_ms = high;
    clock->at_boot_ms = boot_ms;
    clock->has_date = true;
    (void)pthread_mutex_unlock(&clock->mutex);
}

/* With the mutex held. */
static int64_t local_ms(const struct ddb_clock *clock, int64_t boot_ms)
{
    return clock->anchor_unix_ms + (boot_ms - clock->anchor_boot_ms);
}

/* The clocks at this moment. */
struct clock_reading {
    int64_t boot_ms;
    int64_t local_ms; /* the wall clock as it was read once, advanced by the boot clock */
    bool has_date;
    int64_t date_boot_ms; /* of the last Date */
    int64_t low_ms;       /* the bounds, if there is a Date */
    int64_t high_ms;
};

static struct clock_reading read_clocks(struct ddb_store *store)
{
    struct ddb_clock *clock = &store->clock;
    struct clock_reading now;

    (void)pthread_mutex_lock(&clock->mutex);
    now.boot_ms = ddb_boot_ms(store); /* with the mutex: the bounds must not be of a later time */
    now.local_ms = local_ms(clock, now.boot_ms);
    now.has_date = clock->has_date;
    now.date_boot_ms = clock->at_boot_ms;
    bounds_at(clock, now.boot_ms, &now.low_ms, &now.high_ms);
    (void)pthread_mutex_unlock(&clock->mutex);
    return now;
}

bool ddb_clock_is_known(struct ddb_store *store)
{
    struct clock_reading now = read_clocks(store);

    return now.has_date && now.boot_ms - now.date_boot_ms <= store->params.max_skew_ms * (DRIFT / 2);
}

bool ddb_clock_has_date(struct ddb_store *store)
{
    return read_clocks(store).has_date;
}

int64_t ddb_clock_write_ms(struct ddb_store *store)
{
    struct clock_reading now = read_clocks(store);

    if (now.has_date && now.local_ms < now.low_ms) {
        return now.low_ms;
    }
    return now.has_date && now.local_ms > now.high_ms ? now.high_ms : now.local_ms;
}

void ddb_clock_bounds(struct ddb_store *store, int64_t *out_low_ms, int64_t *out_high_ms)
{
    struct clock_reading now = read_clocks(store);

    *out_low_ms = now.has_date && now.low_ms < now.local_ms ? now.low_ms : now.local_ms;
    *out_high_ms = now.has_date && now.high_ms > now.local_ms ? now.high_ms : now.local_ms;
}

bool ddb_clock_ahead(struct ddb_store *store, int64_t *out_least_ms, int64_t *out_most_ms)
{
    struct clock_reading now = read_clocks(store);

    *out_least_ms = now.local_ms - now.high_ms;
    *out_most_ms = now.local_ms - now.low_ms;
    return now.has_date;
}

int64_t ddb_clock_judge_ms(struct ddb_store *store)
{
    struct clock_reading now = read_clocks(store);

    return now.has_date ? now.low_ms : now.local_ms; /* before the first answer no lease is judged */
}

/* How far the local clock is outside the bounds. */
static int64_t distance_from_bounds(struct ddb_store *store)
{
    struct clock_reading now = read_clocks(store);

    if (now.local_ms > now.high_ms) {
        return now.local_ms - now.high_ms;
    }
    return now.local_ms < now.low_ms ? now.local_ms - now.low_ms : 0;
}

int64_t ddb_clock_skew_ms(struct ddb_store *store)
{
    int64_t most = store->params.max_skew_ms;
    int64_t skew;

    if (store->params.observe || !ddb_clock_has_date(store)) {
        return 0; /* with `observe` no clock is trusted, so none can be wrong */
    }
    skew = distance_from_bounds(store);
    if (skew > most || skew < -most) {
        /* It may have been corrected since it was read. */
        (void)pthread_mutex_lock(&store->clock.mutex);
        anchor_clock(store);
        (void)pthread_mutex_unlock(&store->clock.mutex);
        skew = distance_from_bounds(store);
    }
    return skew > most || skew < -most ? skew : 0;
}

enum belay_code ddb_clock_say_skew(const struct ddb_store *store, int64_t skew_ms, struct belay_error *err)
{
    char span[CLOCK_TEXT_SIZE], most[CLOCK_TEXT_SIZE];
    int64_t size_ms = skew_ms < 0 ? -skew_ms : skew_ms; /* at least: it is measured from the bounds */

    return error_set(err, BELAY_CONFIG,
                     "this machine's clock is %s %s DynamoDB's, and at most %s is allowed: set it (NTP), or "
                     "allow more with ?max_clock_skew= in the store's URL, for all machines alike",
                     clock_format_span(span, (size_ms + 999) / 1000 * 1000),
                     skew_ms < 0 ? "behind" : "ahead of",
                     clock_format_duration(most, store->params.max_skew_ms));
}
