#include "postgresql_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/server.h"

struct pg_kit kit;
static struct server server;

static bool say(enum belay_code code, const char *what, struct belay_error *err)
{
    if (code != BELAY_OK) {
        (void)fprintf(stderr, "%s: %s\n", what, err->text);
    }
    belay_error_release(err);
    return code == BELAY_OK;
}

bool pg_kit_start(const char *schema)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (!server_start(&server, BELAY_SOURCE_DIR "/test/support/postgresql.py", NULL)) {
        return false;
    }
    (void)snprintf(kit.database, sizeof kit.database, "postgresql://postgres@127.0.0.1:%d/postgres",
                   server.port);
    (void)snprintf(kit.url, sizeof kit.url, "%s?schema=%s", kit.database, schema);
    return say(postgresql_schema_create(kit.url, NULL, NULL, &err), kit.url, &err) &&
           say(pg_connect(kit.database, INT64_MAX, &kit.admin, &err), kit.database, &err);
}

void pg_kit_stop(void)
{
    pg_conn_close(kit.admin);
    server_stop(&server);
}

bool pg_kit_run(const char *sql)
{
    struct belay_error err = BELAY_ERROR_INIT;

    return say(pg_conn_run(kit.admin, sql, NULL, &err), sql, &err);
}

int64_t pg_kit_number(const char *sql)
{
    struct belay_error err = BELAY_ERROR_INIT;
    PGresult *result = NULL;
    bool done = say(pg_conn_run(kit.admin, sql, &result, &err), sql, &err);
    int64_t number = done && PQntuples(result) == 1 ? pg_number(result, 0, 0) : -1;

    PQclear(result);
    return number;
}

bool pg_kit_set_clock(const char *schema, int64_t ahead_ms)
{
    char sql[256];

    (void)snprintf(sql, sizeof sql,
                   "CREATE OR REPLACE FUNCTION %s.clock_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$ "
                   "SELECT floor(date_part('epoch', clock_timestamp()) * 1000)::bigint + %lld $$",
                   schema, (long long)ahead_ms);
    return pg_kit_run(sql);
}

struct belay_store *pg_kit_open(const char *url, const struct postgresql_options *options)
{
    static const struct postgresql_options patient = { .timeout_factor = 6 };
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_store *store = NULL;
    char *whole = NULL;

    (void)say(postgresql_store_open(url, options == NULL ? &patient : options, &store, &whole, &err), url,
              &err);
    free(whole);
    if (store != NULL) {
        pg_of(store)->commits = 0; /* by chance it would have to delete old events, with a call of its own */
    }
    return store;
}

void pg_kit_commit(struct belay_store *store, const struct belay_write *write)
{
    struct belay_batch batch = { .writes = write, .n_writes = 1 };
    struct belay_commit out = { 0 };

    assert_int_equal(store->ops->commit(store, &batch, &out, NULL), BELAY_OK);
    belay_commit_release(&out);
}

void pg_kit_take(struct belay_store *store, const char *key, const char *lock_id, int64_t ttl_ms)
{
    struct belay_record values = {
        .lock_id = (char *)lock_id, .owner = (char *)"o", .owner_name = (char *)"n", .ttl_ms = ttl_ms
    };

    pg_kit_commit(store,
                  &(struct belay_write){
                      .key = key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values });
}

void pg_kit_queue(struct belay_store *store, const char *key, const char *lock_id, int64_t ttl_ms)
{
    struct belay_put_ticket put = {
        .lock_id = lock_id, .key = key, .owner = "o", .owner_name = "n", .ttl_ms = ttl_ms
    };

    pg_kit_commit(store,
                  &(struct belay_write){ .key = key, .condition = BELAY_IF_OCCUPIED, .put_ticket = &put });
}
