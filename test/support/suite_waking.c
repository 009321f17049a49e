/* Waiting without a missed wake-up (L4). These cases use real time: a wait() blocks a thread. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/suite_kit.h"

/* A wait that takes so long was not woken. What wakes it takes a few milliseconds, or a busy machine more. */
static int64_t timeout_ms(const struct suite *s)
{
    return s->fixture->timeout_ms > 0 ? s->fixture->timeout_ms : 20000;
}

/* For how long the cases wait: missing a wake-up must show. */
static int64_t far_ms(const struct suite *s)
{
    return 4 * timeout_ms(s);
}

static bool can_wake(const struct suite *s)
{
    return s->a->ops->listen != NULL;
}

static bool a_store_has_all_functions_for_waking_or_none(struct suite *s)
{
    const struct belay_store_ops *ops = s->a->ops;

    CHECK((ops->listen != NULL) == (ops->wait != NULL));
    CHECK((ops->listen != NULL) == (ops->wake != NULL));
    return true;
}

static bool a_wake_between_listen_and_wait_is_not_lost(struct suite *s)
{
    for (int i = 0; i < 20 && can_wake(s); i++) {
        const char *id = suite_text(s, "waiter-%d", i % 3);
        uint32_t listened = s->a->ops->listen(s->a, id);
        int64_t began = real_ms();

        (i % 2 == 0 ? s->a : s->b)->ops->wake(i % 2 == 0 ? s->a : s->b, id);
        s->a->ops->wait(s->a, id, listened, far_ms(s), NULL);
        CHECK(real_ms() - began < timeout_ms(s));
    }
    return true;
}

struct waker {
    struct belay_store *store;
    const char *id;
    int after_ms;
};

static void *wake_later(void *context)
{
    const struct waker *waker = context;

    (void)usleep((useconds_t)waker->after_ms * 1000);
    waker->store->ops->wake(waker->store, waker->id);
    return NULL;
}

static bool a_wake_of_another_thread_and_handle_ends_a_wait(struct suite *s)
{
    for (int i = 0; i < 12 && can_wake(s); i++) {
        struct waker waker = { i % 2 == 0 ? s->b : s->a, "waiter", i };
        uint32_t listened = s->a->ops->listen(s->a, "waiter");
        int64_t began = real_ms();
        pthread_t thread;

        CHECK(pthread_create(&thread, NULL, wake_later, &waker) == 0);
        s->a->ops->wait(s->a, "waiter", listened, far_ms(s), NULL);
        (void)pthread_join(thread, NULL);
        CHECK(real_ms() - began < timeout_ms(s));
    }
    return true;
}

/* One waits for the other's wake, again and again, with no time in between to be safe in. */
struct ping_pong {
    struct belay_store *store;
    const char *me;
    const char *you;
    int rounds;
    int *turn; /* whose: 0 or 1; atomic */
    int mine;
    int64_t timeout_ms;
    int64_t longest_ms;
};

static void *play(void *context)
{
    struct ping_pong *p = context;
    const struct belay_store_ops *ops = p->store->ops;

    for (int i = 0; i < p->rounds; i++) {
        int64_t began = real_ms();

        while (__atomic_load_n(p->turn, __ATOMIC_SEQ_CST) != p->mine && p->longest_ms < p->timeout_ms) {
            uint32_t listened = ops->listen(p->store, p->me);

            if (__atomic_load_n(p->turn, __ATOMIC_SEQ_CST) != p->mine) {
                ops->wait(p->store, p->me, listened, p->timeout_ms, NULL);
            }
            if (real_ms() - began > p->longest_ms) {
                p->longest_ms = real_ms() - began;
            }
        }
        __atomic_store_n(p->turn, !p->mine, __ATOMIC_SEQ_CST);
        ops->wake(p->store, p->you);
    }
    return NULL;
}

static bool no_wake_is_lost_in_a_thousand_turns(struct suite *s)
{
    int turn = 0;
    struct ping_pong players[2] = { { s->a, "ping", "pong", 1000, &turn, 0, timeout_ms(s), 0 },
                                    { s->b, "pong", "ping", 1000, &turn, 1, timeout_ms(s), 0 } };
    pthread_t thread;

    if (!can_wake(s)) {
        return true;
    }
    CHECK(pthread_create(&thread, NULL, play, &players[1]) == 0);
    (void)play(&players[0]);
    (void)pthread_join(thread, NULL);
    CHECK(players[0].longest_ms < timeout_ms(s));
    CHECK(players[1].longest_ms < timeout_ms(s));
    return true;
}

/* What a subscriber has heard. */
struct heard {
    pthread_mutex_t mutex;
    char last[64];
    unsigned n;
};

static void on_heard(void *context, const char *lock_id)
{
    struct heard *heard = context;

    (void)pthread_mutex_lock(&heard->mutex);
    if (lock_id != NULL) {
        (void)snprintf(heard->last, sizeof heard->last, "%s", lock_id);
        heard->n++;
    }
    (void)pthread_mutex_unlock(&heard->mutex);
}

static bool has_heard(struct heard *heard, const char *lock_id)
{
    bool yes;

    (void)pthread_mutex_lock(&heard->mutex);
    yes = strcmp(heard->last, lock_id) == 0;
    (void)pthread_mutex_unlock(&heard->mutex);
    return yes;
}

static bool a_subscriber_hears_the_wakes_of_every_handle_until_it_ends(struct suite *s)
{
    struct heard heard = { .mutex = PTHREAD_MUTEX_INITIALIZER };
    unsigned n;

    if (s->a->ops->subscribe == NULL) {
        return true;
    }
    s->a->ops->subscribe(s->a, on_heard, &heard);
    for (int i = 0; i < 10; i++) {
        const char *id = suite_text(s, "waiter-%d", i);
        struct belay_store *store = i % 2 == 0 ? s->a : s->b;
        int64_t began = real_ms();

        store->ops->wake(store, id);
        while (!has_heard(&heard, id) && real_ms() - began < far_ms(s)) {
            (void)usleep(1000);
        }
        CHECK(has_heard(&heard, id));
    }
    s->a->ops->subscribe(s->a, NULL, NULL);
    n = heard.n;
    s->b->ops->wake(s->b, "late");
    (void)usleep(20000);
    CHECK_INT(heard.n, n);
    return true;
}

static bool a_wait_ends_at_its_timeout(struct suite *s)
{
    int64_t began = real_ms();

    if (can_wake(s)) {
        s->a->ops->wait(s->a, "nobody", s->a->ops->listen(s->a, "nobody"), 30, NULL);
        s->a->ops->wait(s->a, "nobody", s->a->ops->listen(s->a, "nobody"), 0, NULL);
        s->a->ops->wait(s->a, NULL, s->a->ops->listen(s->a, NULL), 30, NULL);
    }
    CHECK(real_ms() - began < timeout_ms(s));
    return true;
}

static void *cancel_later(void *context)
{
    (void)usleep(10000);
    belay_cancel_request(context);
    return NULL;
}

static bool a_cancelled_wait_ends(struct suite *s)
{
    struct belay_cancel *cancel = belay_cancel_new();
    int64_t began = real_ms();
    pthread_t thread;
    bool started = pthread_create(&thread, NULL, cancel_later, cancel) == 0;

    if (started && can_wake(s)) {
        /* It may return early, so repeat until it was really cancelled. */
        while (!belay_cancel_requested(cancel)) {
            s->a->ops->wait(s->a, "nobody", s->a->ops->listen(s->a, "nobody"), far_ms(s), cancel);
        }
        s->a->ops->wait(s->a, "nobody", s->a->ops->listen(s->a, "nobody"), far_ms(s), cancel);
    }
    if (started) {
        (void)pthread_join(thread, NULL);
    }
    belay_cancel_free(cancel);
    CHECK(started);
    CHECK(real_ms() - began < timeout_ms(s));
    return true;
}

static bool every_batch_with_events_wakes_all_listeners(struct suite *s)
{
    struct belay_event event = { .type = "wait.began",
                                 .key = "k",
                                 .lock_id = "one",
                                 .locked_by = "",
                                 .locked_by_name = "",
                                 .duration_ms = -1 };

    for (int i = 0; i < 6 && can_wake(s); i++) {
        uint32_t listened = s->a->ops->listen(s->a, NULL);
        int64_t began = real_ms();

        CHECK_DONE(
            commit(s, i % 2 == 0 ? s->a : s->b, &(struct belay_batch){ .events = &event, .n_events = 1 }));
        s->a->ops->wait(s->a, NULL, listened, far_ms(s), NULL);
        CHECK(real_ms() - began < timeout_ms(s));
    }
    return true;
}

static bool the_capabilities_are_sane_and_constant(struct suite *s)
{
    struct belay_store_capabilities first = s->a->ops->capabilities(s->a);
    struct belay_store_capabilities again = s->b->ops->capabilities(s->b);

    CHECK(first.margin_ms >= 0);
    CHECK(first.claim_ms > 0);
    CHECK(first.poll_ms > 0);
    CHECK_INT(first.margin_ms, again.margin_ms);
    CHECK_INT(first.claim_ms, again.claim_ms);
    CHECK_INT(first.poll_ms, again.poll_ms);
    CHECK(first.ticket_ttl_ms > 0);
    CHECK_INT(first.ticket_ttl_ms, again.ticket_ttl_ms);
    CHECK_INT(first.is_local, again.is_local);
    return true;
}

const struct suite_case suite_waking[] = {
    CASE("L4", a_store_has_all_functions_for_waking_or_none),
    CASE("L4", a_wake_between_listen_and_wait_is_not_lost),
    CASE("L4", a_wake_of_another_thread_and_handle_ends_a_wait),
    CASE("L4", no_wake_is_lost_in_a_thousand_turns),
    CASE("L4", a_subscriber_hears_the_wakes_of_every_handle_until_it_ends),
    CASE("L4", a_wait_ends_at_its_timeout),
    CASE("S1.5", a_cancelled_wait_ends),
    CASE("L9", every_batch_with_events_wakes_all_listeners),
    CASE("L4", the_capabilities_are_sane_and_constant),
    { NULL, NULL, 0, NULL },
};
