/*
 * The conformance suite of blobs on PostgreSQL, on a server of the test's own; and that the lock of a write is checked
 * in the transaction that writes. Every case begins with empty tables.
 */
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
#include "store/postgresql/postgresql_blob.h"
#include "support/blob_suite.h"

enum { LARGE = (5 << 20) + 7 };

static struct belay_blob_store *open_store(void *ctx)
{
    static const struct postgresql_options options = { .timeout_factor = 6 }; /* the machine may be busy */
    struct belay_blob_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;

    (void)ctx;
    if (postgresql_blob_open(kit.url, &options, &store, NULL, &err) != BELAY_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        belay_error_release(&err);
    }
    return store;
}

static bool begin(struct blob_fixture *out_fixture)
{
    *out_fixture = (struct blob_fixture){ .open = open_store, .large = LARGE };
    return pg_kit_run(
        "DELETE FROM blobs.blobs; DELETE FROM blobs.blob_pieces; DELETE FROM blobs.blob_uploads; "
        "DELETE FROM blobs.locks");
}

static void end(void)
{
}

/* ---- what is PostgreSQL's own ---- */

static int fresh(void **state)
{
    struct blob_fixture fixture;

    if (!begin(&fixture)) {
        return -1;
    }
    *state = open_store(NULL);
    return *state == NULL ? -1 : 0;
}

static int close_fresh(void **state)
{
    struct belay_blob_store *store = *state;

    store->ops->close(store);
    return 0;
}

static enum belay_code put(struct belay_blob_store *store, const char *name, const void *data, size_t len,
                           const struct belay_blob_tag *expected, struct belay_blob_tag *out_tag)
{
    return store->ops->put_if(store, name, data, len, expected, out_tag, NULL);
}

static void pieces_of_a_replaced_or_removed_content_are_deleted(void **state)
{
    struct belay_blob_store *store = *state;
    struct belay_blob_tag tag;
    char *large = calloc(1, LARGE);

    assert_non_null(large);
    assert_int_equal(put(store, "a", large, LARGE, NULL, &tag), BELAY_OK);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blob_pieces"), 6);
    assert_int_equal(put(store, "a", large, LARGE, &tag, &tag), BELAY_OK);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blob_pieces"), 6);
    assert_int_equal(put(store, "a", "x", 1, &tag, &tag), BELAY_OK);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blob_pieces"), 1);
    assert_int_equal(store->ops->remove(store, "a", NULL), BELAY_OK);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blob_pieces"), 0);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blob_uploads"), 0);
    free(large);
}

static void the_upload_of_a_writer_that_died_is_deleted_after_an_hour(void **state)
{
    struct belay_blob_store *store = *state;
    struct belay_blob_tag tag;
    struct belay_blob blob = { 0 };
    char *large = calloc(1, LARGE);

    assert_non_null(large);
    assert_int_equal(put(store, "a", large, LARGE, NULL, &tag), BELAY_OK);
    /* A piece that is delivered once more is not taken for an upload. */
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs, blobs.blob_upload(tag, 2, 'x')"), 1);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blob_uploads"), 0);
    assert_true(pg_kit_run("SELECT blobs.blob_upload('dead', 1, 'x'), blobs.blob_upload('alive', 1, 'x')"));
    assert_true(pg_kit_run("UPDATE blobs.blob_uploads SET at_ms = at_ms - 3600001 WHERE tag = 'dead'"));
    assert_int_equal(put(store, "b", large, LARGE, NULL, &tag), BELAY_OK);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blob_pieces WHERE tag = 'dead'"), 0);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blob_pieces WHERE tag = 'alive'"), 1);
    assert_int_equal(store->ops->get(store, "a", &blob, NULL), BELAY_OK);
    assert_int_equal(blob.len, LARGE);
    belay_blob_release(&blob);
    free(large);
}

static void a_content_without_all_its_pieces_is_not_put(void **state)
{
    (void)state;
    assert_int_equal(
        pg_kit_number(
            "SELECT code FROM blobs.blob_put('n', 't', NULL, 9, 'x', 9223372036854775807, NULL, NULL, "
            "NULL, NULL)"),
        6);
    assert_true(pg_kit_run("SELECT blobs.blob_upload('t', 1, '1234567')"));
    assert_int_equal(
        pg_kit_number(
            "SELECT code FROM blobs.blob_put('n', 't', NULL, 9, 'x', 9223372036854775807, NULL, NULL, "
            "NULL, NULL)"),
        6);
    assert_int_equal(
        pg_kit_number(
            "SELECT code FROM blobs.blob_put('n', 't', NULL, 8, 'x', 9223372036854775807, NULL, NULL, "
            "NULL, NULL)"),
        0);
    assert_int_equal(
        pg_kit_number(
            "SELECT code FROM blobs.blob_put('n', 't', 'other', 8, 'x', 0, NULL, NULL, NULL, NULL)"),
        0);
    assert_int_equal(
        pg_kit_number("SELECT code FROM blobs.blob_put('n', 'u', 't', 1, 'x', 0, NULL, NULL, NULL, NULL)"),
        4);
}

static bool count_entry(void *context, const struct belay_blob_entry *entry)
{
    size_t *n = context;

    (void)entry;
    (*n)++;
    return true;
}

static void long_lists_come_in_pages(void **state)
{
    struct belay_blob_store *store = *state;
    struct belay_blob_tag tag;
    size_t all = 0;
    size_t top = 0;

    assert_true(
        pg_kit_run("INSERT INTO blobs.blobs SELECT 'd/' || lpad(n::text, 5, '0') || x, n || x, 0, 0 FROM "
                   "generate_series(1, 2500) n, unnest(array['', '/a', '/b']) x"));
    assert_int_equal(put(store, "e", "", 0, NULL, &tag), BELAY_OK);
    assert_int_equal(store->ops->list(store, "d/", false, count_entry, &all, NULL), BELAY_OK);
    assert_int_equal(all, 7500);
    assert_int_equal(store->ops->list(store, "d/", true, count_entry, &top, NULL), BELAY_OK);
    assert_int_equal(top, 5000);
}

/* ---- the lock of a write ---- */

/* The lock "k" of a holder, with its id and token. */
static bool grant(const char *id, long token, long ttl_ms)
{
    char sql[400];

    (void)snprintf(
        sql, sizeof sql,
        "DELETE FROM blobs.locks; INSERT INTO blobs.locks (SELECT (r).* FROM (SELECT blobs.with_fields("
        "blobs.absent('k'), 63, "
        "'{\"i\":\"%s\",\"a\":\"\",\"o\":\"%s\",\"n\":\"\",\"d\":false,\"h\":0,\"f\":0,"
        "\"l\":%ld}', NULL, blobs.clock_ms(), %ld) r) x); UPDATE blobs.locks SET revision = 1",
        id, id, ttl_ms, token);
    return pg_kit_run(sql);
}

static char store_id[80];

static enum belay_code put_held(struct belay_blob_store *store, const char *store_of_lock, const char *id,
                                uint64_t token, const struct belay_blob_tag *expected,
                                struct belay_blob_tag *out_tag, struct belay_error *err)
{
    struct belay_blob_lock lock = { store_of_lock, "k", id, token };
    struct belay_blob_put write = { "s", "text", 4, expected, &lock };

    return store->ops->put_if_held(store, &write, out_tag, err);
}

static void a_write_needs_its_lock_with_its_id_and_token(void **state)
{
    struct belay_blob_store *store = *state;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_blob_tag tag;

    assert_int_equal(put_held(store, store_id, "me", 5, NULL, &tag, &err), BELAY_NOT_HOLDER);
    assert_non_null(strstr(err.text, "there is no lock 'k'"));
    assert_true(grant("me", 5, 60000));
    assert_int_equal(put_held(store, store_id, "you", 5, NULL, &tag, &err), BELAY_NOT_HOLDER);
    assert_int_equal(put_held(store, store_id, "me", 4, NULL, &tag, &err), BELAY_NOT_HOLDER);
    assert_non_null(strstr(err.text, "is held by me with the token 5; our token is 4"));
    assert_string_equal(belay_error_holder(&err)->locked_by, "me");
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs"), 0);
    assert_int_equal(put_held(store, store_id, "me", 5, NULL, &tag, &err), BELAY_OK);
    assert_true(pg_kit_run("UPDATE blobs.locks SET expires_ms = blobs.clock_ms()"));
    assert_int_equal(put_held(store, store_id, "me", 5, &tag, &tag, &err), BELAY_NOT_HOLDER);
    assert_non_null(strstr(err.text, "its lease has expired"));
    assert_true(grant("me", 5, 60000) && pg_kit_run("UPDATE blobs.locks SET held = false"));
    assert_int_equal(put_held(store, store_id, "me", 5, &tag, &tag, &err), BELAY_NOT_HOLDER);
    belay_error_release(&err);
}

static void a_removal_needs_its_lock(void **state)
{
    struct belay_blob_store *store = *state;
    struct belay_blob_lock lock = { store_id, "k", "me", 5 };
    struct belay_blob_tag tag;

    assert_int_equal(put(store, "s", "x", 1, NULL, &tag), BELAY_OK);
    assert_true(grant("you", 6, 60000));
    assert_int_equal(store->ops->remove_if_held(store, "s", &lock, NULL), BELAY_NOT_HOLDER);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs"), 1);
    lock.store = "sqlite:another";
    assert_int_equal(store->ops->remove_if_held(store, "none", &lock, NULL), BELAY_OK);
    lock.store = store_id;
    assert_true(grant("me", 5, 60000));
    assert_int_equal(store->ops->remove_if_held(store, "s", &lock, NULL), BELAY_OK);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs"), 0);
}

static void the_lock_of_another_store_is_not_looked_for(void **state)
{
    struct belay_blob_tag tag;

    assert_int_equal(put_held(*state, "sqlite:another", "me", 5, NULL, &tag, NULL), BELAY_OK);
}

static void a_lease_that_the_server_did_not_see_is_not_over_after_a_restart(void **state)
{
    struct belay_blob_tag tag;

    assert_true(grant("me", 5, 60000));
    assert_true(
        pg_kit_run("UPDATE blobs.locks SET expires_ms = 1; UPDATE blobs.meta SET server_start = 'epoch'"));
    assert_int_equal(put_held(*state, store_id, "me", 5, NULL, &tag, NULL), BELAY_OK);
}

/* Two connections: while the write is not committed nobody takes the lock, and while a take-over is not committed
 * nobody writes. */
static void no_client_takes_the_lock_between_the_check_and_the_write(void **state)
{
    struct pg_conn *writer = NULL;
    char sql[300];

    (void)state;
    assert_int_equal(pg_connect(kit.database, clock_boot_ms() + 60000, &writer, NULL), BELAY_OK);
    assert_true(grant("me", 5, 60000));
    (void)snprintf(
        sql, sizeof sql,
        "BEGIN; SELECT blobs.blob_put('s', 'tag', NULL, 1, 'x', 9223372036854775807, '%s', 'k', 'me', 5)",
        store_id);
    assert_true(pg_conn_run(writer, sql, NULL, NULL) == BELAY_OK);
    assert_true(pg_kit_run("SET lock_timeout = '200ms'"));
    assert_false(pg_kit_run("UPDATE blobs.locks SET lock_id = 'you', token = 6"));
    assert_true(pg_conn_run(writer, "COMMIT", NULL, NULL) == BELAY_OK);
    assert_true(pg_kit_run("UPDATE blobs.locks SET lock_id = 'you', token = 6; RESET lock_timeout"));
    pg_conn_close(writer);
}

/* ---- a removal that comes late ---- */

/* Another session keeps the removal waiting for longer than its client does. */
static void a_removal_is_not_made_after_its_client_gave_up(void **state)
{
    struct belay_blob_store *store = *state;
    struct belay_blob_tag tag;
    enum belay_code code;

    ((struct pg_blobs *)store)->store->options.timeout_factor = 1;
    assert_int_equal(put(store, "s", "x", 1, NULL, &tag), BELAY_OK);
    assert_true(pg_kit_run("BEGIN; SELECT FROM blobs.blobs FOR UPDATE"));
    code = store->ops->remove(store, "s", NULL);
    assert_true(code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN);
    assert_true(pg_kit_run("COMMIT"));
    while (pg_kit_number("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND "
                         "query LIKE '%blobs%.blob_%' AND pid <> pg_backend_pid()") > 0) {
    }
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs JOIN blobs.blob_pieces USING (tag)"), 1);
    assert_int_equal(store->ops->remove(store, "s", NULL), BELAY_OK);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs"), 0);
}

/* ---- an answer that is lost ---- */

struct lost_write {
    struct belay_blob_store *store;
    struct belay_blob_tag *tag;
    struct belay_error err;
    enum belay_code code;
};

static void *put_in_thread(void *context)
{
    struct lost_write *lost = context;

    lost->code = lost->store->ops->put_if(lost->store, "s", "new", 3, lost->tag, lost->tag, &lost->err);
    return NULL;
}

/* Its session is ended while it waits for the row, and then the function is gone, which undoes nothing (L5). */
static void a_write_whose_answer_was_lost_is_not_refused_by_a_later_failure(void **state)
{
    static const char blocked[] =
        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE "
        "'%blobs%.blob_put%' AND pid <> pg_backend_pid()";
    struct belay_blob_tag tag;
    struct lost_write lost = { .store = *state, .tag = &tag, .err = BELAY_ERROR_INIT };
    struct pg_conn *locker = NULL;
    pthread_t thread;

    assert_int_equal(put(lost.store, "s", "x", 1, NULL, &tag), BELAY_OK);
    assert_int_equal(pg_connect(kit.database, clock_boot_ms() + 60000, &locker, NULL), BELAY_OK);
    assert_int_equal(pg_conn_run(locker, "BEGIN; SELECT FROM blobs.blobs FOR UPDATE", NULL, NULL), BELAY_OK);
    assert_int_equal(pthread_create(&thread, NULL, put_in_thread, &lost), 0);
    while (pg_kit_number(blocked) <= 0) {
    }
    assert_true(pg_kit_run("ALTER FUNCTION blobs.blob_put RENAME TO blob_put_not"));
    assert_true(
        pg_kit_run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                   "AND query LIKE '%blobs%.blob_put%'"));
    (void)pthread_join(thread, NULL);
    assert_true(pg_kit_run("ALTER FUNCTION blobs.blob_put_not RENAME TO blob_put"));
    pg_conn_close(locker);
    assert_int_equal(lost.code, BELAY_UNKNOWN);
    assert_int_equal(lost.err.code, BELAY_UNKNOWN);
    assert_non_null(strstr(lost.err.text, "'s' may have been written: the database has no schema"));
    belay_error_release(&lost.err);
}

/* ---- a step of the server's clock ---- */

/* The lock is held for 40 s, the store has seen the server's time, and then it jumps by a minute. */
static void jump_under_the_lock(struct belay_blob_store *store)
{
    struct belay_blob_tag tag;

    assert_int_equal(put(store, "before", "x", 1, NULL, &tag), BELAY_OK);
    assert_true(grant("me", 5, 40000));
    assert_true(pg_kit_set_clock("blobs", 60000));
}

static int close_and_set_clock_back(void **state)
{
    bool done = pg_kit_set_clock("blobs", 0) && pg_kit_run("DELETE FROM blobs.clocks");

    return close_fresh(state) == 0 && done ? 0 : -1;
}

static void a_write_outlasts_a_step_of_the_clock(void **state)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_blob_tag tag;

    jump_under_the_lock(*state);
    assert_int_equal(put_held(*state, store_id, "me", 5, NULL, &tag, &err), BELAY_OK);
    assert_null(belay_error_holder(&err)); /* of the first answer nothing is left */
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs WHERE name = 's'"), 1);
    /* The whole lease again, and for others no chance to take the lock over. */
    assert_in_range(pg_kit_number("SELECT expires_ms - blobs.clock_ms() FROM blobs.locks"), 1000, 40000);
    belay_error_release(&err);
}

static void a_removal_outlasts_a_step_of_the_clock(void **state)
{
    struct belay_blob_store *store = *state;
    struct belay_blob_lock lock = { store_id, "k", "me", 5 };
    struct belay_error err = BELAY_ERROR_INIT;

    jump_under_the_lock(store);
    assert_int_equal(store->ops->remove_if_held(store, "before", &lock, &err), BELAY_OK);
    assert_null(belay_error_holder(&err));
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs"), 0);
    belay_error_release(&err);
}

/* The lease has begun again, and this store takes the time of its deadline from a clock of before the step. */
static void a_write_is_not_late_after_another_store_told_of_the_step(void **state)
{
    struct belay_blob_tag tag;

    jump_under_the_lock(*state);
    assert_true(pg_kit_run("SELECT blobs.clock_jumped(blobs.clock_ms())"));
    assert_int_equal(put_held(*state, store_id, "me", 5, NULL, &tag, NULL), BELAY_OK);
}

/* Nor by a step that is too small to be told of, but more than the call may take. */
static void a_write_is_not_late_by_a_clock_that_was_set(void **state)
{
    struct belay_blob_store *store = *state;
    struct pg_store *pg = ((struct pg_blobs *)store)->store;
    struct belay_blob_tag tag;

    assert_int_equal(put(store, "before", "x", 1, NULL, &tag), BELAY_OK);
    pg->clock_offset_ms -= 600000; /* and clock_most_ms stays: nothing has jumped */
    assert_int_equal(put(store, "s", "x", 1, NULL, &tag), BELAY_OK);
    assert_false(pg_has_jumped(pg));
}

static void a_removal_is_not_late_by_a_clock_that_was_set(void **state)
{
    struct belay_blob_store *store = *state;
    struct pg_store *pg = ((struct pg_blobs *)store)->store;
    struct belay_blob_tag tag;

    assert_int_equal(put(store, "before", "x", 1, NULL, &tag), BELAY_OK);
    pg->clock_offset_ms -= 600000;
    assert_int_equal(store->ops->remove(store, "before", NULL), BELAY_OK);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs"), 0);
    assert_false(pg_has_jumped(pg));
}

static void a_step_of_the_clock_gives_nobody_a_lock(void **state)
{
    struct belay_blob_store *store = *state;
    struct belay_blob_lock lock = { store_id, "k", "me", 4 };
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_blob_tag tag;

    jump_under_the_lock(store);
    assert_int_equal(put_held(store, store_id, "me", 4, NULL, &tag, &err), BELAY_NOT_HOLDER);
    assert_non_null(strstr(err.text, "is held by me with the token 5; our token is 4"));
    assert_true(pg_kit_set_clock("blobs", 120000));
    assert_int_equal(store->ops->remove_if_held(store, "before", &lock, &err), BELAY_NOT_HOLDER);
    assert_non_null(strstr(err.text, "is held by me with the token 5; our token is 4"));
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs"), 1);
    belay_error_release(&err);
}

/* Until then it is not known whether the lock is held. */
static void nothing_is_written_before_the_server_knows_of_a_step(void **state)
{
    struct belay_blob_store *store = *state;
    struct belay_blob_lock lock = { store_id, "k", "me", 5 };
    struct belay_blob_tag tag;

    jump_under_the_lock(store);
    assert_true(pg_kit_run("ALTER FUNCTION blobs.clock_jumped(bigint) RENAME TO clock_jumped_not"));
    assert_int_equal(put_held(store, store_id, "me", 5, NULL, &tag, NULL), BELAY_UNREACHABLE);
    assert_int_equal(store->ops->remove_if_held(store, "before", &lock, NULL), BELAY_UNREACHABLE);
    /* The step is known: no call is made, of whatever lock. */
    assert_int_equal(put(store, "other", "x", 1, NULL, &tag), BELAY_UNREACHABLE);
    assert_int_equal(store->ops->remove(store, "before", NULL), BELAY_UNREACHABLE);
    assert_true(pg_kit_run("ALTER FUNCTION blobs.clock_jumped_not(bigint) RENAME TO clock_jumped"));
    assert_int_equal(pg_kit_number("SELECT count(*) FROM blobs.blobs"), 1);
    assert_int_equal(put_held(store, store_id, "me", 5, NULL, &tag, NULL), BELAY_OK);
}

static int run_own(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces_of_a_replaced_or_removed_content_are_deleted, fresh,
                                        close_fresh),
        cmocka_unit_test_setup_teardown(the_upload_of_a_writer_that_died_is_deleted_after_an_hour, fresh,
                                        close_fresh),
        cmocka_unit_test_setup_teardown(a_content_without_all_its_pieces_is_not_put, fresh, close_fresh),
        cmocka_unit_test_setup_teardown(long_lists_come_in_pages, fresh, close_fresh),
        cmocka_unit_test_setup_teardown(a_write_needs_its_lock_with_its_id_and_token, fresh, close_fresh),
        cmocka_unit_test_setup_teardown(a_removal_needs_its_lock, fresh, close_fresh),
        cmocka_unit_test_setup_teardown(the_lock_of_another_store_is_not_looked_for, fresh, close_fresh),
        cmocka_unit_test_setup_teardown(a_lease_that_the_server_did_not_see_is_not_over_after_a_restart,
                                        fresh, close_fresh),
        cmocka_unit_test_setup_teardown(no_client_takes_the_lock_between_the_check_and_the_write, fresh,
                                        close_fresh),
        cmocka_unit_test_setup_teardown(a_removal_is_not_made_after_its_client_gave_up, fresh, close_fresh),
        cmocka_unit_test_setup_teardown(a_write_whose_answer_was_lost_is_not_refused_by_a_later_failure,
                                        fresh, close_fresh),
        cmocka_unit_test_setup_teardown(a_write_outlasts_a_step_of_the_clock, fresh,
                                        close_and_set_clock_back),
        cmocka_unit_test_setup_teardown(a_removal_outlasts_a_step_of_the_clock, fresh,
                                        close_and_set_clock_back),
        cmocka_unit_test_setup_teardown(a_write_is_not_late_after_another_store_told_of_the_step, fresh,
                                        close_and_set_clock_back),
        cmocka_unit_test_setup_teardown(a_write_is_not_late_by_a_clock_that_was_set, fresh,
                                        close_and_set_clock_back),
        cmocka_unit_test_setup_teardown(a_removal_is_not_late_by_a_clock_that_was_set, fresh,
                                        close_and_set_clock_back),
        cmocka_unit_test_setup_teardown(a_step_of_the_clock_gives_nobody_a_lock, fresh,
                                        close_and_set_clock_back),
        cmocka_unit_test_setup_teardown(nothing_is_written_before_the_server_knows_of_a_step, fresh,
                                        close_and_set_clock_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

static bool read_store_id(void)
{
    PGresult *result = NULL;
    bool done =
        pg_conn_run(kit.admin, "SELECT 'postgresql:' || store_id FROM blobs.meta", &result, NULL) == BELAY_OK;

    (void)snprintf(store_id, sizeof store_id, "%s", done ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return done;
}

int main(void)
{
    const struct blob_program program = { "postgresql", begin, end };
    int failed = pg_kit_start("blobs") && read_store_id() ? blob_suite_main(&program) + run_own() : 1;

    pg_kit_stop();
    return failed;
}
