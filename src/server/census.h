/*
 * The locks as they are, counted now and then, and not all of a million: neither a
 * scrape nor a store that does not answer may hold up the locks.
 */
#ifndef SERVER_CENSUS_H
#define SERVER_CENSUS_H

#include "base/buf.h"

struct census;
struct server;

struct census *census_new(void);         /* NULL: no memory */
void census_free(struct census *census); /* after the server's errands have ended */

/* As metrics. On a store of the network they are of the time before; nothing until they were counted once. */
void census_write(struct census *census, struct server *server, struct buf *out);

#endif
