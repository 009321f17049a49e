/* Shared by the tests of the SQLite store: a directory for each, and short forms of commits. */
#ifndef TEST_SQLITE_SUPPORT_H
#define TEST_SQLITE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "belay/store.h"
#include "store/sqlite/sqlite_store.h"

#define UNUSED __attribute__((unused))

/* A machine whose clocks only the test moves. */
struct machine {
    int64_t boot_ms;
    int64_t unix_ms;
    long fs_type;
    struct sqlite_hooks hooks;
};

struct place {
    char directory[64];
    char path[96];
    struct machine machine;
    struct belay_store *store;
    struct belay_error err;
};

static int64_t UNUSED machine_boot_ms(void *context)
{
    return ((struct machine *)context)->boot_ms;
}

static int64_t UNUSED machine_unix_ms(void *context)
{
    return ((struct machine *)context)->unix_ms;
}

static long UNUSED machine_fs_type(void *context, const char *path)
{
    (void)path;
    return ((struct machine *)context)->fs_type;
}

static int UNUSED place_make(void **state)
{
    struct place *place = calloc(1, sizeof *place);

    assert_non_null(place);
    (void)snprintf(place->directory, sizeof place->directory, "/tmp/belay-sqlite-XXXXXX");
    assert_non_null(mkdtemp(place->directory));
    (void)snprintf(place->path, sizeof place->path, "%s/belay.db", place->directory);
    place->machine.boot_ms = 1000000;
    place->machine.unix_ms = 1700000000000;
    place->machine.fs_type = 0xef53;
    place->machine.hooks = (struct sqlite_hooks){ .boot_id = "boot-1",
                                                  .boot_ms = machine_boot_ms,
                                                  .unix_ms = machine_unix_ms,
                                                  .fs_type = machine_fs_type,
                                                  .context = &place->machine };
    *state = place;
    return 0;
}

static int UNUSED place_remove(void **state)
{
    struct place *place = *state;
    char command[128];

    if (place->store != NULL) {
        place->store->ops->close(place->store);
    }
    belay_error_release(&place->err);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", place->directory);
    (void)!system(command);
    free(place);
    return 0;
}

static struct belay_store *UNUSED open_here(struct place *place)
{
    struct belay_store *store = NULL;

    if (sqlite_store_open(place->path, &place->machine.hooks, &store, NULL, &place->err) != BELAY_OK) {
        fail_msg("open: %s", place->err.text);
    }
    return store;
}

static void UNUSED reopen(struct place *place, const char *boot_id)
{
    if (place->store != NULL) {
        place->store->ops->close(place->store);
    }
    place->machine.hooks.boot_id = boot_id;
    place->store = open_here(place);
}

static int UNUSED place_open(void **state)
{
    (void)place_make(state);
    ((struct place *)*state)->store = open_here(*state);
    return 0;
}

/* ---- batches ---- */

static struct belay_record UNUSED holder(const char *lock_id, int64_t ttl_ms, bool durable)
{
    return (struct belay_record){ .lock_id = (char *)lock_id,
                                  .owner = (char *)"owner",
                                  .owner_name = (char *)"me@here",
                                  .ttl_ms = ttl_ms,
                                  .durable = durable };
}

static struct belay_event UNUSED event_of(const char *type, const char *key, const char *lock_id)
{
    return (struct belay_event){ .type = type,
                                 .key = key,
                                 .lock_id = lock_id,
                                 .token = BELAY_TOKEN_OF_BATCH,
                                 .locked_by = "owner",
                                 .duration_ms = -1 };
}

static enum belay_code UNUSED take_as(struct belay_store *store, const char *key, const char *lock_id,
                                      int64_t ttl_ms, bool durable, struct belay_commit *out)
{
    struct belay_record values = holder(lock_id, ttl_ms, durable);
    struct belay_event event = event_of("lock.acquired", key, lock_id);
    struct belay_write write = {
        .key = key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .events = &event, .n_events = 1 };

    return store->ops->commit(store, &batch, out, NULL);
}

/* Take a free lock and return the token; 0 if it could not be had. */
static uint64_t UNUSED take(struct belay_store *store, const char *key, const char *lock_id)
{
    struct belay_commit commit = { 0 };
    enum belay_code code = take_as(store, key, lock_id, 10000, false, &commit);
    uint64_t token = code == BELAY_OK ? commit.token : 0;

    belay_commit_release(&commit);
    return token;
}

static enum belay_code UNUSED give_back(struct belay_store *store, const char *key, const char *lock_id)
{
    struct belay_record values = { .outcome = BELAY_OUTCOME_COMPLETED };
    struct belay_event event = event_of("lock.released", key, lock_id);
    struct belay_write write = { .key = key,
                                 .condition = BELAY_IF_HELD_BY,
                                 .lock_id = lock_id,
                                 .set = BELAY_SET_RELEASED,
                                 .values = &values };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .events = &event, .n_events = 1 };
    struct belay_commit commit = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &commit, NULL);

    belay_commit_release(&commit);
    return code;
}

static enum belay_code UNUSED put_ticket(struct belay_store *store, const char *key, const char *lock_id)
{
    struct belay_put_ticket ticket = {
        .lock_id = lock_id, .key = key, .owner = "waiter", .owner_name = "w@here", .ttl_ms = 60000
    };
    struct belay_write write = { .key = key, .condition = BELAY_IF_ANY, .put_ticket = &ticket };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit commit = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &commit, NULL);

    belay_commit_release(&commit);
    return code;
}

static struct belay_record UNUSED look(struct belay_store *store, const char *key)
{
    struct belay_record record = { 0 };
    int64_t now_ms;

    assert_int_equal(store->ops->get(store, &key, 1, &record, &now_ms, NULL), BELAY_OK);
    return record;
}

/* Run SQL on the file from outside; the first column of the first row. */
static int64_t UNUSED outside(const struct place *place, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int64_t value = 0;

    assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 5000);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    if (sqlite3_step(statement) == SQLITE_ROW) {
        value = sqlite3_column_int64(statement, 0);
    }
    assert_int_equal(sqlite3_finalize(statement), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return value;
}

#endif
