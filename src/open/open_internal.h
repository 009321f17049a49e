/* For src/open only; open_client.c implements it. */
#ifndef OPEN_OPEN_INTERNAL_H
#define OPEN_OPEN_INTERNAL_H

#include "belay.h"

/* If *config is NULL, load the configuration: *config borrows it from *out_own, which the caller frees. */
enum belay_code open_config(const struct belay_config **config, struct belay_config **out_own,
                            struct belay_error *err);

/* Where a setting comes from, such as "environment BELAY_STORE". */
const char *setting_origin(const struct belay_config *config, const char *name);
/*
 * A URL that is not an option is wrong: prepends the origin of `name`. A variable is part of what a user types, and keeps
 * the code; that of a file becomes BELAY_CONFIG.
 */
enum belay_code say_configured(const struct belay_config *config, const char *name, enum belay_code code,
                               struct belay_error *err);

/* Guess which URL was meant by an unknown one; `file_scheme` is that of a path. False: no guess. */
bool guess_store_url(const char *url, const char *const schemes[], size_t n, const char *file_scheme,
                     char *meant, size_t size);

bool url_is_postgresql(const char *url);
bool url_is_server(const char *url);

#endif
