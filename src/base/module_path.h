/* Finds the program's modules: beside it, or in its library folder once it is installed. */
#ifndef BASE_MODULE_PATH_H
#define BASE_MODULE_PATH_H

#include <limits.h>
#include <stdbool.h>

enum { MODULE_PATH_MAX = PATH_MAX };

/* Absolute, so that neither the working directory nor LD_LIBRARY_PATH matters. False: not found. */
bool module_path(const char *name, char out[MODULE_PATH_MAX]);

#endif
