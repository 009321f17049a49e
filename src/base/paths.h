/* Paths of the program's modules, of the user's own files, and of directories still to be created. */
#ifndef BASE_PATHS_H
#define BASE_PATHS_H

#include <limits.h>
#include <stdbool.h>

enum { MODULE_PATH_MAX = PATH_MAX };

/*
 * A module: beside the program, or in its library folder once it is installed. Absolute, so that neither the working
 * directory nor LD_LIBRARY_PATH matters. False: not found.
 */
bool module_path(const char *name, char out[MODULE_PATH_MAX]);

/*
 * The path of `rest` below $XDG_NAME if that is absolute, else below HOME/FALLBACK. The caller frees it. NULL: there is
 * no home directory, or no memory.
 */
char *home_path(const char *xdg_name, const char *fallback, const char *rest);

/* The nearest directory above `path` that exists: where its missing directories would be created. */
void existing_parent(const char *path, char out[PATH_MAX]);

#endif
