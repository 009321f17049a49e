/*
 * The public interface over a store in memory, with real threads and the real
 * clock: heartbeats, loss, waiting, cancelling. What needs no thread is tested
 * in the simulator.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "belay.h"
#include "belay/store.h"
#include "support/memstore.h"

/* A store that can be cut off. */
struct cut_store {
    struct belay_store base;
    struct belay_store *inner; /* owned */
    struct belay_store_ops ops;
    atomic_bool cut;
    atomic_bool read_only; /* a full disk: reads work, commits fail */
    atomic_long slow_ms;   /* how long a commit takes */
    atomic_int gets;
};

struct fixture {
    struct memstore_data *data;
    struct cut_store *cut; /* the store of `client` */
    struct belay_client *client;
    struct belay_client *rival;
    atomic_int events;
    char last_event[64];
};

static void pause_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&t, NULL);
}

static void cut_close(struct belay_store *store)
{
    struct cut_store *cut = (struct cut_store *)store;

    cut->inner->ops->close(cut->inner);
    free(cut);
}

static enum belay_code cut_get(struct belay_store *store, const char *const *keys, size_t n,
                               struct belay_record *out, int64_t *now_ms, struct belay_error *err)
{
    struct cut_store *cut = (struct cut_store *)store;

    cut->gets++;
    return cut->cut ? BELAY_UNREACHABLE : cut->inner->ops->get(cut->inner, keys, n, out, now_ms, err);
}

static enum belay_code cut_commit(struct belay_store *store, const struct belay_batch *batch,
                                  struct belay_commit *out, struct belay_error *err)
{
    struct cut_store *cut = (struct cut_store *)store;

    pause_ms(cut->slow_ms);
    return cut->cut || cut->read_only ? BELAY_UNREACHABLE
                                      : cut->inner->ops->commit(cut->inner, batch, out, err);
}

static enum belay_code cut_scan(struct belay_store *store, const struct belay_scan *scan, belay_record_fn fn,
                                void *context, struct belay_error *err)
{
    struct cut_store *cut = (struct cut_store *)store;

    return cut->inner->ops->scan(cut->inner, scan, fn, context, err);
}

static enum belay_code cut_events(struct belay_store *store, const struct belay_events_query *query,
                                  belay_event_fn fn, void *context, struct belay_error *err)
{
    struct cut_store *cut = (struct cut_store *)store;

    return cut->inner->ops->events(cut->inner, query, fn, context, err);
}

static struct belay_store_capabilities cut_capabilities(struct belay_store *store)
{
    struct cut_store *cut = (struct cut_store *)store;

    return cut->inner->ops->capabilities(cut->inner);
}

static uint32_t cut_listen(struct belay_store *store, const char *lock_id)
{
    struct cut_store *cut = (struct cut_store *)store;

    return cut->inner->ops->listen(cut->inner, lock_id);
}

static void cut_wait(struct belay_store *store, const char *lock_id, uint32_t listened, int64_t timeout_ms,
                     struct belay_cancel *cancel)
{
    struct cut_store *cut = (struct cut_store *)store;

    cut->inner->ops->wait(cut->inner, lock_id, listened, timeout_ms, cancel);
}

static void cut_wake(struct belay_store *store, const char *lock_id)
{
    struct cut_store *cut = (struct cut_store *)store;

    cut->inner->ops->wake(cut->inner, lock_id);
}

static const struct belay_store_ops cut_ops = { .name = "cut",
                                                .close = cut_close,
                                                .get = cut_get,
                                                .commit = cut_commit,
                                                .scan = cut_scan,
                                                .events = cut_events,
                                                .capabilities = cut_capabilities,
                                                .listen = cut_listen,
                                                .wait = cut_wait,
                                                .wake = cut_wake };

/* Events come from whichever thread caused them. */
static pthread_mutex_t event_mutex = PTHREAD_MUTEX_INITIALIZER;

static void count_event(void *context, const struct belay_event *event)
{
    struct fixture *f = context;

    f->events++;
    (void)pthread_mutex_lock(&event_mutex);
    strncpy(f->last_event, event->type, sizeof f->last_event - 1);
    (void)pthread_mutex_unlock(&event_mutex);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;

    f->data = memstore_data_new(NULL, NULL, NULL);
    memstore_set_capabilities(f->data, (struct belay_store_capabilities){
                                           .claim_ms = 1000, .poll_ms = 250, .ticket_ttl_ms = 3600000 });
    f->cut = calloc(1, sizeof *f->cut);
    f->cut->base.ops = &cut_ops;
    f->cut->inner = memstore_open(f->data);
    options.on_event = count_event;
    options.context = f;
    assert_int_equal(belay_client_open_store(&f->cut->base, &options, &f->client, NULL), BELAY_OK);
    assert_int_equal(belay_client_open_store(memstore_open(f->data), NULL, &f->rival, NULL), BELAY_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    belay_client_close(f->client);
    belay_client_close(f->rival);
    memstore_data_free(f->data);
    free(f);
    return 0;
}

/* L1, S0.1: the refusal names the holder. */
static void an_acquire_is_refused_while_another_client_holds_the_lock(void **state)
{
    struct fixture *f = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_lock *lock;
    struct belay_lock *second = NULL;

    options.owner = "execution-abc123";
    options.ttl_ms = 60000;
    assert_int_equal(belay_lock_acquire(f->client, "terraform-prod", &options, &lock, &err), BELAY_OK);
    assert_int_equal(belay_lock_acquire(f->rival, "terraform-prod", NULL, &second, &err), BELAY_HELD);
    assert_null(second);
    assert_string_equal(belay_error_holder(&err)->locked_by, "execution-abc123");
    assert_non_null(strstr(err.text, "lock 'terraform-prod' held by execution-abc123 until "));
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &err), BELAY_OK);
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &err), BELAY_OK); /* twice is fine */
    belay_lock_free(lock);
    belay_error_release(&err);
}

/* L2 */
static void every_new_holder_has_a_higher_token(void **state)
{
    struct fixture *f = *state;
    uint64_t last = 0;

    for (int i = 0; i < 20; i++) {
        struct belay_lock *lock;

        assert_int_equal(belay_lock_acquire(i % 2 ? f->client : f->rival, "k", NULL, &lock, NULL), BELAY_OK);
        assert_true(belay_lock_token(lock) > last);
        last = belay_lock_token(lock);
        assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
        belay_lock_free(lock);
    }
}

/* S1.6, S2.5 */
static void a_heartbeat_keeps_it_beyond_its_ttl(void **state)
{
    struct fixture *f = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock;
    struct belay_lock *other;
    int64_t deadline;

    options.ttl_ms = 300;
    options.heartbeat_ms = 60;
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &lock, NULL), BELAY_OK);
    deadline = belay_lock_deadline_boot_ms(lock);
    pause_ms(700);
    assert_true(belay_lock_is_mine(lock));
    assert_true(belay_lock_deadline_boot_ms(lock) > deadline);
    assert_int_equal(belay_lock_acquire(f->rival, "k", NULL, &other, NULL), BELAY_HELD);
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
    belay_lock_free(lock);
}

/* L6: what the store takes to answer is not the holder's to use. */
static void a_lease_counts_from_before_the_request(void **state)
{
    struct fixture *f = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock;
    int64_t before_ms = belay_now_boot_ms();

    options.ttl_ms = 10000;
    f->cut->slow_ms = 200;
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &lock, NULL), BELAY_OK);
    assert_true(belay_lock_deadline_boot_ms(lock) < before_ms + 10000 - 400); /* with a lead of 500 */
    before_ms = belay_now_boot_ms();
    assert_int_equal(belay_lock_renew(lock, NULL), BELAY_OK);
    assert_true(belay_lock_deadline_boot_ms(lock) < before_ms + 10000 - 400);
    f->cut->slow_ms = 0;
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
    belay_lock_free(lock);
}

struct loss {
    atomic_int calls;
    atomic_llong at_ms;
};

static void on_lost(void *context, struct belay_lock *lock, const char *why)
{
    struct loss *loss = context;

    (void)lock;
    assert_non_null(why);
    loss->at_ms = belay_now_boot_ms();
    loss->calls++;
}

/* L6: the holder is told before the rival acquires, although the store cannot be reached. */
static void a_holder_learns_of_the_loss_before_another_client_can_acquire(void **state)
{
    struct fixture *f = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock_options waiting = BELAY_LOCK_OPTIONS_INIT;
    struct loss loss = { 0, 0 };
    struct belay_lock *lock;
    struct belay_lock *other;

    options.ttl_ms = 500;
    options.heartbeat_ms = 100;
    options.on_lost = on_lost;
    options.context = &loss;
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &lock, NULL), BELAY_OK);
    f->cut->cut = true;
    waiting.wait_ms = 5000;
    assert_int_equal(belay_lock_acquire(f->rival, "k", &waiting, &other, NULL), BELAY_OK);
    assert_int_equal(loss.calls, 1);
    assert_true(loss.at_ms < belay_now_boot_ms());
    assert_false(belay_lock_is_mine(lock));
    f->cut->cut = false;
    assert_int_equal(belay_lock_renew(lock, NULL), BELAY_LOST);
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_LOST); /* L3 */
    assert_int_equal(belay_lock_renew(other, NULL), BELAY_OK);
    assert_int_equal(belay_lock_release(other, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
    belay_lock_free(lock);
    belay_lock_free(other);
}

static void on_lost_slowly(void *context, struct belay_lock *lock, const char *why)
{
    pause_ms(600);
    on_lost(context, lock, why);
}

/* L6: a renewal that hangs past the deadline ends while its holder is still being told. */
static void a_lock_can_be_released_while_its_loss_is_being_reported(void **state)
{
    struct fixture *f = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct loss loss = { 0, 0 };
    struct belay_lock *lock;

    options.ttl_ms = 400;
    options.heartbeat_ms = 100;
    options.on_lost = on_lost_slowly;
    options.context = &loss;
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &lock, NULL), BELAY_OK);
    f->cut->slow_ms = 600; /* one renewal takes from 100 to 700 ms; the callback runs from 380 to 980 */
    pause_ms(250);
    f->cut->slow_ms = 0;
    while (loss.calls == 0) {
        pause_ms(5);
    }
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_LOST);
    belay_lock_free(lock);
}

static void check_forced(struct fixture *f, int64_t ttl_ms, int64_t heartbeat_ms)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct loss loss = { 0, 0 };
    struct belay_lock *lock;

    options.ttl_ms = ttl_ms;
    options.heartbeat_ms = heartbeat_ms;
    options.on_lost = on_lost;
    options.context = &loss;
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &lock, NULL), BELAY_OK);
    assert_int_equal(belay_force_release(f->rival, "k", belay_lock_id(lock), "admin", "stuck", NULL, NULL),
                     BELAY_OK);
    for (int i = 0; i < 500 && loss.calls == 0; i++) {
        pause_ms(10);
    }
    assert_int_equal(loss.calls, 1);
    assert_false(belay_lock_is_mine(lock));
    belay_lock_free(lock);
}

/* S4.7, S4.6: the holder learns of a forced release. */
static void a_holder_learns_of_a_forced_release(void **state)
{
    check_forced(*state, 60000, 20);
}

/* S4.7: also if it was forced before the holder listened, and no heartbeat is near. */
static void a_holder_without_heartbeats_learns_of_a_forced_release(void **state)
{
    check_forced(*state, 3600000, 1800000);
}

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void a_lock_that_is_held_shortly_is_not_read_again(void **state)
{
    struct fixture *f = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct loss loss = { 0, 0 };
    int64_t took_ms;
    int n_shortly = 0;

    options.ttl_ms = 60000;
    options.on_lost = on_lost;
    options.context = &loss;
    for (int i = 0; i < 100 && n_shortly < 3; i++) {
        int64_t began_ms = now_ms();
        struct belay_lock *lock;

        f->cut->gets = 0;
        assert_int_equal(belay_lock_acquire(f->client, "k", &options, &lock, NULL), BELAY_OK);
        pause_ms(10); /* time for its thread to begin */
        assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
        belay_lock_free(lock);
        took_ms = now_ms() - began_ms;
        if (took_ms < 90) { /* else the machine was busy, and it was not short */
            assert_int_equal(f->cut->gets, 0);
            n_shortly++;
        }
    }
    assert_int_equal(n_shortly, 3);
}

struct cancelling {
    struct belay_client *client;
    struct belay_cancel *cancel;
    enum belay_code code;
};

static void *wait_for_it(void *context)
{
    struct cancelling *c = context;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock;

    options.wait_ms = BELAY_WAIT_FOREVER;
    options.cancel = c->cancel;
    c->code = belay_lock_acquire(c->client, "k", &options, &lock, NULL);
    return NULL;
}

static size_t count_waiters(struct belay_client *client, const char *key)
{
    struct belay_info *info;
    size_t n;

    assert_int_equal(belay_get(client, key, &info, NULL), BELAY_OK);
    n = info->n_waiters;
    belay_info_free(info);
    return n;
}

/* S1.5: and no ticket stays behind. */
static void a_wait_is_cancelled_from_another_thread(void **state)
{
    struct fixture *f = *state;
    struct cancelling c = { f->rival, belay_cancel_new(), BELAY_OK };
    struct belay_lock *lock;
    pthread_t thread;

    assert_int_equal(belay_lock_acquire(f->client, "k", NULL, &lock, NULL), BELAY_OK);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &c), 0);
    while (count_waiters(f->client, "k") == 0) {
        pause_ms(1);
    }
    belay_cancel_request(c.cancel);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(c.code, BELAY_CANCELLED);
    assert_int_equal(count_waiters(f->client, "k"), 0);
    belay_lock_free(lock);
    belay_cancel_free(c.cancel);
}

static void cancel_it(void *context, const struct belay_wait_info *waiting)
{
    (void)waiting;
    belay_cancel_request(context);
}

/* The end of such a wait is later than the clock can count: only the cancel ends it. */
static void the_longest_wait_does_not_end_by_itself(void **state)
{
    struct fixture *f = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock;
    struct belay_lock *second = NULL;

    assert_int_equal(belay_lock_acquire(f->client, "k", NULL, &lock, NULL), BELAY_OK);
    options.wait_ms = INT64_MAX;
    options.on_waiting = cancel_it;
    options.cancel = options.context = belay_cancel_new();
    assert_int_equal(belay_lock_acquire(f->rival, "k", &options, &second, NULL), BELAY_CANCELLED);
    belay_cancel_free(options.cancel);
    options.cancel = options.context = belay_cancel_new();
    assert_int_equal(belay_wait_until_free(f->rival, "k", &options, NULL), BELAY_CANCELLED);
    belay_cancel_free(options.cancel);
    assert_null(second);
    belay_lock_free(lock);
}

/* S2.4: the same id and token; only the outermost ends it. */
static void the_same_owner_reenters_and_only_the_outermost_release_ends_it(void **state)
{
    struct fixture *f = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *outer;
    struct belay_lock *inner;
    struct belay_lock *other;

    options.owner = "execution-1";
    options.reentrant = true;
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &outer, NULL), BELAY_OK);
    assert_int_equal(belay_lock_acquire(f->rival, "k", &options, &inner, NULL), BELAY_OK);
    assert_string_equal(belay_lock_id(outer), belay_lock_id(inner));
    assert_true(belay_lock_token(outer) == belay_lock_token(inner));
    assert_int_equal(belay_lock_release(inner, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
    belay_lock_free(inner);
    assert_int_equal(belay_lock_acquire(f->rival, "k", NULL, &other, NULL), BELAY_HELD);
    assert_int_equal(belay_lock_release(outer, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
    belay_lock_free(outer);
}

/* S0.2: a job delivered twice runs once. */
static void of_two_clients_that_adopt_the_same_id_one_succeeds(void **state)
{
    struct fixture *f = *state;
    struct belay_lock *lock;
    struct belay_lock *adopted;
    struct belay_lock *again = NULL;
    struct belay_error err = BELAY_ERROR_INIT;

    assert_int_equal(belay_lock_acquire(f->client, "k", NULL, &lock, NULL), BELAY_OK);
    assert_int_equal(belay_lock_ttl_ms(lock), 600000); /* the default */
    assert_int_equal(belay_lock_adopt(f->rival, "k", belay_lock_id(lock), NULL, &adopted, NULL), BELAY_OK);
    assert_true(belay_lock_token(adopted) > belay_lock_token(lock));
    assert_int_equal(belay_lock_ttl_ms(adopted), belay_lock_ttl_ms(lock));
    assert_string_not_equal(belay_lock_id(adopted), belay_lock_id(lock));
    assert_int_equal(belay_lock_adopt(f->rival, "k", belay_lock_id(lock), NULL, &again, &err),
                     BELAY_NOT_HOLDER);
    assert_null(again);
    assert_int_equal(belay_lock_release(adopted, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
    belay_lock_free(adopted);
    belay_lock_free(lock);
    belay_error_release(&err);
}

/* L5 */
static void a_repeated_acquire_gets_the_same_token_and_a_used_id_none(void **state)
{
    struct fixture *f = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *first;
    struct belay_lock *second;
    struct belay_lock *third = NULL;

    options.lock_id = "my-own-id";
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &first, NULL), BELAY_OK);
    assert_int_equal(belay_lock_acquire(f->rival, "k", &options, &second, NULL), BELAY_OK);
    assert_true(belay_lock_token(first) == belay_lock_token(second));
    assert_int_equal(belay_lock_release(first, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
    assert_int_equal(belay_lock_acquire(f->rival, "k", &options, &third, NULL), BELAY_ID_USED);
    belay_lock_free(first);
    belay_lock_free(second);
}

/* L8 */
static void bad_input_is_named_and_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock = NULL;
    size_t n;

    assert_int_equal(belay_lock_acquire(f->client, "a\nb", NULL, &lock, &err), BELAY_INVALID);
    assert_int_equal(belay_lock_acquire(f->client, "", NULL, &lock, &err), BELAY_INVALID);
    assert_int_equal(belay_lock_acquire(f->client, NULL, NULL, &lock, &err), BELAY_INVALID);
    options.lock_id = "no spaces here";
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &lock, &err), BELAY_INVALID);
    assert_non_null(strstr(err.text, "no spaces here"));
    options.lock_id = NULL;
    options.ttl_ms = 5;
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &lock, &err), BELAY_INVALID);
    options.ttl_ms = 1000;
    options.heartbeat_ms = 1000;
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &lock, &err), BELAY_INVALID);
    options.heartbeat_ms = 0;
    options.reentrant = true;
    assert_int_equal(belay_lock_acquire(f->client, "k", &options, &lock, &err), BELAY_INVALID);
    assert_int_equal(belay_release(f->client, "k", NULL, BELAY_OUTCOME_COMPLETED, NULL, &err), BELAY_INVALID);
    assert_int_equal(belay_release(f->client, "k", "nobody", BELAY_OUTCOME_COMPLETED, NULL, &err),
                     BELAY_NOT_FOUND);
    assert_null(lock);
    (void)memstore_records(f->data, &n);
    assert_int_equal(n, 0);
    belay_error_release(&err);
}

/* L9 */
static void events_are_reported_and_kept(void **state)
{
    struct fixture *f = *state;
    struct belay_lock *lock;

    assert_int_equal(belay_lock_acquire(f->client, "k", NULL, &lock, NULL), BELAY_OK);
    assert_int_equal(f->events, 1);
    assert_string_equal(f->last_event, "lock.acquired");
    assert_int_equal(belay_lock_renew(lock, NULL), BELAY_OK);
    assert_string_equal(f->last_event, "lock.renewed");
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_FAILED, NULL), BELAY_OK);
    assert_string_equal(f->last_event, "lock.released");
    assert_int_equal(memstore_event_count(f->data), 3);
    belay_lock_free(lock);
}

/* S4.7: flagged, and counted once. */
static void a_lock_without_its_heartbeat_is_stale_and_counted_once(void **state)
{
    struct fixture *f = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_info *info;
    struct belay_lock *lock;
    int before;

    options.ttl_ms = 60000;
    options.heartbeat_ms = 30000; /* declared, and never sent within this test */
    options.stale_after_ms = 50;
    assert_int_equal(belay_lock_acquire(f->rival, "k", &options, &lock, NULL), BELAY_OK);
    assert_int_equal(belay_get(f->client, "k", &info, NULL), BELAY_OK);
    assert_false(info->is_stale);
    belay_info_free(info);
    pause_ms(80);
    before = f->events;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(belay_get(f->client, "k", &info, NULL), BELAY_OK);
        assert_true(info->is_stale);
        belay_info_free(info);
    }
    assert_int_equal(f->events, before + 1);
    assert_string_equal(f->last_event, "lock.stale");
    belay_lock_free(lock);
}

struct waiter {
    struct belay_client *client;
    int *order;
    atomic_int *next;
    int number;
};

static void *acquire_in_line(void *context)
{
    struct waiter *w = context;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock;

    options.wait_ms = 30000;
    assert_int_equal(belay_lock_acquire(w->client, "k", &options, &lock, NULL), BELAY_OK);
    w->order[(*w->next)++] = w->number;
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
    belay_lock_free(lock);
    return NULL;
}

/* L4, S2.8 */
static void waiters_get_the_lock_in_the_order_of_arrival(void **state)
{
    enum { N = 6 };
    struct fixture *f = *state;
    struct belay_lock *lock;
    struct waiter waiters[N];
    pthread_t threads[N];
    atomic_int next = 0;
    int order[N];

    assert_int_equal(belay_lock_acquire(f->client, "k", NULL, &lock, NULL), BELAY_OK);
    for (int i = 0; i < N; i++) {
        waiters[i] = (struct waiter){ i % 2 ? f->client : f->rival, order, &next, i };
        assert_int_equal(pthread_create(&threads[i], NULL, acquire_in_line, &waiters[i]), 0);
        while (count_waiters(f->client, "k") != (size_t)i + 1) {
            pause_ms(1);
        }
    }
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
    belay_lock_free(lock);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(order[i], i);
    }
}

/* S4.5 */
static void a_stack_and_its_services_exclude_each_other(void **state)
{
    struct fixture *f = *state;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_lock *service;
    struct belay_lock *sibling;
    struct belay_lock *stack = NULL;

    assert_int_equal(belay_lock_acquire(f->client, "stack:s:env:e:service:a", NULL, &service, &err),
                     BELAY_OK);
    assert_int_equal(belay_lock_acquire(f->client, "stack:s:env:e:service:b", NULL, &sibling, &err),
                     BELAY_OK);
    assert_int_equal(belay_lock_acquire(f->rival, "stack:s:env:e", NULL, &stack, &err), BELAY_HELD);
    assert_string_equal(belay_error_holder(&err)->key, "stack:s:env:e:service:a");
    assert_non_null(strstr(err.text, "'stack:s:env:e:service:a'"));
    belay_lock_release(service, BELAY_OUTCOME_COMPLETED, NULL);
    belay_lock_release(sibling, BELAY_OUTCOME_COMPLETED, NULL);
    belay_lock_free(service);
    belay_lock_free(sibling);
    assert_int_equal(belay_lock_acquire(f->rival, "stack:s:env:e", NULL, &stack, &err), BELAY_OK);
    assert_int_equal(belay_lock_acquire(f->client, "stack:s:env:e:service:a", NULL, &service, &err),
                     BELAY_HELD);
    assert_string_equal(belay_error_holder(&err)->key, "stack:s:env:e");
    belay_lock_free(stack);
    belay_error_release(&err);
}

static bool note_event(void *context, const struct belay_event *event)
{
    uint64_t *seen = context; /* how many, and the last one's id */

    seen[0]++;
    seen[1] = event->id;
    return true;
}

static void kept_events_are_read_without_waiting_for_more(void **state)
{
    struct fixture *f = *state;
    uint64_t all[2] = { 0, 0 };
    uint64_t last[2] = { 0, 0 };
    uint64_t later[2] = { 0, 0 };
    uint64_t none[2] = { 0, 0 };
    struct belay_lock *lock;

    assert_int_equal(belay_lock_acquire(f->client, "a/1", NULL, &lock, NULL), BELAY_OK);
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
    belay_lock_free(lock);
    assert_int_equal(belay_events(f->client, NULL, 0, 0, note_event, all, NULL), BELAY_OK);
    assert_int_equal(all[0], 2);
    assert_int_equal(belay_events(f->client, "a/", 0, 1, note_event, last, NULL), BELAY_OK);
    assert_int_equal(last[0], 1);
    assert_int_equal(last[1], all[1]);
    assert_int_equal(belay_events(f->client, NULL, all[1] - 1, 0, note_event, later, NULL), BELAY_OK);
    assert_int_equal(later[0], 1);
    assert_int_equal(belay_events(f->client, "b/", 0, 0, note_event, none, NULL), BELAY_OK);
    assert_int_equal(belay_events(f->client, NULL, all[1], 0, note_event, none, NULL), BELAY_OK);
    assert_int_equal(none[0], 0);
}

/* S0.9: also on the day on which the store is broken, which is when it is wanted. */
/* A full disk: an answer, and soon. */
static void every_change_ends_when_the_store_can_only_be_read(void **state)
{
    struct fixture *f = *state;
    struct belay_lock *lock;
    struct belay_lock *other;

    assert_int_equal(belay_lock_acquire(f->client, "k", NULL, &lock, NULL), BELAY_OK);
    f->cut->read_only = true;
    assert_int_equal(belay_lock_acquire(f->client, "other", NULL, &other, NULL), BELAY_UNREACHABLE);
    assert_int_equal(belay_lock_renew(lock, NULL), BELAY_UNREACHABLE);
    assert_int_equal(belay_force_release(f->client, "k", belay_lock_id(lock), "me", "test", NULL, NULL),
                     BELAY_UNREACHABLE);
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_UNREACHABLE);
    f->cut->read_only = false;
    belay_lock_free(lock);
}

static void the_kill_switch_works_without_a_store(void **state)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client;
    struct belay_lock *lock;
    struct belay_info *info;

    (void)state;
    options.store_url = "sqlite:/dev/null/nowhere.db";
    assert_int_not_equal(belay_client_open(&options, &client, &err), BELAY_OK);
    assert_int_equal(setenv("BELAY_DISABLED", "1", 1), 0);
    assert_int_equal(belay_client_open(&options, &client, &err), BELAY_OK);
    assert_int_equal(unsetenv("BELAY_DISABLED"), 0);
    assert_false(belay_client_locking_enabled(client));
    assert_int_equal(belay_lock_acquire(client, "k", NULL, &lock, &err), BELAY_OK);
    assert_false(belay_lock_is_protected(lock));
    assert_null(belay_lock_id(lock));
    assert_true(belay_lock_token(lock) == 0);
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &err), BELAY_OK);
    belay_lock_free(lock);
    assert_int_equal(belay_get(client, "k", &info, &err), BELAY_UNREACHABLE);
    assert_non_null(strstr(err.text, "/dev/null"));
    belay_client_close(client);
    belay_error_release(&err);
}

static void wake_nobody(void *context)
{
    (void)context;
}

/* It has no store to ask in them: an operation is refused, and that is all. */
static void a_client_of_a_server_closes_after_it_was_given_threads(void **state)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_lock_options lock = BELAY_LOCK_OPTIONS_INIT;
    struct belay_client *client;

    (void)state;
    options.store_url = "http://127.0.0.1:1";
    assert_int_equal(belay_client_open(&options, &client, NULL), BELAY_OK);
    assert_int_equal(belay_client_use_threads(client, 2, wake_nobody, NULL, NULL), BELAY_OK);
    assert_int_equal(belay_client_poll_fd(client), -1);
    assert_int_equal(belay_async_acquire(client, "k", &lock, NULL, NULL, NULL, NULL), BELAY_INVALID);
    assert_true(belay_client_poll(client) == INT64_MAX);
    belay_client_close(client);
}

/* Its end would be later than the clock can count. */
static void a_freeze_after_the_last_year_is_refused(void **state)
{
    struct fixture *f = *state;
    struct belay_freeze_options options = BELAY_FREEZE_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;

    memstore_keep_items(f->data);
    options.reason = "holidays";
    options.from_unix_ms = INT64_MAX;
    options.for_ms = 1;
    assert_int_equal(belay_freeze(f->rival, "k", &options, NULL, NULL, &err), BELAY_INVALID);
    assert_non_null(strstr(err.text, "before the year 10000"));
    belay_error_release(&err);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_acquire_is_refused_while_another_client_holds_the_lock),
        TEST(every_new_holder_has_a_higher_token),
        TEST(a_heartbeat_keeps_it_beyond_its_ttl),
        TEST(a_lease_counts_from_before_the_request),
        TEST(a_holder_learns_of_the_loss_before_another_client_can_acquire),
        TEST(a_lock_can_be_released_while_its_loss_is_being_reported),
        TEST(a_holder_learns_of_a_forced_release),
        TEST(a_holder_without_heartbeats_learns_of_a_forced_release),
        TEST(a_lock_that_is_held_shortly_is_not_read_again),
        TEST(a_wait_is_cancelled_from_another_thread),
        TEST(the_longest_wait_does_not_end_by_itself),
        TEST(the_same_owner_reenters_and_only_the_outermost_release_ends_it),
        TEST(of_two_clients_that_adopt_the_same_id_one_succeeds),
        TEST(a_repeated_acquire_gets_the_same_token_and_a_used_id_none),
        TEST(bad_input_is_named_and_changes_nothing),
        TEST(events_are_reported_and_kept),
        TEST(a_lock_without_its_heartbeat_is_stale_and_counted_once),
        TEST(waiters_get_the_lock_in_the_order_of_arrival),
        TEST(a_stack_and_its_services_exclude_each_other),
        TEST(every_change_ends_when_the_store_can_only_be_read),
        TEST(kept_events_are_read_without_waiting_for_more),
        TEST(the_kill_switch_works_without_a_store),
        TEST(a_freeze_after_the_last_year_is_refused),
        TEST(a_client_of_a_server_closes_after_it_was_given_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
