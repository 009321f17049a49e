/*
 * Gauges of the present locks. They are counted at intervals, by a worker, and only up to a limit: neither a scrape
 * nor a store that does not answer may delay requests.
 */
#ifndef SERVER_METRICS_LOCK_GAUGES_H
#define SERVER_METRICS_LOCK_GAUGES_H

#include <stdbool.h>

#include "base/buf.h"

struct lock_gauges;
struct server;

struct lock_gauges *lock_gauges_new(void);         /* NULL: no memory */
void lock_gauges_free(struct lock_gauges *gauges); /* after WORK_SCAN is closed */

/* Count again if the interval is over. True: a worker counts, and `done` will be called on the loop. */
bool lock_gauges_refresh(struct lock_gauges *gauges, struct server *server,
                         void (*done)(struct server *server));
/* Write the last count as metrics; nothing before the first. */
void lock_gauges_write(const struct lock_gauges *gauges, struct buf *out);

#endif
