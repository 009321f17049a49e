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
#include "store/postgresql/postgresql_internal.h"
#include "support/blob_suite.h"
#include "support/server.h"

enum { LARGE = (5 << 20) + 7 };

static struct server server;
static struct pg_conn *admin;
static char url[160];       /* of the database */
static char blobs_url[176]; /* of the schema in it */

static bool run(struct pg_conn *conn, const char *sql)
{
    struct belay_error err = BELAY_ERROR_INIT;
    bool done = pg_conn_run(conn, sql, NULL, &err) == BELAY_OK;

    if (!done) {
        (void)fprintf(stderr, "%s: %s\n", sql, err.text);
    }
    belay_error_release(&err);
    return done;
}

static long number(const char *sql)
{
    PGresult *result = NULL;
    long n =
        pg_conn_run(admin, sql, &result, NULL) == BELAY_OK ? strtol(PQgetvalue(result, 0, 0), NULL, 10) : -1;

    PQclear(result);
    return n;
}

static struct belay_blob_store *open_store(void *ctx)
{
    static const struct postgresql_options options = { .timeout_factor = 6 }; /* the machine may be busy */
    struct belay_blob_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;

    (void)ctx;
    if (postgresql_blob_open(blobs_url, &options, &store, NULL, &err) != BELAY_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        belay_error_release(&err);
    }
    return store;
}

static bool begin(struct blob_fixture *out_fixture)
{
    *out_fixture = (struct blob_fixture){ .open = open_store, .large = LARGE };
    return run(admin,
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
    assert_int_equal(number("SELECT count(*) FROM blobs.blob_pieces"), 6);
    assert_int_equal(put(store, "a", large, LARGE, &tag, &tag), BELAY_OK);
    assert_int_equal(number("SELECT count(*) FROM blobs.blob_pieces"), 6);
    assert_int_equal(put(store, "a", "x", 1, &tag, &tag), BELAY_OK);
    assert_int_equal(number("SELECT count(*) FROM blobs.blob_pieces"), 1);
    assert_int_equal(store->ops->remove(store, "a", NULL), BELAY_OK);
    assert_int_equal(number("SELECT count(*) FROM blobs.blob_pieces"), 0);
    assert_int_equal(number("SELECT count(*) FROM blobs.blob_uploads"), 0);
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
    assert_int_equal(number("SELECT count(*) FROM blobs.blobs, blobs.blob_upload(tag, 2, 'x')"), 1);
    assert_int_equal(number("SELECT count(*) FROM blobs.blob_uploads"), 0);
    assert_true(run(admin, "SELECT blobs.blob_upload('dead', 1, 'x'), blobs.blob_upload('alive', 1, 'x')"));
    assert_true(run(admin, "UPDATE blobs.blob_uploads SET at_ms = at_ms - 3600001 WHERE tag = 'dead'"));
    assert_int_equal(put(store, "b", large, LARGE, NULL, &tag), BELAY_OK);
    assert_int_equal(number("SELECT count(*) FROM blobs.blob_pieces WHERE tag = 'dead'"), 0);
    assert_int_equal(number("SELECT count(*) FROM blobs.blob_pieces WHERE tag = 'alive'"), 1);
    assert_int_equal(store->ops->get(store, "a", &blob, NULL), BELAY_OK);
    assert_int_equal(blob.len, LARGE);
    belay_blob_release(&blob);
    free(large);
}

static void a_content_without_all_its_pieces_is_not_put(void **state)
{
    (void)state;
    assert_int_equal(
        number("SELECT code FROM blobs.blob_put('n', 't', NULL, 9, 'x', 9223372036854775807, NULL, NULL, "
               "NULL, NULL)"),
        6);
    assert_true(run(admin, "SELECT blobs.blob_upload('t', 1, '1234567')"));
    assert_int_equal(
        number("SELECT code FROM blobs.blob_put('n', 't', NULL, 9, 'x', 9223372036854775807, NULL, NULL, "
               "NULL, NULL)"),
        6);
    assert_int_equal(
        number("SELECT code FROM blobs.blob_put('n', 't', NULL, 8, 'x', 9223372036854775807, NULL, NULL, "
               "NULL, NULL)"),
        0);
    assert_int_equal(
        number("SELECT code FROM blobs.blob_put('n', 't', 'other', 8, 'x', 0, NULL, NULL, NULL, NULL)"), 0);
    assert_int_equal(
        number("SELECT code FROM blobs.blob_put('n', 'u', 't', 1, 'x', 0, NULL, NULL, NULL, NULL)"), 4);
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

    assert_true(run(admin,
                    "INSERT INTO blobs.blobs SELECT 'd/' || lpad(n::text, 5, '0') || x, n || x, 0, 0 FROM "
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
    return run(admin, sql);
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
    assert_int_equal(number("SELECT count(*) FROM blobs.blobs"), 0);
    assert_int_equal(put_held(store, store_id, "me", 5, NULL, &tag, &err), BELAY_OK);
    assert_true(run(admin, "UPDATE blobs.locks SET expires_ms = blobs.clock_ms()"));
    assert_int_equal(put_held(store, store_id, "me", 5, &tag, &tag, &err), BELAY_NOT_HOLDER);
    assert_non_null(strstr(err.text, "its lease has expired"));
    assert_true(grant("me", 5, 60000) && run(admin, "UPDATE blobs.locks SET held = false"));
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
    assert_int_equal(number("SELECT count(*) FROM blobs.blobs"), 1);
    lock.store = "sqlite:another";
    assert_int_equal(store->ops->remove_if_held(store, "none", &lock, NULL), BELAY_OK);
    lock.store = store_id;
    assert_true(grant("me", 5, 60000));
    assert_int_equal(store->ops->remove_if_held(store, "s", &lock, NULL), BELAY_OK);
    assert_int_equal(number("SELECT count(*) FROM blobs.blobs"), 0);
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
        run(admin, "UPDATE blobs.locks SET expires_ms = 1; UPDATE blobs.meta SET server_start = 'epoch'"));
    assert_int_equal(put_held(*state, store_id, "me", 5, NULL, &tag, NULL), BELAY_OK);
}

/* Two connections: while the write is not committed nobody takes the lock, and while a take-over is not committed
 * nobody writes. */
static void no_client_takes_the_lock_between_the_check_and_the_write(void **state)
{
    struct pg_conn *writer = NULL;
    char sql[300];

    (void)state;
    assert_int_equal(pg_connect(url, clock_boot_ms() + 60000, &writer, NULL), BELAY_OK);
    assert_true(grant("me", 5, 60000));
    (void)snprintf(
        sql, sizeof sql,
        "BEGIN; SELECT blobs.blob_put('s', 'tag', NULL, 1, 'x', 9223372036854775807, '%s', 'k', 'me', 5)",
        store_id);
    assert_true(run(writer, sql));
    assert_true(run(admin, "SET lock_timeout = '200ms'"));
    assert_false(run(admin, "UPDATE blobs.locks SET lock_id = 'you', token = 6"));
    assert_true(run(writer, "COMMIT"));
    assert_true(run(admin, "UPDATE blobs.locks SET lock_id = 'you', token = 6; RESET lock_timeout"));
    pg_conn_close(writer);
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

static bool make_schema(void)
{
    struct belay_error err = BELAY_ERROR_INIT;
    PGresult *result = NULL;
    bool made;

    (void)snprintf(url, sizeof url, "postgresql://postgres@127.0.0.1:%d/postgres", server.port);
    (void)snprintf(blobs_url, sizeof blobs_url, "%s?schema=blobs", url);
    made = postgresql_schema_create(blobs_url, NULL, NULL, &err) == BELAY_OK &&
           pg_connect(url, INT64_MAX, &admin, &err) == BELAY_OK &&
           pg_conn_run(admin, "SELECT 'postgresql:' || store_id FROM blobs.meta", &result, &err) == BELAY_OK;
    (void)fprintf(stderr, "%s", err.text);
    belay_error_release(&err);
    if (made) {
        (void)snprintf(store_id, sizeof store_id, "%s", PQgetvalue(result, 0, 0));
    }
    PQclear(result);
    return made;
}

int main(void)
{
    const struct blob_program program = { "postgresql", begin, end };
    int failed = 1;

    if (server_start(&server, BELAY_SOURCE_DIR "/test/support/postgresql.py", NULL) && make_schema()) {
        failed = blob_suite_main(&program) + run_own();
    }
    pg_conn_close(admin);
    server_stop(&server);
    return failed;
}
