/* What processes on one machine keep for each other of the clock of a PostgreSQL server (L1, L7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/postgresql/postgresql_internal.h"
#include "support/server.h"

static struct server server;
static struct pg_conn *admin;
static char url[160];
static int warnings;

static int64_t number(const char *sql)
{
    PGresult *result = NULL;
    int64_t n = -1;

    if (pg_conn_run(admin, sql, &result, NULL) == BELAY_OK && PQntuples(result) == 1) {
        n = pg_number(result, 0, 0);
    }
    PQclear(result);
    return n;
}

static void run(const char *sql)
{
    assert_int_equal(pg_conn_run(admin, sql, NULL, NULL), BELAY_OK);
}

static void on_warning(void *context, const char *text)
{
    (void)context;
    warnings += strstr(text, "jumped forward") != NULL ? 1 : 0;
}

static struct belay_store *open_store(void)
{
    static const struct postgresql_options options = { .on_warning = on_warning, .timeout_factor = 6 };
    struct belay_store *store = NULL;
    char *whole = NULL;

    assert_int_equal(postgresql_store_open(url, &options, &store, &whole, NULL), BELAY_OK);
    free(whole);
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
    first = number("SELECT boot_ms FROM clock.clocks");
    assert_true(first > 0);
    commit(store);
    assert_int_equal(number("SELECT boot_ms FROM clock.clocks"), first);
    pg_of(store)->kept_boot_ms -= 61000; /* a minute later */
    commit(store);
    assert_true(number("SELECT boot_ms FROM clock.clocks") > first);
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

static void one_report_of_a_jump_does_for_all_machines(void **state)
{
    (void)state;
    assert_int_equal(warnings_after(2000, 0), 0);
    run("INSERT INTO clock.clocks SELECT 'other', server_start, server_ms - 60000, boot_ms FROM "
        "clock.clocks");
    assert_int_equal(number("SELECT count(*) FROM clock.clocks"), 2);
    run("SELECT clock.clock_jumped(clock.clock_ms())");
    assert_int_equal(number("SELECT count(*) FROM clock.clocks"), 0);
}

/* A place in a queue that is longer than what the lock's row has of it. */
static void queue(struct belay_store *store, int number)
{
    char id[16];
    struct belay_put_ticket put = { .lock_id = id, .key = "k", .owner = "o", .owner_name = "n" };
    struct belay_write write = { .key = "k", .condition = BELAY_IF_OCCUPIED, .put_ticket = &put };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit out = { 0 };

    (void)snprintf(id, sizeof id, "w-%02d", number);
    put.ttl_ms = 60000 + number;
    assert_int_equal(store->ops->commit(store, &batch, &out, NULL), BELAY_OK);
    belay_commit_release(&out);
}

/* L1, L4: the holder and all that wait, those far back included, have their whole time again. */
static void all_leases_and_places_begin_again_after_a_jump(void **state)
{
    enum { WAITERS = 12 };
    struct belay_store *store = open_store();
    struct belay_record values = { .lock_id = "a", .owner = "o", .owner_name = "n", .ttl_ms = 50000 };
    struct belay_write write = {
        .key = "k", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit out = { 0 };
    struct belay_record record = { 0 };
    int64_t now_ms = 0;

    (void)state;
    assert_int_equal(store->ops->commit(store, &batch, &out, NULL), BELAY_OK);
    belay_commit_release(&out);
    for (int i = 0; i < WAITERS; i++) {
        queue(store, i);
    }
    assert_int_equal(number("SELECT count(*) FROM clock.waiting"), WAITERS - 8);
    run("UPDATE clock.waiting SET expires_ms = 5; UPDATE clock.locks SET expires_ms = 5, "
        "tickets = (SELECT jsonb_agg(t || '{\"e\": 5}' ORDER BY n) FROM jsonb_array_elements(tickets) "
        "WITH ORDINALITY x(t, n))");
    run("SELECT clock.clock_jumped(clock.clock_ms())");
    assert_int_equal(store->ops->get(store, &write.key, 1, &record, &now_ms, NULL), BELAY_OK);
    assert_in_range(record.expires_ms, now_ms + 40000, now_ms + 50000);
    assert_int_equal(record.n_tickets, WAITERS);
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(strtol(record.tickets[i].lock_id + 2, NULL, 10), i);
        assert_in_range(record.tickets[i].expires_ms, now_ms + 50000, now_ms + 60000 + i);
        /* Each its own time: they differ by what their times to live do. */
        assert_int_equal(record.tickets[i].expires_ms, record.tickets[0].expires_ms + i);
    }
    belay_record_release(&record);
    store->ops->close(store);
}

static void a_machine_that_cannot_be_named_keeps_nothing(void **state)
{
    struct belay_store *store = open_store();

    (void)state;
    run("DELETE FROM clock.clocks");
    pg_of(store)->machine[0] = '\0';
    commit(store);
    assert_int_equal(number("SELECT count(*) FROM clock.clocks"), 0);
    store->ops->close(store);
}

static bool make_schema(void)
{
    struct belay_error err = BELAY_ERROR_INIT;
    bool made;

    (void)snprintf(url, sizeof url, "postgresql://postgres@127.0.0.1:%d/postgres", server.port);
    made = pg_connect(url, INT64_MAX, &admin, &err) == BELAY_OK;
    (void)snprintf(url, sizeof url, "postgresql://postgres@127.0.0.1:%d/postgres?schema=clock", server.port);
    made = made && postgresql_schema_create(url, NULL, NULL, &err) == BELAY_OK;
    (void)fprintf(stderr, "%s", err.text);
    belay_error_release(&err);
    return made;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_lives_long_keeps_what_it_knows_up_to_date),
        cmocka_unit_test(a_jump_is_told_from_two_clocks_that_drift),
        cmocka_unit_test(one_report_of_a_jump_does_for_all_machines),
        cmocka_unit_test(all_leases_and_places_begin_again_after_a_jump),
        cmocka_unit_test(a_machine_that_cannot_be_named_keeps_nothing),
    };
    int failed = 1;

    if (server_start(&server, BELAY_SOURCE_DIR "/test/support/postgresql.py", NULL) && make_schema()) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    pg_conn_close(admin);
    server_stop(&server);
    return failed;
}
