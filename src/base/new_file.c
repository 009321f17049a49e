#include "base/new_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/text.h"

enum { TRIES = 16, RANDOM_DIGITS = 16 };

enum belay_code new_file_code(int reason)
{
    switch (reason) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
        return BELAY_INVALID;
    case EACCES:
    case EPERM:
    case EROFS:
        return BELAY_NOT_PERMITTED;
    default:
        return BELAY_UNREACHABLE;
    }
}

int new_file_open(const char *path, const char *what, char **out_temp)
{
    for (int i = 0; i < TRIES; i++) {
        struct buf name = BUF_INIT(PATH_MAX);
        unsigned long long random = 0;
        char *temp;
        int fd;

        if (!random_bytes(&random, sizeof random)) {
            errno = EIO;
            return -1;
        }
        buf_addf(&name, "%s.%s-%016llx", path, what, random);
        temp = buf_take(&name);
        if (temp == NULL) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0) {
            *out_temp = temp;
            return fd;
        }
        free(temp);
        if (errno != EEXIST) {
            return -1;
        }
    }
    return -1;
}

/* The directory of a path; the caller frees it. */
static char *directory_of(const char *path)
{
    char *copy = strdup(path);
    char *slash = copy == NULL ? NULL : strrchr(copy, '/');

    if (slash != NULL) {
        slash[slash == copy ? 1 : 0] = '\0';
        return copy;
    }
    free(copy);
    return strdup(".");
}

/* Whether it is START and the 16 digits of new_file_open(). */
static bool is_left_over(const char *name, const char *start)
{
    size_t len = strlen(start);

    return strncmp(name, start, len) == 0 && strlen(name + len) == RANDOM_DIGITS &&
           strspn(name + len, "0123456789abcdef") == RANDOM_DIGITS;
}

void new_file_clean(const char *path, const char *what)
{
    const char *slash = strrchr(path, '/');
    char *folder = directory_of(path);
    DIR *directory = folder == NULL ? NULL : opendir(folder);
    struct buf start = BUF_INIT(PATH_MAX);
    const struct dirent *entry;

    buf_addf(&start, "%s.%s-", slash == NULL ? path : slash + 1, what);
    while (directory != NULL && !start.failed && (entry = readdir(directory)) != NULL) {
        if (is_left_over(entry->d_name, start.data)) {
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    free(folder);
    buf_release(&start);
}

mode_t new_file_mode(const char *path)
{
    char *directory = directory_of(path);
    struct stat st;
    bool is_groups = directory != NULL && stat(directory, &st) == 0 && (st.st_mode & S_ISGID) != 0 &&
                     (st.st_mode & S_IWGRP) != 0;

    free(directory);
    return is_groups ? 0660 : 0600;
}

bool file_write_all(int fd, const void *data, size_t len)
{
    const char *at = data;

    while (len > 0) {
        ssize_t n = write(fd, at, len);

        if (n < 0 && errno != EINTR) {
            return false;
        }
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool sync_and_close(int fd)
{
    bool ok = fd >= 0 && fsync(fd) == 0;
    int saved = errno;

    if (fd >= 0) {
        (void)close(fd);
    }
    errno = saved;
    return ok;
}

bool new_file_sync(const char *path)
{
    return sync_and_close(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

bool new_file_sync_parent(const char *path)
{
    char *directory = directory_of(path);
    bool ok;

    if (directory == NULL) {
        errno = ENOMEM;
        return false;
    }
    ok = sync_and_close(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    free(directory);
    return ok;
}

bool new_file_place(const char *temp, const char *path)
{
    if (renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE) != 0) {
        /* Not supported by every file system; a hard link does the same. */
        if ((errno != EINVAL && errno != ENOSYS) || link(temp, path) != 0) {
            return false;
        }
        (void)unlink(temp);
    }
    return new_file_sync_parent(path);
}

bool new_file_replace(const char *temp, const char *path)
{
    return rename(temp, path) == 0 && new_file_sync_parent(path);
}
