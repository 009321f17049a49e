/* Secrets that stand in files of their own, so that no configuration and no command line has them. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stddef.h>

#include "belay.h"

/*
 * The one line of a file, without its end, into `out` of `size` bytes.
 * BELAY_CONFIG if the file cannot be read, others may read it, or it does not
 * hold one line that fits.
 */
enum belay_code secret_read(const char *path, char *out, size_t size, struct belay_error *err);

/* "Bearer TOKEN" of a file that has one token and nothing else. The caller frees it. */
enum belay_code secret_read_bearer(const char *path, char **out_header, struct belay_error *err);

#endif
