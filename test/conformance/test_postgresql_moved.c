/* A waiter that goes on to wait through another process is woken there (functions.sql, queue()). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "conformance/postgresql_kit.h"

enum {
    TTL_MS = 600000,
    PATIENCE_MS = 20000,
    ROOM = 8 /* tickets in the lock's row; the others have rows of their own */
};

static struct belay_store *a, *b; /* as two processes have them */

static bool is_woken(struct belay_store *store, const char *lock_id, uint32_t listened)
{
    store->ops->wait(store, lock_id, listened, PATIENCE_MS, NULL);
    return store->ops->listen(store, lock_id) != listened;
}

/* Once notifications reach it: to begin to listen wakes every waiter. */
static uint32_t listen_well(struct belay_store *store, const char *lock_id)
{
    uint32_t listened = store->ops->listen(store, lock_id);

    while (!atomic_load(&pg_of(store)->wake.is_listening)) {
        (void)is_woken(store, lock_id, listened);
        listened = store->ops->listen(store, lock_id);
    }
    while (__atomic_load_n(&pg_of(store)->wake.words[PG_WORDS - 1], __ATOMIC_SEQ_CST) == 0) {
        (void)usleep(1000); /* it wakes them one after the other: until the last */
    }
    listened = store->ops->listen(store, lock_id);
    a->ops->wake(a, lock_id);
    assert_true(is_woken(store, lock_id, listened));
    return store->ops->listen(store, lock_id);
}

static void drop(const char *lock_id)
{
    pg_kit_commit(a, &(struct belay_write){ .key = "k", .drop_tickets = &lock_id, .n_drop_tickets = 1 });
}

static void release(void)
{
    struct belay_record values = { .outcome = BELAY_OUTCOME_COMPLETED };
    struct belay_write write = { .key = "k",
                                 .condition = BELAY_IF_HELD_BY,
                                 .lock_id = "holder",
                                 .set = BELAY_SET_RELEASED,
                                 .values = &values };
    struct belay_event event = { .type = "lock.released", .key = "k", .lock_id = "holder" };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .events = &event, .n_events = 1 };
    struct belay_commit done = { 0 };

    assert_int_equal(a->ops->commit(a, &batch, &done, NULL), BELAY_OK);
    assert_true(done.woke_first);
    belay_commit_release(&done);
}

/* L4: the place that it took through `a` is renewed through `b`, and `a` hands the lock on. */
static void a_waiter_that_moved_is_woken_where_it_waits(int n_before)
{
    char id[24];
    uint32_t listened;

    assert_true(pg_kit_run("DELETE FROM moved.locks; DELETE FROM moved.waiting"));
    pg_kit_take(a, "k", "holder", TTL_MS);
    for (int i = 0; i < n_before; i++) {
        (void)snprintf(id, sizeof id, "before-%d", i);
        pg_kit_queue(a, "k", id, TTL_MS);
    }
    pg_kit_queue(a, "k", "mover", TTL_MS);
    listened = listen_well(b, "mover");
    pg_kit_queue(b, "k", "mover", TTL_MS);
    for (int i = 0; i < n_before; i++) {
        (void)snprintf(id, sizeof id, "before-%d", i);
        drop(id);
    }
    assert_int_equal(b->ops->listen(b, "mover"), listened);
    release();
    assert_true(is_woken(b, "mover", listened));
}

static void a_waiter_whose_ticket_is_in_the_locks_row_may_move(void **state)
{
    (void)state;
    a_waiter_that_moved_is_woken_where_it_waits(0);
}

static void a_waiter_far_back_may_move(void **state)
{
    (void)state;
    a_waiter_that_moved_is_woken_where_it_waits(ROOM + 1);
}

static void put_shared(struct belay_store *store, bool is_again)
{
    struct belay_put_ticket put = { .lock_id = "mover",
                                    .key = "k",
                                    .owner = "o",
                                    .owner_name = "n",
                                    .ttl_ms = TTL_MS,
                                    .mode = BELAY_SHARED,
                                    .is_again = is_again };

    pg_kit_commit(store, &(struct belay_write){ .key = "k", .put_ticket = &put });
}

static enum belay_code leave(struct belay_store *store)
{
    const char *id = "mover";
    struct belay_write write = {
        .key = "k", .drop_tickets = &id, .n_drop_tickets = 1, .unless_elsewhere = true
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit done = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &done, NULL);

    belay_commit_release(&done);
    return code;
}

/* L4: the waiters of a lock of any kind. It waits through `b`; `a` hung meanwhile, and goes on. */
static void a_shared_waiter_that_moved_is_left_alone(void **state)
{
    (void)state;
    assert_true(pg_kit_run("DELETE FROM moved.locks; DELETE FROM moved.waiting"));
    pg_kit_take(a, "k", "holder", TTL_MS);
    put_shared(a, false);
    put_shared(a, true);
    put_shared(b, false);
    put_shared(a, true);
    assert_int_equal(leave(a), BELAY_REFUSED);
    assert_int_equal(leave(b), BELAY_OK);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM moved.locks WHERE tickets IS NOT NULL"), 0);
    put_shared(b, false);
    assert_true(pg_kit_run("UPDATE moved.locks SET tickets = jsonb_set(tickets, '{0,e}', '5')"));
    put_shared(a, true); /* it had lost its place there */
    assert_int_equal(leave(b), BELAY_REFUSED);
    assert_int_equal(leave(a), BELAY_OK);
}

/* Those behind that have died meanwhile do not come into the lock's row, where each would cost a release a call. */
static void the_dead_of_a_long_queue_are_gone_when_it_moves_up(void **state)
{
    enum { DEAD = 2, WAITERS = ROOM + DEAD + 2 };
    char id[24];

    (void)state;
    assert_true(pg_kit_run("DELETE FROM moved.locks; DELETE FROM moved.waiting"));
    pg_kit_take(a, "k", "holder", TTL_MS);
    for (int i = 0; i < WAITERS; i++) {
        (void)snprintf(id, sizeof id, "waiter-%02d", i);
        pg_kit_queue(a, "k", id, TTL_MS);
    }
    assert_int_equal(pg_kit_number("SELECT behind FROM moved.locks"), WAITERS - ROOM);
    assert_true(pg_kit_run("UPDATE moved.waiting SET expires_ms = 1 WHERE id < 'waiter-10'"));
    for (int i = 0; i < ROOM; i++) {
        (void)snprintf(id, sizeof id, "waiter-%02d", i);
        drop(id);
    }
    assert_int_equal(pg_kit_number("SELECT jsonb_array_length(tickets) FROM moved.locks WHERE behind = 0 AND "
                                   "tickets->0->>'i' = 'waiter-10' AND tickets->1->>'i' = 'waiter-11'"),
                     WAITERS - ROOM - DEAD);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM moved.waiting"), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waiter_whose_ticket_is_in_the_locks_row_may_move),
        cmocka_unit_test(a_waiter_far_back_may_move),
        cmocka_unit_test(a_shared_waiter_that_moved_is_left_alone),
        cmocka_unit_test(the_dead_of_a_long_queue_are_gone_when_it_moves_up),
    };
    int failed = 1;

    if (pg_kit_start("moved")) {
        a = pg_kit_open(kit.url, NULL);
        b = pg_kit_open(kit.url, NULL);
        failed = cmocka_run_group_tests_name("postgresql, moved", tests, NULL, NULL);
        a->ops->close(a);
        b->ops->close(b);
    }
    pg_kit_stop();
    return failed;
}
