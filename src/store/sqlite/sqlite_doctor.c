/* `belay doctor` on a lock database. Changes nothing, and does not create a database that is missing. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/diagnostics.h"
#include "base/error.h"
#include "base/paths.h"
#include "store/sqlite/sqlite_internal.h"

enum { TIMEOUT_MS = 3000, ADVICE_SIZE = PATH_MAX + 256 };
#define SPACE_LOW (UINT64_C(64) << 20)
#define SPACE_NONE (UINT64_C(1) << 20)
#define TMPFS 0x01021994L
#define RAMFS 0x858458f6L
#define SET_BACK_MS 5000

struct sqlite_doctor {
    struct diagnostics *diagnostics;
    struct sqlite_store store; /* only path, db, hooks, clock and busy limit are filled */
    char directory[PATH_MAX];
};

/* ---- place ---------------------------------------------------------------- */

/* The file that the URL names, without creating a directory for it; NULL: the URL is wrong. */
static char *check_params(struct diagnostics *diagnostics, const char *text)
{
    struct sqlite_params params = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    char *place = NULL;
    char *query = NULL;

    if (sqlite_params_read(text, &params, &place, &query, &err) != BELAY_OK) {
        diagnostics_error(diagnostics, "store", NULL, &err);
    }
    free(query);
    belay_error_release(&err);
    return place;
}

/* The absolute path, without its links if the file exists. NULL: it is too long, or no memory. */
static char *full_path(const char *text)
{
    char *path = NULL;
    char *real = sqlite_absolute_path(text, &path, NULL) == BELAY_OK ? realpath(path, NULL) : NULL;

    if (real != NULL) {
        free(path);
        return real;
    }
    return path;
}

/* A file without a name, or, where that is not supported, one that is unlinked at once. */
static int nameless_file(const char *directory)
{
    char path[PATH_MAX + 32];
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
        return fd;
    }
    (void)snprintf(path, sizeof path, "%s/.belay-doctor-XXXXXX", directory);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) {
        (void)unlink(path);
    }
    return fd;
}

static bool check_directory(struct sqlite_doctor *doctor)
{
    static const char block[4096];
    char advice[ADVICE_SIZE];
    int fd = nameless_file(doctor->directory);
    int why = fd < 0 ? errno : 0;

    if (fd >= 0) {
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block || fsync(fd) != 0) {
            why = errno != 0 ? errno : ENOSPC;
        }
        (void)close(fd);
    }
    if (why == 0) {
        diagnostics_ok(doctor->diagnostics, "directory", "%s can be written", doctor->directory);
        return true;
    }
    (void)snprintf(advice, sizeof advice, "%s, or name another place with --store sqlite:PATH",
                   why == ENOSPC || why == EDQUOT ? "make room" : "make it writable for this user");
    diagnostics_fail(doctor->diagnostics,
                     why == EACCES || why == EPERM || why == EROFS ? BELAY_NOT_PERMITTED : BELAY_UNREACHABLE,
                     "directory", advice, "user %d cannot write in %s: %s", (int)geteuid(), doctor->directory,
                     strerror(why));
    return false;
}

static bool check_file_system(struct sqlite_doctor *doctor)
{
    long type = sqlite_file_system_type(&doctor->store, doctor->directory);

    if (sqlite_network_name(type) != NULL) {
        diagnostics_fail(doctor->diagnostics, BELAY_CONFIG, "file system",
                         "name a file on a local disk, or one belay server for all machines",
                         "%s is on a network file system (%s), where SQLite's locks do not hold",
                         doctor->directory, sqlite_network_name(type));
        return false;
    }
    if (type == TMPFS || (type & 0xffffffffL) == RAMFS) {
        diagnostics_warn(
            doctor->diagnostics, "file system",
            "fine for trying out; for fenced writes name a file on a disk",
            "%s is in memory: a restart of the machine forgets the locks, and tokens begin again",
            doctor->directory);
    } else {
        diagnostics_ok(doctor->diagnostics, "file system", "%s is on a local file system", doctor->directory);
    }
    return true;
}

static void check_space(struct sqlite_doctor *doctor)
{
    struct statvfs fs;
    uint64_t room;

    if (statvfs(doctor->directory, &fs) != 0) {
        diagnostics_warn(doctor->diagnostics, "free space", NULL, "cannot be told: %s", strerror(errno));
        return;
    }
    if (fs.f_blocks == 0) {
        return; /* not a file system that fills up */
    }
    room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (room < SPACE_NONE) {
        diagnostics_fail(doctor->diagnostics, BELAY_UNREACHABLE, "free space",
                         "make room on that file system", "%" PRIu64 " KiB are left for this user",
                         room >> 10);
    } else if (room < SPACE_LOW || (fs.f_files > 0 && fs.f_favail == 0)) {
        diagnostics_warn(doctor->diagnostics, "free space", "make room on that file system",
                         "%" PRIu64 " MiB and %" PRIu64 " files are left for this user", room >> 20,
                         (uint64_t)fs.f_favail);
    } else {
        diagnostics_ok(doctor->diagnostics, "free space", "%" PRIu64 " MiB", room >> 20);
    }
}

/* ---- the file ------------------------------------------------------------- */

static bool check_permissions(struct sqlite_doctor *doctor, const struct stat *st)
{
    char advice[ADVICE_SIZE];

    if (!S_ISREG(st->st_mode)) {
        diagnostics_fail(doctor->diagnostics, BELAY_CONFIG, "permissions",
                         "name the file of the lock database", "%s is %s", doctor->store.path,
                         S_ISDIR(st->st_mode) ? "a directory" : "not a regular file");
        return false;
    }
    if (faccessat(AT_FDCWD, doctor->store.path, R_OK | W_OK, AT_EACCESS) != 0) {
        diagnostics_fail(
            doctor->diagnostics, BELAY_NOT_PERMITTED, "permissions",
            "give that user read and write access, or name another file with --store sqlite:PATH",
            "user %d cannot read and write %s: %s", (int)geteuid(), doctor->store.path, strerror(errno));
        return false;
    }
    if ((st->st_mode & S_IWOTH) != 0) {
        (void)snprintf(advice, sizeof advice, "run 'chmod o-w %s'", doctor->store.path);
        diagnostics_warn(doctor->diagnostics, "permissions", advice,
                         "every user may write %s, and so end any lock", doctor->store.path);
    } else if ((st->st_mode & S_IROTH) != 0) {
        (void)snprintf(advice, sizeof advice, "run 'chmod o-rwx %s*'", doctor->store.path);
        diagnostics_warn(doctor->diagnostics, "permissions", advice,
                         "every user may read %s, and with the lock ids in it end any lock",
                         doctor->store.path);
    } else {
        diagnostics_ok(doctor->diagnostics, "permissions", "mode %04o, owner %d, group %d",
                       (unsigned)st->st_mode & 07777U, (int)st->st_uid, (int)st->st_gid);
    }
    return true;
}

static void check_wake_file(struct sqlite_doctor *doctor)
{
    char path[PATH_MAX + 8], advice[ADVICE_SIZE];
    struct stat st;

    (void)snprintf(path, sizeof path, "%s-wake", doctor->store.path);
    if (lstat(path, &st) != 0) {
        diagnostics_ok(doctor->diagnostics, "wake file",
                       "there is none; the next command that opens the store creates it");
    } else if (!S_ISREG(st.st_mode) || faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) != 0) {
        (void)snprintf(advice, sizeof advice, "%s %s %s",
                       S_ISREG(st.st_mode) ? "give the users of the database read and write access to"
                                           : "remove",
                       path, S_ISREG(st.st_mode) ? "" : "while no belay runs");
        diagnostics_warn(doctor->diagnostics, "wake file", advice,
                         "%s cannot be used by user %d: waiters poll instead of being woken", path,
                         (int)geteuid());
    } else {
        diagnostics_ok(doctor->diagnostics, "wake file", "%s", path);
    }
}

/* ---- the database --------------------------------------------------------- */

static bool open_db(struct sqlite_doctor *doctor, struct belay_error *err)
{
    struct sqlite_store *store = &doctor->store;
    int rc = db_connect(store->path, store->hooks.vfs, SQLITE_OPEN_READWRITE, &store->db);

    if (store->db == NULL) {
        (void)error_no_memory(err);
        return false;
    }
    (void)sqlite3_busy_timeout(store->db, TIMEOUT_MS);
    if (rc != SQLITE_OK) {
        (void)sqlite_failed(store, rc, err);
    }
    return rc == SQLITE_OK;
}

static bool check_tables(struct sqlite_doctor *doctor, const struct stat *st)
{
    struct belay_error err = BELAY_ERROR_INIT;
    bool is_empty = false;
    bool good = open_db(doctor, &err) && sqlite_schema_look(&doctor->store, &is_empty, &err) == BELAY_OK;

    if (!good) {
        diagnostics_error(doctor->diagnostics, "database", NULL, &err);
    } else if (is_empty) {
        diagnostics_ok(doctor->diagnostics, "database", "%s is empty; the first command makes its tables",
                       doctor->store.path);
    } else {
        diagnostics_ok(doctor->diagnostics, "database", "schema %d, %" PRId64 " KiB", (int)SCHEMA_VERSION,
                       (int64_t)st->st_size / 1024);
    }
    belay_error_release(&err);
    return good && !is_empty;
}

/* The newest event's time on the wall clock, and whether the database uses this boot's clock. */
static int read_newest_event(struct sqlite_doctor *doctor, int64_t *out_unix_ms, bool *out_this_boot)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(doctor->store.db,
                                "SELECT boot_id, (SELECT at_unix_ms FROM events ORDER BY id DESC LIMIT 1) "
                                "FROM meta WHERE id = 1",
                                -1, &statement, NULL);

    if (rc == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW) {
        const unsigned char *boot_id = sqlite3_column_text(statement, 0);

        *out_this_boot = boot_id != NULL && strcmp((const char *)boot_id, doctor->store.boot_id) == 0;
        *out_unix_ms = sqlite3_column_int64(statement, 1);
    }
    (void)sqlite3_finalize(statement);
    return rc;
}

/* Leases use the boot clock (L7); the wall clock is for display. */
static void check_boot_clock(struct sqlite_doctor *doctor, bool has_tables)
{
    struct belay_error err = BELAY_ERROR_INIT;
    char up[CLOCK_TEXT_SIZE], span[CLOCK_TEXT_SIZE];
    int64_t newest_ms = 0;
    int64_t ahead;
    bool this_boot = true;

    if (sqlite_clock_init(&doctor->store, &err) != BELAY_OK) {
        diagnostics_error(doctor->diagnostics, "clock", NULL, &err);
        belay_error_release(&err);
        return;
    }
    if (has_tables) {
        (void)read_newest_event(doctor, &newest_ms, &this_boot);
    }
    (void)clock_format_span(up, sqlite_now_ms(&doctor->store));
    ahead = newest_ms - sqlite_unix_ms(&doctor->store);
    if (ahead > SET_BACK_MS) {
        diagnostics_warn(doctor->diagnostics, "clock", "set the clock (NTP); leases are not affected",
                         "the wall clock is %s before the newest event in the store: it was set back, or was "
                         "ahead then",
                         clock_format_span(span, ahead));
    } else {
        diagnostics_ok(doctor->diagnostics, "clock",
                       "up for %s by the boot clock, which leases are counted on%s", up,
                       this_boot ? "" : "; the store was last used before this boot");
    }
}

/*
 * A row under an impossible key is inserted and deleted in one transaction, which is then
 * committed and synced: if this process dies, nothing remains, and no other process ever sees
 * it.
 */
static int write_and_remove(struct sqlite_doctor *doctor)
{
    static const char *const steps[] = { "PRAGMA synchronous=FULL", "BEGIN IMMEDIATE",
                                         "INSERT INTO history (bucket, id) VALUES (-1, -1)",
                                         "DELETE FROM history WHERE bucket = -1", "COMMIT" };
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof steps / sizeof steps[0]; i++) {
        rc = db_exec(&doctor->store, steps[i]);
    }
    return rc;
}

static void check_write(struct sqlite_doctor *doctor)
{
    struct belay_error err = BELAY_ERROR_INIT;
    int64_t began = clock_boot_ms();
    int rc = write_and_remove(doctor);

    if (rc != SQLITE_OK) {
        (void)sqlite_failed(&doctor->store, rc, &err);
        if (!sqlite3_get_autocommit(doctor->store.db)) {
            (void)db_exec(&doctor->store, "ROLLBACK");
        }
        diagnostics_error(doctor->diagnostics, "write", NULL, &err);
    } else {
        diagnostics_ok(doctor->diagnostics, "write", "wrote, removed and synced a row in %" PRId64 " ms",
                       clock_boot_ms() - began);
    }
    belay_error_release(&err);
}

/* False if a server owns the file: then this process must not write to it. */
static bool check_serving(struct sqlite_doctor *doctor)
{
    struct sqlite_server server = { 0 };
    struct txn txn = { 0 };
    bool other_boot = false;

    if (db_read_txn(&doctor->store, &txn, &other_boot) != SQLITE_OK || !txn.served ||
        !sqlite_served_parse(&doctor->store, &server)) {
        return true;
    }
    if (sqlite_server_lives(&doctor->store)) {
        diagnostics_ok(doctor->diagnostics, "server",
                       "the file is served by process %ld; commands go through %s", server.pid,
                       server.socket);
    } else {
        diagnostics_ok(doctor->diagnostics, "server",
                       "process %ld served the file and is dead; the next command goes on without it",
                       server.pid);
    }
    sqlite_server_release(&server);
    return false;
}

static void check_database_file(struct sqlite_doctor *doctor)
{
    struct stat st;
    bool has_tables = false;

    if (stat(doctor->store.path, &st) != 0) {
        diagnostics_ok(doctor->diagnostics, "database", "there is none at %s; the first command makes it",
                       doctor->store.path);
    } else if (check_permissions(doctor, &st)) {
        has_tables = check_tables(doctor, &st);
        check_wake_file(doctor);
    } else {
        return;
    }
    check_boot_clock(doctor, has_tables);
    if (has_tables && check_serving(doctor)) {
        check_write(doctor);
    }
}

void sqlite_store_doctor(const char *path_and_params, const struct sqlite_hooks *hooks,
                         struct diagnostics *diagnostics)
{
    struct sqlite_doctor doctor = { .diagnostics = diagnostics };
    char *place = check_params(diagnostics, path_and_params);

    if (place == NULL) {
        return;
    }
    if (hooks != NULL) {
        doctor.store.hooks = *hooks;
    }
    doctor.store.busy_limit_ms = TIMEOUT_MS;
    doctor.store.own_fd = -1;
    doctor.store.path = full_path(place);
    free(place);
    if (doctor.store.path == NULL) {
        diagnostics_fail(diagnostics, BELAY_CONFIG, "store", NULL,
                         "the path of the lock database is too long");
        return;
    }
    existing_parent(doctor.store.path, doctor.directory);
    if (check_file_system(&doctor)) {
        bool writable = check_directory(&doctor);

        check_space(&doctor);
        if (writable) {
            check_database_file(&doctor);
        }
    }
    (void)sqlite3_finalize(doctor.store.statements[ST_META]);
    (void)sqlite3_close(doctor.store.db);
    free(doctor.store.path);
}
