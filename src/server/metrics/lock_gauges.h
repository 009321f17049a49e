/*
 * The locks as they are, counted now and then, and not all of a million: neither a
 * scrape nor a store that does not answer may hold up the locks.
 */
#ifndef SERVER_METRICS_LOCK_GAUGES_H
#define SERVER_METRICS_LOCK_GAUGES_H

#include <stdbool.h>

#include "base/buf.h"

struct census;
struct server;

struct census *census_new(void);         /* NULL: no memory */
void census_free(struct census *census); /* after WORK_SCAN is closed */

/* Count anew if it is time to. True: a thread is at it, and `done` will be called in the loop. */
bool census_refresh(struct census *census, struct server *server, void (*done)(struct server *server));
/* As metrics, of when they were last counted; nothing before that. */
void census_write(const struct census *census, struct buf *out);

#endif
