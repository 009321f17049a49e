/* Conformance of the public interface: waiting in the queue. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/api_kit.h"

enum { LINE = 4, CROWD = 8, TURNS = 5 };

static struct api_waiter waiter_of(struct belay_client *client, const char *key, int64_t wait_ms)
{
    struct api_waiter waiter = { .client = client, .key = key, .options = BELAY_LOCK_OPTIONS_INIT };

    waiter.options.wait_ms = wait_ms;
    waiter.options.ttl_ms = API_LONG_MS;
    return waiter;
}

static void a_queue_is_served_in_the_order_of_arrival(void **state) /* L4 */
{
    struct api *api = *state;
    struct belay_lock *held = api_take(api->client, api->key, NULL, API_LONG_MS);
    struct api_waiter waiters[LINE];
    uint64_t token = belay_lock_token(held);

    for (size_t i = 0; i < LINE; i++) {
        waiters[i] = waiter_of(i % 2 == 0 ? api->client : api->rival, api->key, BELAY_WAIT_FOREVER);
        api_waiter_start(&waiters[i]);
        api_await_line(api->client, api->key, i + 1);
    }
    assert_int_equal(belay_lock_release(held, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    belay_lock_free(held);
    for (size_t i = 0; i < LINE; i++) {
        api_waiter_join(&waiters[i]);
        assert_int_equal(waiters[i].code, BELAY_OK);
        /* The waiters behind still wait: only this one was next. */
        api_await_line(api->rival, api->key, LINE - 1 - i);
        assert_true(belay_lock_token(waiters[i].lock) > token);
        token = belay_lock_token(waiters[i].lock);
        assert_int_equal(belay_lock_release(waiters[i].lock, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
        belay_lock_free(waiters[i].lock);
    }
}

static void a_waiter_that_gives_up_learns_the_holder_and_leaves_the_queue(void **state) /* L4 */
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *held = api_take(api->client, api->key, NULL, API_LONG_MS);
    struct belay_lock *lock = NULL;

    options.wait_ms = 300;
    assert_int_equal(belay_lock_acquire(api->rival, api->key, &options, &lock, &api->err), BELAY_HELD);
    assert_non_null(belay_error_holder(&api->err));
    assert_int_equal(belay_error_holder(&api->err)->token, belay_lock_token(held));
    api_await_line(api->client, api->key, 0);
    belay_lock_free(held);
}

struct blocked_key {
    struct belay_client *client;
    const char *key;
};

static bool has_known_waiter(void *context)
{
    struct blocked_key *blocked = context;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;
    enum belay_code code = belay_get(blocked->client, blocked->key, &info, &err);
    const struct belay_info *queue = belay_error_holder(&err);
    bool is_known = code == BELAY_NOT_FOUND && queue != NULL && queue->n_waiters == 1 &&
                    strcmp(queue->key, blocked->key) == 0 &&
                    strcmp(queue->waiters[0].key, blocked->key) == 0 && queue->locked_by[0] == '\0';

    belay_info_free(info);
    belay_error_release(&err);
    return is_known;
}

static void the_waiters_of_a_key_that_was_never_held_are_known(void **state) /* L4, L8 */
{
    struct api *api = *state;
    struct api_waiter waiter;
    struct belay_lock *held;
    char above[600];
    char below[600];

    (void)snprintf(above, sizeof above, "stack:%s:env:prod", api->key);
    (void)snprintf(below, sizeof below, "stack:%s:env:prod:service:web", api->key);
    held = api_take(api->client, above, NULL, API_LONG_MS);
    waiter = waiter_of(api->rival, below, BELAY_WAIT_FOREVER);
    api_waiter_start(&waiter);
    assert_true(api_await(has_known_waiter, &(struct blocked_key){ api->client, below }));
    assert_int_equal(belay_lock_release(held, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    belay_lock_free(held);
    api_waiter_join(&waiter);
    assert_int_equal(waiter.code, BELAY_OK);
    belay_lock_free(waiter.lock);
}

static void a_cancelled_wait_ends_and_leaves_the_queue(void **state) /* S1.5 */
{
    struct api *api = *state;
    struct belay_lock *held = api_take(api->client, api->key, NULL, API_LONG_MS);
    struct belay_cancel *cancel = belay_cancel_new();
    struct api_waiter waiter = waiter_of(api->rival, api->key, BELAY_WAIT_FOREVER);

    waiter.options.cancel = cancel;
    api_waiter_start(&waiter);
    api_await_line(api->client, api->key, 1);
    belay_cancel_request(cancel);
    api_waiter_join(&waiter);
    assert_int_equal(waiter.code, BELAY_CANCELLED);
    assert_null(waiter.lock);
    api_await_line(api->client, api->key, 0);
    belay_cancel_free(cancel);
    belay_lock_free(held);
}

static void a_wait_ends_when_the_holders_lease_does(void **state) /* L4, S2.4 */
{
    struct api *api = *state;
    struct belay_lock *held = api_take(api->client, api->key, NULL, API_SHORT_MS);
    struct api_waiter waiter = waiter_of(api->rival, api->key, API_PATIENCE_MS);

    api_waiter_start(&waiter);
    api_waiter_join(&waiter);
    assert_int_equal(waiter.code, BELAY_OK);
    assert_true(belay_lock_token(waiter.lock) > belay_lock_token(held));
    assert_false(belay_lock_is_mine(held));
    belay_lock_free(waiter.lock);
    belay_lock_free(held);
}

struct shown {
    atomic_int n;
    atomic_bool is_right;
};

static void show(void *context, const struct belay_wait_info *waiting)
{
    struct shown *shown = context;

    if (waiting->holder != NULL && strcmp(waiting->holder->locked_by, "the-holder") == 0) {
        atomic_store(&shown->is_right, true);
    }
    (void)atomic_fetch_add(&shown->n, 1);
}

static bool is_shown(void *context)
{
    return atomic_load(&((struct shown *)context)->is_right);
}

static void a_waiter_is_shown_the_holder(void **state) /* S4.9 */
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct api_waiter waiter = waiter_of(api->rival, api->key, BELAY_WAIT_FOREVER);
    struct belay_lock *held = NULL;
    struct shown shown = { 0 };

    options.owner = "the-holder";
    options.ttl_ms = API_LONG_MS;
    assert_int_equal(belay_lock_acquire(api->client, api->key, &options, &held, &api->err), BELAY_OK);
    waiter.options.on_waiting = show;
    waiter.options.context = &shown;
    api_waiter_start(&waiter);
    assert_true(api_await(is_shown, &shown));
    assert_int_equal(belay_lock_release(held, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    api_waiter_join(&waiter);
    assert_int_equal(waiter.code, BELAY_OK);
    belay_lock_free(waiter.lock);
    belay_lock_free(held);
}

struct crowd {
    const struct api *api;
    atomic_int inside;
    atomic_int n_overlaps;
    atomic_int n_failed;
    uint64_t last_token; /* under the lock */
};

static void *take_turns(void *context)
{
    struct crowd *crowd = context;
    struct belay_client *client = api_open(crowd->api);
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;

    options.wait_ms = BELAY_WAIT_FOREVER;
    options.ttl_ms = API_LONG_MS;
    for (int i = 0; i < TURNS; i++) {
        struct belay_lock *lock = NULL;

        if (belay_lock_acquire(client, crowd->api->key, &options, &lock, NULL) != BELAY_OK) {
            (void)atomic_fetch_add(&crowd->n_failed, 1);
            break;
        }
        if (atomic_fetch_add(&crowd->inside, 1) != 0 || belay_lock_token(lock) <= crowd->last_token) {
            (void)atomic_fetch_add(&crowd->n_overlaps, 1);
        }
        crowd->last_token = belay_lock_token(lock);
        (void)atomic_fetch_sub(&crowd->inside, 1);
        if (belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL) != BELAY_OK) {
            (void)atomic_fetch_add(&crowd->n_failed, 1);
        }
        belay_lock_free(lock);
    }
    belay_client_close(client);
    return NULL;
}

static void eight_clients_take_turns_and_never_hold_it_together(void **state) /* L1, L2 */
{
    struct crowd crowd = { .api = *state };
    pthread_t threads[CROWD];

    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, &crowd), 0);
    }
    for (size_t i = 0; i < CROWD; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    assert_int_equal(crowd.n_failed, 0);
    assert_int_equal(crowd.n_overlaps, 0);
}

struct freeing {
    struct belay_client *client;
    const char *key;
    enum belay_code code;
};

static void *wait_free(void *context)
{
    struct freeing *freeing = context;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;

    options.wait_ms = API_PATIENCE_MS;
    freeing->code = belay_wait_until_free(freeing->client, freeing->key, &options, NULL);
    return NULL;
}

static void waiting_until_free_acquires_nothing(void **state)
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct freeing freeing = { api->rival, api->key, BELAY_BUG };
    struct belay_lock *held = api_take(api->client, api->key, NULL, API_LONG_MS);
    struct belay_info *info;
    pthread_t thread;

    options.wait_ms = 50;
    assert_int_equal(belay_wait_until_free(api->rival, api->key, &options, &api->err), BELAY_HELD);
    assert_int_equal(pthread_create(&thread, NULL, wait_free, &freeing), 0);
    assert_int_equal(belay_lock_release(held, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    (void)pthread_join(thread, NULL);
    assert_int_equal(freeing.code, BELAY_OK);
    info = api_look(api->client, api->key);
    assert_int_equal(info->status, BELAY_STATUS_RELEASED);
    assert_int_equal(info->token, belay_lock_token(held));
    belay_info_free(info);
    belay_lock_free(held);
}

const struct CMUnitTest api_waiting[] = {
    API_CASE(a_queue_is_served_in_the_order_of_arrival),
    API_CASE(a_waiter_that_gives_up_learns_the_holder_and_leaves_the_queue),
    API_CASE(the_waiters_of_a_key_that_was_never_held_are_known),
    API_CASE(a_cancelled_wait_ends_and_leaves_the_queue),
    API_CASE(a_wait_ends_when_the_holders_lease_does),
    API_CASE(a_waiter_is_shown_the_holder),
    API_CASE(eight_clients_take_turns_and_never_hold_it_together),
    API_CASE(waiting_until_free_acquires_nothing),
};
const size_t n_api_waiting = sizeof api_waiting / sizeof api_waiting[0];
