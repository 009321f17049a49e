/* SQLite's codes as errors that users can act on: one line, with the path and advice. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/sqlite/sqlite_internal.h"

/* Offset of the write lock in SQLite's -shm file (its file format, "WAL-Index"). */
enum { WAL_WRITE_LOCK = 120 };

/*
 * The process that has the write lock, from /proc/locks. The -shm file itself must not be
 * opened here: closing it would release all locks of this process on it.
 */
static bool find_writer(const struct sqlite_store *store, long *out_pid)
{
    char shm[4096 + 8];
    char line[256];
    struct stat st;
    FILE *locks = NULL;
    bool found = false;

    (void)snprintf(shm, sizeof shm, "%s-shm", store->path);
    if (stat(shm, &st) != 0 || (locks = fopen("/proc/locks", "re")) == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof line, locks) != NULL) {
        unsigned major_no, minor_no;
        uint64_t inode, from, to;
        long pid;

        found = sscanf(line, "%*d: POSIX %*s WRITE %ld %x:%x:%" SCNu64 " %" SCNu64 " %" SCNu64, &pid,
                       &major_no, &minor_no, &inode, &from, &to) == 6 &&
                inode == st.st_ino && makedev(major_no, minor_no) == st.st_dev && from <= WAL_WRITE_LOCK &&
                WAL_WRITE_LOCK <= to && pid != getpid();
        if (found) {
            *out_pid = pid;
        }
    }
    (void)fclose(locks);
    return found;
}

static enum belay_code busy_failed(struct sqlite_store *store, struct belay_error *err)
{
    char span[CLOCK_TEXT_SIZE];
    long pid = 0;

    (void)clock_format_span(span, store->busy_limit_ms);
    if (find_writer(store, &pid)) {
        return error_set(err, BELAY_UNREACHABLE,
                         "process %ld has kept the lock database '%s' busy for %s; is it stopped? nothing "
                         "was changed",
                         pid, store->path, span);
    }
    return error_set(err, BELAY_UNREACHABLE,
                     "the lock database '%s' was busy for %s; 'fuser %s' shows which processes have it "
                     "open; nothing was changed",
                     store->path, span, store->path);
}

/* The file or its directory cannot be opened, created or written. */
static enum belay_code access_failed(struct sqlite_store *store, struct belay_error *err)
{
    char parent[4096];
    char *slash;
    int why = sqlite3_system_errno(store->db);

    (void)snprintf(parent, sizeof parent, "%s", store->path);
    slash = strrchr(parent, '/');
    if (slash != NULL) {
        slash[slash == parent ? 1 : 0] = '\0';
    }
    if (access(store->path, F_OK) == 0 && access(store->path, R_OK | W_OK) != 0) {
        return error_set(err, BELAY_UNREACHABLE,
                         "the lock database '%s' cannot be written by user %d: %s; give that user read and "
                         "write access, or name another file with --store sqlite:PATH",
                         store->path, (int)geteuid(), strerror(errno));
    }
    if (access(parent, W_OK | X_OK) != 0) {
        return error_set(err, BELAY_UNREACHABLE,
                         "the directory '%s' of the lock database cannot be written by user %d: %s; SQLite "
                         "keeps its log there, so make it writable, or name another place with --store "
                         "sqlite:PATH",
                         parent, (int)geteuid(), strerror(errno));
    }
    return error_set(err, BELAY_UNREACHABLE, "cannot open the lock database '%s': %s%s%s", store->path,
                     sqlite3_errmsg(store->db), why != 0 ? ": " : "", why != 0 ? strerror(why) : "");
}

enum belay_code sqlite_failed(struct sqlite_store *store, int rc, struct belay_error *err)
{
    int why = sqlite3_system_errno(store->db);

    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return error_no_memory(err);
    case SQLITE_BUSY:
    case SQLITE_PROTOCOL:
        return busy_failed(store, err);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return access_failed(store, err);
    case SQLITE_NOTADB:
        return error_set(err, BELAY_BAD_CONTENT,
                         "'%s' is not a lock database (nor any SQLite file); it was left as it is, name "
                         "another file with --store sqlite:PATH",
                         store->path);
    case SQLITE_CORRUPT:
        return error_set(err, BELAY_BAD_CONTENT,
                         "the lock database '%s' is damaged (%s); nothing was changed: move it and its -wal "
                         "file away, and look into it with 'sqlite3 FILE .recover'",
                         store->path, sqlite3_errmsg(store->db));
    default:
        break;
    }
    if ((rc & 0xff) == SQLITE_FULL || ((rc & 0xff) == SQLITE_IOERR && (why == ENOSPC || why == EDQUOT))) {
        return error_set(err, BELAY_UNREACHABLE,
                         "no space left on the file system of '%s'; nothing was changed", store->path);
    }
    return error_set(err, BELAY_UNREACHABLE, "the lock database '%s' failed: %s%s%s; nothing was changed",
                     store->path, sqlite3_errmsg(store->db), why != 0 ? ": " : "",
                     why != 0 ? strerror(why) : "");
}

/*
 * A full disk truncates the last frame of the log, which then does not count. After any other
 * error the frame may be complete, and the next reader of the log after a crash would take it
 * for committed.
 */
enum belay_code sqlite_commit_failed(struct sqlite_store *store, int rc, struct belay_error *err)
{
    int why = sqlite3_system_errno(store->db);

    if ((rc & 0xff) == SQLITE_FULL || (rc & 0xff) == SQLITE_BUSY) {
        return sqlite_failed(store, rc, err);
    }
    return error_set(
        err, BELAY_UNKNOWN, "the lock database '%s' failed while committing, so it may have happened: %s%s%s",
        store->path, sqlite3_errmsg(store->db), why != 0 ? ": " : "", why != 0 ? strerror(why) : "");
}

enum belay_code sqlite_moved(const struct sqlite_store *store, struct belay_error *err)
{
    return error_set(err, BELAY_UNREACHABLE,
                     "the lock database '%s' was moved or deleted while this process had it open; others may "
                     "use a new one by now, so nothing more is done here: start again",
                     store->path);
}

enum belay_code sqlite_other_boot(const struct sqlite_store *store, struct belay_error *err)
{
    return error_set(err, BELAY_UNREACHABLE,
                     "the lock database '%s' has been used by another machine since this process opened it; "
                     "machines cannot share such a file: use a local path on each, or one belay server",
                     store->path);
}
