/* Operations without blocking, as an event loop runs them: over a store in memory on a virtual clock. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "belay.h"
#include "belay/store.h"
#include "support/memstore.h"

struct fixture {
    struct memstore_data *data;
    struct belay_client *client;
};

struct heard {
    int times;
    enum belay_code code;
    uint64_t token;
    int *counter; /* the order of callbacks */
    int order;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    f->data = memstore_data_new(NULL, NULL, NULL);
    memstore_set_capabilities(
        f->data, (struct belay_store_capabilities){
                     .is_local = true, .claim_ms = 1000, .poll_ms = 250, .ticket_ttl_ms = 3600000 });
    assert_int_equal(belay_client_open_store(memstore_open(f->data), NULL, &f->client, NULL), BELAY_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    belay_client_close(f->client);
    memstore_data_free(f->data);
    free(f);
    return 0;
}

static void hear(void *context, enum belay_code code, const struct belay_info *info,
                 const struct belay_error *err)
{
    struct heard *heard = context;

    assert_non_null(err);
    heard->times++;
    heard->code = code;
    heard->token = info == NULL ? 0 : info->token;
    if (heard->counter != NULL) {
        heard->order = (*heard->counter)++;
    }
}

static void acquire(struct fixture *f, const char *id, int64_t wait_ms, struct heard *heard,
                    struct belay_async **call)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;

    options.lock_id = id;
    options.wait_ms = wait_ms;
    assert_int_equal(belay_async_acquire(f->client, "k", &options, hear, heard, call, NULL), BELAY_OK);
}

static void nothing_happens_outside_of_a_poll(void **state)
{
    struct fixture *f = *state;
    struct heard heard = { 0 };
    size_t n;

    acquire(f, "a", 0, &heard, NULL);
    (void)memstore_records(f->data, &n);
    assert_int_equal(n, 0);
    assert_int_equal(heard.times, 0);
    assert_true(belay_client_poll(f->client) == INT64_MAX);
    assert_int_equal(heard.times, 1);
    assert_int_equal(heard.code, BELAY_OK);
    assert_true(heard.token > 0);
}

/* L4, S2.8: release and hand-over are one turn. */
static void waiters_get_the_lock_in_order_in_the_poll_of_the_release(void **state)
{
    enum { N = 50 };
    struct fixture *f = *state;
    struct heard first = { 0 };
    struct heard heard[N];
    struct heard done = { 0 };
    int counter = 0;
    char id[16];

    memset(heard, 0, sizeof heard);
    acquire(f, "first", 0, &first, NULL);
    (void)belay_client_poll(f->client);
    for (int i = 0; i < N; i++) {
        heard[i].counter = &counter;
        (void)snprintf(id, sizeof id, "id-%d", i);
        acquire(f, id, 60000, &heard[i], NULL);
    }
    assert_true(belay_client_poll(f->client) < INT64_MAX);
    assert_int_equal(counter, 0);
    assert_int_equal(belay_async_release(f->client, "k", "first", BELAY_OUTCOME_COMPLETED, hear, &done, NULL),
                     BELAY_OK);
    for (int i = 0; i < N; i++) {
        (void)belay_client_poll(f->client);
        assert_int_equal(counter, i + 1);
        assert_int_equal(heard[i].order, i);
        assert_int_equal(heard[i].code, BELAY_OK);
        (void)snprintf(id, sizeof id, "id-%d", i);
        assert_int_equal(belay_async_release(f->client, "k", id, BELAY_OUTCOME_COMPLETED, hear, &done, NULL),
                         BELAY_OK);
    }
    (void)belay_client_poll(f->client);
    assert_int_equal(done.times, N + 1);
    assert_int_equal(done.code, BELAY_OK);
}

/* L4: it has to be there when the new lease ends, and knows the end of the old one only. */
static void the_next_waiter_sees_a_new_lease_in_the_next_poll(void **state)
{
    struct fixture *f = *state;
    struct heard heard[3] = { 0 };
    struct heard done = { 0 };
    int64_t began_ms = belay_now_boot_ms();
    int64_t next_ms;

    acquire(f, "a", 0, &heard[0], NULL);
    acquire(f, "b", 60000, &heard[1], NULL);
    acquire(f, "c", 60000, &heard[2], NULL);
    assert_true(belay_client_poll(f->client) > began_ms);
    assert_int_equal(belay_async_release(f->client, "k", "a", BELAY_OUTCOME_COMPLETED, hear, &done, NULL),
                     BELAY_OK);
    next_ms = belay_client_poll(f->client);
    assert_int_equal(heard[1].code, BELAY_OK);
    assert_int_equal(heard[1].times, 1);
    assert_true(next_ms <= belay_now_boot_ms());
    began_ms = belay_now_boot_ms();
    assert_true(belay_client_poll(f->client) > began_ms);
    assert_int_equal(heard[2].times, 0);
}

/* Hand the lock on to the first of two waiters. True: the second one is to look at once. */
static bool wakes_the_next(struct fixture *f, int64_t ttl_ms)
{
    static const char *const ids[] = { "a", "b", "c" };
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct heard heard[3] = { 0 };
    struct heard done = { 0 };
    int64_t next_ms;

    options.ttl_ms = ttl_ms;
    options.stepped_backoff = true; /* its next attempt by itself is 5 s away */
    for (int i = 0; i < 3; i++) {
        options.lock_id = ids[i];
        options.wait_ms = i == 0 ? 0 : 60000;
        assert_int_equal(belay_async_acquire(f->client, "k", &options, hear, &heard[i], NULL, NULL),
                         BELAY_OK);
    }
    (void)belay_client_poll(f->client);
    assert_int_equal(belay_async_release(f->client, "k", "a", BELAY_OUTCOME_COMPLETED, hear, &done, NULL),
                     BELAY_OK);
    next_ms = belay_client_poll(f->client);
    assert_int_equal(heard[1].code, BELAY_OK);
    assert_int_equal(heard[1].times, 1);
    assert_int_equal(heard[2].times, 0);
    return next_ms <= belay_now_boot_ms();
}

enum { FAR_POLL_MS = 30000, MANY_POLLS = 21 };

static void use_remote_store(struct fixture *f)
{
    memstore_set_capabilities(f->data, (struct belay_store_capabilities){ .claim_ms = 600000,
                                                                          .poll_ms = FAR_POLL_MS,
                                                                          .ticket_ttl_ms = 3600000 });
}

/* L4: a wake-up costs a store on another machine, and this waiter looks long before the lease ends. */
static void the_next_waiter_of_a_remote_store_is_not_woken_for_a_long_lease(void **state)
{
    use_remote_store(*state);
    assert_false(wakes_the_next(*state, (int64_t)MANY_POLLS * FAR_POLL_MS));
}

static void the_next_waiter_of_a_remote_store_is_woken_for_a_short_lease(void **state)
{
    use_remote_store(*state);
    assert_true(wakes_the_next(*state, FAR_POLL_MS));
}

static void a_cancelled_call_leaves_the_queue(void **state)
{
    struct fixture *f = *state;
    struct heard holder = { 0 };
    struct heard waiter = { 0 };
    struct belay_async *call;
    struct belay_info *info;

    acquire(f, "a", 0, &holder, NULL);
    acquire(f, "b", 60000, &waiter, &call);
    (void)belay_client_poll(f->client);
    assert_int_equal(waiter.times, 0);
    belay_async_cancel(call);
    assert_true(belay_client_poll(f->client) == INT64_MAX);
    assert_int_equal(waiter.times, 1);
    assert_int_equal(waiter.code, BELAY_CANCELLED);
    assert_int_equal(belay_get(f->client, "k", &info, NULL), BELAY_OK);
    assert_int_equal(info->n_waiters, 0);
    belay_info_free(info);
}

static void a_second_call_with_an_id_in_use_is_refused(void **state)
{
    struct fixture *f = *state;
    struct heard heard = { 0 };
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;

    acquire(f, "a", 0, &heard, NULL);
    options.lock_id = "a";
    assert_int_equal(belay_async_acquire(f->client, "k", &options, hear, &heard, NULL, &err), BELAY_BUSY);
    assert_non_null(strstr(err.text, "in progress"));
    (void)belay_client_poll(f->client);
    assert_int_equal(heard.times, 1);
}

/* L3 */
static void a_client_that_is_not_the_holder_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct heard holder = { 0 };
    struct heard other = { 0 };
    struct belay_info *info;

    acquire(f, "a", 0, &holder, NULL);
    assert_int_equal(belay_async_renew(f->client, "k", "b", 0, hear, &other, NULL), BELAY_OK);
    (void)belay_client_poll(f->client);
    assert_int_equal(other.code, BELAY_NOT_HOLDER);
    assert_int_equal(belay_async_force_release(f->client, "k", "b", "admin", "why not", hear, &other, NULL),
                     BELAY_OK);
    (void)belay_client_poll(f->client);
    assert_int_equal(other.code, BELAY_NOT_HOLDER);
    assert_int_equal(belay_get(f->client, "k", &info, NULL), BELAY_OK);
    assert_string_equal(info->lock_id, "a");
    assert_int_equal(info->status, BELAY_STATUS_ACTIVE);
    belay_info_free(info);
}

static void calls_in_progress_are_abandoned_when_the_client_closes(void **state)
{
    struct fixture *f = *state;
    struct heard holder = { 0 };
    struct heard waiter = { 0 };

    acquire(f, "a", 0, &holder, NULL);
    acquire(f, "b", 60000, &waiter, NULL);
    (void)belay_client_poll(f->client);
    acquire(f, "c", 60000, &waiter, NULL);
    assert_int_equal(waiter.times, 0); /* and the sanitizer finds nothing lost after tear_down */
}

static void a_call_abandoned_before_its_first_poll_leaves_the_others(void **state)
{
    struct fixture *f = *state;
    struct heard heard[3] = { 0 };
    struct belay_async *calls[3];

    acquire(f, "a", 60000, &heard[0], &calls[0]);
    acquire(f, "b", 60000, &heard[1], &calls[1]);
    acquire(f, "c", 60000, &heard[2], &calls[2]);
    belay_async_abandon(calls[2]);
    belay_async_abandon(calls[0]);
    (void)belay_client_poll(f->client);
    assert_int_equal(heard[1].code, BELAY_OK);
    assert_int_equal(heard[0].times + heard[2].times, 0);
    acquire(f, "d", 60000, &heard[0], &calls[0]); /* and the list of ready calls is intact */
    (void)belay_client_poll(f->client);
    assert_int_equal(belay_async_release(f->client, "k", "b", BELAY_OUTCOME_COMPLETED, hear, &heard[2], NULL),
                     BELAY_OK);
    (void)belay_client_poll(f->client);
    assert_int_equal(heard[0].code, BELAY_OK);
    assert_int_equal(heard[0].times, 1);
}

/* ---- a store with requests in threads, as on the network ---- */

static struct belay_store_ops slow_ops;
static const struct belay_store_ops *quick_ops;
static sem_t arrived; /* a commit waits at the gate */
static sem_t gate;    /* a commit passes it */
static sem_t news;    /* a thread has come back */
static atomic_int ahead_s;

/* What the program takes for the time: ahead of the system's by ahead_s. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = (int)syscall(SYS_clock_gettime, id, out);

    out->tv_sec += atomic_load(&ahead_s);
    return rc;
}

static enum belay_code slow_commit(struct belay_store *store, const struct belay_batch *batch,
                                   struct belay_commit *out, struct belay_error *err)
{
    assert_int_equal(sem_post(&arrived), 0);
    assert_int_equal(sem_wait(&gate), 0);
    return quick_ops->commit(store, batch, out, err);
}

static void tell_news(void *context)
{
    (void)context;
    assert_int_equal(sem_post(&news), 0);
}

static int set_up_threads(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct belay_store *store;

    f->data = memstore_data_new(NULL, NULL, NULL);
    memstore_set_capabilities(f->data, (struct belay_store_capabilities){
                                           .claim_ms = 1000, .poll_ms = 250, .ticket_ttl_ms = 3600000 });
    store = memstore_open(f->data);
    quick_ops = store->ops;
    slow_ops = *quick_ops;
    slow_ops.listen = NULL;
    slow_ops.wait = NULL;
    slow_ops.wake = NULL;
    slow_ops.commit = slow_commit;
    store->ops = &slow_ops;
    assert_int_equal(sem_init(&arrived, 0, 0), 0);
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    assert_int_equal(sem_init(&news, 0, 0), 0);
    assert_int_equal(belay_client_open_store(store, NULL, &f->client, NULL), BELAY_OK);
    assert_int_equal(belay_client_use_threads(f->client, 2, tell_news, NULL, NULL), BELAY_OK);
    *state = f;
    return 0;
}

/* Let a commit pass, and wait for its callback. */
static void one_commit(struct fixture *f)
{
    assert_int_equal(sem_post(&gate), 0);
    assert_int_equal(sem_wait(&news), 0);
    (void)belay_client_poll(f->client);
}

static void a_call_abandoned_during_its_request_gets_no_callback(void **state)
{
    struct fixture *f = *state;
    struct heard heard = { 0 };
    struct heard other = { 0 };
    struct belay_async *call;

    acquire(f, "a", 60000, &heard, &call);
    (void)belay_client_poll(f->client); /* the thread waits at the gate */
    belay_async_abandon(call);
    one_commit(f);
    assert_int_equal(heard.times, 0);
    acquire(f, "a", 0, &other, NULL); /* its request was done: a retry with the id has the lock */
    (void)belay_client_poll(f->client);
    one_commit(f);
    while (other.times == 0) {
        assert_int_equal(sem_wait(&news), 0);
        (void)belay_client_poll(f->client);
    }
    assert_int_equal(other.code, BELAY_OK);
}

/* The store may take long, and the client comes back at once. */
static void the_id_of_a_call_abandoned_during_its_request_is_free(void **state)
{
    struct fixture *f = *state;
    struct heard heard = { 0 };
    struct heard again = { 0 };
    struct belay_async *call;

    acquire(f, "a", 60000, &heard, &call);
    (void)belay_client_poll(f->client); /* the thread waits at the gate */
    belay_async_abandon(call);
    acquire(f, "a", 60000, &again, NULL);
    (void)belay_client_poll(f->client);
    assert_int_equal(sem_post(&gate), 0);
    assert_int_equal(sem_post(&gate), 0);
    while (again.times == 0) {
        assert_int_equal(sem_wait(&news), 0);
        (void)belay_client_poll(f->client);
    }
    assert_int_equal(again.code, BELAY_OK);
    assert_int_equal(heard.times, 0);
}

static bool stands_in_line(struct belay_async *call)
{
    struct belay_wait_info waiting;

    return belay_async_is_waiting(call, &waiting);
}

static void a_call_abandoned_in_the_queue_leaves_its_neighbour_there(void **state)
{
    struct fixture *f = *state;
    struct heard holder = { 0 };
    struct heard heard[2] = { 0 };
    struct belay_async *calls[2];

    for (int i = 0; i < 20; i++) {
        assert_int_equal(sem_post(&gate), 0);
    }
    acquire(f, "holder", 0, &holder, NULL);
    (void)belay_client_poll(f->client);
    while (holder.times == 0) {
        assert_int_equal(sem_wait(&news), 0);
        (void)belay_client_poll(f->client);
    }
    acquire(f, "a", 60000, &heard[0], &calls[0]);
    acquire(f, "b", 60000, &heard[1], &calls[1]);
    (void)belay_client_poll(f->client);
    while (!stands_in_line(calls[0]) || !stands_in_line(calls[1])) {
        assert_int_equal(sem_wait(&news), 0);
        (void)belay_client_poll(f->client);
    }
    belay_async_abandon(calls[0]);
    belay_async_cancel(calls[1]);
    (void)belay_client_poll(f->client);
    while (heard[1].times == 0) {
        assert_int_equal(sem_wait(&news), 0);
        (void)belay_client_poll(f->client);
    }
    assert_int_equal(heard[1].code, BELAY_CANCELLED);
    assert_int_equal(heard[0].times, 0);
}

/* The store hung for so long that the client of the request has gone. */
static void a_commit_that_waited_too_long_for_a_thread_is_not_sent(void **state)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct fixture *f = *state;
    struct heard heard[4] = { 0 };
    size_t n;

    options.lock_id = "held";
    assert_int_equal(belay_async_acquire(f->client, "mine", &options, hear, &heard[3], NULL, NULL), BELAY_OK);
    (void)belay_client_poll(f->client);
    one_commit(f);
    assert_int_equal(heard[3].code, BELAY_OK);
    assert_int_equal(sem_wait(&arrived), 0);
    acquire(f, "a", 0, &heard[0], NULL);
    acquire(f, "b", 0, &heard[1], NULL);
    options.lock_id = "late";
    assert_int_equal(belay_async_acquire(f->client, "other", &options, hear, &heard[2], NULL, NULL),
                     BELAY_OK);
    assert_int_equal(
        belay_async_release(f->client, "mine", "held", BELAY_OUTCOME_COMPLETED, hear, &heard[3], NULL),
        BELAY_OK);
    (void)belay_client_poll(f->client);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sem_wait(&arrived), 0); /* both threads are busy, and the others wait for one */
    }
    atomic_store(&ahead_s, 11);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(sem_post(&gate), 0);
    }
    while (heard[0].times + heard[1].times + heard[2].times + heard[3].times < 5) {
        assert_int_equal(sem_wait(&news), 0);
        (void)belay_client_poll(f->client);
    }
    assert_int_equal(heard[2].code, BELAY_UNREACHABLE);
    assert_int_equal(heard[3].code, BELAY_OK); /* what is given back is still given back */
    (void)memstore_records(f->data, &n);
    assert_int_equal(n, 2);
}

/* ---- a store that commits on the loop ---- */

static struct {
    struct belay_pending_commit *begun; /* the newest first */
    bool answers;                       /* take() answers what was begun */
    bool leaves;                        /* to finish() */
    int n_finished;
    int n_flushed;
} fake;

static int loop_fd(struct belay_store *store)
{
    (void)store;
    return 0;
}

static bool loop_begin(struct belay_store *store, struct belay_pending_commit *pending)
{
    (void)store;
    assert_null(pending->answer);
    pending->next = fake.begun;
    fake.begun = pending;
    return true;
}

static struct belay_pending_commit *loop_take(struct belay_store *store)
{
    struct belay_pending_commit *done = fake.answers ? fake.begun : NULL;

    for (struct belay_pending_commit *one = done; one != NULL; one = one->next) {
        one->is_unfinished = fake.leaves;
        if (fake.leaves) {
            one->answer = strdup("kept until it is finished");
        } else {
            one->code = quick_ops->commit(store, one->batch, one->out, one->err);
        }
    }
    fake.begun = fake.answers ? NULL : fake.begun;
    return done;
}

static int64_t loop_flush(struct belay_store *store)
{
    (void)store;
    fake.n_flushed++;
    return 4711;
}

static enum belay_code loop_finish(struct belay_store *store, struct belay_pending_commit *pending)
{
    assert_int_equal(sem_wait(&gate), 0);
    fake.n_finished++;
    return quick_ops->commit(store, pending->batch, pending->out, pending->err);
}

static void loop_stop(struct belay_store *store)
{
    (void)store;
    fake.begun = NULL;
}

static const struct belay_loop_ops loop_ops = { loop_fd,    loop_begin,  loop_take,
                                                loop_flush, loop_finish, loop_stop };

static int set_up_loop(void **state)
{
    struct fixture *f;

    memset(&fake, 0, sizeof fake);
    if (set_up_threads(state) != 0) {
        return 1;
    }
    f = *state;
    slow_ops.loop = &loop_ops;
    assert_int_equal(belay_client_poll_fd(f->client), -1); /* it wakes no waiter */
    slow_ops.listen = quick_ops->listen;
    slow_ops.wait = quick_ops->wait;
    slow_ops.wake = quick_ops->wake;
    assert_int_equal(belay_client_poll_fd(f->client), 0);
    return 0;
}

static void a_store_with_a_loop_needs_no_thread_for_a_commit(void **state)
{
    struct fixture *f = *state;
    struct heard heard = { 0 };

    acquire(f, "a", 0, &heard, NULL);
    assert_int_equal(belay_client_poll(f->client), 4711); /* when the store wants to be asked again */
    assert_non_null(fake.begun);
    assert_int_equal(heard.times, 0);
    fake.answers = true;
    (void)belay_client_poll(f->client);
    assert_int_equal(heard.times, 1);
    assert_int_equal(heard.code, BELAY_OK);
    assert_int_equal(fake.n_flushed, 2);
}

static void a_commit_that_the_loop_leaves_unfinished_is_finished_by_a_thread(void **state)
{
    struct fixture *f = *state;
    struct heard heard = { 0 };

    fake.answers = fake.leaves = true;
    acquire(f, "a", 0, &heard, NULL);
    (void)belay_client_poll(f->client);
    (void)belay_client_poll(f->client); /* the thread waits at the gate */
    assert_int_equal(heard.times, 0);
    one_commit(f);
    assert_int_equal(heard.times, 1);
    assert_int_equal(heard.code, BELAY_OK);
    assert_int_equal(fake.n_finished, 1);
}

static void a_call_abandoned_while_the_loop_commits_gets_no_callback(void **state)
{
    struct fixture *f = *state;
    struct heard heard = { 0 };
    struct heard other = { 0 };
    struct belay_async *call;

    acquire(f, "a", 60000, &heard, &call);
    (void)belay_client_poll(f->client);
    belay_async_abandon(call);
    assert_non_null(fake.begun); /* what the store uses is still there */
    fake.answers = true;
    (void)belay_client_poll(f->client);
    assert_int_equal(heard.times, 0);
    acquire(f, "b", 0, &other, NULL);
    (void)belay_client_poll(f->client);
    while (other.times == 0) {
        if (fake.begun == NULL) {
            assert_int_equal(sem_wait(&news), 0); /* a thread reads */
        }
        (void)belay_client_poll(f->client);
    }
    assert_int_equal(other.code, BELAY_HELD); /* it was done */
}

static void a_client_closes_while_the_loop_commits(void **state)
{
    struct fixture *f = *state;
    struct heard heard = { 0 };

    acquire(f, "a", 0, &heard, NULL);
    (void)belay_client_poll(f->client);
    assert_non_null(fake.begun); /* the tear-down must not touch it after stop() */
}

int main(void)
{
#define TEST_LOOP(name) cmocka_unit_test_setup_teardown(name, set_up_loop, tear_down)
#define TEST_THREADS(name) cmocka_unit_test_setup_teardown(name, set_up_threads, tear_down)
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nothing_happens_outside_of_a_poll),
        TEST(waiters_get_the_lock_in_order_in_the_poll_of_the_release),
        TEST(the_next_waiter_sees_a_new_lease_in_the_next_poll),
        TEST(the_next_waiter_of_a_remote_store_is_not_woken_for_a_long_lease),
        TEST(the_next_waiter_of_a_remote_store_is_woken_for_a_short_lease),
        TEST(a_cancelled_call_leaves_the_queue),
        TEST(a_second_call_with_an_id_in_use_is_refused),
        TEST(a_client_that_is_not_the_holder_changes_nothing),
        TEST(calls_in_progress_are_abandoned_when_the_client_closes),
        TEST(a_call_abandoned_before_its_first_poll_leaves_the_others),
        TEST_THREADS(a_call_abandoned_during_its_request_gets_no_callback),
        TEST_THREADS(the_id_of_a_call_abandoned_during_its_request_is_free),
        TEST_THREADS(a_call_abandoned_in_the_queue_leaves_its_neighbour_there),
        TEST_THREADS(a_commit_that_waited_too_long_for_a_thread_is_not_sent),
        TEST_LOOP(a_store_with_a_loop_needs_no_thread_for_a_commit),
        TEST_LOOP(a_commit_that_the_loop_leaves_unfinished_is_finished_by_a_thread),
        TEST_LOOP(a_call_abandoned_while_the_loop_commits_gets_no_callback),
        TEST_LOOP(a_client_closes_while_the_loop_commits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
