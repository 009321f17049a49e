/* Which leases a PostgreSQL server that was started again, or took over, gives their whole time again (L1, L7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "conformance/postgresql_kit.h"

enum {
    SECOND = 1000,
    MINUTE = 60 * SECOND,
    HOUR = 60 * MINUTE,
    DAY = 24 * HOUR,
    SLACK = 20 * SECOND /* the machine may be busy */
};

static void run(const char *sql)
{
    assert_true(pg_kit_run(sql));
}

/* A process that knows nothing of the clock before: else it would report that it jumped. */
static struct belay_store *open_store(void)
{
    struct belay_store *store;

    run("DELETE FROM restart.clocks");
    store = pg_kit_open(kit.url, NULL);
    assert_non_null(store);
    return store;
}

static int begin(void **state)
{
    (void)state;
    run("DELETE FROM restart.locks; DELETE FROM restart.waiting; DELETE FROM restart.events");
    assert_true(pg_kit_set_clock("restart", 0));
    return 0;
}

static void add_event(struct belay_store *store)
{
    struct belay_event event = { .type = "lock.refused", .key = "e", .lock_id = "i", .locked_by = "me" };
    struct belay_batch batch = { .events = &event, .n_events = 1 };
    struct belay_commit out = { 0 };

    assert_int_equal(store->ops->commit(store, &batch, &out, NULL), BELAY_OK);
    belay_commit_release(&out);
}

/* The clock shows this much more from now on, and an event has a reading of it. */
static void pass(int64_t ahead_ms)
{
    struct belay_store *store;

    assert_true(pg_kit_set_clock("restart", ahead_ms));
    store = open_store();
    add_event(store);
    store->ops->close(store);
}

/* A new server, with a clock of its own; its first commit is refused, so it has no event. */
static void start_anew(int64_t ahead_ms)
{
    struct belay_store *store;
    struct belay_record values = { .lock_id = (char *)"x" };
    struct belay_write write = { .key = "none",
                                 .condition = BELAY_IF_HELD_BY,
                                 .lock_id = "x",
                                 .set = BELAY_SET_RELEASED,
                                 .values = &values };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit out = { 0 };

    run("UPDATE restart.meta SET server_start = server_start - interval '1 s'");
    assert_true(pg_kit_set_clock("restart", ahead_ms));
    store = open_store();
    assert_int_equal(store->ops->commit(store, &batch, &out, NULL), BELAY_REFUSED);
    belay_commit_release(&out);
    store->ops->close(store);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM restart.meta "
                                   "WHERE server_start = pg_postmaster_start_time()"),
                     1);
}

static void take(const char *key, int64_t ttl_ms)
{
    struct belay_store *store = open_store();

    pg_kit_take(store, key, "a", ttl_ms);
    store->ops->close(store);
}

/* What is left of the lease. */
static int64_t left_ms(const char *key)
{
    char sql[128];

    (void)snprintf(sql, sizeof sql,
                   "SELECT expires_ms - restart.clock_ms() FROM restart.locks WHERE key = '%s'", key);
    return pg_kit_number(sql);
}

static void assert_whole(int64_t left, int64_t ttl_ms)
{
    assert_in_range(left, ttl_ms - SLACK, ttl_ms);
}

static void assert_ended(int64_t left)
{
    assert_true(left <= -MINUTE);
}

/* At once, as from any holder whose lease has ended. */
static void assert_can_be_taken_over(const char *key)
{
    struct belay_store *store = open_store();
    struct belay_record found = { 0 };
    struct belay_record values = {
        .lock_id = (char *)"b", .owner = (char *)"o", .owner_name = (char *)"n", .ttl_ms = HOUR
    };
    int64_t now_ms = 0;

    assert_int_equal(store->ops->get(store, &key, 1, &found, &now_ms, NULL), BELAY_OK);
    assert_true(found.held);
    assert_true(found.expires_ms + pg_of(store)->params.clock_step_ms < now_ms);
    assert_int_equal(found.expires_ms - found.last_heartbeat_ms, found.ttl_ms);
    pg_kit_commit(store, &(struct belay_write){ .key = key,
                                                .condition = BELAY_IF_UNCHANGED,
                                                .revision = found.revision,
                                                .set = BELAY_SET_HOLDER,
                                                .values = &values });
    belay_record_release(&found);
    store->ops->close(store);
    assert_whole(left_ms(key), HOUR);
}

static void a_lease_that_had_ended_stays_ended_by_any_clock(void **state)
{
    static const int64_t clocks[] = { -DAY, 0, 5 * MINUTE, DAY };

    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++) {
        (void)begin(state);
        take("dead", 30 * SECOND);
        pass(5 * MINUTE);
        start_anew(clocks[i]);
        assert_ended(left_ms("dead"));
        assert_can_be_taken_over("dead");
    }
}

static void a_lease_that_may_not_have_ended_has_its_whole_time_again(void **state)
{
    static const int64_t clocks[] = { -DAY, 0, 5 * MINUTE, DAY };

    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++) {
        (void)begin(state);
        take("valid", 10 * MINUTE);
        take("just-ended", 4 * MINUTE + 50 * SECOND); /* less than a minute before the event */
        pass(5 * MINUTE);
        start_anew(clocks[i]);
        assert_whole(left_ms("valid"), 10 * MINUTE);
        assert_whole(left_ms("just-ended"), 4 * MINUTE + 50 * SECOND);
    }
}

/* A ttl is longer than twice max_clock_step, by which a takeover waits: a long lease needs a longer margin. */
static void a_long_lease_has_half_of_its_time_as_the_margin(void **state)
{
    (void)state;
    take("long", 2 * HOUR);
    take("shorter", HOUR);
    pass(2 * HOUR + 50 * MINUTE);
    start_anew(0);
    assert_whole(left_ms("long"), 2 * HOUR);
    assert_ended(left_ms("shorter"));
}

static void add_holder(const char *lock_id, int64_t ttl_ms)
{
    struct belay_record values = { .lock_id = (char *)lock_id,
                                   .owner = (char *)"o",
                                   .owner_name = (char *)"n",
                                   .ttl_ms = ttl_ms,
                                   .mode = BELAY_SHARED };
    struct belay_store *store = open_store();

    pg_kit_commit(store,
                  &(struct belay_write){
                      .key = "shared", .set = BELAY_SET_HOLDER, .values = &values, .co_holder = true });
    store->ops->close(store);
}

/* The record repeats the one whose lease ends last, which is another one than before. */
static void each_of_several_holders_counts_by_itself(void **state)
{
    struct belay_store *store;
    struct belay_record found = { 0 };
    const char *key = "shared";
    int64_t now_ms = 0;

    (void)state;
    add_holder("long", 100 * MINUTE);
    pass(130 * MINUTE);
    add_holder("short", MINUTE);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM restart.locks WHERE lock_id = 'short'"), 1);
    pass(135 * MINUTE);
    start_anew(-DAY);
    store = open_store();
    assert_int_equal(store->ops->get(store, &key, 1, &found, &now_ms, NULL), BELAY_OK);
    assert_int_equal(found.n_holders, 2);
    assert_whole(found.holders[0].expires_ms - now_ms, 100 * MINUTE);
    assert_in_range(found.holders[0].last_heartbeat_ms, now_ms - SLACK, now_ms);
    assert_ended(found.holders[1].expires_ms - now_ms);
    assert_int_equal(found.holders[1].expires_ms - found.holders[1].last_heartbeat_ms, MINUTE);
    assert_string_equal(found.lock_id, "long");
    assert_int_equal(found.expires_ms, found.holders[0].expires_ms);
    belay_record_release(&found);
    store->ops->close(store);
}

/* Those in the row of the lock, and those behind. */
static void tickets_that_had_ended_stay_ended(void **state)
{
    enum { WAITERS = 12 };
    struct belay_store *store = open_store();
    struct belay_record found = { 0 };
    const char *key = "k";
    int64_t now_ms = 0;

    (void)state;
    pg_kit_take(store, key, "a", HOUR);
    for (int i = 0; i < WAITERS; i++) {
        char id[16];

        (void)snprintf(id, sizeof id, "w-%02d", i);
        pg_kit_queue(store, key, id, i % 2 == 0 ? 30 * SECOND : 10 * MINUTE);
    }
    store->ops->close(store);
    pass(5 * MINUTE);
    start_anew(-DAY);
    store = open_store();
    assert_int_equal(store->ops->get(store, &key, 1, &found, &now_ms, NULL), BELAY_OK);
    assert_int_equal(found.n_tickets, WAITERS);
    for (int i = 0; i < WAITERS; i++) {
        int64_t left = found.tickets[i].expires_ms - now_ms;

        if (i % 2 == 0) {
            assert_ended(left);
        } else {
            assert_whole(left, 10 * MINUTE);
        }
    }
    belay_record_release(&found);
    store->ops->close(store);
}

static void intents_that_had_ended_stay_ended(void **state)
{
    struct belay_store *store = open_store();
    struct belay_put_intent intents[] = { { .lock_id = "dead", .key = "a/b", .ttl_ms = 30 * SECOND },
                                          { .lock_id = "valid", .key = "a/c", .ttl_ms = 10 * MINUTE } };
    struct belay_record found = { 0 };
    const char *key = "a";
    int64_t now_ms = 0;

    (void)state;
    pg_kit_commit(store, &(struct belay_write){ .key = key, .put_intents = intents, .n_put_intents = 2 });
    store->ops->close(store);
    pass(5 * MINUTE);
    start_anew(-DAY);
    store = open_store();
    assert_int_equal(store->ops->get(store, &key, 1, &found, &now_ms, NULL), BELAY_OK);
    assert_int_equal(found.n_intents, 2);
    assert_ended(found.intents[0].expires_ms - now_ms);
    assert_whole(found.intents[1].expires_ms - now_ms, 10 * MINUTE);
    belay_record_release(&found);
    store->ops->close(store);
}

/* The event has a time of the clock of the server before the last: it tells nothing of a lease by another clock. */
static void a_reading_of_the_clock_before_the_last_restart_does_not_count(void **state)
{
    (void)state;
    take("k", 10 * MINUTE);
    pass(5 * MINUTE);
    start_anew(-DAY);
    assert_whole(left_ms("k"), 10 * MINUTE);
    start_anew(0);
    assert_whole(left_ms("k"), 10 * MINUTE);
}

static void a_reading_before_a_jump_that_was_reported_does_not_count(void **state)
{
    (void)state;
    pass(5 * HOUR);
    assert_true(pg_kit_set_clock("restart", 0));
    take("k", 10 * MINUTE);
    run("SELECT restart.clock_jumped(restart.clock_ms())");
    start_anew(0);
    assert_whole(left_ms("k"), 10 * MINUTE);
}

/* It is the last event that counts, not the latest time. */
static void a_clock_that_was_set_back_ends_no_lease(void **state)
{
    (void)state;
    pass(5 * HOUR);
    assert_true(pg_kit_set_clock("restart", 0));
    take("k", 10 * MINUTE);
    pass(0);
    start_anew(0);
    assert_whole(left_ms("k"), 10 * MINUTE);
}

static void without_an_event_every_lease_has_its_whole_time_again(void **state)
{
    (void)state;
    take("k", 30 * SECOND);
    start_anew(DAY);
    assert_whole(left_ms("k"), 30 * SECOND);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_lease_that_had_ended_stays_ended_by_any_clock, begin),
        cmocka_unit_test_setup(a_lease_that_may_not_have_ended_has_its_whole_time_again, begin),
        cmocka_unit_test_setup(a_long_lease_has_half_of_its_time_as_the_margin, begin),
        cmocka_unit_test_setup(each_of_several_holders_counts_by_itself, begin),
        cmocka_unit_test_setup(tickets_that_had_ended_stay_ended, begin),
        cmocka_unit_test_setup(intents_that_had_ended_stay_ended, begin),
        cmocka_unit_test_setup(a_reading_of_the_clock_before_the_last_restart_does_not_count, begin),
        cmocka_unit_test_setup(a_reading_before_a_jump_that_was_reported_does_not_count, begin),
        cmocka_unit_test_setup(a_clock_that_was_set_back_ends_no_lease, begin),
        cmocka_unit_test_setup(without_an_event_every_lease_has_its_whole_time_again, begin),
    };
    int failed =
        pg_kit_start("restart") ? cmocka_run_group_tests_name("postgresql, restart", tests, NULL, NULL) : 1;

    pg_kit_stop();
    return failed;
}
