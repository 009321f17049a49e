/*
 * Putting a backup in the place of a database.
 *
 * A database that is there already is replaced only when it is told so and nobody uses it: no server, no process that
 * has it open, no lock that is held. It is not removed, but kept beside it under another name. The copy is made
 * ready under a name that nobody uses, synced, and renamed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/new_file.h"
#include "store/sqlite/sqlite_internal.h"

/* What belongs to a database, beside the file itself. */
static const char *const companions[] = { "-wal", "-shm", "-journal", "-wake", "-ledger-0", "-ledger-1" };
enum { N_COMPANIONS = sizeof companions / sizeof companions[0] };

struct restore {
    const char *file;         /* the backup */
    char *path;               /* owned; the database */
    char *temp;               /* owned; the copy that is made ready */
    char *aside;              /* owned; where an old database goes */
    struct sqlite_store *old; /* owned; NULL: there is none */
    uint64_t ceiling;         /* of the old one */
    int64_t unix_ms;
};

static enum belay_code say_failed(const char *what, const char *path, struct belay_error *err)
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

/* Leaving WAL mode needs the file for oneself: it says whether any other process has it open. */
static enum belay_code check_alone(struct restore *restore, struct belay_error *err)
{
    struct sqlite_store *old = restore->old;
    sqlite3_stmt *statement = NULL;
    char how[128];
    int64_t n = 0;
    int rc;

    (void)sqlite3_busy_handler(old->db, NULL, NULL);
    rc = sqlite3_prepare_v2(old->db, "SELECT count(*) FROM locks WHERE held = 1 AND expires_ms > ?1", -1,
                            &statement, NULL);
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
    for (size_t i = 0; i < N_STATEMENTS; i++) {
        (void)sqlite3_finalize(old->statements[i]);
        old->statements[i] = NULL;
    }
    rc = db_exec(old, "PRAGMA journal_mode=DELETE");
    rc = rc == SQLITE_OK ? db_exec(old, "BEGIN EXCLUSIVE") : rc;
    if ((rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED) {
        return say_in_use(restore, "another process has it open; end it first", err);
    }
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(old, rc, err);
}

/* No server comes while restore->old is open. */
static enum belay_code open_old(struct restore *restore, const char *path_and_params,
                                const struct sqlite_hooks *hooks, struct belay_error *err)
{
    struct belay_store *store = NULL;
    struct ground ground = { 0 };
    bool other_boot;
    enum belay_code code = sqlite_store_open(path_and_params, hooks, &store, NULL, err);
    int rc;

    if (code != BELAY_OK) {
        return code;
    }
    restore->old = (struct sqlite_store *)store;
    if (!sqlite_keep_servers_away(restore->old)) {
        return say_in_use(restore, "a server serves it; stop that first", err);
    }
    rc = db_read_ground(restore->old, &ground, &other_boot);
    restore->ceiling = ground.ceiling > ground.next ? ground.ceiling : ground.next;
    return rc == SQLITE_OK ? check_alone(restore, err) : sqlite_failed(restore->old, rc, err);
}

/* ---- the copy ---- */

static bool copy_all(int from, int to)
{
    ssize_t n;

    do {
        n = sendfile(to, from, NULL, (size_t)1 << 30);
    } while (n > 0 || (n < 0 && errno == EINTR));
    return n == 0;
}

static enum belay_code make_copy(struct restore *restore, struct belay_error *err)
{
    struct stat st;
    bool has_old = restore->old != NULL && stat(restore->path, &st) == 0;
    int from = open(restore->file, O_RDONLY | O_CLOEXEC);
    int to = from < 0 ? -1 : new_file_open(restore->path, "restore", &restore->temp);
    enum belay_code code = BELAY_OK;

    if (from < 0 || to < 0) {
        code = say_failed(from < 0 ? "read" : "write beside", from < 0 ? restore->file : restore->path, err);
    } else if (!copy_all(from, to)) {
        code = say_failed("write", restore->temp, err);
    } else if (has_old) {
        /* For those who could use it before. */
        (void)fchmod(to, st.st_mode & 0660);
        (void)!fchown(to, geteuid() == 0 ? st.st_uid : (uid_t)-1, st.st_gid);
    }
    if (from >= 0) {
        (void)close(from);
    }
    if (to >= 0) {
        (void)close(to);
    }
    return code;
}

/* ---- the exchange ---- */

static bool move(const char *from, const char *suffix, const char *to)
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

/* A log or journal that is not the copy's would be taken for its own: all of it goes before the copy comes. */
static enum belay_code put_in_place(struct restore *restore, struct belay_error *err)
{
    for (size_t i = 0; i < N_COMPANIONS; i++) {
        if (!move(restore->path, companions[i], restore->aside)) {
            return say_failed("move away what belongs to", restore->path, err);
        }
    }
    if (restore->old != NULL && !move(restore->path, "", restore->aside)) {
        return say_failed("move away", restore->path, err);
    }
    if (!new_file_sync(restore->temp) || !new_file_place(restore->temp, restore->path)) {
        return say_failed("put the copy in the place of", restore->path, err);
    }
    free(restore->temp);
    restore->temp = NULL;
    return BELAY_OK;
}

static enum belay_code restore_begin(struct restore *restore, const char *path_and_params,
                                     const struct sqlite_hooks *hooks, bool replace,
                                     struct sqlite_backup_info *info, struct belay_error *err)
{
    struct sqlite_params params = { 0 };
    struct buf aside = BUF_INIT(PATH_MAX);
    struct stat st, backup;
    enum belay_code code = sqlite_params_parse(path_and_params, &params, err);

    if (code != BELAY_OK) {
        return code;
    }
    restore->path = params.path;
    params.path = NULL;
    sqlite_params_release(&params);
    buf_addf(&aside, "%s.replaced-%lld", restore->path, (long long)(restore->unix_ms / 1000));
    restore->aside = buf_take(&aside);
    if (restore->aside == NULL) {
        return error_no_memory(err);
    }
    code = sqlite_backup_check(restore->file, info, err);
    if (code == BELAY_OK && info->is_served) {
        code = error_set(
            err, BELAY_BAD_CONTENT,
            "'%.300s' is a copy of a database that was being served, without the server's journal: the "
            "last locks are not in it; make copies with 'belay backup'",
            restore->file);
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
    struct ground ground = { 0 };
    bool other_boot;
    enum belay_code code;

    if (hooks != NULL) {
        clock.hooks = *hooks;
    }
    restore.unix_ms = sqlite_unix_ms(&clock);
    code = restore_begin(&restore, path_and_params, hooks, replace, &info, err);
    if (code == BELAY_OK) {
        code = make_copy(&restore, err);
    }
    if (code == BELAY_OK) {
        code = sqlite_backup_prepare(restore.temp, err);
    }
    if (code == BELAY_OK) {
        code = sqlite_backup_mark(restore.temp, restore.unix_ms, 0, restore.ceiling, err);
    }
    if (code == BELAY_OK) {
        code = put_in_place(&restore, err);
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
        int rc = db_read_ground((struct sqlite_store *)store, &ground, &other_boot);

        info.next = rc == SQLITE_OK ? ground.next : 0;
        store->ops->close(store);
        *out_info = info;
    }
    free(restore.path);
    free(restore.temp);
    free(restore.aside);
    return code;
}
