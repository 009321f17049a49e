/*
 * The locks as they are, counted now and then, and not all of a million: neither a
 * scrape nor a store that does not answer may hold up the locks.
 */
#ifndef SERVER_METRICS_LOCK_GAUGES_H
#define SERVER_METRICS_LOCK_GAUGES_H

#include <stdbool.h>

#include "base/buf.h"

struct lock_gauges;
struct server;

struct lock_gauges *lock_gauges_new(void);         /* NULL: no memory */
void lock_gauges_free(struct lock_gauges *gauges); /* after WORK_SCAN is closed */

/* Count anew if it is time to. True: a thread is at it, and `done` will be called in the loop. */
bool lock_gauges_refresh(struct lock_gauges *gauges, struct server *server,
                         void (*done)(struct server *server));
/* As metrics, of when they were last counted; nothing before that. */
void lock_gauges_write(const struct lock_gauges *gauges, struct buf *out);

#endif
