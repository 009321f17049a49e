/* The history of a lock on a store that keeps none: what the file of audit.file says. */
#ifndef CLIENT_AUDIT_TRAIL_H
#define CLIENT_AUDIT_TRAIL_H

#include "belay.h"

/* The file that audit.file names; NULL: it names none, or a log daemon. */
const char *audit_trail_path(const struct belay_config *config);

/*
 * The last `limit` events of one key (0: all), oldest first. Of a long file the
 * last 64 MiB count: a caller must not wait for minutes.
 */
enum belay_code audit_trail_read(const char *path, const char *key, size_t limit, belay_event_fn fn,
                                 void *context, struct belay_error *err);

#endif
