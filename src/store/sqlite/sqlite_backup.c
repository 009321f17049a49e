/*
 * Backups.
 * VACUUM INTO copies a snapshot of the database while other processes continue. The copy is
 * then marked (meta.copied_at, and no boot): the first process that opens it starts leases
 * again, and continues with numbers that were never issued, although the original continued to
 * issue some (sqlite_boot.c). This holds however the copy is put in place.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "store/sqlite/sqlite_internal.h"

enum { STEPS_A_LOOK = 10000, BACKUP_BUSY_MS = 10000 };

static enum belay_code backup_failed(const char *what, const char *path, sqlite3 *db, int rc,
                                     struct belay_error *err)
{
    if ((rc & 0xff) == SQLITE_INTERRUPT) {
        return error_set(err, BELAY_CANCELLED, "the backup was cancelled");
    }
    if ((rc & 0xff) == SQLITE_NOMEM) {
        return error_no_memory(err);
    }
    if ((rc & 0xff) == SQLITE_CANTOPEN && db != NULL && sqlite3_system_errno(db) != 0) {
        int why = sqlite3_system_errno(db);

        return error_set(err, why == EACCES ? BELAY_NOT_PERMITTED : BELAY_UNREACHABLE, "%s '%.300s': %s",
                         what, path, strerror(why));
    }
    return error_set(err,
                     (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB ? BELAY_BAD_CONTENT
                                                                                   : BELAY_UNREACHABLE,
                     "%s '%.300s': %s", what, path, db == NULL ? sqlite3_errstr(rc) : sqlite3_errmsg(db));
}

static int is_backup_cancelled(void *context)
{
    return belay_cancel_requested(context);
}

/* Another connection of this process: the copy must not block the store's own. */
static int backup_connect(const char *path, const char *vfs, int flags, struct belay_cancel *cancel,
                          sqlite3 **out_db)
{
    int rc = db_connect(path, vfs, flags, out_db);

    if (rc == SQLITE_OK) {
        rc = sqlite3_busy_timeout(*out_db, BACKUP_BUSY_MS);
    }
    if (rc == SQLITE_OK && cancel != NULL) {
        sqlite3_progress_handler(*out_db, STEPS_A_LOOK, is_backup_cancelled, cancel);
    }
    return rc;
}

/* ---- marking ---- */

static const char mark_sql[] =
    "UPDATE meta SET boot_id = '', served_by = NULL, journal_id = 0, journal_use = 0, journal_folded = 0, "
    "copied_at = coalesce(copied_at, ?1), copied_boot_ms = coalesce(copied_boot_ms, ?2), "
    "ceiling = max(ceiling, ?3) WHERE id = 1";

enum belay_code sqlite_backup_mark(const char *path, int64_t unix_ms, int64_t boot_ms, uint64_t ceiling,
                                   struct belay_error *err)
{
    const int64_t values[] = { unix_ms, boot_ms, (int64_t)ceiling };
    sqlite3 *db = NULL;
    enum belay_code code;
    /* No other process knows the file yet: it is synced as a whole at the end. */
    int rc = backup_connect(path, NULL, SQLITE_OPEN_READWRITE, NULL, &db);

    rc = rc == SQLITE_OK
             ? sqlite3_exec(db, "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF", NULL, NULL, NULL)
             : rc;
    rc = rc == SQLITE_OK ? db_change(db, mark_sql, values, 3, NULL) : rc;
    code = rc == SQLITE_OK ? BELAY_OK : backup_failed("cannot mark the copy", path, db, rc, err);
    (void)sqlite3_close(db);
    return code;
}

/* ---- looking ---- */

static enum belay_code check_sound(sqlite3 *db, const char *path, struct belay_error *err)
{
    sqlite3_stmt *statement = NULL;
    const char *text = NULL;
    enum belay_code code = BELAY_OK;
    int rc = sqlite3_prepare_v2(db, "PRAGMA integrity_check(1)", -1, &statement, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
        text = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    }
    if (rc != SQLITE_ROW) {
        code = backup_failed("cannot check", path, db, rc, err);
    } else if (text == NULL || strcmp(text, "ok") != 0) {
        code =
            error_set(err, BELAY_BAD_CONTENT, "'%.300s' is damaged: %.200s", path, text == NULL ? "" : text);
    }
    (void)sqlite3_finalize(statement);
    return code;
}

enum belay_code sqlite_backup_check(const char *path, struct sqlite_backup_info *out_info,
                                    struct belay_error *err)
{
    struct sqlite_backup_info info = { 0 };
    sqlite3 *db = NULL;
    enum belay_code code;
    int64_t served = 0;
    int64_t id = 0;
    int64_t version = 0;
    int64_t ceiling = 0;
    int rc = backup_connect(path, NULL, SQLITE_OPEN_READONLY, NULL, &db);

    rc = rc == SQLITE_OK ? db_read_int(db, "PRAGMA application_id", &id) : rc;
    rc = rc == SQLITE_OK ? db_read_int(db, "PRAGMA user_version", &version) : rc;
    if (rc != SQLITE_OK) {
        code = backup_failed("cannot read", path, db, rc, err);
        goto done;
    }
    code = sqlite_schema_check(path, id, version, err);
    if (code == BELAY_OK) {
        code = check_sound(db, path, err);
    }
    if (code != BELAY_OK) {
        goto done;
    }
    rc = db_read_int(db, "SELECT ceiling FROM meta WHERE id = 1", &ceiling);
    rc = rc == SQLITE_OK ? db_read_int(db, "SELECT count(*) FROM locks WHERE held = 1", &info.n_held) : rc;
    rc = rc == SQLITE_OK ? db_read_int(db, "SELECT count(*) FROM locks", &info.n_records) : rc;
    rc = rc == SQLITE_OK ? db_read_int(db, "SELECT served_by IS NOT NULL FROM meta WHERE id = 1", &served)
                         : rc;
    rc = rc == SQLITE_OK ? db_read_int(db, "SELECT copied_at FROM meta WHERE id = 1", &info.copied_at_unix_ms)
                         : rc;
    info.is_served = served != 0;
    info.ceiling = (uint64_t)ceiling;
    code = rc == SQLITE_OK ? BELAY_OK : backup_failed("cannot read", path, db, rc, err);

done:
    (void)sqlite3_close(db);
    if (code == BELAY_OK) {
        *out_info = info;
    }
    return code;
}

/* ---- copying ---- */

enum belay_code sqlite_backup_copy(const char *from, const char *to, struct belay_error *err)
{
    sqlite3 *db = NULL;
    enum belay_code code;
    int rc = backup_connect(from, NULL, SQLITE_OPEN_READONLY, NULL, &db);

    rc = rc == SQLITE_OK ? db_change(db, "VACUUM main INTO ?1", NULL, 0, to) : rc;
    code = rc == SQLITE_OK ? BELAY_OK : backup_failed("cannot copy", from, db, rc, err);
    (void)sqlite3_close(db);
    return code;
}

/* Everything, in one transaction of `to`. */
static int copy_content(sqlite3 *to, sqlite3 *from)
{
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
    int rc;

    if (backup == NULL) {
        return sqlite3_extended_errcode(to);
    }
    rc = sqlite3_backup_step(backup, -1);
    (void)sqlite3_backup_finish(backup);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

enum belay_code sqlite_backup_save(const struct sqlite_store *store, const char *path,
                                   struct belay_error *err)
{
    sqlite3 *db = NULL;
    enum belay_code code;
    int rc = backup_connect(path, NULL, SQLITE_OPEN_READWRITE, NULL, &db);

    rc = rc == SQLITE_OK ? copy_content(db, store->db) : rc;
    code =
        rc == SQLITE_OK ? BELAY_OK : backup_failed("cannot copy the lock database to", path, NULL, rc, err);
    (void)sqlite3_close(db);
    return code;
}

enum belay_code sqlite_backup_fill(struct sqlite_store *store, const char *path, struct belay_error *err)
{
    sqlite3 *db = NULL;
    enum belay_code code;
    int rc = backup_connect(path, NULL, SQLITE_OPEN_READONLY, NULL, &db);

    rc = rc == SQLITE_OK ? db_exec(store, "PRAGMA synchronous=EXTRA") : rc;
    rc = rc == SQLITE_OK ? copy_content(store->db, db) : rc;
    code = rc == SQLITE_OK ? BELAY_OK : backup_failed("cannot replace", store->path, NULL, rc, err);
    (void)sqlite3_close(db);
    return code;
}

enum belay_code sqlite_backup_make(const struct sqlite_store *store, const char *path,
                                   struct belay_cancel *cancel, struct belay_error *err)
{
    sqlite3 *db = NULL;
    int64_t boot_ms = sqlite_now_ms(store);
    enum belay_code code;
    int rc = backup_connect(store->path, store->hooks.vfs, SQLITE_OPEN_READWRITE, cancel, &db);

    rc = rc == SQLITE_OK ? db_change(db, "VACUUM main INTO ?1", NULL, 0, path) : rc;
    code = rc == SQLITE_OK ? BELAY_OK : backup_failed("cannot copy the lock database to", path, db, rc, err);
    (void)sqlite3_close(db);
    if (code == BELAY_OK && !store->is_beside && store->own_fd < 0) {
        struct sqlite_backup_info info = { 0 };

        /* A server may have started meanwhile: then the copy lacks its journal. */
        code = sqlite_backup_check(path, &info, err);
        if (code == BELAY_OK && info.is_served) {
            code = truncate(path, 0) == 0
                       ? sqlite_redirected(store, err)
                       : error_set(err, BELAY_UNREACHABLE, "'%.300s': %s", path, strerror(errno));
        }
    }
    return code == BELAY_OK ? sqlite_backup_mark(path, sqlite_unix_ms(store), boot_ms, 0, err) : code;
}

enum belay_code sqlite_backup(struct belay_store *base, const char *path, struct belay_cancel *cancel,
                              struct belay_error *err)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    struct txn txn = { 0 };
    bool other_boot = false;
    int rc;

    (void)pthread_mutex_lock(&store->mutex);
    rc = db_read_txn(store, &txn, &other_boot);
    (void)pthread_mutex_unlock(&store->mutex);
    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    if (txn.served) {
        return sqlite_redirected(store, err);
    }
    return sqlite_backup_make(store, path, cancel, err);
}
