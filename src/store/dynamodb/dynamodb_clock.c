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
#include "base/clock.h"

#include "base/error.h"
#include "store/dynamodb/dynamodb_internal.h"
#include <assert.h>

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

static void anchor(struct ddb_store *store)
{
    store->clock.anchor_boot_ms = ddb_boot_ms(store);
    store->clock.anchor_unix_ms = wall_ms(store);
}

void ddb_clock_init(struct ddb_store *store)
{
    (void)pthread_mutex_init(&store->clock.mutex, NULL);
    anchor(store);
}

void ddb_clock_release(struct ddb_store *store)
{
    (void)pthread_mutex_destroy(&store->clock.mutex);
}

/* Advances the bounds to `boot_ms`. */
static void carry(struct ddb_clock *clock, int64_t boot_ms)
{
    int64_t passed = boot_ms - clock->at_boot_ms;

    if (passed > 0) {
        clock->low_ms += passed - passed / DRIFT;
        clock->high_ms += passed + passed / DRIFT;
        clock->at_boot_ms = boot_ms;
    }
}

void ddb_clock_hear(struct ddb_store *store, int64_t date_unix_ms, int64_t sent_boot_ms)
{
    struct ddb_clock *clock = &store->clock;
    int64_t resolution = DDB_DATE_RESOLUTION_MS;
    int64_t boot_ms = ddb_boot_ms(store);
    int64_t low, high;

    if (store->hooks.date_ms != NULL) {
        date_unix_ms = store->hooks.date_ms(store->hooks.context);
        resolution = 1;
    }
    if (date_unix_ms == 0) {
        return;
    }
    low = date_unix_ms; /* when it answered; the answer was later */
    high = date_unix_ms + resolution - 1 + (boot_ms - sent_boot_ms);
    (void)pthread_mutex_lock(&clock->mutex);
    carry(clock, boot_ms);
    clock->heard_boot_ms = boot_ms;
    /* Bounds that no longer overlap belong to a clock that was set, or to another machine. */
    if (!clock->heard || low > clock->high_ms || high < clock->low_ms) {
        clock->low_ms = low;
        clock->high_ms = high;
        clock->at_boot_ms = boot_ms;
        clock->heard = true;
    } else {
        clock->low_ms = low > clock->low_ms ? low : clock->low_ms;
        clock->high_ms = high < clock->high_ms ? high : clock->high_ms;
    }
    assert(clock->low_ms <= clock->high_ms);
    (void)pthread_mutex_unlock(&clock->mutex);
}

bool ddb_clock_is_known(struct ddb_store *store)
{
    struct ddb_clock *clock = &store->clock;
    int64_t boot_ms = ddb_boot_ms(store);
    bool known;

    (void)pthread_mutex_lock(&clock->mutex);
    known = clock->heard && boot_ms - clock->heard_boot_ms <= store->params.max_skew_ms * (DRIFT / 2);
    (void)pthread_mutex_unlock(&clock->mutex);
    return known;
}

bool ddb_clock_was_heard(struct ddb_store *store)
{
    struct ddb_clock *clock = &store->clock;
    bool heard;

    (void)pthread_mutex_lock(&clock->mutex);
    heard = clock->heard;
    (void)pthread_mutex_unlock(&clock->mutex);
    return heard;
}

/* With the mutex held. */
static int64_t local_ms(const struct ddb_clock *clock, int64_t boot_ms)
{
    return clock->anchor_unix_ms + (boot_ms - clock->anchor_boot_ms);
}

int64_t ddb_clock_write_ms(struct ddb_store *store)
{
    struct ddb_clock *clock = &store->clock;
    int64_t boot_ms = ddb_boot_ms(store);
    int64_t now;

    (void)pthread_mutex_lock(&clock->mutex);
    now = local_ms(clock, boot_ms);
    if (clock->heard) {
        carry(clock, boot_ms);
        now = now < clock->low_ms ? clock->low_ms : now > clock->high_ms ? clock->high_ms : now;
    }
    (void)pthread_mutex_unlock(&clock->mutex);
    return now;
}

void ddb_clock_bounds(struct ddb_store *store, int64_t *out_low_ms, int64_t *out_high_ms)
{
    struct ddb_clock *clock = &store->clock;
    int64_t boot_ms = ddb_boot_ms(store);
    int64_t local;

    (void)pthread_mutex_lock(&clock->mutex);
    local = local_ms(clock, boot_ms);
    *out_low_ms = *out_high_ms = local;
    if (clock->heard) {
        carry(clock, boot_ms);
        *out_low_ms = clock->low_ms < local ? clock->low_ms : local;
        *out_high_ms = clock->high_ms > local ? clock->high_ms : local;
    }
    (void)pthread_mutex_unlock(&clock->mutex);
}

int64_t ddb_clock_judge_ms(struct ddb_store *store)
{
    struct ddb_clock *clock = &store->clock;
    int64_t boot_ms = ddb_boot_ms(store);
    int64_t now;

    (void)pthread_mutex_lock(&clock->mutex);
    if (clock->heard) {
        carry(clock, boot_ms);
        now = clock->low_ms;
    } else {
        now = local_ms(clock, boot_ms); /* no answer yet, so no lease is judged */
    }
    (void)pthread_mutex_unlock(&clock->mutex);
    return now;
}

/* With the mutex held. How far the local clock is outside the bounds. */
static int64_t outside(const struct ddb_clock *clock, int64_t boot_ms)
{
    int64_t local = local_ms(clock, boot_ms);

    if (local > clock->high_ms) {
        return local - clock->high_ms;
    }
    return local < clock->low_ms ? local - clock->low_ms : 0;
}

int64_t ddb_clock_skew_ms(struct ddb_store *store)
{
    struct ddb_clock *clock = &store->clock;
    int64_t boot_ms = ddb_boot_ms(store);
    int64_t most = store->params.max_skew_ms;
    int64_t skew = 0;

    if (store->params.observe) {
        return 0; /* trusts no clock, so none can be wrong */
    }
    (void)pthread_mutex_lock(&clock->mutex);
    if (clock->heard) {
        carry(clock, boot_ms);
        skew = outside(clock, boot_ms);
        if (skew > most || skew < -most) {
            /* It may have been corrected since it was read. */
            anchor(store);
            skew = outside(clock, boot_ms);
        }
    }
    (void)pthread_mutex_unlock(&clock->mutex);
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
