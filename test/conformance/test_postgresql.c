/* The conformance suite on PostgreSQL, on a server of the test's own and a clock of the test's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgresql/postgresql_internal.h"
#include "support/server.h"
#include "support/suite_main.h"

static struct server server;
static struct pg_conn *admin;
static char url[160];

static bool run(const char *sql)
{
    struct belay_error err = BELAY_ERROR_INIT;
    bool done = pg_conn_run(admin, sql, NULL, &err) == BELAY_OK;

    if (!done) {
        (void)fprintf(stderr, "%s\n", err.text);
    }
    belay_error_release(&err);
    return done;
}

static struct belay_store *open_store(void *ctx)
{
    static const struct postgresql_options options = { .timeout_factor = 6 }; /* the machine may be busy */
    struct belay_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    char *whole = NULL;

    (void)ctx;
    if (postgresql_store_open(url, &options, &store, &whole, &err) != BELAY_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        belay_error_release(&err);
        return NULL;
    }
    free(whole);
    return store;
}

static void advance(void *ctx, int64_t ms)
{
    char sql[96];

    (void)ctx;
    (void)snprintf(sql, sizeof sql, "UPDATE suite_clock SET ms = ms + %lld", (long long)ms);
    (void)run(sql);
}

static void forget(void *ctx)
{
    (void)ctx;
    (void)run("SELECT suite.forget(ms + 1, ms + 1, 10000) FROM suite_clock");
}

static bool begin(struct suite_fixture *out_fixture)
{
    *out_fixture = (struct suite_fixture){ .open = open_store,
                                           .advance = advance,
                                           .forget = forget,
                                           .clock_stands = true,
                                           .keeps_events = true,
                                           .keeps_items = true,
                                           .keeps_freezes = true,
                                           .knows_used_ids = true,
                                           .keeps_modes = true,
                                           .timeout_ms = 10000 };
    return run("DELETE FROM suite.locks; DELETE FROM suite.waiting; DELETE FROM suite.events; DELETE FROM "
               "suite.items; "
               "UPDATE suite_clock SET ms = 1730816000000");
}

static void end(void)
{
}

/* The clock of the schema becomes a row. */
static bool make_schema(void)
{
    struct belay_error err = BELAY_ERROR_INIT;
    bool made;

    (void)snprintf(url, sizeof url, "postgresql://postgres@127.0.0.1:%d/postgres", server.port);
    made = pg_connect(url, INT64_MAX, &admin, &err) == BELAY_OK;
    (void)snprintf(url, sizeof url, "postgresql://postgres@127.0.0.1:%d/postgres?schema=suite", server.port);
    made = made && postgresql_schema_create(url, NULL, NULL, &err) == BELAY_OK;
    (void)fprintf(stderr, "%s", err.text);
    belay_error_release(&err);
    return made && run("SET client_min_messages = warning; CREATE TABLE suite_clock (ms bigint); "
                       "INSERT INTO suite_clock VALUES (1730816000000); "
                       "CREATE OR REPLACE FUNCTION suite.clock_ms() RETURNS bigint LANGUAGE sql VOLATILE "
                       "AS 'SELECT ms FROM public.suite_clock'");
}

int main(void)
{
    static const struct suite_program program = { "postgresql", begin, end };
    int failed = 1;

    if (server_start(&server, BELAY_SOURCE_DIR "/test/support/postgresql.py", NULL) && make_schema()) {
        failed = suite_main(&program);
    }
    pg_conn_close(admin);
    server_stop(&server);
    return failed;
}
