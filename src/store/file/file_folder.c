/* Folders of the store: opening and creating them, and listing the blobs in them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/new_file.h"
#include "base/text.h"
#include "store/blob/blob_store.h"
#include "store/file/file_internal.h"

enum { OPEN_FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, DEPTH_MAX = 64 };

static bool is_link(int folder, const char *last)
{
    struct stat st;

    return fstatat(folder, last, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

enum belay_code file_failed(const struct file_store *store, int folder, const char *name, const char *last,
                            const char *doing, int failed, struct belay_error *err)
{
    if ((failed == ELOOP || failed == ENOTDIR) && is_link(folder, last)) {
        return error_set(err, BELAY_BAD_CONTENT,
                         "'%.150s' of '%.200s' in %.200s is a symbolic link, which belay does not follow",
                         last, name, store->dir);
    }
    if (failed == EACCES || failed == EPERM) {
        return error_set(err, BELAY_NOT_PERMITTED, "cannot %s '%.200s' in %.200s: %s", doing, name,
                         store->dir, strerror(failed));
    }
    return error_set(err, BELAY_UNREACHABLE, "cannot %s '%.200s' in %.200s: %s", doing, name, store->dir,
                     strerror(failed));
}

/* A new name is durable once its folder is synced. */
static int make_folder(int parent, const char *part)
{
    if (mkdirat(parent, part, 0700) == 0) {
        return fsync(parent) == 0 ? 0 : errno;
    }
    return errno == EEXIST ? 0 : errno;
}

/* Creates every folder of the store's own path. Links in it belong to the user, and are followed. */
static int make_root(const char *dir)
{
    char *path = strdup(dir);
    int failed = path == NULL ? ENOMEM : 0;

    for (char *slash = path; failed == 0 && slash != NULL;) {
        slash = strchr(slash + 1, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
        if (mkdir(path, 0700) != 0) {
            failed = errno == EEXIST ? 0 : errno;
        } else if (!new_file_sync_parent(path) && errno != EACCES) {
            failed = errno; /* EACCES: a parent that this user must not read cannot be synced */
        }
        if (slash != NULL) {
            *slash = '/';
        }
    }
    free(path);
    return failed;
}

static enum belay_code open_root(const struct file_store *store, bool create, int *out_fd,
                                 struct belay_error *err)
{
    int fd = open(store->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 ? errno : 0;

    if (failed == ENOENT && create) {
        failed = make_root(store->dir);
        if (failed == 0) {
            fd = open(store->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            failed = fd < 0 ? errno : 0;
        }
    }
    if (failed == ENOENT && !create) {
        return error_set(err, BELAY_NOT_FOUND, "there is no directory %.400s", store->dir);
    }
    if (failed != 0) {
        return error_set(err, failed == EACCES ? BELAY_NOT_PERMITTED : BELAY_UNREACHABLE,
                         "cannot open the directory %.400s: %s", store->dir, strerror(failed));
    }
    *out_fd = fd;
    return BELAY_OK;
}

enum belay_code file_folder_open(const struct file_store *store, const char *name, bool create, int *out_fd,
                                 const char **out_last, struct belay_error *err)
{
    const char *at = name;
    int fd = -1;
    enum belay_code code = open_root(store, create, &fd, err);

    for (const char *slash; code == BELAY_OK && (slash = strchr(at, '/')) != NULL; at = slash + 1) {
        char part[FILE_NAME_SIZE];
        int inner = -1;
        int failed;

        (void)snprintf(part, sizeof part, "%.*s", (int)(slash - at), at);
        failed = create ? make_folder(fd, part) : 0;
        if (failed == 0) {
            inner = openat(fd, part, OPEN_FOLDER);
            failed = inner < 0 ? errno : 0;
        }
        if (failed == ENOENT) {
            code = error_set(err, BELAY_NOT_FOUND, "there is no '%.400s' in %.200s", name, store->dir);
        } else if (failed != 0) {
            code = file_failed(store, fd, name, part, "open", failed, err);
        }
        (void)close(fd);
        fd = inner;
    }
    if (code != BELAY_OK) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return code;
    }
    *out_fd = fd;
    *out_last = at;
    return BELAY_OK;
}

/* ---- lists --------------------------------------------------------------- */

struct folder_listing {
    struct blob_list found;
    const char *prefix;
    bool shallow;
};

static bool walk_folder(struct folder_listing *listing, int folder, const char *path, int depth);

/* Entries that are neither files nor folders, and names that no blob can have, are ignored. */
static bool walk_entry(struct folder_listing *listing, int folder, const char *path, const char *part,
                       int depth)
{
    struct buf name = BUF_INIT(4096);
    struct stat st;
    bool ok = true;

    buf_addf(&name, "%s%s", path, part);
    if (name.failed || belay_blob_name_check(name.data, NULL) != BELAY_OK ||
        fstatat(folder, part, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        goto done;
    }
    if (S_ISREG(st.st_mode) && text_has_prefix(name.data, listing->prefix)) {
        struct belay_blob_entry entry = { name.data, (uint64_t)st.st_size,
                                          (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000 };

        ok = blob_list_add(&listing->found, entry);
    } else if (S_ISDIR(st.st_mode)) {
        buf_adds(&name, "/");
        if (text_has_prefix(name.data, listing->prefix) && listing->shallow) {
            ok = blob_list_add(&listing->found, (struct belay_blob_entry){ .name = name.data });
        } else if (text_has_prefix(name.data, listing->prefix) ||
                   text_has_prefix(listing->prefix, name.data)) {
            int inner = openat(folder, part, OPEN_FOLDER);

            ok = inner < 0 || walk_folder(listing, inner, name.data, depth + 1);
        }
    }

done:
    ok = ok && !name.failed;
    buf_release(&name);
    return ok;
}

/* Closes the folder. */
static bool walk_folder(struct folder_listing *listing, int folder, const char *path, int depth)
{
    DIR *stream = depth > DEPTH_MAX ? NULL : fdopendir(folder);
    bool ok = true;

    if (stream == NULL) {
        (void)close(folder);
        return depth > DEPTH_MAX;
    }
    for (const struct dirent *entry; ok && (entry = readdir(stream)) != NULL;) {
        ok = walk_entry(listing, dirfd(stream), path, entry->d_name, depth);
    }
    (void)closedir(stream);
    return ok;
}

enum belay_code file_list(struct belay_blob_store *base, const char *prefix, bool shallow, belay_blob_fn fn,
                          void *context, struct belay_error *err)
{
    struct folder_listing listing = { .prefix = prefix, .shallow = shallow };
    const char *slash = strrchr(prefix, '/');
    char *path = strndup(prefix, slash == NULL ? 0 : (size_t)(slash - prefix) + 1);
    const char *last;
    int folder = -1;
    enum belay_code code;

    if (path == NULL) {
        return error_no_memory(err);
    }
    code = file_folder_open((struct file_store *)base, path, false, &folder, &last, err);
    if (code == BELAY_OK && !walk_folder(&listing, folder, path, 0)) {
        code = error_no_memory(err);
    }
    if (code == BELAY_NOT_FOUND) {
        code = BELAY_OK; /* nothing was put yet */
    }
    if (code == BELAY_OK) {
        (void)blob_list_report(&listing.found, fn, context);
    }
    blob_list_release(&listing.found);
    free(path);
    return code;
}
