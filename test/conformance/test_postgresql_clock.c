/* What processes on one machine keep for each other of the clock of a PostgreSQL server (L1, L7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "conformance/postgresql_kit.h"

static int warnings;

static void run(const char *sql)
{
    assert_true(pg_kit_run(sql));
}

static void on_warning(void *context, const char *text)
{
    (void)context;
    warnings += strstr(text, "jumped forward") != NULL ? 1 : 0;
}

static struct belay_store *open_store(void)
{
    static const struct postgresql_options options = { .on_warning = on_warning, .timeout_factor = 6 };
    struct belay_store *store = pg_kit_open(kit.url, &options);

    assert_non_null(store);
    return store;
}

static void commit(struct belay_store *store)
{
    struct belay_event event = { .type = "lock.refused", .key = "k", .lock_id = "i", .locked_by = "me" };
    struct belay_batch batch = { .events = &event, .n_events = 1 };
    struct belay_commit out = { 0 };

    assert_int_equal(store->ops->commit(store, &batch, &out, NULL), BELAY_OK);
    belay_commit_release(&out);
}

static void set_clock(int64_t ahead_ms)
{
    assert_true(pg_kit_set_clock("clock", ahead_ms));
}

static enum belay_code look(struct belay_store *store, const char *key, int64_t *out_left_ms,
                            uint64_t *out_revision)
{
    struct belay_record record = { 0 };
    int64_t now_ms = 0;
    enum belay_code code = store->ops->get(store, &key, 1, &record, &now_ms, NULL);

    *out_left_ms = record.expires_ms - now_ms;
    *out_revision = record.revision;
    belay_record_release(&record);
    return code;
}

/* What a process that begins now finds, after the machine has known the clock for `age_ms` and it jumped since. */
static int warnings_after(int64_t age_ms, int64_t step_ms)
{
    struct belay_store *store = open_store();
    char sql[160];

    run("DELETE FROM clock.clocks");
    commit(store);
    store->ops->close(store);
    (void)snprintf(sql, sizeof sql,
                   "UPDATE clock.clocks SET boot_ms = boot_ms - %lld, server_ms = server_ms - %lld",
                   (long long)age_ms, (long long)(age_ms + step_ms));
    run(sql);
    warnings = 0;
    store = open_store();
    commit(store);
    store->ops->close(store);
    return warnings;
}

static void a_process_that_lives_long_keeps_what_it_knows_up_to_date(void **state)
{
    struct belay_store *store = open_store();
    int64_t first;

    (void)state;
    run("DELETE FROM clock.clocks");
    commit(store);
    first = pg_kit_number("SELECT boot_ms FROM clock.clocks");
    assert_true(first > 0);
    commit(store);
    assert_int_equal(pg_kit_number("SELECT boot_ms FROM clock.clocks"), first);
    pg_of(store)->kept_boot_ms -= 61000; /* a minute later */
    commit(store);
    assert_true(pg_kit_number("SELECT boot_ms FROM clock.clocks") > first);
    store->ops->close(store);
}

static void a_jump_is_told_from_two_clocks_that_drift(void **state)
{
    enum { SECOND = 1000, HOUR = 3600 * SECOND };

    (void)state;
    assert_int_equal(warnings_after(2 * SECOND, 0), 0);
    assert_int_equal(warnings_after(2 * SECOND, 60 * SECOND), 1);
    assert_int_equal(warnings_after(2 * SECOND, -60 * SECOND), 0);
    assert_int_equal(warnings_after(10 * HOUR, 6 * SECOND), 0);
    assert_int_equal(warnings_after(10 * HOUR, 60 * SECOND), 1);
}

/* L1: each of these steps is within the margin, and the clock of a server that is slewed gains as much. */
static void steps_that_are_small_add_up(void **state)
{
    enum { STEP = 1500, STEPS = 30, TTL = 40000 };
    struct belay_store *store = open_store();
    int64_t began_boot_ms;
    int64_t left_ms = 0;
    uint64_t revision = 0;

    (void)state;
    run("DELETE FROM clock.clocks");
    began_boot_ms = clock_boot_ms();
    pg_kit_take(store, "small", "a", TTL);
    warnings = 0;
    for (int i = 1; i <= STEPS; i++) {
        set_clock((int64_t)i * STEP);
        if (i % 7 == 0) { /* what is known passes from one process to the next */
            store->ops->close(store);
            store = open_store();
        }
        assert_int_equal(look(store, "small", &left_ms, &revision), BELAY_OK);
        /* What two margins leave of it, and what has passed: it has not begun again for each step. */
        assert_true(left_ms >= TTL - 4000 - (clock_boot_ms() - began_boot_ms));
    }
    assert_in_range(warnings, STEPS / 4, STEPS / 2);
    store->ops->close(store);
    set_clock(0);
}

static void clocks_that_drift_apart_have_not_jumped(void **state)
{
    enum { MINUTE = 60000, DRIFT = 10 /* a minute */ };
    struct belay_store *store = open_store();
    struct pg_store *pg = pg_of(store);
    int64_t boot_ms;

    (void)state;
    commit(store);
    warnings = 0;
    boot_ms = clock_boot_ms();
    pg->clock_most_ms = pg->clock_offset_ms - 600 * (int64_t)DRIFT;
    pg->clock_most_boot_ms = boot_ms - 600 * (int64_t)MINUTE;
    pg_saw_clock(pg, boot_ms + pg->clock_offset_ms, boot_ms);
    assert_int_equal(warnings, 0);
    store->ops->close(store);
}

/* Threads take in their answers in any order: this one was made before the jump that another one showed. */
static void an_answer_that_is_late_brings_no_old_time_back(void **state)
{
    struct belay_store *store = open_store();
    struct pg_store *pg = pg_of(store);
    int64_t asked_boot_ms, old_ms;

    (void)state;
    commit(store);
    warnings = 0;
    asked_boot_ms = clock_boot_ms();
    old_ms = pg_server_ms(pg);
    while (clock_boot_ms() == asked_boot_ms) {
    }
    pg_saw_clock(pg, old_ms + 60000, asked_boot_ms);
    assert_int_equal(warnings, 1);
    pg_saw_clock(pg, old_ms, asked_boot_ms);
    assert_in_range(pg_server_ms(pg), old_ms + 60000, old_ms + 65000);
    pg_saw_clock(pg, old_ms + 60001, clock_boot_ms());
    assert_int_equal(warnings, 1);
    store->ops->close(store);
}

/* Both said hello, and asked what the machine knows; the second one found what the first one has replaced. */
static void what_the_machine_knew_replaces_nothing_newer(void **state)
{
    struct belay_store *store = open_store();
    struct pg_store *pg = pg_of(store);
    struct pg_known_clock before = { .known = true, .boot_ms = clock_boot_ms() };
    struct pg_conn *conn = NULL;

    (void)state;
    commit(store);
    before.server_ms = pg_server_ms(pg) - 60000;
    warnings = 0;
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &conn, NULL), BELAY_OK);
    assert_int_equal(pg_meet_clock(pg, conn, &before, pg_server_ms(pg), clock_boot_ms(), NULL), BELAY_OK);
    assert_int_equal(warnings, 0);
    pg_conn_close(conn);
    store->ops->close(store);
}

static void one_report_of_a_jump_does_for_all_machines(void **state)
{
    (void)state;
    assert_int_equal(warnings_after(2000, 0), 0);
    run("INSERT INTO clock.clocks SELECT 'other', server_start, server_ms - 60000, boot_ms FROM "
        "clock.clocks");
    assert_int_equal(pg_kit_number("SELECT count(*) FROM clock.clocks"), 2);
    run("SELECT clock.clock_jumped(clock.clock_ms())");
    assert_int_equal(pg_kit_number("SELECT count(*) FROM clock.clocks"), 0);
}

/* L1, L4: the holder and all that wait, those far back included, have their whole time again. */
static void all_leases_and_places_begin_again_after_a_jump(void **state)
{
    enum { WAITERS = 12 };
    struct belay_store *store = open_store();
    const char *key = "k";
    struct belay_record record = { 0 };
    int64_t now_ms = 0;

    (void)state;
    pg_kit_take(store, key, "a", 50000);
    for (int i = 0; i < WAITERS; i++) { /* more than the lock's row has room for */
        char id[16];

        (void)snprintf(id, sizeof id, "w-%02d", i);
        pg_kit_queue(store, key, id, 60000 + 1000 * i);
    }
    assert_int_equal(pg_kit_number("SELECT count(*) FROM clock.waiting"), WAITERS - 8);
    run("UPDATE clock.waiting SET expires_ms = 5; UPDATE clock.locks SET expires_ms = 5, "
        "tickets = (SELECT jsonb_agg(t || '{\"e\": 5}' ORDER BY n) FROM jsonb_array_elements(tickets) "
        "WITH ORDINALITY x(t, n))");
    run("SELECT clock.clock_jumped(clock.clock_ms())");
    assert_int_equal(store->ops->get(store, &key, 1, &record, &now_ms, NULL), BELAY_OK);
    assert_in_range(record.expires_ms, now_ms + 40000, now_ms + 50000);
    assert_int_equal(record.n_tickets, WAITERS);
    for (int i = 0; i < WAITERS; i++) {
        int64_t expires_ms = record.tickets[i].expires_ms;

        assert_int_equal(strtol(record.tickets[i].lock_id + 2, NULL, 10), i);
        assert_in_range(expires_ms, now_ms + 50000, now_ms + 60000 + 1000 * i);
        /* Each its own time: they differ by what their times to live do. Those far back are counted a moment later. */
        assert_true(i < 8 ? expires_ms == record.tickets[0].expires_ms + 1000 * i
                          : expires_ms >= record.tickets[0].expires_ms + 1000 * i);
    }
    belay_record_release(&record);
    store->ops->close(store);
}

/* ---- a lock that changes while all leases begin again ---- */

static void add_holder(struct belay_store *store, const char *key, const char *lock_id)
{
    struct belay_record values = { .lock_id = (char *)lock_id,
                                   .owner = (char *)"o",
                                   .owner_name = (char *)"n",
                                   .ttl_ms = 60000,
                                   .mode = BELAY_SHARED };

    pg_kit_commit(store, &(struct belay_write){
                             .key = key, .set = BELAY_SET_HOLDER, .values = &values, .co_holder = true });
}

/* NULL: it was done. */
static void *report_in_thread(void *context)
{
    return pg_conn_run(context, "SELECT clock.clock_jumped(clock.clock_ms())", NULL, NULL) == BELAY_OK
               ? NULL
               : context;
}

static void join_report(pthread_t thread)
{
    void *failed = NULL;

    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

/* A session that has locked the row of a key. */
static struct pg_conn *lock_row(const char *key)
{
    struct pg_conn *conn = NULL;
    char sql[120];

    assert_int_equal(pg_connect(kit.database, INT64_MAX, &conn, NULL), BELAY_OK);
    (void)snprintf(sql, sizeof sql, "BEGIN; SELECT FROM clock.locks WHERE key = '%s' FOR UPDATE", key);
    assert_int_equal(pg_conn_run(conn, sql, NULL, NULL), BELAY_OK);
    return conn;
}

static void unlock_row(struct pg_conn *conn)
{
    assert_int_equal(pg_conn_run(conn, "COMMIT", NULL, NULL), BELAY_OK);
    pg_conn_close(conn);
}

static void await_blocked_by(struct pg_conn *conn, struct pg_conn *by)
{
    int64_t until_ms = clock_boot_ms() + 60000;
    char sql[120];

    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM unnest(pg_blocking_pids(%d)) pid WHERE pid = %d",
                   PQbackendPID(conn->pg), PQbackendPID(by->pg));
    while (pg_kit_number(sql) == 0) {
        assert_true(clock_boot_ms() < until_ms);
    }
}

/*
 * L1: a shared lock that is acquired while a jump is reported, and has another holder before the report has come to it.
 * The report waits for a row each time: of a lock that was held before, of one that is held since, and of a shared one.
 */
static void a_report_of_a_jump_loses_no_holder_that_comes_meanwhile(void **state)
{
    static const char *const keys[] = { "held", "held-since", "shared-1" };
    struct belay_store *store = open_store();
    struct pg_conn *reporter = NULL;
    struct pg_conn *locked;
    pthread_t thread;

    (void)state;
    run("DELETE FROM clock.locks");
    pg_kit_take(store, keys[0], "a", 60000);
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &reporter, NULL), BELAY_OK);
    locked = lock_row(keys[0]);
    assert_int_equal(pthread_create(&thread, NULL, report_in_thread, reporter), 0);
    for (int i = 0; i < 3; i++) {
        struct pg_conn *next;

        await_blocked_by(reporter, locked);
        if (i == 0) {
            pg_kit_take(store, keys[1], "a", 60000);
        } else if (i == 1) {
            add_holder(store, keys[2], "b");
            add_holder(store, "shared-2", "b");
        } else {
            add_holder(store, "shared-2", "c");
        }
        next = i < 2 ? lock_row(keys[i + 1]) : NULL;
        unlock_row(locked);
        locked = next;
    }
    join_report(thread);
    assert_int_equal(
        pg_kit_number("SELECT jsonb_array_length(holders) FROM clock.locks WHERE key = 'shared-2'"), 2);
    run("DELETE FROM clock.locks");
    pg_conn_close(reporter);
    store->ops->close(store);
}

/* L6: while the report waits for another row, the holder renews. */
static void a_report_of_a_jump_ends_no_lease_before_its_holder_was_told(void **state)
{
    static const char expires[] = "SELECT expires_ms FROM clock.locks WHERE key = 'also-held'";
    struct belay_store *store = open_store();
    struct belay_record lease = { 0 };
    struct pg_conn *reporter = NULL;
    struct pg_conn *held;
    int64_t blocked_ms;
    int64_t told_ms;
    pthread_t thread;

    (void)state;
    run("DELETE FROM clock.locks");
    pg_kit_take(store, "held", "a", 60000);
    pg_kit_take(store, "also-held", "b", 60000); /* the report comes to it later */
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &reporter, NULL), BELAY_OK);
    held = lock_row("held");
    assert_int_equal(pthread_create(&thread, NULL, report_in_thread, reporter), 0);
    await_blocked_by(reporter, held);
    blocked_ms = pg_kit_number("SELECT clock.clock_ms()");
    while (pg_kit_number("SELECT clock.clock_ms()") == blocked_ms) {
    }
    pg_kit_commit(store, &(struct belay_write){ .key = "also-held",
                                                .condition = BELAY_IF_LIVE_BY,
                                                .lock_id = "b",
                                                .set = BELAY_SET_LEASE,
                                                .values = &lease });
    told_ms = pg_kit_number(expires);
    assert_true(told_ms > blocked_ms + 60000);
    unlock_row(held);
    join_report(thread);
    assert_true(pg_kit_number(expires) >= told_ms);
    run("DELETE FROM clock.locks");
    pg_conn_close(reporter);
    store->ops->close(store);
}

/* A change of several keys locks the last of them first. */
static void a_report_of_a_jump_and_a_change_of_several_keys_end_in_no_deadlock(void **state)
{
    struct belay_store *store = open_store();
    struct pg_conn *reporter = NULL;
    struct pg_conn *change;
    pthread_t thread;

    (void)state;
    run("DELETE FROM clock.locks");
    pg_kit_take(store, "a", "a", 60000);
    pg_kit_take(store, "b", "a", 60000);
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &reporter, NULL), BELAY_OK);
    change = lock_row("b");
    assert_int_equal(pthread_create(&thread, NULL, report_in_thread, reporter), 0);
    await_blocked_by(reporter, change);
    assert_int_equal(
        pg_conn_run(change, "SELECT FROM clock.locks WHERE key = 'a' FOR UPDATE NOWAIT", NULL, NULL),
        BELAY_OK);
    unlock_row(change);
    join_report(thread);
    run("DELETE FROM clock.locks");
    pg_conn_close(reporter);
    store->ops->close(store);
}

static void a_machine_that_cannot_be_named_keeps_nothing(void **state)
{
    struct belay_store *store = open_store();

    (void)state;
    run("DELETE FROM clock.clocks");
    pg_of(store)->machine[0] = '\0';
    commit(store);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM clock.clocks"), 0);
    store->ops->close(store);
}

/* ---- a jump that the server cannot be told of, or not yet ---- */

static void let_fail(bool fails)
{
    run(fails ? "ALTER FUNCTION clock.clock_jumped(bigint) RENAME TO clock_jumped_not"
              : "ALTER FUNCTION clock.clock_jumped_not(bigint) RENAME TO clock_jumped");
}

/* Holds the key for 40 s, and the clock jumps by a minute. The caller closes the store, and calls set_clock(0). */
static struct belay_store *jump_under(const char *key)
{
    struct belay_store *store;

    run("DELETE FROM clock.clocks");
    store = open_store();
    pg_kit_take(store, key, "a", 40000);
    set_clock(60000);
    return store;
}

/* If it is free; with a revision, from an expired holder, as it was found. */
static enum belay_code take(struct belay_store *store, const char *key, uint64_t revision, int64_t timeout_ms)
{
    struct belay_record values = {
        .lock_id = (char *)"b", .owner = (char *)"o", .owner_name = (char *)"n", .ttl_ms = 40000
    };
    struct belay_write write = { .key = key,
                                 .condition = revision == 0 ? BELAY_IF_FREE : BELAY_IF_UNCHANGED,
                                 .revision = revision,
                                 .set = BELAY_SET_HOLDER,
                                 .values = &values };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .timeout_ms = timeout_ms };
    struct belay_commit out = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &out, NULL);

    belay_commit_release(&out);
    return code;
}

static enum belay_code acquire(struct belay_store *store, const char *key)
{
    return take(store, key, 0, 0);
}

static bool count_record(void *context, const struct belay_record *record, int64_t now_ms)
{
    (void)record;
    (void)now_ms;
    ++*(int *)context;
    return true;
}

static void nothing_is_decided_before_the_server_knows_of_a_jump(void **state)
{
    struct belay_store *store = jump_under("fails");
    struct belay_scan scan = { .prefix = "fails" };
    int64_t left_ms = 0;
    uint64_t revision = 0;
    int n = 0;

    (void)state;
    let_fail(true);
    assert_int_equal(look(store, "fails", &left_ms, &revision), BELAY_UNREACHABLE);
    assert_int_equal(acquire(store, "fails"), BELAY_UNREACHABLE);
    assert_int_equal(store->ops->scan(store, &scan, count_record, &n, NULL), BELAY_UNREACHABLE);
    assert_int_equal(n, 0);
    assert_int_equal(acquire(store, "fails-not"), BELAY_UNREACHABLE);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM clock.locks WHERE key = 'fails-not'"), 0);
    let_fail(false);
    assert_int_equal(acquire(store, "fails"), BELAY_REFUSED);
    assert_int_equal(look(store, "fails", &left_ms, &revision), BELAY_OK);
    assert_in_range(left_ms, 1000, 40000);
    store->ops->close(store);
    set_clock(0);
}

/* The answer itself tells of the jump: it was refused, by a lease that seems to have ended. */
static void a_refusal_that_shows_a_jump_is_no_answer(void **state)
{
    struct belay_store *store = jump_under("refused");

    (void)state;
    let_fail(true);
    assert_int_equal(acquire(store, "refused"), BELAY_UNREACHABLE);
    let_fail(false);
    store->ops->close(store);
    set_clock(0);
}

struct looker {
    struct belay_store *store;
    const char *key;
    enum belay_code code;
    int64_t left_ms;
    uint64_t revision;
};

static void *look_in_thread(void *context)
{
    struct looker *looker = context;

    looker->code = look(looker->store, looker->key, &looker->left_ms, &looker->revision);
    return NULL;
}

/* Until a statement waits for a row, which another session has locked. */
static void await_blocked(void)
{
    int64_t until_ms = clock_boot_ms() + 60000;

    while (pg_kit_number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) {
        assert_true(clock_boot_ms() < until_ms);
    }
}

static void a_second_thread_waits_until_the_first_has_told_the_server(void **state)
{
    struct belay_store *store = jump_under("two");
    struct looker first = { .store = store, .key = "two" };
    struct pg_conn *other = NULL;
    int64_t left_ms = 0;
    uint64_t revision = 0;
    pthread_t thread;

    (void)state;
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &other, NULL), BELAY_OK);
    assert_int_equal(pg_conn_run(other, "BEGIN; SELECT FROM clock.meta FOR UPDATE", NULL, NULL), BELAY_OK);
    assert_int_equal(pthread_create(&thread, NULL, look_in_thread, &first), 0);
    await_blocked();
    assert_int_equal(take(store, "two", 0, 50), BELAY_UNREACHABLE);
    pg_of(store)->kept_boot_ms -= 61000;
    pg_keep_clock_if_due(pg_of(store)); /* by a clock that jumped: no process would see the jump */
    assert_true(pg_kit_number("SELECT max(server_ms) - clock.clock_ms() FROM clock.clocks") < -30000);
    assert_int_equal(pg_conn_run(other, "COMMIT", NULL, NULL), BELAY_OK);
    (void)pthread_join(thread, NULL);
    assert_int_equal(first.code, BELAY_OK);
    assert_in_range(first.left_ms, 1000, 40000); /* as it is after the mend */
    assert_int_equal(take(store, "two", 0, 0), BELAY_REFUSED);
    assert_int_equal(look(store, "two", &left_ms, &revision), BELAY_OK);
    assert_in_range(left_ms, 1000, 40000);
    pg_conn_close(other);
    store->ops->close(store);
    set_clock(0);
}

static void a_jump_is_told_however_late(void **state)
{
    struct belay_store *store = jump_under("late");
    struct pg_store *pg = pg_of(store);
    int64_t left_ms = 0;
    uint64_t revision = 0;

    (void)state;
    let_fail(true);
    assert_int_equal(look(store, "late", &left_ms, &revision), BELAY_UNREACHABLE);
    let_fail(false);
    set_clock(160000); /* the time that has passed meanwhile: both clocks are the same to each other */
    pg->clock_offset_ms += 100000;
    pg->clock_most_ms += 100000;
    assert_int_equal(look(store, "late", &left_ms, &revision), BELAY_OK);
    assert_int_equal(look(store, "late", &left_ms, &revision), BELAY_OK);
    assert_in_range(left_ms, 1000, 40000);
    store->ops->close(store);
    set_clock(0);
}

/* It was set again before it could be told: the server does nothing by a time that is not its own. */
static void a_jump_is_told_by_the_time_of_the_server(void **state)
{
    struct belay_store *store = jump_under("again");
    int64_t left_ms = 0;
    int64_t before;
    uint64_t revision = 0;

    (void)state;
    let_fail(true);
    assert_int_equal(look(store, "again", &left_ms, &revision), BELAY_UNREACHABLE);
    let_fail(false);
    set_clock(5000);
    before = pg_kit_number("SELECT revision FROM clock.locks WHERE key = 'again'");
    assert_int_equal(pg_mend_clock(pg_of(store), INT64_MAX, NULL), BELAY_OK);
    assert_false(
        pg_was_mended_since(pg_of(store), clock_boot_ms())); /* what is asked for from now on counts */
    assert_false(pg_has_jumped(pg_of(store)));
    assert_true(pg_kit_number("SELECT revision FROM clock.locks WHERE key = 'again'") > before);
    store->ops->close(store);
    set_clock(0);
}

/* What the next process on the machine finds counts as what it has seen itself. */
static void a_process_that_begins_after_a_jump_decides_nothing_before_it_is_told(void **state)
{
    struct belay_store *store = jump_under("new");

    (void)state;
    store->ops->close(store);
    let_fail(true);
    for (int i = 0; i < 2; i++) {
        store = open_store();
        assert_int_equal(acquire(store, "new"), BELAY_UNREACHABLE);
        store->ops->close(store);
    }
    let_fail(false);
    set_clock(0);
}

static void an_event_loop_leaves_it_to_threads_to_tell_of_a_jump(void **state)
{
    struct belay_store *store = open_store();
    struct belay_put_ticket put = {
        .lock_id = "b", .key = "k", .owner = "o", .owner_name = "n", .ttl_ms = 1
    };
    struct belay_write write = { .key = "k", .condition = BELAY_IF_OCCUPIED, .put_ticket = &put };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit out = { 0 };
    struct belay_pending_commit pending = { .batch = &batch, .out = &out };

    (void)state;
    commit(store);
    assert_true(store->ops->loop->fd(store) >= 0);
    pg_of(store)->has_jumped = true;
    assert_false(store->ops->loop->begin(store, &pending));
    pg_of(store)->has_jumped = false;
    assert_true(store->ops->loop->begin(store, &pending));
    store->ops->loop->stop(store);
    store->ops->close(store);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_lives_long_keeps_what_it_knows_up_to_date),
        cmocka_unit_test(a_jump_is_told_from_two_clocks_that_drift),
        cmocka_unit_test(steps_that_are_small_add_up),
        cmocka_unit_test(clocks_that_drift_apart_have_not_jumped),
        cmocka_unit_test(an_answer_that_is_late_brings_no_old_time_back),
        cmocka_unit_test(what_the_machine_knew_replaces_nothing_newer),
        cmocka_unit_test(one_report_of_a_jump_does_for_all_machines),
        cmocka_unit_test(all_leases_and_places_begin_again_after_a_jump),
        cmocka_unit_test(a_report_of_a_jump_loses_no_holder_that_comes_meanwhile),
        cmocka_unit_test(a_report_of_a_jump_ends_no_lease_before_its_holder_was_told),
        cmocka_unit_test(a_report_of_a_jump_and_a_change_of_several_keys_end_in_no_deadlock),
        cmocka_unit_test(a_machine_that_cannot_be_named_keeps_nothing),
        cmocka_unit_test(nothing_is_decided_before_the_server_knows_of_a_jump),
        cmocka_unit_test(a_refusal_that_shows_a_jump_is_no_answer),
        cmocka_unit_test(a_second_thread_waits_until_the_first_has_told_the_server),
        cmocka_unit_test(a_jump_is_told_however_late),
        cmocka_unit_test(a_jump_is_told_by_the_time_of_the_server),
        cmocka_unit_test(a_process_that_begins_after_a_jump_decides_nothing_before_it_is_told),
        cmocka_unit_test(an_event_loop_leaves_it_to_threads_to_tell_of_a_jump),
    };
    int failed = pg_kit_start("clock") ? cmocka_run_group_tests(tests, NULL, NULL) : 1;

    pg_kit_stop();
    return failed;
}
