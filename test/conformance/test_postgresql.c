/* The conformance suite on PostgreSQL, on a server of the test's own and a clock of the test's own. */
#include <stdio.h>

#include "conformance/postgresql_kit.h"
#include "support/suite_main.h"

static struct belay_store *open_store(void *ctx)
{
    (void)ctx;
    return pg_kit_open(kit.url, NULL);
}

static void advance(void *ctx, int64_t ms)
{
    char sql[96];

    (void)ctx;
    (void)snprintf(sql, sizeof sql, "UPDATE public.suite_clock SET ms = ms + %lld", (long long)ms);
    (void)pg_kit_run(sql);
}

/* What is less than an hour old is kept, whoever asks: the records are older. */
static void forget(void *ctx)
{
    (void)ctx;
    (void)pg_kit_run("UPDATE suite.locks SET freed_ms = 1, last_heartbeat_ms = 1 WHERE NOT held; "
                     "SELECT suite.forget(ms + 1, ms + 1, 10000) FROM public.suite_clock");
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
    return pg_kit_run(
        "DELETE FROM suite.locks; DELETE FROM suite.waiting; DELETE FROM suite.events; DELETE FROM "
        "suite.items; "
        "UPDATE public.suite_clock SET ms = 1730816000000");
}

static void end(void)
{
}

/* The clock of the schema becomes a row. */
static bool replace_clock(void)
{
    return pg_kit_run("SET client_min_messages = warning; CREATE TABLE public.suite_clock (ms bigint); "
                      "INSERT INTO public.suite_clock VALUES (1730816000000); "
                      "CREATE OR REPLACE FUNCTION suite.clock_ms() RETURNS bigint LANGUAGE sql VOLATILE "
                      "AS 'SELECT ms FROM public.suite_clock'");
}

int main(void)
{
    static const struct suite_program program = { "postgresql", begin, end };
    int failed = pg_kit_start("suite") && replace_clock() ? suite_main(&program) : 1;

    pg_kit_stop();
    return failed;
}
