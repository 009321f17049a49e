/* The VFS: real files underneath, and a log of what was done to them. */
#include "support/power_loss_vfs.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "support/power_loss_internal.h"

static sqlite3_vfs power_loss_vfs;
static sqlite3_vfs *real_vfs;
static struct power_loss_log *recording; /* borrowed; NULL: none */

struct power_loss_file {
    sqlite3_file base;
    int number;           /* in the log; -1: not a file that lasts */
    bool syncs_directory; /* with its first sync, as the real VFS does for a new journal or log */
    sqlite3_file *real;   /* right behind this struct */
};

static struct power_loss_file *file_of(sqlite3_file *file)
{
    return (struct power_loss_file *)file;
}

void power_loss_vfs_record(struct power_loss_log *log)
{
    recording = log;
}

static void note(const struct power_loss_file *file, struct power_loss_entry entry, const void *data)
{
    if (recording != NULL && file->number >= 0) {
        entry.file = file->number;
        power_loss_log_add(recording, &entry, data);
    }
}

/* ---- files ------------------------------------------------------------- */

static int power_loss_close(sqlite3_file *file)
{
    return file_of(file)->real->pMethods->xClose(file_of(file)->real);
}

static int power_loss_read(sqlite3_file *file, void *data, int n, sqlite3_int64 offset)
{
    return file_of(file)->real->pMethods->xRead(file_of(file)->real, data, n, offset);
}

static int power_loss_write(sqlite3_file *file, const void *data, int n, sqlite3_int64 offset)
{
    note(file_of(file),
         (struct power_loss_entry){ .what = POWER_LOSS_WRITE, .at = (size_t)offset, .n = (size_t)n }, data);
    return file_of(file)->real->pMethods->xWrite(file_of(file)->real, data, n, offset);
}

static int power_loss_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    note(file_of(file), (struct power_loss_entry){ .what = POWER_LOSS_TRUNCATE, .at = (size_t)size }, NULL);
    return file_of(file)->real->pMethods->xTruncate(file_of(file)->real, size);
}

/* The real files are not what survives, so they need no sync. */
static int power_loss_sync(sqlite3_file *file, int flags)
{
    (void)flags;
    note(file_of(file), (struct power_loss_entry){ .what = POWER_LOSS_SYNC }, NULL);
    if (file_of(file)->syncs_directory) {
        note(file_of(file), (struct power_loss_entry){ .what = POWER_LOSS_SYNC_DIRECTORY }, NULL);
        file_of(file)->syncs_directory = false;
    }
    return SQLITE_OK;
}

static int power_loss_size(sqlite3_file *file, sqlite3_int64 *out_size)
{
    return file_of(file)->real->pMethods->xFileSize(file_of(file)->real, out_size);
}

static int power_loss_lock(sqlite3_file *file, int level)
{
    return file_of(file)->real->pMethods->xLock(file_of(file)->real, level);
}

static int power_loss_unlock(sqlite3_file *file, int level)
{
    return file_of(file)->real->pMethods->xUnlock(file_of(file)->real, level);
}

static int power_loss_check_lock(sqlite3_file *file, int *out_locked)
{
    return file_of(file)->real->pMethods->xCheckReservedLock(file_of(file)->real, out_locked);
}

static int power_loss_control(sqlite3_file *file, int op, void *argument)
{
    return file_of(file)->real->pMethods->xFileControl(file_of(file)->real, op, argument);
}

static int power_loss_sector(sqlite3_file *file)
{
    return file_of(file)->real->pMethods->xSectorSize(file_of(file)->real);
}

static int power_loss_device(sqlite3_file *file)
{
    return file_of(file)->real->pMethods->xDeviceCharacteristics(file_of(file)->real);
}

static int power_loss_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **out)
{
    return file_of(file)->real->pMethods->xShmMap(file_of(file)->real, page, size, extend, out);
}

static int power_loss_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    return file_of(file)->real->pMethods->xShmLock(file_of(file)->real, offset, n, flags);
}

static void power_loss_shm_barrier(sqlite3_file *file)
{
    file_of(file)->real->pMethods->xShmBarrier(file_of(file)->real);
}

static int power_loss_shm_unmap(sqlite3_file *file, int remove)
{
    return file_of(file)->real->pMethods->xShmUnmap(file_of(file)->real, remove);
}

/* Version 2: shared memory, but no mapped pages, whose writes would go past us. */
static const sqlite3_io_methods power_loss_methods = {
    .iVersion = 2,
    .xClose = power_loss_close,
    .xRead = power_loss_read,
    .xWrite = power_loss_write,
    .xTruncate = power_loss_truncate,
    .xSync = power_loss_sync,
    .xFileSize = power_loss_size,
    .xLock = power_loss_lock,
    .xUnlock = power_loss_unlock,
    .xCheckReservedLock = power_loss_check_lock,
    .xFileControl = power_loss_control,
    .xSectorSize = power_loss_sector,
    .xDeviceCharacteristics = power_loss_device,
    .xShmMap = power_loss_shm_map,
    .xShmLock = power_loss_shm_lock,
    .xShmBarrier = power_loss_shm_barrier,
    .xShmUnmap = power_loss_shm_unmap,
};

/* ---- the VFS ----------------------------------------------------------- */

static int power_loss_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *out_file, int flags,
                           int *out_flags)
{
    const int journals = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL;
    struct power_loss_file *file = file_of(out_file);
    int exists = 0;
    int rc;

    (void)vfs;
    memset(file, 0, sizeof *file);
    file->real = (sqlite3_file *)(void *)(file + 1);
    file->number = name == NULL || recording == NULL ? -1 : power_loss_log_file(recording, name);
    if (name != NULL) {
        (void)real_vfs->xAccess(real_vfs, name, SQLITE_ACCESS_EXISTS, &exists);
    }
    file->syncs_directory = exists == 0 && (flags & journals) != 0 && (flags & SQLITE_OPEN_CREATE) != 0;
    rc = real_vfs->xOpen(real_vfs, name, file->real, flags, out_flags);
    if (file->real->pMethods != NULL) {
        file->base.pMethods = &power_loss_methods;
    }
    return rc;
}

/* A deletion is durable when the directory is synced, which SQLite requests only with synchronous=EXTRA. */
static int power_loss_delete(sqlite3_vfs *vfs, const char *name, int sync_directory)
{
    (void)vfs;
    if (recording != NULL) {
        struct power_loss_entry entry = { .what = POWER_LOSS_DELETE,
                                          .file = power_loss_log_file(recording, name) };

        power_loss_log_add(recording, &entry, NULL);
        if (sync_directory != 0) {
            entry.what = POWER_LOSS_SYNC_DIRECTORY;
            power_loss_log_add(recording, &entry, NULL);
        }
    }
    return real_vfs->xDelete(real_vfs, name, 0);
}

bool power_loss_vfs_register(void)
{
    real_vfs = sqlite3_vfs_find("unix");
    if (real_vfs == NULL) {
        return false;
    }
    power_loss_vfs = *real_vfs; /* the rest takes no interest in which VFS it is called with */
    power_loss_vfs.zName = POWER_LOSS_VFS;
    power_loss_vfs.szOsFile = (int)sizeof(struct power_loss_file) + real_vfs->szOsFile;
    power_loss_vfs.xOpen = power_loss_open;
    power_loss_vfs.xDelete = power_loss_delete;
    return sqlite3_vfs_register(&power_loss_vfs, 0) == SQLITE_OK;
}
