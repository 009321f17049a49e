/*
 * Files that appear atomically: created under a random name, never through a symbolic link,
 * readable by their owner only, synced, and renamed.
 */
#ifndef BASE_NEW_FILE_H
#define BASE_NEW_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "belay.h"

/*
 * A new, empty file beside `path`, for reading and writing: PATH.WHAT-RANDOM. *out_temp is its
 * name, which the caller frees. -1 with errno set.
 */
int new_file_open(const char *path, const char *what, char **out_temp);
/* Removes files PATH.WHAT-RANDOM that earlier processes left. Call it only while no other process can be writing one. */
void new_file_clean(const char *path, const char *what);
/* For a file with secrets: 0600, or 0660 in a directory of a group (setgid and group-writable). */
mode_t new_file_mode(const char *path);
/* What an errno of creating or writing a file that the user named means: a wrong name, not permitted, or no room. */
enum belay_code new_file_code(int reason);
/* Writes all of it. False with errno set. */
bool file_write_all(int fd, const void *data, size_t len);
/* Syncs a file's content. False with errno set. */
bool new_file_sync(const char *path);
/* Syncs the directory that `path` is in: only then is a new name in it durable. False with errno set. */
bool new_file_sync_parent(const char *path);
/*
 * Renames it to a name that is free, and syncs the directory. False with errno set; EEXIST:
 * the name is in use.
 */
bool new_file_place(const char *temp, const char *path);
/* The same, replacing a file of that name. */
bool new_file_replace(const char *temp, const char *path);

#endif
