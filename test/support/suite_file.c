#include "support/suite_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/directory.h"

static char directory[64];
static char path[128];
static int64_t now_ms;
static int64_t wall_offset_ms;
static struct belay_store *(*open_store)(void *ctx);

static int64_t read_clock(void *context)
{
    (void)context;
    return __atomic_load_n(&now_ms, __ATOMIC_SEQ_CST);
}

static int64_t read_wall_clock(void *context)
{
    return 1730816000000 + wall_offset_ms + read_clock(context);
}

const struct sqlite_hooks suite_file_clocks = { .boot_ms = read_clock, .unix_ms = read_wall_clock };

const char *suite_file_path(void)
{
    return path;
}

static void advance(void *ctx, int64_t ms)
{
    (void)ctx;
    (void)__atomic_add_fetch(&now_ms, ms, __ATOMIC_SEQ_CST);
}

/* By the wall clock two years go by, by the store's none; then enough happens for it to clean up. */
static void forget(void *ctx)
{
    struct belay_event event = {
        .type = "lock.acquired", .key = "busy", .lock_id = "busy", .duration_ms = -1
    };
    struct belay_batch batch = { .events = &event, .n_events = 1 };
    struct belay_store *store;

    wall_offset_ms += INT64_C(2) * 366 * 24 * 3600 * 1000;
    store = open_store(ctx);
    for (int i = 0; store != NULL && i < 1100; i++) {
        struct belay_commit done = { 0 };

        (void)store->ops->commit(store, &batch, &done, NULL);
        belay_commit_release(&done);
    }
    if (store != NULL) {
        store->ops->close(store);
    }
}

bool suite_file_begin(struct belay_store *(*open)(void *ctx), struct suite_fixture *out_fixture)
{
    (void)snprintf(directory, sizeof directory, "/tmp/belay-suite-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/locks.db", directory);
    now_ms = 1000000;
    wall_offset_ms = 0;
    open_store = open;
    *out_fixture = (struct suite_fixture){ .open = open,
                                           .advance = advance,
                                           .forget = forget,
                                           .keeps_events = true,
                                           .keeps_modes = true,
                                           .keeps_items = true,
                                           .keeps_freezes = true,
                                           .knows_used_ids = true,
                                           .clock_stands = true };
    return true;
}

void suite_file_end(void)
{
    directory_empty(directory);
    (void)rmdir(directory);
}
