/*
 * A VFS for the write-ahead log: SQLite writes the header of a frame, 24 bytes, and its page
 * with two system calls, one right after the other, and the file system takes about as long
 * for either. Here the header waits for its page, and both are one write.
 *
 *     write of 24 bytes where a frame begins   the header waits
 *     write of the page behind it              write both
 *     any other call                           write the header, then as asked
 *
 * Other processes learn of a frame from the index in shared memory, after its page was
 * written. A header without a page rewrites the checksum of a frame, which SQLite reads right
 * before; that one does not wait. The size of a page is known from the first frame, which is
 * written as SQLite asks for it. All other files are those of the VFS below.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sqlite/sqlite_internal.h"

enum { LOG_HEADER = 32, FRAME_HEADER = 24, PAGE_MIN = 512 }; /* bytes; SQLite's file format */

struct log_file {
    sqlite3_file base;
    sqlite3_file *real;      /* right behind this struct */
    unsigned char *frame;    /* owned; begins with the header that waits; NULL: not known how long */
    int page;                /* bytes of a page in `frame` */
    bool waits;              /* the header at header_at was not written yet */
    sqlite3_int64 header_at; /* of the last header; -1: none */
    sqlite3_int64 read_at;   /* of the last read; -1: none */
};

struct log_vfs {
    sqlite3_vfs base;
    sqlite3_vfs *below; /* borrowed */
    char name[];
};

static struct log_file *log_of(sqlite3_file *file)
{
    return (struct log_file *)file;
}

/* Writes the header that waits, if there is one. */
static int settle(struct log_file *log)
{
    bool waits = log->waits;

    log->waits = false;
    return waits ? log->real->pMethods->xWrite(log->real, log->frame, FRAME_HEADER, log->header_at)
                 : SQLITE_OK;
}

static int log_close(sqlite3_file *file)
{
    struct log_file *log = log_of(file);
    int rc = settle(log);
    int closed = log->real->pMethods->xClose(log->real);

    free(log->frame);
    log->frame = NULL;
    return rc == SQLITE_OK ? closed : rc;
}

static int log_read(sqlite3_file *file, void *data, int n, sqlite3_int64 at)
{
    struct log_file *log = log_of(file);
    int rc = settle(log);

    log->read_at = at;
    return rc == SQLITE_OK ? log->real->pMethods->xRead(log->real, data, n, at) : rc;
}

/* A page follows its header for the first time. */
static void learn_page(struct log_file *log, int n)
{
    free(log->frame);
    log->frame = malloc(FRAME_HEADER + (size_t)n);
    log->page = n;
}

static int log_write(sqlite3_file *file, const void *data, int n, sqlite3_int64 at)
{
    struct log_file *log = log_of(file);
    bool follows = log->header_at >= 0 && at == log->header_at + FRAME_HEADER;
    int rc;

    if (log->waits && follows && n == log->page) {
        log->waits = false;
        memcpy(log->frame + FRAME_HEADER, data, (size_t)n);
        return log->real->pMethods->xWrite(log->real, log->frame, FRAME_HEADER + n, log->header_at);
    }
    rc = settle(log);
    if (rc != SQLITE_OK) {
        return rc;
    }
    if (n == FRAME_HEADER) {
        log->header_at = at;
        if (log->frame != NULL && at != log->read_at && (at - LOG_HEADER) % (FRAME_HEADER + log->page) == 0) {
            memcpy(log->frame, data, FRAME_HEADER);
            log->waits = true;
            return SQLITE_OK;
        }
    } else if (follows && n >= PAGE_MIN && n != log->page) {
        learn_page(log, n);
    }
    return log->real->pMethods->xWrite(log->real, data, n, at);
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int rc = settle(log_of(file));

    return rc == SQLITE_OK ? log_of(file)->real->pMethods->xTruncate(log_of(file)->real, size) : rc;
}

static int log_sync(sqlite3_file *file, int flags)
{
    int rc = settle(log_of(file));

    return rc == SQLITE_OK ? log_of(file)->real->pMethods->xSync(log_of(file)->real, flags) : rc;
}

static int log_size(sqlite3_file *file, sqlite3_int64 *out_size)
{
    int rc = settle(log_of(file));

    return rc == SQLITE_OK ? log_of(file)->real->pMethods->xFileSize(log_of(file)->real, out_size) : rc;
}

static int log_lock(sqlite3_file *file, int level)
{
    return log_of(file)->real->pMethods->xLock(log_of(file)->real, level);
}

static int log_unlock(sqlite3_file *file, int level)
{
    return log_of(file)->real->pMethods->xUnlock(log_of(file)->real, level);
}

static int log_check_lock(sqlite3_file *file, int *out_locked)
{
    return log_of(file)->real->pMethods->xCheckReservedLock(log_of(file)->real, out_locked);
}

static int log_control(sqlite3_file *file, int op, void *argument)
{
    return log_of(file)->real->pMethods->xFileControl(log_of(file)->real, op, argument);
}

static int log_sector(sqlite3_file *file)
{
    return log_of(file)->real->pMethods->xSectorSize(log_of(file)->real);
}

static int log_device(sqlite3_file *file)
{
    return log_of(file)->real->pMethods->xDeviceCharacteristics(log_of(file)->real);
}

/* Version 1: a log has neither shared memory nor mapped pages. */
static const sqlite3_io_methods log_methods = {
    .iVersion = 1,
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_check_lock,
    .xFileControl = log_control,
    .xSectorSize = log_sector,
    .xDeviceCharacteristics = log_device,
};

static int log_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *out_file, int flags, int *out_flags)
{
    sqlite3_vfs *below = ((struct log_vfs *)vfs)->below;
    struct log_file *log = log_of(out_file);
    int rc;

    if ((flags & SQLITE_OPEN_WAL) == 0) {
        return below->xOpen(below, name, out_file, flags, out_flags);
    }
    memset(log, 0, sizeof *log);
    log->real = (sqlite3_file *)(void *)(log + 1);
    log->header_at = log->read_at = -1;
    rc = below->xOpen(below, name, log->real, flags, out_flags);
    if (log->real->pMethods != NULL) {
        log->base.pMethods = &log_methods;
    }
    return rc;
}

/* On the heap and never unregistered: SQLite may outlive this library in a process. */
static struct log_vfs *make_vfs(sqlite3_vfs *below, const char *name)
{
    struct log_vfs *vfs = calloc(1, sizeof *vfs + strlen(name) + 1);

    if (vfs == NULL) {
        return NULL;
    }
    vfs->base = *below; /* its other functions do not look at the VFS that they are called with */
    vfs->base.pNext = NULL;
    vfs->base.zName = memcpy(vfs->name, name, strlen(name) + 1);
    vfs->base.szOsFile = (int)sizeof(struct log_file) + below->szOsFile;
    vfs->base.xOpen = log_open;
    vfs->below = below;
    if (sqlite3_vfs_register(&vfs->base, 0) != SQLITE_OK) {
        free(vfs);
        return NULL;
    }
    return vfs;
}

const char *sqlite_wal_vfs(const char *below_name)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    sqlite3_vfs *below = sqlite3_vfs_find(below_name);
    sqlite3_vfs *vfs;
    char name[128];

    if (below == NULL || snprintf(name, sizeof name, "belay-%s", below->zName) >= (int)sizeof name) {
        return below_name;
    }
    (void)pthread_mutex_lock(&mutex);
    vfs = sqlite3_vfs_find(name);
    if (vfs == NULL) {
        struct log_vfs *made = make_vfs(below, name);

        vfs = made == NULL ? NULL : &made->base;
    }
    (void)pthread_mutex_unlock(&mutex);
    return vfs == NULL ? below_name : vfs->zName;
}
