/* Work off the loop: what runs where, in which order, and what becomes of it when it is cancelled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>

#include "server/core/work.h"

enum { MANY = 70, PATIENCE_MS = 20000 };

struct fixture {
    struct loop *loop;
    struct workers *workers;
    pthread_t thread; /* the loop's */
    char order[MANY + 1];
    size_t n_done;
    atomic_bool may_end;
    atomic_int n_running;
};

struct item {
    struct work work; /* first */
    struct fixture *f;
    char name;
    bool was_on_loop;
    bool is_slow; /* until f->may_end, or until it is cancelled */
    atomic_bool is_asked_to_end;
    int n_done;
    bool was_cancelled;
};

static void do_item(struct work *work)
{
    struct item *item = (struct item *)(void *)work;

    item->was_on_loop = pthread_equal(pthread_self(), item->f->thread) != 0;
    atomic_fetch_add(&item->f->n_running, 1);
    while (item->is_slow && !atomic_load(&item->f->may_end) && !atomic_load(&item->is_asked_to_end)) {
        usleep(100);
    }
}

static void on_item(struct work *work)
{
    struct item *item = (struct item *)(void *)work;

    assert_true(pthread_equal(pthread_self(), item->f->thread));
    assert_false(work_is_pending(work));
    item->n_done++;
    item->was_cancelled = work->is_cancelled;
    item->f->order[item->f->n_done++] = item->name;
}

static void cancel_item(struct work *work)
{
    atomic_store(&((struct item *)(void *)work)->is_asked_to_end, true);
}

static struct item item_of(struct fixture *f, char name, bool is_slow)
{
    return (struct item){
        .work = { .work = do_item, .done = on_item }, .f = f, .name = name, .is_slow = is_slow
    };
}

static void open_fixture(struct fixture *f, bool is_store_local)
{
    *f = (struct fixture){ .loop = loop_new(), .thread = pthread_self() };
    assert_non_null(f->loop);
    f->workers = workers_new(f->loop, is_store_local);
    assert_non_null(f->workers);
}

static void close_fixture(struct fixture *f)
{
    for (enum work_class class = 0; class < WORK_CLASSES; class ++) {
        work_close(f->workers, class);
    }
    workers_free(f->workers);
    loop_free(f->loop);
}

static void turn_until_done(struct fixture *f, size_t n)
{
    while (f->n_done < n) {
        assert_true(loop_turn(f->loop, PATIENCE_MS));
    }
    assert_int_equal(f->n_done, n);
}

static void await_running(struct fixture *f, int n)
{
    for (int i = 0; i < PATIENCE_MS && atomic_load(&f->n_running) < n; i++) {
        usleep(1000);
    }
    assert_int_equal(atomic_load(&f->n_running), n);
}

static void work_runs_in_a_worker_and_ends_on_the_loop(void **state)
{
    struct fixture f;
    struct item item;

    (void)state;
    open_fixture(&f, true);
    item = item_of(&f, 'a', false);
    assert_true(work_queue(f.workers, WORK_SCAN, &item.work));
    assert_true(work_is_pending(&item.work));
    turn_until_done(&f, 1);
    assert_false(item.was_on_loop);
    assert_false(item.was_cancelled);
    assert_true(work_queue(f.workers, WORK_SCAN, &item.work)); /* the same once more */
    turn_until_done(&f, 2);
    close_fixture(&f);
}

static void a_local_store_is_read_at_once_on_the_loop(void **state)
{
    struct fixture f;
    struct item item;

    (void)state;
    open_fixture(&f, true);
    item = item_of(&f, 'a', false);
    assert_true(work_queue(f.workers, WORK_READ, &item.work));
    assert_int_equal(item.n_done, 1);
    assert_true(item.was_on_loop);
    close_fixture(&f);
    open_fixture(&f, false);
    item = item_of(&f, 'a', false);
    assert_true(work_queue(f.workers, WORK_READ, &item.work));
    turn_until_done(&f, 1);
    assert_false(item.was_on_loop);
    close_fixture(&f);
}

static void slow_work_of_one_class_does_not_delay_another(void **state)
{
    struct fixture f;
    struct item slow[9];
    struct item quick;

    (void)state;
    open_fixture(&f, true);
    for (size_t i = 0; i < 9; i++) {
        slow[i] = item_of(&f, 's', true);
        assert_true(work_queue(f.workers, WORK_WEBHOOK, &slow[i].work));
    }
    await_running(&f, 8); /* the limit of the class */
    quick = item_of(&f, 'q', false);
    assert_true(work_queue(f.workers, WORK_JOB, &quick.work));
    turn_until_done(&f, 1);
    assert_string_equal(f.order, "q");
    atomic_store(&f.may_end, true);
    turn_until_done(&f, 10);
    close_fixture(&f);
}

static void work_of_a_class_begins_in_the_order_in_which_it_was_queued(void **state)
{
    struct fixture f;
    struct item slow[2];
    struct item items[3];

    (void)state;
    open_fixture(&f, true);
    for (size_t i = 0; i < 2; i++) {
        slow[i] = item_of(&f, 's', true);
        assert_true(work_queue(f.workers, WORK_SCAN, &slow[i].work));
    }
    for (size_t i = 0; i < 3; i++) {
        items[i] = item_of(&f, (char)('a' + i), false);
        assert_true(work_queue(f.workers, WORK_SCAN, &items[i].work));
    }
    slow[0].work.cancel = cancel_item;
    work_cancel(&slow[0].work); /* one thread is left for the others: one after the other */
    turn_until_done(&f, 4);
    assert_string_equal(f.order, "sabc");
    atomic_store(&f.may_end, true);
    turn_until_done(&f, 5);
    close_fixture(&f);
}

static void a_class_refuses_what_is_beyond_its_limit(void **state)
{
    struct fixture f;
    struct item items[17];

    (void)state;
    open_fixture(&f, true);
    for (size_t i = 0; i < 17; i++) {
        items[i] = item_of(&f, 'a', true);
        assert_int_equal(work_queue(f.workers, WORK_LONG_JOB, &items[i].work), i < 16);
    }
    assert_ptr_equal(work_first(f.workers, WORK_LONG_JOB), &items[0].work);
    atomic_store(&f.may_end, true);
    turn_until_done(&f, 16);
    assert_int_equal(items[16].n_done, 0);
    close_fixture(&f);
}

static void cancelled_work_is_not_begun_and_is_done_once(void **state)
{
    struct fixture f;
    struct item slow[2];
    struct item items[3];

    (void)state;
    open_fixture(&f, true);
    for (size_t i = 0; i < 2; i++) {
        slow[i] = item_of(&f, 's', true);
        assert_true(work_queue(f.workers, WORK_SCAN, &slow[i].work));
    }
    for (size_t i = 0; i < 3; i++) {
        items[i] = item_of(&f, (char)('a' + i), false);
        assert_true(work_queue(f.workers, WORK_SCAN, &items[i].work));
    }
    work_cancel(&items[1].work);
    work_cancel(&items[1].work);
    assert_int_equal(items[1].n_done, 0); /* not in the middle of what its owner does */
    turn_until_done(&f, 1);
    assert_true(items[1].was_cancelled);
    work_cancel(&slow[0].work); /* it runs, and cannot be asked to end */
    atomic_store(&f.may_end, true);
    turn_until_done(&f, 5);
    assert_false(slow[0].was_cancelled);
    assert_int_equal(atomic_load(&f.n_running), 4);
    assert_int_equal(items[1].n_done, 1);
    close_fixture(&f);
}

static void a_closed_class_has_ended_its_work_and_takes_no_more(void **state)
{
    struct fixture f;
    struct item items[4];

    (void)state;
    open_fixture(&f, true);
    for (size_t i = 0; i < 4; i++) {
        items[i] = item_of(&f, (char)('a' + i), true);
        items[i].work.cancel = cancel_item;
        assert_true(work_queue(f.workers, WORK_SCAN, &items[i].work));
    }
    await_running(&f, 2);
    work_close(f.workers, WORK_SCAN);
    assert_int_equal(f.n_done, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(items[i].n_done, 1);
        assert_int_equal(items[i].was_cancelled, i >= 2);
    }
    assert_false(work_queue(f.workers, WORK_SCAN, &items[0].work));
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_runs_in_a_worker_and_ends_on_the_loop),
        cmocka_unit_test(a_local_store_is_read_at_once_on_the_loop),
        cmocka_unit_test(slow_work_of_one_class_does_not_delay_another),
        cmocka_unit_test(work_of_a_class_begins_in_the_order_in_which_it_was_queued),
        cmocka_unit_test(a_class_refuses_what_is_beyond_its_limit),
        cmocka_unit_test(cancelled_work_is_not_begun_and_is_done_once),
        cmocka_unit_test(a_closed_class_has_ended_its_work_and_takes_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
