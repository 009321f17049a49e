#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/sqlite/sqlite_internal.h"

/* "Blay", by which `file` and we know our own. */
enum { APPLICATION_ID = 0x426c6179 };

/*
 * One script per version, from empty. A database of version n has seen the
 * first n of them. Scripts that were released never change.
 *
 * Every event takes the next number, which is its id; the number of the first
 * one is also the batch's token and revision. A batch without events leaves its
 * number in meta. So the last number is the greater of the two, and a commit
 * usually writes no page for it.
 *
 * Which events a key has, and which ids have ever taken it, is looked up in
 * `history` and `acquisitions`. They follow behind, up to LIST_EVERY and up to
 * SWEEP_EVERY events, filled by cleaning up (sqlite_sweep.c), and who reads them
 * looks at the newest events as well: an index kept by every commit cost a third
 * of its time. Keys share BUCKETS buckets, so that a step of filling writes so many
 * pages at most, however many keys there are; the events of a bucket are then sifted.
 * Acquisitions are in the order in which their ids were made (sqlite_numbers.c).
 */
static const char *const migrations[] = {
    "CREATE TABLE meta ("
    " id INTEGER PRIMARY KEY CHECK (id = 1),"
    " boot_id TEXT NOT NULL,"    /* of the boot whose clock the records are in */
    " number INTEGER NOT NULL,"  /* the last one given to a batch without events */
    " ceiling INTEGER NOT NULL," /* synced; every number in use is below it */
    " indexed INTEGER NOT NULL," /* events up to this one are in `acquisitions` */
    " sweep_key TEXT NOT NULL);" /* how far cleaning up has come */
    "INSERT INTO meta VALUES (1, '', 0, 1, 0, '');"
    "CREATE TABLE locks ("
    " key TEXT PRIMARY KEY,"
    " revision INTEGER NOT NULL,"
    " held INTEGER NOT NULL,"
    " lock_id TEXT NOT NULL,"
    " token INTEGER NOT NULL,"
    " owner TEXT NOT NULL,"
    " owner_name TEXT NOT NULL,"
    " outcome INTEGER NOT NULL,"
    " outlives INTEGER NOT NULL,"
    " stale_noted INTEGER NOT NULL,"
    " ttl_ms INTEGER NOT NULL,"
    " heartbeat_ms INTEGER NOT NULL,"
    " stale_after_ms INTEGER NOT NULL,"
    " expires_ms INTEGER NOT NULL,"
    " beat_ms INTEGER NOT NULL,"
    " freed_ms INTEGER NOT NULL,"
    " locked_at_unix_ms INTEGER NOT NULL,"
    " expires_at_unix_ms INTEGER NOT NULL,"
    " beat_at_unix_ms INTEGER NOT NULL,"
    " freed_at_unix_ms INTEGER NOT NULL,"
    " metadata TEXT,"
    " tickets TEXT,"
    " intents TEXT) WITHOUT ROWID;"
    "CREATE TABLE events ("
    " id INTEGER PRIMARY KEY,"
    " at_unix_ms INTEGER NOT NULL,"
    " level INTEGER NOT NULL,"
    " type TEXT NOT NULL,"
    " key TEXT NOT NULL,"
    " lock_id TEXT,"
    " token INTEGER NOT NULL,"
    " locked_by TEXT,"
    " locked_by_name TEXT,"
    " done_by TEXT,"
    " reason TEXT,"
    " duration_ms INTEGER NOT NULL,"
    " metadata TEXT);"
    "CREATE TABLE history ("
    " bucket INTEGER NOT NULL,"
    " id INTEGER NOT NULL,"
    " PRIMARY KEY (bucket, id)) WITHOUT ROWID;"
    "CREATE TABLE acquisitions (hash INTEGER PRIMARY KEY);",
    "ALTER TABLE meta ADD COLUMN served_by TEXT;", /* sqlite_own.c */

    /* 3: fewer columns, and ids in order, for a third more commits a second. */
    "CREATE TABLE locks_3 ("
    " key TEXT PRIMARY KEY,"
    " held INTEGER NOT NULL,"
    " outlives INTEGER NOT NULL,"
    " expires_ms INTEGER NOT NULL,"
    " lock_id TEXT NOT NULL,"
    " owner TEXT NOT NULL,"
    " owner_name TEXT NOT NULL,"
    " numbers BLOB NOT NULL," /* sqlite_numbers.c */
    " metadata TEXT,"
    " tickets TEXT,"
    " intents TEXT) WITHOUT ROWID;"
    "INSERT INTO locks_3 SELECT key, held, outlives, expires_ms, lock_id, owner, owner_name, "
    "belay_with(x'', 'revision', revision, 'token', token, 'outcome', outcome, 'stale_noted', stale_noted, "
    "'ttl_ms', ttl_ms, 'heartbeat_ms', heartbeat_ms, 'stale_after_ms', stale_after_ms, 'beat_ms', beat_ms, "
    "'freed_ms', freed_ms, 'locked_at_unix_ms', locked_at_unix_ms, 'expires_at_unix_ms', expires_at_unix_ms, "
    "'beat_at_unix_ms', beat_at_unix_ms, 'freed_at_unix_ms', freed_at_unix_ms), metadata, tickets, intents "
    "FROM locks ORDER BY key;"
    "DROP TABLE locks;"
    "ALTER TABLE locks_3 RENAME TO locks;"
    "DROP TABLE acquisitions;"
    "CREATE TABLE acquisitions ("
    " born INTEGER NOT NULL,"
    " hash INTEGER NOT NULL,"
    " PRIMARY KEY (born, hash)) WITHOUT ROWID;"
    "INSERT OR IGNORE INTO acquisitions SELECT belay_born(lock_id), belay_hash(key, lock_id) FROM events "
    "WHERE id <= (SELECT indexed FROM meta) AND type IN ('lock.acquired', 'lock.adopted') ORDER BY 1, 2;"
    "ALTER TABLE meta ADD COLUMN listed INTEGER NOT NULL DEFAULT 0;" /* events up to this one are in `history` */
    "UPDATE meta SET listed = indexed;",

    /* 4: the credential that acquired. Of what an older belay took it is not known. */
    "ALTER TABLE locks ADD COLUMN acquired_by TEXT NOT NULL DEFAULT '';",

    /* 5: which journal of a server belongs to it (sqlite_recover.c), where numbers were left out, and copies. */
    "ALTER TABLE meta ADD COLUMN journal_id INTEGER NOT NULL DEFAULT 0;" /* 0: no server's journal is in use */
    "ALTER TABLE meta ADD COLUMN journal_use INTEGER NOT NULL DEFAULT 0;" /* the last use that may have entries */
    "ALTER TABLE meta ADD COLUMN journal_folded INTEGER NOT NULL DEFAULT 0;" /* uses up to this one are in here */
    "ALTER TABLE meta ADD COLUMN copied_at INTEGER;" /* Unix ms, if this is a backup that nobody has opened yet */
    "ALTER TABLE meta ADD COLUMN copied_boot_ms INTEGER;" /* the boot clock then, of the boot that it was */
    "CREATE TABLE jumps (at INTEGER PRIMARY KEY, by INTEGER NOT NULL);", /* numbers `at - by` to `at - 1` were left out */

    /* 6: which store this is; a copy of the file is the same store. */
    "ALTER TABLE meta ADD COLUMN store_id TEXT NOT NULL DEFAULT '';"
    "UPDATE meta SET store_id = lower(hex(randomblob(16)));",
};
enum { VERSION = sizeof migrations / sizeof migrations[0] };

static int read_int(struct sqlite_store *store, const char *sql, int64_t *out_value)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) {
            *out_value = sqlite3_column_int64(statement, 0);
            rc = SQLITE_OK;
        }
    }
    (void)sqlite3_finalize(statement);
    return rc;
}

enum belay_code sqlite_schema_check(const char *path, int64_t application, int64_t version,
                                    struct belay_error *err)
{
    if (application != APPLICATION_ID) {
        return error_set(err, BELAY_BAD_CONTENT,
                         "'%s' is an SQLite database of another program, not belay's; it was left as it is, "
                         "name another file with --store sqlite:PATH",
                         path);
    }
    if (version > VERSION) {
        return error_set(err, BELAY_BAD_CONTENT,
                         "the lock database '%s' was written by a newer belay (schema %" PRId64
                         ", this one knows up to %d); use that belay, or another file",
                         path, version, (int)VERSION);
    }
    return BELAY_OK;
}

/* Ours, of which version, or empty; anything else is somebody else's and left alone. */
static enum belay_code recognise(struct sqlite_store *store, int64_t *out_version, struct belay_error *err)
{
    int64_t application = 0;
    int64_t version = 0;
    int64_t objects = 0;
    int rc = read_int(store, "PRAGMA application_id", &application);

    if (rc == SQLITE_OK) {
        rc = read_int(store, "PRAGMA user_version", &version);
    }
    if (rc == SQLITE_OK && application != APPLICATION_ID) {
        rc = read_int(store, "SELECT count(*) FROM sqlite_schema", &objects);
    }
    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    if (application == 0 && version == 0 && objects == 0) {
        *out_version = 0;
        return BELAY_OK;
    }
    *out_version = version;
    return sqlite_schema_check(store->path, application, version, err);
}

/*
 * A commit writes whole pages, of which it changes a hundred bytes or two: half
 * the usual size is a tenth faster. An old file keeps the size it has.
 */
static int set_page_size(struct sqlite_store *store)
{
    return db_exec(store, "PRAGMA page_size=2048");
}

static enum belay_code migrate(struct sqlite_store *store, struct belay_error *err)
{
    char stamp[96];
    int64_t version = 0;
    int rc = set_page_size(store);
    enum belay_code code;

    if (rc == SQLITE_OK) {
        rc = db_enter_wal(store);
    }
    if (rc == SQLITE_OK) {
        rc = db_add_functions(store);
    }
    if (rc == SQLITE_OK) {
        rc = db_begin(store, true);
    }
    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    /* Once more, now that nobody else can write: another process may have done it all. */
    code = recognise(store, &version, err);
    if (code == BELAY_OK && version > 0 && version < VERSION && sqlite_server_lives(store)) {
        code = error_set(err, BELAY_UNREACHABLE,
                         "the lock database '%s' is served by an older belay: stop that server, and start it "
                         "again as this version",
                         store->path);
    }
    for (int64_t v = version; code == BELAY_OK && v < VERSION; v++) {
        rc = db_exec(store, migrations[v]);
        code = rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
    }
    (void)sqlite3_snprintf(sizeof stamp, stamp, "PRAGMA application_id=%d; PRAGMA user_version=%d",
                           APPLICATION_ID, (int)VERSION);
    if (code == BELAY_OK && version < VERSION) {
        rc = db_exec(store, stamp);
        code = rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
    }
    if (code == BELAY_OK) {
        rc = db_run(store, ST_COMMIT);
        code = rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
    }
    db_rollback(store);
    return code;
}

enum belay_code sqlite_schema_look(struct sqlite_store *store, int64_t *out_version, int64_t *out_newest,
                                   struct belay_error *err)
{
    *out_newest = VERSION;
    return recognise(store, out_version, err);
}

enum belay_code sqlite_identity(struct belay_store *base, char out_id[BELAY_STORE_ID_SIZE],
                                struct belay_error *err)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    sqlite3_stmt *statement = NULL;
    const char *id = NULL;
    enum belay_code code = BELAY_OK;
    int rc;

    (void)pthread_mutex_lock(&store->mutex);
    rc = sqlite3_prepare_v2(store->db, "SELECT store_id FROM meta WHERE id = 1", -1, &statement, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        id = (const char *)sqlite3_column_text(statement, 0);
        rc = SQLITE_OK;
    }
    if (rc != SQLITE_OK) {
        code = sqlite_failed(store, rc, err);
    } else if (id == NULL || *id == '\0' || strlen(id) > 64) {
        code = error_set(err, BELAY_BAD_CONTENT, "the lock database '%s' has no id", store->path);
    } else {
        (void)snprintf(out_id, BELAY_STORE_ID_SIZE, "sqlite-%s", id);
    }
    (void)sqlite3_finalize(statement);
    (void)pthread_mutex_unlock(&store->mutex);
    return code;
}

enum belay_code sqlite_schema_ready(struct sqlite_store *store, struct belay_error *err)
{
    int64_t version = 0;
    enum belay_code code;
    /* One look at one moment: between two, another process may make the tables. */
    int rc = db_run(store, ST_BEGIN_READ);

    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    code = recognise(store, &version, err);
    db_rollback(store);
    return code == BELAY_OK && version < VERSION ? migrate(store, err) : code;
}
