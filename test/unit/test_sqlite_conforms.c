/* The conformance suite of the store port, on SQLite. */
#include "support/suite_main.h"
#include "test_sqlite_support.h"

#include "store/sqlite/sqlite_internal.h"

static void *place_state;

static struct place *here(void)
{
    return place_state;
}

static int64_t read_boot(void *context)
{
    return __atomic_load_n(&((struct machine *)context)->boot_ms, __ATOMIC_SEQ_CST);
}

static int64_t read_unix(void *context)
{
    return __atomic_load_n(&((struct machine *)context)->unix_ms, __ATOMIC_SEQ_CST);
}

static struct belay_store *open_store(void *ctx)
{
    struct belay_store *store = NULL;

    (void)ctx;
    return sqlite_store_open(here()->path, &here()->machine.hooks, &store, NULL, NULL) == BELAY_OK ? store
                                                                                                   : NULL;
}

static void advance(void *ctx, int64_t ms)
{
    (void)ctx;
    (void)__atomic_add_fetch(&here()->machine.boot_ms, ms, __ATOMIC_SEQ_CST);
    (void)__atomic_add_fetch(&here()->machine.unix_ms, ms, __ATOMIC_SEQ_CST);
}

/* All that cleaning up may take, at once. Only the wall clock goes on, so that no lease is over. */
static void forget(void *ctx)
{
    struct belay_store *store = open_store(ctx);

    (void)__atomic_add_fetch(&here()->machine.unix_ms, 400LL * 24 * 3600 * 1000, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 8; i++) {
        sqlite_sweep((struct sqlite_store *)store);
    }
    store->ops->close(store);
}

static bool begin(struct suite_fixture *out_fixture)
{
    (void)place_make(&place_state);
    here()->machine.hooks.boot_ms = read_boot;
    here()->machine.hooks.unix_ms = read_unix;
    *out_fixture = (struct suite_fixture){ .open = open_store,
                                           .advance = advance,
                                           .forget = forget,
                                           .keeps_events = true,
                                           .knows_used_ids = true,
                                           .clock_stands = true };
    return true;
}

static void end(void)
{
    (void)place_remove(&place_state);
}

int main(void)
{
    static const struct suite_program program = { "sqlite", begin, end };

    return suite_main(&program);
}
