/* Shared by the files of the file store. */
#ifndef STORE_FILE_FILE_INTERNAL_H
#define STORE_FILE_FILE_INTERNAL_H

#include <sys/stat.h>

#include "belay/blob.h"

struct file_store {
    struct belay_blob_store base;
    char *dir; /* owned; absolute */
};

#define FILE_LOCK_NAME ".belay-lock"
#define FILE_TEMP_PREFIX ".belay-new-"
enum { FILE_NAME_SIZE = 256 };

/* ---- folders (file_folder.c) ---- */

/*
 * The folder of the blob `name`, and the last part of the name. Without `create` a missing
 * folder is BELAY_NOT_FOUND.
 */
enum belay_code file_folder_open(const struct file_store *store, const char *name, bool create, int *out_fd,
                                 const char **out_last, struct belay_error *err);

/*
 * Sets the error for `failed` (an errno) on the file `last`: a link, no space, no permission.
 * Returns the code.
 */
enum belay_code file_failed(const struct file_store *store, int folder, const char *name, const char *last,
                            const char *doing, int failed, struct belay_error *err);

/* The blob port's list(). */
enum belay_code file_list(struct belay_blob_store *base, const char *prefix, bool shallow, belay_blob_fn fn,
                          void *context, struct belay_error *err);

/* ---- one writer at a time (file_lock.c) ---- */

/* The hint of a tag: identifies a file without reading it, because every write changes it. */
void file_mark(const struct stat *st, struct belay_blob_tag *out_tag);
/*
 * File times advance in steps of some ms: two writes within one step get the same time.
 * belay's writes set a finer time; a hint of another program's write is reliable once the step
 * has passed.
 */
void file_set_time(int fd);
bool file_is_settled(const struct stat *st);

/* Takes the folder's lock; close *out_fd to release it. */
enum belay_code file_lock_take(const struct file_store *store, int folder, int *out_fd,
                               struct belay_error *err);
/* The text of the tag that was recorded for this file, if the file still has the tag's hint. */
bool file_lock_recall(int lock, const char *last, struct belay_blob_tag *tag);
void file_lock_record(int lock, const char *last, const struct belay_blob_tag *tag);

/* Removes the temporary files of dead writers. */
void file_sweep(int folder);

#endif
