/*
 * What is left of a server that was killed: its journal, whole, cut short at any
 * place, damaged, brought in twice, or in two goes; and a disk that is full.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "store/apply/journal.h"
#include "store/journaled/journaled_internal.h"
#include "store/sqlite/sqlite_internal.h"
#include "support/directory.h"

enum { STEPS = 12, KEYS = 3, SECTOR = JOURNAL_SECTOR };

static char directory[64];
static char path[96];
static char journal_file[128];

/* The state after each sync. */
struct state {
    struct {
        bool held;
        uint64_t token;
    } keys[KEYS];
    uint64_t last_token;
    size_t n_events;
};
static struct state states[STEPS + 1];

static struct belay_store *open_ledger_of(size_t journal_bytes, bool no_checkpoint)
{
    const struct journaled_hooks hooks = { .journal_bytes = journal_bytes, .no_checkpoint = no_checkpoint };
    struct belay_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;

    if (journaled_store_open(path, &hooks, NULL, NULL, &store, NULL, NULL, &err) != BELAY_OK) {
        fail_msg("%s", err.text);
    }
    return store;
}

static struct belay_store *open_ledger(bool no_checkpoint)
{
    return open_ledger_of(1 << 20, no_checkpoint);
}

static enum belay_code sync_all(struct belay_store *store)
{
    return store->ops->sync == NULL ? BELAY_OK
                                    : store->ops->sync(store, store->ops->committed_lsn(store), NULL);
}

static struct belay_store *open_sqlite(enum belay_code wanted)
{
    struct belay_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = sqlite_store_open(path, NULL, &store, NULL, &err);

    if (code != wanted) {
        fail_msg("%d: %s", (int)code, err.text);
    }
    belay_error_release(&err);
    return store;
}

static const char *key_name(size_t i)
{
    static const char *const names[KEYS] = { "a", "b", "c" };

    return names[i];
}

/* Acquire or release one of the keys: returns the code, *out_token after an acquire. */
static enum belay_code change(struct belay_store *store, size_t step, uint64_t *out_token)
{
    char id[16], old[16];
    struct belay_record values = { .lock_id = id,
                                   .owner = "o",
                                   .owner_name = "n",
                                   .ttl_ms = 600000,
                                   .durable = true,
                                   .outcome = BELAY_OUTCOME_COMPLETED };
    struct belay_event event = {
        .type = "lock.acquired", .key = key_name(step % KEYS), .lock_id = id, .duration_ms = -1
    };
    struct belay_write write = {
        .key = event.key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .events = &event, .n_events = 1 };
    struct belay_commit done = { 0 };
    enum belay_code code;

    (void)snprintf(id, sizeof id, "id-%zu", step);
    (void)snprintf(old, sizeof old, "id-%zu", step - KEYS);
    if (step / KEYS % 2 == 1) {
        write.condition = BELAY_IF_HELD_BY;
        write.lock_id = event.lock_id = old;
        write.set = BELAY_SET_RELEASED;
        event.type = "lock.released";
    }
    code = store->ops->commit(store, &batch, &done, NULL);
    *out_token = done.token;
    belay_commit_release(&done);
    return code;
}

static bool count_event(void *context, const struct belay_event *event)
{
    (void)event;
    ++*(size_t *)context;
    return true;
}

static struct state look(struct belay_store *store)
{
    struct state state = { 0 };
    struct belay_events_query all = { 0 };
    int64_t now_ms;

    for (size_t i = 0; i < KEYS; i++) {
        struct belay_record record = { 0 };
        const char *key = key_name(i);

        assert_int_equal(store->ops->get(store, &key, 1, &record, &now_ms, NULL), BELAY_OK);
        state.keys[i].held = record.held;
        state.keys[i].token = record.token;
        state.last_token = record.token > state.last_token ? record.token : state.last_token;
        belay_record_release(&record);
    }
    assert_int_equal(store->ops->events(store, &all, count_event, &state.n_events, NULL), BELAY_OK);
    return state;
}

static void expect(const struct state *got, const struct state *wanted)
{
    for (size_t i = 0; i < KEYS; i++) {
        assert_int_equal(got->keys[i].held, wanted->keys[i].held);
        assert_int_equal(got->keys[i].token, wanted->keys[i].token);
    }
    assert_int_equal(got->n_events, wanted->n_events);
}

/* A server does STEPS changes, each synced, and is killed. */
static void run_and_die(void)
{
    struct belay_store *store = open_ledger(true);
    uint64_t token;

    states[0] = look(store);
    for (size_t i = 0; i < STEPS; i++) {
        assert_int_equal(change(store, i, &token), BELAY_OK);
        assert_int_equal(sync_all(store), BELAY_OK);
        states[i + 1] = look(store);
    }
    store->ops->close(store);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof directory, "/tmp/belay-ledger-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/locks.db", directory);
    (void)snprintf(journal_file, sizeof journal_file, "%s-ledger-0", path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    directory_empty(directory);
    return rmdir(directory);
}

/* ---- the files, put back as they were ---- */

static void copy(const char *from, const char *to)
{
    char command[512];

    (void)snprintf(command, sizeof command, "cp -p %s %s", from, to);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void keep_files(void)
{
    char command[512];

    (void)snprintf(command, sizeof command, "cd %s && for f in locks.db*; do cp -p $f kept-$f; done",
                   directory);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void put_files_back(void)
{
    char command[512];

    (void)snprintf(command, sizeof command,
                   "cd %s && rm -f locks.db* && for f in kept-*; do cp -p $f ${f#kept-}; done", directory);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void overwrite(size_t at, const void *data, size_t len)
{
    int fd = open(journal_file, O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, len, (off_t)at), (ssize_t)len);
    (void)close(fd);
}

static void flip(size_t at)
{
    unsigned char byte;
    int fd = open(journal_file, O_RDONLY | O_CLOEXEC);

    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    (void)close(fd);
    byte ^= 0x40;
    overwrite(at, &byte, 1);
}

/* ---- the tests ---- */

static void synced_changes_are_found_by_the_next_open(void **state)
{
    struct belay_store *store;
    struct state got;

    (void)state;
    run_and_die();
    store = open_sqlite(BELAY_OK);
    got = look(store);
    expect(&got, &states[STEPS]);
    store->ops->close(store);
    assert_int_not_equal(access(journal_file, F_OK), 0);
}

/* Each of the changes is one frame of one sector here. */
static void a_journal_cut_short_anywhere_keeps_every_whole_frame(void **state)
{
    static const char zeros[(STEPS + 1) * SECTOR];

    (void)state;
    run_and_die();
    keep_files();
    for (size_t cut = SECTOR; cut <= (STEPS + 1) * SECTOR; cut += cut % SECTOR == SECTOR - 37 ? 37 : 95) {
        size_t whole = cut / SECTOR - 1;
        struct belay_store *store;
        struct state got;
        uint64_t token = 0;

        put_files_back();
        overwrite(cut, zeros, (STEPS + 1) * SECTOR - cut + 8);
        store = open_sqlite(BELAY_OK);
        got = look(store);
        /* The end of a frame is zeros: a cut in there takes nothing away. */
        expect(&got, got.n_events == whole + 1 && whole < STEPS ? &states[whole + 1] : &states[whole]);
        /* L2: new tokens are higher than every acknowledged one. */
        assert_int_equal(change(store, got.n_events, &token), BELAY_OK);
        assert_true(token == 0 || token > states[whole].last_token);
        store->ops->close(store);
    }
}

static void damage_in_the_middle_is_an_error_and_changes_nothing(void **state)
{
    (void)state;
    run_and_die();
    keep_files();
    for (size_t frame = 1; frame < STEPS; frame++) {
        put_files_back();
        flip(frame * SECTOR + 50);
        assert_null(open_sqlite(BELAY_BAD_CONTENT));
        assert_int_equal(access(journal_file, F_OK), 0);
    }
    put_files_back();
    flip(20); /* in the head of the file */
    assert_null(open_sqlite(BELAY_BAD_CONTENT));
    /* Put right, it is all there. */
    put_files_back();
    {
        struct belay_store *store = open_sqlite(BELAY_OK);
        struct state got = look(store);

        expect(&got, &states[STEPS]);
        store->ops->close(store);
    }
}

static void the_last_frame_may_be_torn(void **state)
{
    struct belay_store *store;
    struct state got;

    (void)state;
    run_and_die();
    flip(STEPS * SECTOR + 50);
    store = open_sqlite(BELAY_OK);
    got = look(store);
    expect(&got, &states[STEPS - 1]);
    store->ops->close(store);
}

/* The replay may be killed after any of its transactions; the next one starts over. */
static void replaying_a_journal_can_be_interrupted_and_repeated(void **state)
{
    struct belay_store *ledger = open_ledger(true);
    struct sqlite_store *db = ((struct journaled *)ledger)->checkpoint_db;
    char kept[128], part_file[96];
    uint64_t token;

    (void)state;
    for (size_t i = 0; i < STEPS; i++) {
        states[i] = look(ledger);
        assert_int_equal(change(ledger, i, &token), BELAY_OK);
        assert_int_equal(sync_all(ledger), BELAY_OK);
    }
    states[STEPS] = look(ledger);
    (void)snprintf(kept, sizeof kept, "%s", journal_file);
    (void)snprintf(part_file, sizeof part_file, "%s/part", directory);
    for (size_t part = 0; part <= STEPS; part++) {
        static const char zeros[SECTOR];
        struct journal journal = { .path = part_file, .fd = -1 };
        struct state got;

        copy(kept, part_file);
        (void)snprintf(journal_file, sizeof journal_file, "%s", part_file);
        for (size_t i = part; i < STEPS; i++) {
            overwrite((i + 1) * SECTOR, zeros, sizeof zeros);
        }
        assert_int_equal(journal_open(&journal, NULL), BELAY_OK);
        assert_int_equal(sqlite_replay(db, &journal, NULL, NULL, NULL), BELAY_OK);
        journal_close(&journal);
        got = look(&db->base);
        expect(&got, &states[part]);
    }
    ledger->ops->close(ledger);
}

/* ---- a journal that is lost ---- */

static int64_t epoch(void *context)
{
    (void)context;
    return 1;
}

/* A token granted now, for a new key. */
static uint64_t take_token(struct belay_store *store)
{
    static int n;
    char key[32], id[32];
    struct belay_record values = { .lock_id = id, .owner = "o", .owner_name = "n", .ttl_ms = 1000 };
    struct belay_event event = { .type = "lock.acquired", .key = key, .lock_id = id, .duration_ms = -1 };
    struct belay_write write = {
        .key = key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .events = &event, .n_events = 1 };
    struct belay_commit done = { 0 };
    uint64_t token;

    (void)snprintf(key, sizeof key, "new-%d", ++n);
    (void)snprintf(id, sizeof id, "new-id-%d", n);
    assert_int_equal(store->ops->commit(store, &batch, &done, NULL), BELAY_OK);
    assert_int_equal(sync_all(store), BELAY_OK);
    token = done.token;
    belay_commit_release(&done);
    return token;
}

/* The refusal says what to do; doing it continues above every token (L2). */
static void expect_loss_and_repair(const char *words)
{
    struct belay_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    const struct journaled_hooks hooks = { .no_checkpoint = true };
    bool lost = false;
    char command[160];

    assert_int_equal(sqlite_store_open(path, NULL, &store, NULL, &err), BELAY_BAD_CONTENT);
    (void)snprintf(command, sizeof command, "belay repair --accept-loss --store sqlite:%s", path);
    if (strstr(err.text, words) == NULL || strstr(err.text, command) == NULL) {
        fail_msg("'%s' does not say '%s' and '%s'", err.text, words, command);
    }
    belay_error_release(&err);
    assert_int_equal(journaled_store_open(path, &hooks, NULL, NULL, &store, NULL, NULL, NULL),
                     BELAY_BAD_CONTENT);
    assert_int_equal(sqlite_store_repair(path, NULL, &lost, NULL), BELAY_OK);
    assert_true(lost);
    store = open_sqlite(BELAY_OK);
    assert_true(take_token(store) > states[STEPS].last_token);
    store->ops->close(store);
    assert_int_not_equal(access(journal_file, F_OK), 0);
}

static void a_damaged_journal_is_discarded_only_on_request_L2(void **state)
{
    struct belay_store *store;
    struct state got;

    (void)state;
    run_and_die();
    flip(7 * SECTOR + 50);
    expect_loss_and_repair("is damaged in its middle");
    /* Locks from before the damage are there, held for their whole ttl. */
    store = open_sqlite(BELAY_OK);
    got = look(store);
    assert_true(got.n_events >= 6);
    store->ops->close(store);
}

/* The file has all its room from the start: one that is shorter is no torn write. */
static void a_truncated_journal_is_reported_L2(void **state)
{
    struct belay_store *store;
    struct state got;

    (void)state;
    run_and_die();
    assert_int_equal(truncate(journal_file, (off_t)8 * SECTOR), 0);
    expect_loss_and_repair("was cut short");
    store = open_sqlite(BELAY_OK);
    got = look(store);
    assert_true(got.n_events >= 7); /* what was left of it */
    store->ops->close(store);
}

static void a_journal_that_was_moved_away_is_reported_missing_L2(void **state)
{
    char aside[160];

    (void)state;
    run_and_die();
    (void)snprintf(aside, sizeof aside, "%s/aside", directory);
    assert_int_equal(rename(journal_file, aside), 0);
    expect_loss_and_repair("is missing");
}

static void the_journal_of_another_database_is_reported_L2(void **state)
{
    char own_path[96], other[160];

    (void)state;
    run_and_die();
    memcpy(own_path, path, sizeof path);
    (void)snprintf(path, sizeof path, "%s/other.db", directory);
    run_and_die();
    (void)snprintf(other, sizeof other, "%s-ledger-0", path);
    memcpy(path, own_path, sizeof path);
    copy(other, journal_file);
    expect_loss_and_repair("belongs to another database");
}

/* It looks as if the last frames had never been written: that is not detected, but no token is repeated. */
static void an_older_copy_of_a_journal_lowers_no_token_L2(void **state)
{
    struct belay_store *store = open_ledger(true);
    char older[160];
    uint64_t token = 0;

    (void)state;
    (void)snprintf(older, sizeof older, "%s/older", directory);
    for (size_t i = 0; i < STEPS; i++) {
        uint64_t got;

        assert_int_equal(change(store, i, &got), BELAY_OK);
        assert_int_equal(sync_all(store), BELAY_OK);
        token = got > token ? got : token;
        if (i == 2) {
            copy(journal_file, older);
        }
    }
    store->ops->close(store);
    copy(older, journal_file);
    store = open_sqlite(BELAY_OK);
    assert_true(take_token(store) > token);
    store->ops->close(store);
}

static void an_older_copy_of_a_journal_is_reported_L2(void **state)
{
    struct belay_store *store = open_ledger_of(64 << 10, false);
    struct journaled *ledger = (struct journaled *)store;
    char older[160];
    uint64_t token;

    (void)state;
    (void)snprintf(older, sizeof older, "%s/older", directory);
    copy(journal_file, older);
    for (bool is_there = false; !is_there;) {
        token = take_token(store);
        assert_true(token < 1000000);
        (void)pthread_mutex_lock(&ledger->mutex);
        is_there = ledger->active == 0 && ledger->journals[0].use == 3;
        (void)pthread_mutex_unlock(&ledger->mutex);
    }
    states[STEPS].last_token = take_token(store);
    journaled_stop_thread(ledger);
    ledger->no_checkpoint = true;
    store->ops->close(store);
    copy(older, journal_file);
    expect_loss_and_repair("is an older copy");
}

/* The server grants no token above the ceiling on disk, however many it grants. */
static void tokens_of_a_server_stay_below_the_ceiling_L2(void **state)
{
    const struct sqlite_hooks sqlite = { .numbers_ahead = 20 };
    const struct journaled_hooks hooks = { .sqlite = &sqlite,
                                           .journal_bytes = 1 << 20,
                                           .no_checkpoint = true };
    struct belay_store *store = NULL;
    uint64_t token = 0;

    (void)state;
    assert_int_equal(journaled_store_open(path, &hooks, NULL, NULL, &store, NULL, NULL, NULL), BELAY_OK);
    for (int i = 0; i < 100; i++) {
        token = take_token(store);
    }
    assert_true(token > 100);
    store->ops->close(store);
    assert_int_equal(unlink(journal_file), 0);
    states[STEPS].last_token = token;
    {
        /* Without the clock's help. */
        struct sqlite_hooks no_clock = { .unix_ms = epoch };
        bool lost = false;

        assert_int_equal(sqlite_store_repair(path, &no_clock, &lost, NULL), BELAY_OK);
        assert_true(lost);
        store = open_sqlite(BELAY_OK);
        assert_true(take_token(store) > token);
        store->ops->close(store);
    }
}

/* A batch without an event takes a number, and the sweep after it another one: both are below the ceiling. */
static void a_sweep_takes_a_number_below_the_ceiling_L2(void **state)
{
    struct belay_store *store = open_ledger(true);
    struct journaled *journaled = (struct journaled *)store;
    struct belay_put_ticket ticket = {
        .lock_id = "w", .key = "z", .owner = "o", .owner_name = "n", .ttl_ms = 1
    };
    struct belay_write write = { .key = "z", .put_ticket = &ticket };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit done = { 0 };
    uint64_t token = 0;

    (void)state;
    for (size_t i = 0; i < 2 * (size_t)KEYS; i++) {
        assert_int_equal(change(store, i, &token), BELAY_OK);
    }
    assert_int_equal(sync_all(store), BELAY_OK);
    journaled->read_db->retain_records_ms = -1000; /* they are old enough to go */
    journaled->next = SWEEP_EVERY - 1;
    atomic_store(&journaled->committed, journaled->next - 1);
    atomic_store(&journaled->durable, journaled->next - 1);
    journaled->ceiling = SWEEP_EVERY;
    assert_int_equal(store->ops->commit(store, &batch, &done, NULL), BELAY_OK);
    belay_commit_release(&done);
    assert_int_equal(journaled->next, SWEEP_EVERY + 1); /* the sweep has removed some */
    assert_true(journaled->next <= journaled->ceiling);
    store->ops->close(store);
}

static void a_clean_stop_leaves_nothing_to_repair(void **state)
{
    struct belay_store *store = open_ledger(false);
    uint64_t token, again;
    bool lost = true;

    (void)state;
    token = take_token(store);
    store->ops->close(store);
    store = open_sqlite(BELAY_OK);
    again = take_token(store);
    assert_true(again > token && again < token + 10);
    store->ops->close(store);
    assert_int_equal(sqlite_store_repair(path, NULL, &lost, NULL), BELAY_OK);
    assert_false(lost);
}

/* SQLite's own log is part of the database; without it locks are lost, but tokens do not go back. */
static void a_removed_log_lowers_no_token_L2(void **state)
{
    struct belay_store *store = open_sqlite(BELAY_OK);
    char log[160];
    uint64_t token = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        token = take_token(store);
    }
    store->ops->close(store);
    (void)snprintf(log, sizeof log, "%s-wal", path);
    assert_int_equal(unlink(log), 0);
    (void)snprintf(log, sizeof log, "%s-shm", path);
    (void)unlink(log);
    store = open_sqlite(BELAY_OK);
    assert_true(take_token(store) > token);
    store->ops->close(store);
}

/* ---- and the rest ---- */

static void a_restarted_server_continues_after_a_killed_one(void **state)
{
    struct belay_store *store;
    struct state got;

    (void)state;
    run_and_die();
    store = open_ledger(true);
    got = look(store);
    expect(&got, &states[STEPS]);
    store->ops->close(store);
}

static void commit_holder(struct belay_store *store, const char *lock_id, unsigned set, const char *new_id)
{
    struct belay_meta metadata[] = { { "branch", "main" } };
    struct belay_record values = { .lock_id = (char *)new_id,
                                   .owner = (char *)new_id,
                                   .owner_name = "n",
                                   .metadata = metadata,
                                   .n_metadata = 1,
                                   .ttl_ms = 600000,
                                   .mode = BELAY_SLOTS,
                                   .slots = 5,
                                   .outcome = BELAY_OUTCOME_COMPLETED };
    const char *drops[] = { "dropped" };
    struct belay_put_ticket ticket = { .lock_id = "waiter",
                                       .key = "a",
                                       .owner = "o",
                                       .owner_name = "n",
                                       .ttl_ms = 600000,
                                       .mode = BELAY_SLOTS,
                                       .slots = 5,
                                       .joint = true };
    struct belay_write write = { .key = "a",
                                 .lock_id = lock_id,
                                 .set = set,
                                 .values = &values,
                                 .co_holder = true,
                                 .drop_holders = drops,
                                 .n_drop_holders = strcmp(new_id, "drops") == 0,
                                 .put_ticket = &ticket };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit done = { 0 };

    assert_int_equal(store->ops->commit(store, &batch, &done, NULL), BELAY_OK);
    belay_commit_release(&done);
}

static void pack_one(struct belay_store *store, struct buf *to)
{
    struct belay_record record = { 0 };
    const char *key = "a";
    int64_t now_ms;

    assert_int_equal(store->ops->get(store, &key, 1, &record, &now_ms, NULL), BELAY_OK);
    assert_int_equal(record.n_tickets, 1);
    record.tickets[0].expires_ms = 0; /* whoever opens the file limits it */
    record_pack(to, &record);
    assert_false(to->failed);
    belay_record_release(&record);
}

static void a_record_in_memory_keeps_times_of_any_size(void **state)
{
    static const int64_t times[] = { 0, 1, -1, 1700000000000, INT64_MAX, INT64_MIN };
    const size_t n = sizeof times / sizeof times[0];

    (void)state;
    for (size_t i = 0; i < n * n; i++) {
        struct belay_record record = { .lock_id = "id", .owner = "o", .owner_name = "O", .acquired_by = "" };
        struct buf packed = BUF_INIT(1 << 16);
        struct row row;

        record.expires_ms = record.freed_at_unix_ms = times[i / n];
        record.last_heartbeat_ms = record.locked_at_unix_ms = times[i % n];
        record.freed_ms = record.expires_at_unix_ms = record.last_heartbeat_unix_ms = times[i / n];
        record_pack(&packed, &record);
        assert_int_equal(record_unpack("k", packed.data, packed.len, &row, NULL), BELAY_OK);
        assert_true(
            row.record.expires_ms == times[i / n] && row.record.freed_ms == times[i / n] &&
            row.record.last_heartbeat_ms == times[i % n] && row.record.locked_at_unix_ms == times[i % n] &&
            row.record.expires_at_unix_ms == times[i / n] &&
            row.record.last_heartbeat_unix_ms == times[i / n] && row.record.freed_at_unix_ms == times[i / n]);
        row_release(&row);
        buf_release(&packed);
    }
}

static struct belay_ticket a_ticket(const char *lock_id, const char *key, const char *acquired_by)
{
    return (struct belay_ticket){ .lock_id = (char *)lock_id,
                                  .key = (char *)key,
                                  .owner = "o",
                                  .owner_name = "a name",
                                  .acquired_by = (char *)acquired_by,
                                  .seq = UINT64_MAX - strlen(lock_id),
                                  .since_unix_ms = INT64_MIN,
                                  .expires_ms = INT64_MAX,
                                  .mode = BELAY_SLOTS,
                                  .slots = 5,
                                  .joint = acquired_by != NULL };
}

static void unpack_queue(const struct belay_record *record, struct row *out_row)
{
    struct buf packed = BUF_INIT(1 << 16);

    record_pack(&packed, record);
    assert_false(packed.failed);
    assert_int_equal(record_unpack("k", packed.data, packed.len, out_row, NULL), BELAY_OK);
    buf_release(&packed);
}

static void expect_ticket(const struct belay_ticket *got, const char *lock_id, const char *key,
                          const char *acquired_by)
{
    struct belay_ticket made = a_ticket(lock_id, key, acquired_by);

    assert_string_equal(got->lock_id, lock_id);
    assert_string_equal(got->key, key);
    assert_string_equal(got->owner, made.owner);
    assert_string_equal(got->owner_name, made.owner_name);
    assert_int_equal(got->acquired_by == NULL, acquired_by == NULL);
    assert_string_equal(acquired_by == NULL ? "" : got->acquired_by, acquired_by == NULL ? "" : acquired_by);
    assert_true(got->seq == made.seq && got->since_unix_ms == made.since_unix_ms &&
                got->expires_ms == made.expires_ms && got->mode == made.mode && got->slots == made.slots &&
                got->joint == made.joint && !got->dead);
}

/* Tickets that were read go on as they are, in pieces, beside new ones: of the lock's own key and of others. */
static void a_queue_in_memory_stays_the_same_when_tickets_come_and_go(void **state)
{
    struct belay_ticket tickets[] = { a_ticket("first", "k", "ci"), a_ticket("2nd", "k:below", NULL),
                                      a_ticket("third", "k", ""), a_ticket("4", "k", NULL) };
    struct belay_record record = { .key = "k",
                                   .lock_id = "id",
                                   .owner = "o",
                                   .owner_name = "O",
                                   .acquired_by = "",
                                   .tickets = tickets,
                                   .n_tickets = 4 };
    struct row first;
    struct row second;

    (void)state;
    unpack_queue(&record, &first);
    assert_int_equal(first.record.n_tickets, 4);
    tickets[0] = first.record.tickets[1];
    tickets[1] = a_ticket("new", "k", "");
    tickets[2] = first.record.tickets[2];
    tickets[3] = first.record.tickets[3];
    first.record.n_tickets = 4;
    memcpy(first.record.tickets, tickets, sizeof tickets);
    unpack_queue(&first.record, &second);
    first.record.tickets[1] = first.record.tickets[0]; /* "new" is not to be freed */
    assert_int_equal(second.record.n_tickets, 4);
    expect_ticket(&second.record.tickets[0], "2nd", "k:below", NULL);
    expect_ticket(&second.record.tickets[1], "new", "k", "");
    expect_ticket(&second.record.tickets[2], "third", "k", "");
    expect_ticket(&second.record.tickets[3], "4", "k", NULL);
    row_release(&first);
    row_release(&second);
}

/* Every kind of write about one of several holders gives the same record again. */
static void a_killed_server_leaves_every_holder_in_its_journal(void **state)
{
    struct belay_store *store = open_ledger(true);
    struct buf packed[3] = { BUF_INIT(1 << 16), BUF_INIT(1 << 16), BUF_INIT(1 << 16) };

    (void)state;
    commit_holder(store, NULL, BELAY_SET_HOLDER, "one");
    commit_holder(store, NULL, BELAY_SET_HOLDER, "dropped");
    commit_holder(store, NULL, BELAY_SET_HOLDER, "two");
    commit_holder(store, NULL, BELAY_SET_HOLDER, "three");
    commit_holder(store, "two", BELAY_SET_LEASE, "");
    commit_holder(store, "one", BELAY_SET_RELEASED, "");
    commit_holder(store, "two", BELAY_SET_IDENTITY, "heir");
    commit_holder(store, "three", BELAY_SET_STALE_REPORTED, "drops");
    assert_int_equal(sync_all(store), BELAY_OK);
    pack_one(store, &packed[0]);
    store->ops->close(store);

    store = open_ledger(true);
    pack_one(store, &packed[1]);
    store->ops->close(store);
    store = open_sqlite(BELAY_OK);
    pack_one(store, &packed[2]);
    store->ops->close(store);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(packed[i].len, packed[0].len);
        assert_memory_equal(packed[i].data, packed[0].data, packed[0].len);
    }
    for (size_t i = 0; i < 3; i++) {
        buf_release(&packed[i]);
    }
}

struct syncer {
    struct belay_store *store;
    atomic_bool is_over;
    int n; /* syncs */
    enum belay_code code;
};

static void *keep_syncing(void *context)
{
    struct syncer *syncer = context;

    while (!atomic_load(&syncer->is_over) && syncer->code == BELAY_OK) {
        syncer->code = sync_all(syncer->store);
        syncer->n++;
    }
    return NULL;
}

/* So many changes beside a thread that syncs; then all is there, as if nothing had been. */
static void change_beside_a_sync(bool no_checkpoint, size_t steps)
{
    struct syncer syncer = { .store = open_ledger_of(64 << 10, no_checkpoint) };
    struct belay_store *store = syncer.store;
    struct state last;
    struct state got;
    pthread_t thread;
    uint64_t token;

    assert_int_equal(pthread_create(&thread, NULL, keep_syncing, &syncer), 0);
    for (size_t step = 0; step < steps; step++) {
        assert_int_equal(change(store, step, &token), BELAY_OK);
        if (step % 16 == 0 && step < 2000) {
            assert_int_equal(look(store).n_events, step + 1);
        }
    }
    atomic_store(&syncer.is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(syncer.code, BELAY_OK);
    assert_true(syncer.n > 1);
    assert_int_equal(sync_all(store), BELAY_OK);
    last = look(store);
    assert_int_equal(last.n_events, steps);
    store->ops->close(store);
    store = open_sqlite(BELAY_OK);
    got = look(store);
    expect(&got, &last);
    store->ops->close(store);
}

/* Into whichever file, and whatever is just being written, brought in or still in memory. */
static void changes_continue_during_a_sync_and_none_is_lost_or_repeated(void **state)
{
    (void)state;
    change_beside_a_sync(false, 2000);
}

/* There is room for what is being written, and for what comes after it. */
static void a_journal_that_grows_during_a_sync_keeps_every_change(void **state)
{
    (void)state;
    change_beside_a_sync(true, 20000);
}

/* ---- reading much, of which the mutex is held for a part at a time ---- */

struct seen {
    uint64_t ids[8192];
    char keys[8192];
    size_t n;
};

static bool see_event(void *context, const struct belay_event *event)
{
    struct seen *seen = context;

    assert_true(seen->n < sizeof seen->keys);
    seen->keys[seen->n] = event->key[0];
    seen->ids[seen->n++] = event->id;
    return true;
}

static void compare(struct belay_store *store, const struct seen *all, const struct belay_events_query *query)
{
    struct seen *got = calloc(1, sizeof *got);
    uint64_t wanted[8192];
    size_t n = 0;
    size_t skip;

    assert_non_null(got);
    for (size_t i = 0; i < all->n; i++) {
        if (all->ids[i] > query->after && (query->key == NULL || query->key[0] == all->keys[i])) {
            wanted[n++] = all->ids[i];
        }
    }
    skip = query->last != 0 && n > query->last ? n - query->last : 0;
    assert_int_equal(store->ops->events(store, query, see_event, got, NULL), BELAY_OK);
    assert_int_equal(got->n, n - skip);
    assert_memory_equal(got->ids, wanted + skip, got->n * sizeof wanted[0]);
    free(got);
}

static void read_back(size_t journal_bytes, bool no_checkpoint)
{
    enum { MANY = 6000 };
    struct belay_store *store = open_ledger_of(journal_bytes, no_checkpoint);
    struct belay_events_query all_of_them = { 0 };
    const char *const keys[] = { NULL, "a", "b", "nothing" };
    const size_t lasts[] = { 0, 1, 2, 100, 1999, 8000 };
    struct seen *all = calloc(1, sizeof *all);
    uint64_t token;

    assert_non_null(all);
    for (size_t step = 0; step < MANY; step++) {
        assert_int_equal(change(store, step, &token), BELAY_OK);
        if (step % 31 == 0) {
            assert_int_equal(sync_all(store), BELAY_OK);
        }
    }
    assert_int_equal(store->ops->events(store, &all_of_them, see_event, all, NULL), BELAY_OK);
    assert_int_equal(all->n, MANY);
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 6; j++) {
            for (size_t from = 0; from < MANY; from += MANY / 3 + 1) {
                struct belay_events_query query = { .key = keys[i], .last = lasts[j] };

                query.after = from == 0 ? 0 : all->ids[from];
                compare(store, all, &query);
            }
        }
    }
    free(all);
    store->ops->close(store);
}

static void a_long_journal_is_read_in_parts_and_none_is_missed(void **state)
{
    (void)state;
    read_back((size_t)16 << 20, true);
}

static void changes_in_the_database_meanwhile_are_read_from_it(void **state)
{
    (void)state;
    read_back((size_t)128 << 10, false);
}

static bool see_record(void *context, const struct belay_record *record, int64_t now_ms)
{
    int *next = context;
    char key[16];

    (void)now_ms;
    (void)snprintf(key, sizeof key, "k%04d", *next);
    assert_string_equal(record->key, key);
    *next += next[1];
    return *next < next[2];
}

static void many_records_are_scanned_in_parts(void **state)
{
    enum { MANY = 1000, HELD = 250 };
    struct belay_store *store = open_ledger_of(4 << 20, true);
    struct belay_record values = { .lock_id = "id", .owner = "o", .owner_name = "n", .ttl_ms = 600000 };
    struct belay_scan all = { .prefix = "k" };
    struct belay_scan held = { .prefix = "k", .held_only = true };
    struct belay_scan rest = { .prefix = "k", .after = "k0500" };
    int next[3] = { 0, 1, MANY + 1 };

    (void)state;
    for (int i = 0; i < MANY; i++) {
        char key[16];
        struct belay_write write = { .key = key, .set = BELAY_SET_HOLDER, .values = &values };
        struct belay_batch batch = { .writes = &write, .n_writes = 1 };
        struct belay_commit done = { 0 };

        (void)snprintf(key, sizeof key, "k%04d", i);
        assert_int_equal(store->ops->commit(store, &batch, &done, NULL), BELAY_OK);
        belay_commit_release(&done);
        write.set = BELAY_SET_RELEASED;
        if (i % HELD != 0) { /* of many in a row none is wanted */
            assert_int_equal(store->ops->commit(store, &batch, &done, NULL), BELAY_OK);
            belay_commit_release(&done);
        }
    }
    assert_int_equal(store->ops->scan(store, &all, see_record, next, NULL), BELAY_OK);
    assert_int_equal(next[0], MANY);
    next[0] = 0;
    next[1] = HELD;
    assert_int_equal(store->ops->scan(store, &held, see_record, next, NULL), BELAY_OK);
    assert_int_equal(next[0], MANY);
    next[0] = 501;
    next[1] = 1;
    next[2] = 700;
    assert_int_equal(store->ops->scan(store, &rest, see_record, next, NULL), BELAY_OK);
    assert_int_equal(next[0], 700);
    store->ops->close(store);
}

static void a_full_disk_is_found_before_anything_is_changed(void **state)
{
    struct belay_store *store = open_ledger(true);
    struct rlimit limit, old;
    struct state before, after;
    enum belay_code code = BELAY_OK;
    uint64_t token;
    size_t step = 0;

    (void)state;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 1 << 20; /* as large as the journal is now */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (; code == BELAY_OK && step < 100000; step++) {
        code = change(store, step, &token);
        if (code == BELAY_OK && step % 64 == 0) {
            assert_int_equal(sync_all(store), BELAY_OK);
        }
    }
    before = look(store);
    assert_int_equal(code, BELAY_UNREACHABLE);
    assert_int_equal(change(store, step - 1, &token), BELAY_UNREACHABLE);
    after = look(store);
    expect(&after, &before);
    assert_int_equal(before.n_events, step - 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(change(store, step - 1, &token), BELAY_OK);
    assert_int_equal(sync_all(store), BELAY_OK);
    store->ops->close(store);
}

/* As when the process may have no more memory mapped: what was written before is read from the map as it was. */
static void a_journal_that_cannot_be_enlarged_in_memory_is_still_read(void **state)
{
    struct journal journal = { .path = journal_file, .fd = -1, .id = 1 };
    const uint32_t entry[] = { sizeof entry[1], 4711 };
    struct buf frame = BUF_INIT(1 << 16);
    struct journal_reader reader;
    struct rlimit old;
    enum belay_code code;
    const void *data;
    size_t len;

    (void)state;
    assert_int_equal(journal_begin(&journal, 1, 1 << 16, path, NULL), BELAY_OK);
    journal_frame_init(&frame);
    buf_add(&frame, entry, sizeof entry);
    assert_true(journal_seal(&journal, &frame));
    assert_int_equal(journal_write(&journal, &frame, NULL), BELAY_OK);
    journal_written(&journal, &frame);
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &(struct rlimit){ 0, old.rlim_max }), 0);
    code = journal_reserve(&journal, 1 << 20, NULL);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_int_equal(code, BELAY_NO_MEMORY);
    for (int i = 0; i < 2; i++) {
        journal_read(&journal, &reader);
        assert_true(journal_next(&reader, &data, &len));
        assert_int_equal(len, sizeof entry[1]);
        assert_memory_equal(data, &entry[1], sizeof entry[1]);
        assert_false(journal_next(&reader, &data, &len));
        assert_int_equal(journal_reserve(&journal, 1 << 20, NULL), BELAY_OK);
    }
    assert_true(journal.size > 1 << 20);
    journal_close(&journal);
    buf_release(&frame);
}

static void records_stay_if_a_full_disk_cannot_take_their_removal(void **state)
{
    struct belay_store *base = open_ledger(true);
    struct journaled *store = (struct journaled *)base;
    struct journal *journal = &store->journals[store->active];
    size_t size = journal->size;
    struct rlimit limit, old;
    size_t frame_len;
    uint64_t token;

    (void)state;
    for (size_t step = 0; step < 2 * KEYS; step++) { /* taken and released */
        assert_int_equal(change(base, step, &token), BELAY_OK);
    }
    store->read_db->retain_records_ms = -1000;
    frame_len = store->frame.len;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = size;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    (void)pthread_mutex_lock(&store->mutex);
    journal->size = journal->used; /* it has to grow */
    journaled_sweep(store);
    assert_int_equal(store->table.n, KEYS);
    assert_int_equal(store->frame.len, frame_len);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    journal->size = size;
    journaled_sweep(store); /* it has reached the last record, and begins again */
    assert_int_equal(store->table.n, 0);
    (void)pthread_mutex_unlock(&store->mutex);
    assert_int_equal(sync_all(base), BELAY_OK);
    base->ops->close(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(synced_changes_are_found_by_the_next_open, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_journal_cut_short_anywhere_keeps_every_whole_frame, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(damage_in_the_middle_is_an_error_and_changes_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_last_frame_may_be_torn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replaying_a_journal_can_be_interrupted_and_repeated, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_journal_is_discarded_only_on_request_L2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_truncated_journal_is_reported_L2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_journal_that_was_moved_away_is_reported_missing_L2, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_journal_of_another_database_is_reported_L2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_older_copy_of_a_journal_lowers_no_token_L2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_older_copy_of_a_journal_is_reported_L2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tokens_of_a_server_stay_below_the_ceiling_L2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sweep_takes_a_number_below_the_ceiling_L2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_clean_stop_leaves_nothing_to_repair, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_removed_log_lowers_no_token_L2, set_up, tear_down),
        cmocka_unit_test(a_record_in_memory_keeps_times_of_any_size),
        cmocka_unit_test(a_queue_in_memory_stays_the_same_when_tickets_come_and_go),
        cmocka_unit_test_setup_teardown(a_killed_server_leaves_every_holder_in_its_journal, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_restarted_server_continues_after_a_killed_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changes_continue_during_a_sync_and_none_is_lost_or_repeated, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_journal_that_grows_during_a_sync_keeps_every_change, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_long_journal_is_read_in_parts_and_none_is_missed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(changes_in_the_database_meanwhile_are_read_from_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(many_records_are_scanned_in_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_found_before_anything_is_changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_journal_that_cannot_be_enlarged_in_memory_is_still_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(records_stay_if_a_full_disk_cannot_take_their_removal, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
