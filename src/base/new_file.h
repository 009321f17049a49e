/*
 * Files that appear whole: made under a name that nobody can guess, never through a symbolic link, readable for their
 * owner alone, synced, and renamed.
 */
#ifndef BASE_NEW_FILE_H
#define BASE_NEW_FILE_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * A new, empty file beside `path`, for reading and writing: PATH.WHAT-RANDOM. *out_temp is its name, for the caller to
 * free. -1 with errno set.
 */
int new_file_open(const char *path, const char *what, char **out_temp);
/* For a file with secrets: 0600, or 0660 where the directory is a group's (setgid, and the group may write). */
mode_t new_file_mode(const char *path);
/* Sync what a file contains. False with errno set. */
bool new_file_sync(const char *path);
/* Rename it to a name that is free, and sync the directory. False with errno set; EEXIST: it is not. */
bool new_file_place(const char *temp, const char *path);
/* The same over whatever has that name. */
bool new_file_replace(const char *temp, const char *path);

#endif
