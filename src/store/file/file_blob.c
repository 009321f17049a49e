#include "store/file/file_blob.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/store_url.h"
#include "base/text.h"
#include "hash/sha256.h"
#include "store/blob/blob_store.h"
#include "store/file/file_internal.h"

enum { PIECE = 4 << 20 };

/* ---- reading --------------------------------------------------------------- */

static enum belay_code open_blob_file(const struct file_store *store, int folder, const char *name,
                                      const char *last, int *out_fd, struct stat *out_st,
                                      struct belay_error *err)
{
    int fd = openat(folder, last, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return errno == ENOENT
                   ? error_set(err, BELAY_NOT_FOUND, "there is no '%.400s' in %.200s", name, store->dir)
                   : file_failed(store, folder, name, last, "open", errno, err);
    }
    if (fstat(fd, out_st) != 0 || !S_ISREG(out_st->st_mode)) {
        (void)close(fd);
        return error_set(err, BELAY_BAD_CONTENT, "'%.400s' in %.200s is not a file", name, store->dir);
    }
    if ((uint64_t)out_st->st_size > BELAY_BLOB_SIZE_MAX) {
        (void)close(fd);
        return error_set(err, BELAY_BAD_CONTENT, "'%.400s' in %.200s is larger than %zu MB", name, store->dir,
                         BELAY_BLOB_SIZE_MAX >> 20);
    }
    *out_fd = fd;
    return BELAY_OK;
}

/* Up to `size` bytes; a file that is being written in place may be shorter by now. */
static enum belay_code read_blob_file(const struct file_store *store, int fd, const char *name, size_t size,
                                      struct belay_blob *out_blob, struct belay_error *err)
{
    struct sha256 hash;
    char *data = malloc(size + 1);
    size_t len = 0;

    if (data == NULL) {
        return error_no_memory(err);
    }
    sha256_begin(&hash);
    while (len < size) {
        ssize_t n = read(fd, data + len, size - len < PIECE ? size - len : PIECE);

        if (n < 0 && errno != EINTR) {
            free(data);
            return error_set(err, BELAY_UNREACHABLE, "cannot read '%.400s' in %.200s: %s", name, store->dir,
                             strerror(errno));
        }
        if (n == 0) {
            break;
        }
        if (n > 0) {
            sha256_add(&hash, data + len, (size_t)n);
            len += (size_t)n;
            blob_progress(&store->base, len, size);
        }
    }
    data[len] = '\0';
    *out_blob = (struct belay_blob){ .data = data, .len = len };
    (void)sha256_end(&hash, out_blob->tag.text);
    return BELAY_OK;
}

static enum belay_code file_get_if_changed(struct belay_blob_store *base, const char *name,
                                           const struct belay_blob_tag *known, struct belay_blob *out_blob,
                                           struct belay_error *err)
{
    struct file_store *store = (struct file_store *)base;
    enum belay_code code = belay_blob_name_check(name, err);
    const char *last;
    struct stat st = { 0 };
    int folder = -1;
    int fd = -1;

    if (code == BELAY_OK) {
        code = file_folder_open(store, name, false, &folder, &last, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    code = open_blob_file(store, folder, name, last, &fd, &st, err);
    if (code == BELAY_OK) {
        struct belay_blob_tag tag;

        file_mark(&st, &tag);
        if (known == NULL || tag.hint[0] == '\0' || strcmp(tag.hint, known->hint) != 0) {
            code = read_blob_file(store, fd, name, (size_t)st.st_size, out_blob, err);
            if (code == BELAY_OK && file_is_settled(&st)) {
                memcpy(out_blob->tag.hint, tag.hint, sizeof tag.hint);
            }
        }
        (void)close(fd);
    }
    (void)close(folder);
    return code;
}

static enum belay_code file_get(struct belay_blob_store *base, const char *name, struct belay_blob *out_blob,
                                struct belay_error *err)
{
    return file_get_if_changed(base, name, NULL, out_blob, err);
}

/* ---- writing --------------------------------------------------------------- */

struct put {
    const struct file_store *store;
    const char *name;
    const char *last; /* of `name` */
    int folder;
    int fd; /* the new file, locked */
    char temp[FILE_NAME_SIZE];
    struct belay_blob_tag tag;
};

/* A file that is not listed, and that file_sweep() leaves alone while this process lives. */
static int make_temp(struct put *put)
{
    char id[UUID_TEXT_SIZE];
    struct stat st;

    for (int i = 0; i < 100; i++) {
        if (!uuid_make(id)) {
            return EIO;
        }
        (void)snprintf(put->temp, sizeof put->temp, FILE_TEMP_PREFIX "%s", id);
        put->fd = openat(put->folder, put->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (put->fd < 0) {
            return errno;
        }
        if (flock(put->fd, LOCK_EX | LOCK_NB) == 0 && fstat(put->fd, &st) == 0 && st.st_nlink > 0) {
            return 0;
        }
        (void)close(put->fd); /* another process swept it before it was locked */
        put->fd = -1;
    }
    return EIO;
}

static int write_temp(struct put *put, const char *data, size_t len)
{
    struct sha256 hash;
    int failed = make_temp(put);

    sha256_begin(&hash);
    for (size_t done = 0; failed == 0 && done < len;) {
        size_t piece = len - done < PIECE ? len - done : PIECE;
        ssize_t n = write(put->fd, data + done, piece);

        if (n < 0 && errno != EINTR) {
            failed = errno;
        } else if (n > 0) {
            sha256_add(&hash, data + done, (size_t)n);
            done += (size_t)n;
            blob_progress(&put->store->base, done, len);
        }
    }
    if (failed == 0) {
        file_set_time(put->fd);
    }
    if (failed == 0 && fsync(put->fd) != 0) {
        failed = errno;
    }
    (void)sha256_end(&hash, put->tag.text);
    return failed;
}

static int rename_to_free_name(const struct put *put)
{
    if (renameat2(put->folder, put->temp, put->folder, put->last, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return errno;
    }
    /* Not supported by every file system; a hard link does the same. */
    if (linkat(put->folder, put->temp, put->folder, put->last, 0) != 0) {
        return errno;
    }
    (void)unlinkat(put->folder, put->temp, 0);
    return 0;
}

static enum belay_code refuse_put(const struct put *put, const char *why, struct belay_error *err)
{
    return error_set(err, BELAY_REFUSED, "'%.400s' %s", put->name, why);
}

static enum belay_code put_new(struct put *put, struct belay_error *err)
{
    int failed = rename_to_free_name(put);

    if (failed == EEXIST) {
        return refuse_put(put, "is there already", err);
    }
    return failed == 0 ? BELAY_OK
                       : file_failed(put->store, put->folder, put->name, put->last, "write", failed, err);
}

/* The tag of the present file, recorded or computed. With the lock. */
static enum belay_code current_tag(const struct put *put, int lock, struct belay_blob_tag *out_tag,
                                   struct belay_error *err)
{
    struct belay_blob blob = { 0 };
    struct stat st = { 0 };
    int fd = -1;
    enum belay_code code = open_blob_file(put->store, put->folder, put->name, put->last, &fd, &st, err);

    if (code != BELAY_OK) {
        return code;
    }
    file_mark(&st, out_tag);
    if (!file_lock_recall(lock, put->last, out_tag)) {
        code = read_blob_file(put->store, fd, put->name, (size_t)st.st_size, &blob, err);
        *out_tag = blob.tag;
        belay_blob_release(&blob);
    }
    (void)close(fd);
    return code;
}

static enum belay_code put_over(struct put *put, const struct belay_blob_tag *expected,
                                struct belay_error *err)
{
    struct belay_blob_tag current = { .text = "" };
    struct stat st;
    int lock = -1;
    enum belay_code code = file_lock_take(put->store, put->folder, &lock, err);

    if (code != BELAY_OK) {
        return code;
    }
    code = current_tag(put, lock, &current, err);
    if (code == BELAY_NOT_FOUND) {
        code = refuse_put(put, "is not there any more", err);
    } else if (code == BELAY_OK && strcmp(current.text, expected->text) != 0) {
        code = refuse_put(put, "has changed", err);
    }
    if (code == BELAY_OK && renameat(put->folder, put->temp, put->folder, put->last) != 0) {
        code = file_failed(put->store, put->folder, put->name, put->last, "replace", errno, err);
    }
    if (code == BELAY_OK && fstat(put->fd, &st) == 0) {
        file_mark(&st, &put->tag);
        file_lock_record(lock, put->last, &put->tag);
    }
    (void)close(lock);
    return code;
}

static enum belay_code put_file(struct put *put, const void *data, size_t len,
                                const struct belay_blob_tag *expected, struct belay_error *err)
{
    int failed = write_temp(put, data, len);
    struct stat st;
    enum belay_code code;

    if (failed != 0) {
        code = file_failed(put->store, put->folder, put->name, put->temp, "write", failed, err);
    } else {
        code = expected == NULL ? put_new(put, err) : put_over(put, expected, err);
    }
    if (code == BELAY_OK && fstat(put->fd, &st) == 0) {
        file_mark(&st, &put->tag); /* the rename changed it */
    }
    if (put->fd >= 0 && code != BELAY_OK) {
        (void)unlinkat(put->folder, put->temp, 0);
    }
    if (code == BELAY_OK && fsync(put->folder) != 0) {
        code = error_set(err, BELAY_UNKNOWN, "'%.400s' is written, but may not survive a loss of power: %s",
                         put->name, strerror(errno));
    }
    file_sweep(put->folder);
    return code;
}

static enum belay_code file_put_if(struct belay_blob_store *base, const char *name, const void *data,
                                   size_t len, const struct belay_blob_tag *expected,
                                   struct belay_blob_tag *out_tag, struct belay_error *err)
{
    struct put put = { .store = (struct file_store *)base, .name = name, .fd = -1 };
    enum belay_code code = blob_put_check(name, len, err);

    if (code == BELAY_OK) {
        code = file_folder_open(put.store, name, expected == NULL, &put.folder, &put.last, err);
    }
    if (code == BELAY_NOT_FOUND) {
        return error_set(err, BELAY_REFUSED, "'%.400s' is not there any more", name);
    }
    if (code != BELAY_OK) {
        return code;
    }
    code = put_file(&put, data, len, expected, err);
    if (put.fd >= 0) {
        (void)close(put.fd);
    }
    (void)close(put.folder);
    if (code == BELAY_OK) {
        *out_tag = put.tag;
    }
    return code;
}

/* ---- the rest -------------------------------------------------------------- */

static enum belay_code file_remove(struct belay_blob_store *base, const char *name, struct belay_error *err)
{
    struct file_store *store = (struct file_store *)base;
    enum belay_code code = belay_blob_name_check(name, err);
    const char *last;
    int folder;
    int lock = -1;

    if (code == BELAY_OK) {
        code = file_folder_open(store, name, false, &folder, &last, err);
    }
    if (code != BELAY_OK) {
        return code == BELAY_NOT_FOUND ? BELAY_OK : code;
    }
    code = file_lock_take(store, folder, &lock, err);
    if (code == BELAY_OK) {
        if (unlinkat(folder, last, 0) != 0 && errno != ENOENT) {
            code = file_failed(store, folder, name, last, "remove", errno, err);
        } else {
            (void)fsync(folder);
        }
        (void)close(lock);
    }
    (void)close(folder);
    return code;
}

static void file_close(struct belay_blob_store *base)
{
    struct file_store *store = (struct file_store *)base;

    free(store->dir);
    free(store);
}

static const struct belay_blob_ops file_ops = {
    .name = "file",
    .close = file_close,
    .get = file_get,
    .put_if = file_put_if,
    .list = file_list,
    .remove = file_remove,
    .get_if_changed = file_get_if_changed,
};

/* Absolute, without slashes at its end. */
static char *full_folder_path(const char *dir)
{
    struct buf path = BUF_INIT(PATH_MAX - BELAY_BLOB_NAME_MAX);
    char cwd[PATH_MAX];
    char *made;

    if (dir[0] != '/') {
        if (getcwd(cwd, sizeof cwd) == NULL) {
            return NULL;
        }
        buf_addf(&path, "%s/", cwd);
    }
    buf_adds(&path, dir);
    made = buf_take(&path);
    for (size_t n = made == NULL ? 0 : strlen(made); n > 1 && made[n - 1] == '/'; n--) {
        made[n - 1] = '\0';
    }
    return made;
}

static const struct store_url_kind kind = { .scheme = "file:", .place_is_a_path = true };

enum belay_code file_blob_open(const char *dir_and_params, struct belay_blob_store **out_store,
                               char **out_url, struct belay_error *err)
{
    struct file_store *store = NULL;
    struct buf url = BUF_INIT(3 * PATH_MAX);
    char *dir = NULL;
    char *path;
    enum belay_code code = store_url_parse(&kind, dir_and_params, NULL, &dir, NULL, err);

    if (code != BELAY_OK) {
        return code;
    }
    path = text_is_clean(dir, PATH_MAX) ? full_folder_path(dir) : NULL;
    if (path == NULL) {
        code =
            error_set(err, BELAY_INVALID,
                      "'file:%.200s' names no directory, or one that is too long or cannot be found; write "
                      "file:/path/to/state",
                      dir_and_params);
        goto done;
    }
    buf_adds(&url, "file:");
    store_url_add_place(&url, path);
    store = calloc(1, sizeof *store);
    if (store == NULL || url.failed) {
        free(store);
        free(path);
        code = error_no_memory(err);
        goto done;
    }
    store->base.ops = &file_ops;
    store->dir = path;
    if (out_url != NULL) {
        *out_url = buf_take(&url);
    }
    *out_store = &store->base;

done:
    free(dir);
    buf_release(&url);
    return code;
}
