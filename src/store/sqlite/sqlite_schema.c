#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/sqlite/sqlite_internal.h"

/* "Blay": identifies belay's databases, also for `file`. */
enum { APPLICATION_ID = 0x426c6179 };

/*
 * Every event takes the next number, which is its id. The number of the first event of a
 * batch is also the batch's token and revision. A batch without events leaves its number
 * in meta. So the last number is the greater of the two, and a commit usually writes no
 * page for it.
 *
 * `history` lists the events of a key, and `acquisitions` the ids that ever acquired it.
 * Maintenance fills them (sqlite_maintenance.c), so they are up to LIST_EVERY and
 * SWEEP_EVERY events behind, and a reader looks at the newest events as well: an index
 * that each commit updates cost a third of its time. Keys share BUCKETS buckets, so that
 * a step of filling writes at most that many pages, however many keys there are; the
 * reader filters the events of a bucket. Acquisitions are in the order in which their ids
 * were made (sqlite_functions.c).
 */
static const char schema[] =
    "CREATE TABLE meta ("
    " id INTEGER PRIMARY KEY CHECK (id = 1),"
    " boot_id TEXT NOT NULL,"           /* of the boot whose clock the records are in */
    " number INTEGER NOT NULL,"         /* the last one given to a batch without events */
    " ceiling INTEGER NOT NULL,"        /* synced; every number in use is below it */
    " indexed INTEGER NOT NULL,"        /* events up to this one are in `acquisitions` */
    " sweep_key TEXT NOT NULL,"         /* how far maintenance has come */
    " served_by TEXT,"                  /* sqlite_own.c */
    " listed INTEGER NOT NULL,"         /* events up to this one are in `history` */
    " journal_id INTEGER NOT NULL,"     /* of the server's journal (sqlite_recover.c); 0: none is in use */
    " journal_use INTEGER NOT NULL,"    /* the last use that may have entries */
    " journal_folded INTEGER NOT NULL," /* uses up to this one are in this file */
    " copied_at INTEGER,"               /* Unix ms, if this is a backup that was not opened yet */
    " copied_boot_ms INTEGER,"          /* the boot clock at that time, of that boot */
    " store_id TEXT NOT NULL);"         /* a copy of the file is the same store */
    "INSERT INTO meta VALUES (1, '', 0, 1, 0, '', NULL, 0, 0, 0, 0, NULL, NULL, lower(hex(randomblob(16))));"
    "CREATE TABLE locks ("
    " key TEXT PRIMARY KEY,"
    " held INTEGER NOT NULL,"
    " outlives INTEGER NOT NULL,"
    " expires_ms INTEGER NOT NULL,"
    " lock_id TEXT NOT NULL,"
    " owner TEXT NOT NULL,"
    " owner_name TEXT NOT NULL,"
    " numbers BLOB NOT NULL," /* sqlite_record.c */
    " metadata TEXT,"
    " tickets TEXT,"
    " intents TEXT,"
    " acquired_by TEXT NOT NULL,"
    " holders BLOB) WITHOUT ROWID;" /* of a lock that is shared or has slots; store/apply/pack_record.c */
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
    "CREATE TABLE acquisitions ("
    " born INTEGER NOT NULL,"
    " hash INTEGER NOT NULL,"
    " PRIMARY KEY (born, hash)) WITHOUT ROWID;"
    "CREATE TABLE jumps (at INTEGER PRIMARY KEY, by INTEGER NOT NULL);"; /* `at - by` to `at - 1` were skipped */

enum belay_code sqlite_schema_check(const char *path, int64_t application, int64_t version,
                                    struct belay_error *err)
{
    if (application != APPLICATION_ID) {
        return error_set(err, BELAY_BAD_CONTENT,
                         "'%s' is an SQLite database of another program, not belay's; it was left as it is, "
                         "name another file with --store sqlite:PATH",
                         path);
    }
    if (version != SCHEMA_VERSION) {
        return error_set(
            err, BELAY_BAD_CONTENT,
            "the lock database '%s' was written by %s belay (schema %" PRId64 ", this one needs %d); %s",
            path, version > SCHEMA_VERSION ? "a newer" : "an early", version, (int)SCHEMA_VERSION,
            version > SCHEMA_VERSION ? "use that belay, or another file"
                                     : "move it and the files beside it away, and belay makes a new one");
    }
    return BELAY_OK;
}

enum belay_code sqlite_schema_look(struct sqlite_store *store, bool *out_is_empty, struct belay_error *err)
{
    int64_t application = 0;
    int64_t version = 0;
    int64_t objects = 0;
    int rc = db_read_int(store->db, "PRAGMA application_id", &application);

    if (rc == SQLITE_OK) {
        rc = db_read_int(store->db, "PRAGMA user_version", &version);
    }
    if (rc == SQLITE_OK && application != APPLICATION_ID) {
        rc = db_read_int(store->db, "SELECT count(*) FROM sqlite_schema", &objects);
    }
    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    if (application == 0 && version == 0 && objects == 0) {
        *out_is_empty = true;
        return BELAY_OK;
    }
    *out_is_empty = false;
    return sqlite_schema_check(store->path, application, version, err);
}

static enum belay_code make_tables(struct sqlite_store *store, struct belay_error *err)
{
    char stamp[96];
    bool is_empty = false;
    enum belay_code code;
    /* A commit changes a hundred bytes or two of each page that it writes: half the usual size is a tenth faster. */
    int rc = db_exec(store, "PRAGMA page_size=2048");

    rc = rc == SQLITE_OK ? db_enter_wal(store) : rc;
    rc = rc == SQLITE_OK ? db_begin(store, true) : rc;
    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    /* Again, now that no other process can write: another one may have created them. */
    code = sqlite_schema_look(store, &is_empty, err);
    if (code == BELAY_OK && is_empty) {
        (void)sqlite3_snprintf(sizeof stamp, stamp, "PRAGMA application_id=%d; PRAGMA user_version=%d",
                               APPLICATION_ID, (int)SCHEMA_VERSION);
        rc = db_exec(store, schema);
        rc = rc == SQLITE_OK ? db_exec(store, stamp) : rc;
    }
    if (code == BELAY_OK) {
        rc = rc == SQLITE_OK ? db_run(store, ST_COMMIT) : rc;
        code = rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
    }
    db_rollback(store);
    return code;
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
    bool is_empty = false;
    enum belay_code code;
    /* In one snapshot: between two, another process may create the tables. */
    int rc = db_run(store, ST_BEGIN_READ);

    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    code = sqlite_schema_look(store, &is_empty, err);
    db_rollback(store);
    return code == BELAY_OK && is_empty ? make_tables(store, err) : code;
}
