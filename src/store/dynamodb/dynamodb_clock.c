/*
 * Three clocks, and which decides what (L7):
 *
 *   the local wall clock   what a write says the time is, within the bounds that the service's Date
 *                          allows; refused if it is wrong by more than max_clock_skew
 *   the boot clock         carries the others on; a step of the wall clock changes nothing
 *   the service's Date     whether somebody else's lease is over, and whether the wall clock is right
 *
 * No deadline is written before a Date was heard: a process killed before its first
 * answer would leave a lease that ends when its own, unchecked clock says. A process
 * that has no Date yet, or only an old one, asks for one first (ddb_ask_date()).
 */
#include "base/clock.h"
#include "base/error.h"
#include "store/dynamodb/dynamodb_internal.h"

enum {
    DRIFT = 1000 /* a boot clock is not wrong by more than one part in so many */
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

/* Bring the bounds to `boot_ms`. */
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
    low = date_unix_ms; /* when it answered; it may be later by now */
    high = date_unix_ms + resolution - 1 + (boot_ms - sent_boot_ms);
    (void)pthread_mutex_lock(&clock->mutex);
    carry(clock, boot_ms);
    clock->heard_boot_ms = boot_ms;
    /* Bounds that do not meet any more are of a clock that was set, or of another machine. */
    if (!clock->heard || low > clock->high_ms || high < clock->low_ms) {
        clock->low_ms = low;
        clock->high_ms = high;
        clock->at_boot_ms = boot_ms;
        clock->heard = true;
    } else {
        clock->low_ms = low > clock->low_ms ? low : clock->low_ms;
        clock->high_ms = high < clock->high_ms ? high : clock->high_ms;
    }
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
        now = local_ms(clock, boot_ms); /* nobody was asked yet, so nobody's lease is judged */
    }
    (void)pthread_mutex_unlock(&clock->mutex);
    return now;
}

/* With the mutex held. By how much the local clock lies outside the bounds. */
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
            /* Perhaps somebody has set it right since we read it. */
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
    int64_t size_ms = skew_ms < 0 ? -skew_ms : skew_ms; /* at least: it is counted from the bounds */

    return error_set(err, BELAY_CONFIG,
                     "this machine's clock is %s %s DynamoDB's, and at most %s is allowed: set it (NTP), or "
                     "allow more with ?max_clock_skew= in the store's URL, for all machines alike",
                     clock_format_span(span, (size_ms + 999) / 1000 * 1000),
                     skew_ms < 0 ? "behind" : "ahead of",
                     clock_format_duration(most, store->params.max_skew_ms));
}
