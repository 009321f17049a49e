/* The lock of a folder, which also records the tag of the last write; and temporary files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/file/file_internal.h"

enum { TIMEOUT_MS = 30000, PAUSE_FIRST_MS = 1, PAUSE_MAX_MS = 20, RECORD_SIZE = 1024, SETTLED_MS = 100 };

static int64_t nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

void file_mark(const struct stat *st, struct belay_blob_tag *out_tag)
{
    (void)snprintf(out_tag->hint, sizeof out_tag->hint, "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64,
                   (uint64_t)st->st_ino, (uint64_t)st->st_size, nanoseconds(&st->st_mtim),
                   nanoseconds(&st->st_ctim));
}

void file_set_time(int fd)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };

    if (clock_gettime(CLOCK_REALTIME, &times[1]) == 0) {
        (void)futimens(fd, times); /* without it the usual, coarser time remains */
    }
}

bool file_is_settled(const struct stat *st)
{
    struct timespec now;
    int64_t since_ms;

    if (clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return false;
    }
    since_ms =
        (int64_t)(now.tv_sec - st->st_ctim.tv_sec) * 1000 + (now.tv_nsec - st->st_ctim.tv_nsec) / 1000000;
    return since_ms >= SETTLED_MS;
}

static void sleep_ms(int64_t ms)
{
    struct timespec span = { .tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000 };

    (void)nanosleep(&span, NULL);
}

/* A stopped writer would block others for ever: they wait for a limited time, and report it. */
enum belay_code file_lock_take(const struct file_store *store, int folder, int *out_fd,
                               struct belay_error *err)
{
    int64_t deadline_ms = clock_boot_ms() + TIMEOUT_MS;
    int64_t pause = PAUSE_FIRST_MS;
    int fd = openat(folder, FILE_LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0) {
        return file_failed(store, folder, FILE_LOCK_NAME, FILE_LOCK_NAME, "open", errno, err);
    }
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int failed = errno;

        if (failed != EWOULDBLOCK && failed != EINTR) {
            (void)close(fd);
            return file_failed(store, folder, FILE_LOCK_NAME, FILE_LOCK_NAME, "lock", failed, err);
        }
        if (clock_boot_ms() >= deadline_ms) {
            (void)close(fd);
            return error_set(err, BELAY_UNREACHABLE,
                             "another process has kept a lock in %.400s for %d s: is one stopped there?",
                             store->dir, TIMEOUT_MS / 1000);
        }
        sleep_ms(pause);
        pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
    }
    *out_fd = fd;
    return BELAY_OK;
}

bool file_lock_recall(int lock, const char *last, struct belay_blob_tag *tag)
{
    char record[RECORD_SIZE];
    char wanted[RECORD_SIZE];
    ssize_t n = pread(lock, record, sizeof record - 1, 0);
    const char *text;
    char *end;

    if (n <= 0) {
        return false;
    }
    record[n] = '\0';
    (void)snprintf(wanted, sizeof wanted, "%s\n%s\n", last, tag->hint);
    if (!text_has_prefix(record, wanted)) {
        return false;
    }
    text = record + strlen(wanted);
    end = strchr(text, '\n');
    if (end == NULL || end - text > BELAY_BLOB_TAG_MAX) {
        return false; /* truncated while it was written */
    }
    *end = '\0';
    (void)snprintf(tag->text, sizeof tag->text, "%s", text);
    return true;
}

/* Best effort: without it the file is read again. */
void file_lock_record(int lock, const char *last, const struct belay_blob_tag *tag)
{
    char record[RECORD_SIZE];
    int n = snprintf(record, sizeof record, "%s\n%s\n%s\n", last, tag->hint, tag->text);

    if (ftruncate(lock, 0) != 0 || pwrite(lock, record, (size_t)n, 0) != n) {
        (void)!ftruncate(lock, 0);
    }
}

/* The writer of such a file has it locked. */
static void sweep_lock_file(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        (void)unlinkat(folder, name, 0);
    }
    (void)close(fd);
}

void file_sweep(int folder)
{
    int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = own < 0 ? NULL : fdopendir(own);

    if (stream == NULL) {
        if (own >= 0) {
            (void)close(own);
        }
        return;
    }
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (text_has_prefix(entry->d_name, FILE_TEMP_PREFIX)) {
            sweep_lock_file(folder, entry->d_name);
        }
    }
    (void)closedir(stream);
}
