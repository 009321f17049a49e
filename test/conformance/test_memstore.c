/* The conformance suite on the store in memory that other tests use. */
#include "support/memstore.h"
#include "support/suite_main.h"

static struct memstore_data *data;
static int64_t now_ms;

static int64_t read_clock(void *ctx)
{
    (void)ctx;
    return __atomic_load_n(&now_ms, __ATOMIC_SEQ_CST);
}

static int64_t read_wall_clock(void *ctx)
{
    return 1730816000000 + read_clock(ctx);
}

static struct belay_store *open_store(void *ctx)
{
    (void)ctx;
    return memstore_open(data);
}

static void advance(void *ctx, int64_t ms)
{
    (void)ctx;
    (void)__atomic_add_fetch(&now_ms, ms, __ATOMIC_SEQ_CST);
}

static bool begin(struct suite_fixture *out_fixture)
{
    now_ms = 1000;
    data = memstore_data_new(read_clock, read_wall_clock, NULL);
    memstore_keep_items(data);
    *out_fixture = (struct suite_fixture){ .open = open_store,
                                           .advance = advance,
                                           .keeps_events = true,
                                           .keeps_modes = true,
                                           .keeps_items = true,
                                           .keeps_freezes = true,
                                           .knows_used_ids = true,
                                           .clock_stands = true };
    return true;
}

static void end(void)
{
    memstore_data_free(data);
}

int main(void)
{
    static const struct suite_program program = { "memstore", begin, end };

    return suite_main(&program);
}
