/* Connections, statements and transactions. */
#include <assert.h>
#include <time.h>

#include "base/clock.h"
#include "store/sqlite/sqlite_internal.h"

/* Events of the acquisition of a key by a lock id. */
#define TAKES "type IN ('lock.acquired', 'lock.adopted')"

#define TEXT_OF(x) #x
#define NUMBER_TEXT(x) TEXT_OF(x)
#define BUCKET_OF_KEY "belay_hash(key, '') & (" NUMBER_TEXT(BUCKETS) " - 1)"

static const char *const sources[N_STATEMENTS] = {
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_BEGIN_READ] = "BEGIN",
    [ST_COMMIT] = "COMMIT",
    [ST_ROLLBACK] = "ROLLBACK",
    [ST_META] =
        "SELECT boot_id, number, ceiling, (SELECT max(id) FROM events), served_by FROM meta WHERE id = 1",
    /* Not its key, which is ?1: SQLite allocates memory for each text that it reads. */
    [ST_GET] = "SELECT ?1, " RECORD_VALUES " FROM locks WHERE key = ?1",
    [ST_LOOK] =
        "SELECT " RECORD_COLUMNS ", served_by FROM meta LEFT JOIN locks ON key = ?1 WHERE meta.id = 1",
    [ST_INSERT] = "INSERT INTO locks (" RECORD_COLUMNS ") "
                  "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    [ST_UPDATE] = "UPDATE locks SET held = ?2, outlives = ?3, expires_ms = ?4, lock_id = ?5, owner = ?6, "
                  "owner_name = ?7, numbers = ?8, metadata = ?9, tickets = ?10, intents = ?11, "
                  "acquired_by = ?12, holders = ?13 WHERE key = ?1",
    [ST_EVENT] = "INSERT INTO events (id, at_unix_ms, level, type, key, lock_id, token, locked_by, "
                 "locked_by_name, done_by, reason, duration_ms, metadata) "
                 "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    [ST_SET_NUMBER] = "UPDATE meta SET number = ?1 WHERE id = 1",
    [ST_SET_CEILING] = "UPDATE meta SET ceiling = ?1 WHERE id = 1",
    [ST_ID_USED] =
        "SELECT 1 FROM acquisitions WHERE born = ?4 AND hash = ?3 UNION ALL SELECT 1 FROM events WHERE "
        "id > (SELECT indexed FROM meta WHERE id = 1) AND key = ?1 AND lock_id = ?2 AND " TAKES " LIMIT 1",
    [ST_INDEX_HISTORY] = "INSERT OR IGNORE INTO history SELECT " BUCKET_OF_KEY ", id FROM events WHERE "
                         "id > (SELECT listed FROM meta WHERE id = 1)",
    [ST_INDEX_IDS] = "INSERT OR IGNORE INTO acquisitions "
                     "SELECT belay_born(lock_id), belay_hash(key, lock_id) FROM events WHERE "
                     "id > (SELECT indexed FROM meta WHERE id = 1) AND " TAKES,
    [ST_SET_INDEXED] = "UPDATE meta SET indexed = ?1 WHERE id = 1",
    [ST_SET_LISTED] = "UPDATE meta SET listed = ?1 WHERE id = 1",
    [ST_SWEEP_SPAN] = "SELECT min(id), (SELECT total(by) FROM jumps WHERE at > (SELECT min(id) FROM events)) "
                      "FROM events",
    [ST_SWEEP_CUT] = "SELECT max(id) FROM (SELECT id, at_unix_ms FROM events ORDER BY id LIMIT ?4) "
                     "WHERE id < ?1 AND (id <= ?2 OR at_unix_ms < ?3)",
    [ST_SWEEP_HISTORY] =
        "DELETE FROM history WHERE (bucket, id) IN (SELECT " BUCKET_OF_KEY ", id FROM events WHERE id <= ?1)",
    [ST_SWEEP_IDS] =
        "DELETE FROM acquisitions WHERE (born, hash) IN "
        "(SELECT belay_born(lock_id), belay_hash(key, lock_id) FROM events WHERE id <= ?1 AND " TAKES ")",
    [ST_SWEEP_EVENTS] = "DELETE FROM events WHERE id <= ?1",
    [ST_SWEEP_LOOK] = "SELECT key, held, expires_ms, numbers, tickets IS NULL AND intents IS NULL FROM locks "
                      "WHERE key > (SELECT sweep_key FROM meta WHERE id = 1) ORDER BY key LIMIT ?1",
    [ST_SWEEP_CURSOR] = "UPDATE meta SET sweep_key = ?1 WHERE id = 1",
    [ST_DELETE] = "DELETE FROM locks WHERE key = ?1",
    [ST_FREEZES] = "SELECT version, value FROM items WHERE space = '" BELAY_SPACE_FREEZES
                   "' AND name = '" FREEZE_ITEM "'",
};

int db_connect(const char *path, const char *vfs, int flags, sqlite3 **out_db)
{
    int on = 1;
    int rc = sqlite3_open_v2(path, out_db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, vfs);

    if (rc == SQLITE_OK) {
        rc = sqlite3_db_config(*out_db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    }
    if (rc == SQLITE_OK) {
        (void)sqlite3_file_control(*out_db, "main", SQLITE_FCNTL_PERSIST_WAL, &on);
        (void)sqlite3_db_config(*out_db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        (void)sqlite3_db_config(*out_db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    }
    return rc;
}

int db_statement(struct sqlite_store *store, enum statement which, sqlite3_stmt **out_statement)
{
    int rc = SQLITE_OK;

    if (store->statements[which] == NULL) {
        rc = sqlite3_prepare_v3(store->db, sources[which], -1, SQLITE_PREPARE_PERSISTENT,
                                &store->statements[which], NULL);
    }
    *out_statement = store->statements[which];
    return rc;
}

int db_finish(sqlite3_stmt *statement)
{
    int rc;

    do {
        rc = sqlite3_step(statement);
    } while (rc == SQLITE_ROW);
    (void)sqlite3_reset(statement); /* repeats the result of step */
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

void bind_int(struct binder *binder, int at, int64_t value)
{
    if (binder->rc == SQLITE_OK) {
        binder->rc = sqlite3_bind_int64(binder->statement, at, value);
    }
}

void bind_text(struct binder *binder, int at, const char *text)
{
    if (binder->rc == SQLITE_OK) {
        binder->rc = sqlite3_bind_text(binder->statement, at, text, -1, SQLITE_STATIC);
    }
}

void bind_blob(struct binder *binder, int at, const void *data, size_t size)
{
    if (binder->rc == SQLITE_OK) {
        binder->rc = sqlite3_bind_blob(binder->statement, at, data, (int)size, SQLITE_STATIC);
    }
}

int db_run(struct sqlite_store *store, enum statement which)
{
    sqlite3_stmt *statement;
    int rc = db_statement(store, which, &statement);

    return rc == SQLITE_OK ? db_finish(statement) : rc;
}

int db_run_int(struct sqlite_store *store, enum statement which, int64_t value)
{
    sqlite3_stmt *statement;
    int rc = db_statement(store, which, &statement);

    rc = rc == SQLITE_OK ? sqlite3_bind_int64(statement, 1, value) : rc;
    return rc == SQLITE_OK ? db_finish(statement) : rc;
}

int db_run_text(struct sqlite_store *store, enum statement which, const char *text)
{
    sqlite3_stmt *statement;
    int rc = db_statement(store, which, &statement);

    rc = rc == SQLITE_OK ? sqlite3_bind_text(statement, 1, text, -1, SQLITE_STATIC) : rc;
    return rc == SQLITE_OK ? db_finish(statement) : rc;
}

int db_read_int(sqlite3 *db, const char *sql, int64_t *out_value)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) {
            *out_value = sqlite3_column_int64(statement, 0);
        }
        rc = rc == SQLITE_ROW ? SQLITE_OK : rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
    }
    (void)sqlite3_finalize(statement);
    return rc;
}

int db_change(sqlite3 *db, const char *sql, const int64_t *values, int n, const char *text)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    int count = rc == SQLITE_OK ? sqlite3_bind_parameter_count(statement) : 0;

    for (int i = 1; rc == SQLITE_OK && i <= n && i <= count; i++) {
        rc = sqlite3_bind_int64(statement, i, values[i - 1]);
    }
    if (rc == SQLITE_OK && count > n) {
        rc = sqlite3_bind_text(statement, n + 1, text, -1, SQLITE_STATIC);
    }
    rc = rc == SQLITE_OK ? db_finish(statement) : rc;
    (void)sqlite3_finalize(statement);
    return rc;
}

int db_exec(struct sqlite_store *store, const char *sql)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL);
}

static int set_synchronous(struct sqlite_store *store, int level)
{
    int rc;

    assert(level == 1 || level == 2);
    if (store->synchronous == level) {
        return SQLITE_OK;
    }
    rc = db_exec(store, level == 2 ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
    if (rc == SQLITE_OK) {
        store->synchronous = level;
    }
    return rc;
}

int db_begin(struct sqlite_store *store, bool full)
{
    int rc;

    assert(sqlite3_get_autocommit(store->db)); /* transactions do not nest */
    rc = set_synchronous(store, full ? 2 : 1);
    return rc == SQLITE_OK ? db_run(store, ST_BEGIN) : rc;
}

void db_rollback(struct sqlite_store *store)
{
    /*
     * After some errors SQLite has rolled back by itself. If the rollback fails, the writes
     * are gone all the same.
     */
    if (!sqlite3_get_autocommit(store->db)) {
        (void)db_run(store, ST_ROLLBACK);
    }
    wake_writers(store);
}

bool db_read_served(struct sqlite_store *store, sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);

    if (text == NULL || store->own_fd >= 0 || store->is_beside) {
        store->served_by[0] = '\0';
        return false;
    }
    (void)sqlite3_snprintf(sizeof store->served_by, store->served_by, "%s", text);
    return true;
}

/*
 * SQLite increments it with each commit, and when it finds at the beginning of a transaction
 * that another connection has committed: so it has the value of this store's last commit only
 * if no other process has written since. 0: unknown.
 */
static unsigned data_version(struct sqlite_store *store)
{
    unsigned version = 0;

    return sqlite3_file_control(store->db, "main", SQLITE_FCNTL_DATA_VERSION, &version) == SQLITE_OK ? version
                                                                                                     : 0;
}

void db_leave_txn(struct sqlite_store *store, const struct txn *txn, uint64_t last, bool has_events)
{
    assert(last >= txn->next && last < txn->ceiling); /* L2: a number is used only below the synced ceiling */
    assert(sqlite3_get_autocommit(store->db));        /* it is committed */
    store->last_commit.number = has_events ? txn->number : last;
    store->last_commit.newest = has_events ? last : txn->newest;
    store->last_commit.ceiling = txn->ceiling;
    store->last_commit.version = data_version(store);
}

/* Reads a number of the sequence. Others cannot be counted on from: SQLite's integers have a sign, and one is added. */
static bool read_sequence_number(sqlite3_stmt *statement, int column, uint64_t *out_number)
{
    int64_t number = sqlite3_column_int64(statement, column);

    *out_number = (uint64_t)number;
    return number >= 0 && number < INT64_MAX / 2;
}

int db_read_txn(struct sqlite_store *store, struct txn *out_txn, bool *out_other_boot)
{
    struct txn txn = { .number = store->last_commit.number,
                       .newest = store->last_commit.newest,
                       .ceiling = store->last_commit.ceiling };
    bool other_boot = false; /* this store leaves nothing for another boot, nor for a server */
    bool known = store->last_commit.version != 0 &&
                 sqlite3_txn_state(store->db, "main") ==
                     SQLITE_TXN_WRITE && /* or it is the version of an earlier moment */
                 store->last_commit.version == data_version(store);
    sqlite3_stmt *statement;
    int rc = SQLITE_OK;

    if (!known) {
        store->last_commit.version = 0;
        store->freezes.is_current = false;
        rc = db_statement(store, ST_META, &statement);
        if (rc != SQLITE_OK) {
            return rc;
        }
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) {
            const unsigned char *boot_id = sqlite3_column_text(statement, 0);

            other_boot = boot_id == NULL || sqlite3_stricmp((const char *)boot_id, store->boot_id) != 0;
            rc = read_sequence_number(statement, 1, &txn.number) &&
                         read_sequence_number(statement, 2, &txn.ceiling) &&
                         read_sequence_number(statement, 3, &txn.newest)
                     ? SQLITE_OK
                     : SQLITE_CORRUPT;
            txn.served = db_read_served(store, statement, 4);
        } else if (rc == SQLITE_DONE) {
            rc = SQLITE_CORRUPT; /* the schema creates this row, and it is never deleted */
        }
        (void)sqlite3_reset(statement);
    }
    if (rc == SQLITE_OK) {
        assert(!known || txn.ceiling > txn.number); /* what this store has left */
        txn.next = (txn.number > txn.newest ? txn.number : txn.newest) + 1;
        txn.now_ms = sqlite_now_ms(store);
        txn.unix_ms = sqlite_unix_ms(store);
        *out_txn = txn;
        *out_other_boot = other_boot;
    }
    return rc;
}

/*
 * Another process writes, usually for some ten microseconds, and wakes this one when it is
 * done. The sleep is short all the same, because that process may die; and it never grows
 * long, or the process that waited longest would poll least often. Jitter keeps two processes
 * from colliding again and again.
 */
int db_busy(void *context, int count)
{
    struct sqlite_store *store = context;
    int64_t now = clock_boot_ms();
    uint64_t most_us = count < 4 ? 50ULL << count : 800;

    assert(count == 0 || now >= store->busy_since_ms);
    if (count == 0) {
        store->busy_since_ms = now;
    } else if (now - store->busy_since_ms >= store->busy_limit_ms) {
        return 0;
    }
    store->jitter ^= store->jitter << 13;
    store->jitter ^= store->jitter >> 7;
    store->jitter ^= store->jitter << 17;
    wake_wait_for_writer(store, (int64_t)(most_us / 2 + store->jitter % most_us));
    return 1;
}

/* Changing to WAL needs exclusive access and does not always call the busy handler, so call it here. */
int db_enter_wal(struct sqlite_store *store)
{
    int count = 0;
    int rc;

    do {
        rc = db_exec(store, "PRAGMA journal_mode=WAL");
    } while ((rc & 0xff) == SQLITE_BUSY && db_busy(store, count++) != 0);
    return rc;
}

/*
 * SQLite keeps a persistent log (SQLITE_FCNTL_PERSIST_WAL) even then, and the next process
 * that finds it would use it: so it is made not persistent first.
 */
int db_leave_wal(struct sqlite_store *store)
{
    sqlite3_stmt *statement = NULL;
    const char *mode;
    int off = 0;
    int rc;

    for (size_t i = 0; i < N_STATEMENTS; i++) {
        (void)sqlite3_finalize(store->statements[i]);
        store->statements[i] = NULL;
    }
    (void)sqlite3_file_control(store->db, "main", SQLITE_FCNTL_PERSIST_WAL, &off);
    rc = sqlite3_prepare_v2(store->db, "PRAGMA journal_mode=DELETE", -1, &statement, NULL);
    rc = rc == SQLITE_OK ? sqlite3_step(statement) : rc;
    mode = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    if (rc == SQLITE_ROW) {
        rc = mode != NULL && sqlite3_stricmp(mode, "delete") == 0 ? SQLITE_OK : SQLITE_BUSY;
    }
    (void)sqlite3_finalize(statement);
    return rc;
}

/* A lock in a file that other processes can no longer find protects nothing (L1). */
bool db_has_moved(struct sqlite_store *store)
{
    int moved = 0;

    return sqlite3_file_control(store->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved != 0;
}

int db_on_wal(void *context, sqlite3 *db, const char *name, int pages)
{
    struct sqlite_store *store = context;

    (void)db;
    (void)name;
    store->wal_pages = pages;
    return SQLITE_OK;
}

/*
 * The first process to open the database reads the whole log, so a short-lived one keeps it
 * short; a long-lived one runs fewer and larger checkpoints. Failures are ignored: the next
 * writer meets them again.
 */
void db_checkpoint_if_due(struct sqlite_store *store)
{
    int limit = store->commits < MANY_COMMITS ? CHECKPOINT_SMALL : CHECKPOINT_LARGE;

    if (store->wal_pages < 0) {
        /* A copy made by SQLite's own backup has no log; without one everything works, but slowly. */
        (void)db_enter_wal(store);
    }
    if (store->wal_pages >= limit) {
        (void)sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        store->wal_pages = 0;
    }
}

void db_write_back(struct sqlite_store *store)
{
    (void)sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}
