/*
 * What the SQLite store syncs, and what it says when the disk fails (L2, L5),
 * through a VFS that counts syncs of the log and fails on request.
 */
#include "test_sqlite_support.h"

struct counting_file {
    sqlite3_file base;
    bool is_log;
    sqlite3_file *real; /* behind this struct */
};

static struct {
    int syncs;       /* of the log */
    int fail_syncs;  /* so many of the next fail */
    int fail_writes; /* of the log, with fail_code */
    int fail_code;
} disk;

static sqlite3_vfs counting_vfs;

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((struct counting_file *)file)->real;
}

static int file_close(sqlite3_file *file)
{
    return real_of(file)->pMethods->xClose(real_of(file));
}

static int file_read(sqlite3_file *file, void *data, int n, sqlite3_int64 at)
{
    return real_of(file)->pMethods->xRead(real_of(file), data, n, at);
}

static int file_write(sqlite3_file *file, const void *data, int n, sqlite3_int64 at)
{
    if (((struct counting_file *)file)->is_log && disk.fail_writes > 0) {
        disk.fail_writes--;
        return disk.fail_code;
    }
    return real_of(file)->pMethods->xWrite(real_of(file), data, n, at);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    return real_of(file)->pMethods->xTruncate(real_of(file), size);
}

static int file_sync(sqlite3_file *file, int flags)
{
    if (((struct counting_file *)file)->is_log) {
        disk.syncs++;
        if (disk.fail_syncs > 0) {
            disk.fail_syncs--;
            return SQLITE_IOERR_FSYNC;
        }
    }
    return real_of(file)->pMethods->xSync(real_of(file), flags);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int file_lock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int file_unlock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int file_check(sqlite3_file *file, int *out)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), out);
}

static int file_control(sqlite3_file *file, int op, void *arg)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), op, arg);
}

static int file_sector(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int file_traits(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int file_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **out)
{
    return real_of(file)->pMethods->xShmMap(real_of(file), page, size, extend, out);
}

static int file_shm_lock(sqlite3_file *file, int at, int n, int flags)
{
    return real_of(file)->pMethods->xShmLock(real_of(file), at, n, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
    real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int file_shm_unmap(sqlite3_file *file, int remove)
{
    return real_of(file)->pMethods->xShmUnmap(real_of(file), remove);
}

static const sqlite3_io_methods counting_methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_traits,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

static int vfs_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags, int *out_flags)
{
    sqlite3_vfs *unix_vfs = vfs->pAppData;
    struct counting_file *counting = (struct counting_file *)file;
    int rc;

    counting->real = (sqlite3_file *)(counting + 1);
    counting->is_log = (flags & SQLITE_OPEN_WAL) != 0;
    rc = unix_vfs->xOpen(unix_vfs, name, counting->real, flags, out_flags);
    file->pMethods = counting->real->pMethods != NULL ? &counting_methods : NULL;
    return rc;
}

static int disk_open(void **state)
{
    sqlite3_vfs *unix_vfs = sqlite3_vfs_find(NULL);
    struct place *place;

    counting_vfs = *unix_vfs;
    counting_vfs.zName = "counting";
    counting_vfs.pAppData = unix_vfs;
    counting_vfs.xOpen = vfs_open;
    counting_vfs.szOsFile = unix_vfs->szOsFile + (int)sizeof(struct counting_file);
    assert_int_equal(sqlite3_vfs_register(&counting_vfs, 0), SQLITE_OK);
    memset(&disk, 0, sizeof disk);
    (void)place_make(state);
    place = *state;
    place->machine.hooks.vfs = "counting";
    place->store = open_here(place);
    assert_true(take(place->store, "first", "id-0") > 0); /* the ceiling is raised by now */
    disk.syncs = 0;
    return 0;
}

static int disk_remove(void **state)
{
    (void)place_remove(state);
    assert_int_equal(sqlite3_vfs_unregister(&counting_vfs), SQLITE_OK);
    return 0;
}

static enum belay_code take_outliving(struct belay_store *store, const char *key, const char *id,
                                      struct belay_error *err)
{
    struct belay_record values = holder(id, 60000, true);
    struct belay_write write = {
        .key = key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit commit = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &commit, err);

    belay_commit_release(&commit);
    return code;
}

static enum belay_code renew(struct belay_store *store, const char *key, const char *id, int64_t ttl_ms)
{
    struct belay_record values = { .ttl_ms = ttl_ms };
    struct belay_write write = {
        .key = key, .condition = BELAY_IF_LIVE_BY, .lock_id = id, .set = BELAY_SET_LEASE, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit commit = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &commit, NULL);

    belay_commit_release(&commit);
    return code;
}

static void a_lock_of_a_process_is_not_synced(void **state)
{
    struct place *place = *state;

    assert_true(take(place->store, "k", "id-1") > 0);
    assert_int_equal(give_back(place->store, "k", "id-1"), BELAY_OK);
    assert_int_equal(disk.syncs, 0);
}

static void a_durable_lock_is_synced_before_it_is_reported(void **state)
{
    struct place *place = *state;

    assert_int_equal(take_outliving(place->store, "k", "id-1", NULL), BELAY_OK);
    assert_true(disk.syncs > 0);
}

/* Only the record tells that a sync is needed: the transaction is repeated. */
static void the_release_of_a_durable_lock_is_synced_too(void **state)
{
    struct place *place = *state;
    struct belay_record record;

    assert_int_equal(take_outliving(place->store, "k", "id-1", NULL), BELAY_OK);
    assert_true(take(place->store, "other", "id-2") > 0);
    disk.syncs = 0;
    assert_int_equal(give_back(place->store, "k", "id-1"), BELAY_OK);
    assert_true(disk.syncs > 0);
    record = look(place->store, "k");
    assert_false(record.held);
    belay_record_release(&record);
    disk.syncs = 0;
    assert_true(take(place->store, "k", "id-3") > 0);
    assert_int_equal(disk.syncs, 0);
}

static void a_renewal_is_synced_only_if_it_changes_the_ttl(void **state)
{
    struct place *place = *state;

    assert_int_equal(take_outliving(place->store, "k", "id-1", NULL), BELAY_OK);
    disk.syncs = 0;
    assert_int_equal(renew(place->store, "k", "id-1", 0), BELAY_OK);
    assert_int_equal(renew(place->store, "k", "id-1", 60000), BELAY_OK);
    assert_int_equal(disk.syncs, 0);
    assert_int_equal(renew(place->store, "k", "id-1", 90000), BELAY_OK);
    assert_true(disk.syncs > 0);
}

/* A write about one of several holders: whether the log was synced. */
static bool syncs(struct belay_store *store, const struct belay_write *write)
{
    struct belay_batch batch = { .writes = write, .n_writes = 1 };
    struct belay_commit commit = { 0 };

    disk.syncs = 0;
    assert_int_equal(store->ops->commit(store, &batch, &commit, NULL), BELAY_OK);
    belay_commit_release(&commit);
    return disk.syncs > 0;
}

static bool joining_syncs(struct belay_store *store, const char *lock_id, bool durable, const char *drops)
{
    struct belay_record values = holder(lock_id, 60000, durable);

    values.mode = BELAY_SHARED;
    return syncs(store, &(struct belay_write){ .key = "k",
                                               .set = BELAY_SET_HOLDER,
                                               .values = &values,
                                               .co_holder = true,
                                               .drop_holders = &drops,
                                               .n_drop_holders = drops != NULL });
}

static bool changing_syncs(struct belay_store *store, const char *lock_id, unsigned set, int64_t ttl_ms)
{
    struct belay_record values = holder("heir", ttl_ms, false);

    return syncs(store, &(struct belay_write){ .key = "k",
                                               .condition = BELAY_IF_HELD_BY,
                                               .lock_id = lock_id,
                                               .set = set,
                                               .values = &values,
                                               .co_holder = true });
}

static void of_several_holders_only_the_durable_ones_are_synced(void **state)
{
    struct place *place = *state;
    struct belay_record alone = holder("alone", 60000, false);

    assert_false(joining_syncs(place->store, "process", false, NULL));
    assert_true(joining_syncs(place->store, "durable", true, NULL));
    assert_false(joining_syncs(place->store, "another", false, NULL));
    assert_false(changing_syncs(place->store, "process", BELAY_SET_LEASE, 90000));
    assert_false(changing_syncs(place->store, "durable", BELAY_SET_LEASE, 60000));
    assert_true(changing_syncs(place->store, "durable", BELAY_SET_LEASE, 90000));
    assert_false(changing_syncs(place->store, "process", BELAY_SET_RELEASED, 0));
    assert_true(changing_syncs(place->store, "durable", BELAY_SET_IDENTITY, 0));
    assert_true(changing_syncs(place->store, "heir", BELAY_SET_RELEASED, 0));
    assert_true(joining_syncs(place->store, "durable", true, NULL));
    assert_true(joining_syncs(place->store, "one more", false, "durable")); /* its end */
    assert_false(joining_syncs(place->store, "process", false, "one more"));
    assert_true(joining_syncs(place->store, "durable", true, NULL));
    assert_true(
        syncs(place->store, &(struct belay_write){ .key = "k", .set = BELAY_SET_HOLDER, .values = &alone }));
}

static void with_full_durability_everything_is_synced(void **state)
{
    struct place *place = *state;
    struct belay_store *store = NULL;
    char path[128];

    (void)snprintf(path, sizeof path, "%s?durability=full", place->path);
    assert_int_equal(sqlite_store_open(path, &place->machine.hooks, &store, NULL, NULL), BELAY_OK);
    disk.syncs = 0;
    assert_true(take(store, "k", "id-1") > 0);
    assert_true(disk.syncs > 0);
    store->ops->close(store);
}

static void a_sync_that_fails_leaves_it_unknown(void **state)
{
    struct place *place = *state;

    disk.fail_syncs = 1;
    assert_int_equal(take_outliving(place->store, "k", "id-1", &place->err), BELAY_UNKNOWN);
    assert_non_null(strstr(place->err.text, "may have happened"));
    /* The store still works, and a retry with the same id succeeds. */
    assert_int_equal(take_outliving(place->store, "k", "id-1", NULL), BELAY_OK);
}

/* The ceiling is raised first, in its own transaction: if that fails, no lock was acquired. */
static void a_ceiling_that_cannot_be_synced_grants_no_token(void **state)
{
    struct place *place = *state;
    struct belay_record record;
    struct belay_commit commit = { 0 };

    (void)outside(place, "UPDATE meta SET number = ceiling - 1");
    disk.fail_syncs = 1;
    assert_int_equal(take_as(place->store, "k", "id-1", 10000, false, &commit), BELAY_UNREACHABLE);
    record = look(place->store, "k");
    assert_int_equal(record.revision, 0);
    belay_record_release(&record);
    assert_true(take(place->store, "k", "id-1") > 0);
}

static void a_full_disk_changes_nothing_and_is_reported(void **state)
{
    struct place *place = *state;
    struct belay_record record;

    disk.fail_writes = 1;
    disk.fail_code = SQLITE_FULL;
    assert_int_equal(take_outliving(place->store, "k", "id-1", &place->err), BELAY_UNREACHABLE);
    assert_non_null(strstr(place->err.text, "no space left on the file system of"));
    assert_non_null(strstr(place->err.text, "nothing was changed"));
    record = look(place->store, "k");
    assert_int_equal(record.revision, 0);
    belay_record_release(&record);
    assert_int_equal(take_outliving(place->store, "k", "id-1", &place->err), BELAY_OK);
}

static void a_write_that_fails_while_committing_leaves_it_unknown(void **state)
{
    struct place *place = *state;

    disk.fail_writes = 1;
    disk.fail_code = SQLITE_IOERR_WRITE;
    assert_int_equal(take_outliving(place->store, "k", "id-1", NULL), BELAY_UNKNOWN);
    assert_int_equal(take_outliving(place->store, "k", "id-1", NULL), BELAY_OK);
}

/* A log that only its frames' checksums vouch for: that of a machine that was restarted. */
static void the_log_can_be_read_without_its_index(void **state)
{
    struct place *place = *state;
    char command[512];
    struct place copy = *place;

    assert_true(take(place->store, "k", "id-1") > 0);
    (void)snprintf(copy.path, sizeof copy.path, "%s/copy.db", place->directory);
    (void)snprintf(command, sizeof command, "cp '%s' '%s' && cp '%s-wal' '%s-wal'", place->path, copy.path,
                   place->path, copy.path);
    assert_int_equal(system(command), 0);
    assert_int_equal(outside(&copy, "SELECT count(*) FROM locks WHERE key = 'k' AND lock_id = 'id-1'"), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, disk_open, disk_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lock_of_a_process_is_not_synced),
        TEST(a_durable_lock_is_synced_before_it_is_reported),
        TEST(the_release_of_a_durable_lock_is_synced_too),
        TEST(a_renewal_is_synced_only_if_it_changes_the_ttl),
        TEST(of_several_holders_only_the_durable_ones_are_synced),
        TEST(with_full_durability_everything_is_synced),
        TEST(a_sync_that_fails_leaves_it_unknown),
        TEST(a_ceiling_that_cannot_be_synced_grants_no_token),
        TEST(a_full_disk_changes_nothing_and_is_reported),
        TEST(a_write_that_fails_while_committing_leaves_it_unknown),
        TEST(the_log_can_be_read_without_its_index),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
