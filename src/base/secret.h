/* Secrets in files of their own, so that they are in no configuration and on no command line. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stddef.h>

#include "belay.h"

/*
 * Reads the one line of a file, without its end, into `out` of `size` bytes. BELAY_CONFIG if
 * the file cannot be read, if others may read it, or if it is not one line that fits.
 */
enum belay_code secret_read(const char *path, char *out, size_t size, struct belay_error *err);

/* The variable that holds a token, for CI systems, whose secrets are variables. */
#define SECRET_TOKEN_VARIABLE "BELAY_AUTH_TOKEN"
/* Where the token comes from, for messages: the variable if it is set, else `path`, which may be NULL. */
const char *secret_token_source(const char *path);

/*
 * "Bearer TOKEN", with the token of BELAY_AUTH_TOKEN if it is set, else of the file. The caller frees it. No
 * error and no setting ever shows the token.
 */
enum belay_code secret_read_bearer(const char *path, char **out_header, struct belay_error *err);

#endif
