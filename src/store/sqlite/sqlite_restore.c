/*
 * Puts a backup in the place of a database.
 * An existing database is replaced only on request and if it is not in use: no server, no
 * process that has it open, no lock that is held. Its content is kept beside it under another
 * name. The copy is prepared under a name that no other process uses. Then it is renamed, or
 * becomes the content of the existing database.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/new_file.h"
#include "store/sqlite/sqlite_internal.h"

/* The files that belong to a database. */
static const char *const companions[] = { "-wal", "-shm", "-journal", "-wake", "-ledger-0", "-ledger-1" };
enum { N_COMPANIONS = sizeof companions / sizeof companions[0] };

struct restore {
    const char *file;         /* the backup */
    char *path;               /* owned; the database */
    char *temp;               /* owned; the copy that is being prepared */
    char *aside;              /* owned; where an old database is kept */
    struct sqlite_store *old; /* owned; NULL: there is none */
    uint64_t ceiling;         /* of the old one */
    int64_t unix_ms;
};

static enum belay_code restore_failed(const char *what, const char *path, struct belay_error *err)
{
    return error_set(err, errno == EACCES || errno == EPERM ? BELAY_NOT_PERMITTED : BELAY_UNREACHABLE,
                     "cannot %s '%.300s': %s", what, path, strerror(errno));
}

/* ---- is it in use? ---- */

static enum belay_code say_in_use(const struct restore *restore, const char *how, struct belay_error *err)
{
    return error_set(err, BELAY_HELD, "the lock database '%.300s' is in use: %s; nothing was changed",
                     restore->path, how);
}

/*
 * Leaving WAL mode needs exclusive access: it tells whether any other process has the file
 * open. From then on the file is locked until it is closed, so that no lock is acquired after
 * the count, and the log is gone.
 */
static enum belay_code check_alone(struct restore *restore, struct belay_error *err)
{
    struct sqlite_store *old = restore->old;
    sqlite3_stmt *statement = NULL;
    char how[128];
    int64_t n = 0;
    int rc;

    (void)sqlite3_busy_handler(old->db, NULL, NULL);
    rc = db_leave_wal(old);
    rc = rc == SQLITE_OK ? db_exec(old, "PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT") : rc;
    if ((rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED) {
        return say_in_use(restore, "another process has it open; end it first", err);
    }
    rc = rc == SQLITE_OK
             ? sqlite3_prepare_v2(old->db, "SELECT count(*) FROM locks WHERE held = 1 AND expires_ms > ?1",
                                  -1, &statement, NULL)
             : rc;
    rc = rc == SQLITE_OK ? sqlite3_bind_int64(statement, 1, sqlite_now_ms(old)) : rc;
    rc = rc == SQLITE_OK ? sqlite3_step(statement) : rc;
    n = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    (void)sqlite3_finalize(statement);
    if (rc != SQLITE_ROW) {
        return sqlite_failed(old, rc, err);
    }
    if (n > 0) {
        (void)snprintf(how, sizeof how,
                       "%" PRId64 " locks in it are held; release them, or wait until they expire", n);
        return say_in_use(restore, how, err);
    }
    return BELAY_OK;
}

/* No server can start while restore->old is open. */
static enum belay_code open_old(struct restore *restore, const char *path_and_params,
                                const struct sqlite_hooks *hooks, struct belay_error *err)
{
    struct belay_store *store = NULL;
    struct txn txn = { 0 };
    bool other_boot;
    enum belay_code code = sqlite_store_open(path_and_params, hooks, &store, NULL, err);
    int rc;

    if (code != BELAY_OK) {
        return code;
    }
    restore->old = (struct sqlite_store *)store;
    if (!sqlite_keep_servers_away(restore->old)) {
        return errno == EWOULDBLOCK ? say_in_use(restore, "a server serves it; stop that first", err)
                                    : error_set(err, BELAY_UNREACHABLE, "cannot lock '%.300s-serve.lock': %s",
                                                restore->path, strerror(errno));
    }
    code = check_alone(restore, err);
    if (code != BELAY_OK) {
        return code;
    }
    rc = db_read_txn(restore->old, &txn, &other_boot);
    restore->ceiling = txn.ceiling > txn.next ? txn.ceiling : txn.next;
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(restore->old, rc, err);
}

/* ---- the copy ---- */

/* FILE may be any belay database that is not served: with the content of its log, if it has one. */
static enum belay_code make_copy(struct restore *restore, struct sqlite_backup_info *out_info,
                                 struct belay_error *err)
{
    struct sqlite_backup_info info = { 0 };
    int to = new_file_open(restore->path, "restore", &restore->temp);
    enum belay_code code;

    if (to < 0) {
        return restore_failed("write beside", restore->path, err);
    }
    (void)fchmod(to, new_file_mode(restore->path));
    (void)close(to);
    code = sqlite_backup_copy(restore->file, restore->temp, err);
    if (code == BELAY_OK) {
        code = sqlite_backup_check(restore->temp, &info, err);
    }
    if (code == BELAY_OK && info.is_served) {
        code = error_set(
            err, BELAY_BAD_CONTENT,
            "'%.300s' is a copy of a database that was being served, without the server's journal: the "
            "last locks are not in it; make copies with 'belay backup'",
            restore->file);
    }
    if (code == BELAY_OK && info.copied_at_unix_ms > restore->unix_ms) {
        code = sqlite_clock_is_behind(restore->file, err);
    }
    if (code == BELAY_OK) {
        *out_info = info;
    }
    return code;
}

/* ---- the exchange ---- */

/* Through SQLite: closing a descriptor of this process for the file would release SQLite's locks. */
static enum belay_code keep_old(struct restore *restore, struct belay_error *err)
{
    struct stat st;
    char *temp = NULL;
    int to = stat(restore->path, &st) != 0 ? -1 : new_file_open(restore->path, "restore", &temp);
    enum belay_code code;

    if (to < 0) {
        return restore_failed("write beside", restore->path, err);
    }
    (void)fchmod(to, st.st_mode & 0660);
    (void)!fchown(to, geteuid() == 0 ? st.st_uid : (uid_t)-1, st.st_gid);
    (void)close(to);
    code = sqlite_backup_save(restore->old, temp, err);
    if (code == BELAY_OK && (!new_file_sync(temp) || !new_file_place(temp, restore->aside))) {
        code = restore_failed("write", restore->aside, err);
    }
    if (code != BELAY_OK) {
        (void)unlink(temp);
    }
    free(temp);
    return code;
}

/*
 * The content is replaced, not the file, in one transaction: a process that is about to open
 * it waits for its lock, and finds the old content or the new; after a kill, the next process
 * to open it rolls back. A rename would leave waiting processes with the old file.
 */
static enum belay_code replace_content(struct restore *restore, struct belay_error *err)
{
    enum belay_code code = keep_old(restore, err);

    if (code == BELAY_OK) {
        code = sqlite_backup_fill(restore->old, restore->temp, err);
    }
    if (code == BELAY_OK) {
        (void)unlink(restore->temp);
        free(restore->temp);
        restore->temp = NULL;
    }
    return code;
}

static bool move_companion(const char *from, const char *suffix, const char *to)
{
    struct buf old = BUF_INIT(PATH_MAX);
    struct buf new = BUF_INIT(PATH_MAX);
    bool ok;

    buf_addf(&old, "%s%s", from, suffix);
    buf_addf(&new, "%s%s", to, suffix);
    ok = !old.failed && !new.failed && (rename(old.data, new.data) == 0 || errno == ENOENT);
    buf_release(&old);
    buf_release(&new);
    return ok;
}

/*
 * If there is no database. A log or journal of another database would be taken for the copy's:
 * they are moved away before the copy is put in place.
 */
static enum belay_code put_in_place(struct restore *restore, struct belay_error *err)
{
    for (size_t i = 0; i < N_COMPANIONS; i++) {
        if (!move_companion(restore->path, companions[i], restore->aside)) {
            return restore_failed("move away what belongs to", restore->path, err);
        }
    }
    if (!new_file_sync(restore->temp) || !new_file_place(restore->temp, restore->path)) {
        return restore_failed("put the copy in the place of", restore->path, err);
    }
    free(restore->temp);
    restore->temp = NULL;
    return BELAY_OK;
}

/* A free name, also after a restore in the same second. */
static enum belay_code name_aside(struct restore *restore, struct belay_error *err)
{
    struct stat st;

    for (int64_t at_s = restore->unix_ms / 1000;; at_s++) {
        struct buf aside = BUF_INIT(PATH_MAX);

        buf_addf(&aside, "%s.replaced-%" PRId64, restore->path, at_s);
        free(restore->aside);
        restore->aside = buf_take(&aside);
        if (restore->aside == NULL) {
            return error_no_memory(err);
        }
        if (lstat(restore->aside, &st) != 0) {
            return BELAY_OK;
        }
    }
}

static enum belay_code restore_begin(struct restore *restore, const char *path_and_params,
                                     const struct sqlite_hooks *hooks, bool replace,
                                     struct sqlite_backup_info *info, struct belay_error *err)
{
    struct sqlite_params params = { 0 };
    struct stat st, backup;
    enum belay_code code = sqlite_params_parse(path_and_params, &params, err);

    if (code != BELAY_OK) {
        return code;
    }
    restore->path = params.path;
    params.path = NULL;
    sqlite_params_release(&params);
    code = name_aside(restore, err);
    if (code == BELAY_OK && stat(restore->file, &backup) != 0 && errno == ENOENT) {
        code = error_set(err, BELAY_NOT_FOUND, "there is no file '%.300s'", restore->file);
    }
    if (code == BELAY_OK) {
        code = sqlite_backup_check(restore->file, info, err);
    }
    if (code == BELAY_OK && stat(restore->path, &st) == 0) {
        if (stat(restore->file, &backup) == 0 && backup.st_ino == st.st_ino && backup.st_dev == st.st_dev) {
            code = error_set(err, BELAY_INVALID, "'%.300s' is the lock database itself", restore->file);
        } else if (!replace && st.st_size > 0) {
            code = error_set(
                err, BELAY_INVALID,
                "there is a lock database '%.300s' already: add --replace to put the backup in its place; "
                "it is kept as '%.300s'",
                restore->path, restore->aside);
        } else {
            code = open_old(restore, path_and_params, hooks, err);
        }
    }
    return code;
}

enum belay_code sqlite_store_restore(const char *file, const char *path_and_params,
                                     const struct sqlite_hooks *hooks, bool replace,
                                     struct sqlite_backup_info *out_info, struct belay_error *err)
{
    struct sqlite_store clock = { 0 };
    struct restore restore = { .file = file };
    struct sqlite_backup_info info = { 0 };
    struct belay_store *store = NULL;
    struct txn txn = { 0 };
    bool other_boot;
    enum belay_code code;

    if (hooks != NULL) {
        clock.hooks = *hooks;
    }
    restore.unix_ms = sqlite_unix_ms(&clock);
    code = restore_begin(&restore, path_and_params, hooks, replace, &info, err);
    if (code == BELAY_OK) {
        code = make_copy(&restore, &info, err);
    }
    if (code == BELAY_OK) {
        code = sqlite_backup_mark(restore.temp, restore.unix_ms, 0, restore.ceiling, err);
    }
    if (code == BELAY_OK) {
        code = restore.old != NULL ? replace_content(&restore, err) : put_in_place(&restore, err);
    }
    if (restore.temp != NULL) {
        (void)unlink(restore.temp);
    }
    if (restore.old != NULL) {
        sqlite_restore_drop(restore.old);
    }
    if (code == BELAY_OK) {
        code = sqlite_store_open(path_and_params, hooks, &store, NULL, err);
    }
    if (code == BELAY_OK) {
        int rc = db_read_txn((struct sqlite_store *)store, &txn, &other_boot);

        info.next = rc == SQLITE_OK ? txn.next : 0;
        store->ops->close(store);
        *out_info = info;
    }
    free(restore.path);
    free(restore.temp);
    free(restore.aside);
    return code;
}
