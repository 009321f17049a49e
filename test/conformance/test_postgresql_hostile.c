/* Roles that may execute the functions of the schema, and call them with anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "conformance/postgresql_kit.h"

static void more_events_than_a_transaction_has_ids_for_are_refused(void **state)
{
    (void)state;
    assert_false(pg_kit_run(
        "SELECT hostile.commit(jsonb_build_object('d', 9223372036854775807, 'w', '[]'::jsonb, 'e', "
        "(SELECT jsonb_agg('{\"k\": \"k\", \"t\": \"x\", \"l\": 0, \"n\": 0, \"d\": -1, \"w\": 0}'::jsonb) "
        "FROM generate_series(1, 16385))))"));
    assert_false(pg_kit_run("SELECT hostile.change_many(9223372036854775807, false, false, "
                            "array_fill(NULL::hostile.one_change, ARRAY[16385]))"));
    assert_int_equal(pg_kit_number("SELECT count(*) FROM hostile.events"), 0);
}

/* Any of them would make the release fail that has to wake its waiter. */
static void a_ticket_that_no_release_could_wake_is_refused(void **state)
{
    static const char *const bad[] = { "'i', repeat('x', 9000)", "'i', NULL", "'i', 'a b'",
                                       "'i', 'b', 'p', 'w' || repeat(U&'\\00fc', 39)" };
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    char sql[400];

    (void)state;
    pg_kit_take(store, "k", "a", 60000);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)snprintf(
            sql, sizeof sql,
            "SELECT hostile.queue('k', 9223372036854775807, jsonb_build_object(%s, 'a', '', 'k', 'k', "
            "'o', '', 'n', '', 'm', 0, 'j', false, 'l', 60000), false, NULL, NULL, NULL, NULL)",
            bad[i]);
        assert_false(pg_kit_run(sql));
        assert_int_equal(pg_kit_number("SELECT count(*) FROM hostile.locks WHERE tickets IS NOT NULL"), 0);
    }
    store->ops->close(store);
}

static bool count_event(void *context, const struct belay_event *event)
{
    assert_int_equal(event->n_metadata, 0);
    ++*(int *)context;
    return true;
}

static void metadata_that_cannot_be_read_hides_no_event(void **state)
{
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    int n = 0;

    (void)state;
    assert_true(
        pg_kit_run("INSERT INTO hostile.events SELECT i, 0, 0, 'x', 'k', 'i', 0, 'o', 'n', NULL, NULL, -1, "
                   "CASE i WHEN 1 THEN 'junk' WHEN 2 THEN '[[1]]' END FROM generate_series(1, 3) i"));
    assert_int_equal(store->ops->events(store, &(struct belay_events_query){ 0 }, count_event, &n, NULL),
                     BELAY_OK);
    assert_int_equal(n, 3);
    store->ops->close(store);
}

static void metadata_that_cannot_be_read_hides_no_lock(void **state)
{
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    struct belay_record record = { 0 };
    const char *key = "junk";
    int64_t now_ms;

    (void)state;
    pg_kit_take(store, key, "a", 60000);
    assert_true(pg_kit_run("UPDATE hostile.locks SET metadata = 'junk' WHERE key = 'junk'"));
    assert_int_equal(store->ops->get(store, &key, 1, &record, &now_ms, NULL), BELAY_OK);
    assert_true(record.held);
    assert_int_equal(record.n_metadata, 0);
    belay_record_release(&record);
    store->ops->close(store);
}

/* A time plus a margin would overflow, and the lock seem to be free. */
static void numbers_at_the_end_of_their_range_leave_room(void **state)
{
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    struct belay_record record = { 0 };
    const char *key = "far";
    int64_t now_ms;

    (void)state;
    pg_kit_take(store, key, "a", 60000);
    assert_true(pg_kit_run(
        "SELECT hostile.change('far', 9223372036854775807, 'a', 6, 9223372036854775807, 0::smallint, "
        "'lock.renewed', NULL, NULL, -1, 'c', 'h')"));
    assert_true(
        pg_kit_run("SELECT hostile.queue('far', 9223372036854775807, '{\"i\": \"t\", \"k\": \"far\", "
                   "\"a\": \"\", \"o\": \"\", \"n\": \"\", \"m\": 0, \"j\": false, \"c\": -2147483648, "
                   "\"b\": -1, \"l\": 9223372036854775807}', false, NULL, NULL, NULL, NULL)"));
    assert_int_equal(store->ops->get(store, &key, 1, &record, &now_ms, NULL), BELAY_OK);
    assert_in_range(record.expires_ms, now_ms + 60000, INT64_MAX / 2);
    assert_int_equal(record.n_tickets, 1);
    assert_in_range(record.tickets[0].expires_ms, now_ms + 60000, INT64_MAX / 2);
    assert_int_equal(record.tickets[0].slots, 0);
    assert_int_equal(record.n_between, 0);
    belay_record_release(&record);
    store->ops->close(store);
}

/* L1: after a restart all leases begin again in one transaction, before anything else: it must not fail for one. */
static void a_ttl_at_the_end_of_its_range_stops_no_lease_from_beginning_again(void **state)
{
    static const char *const batches[] = {
        "{\"k\": \"ttl\", \"c\": 0, \"s\": 63, \"v\": {\"i\": \"a\", \"a\": \"\", \"o\": \"\", \"n\": \"\", "
        "\"d\": false, \"h\": 0, \"f\": 0, \"l\": -9223372036854775808}}",
        "{\"k\": \"ttl-shared\", \"c\": 0, \"s\": 63, \"co\": true, \"v\": {\"i\": \"a\", \"a\": \"\", "
        "\"o\": \"\", "
        "\"n\": \"\", \"d\": false, \"h\": 0, \"f\": 0, \"q\": 1, \"c\": 0, \"l\": -9223372036854775808}}",
        "{\"k\": \"ttl-queue\", \"c\": 0, \"s\": 0, \"pt\": {\"i\": \"a\", \"l\": -9223372036854775808}, "
        "\"pi\": [{\"i\": \"b\", \"l\": -9223372036854775808}]}",
    };
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    char sql[512];

    (void)state;
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        (void)snprintf(sql, sizeof sql,
                       "SELECT hostile.commit('{\"d\": 9223372036854775807, \"w\": [%s], \"e\": []}')",
                       batches[i]);
        assert_true(pg_kit_run(sql));
    }
    assert_int_equal(pg_kit_number("SELECT count(*) FROM hostile.locks WHERE key LIKE 'ttl%'"), 3);
    pg_kit_take(store, "ttl-other", "a", 60000);
    assert_true(pg_kit_run(
        "INSERT INTO hostile.events SELECT max(id) + 1, hostile.clock_ms(), 0, 'x', 'k', 'i', 0, 'o', "
        "'n', NULL, NULL, -1 FROM hostile.events"));
    assert_true(pg_kit_run("UPDATE hostile.meta SET server_start = server_start - interval '1 s'"));
    pg_kit_take(store, "ttl-after", "a", 60000);
    assert_true(pg_kit_run("SELECT hostile.clock_jumped(hostile.clock_ms())"));
    assert_true(pg_kit_run("DELETE FROM hostile.locks WHERE key LIKE 'ttl%'"));
    store->ops->close(store);
}

/* Else the record could not repeat it once the others are gone: their release would fail. */
static void a_holder_without_one_of_its_fields_is_refused(void **state)
{
    static const char *const fields[] = { "i", "a", "o", "n", "d", "h", "f" };
    char sql[512];

    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        (void)snprintf(
            sql, sizeof sql,
            "SELECT hostile.commit(jsonb_build_object('d', 9223372036854775807, 'e', '[]'::jsonb, 'w', "
            "jsonb_build_array(jsonb_build_object('k', 'joined', 'c', 0, 's', 63, 'co', true, 'v', "
            "'{\"i\": \"b\", \"a\": \"\", \"o\": \"\", \"n\": \"\", \"d\": false, \"h\": 0, "
            "\"f\": 0, \"q\": 1, \"c\": 0, \"l\": 30000}'::jsonb - '%s'))))",
            fields[i]);
        assert_true(
            pg_kit_run("SELECT hostile.commit('{\"d\": 9223372036854775807, \"e\": [], \"w\": [{\"k\": "
                       "\"joined\", \"c\": 0, \"s\": 63, \"co\": true, \"v\": {\"i\": \"a\", \"a\": \"\", "
                       "\"o\": \"\", \"n\": \"\", \"d\": false, \"h\": 0, \"f\": 0, \"q\": 1, \"c\": 0, "
                       "\"l\": 60000}}]}')"));
        assert_false(pg_kit_run(sql));
        assert_true(pg_kit_run("DELETE FROM hostile.locks"));
    }
}

static bool count_record(void *context, const struct belay_record *record, int64_t now_ms)
{
    (void)record;
    (void)now_ms;
    ++*(int *)context;
    return true;
}

/* Else no client could list any lock, nor end this one. */
static void a_number_that_no_client_can_read_is_not_kept(void **state)
{
    static const char *const numbers[] = { "\"s\": 1e400", "\"c\": 1e30", "\"m\": 1e30",
                                           "\"zz\": {\"z\": 1e400}" };
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    char sql[512];
    int n = 0;

    (void)state;
    assert_true(pg_kit_run("DELETE FROM hostile.locks"));
    pg_kit_take(store, "number", "a", 60000);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        (void)snprintf(sql, sizeof sql,
                       "SELECT hostile.queue('number', 9223372036854775807, '{\"i\": \"t%zu\", \"a\": \"\", "
                       "\"l\": 60000, %s}', false, NULL, NULL, NULL, NULL)",
                       i, numbers[i]);
        (void)pg_kit_run(sql); /* refused, or without it */
        (void)snprintf(
            sql, sizeof sql,
            "SELECT hostile.commit('{\"d\": 9223372036854775807, \"e\": [], \"w\": [{\"k\": \"number\", "
            "\"c\": 0, \"s\": 0, \"pi\": [{\"i\": \"t%zu\", \"l\": 60000, %s}]}]}')",
            i, numbers[i]);
        (void)pg_kit_run(sql);
    }
    assert_int_equal(pg_kit_number("SELECT jsonb_array_length(tickets) FROM hostile.locks"), 1);
    assert_int_equal(store->ops->scan(store, &(struct belay_scan){ 0 }, count_record, &n, NULL), BELAY_OK);
    assert_int_equal(n, 1);
    store->ops->close(store);
}

/* L7: what a machine is said to know of the clock. By a reading that no clock can have shown, no jump would be noticed. */
static void a_reading_of_the_clock_that_cannot_be_is_not_believed(void **state)
{
    static const char *const readings[] = { "9223372036854775807, -1", "-9223372036854775808, 1",
                                            "-1, 9223372036854775807", "5, -9223372036854775808" };
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    char sql[160];

    (void)state;
    pg_kit_take(store, "clock", "a", 60000);
    store->ops->close(store);
    for (size_t i = 0; i < sizeof readings / sizeof readings[0]; i++) {
        (void)snprintf(sql, sizeof sql, "UPDATE hostile.clocks SET (server_ms, boot_ms) = (%s)", readings[i]);
        assert_true(pg_kit_run(sql));
        store = pg_kit_open(kit.url, NULL);
        assert_int_equal(pg_reach(pg_of(store), 60000, NULL), BELAY_OK);
        assert_false(pg_has_jumped(pg_of(store)));
        assert_int_equal(pg_kit_number("SELECT count(*) FROM hostile.clocks "
                                       "WHERE abs(server_ms - hostile.clock_ms()) < 3600000"),
                         1); /* it was replaced */
        pg_saw_clock(pg_of(store), pg_server_ms(pg_of(store)) + 60000, clock_boot_ms());
        assert_true(pg_has_jumped(pg_of(store)));
        store->ops->close(store);
    }
}

/* A batch that only commit() of functions.sql can do. */
static enum belay_code commit_two(struct belay_store *store)
{
    struct belay_record values = { .lock_id = "id", .owner = "o", .owner_name = "n", .ttl_ms = 60000 };
    const struct belay_write writes[] = {
        { .key = "one", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values },
        { .key = "two", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values },
    };
    const struct belay_batch batch = { .writes = writes, .n_writes = 2 };
    struct belay_commit done = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &done, NULL);

    belay_commit_release(&done);
    return code;
}

/* The owner of the schema has replaced functions of it: that must neither end the process nor be believed. */
static void an_answer_that_makes_no_sense_is_an_error(void **state)
{
    static const char replace[] =
        "CREATE OR REPLACE FUNCTION hostile.commit(b jsonb) RETURNS SETOF hostile.answer LANGUAGE plpgsql AS "
        "$$ DECLARE a hostile.answer; BEGIN a.code := %d; a.now_ms := hostile.clock_ms(); a.refused := 7; "
        "FOR i IN 1..%d LOOP RETURN NEXT a; END LOOP; END $$";
    static const struct {
        int code;
        int rows;
        enum belay_code wanted;
    } answers[] = { { 0, 0, BELAY_UNKNOWN },     /* it may have happened */
                    { 0, 1, BELAY_UNKNOWN },     /* done, and a record is missing */
                    { 1, 1, BELAY_BAD_CONTENT }, /* refused by a write that is not there */
                    { 3, 1, BELAY_BAD_CONTENT } };
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    char sql[sizeof replace + 32];

    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        (void)snprintf(sql, sizeof sql, replace, answers[i].code, answers[i].rows);
        assert_true(pg_kit_run(sql));
        assert_int_equal(commit_two(store), answers[i].wanted);
    }
    store->ops->close(store);
}

static void answers_for_changes_that_were_not_sent_are_unknown(void **state)
{
    static const char *const rows[] = { "SELECT 0::bigint, 'x'", "SELECT 2::bigint, 'x'",
                                        "SELECT 1::bigint, 'x' UNION ALL SELECT 1, 'y'" };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pg_change item = { 0 };
        struct pg_change *items[] = { &item };
        PGresult *result = NULL;

        assert_int_equal(pg_conn_run(kit.admin, rows[i], &result, NULL), BELAY_OK);
        assert_int_equal(pg_read_change_many(result, items, 1), BELAY_UNKNOWN);
        PQclear(result);
        free(item.answer);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_events_than_a_transaction_has_ids_for_are_refused),
        cmocka_unit_test(a_ticket_that_no_release_could_wake_is_refused),
        cmocka_unit_test(metadata_that_cannot_be_read_hides_no_event),
        cmocka_unit_test(metadata_that_cannot_be_read_hides_no_lock),
        cmocka_unit_test(numbers_at_the_end_of_their_range_leave_room),
        cmocka_unit_test(a_ttl_at_the_end_of_its_range_stops_no_lease_from_beginning_again),
        cmocka_unit_test(a_holder_without_one_of_its_fields_is_refused),
        cmocka_unit_test(a_number_that_no_client_can_read_is_not_kept),
        cmocka_unit_test(a_reading_of_the_clock_that_cannot_be_is_not_believed),
        cmocka_unit_test(answers_for_changes_that_were_not_sent_are_unknown),
        cmocka_unit_test(an_answer_that_makes_no_sense_is_an_error), /* the last: its functions stay */
    };
    int failed = pg_kit_start("hostile") ? cmocka_run_group_tests(tests, NULL, NULL) : 1;

    pg_kit_stop();
    return failed;
}
