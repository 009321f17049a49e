/* For src/open only; open_client.c implements it. */
#ifndef OPEN_OPEN_INTERNAL_H
#define OPEN_OPEN_INTERNAL_H

#include "belay.h"

/* If *config is NULL, load the configuration: *config borrows it from *out_own, which the caller frees. */
enum belay_code open_config(const struct belay_config **config, struct belay_config **out_own,
                            struct belay_error *err);

bool url_is_postgresql(const char *url);
bool url_is_server(const char *url);

#endif
