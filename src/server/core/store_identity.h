/* Which store the server has: clients with a list of servers compare it (Belay-Store). */
#ifndef SERVER_CORE_STORE_IDENTITY_H
#define SERVER_CORE_STORE_IDENTITY_H

#include "belay.h"
#include "server/core/work.h"

struct server;

struct store_identity {
    struct server *server;
    struct work work;
    struct timer timer;
    char id[BELAY_STORE_ID_SIZE];    /* "": not known yet */
    char found[BELAY_STORE_ID_SIZE]; /* by the work */
};

/*
 * Read it, once, before any request comes. A store on the network may not answer yet: then say so, and try again
 * until it does.
 */
void store_identity_begin(struct server *server);
void store_identity_end(struct server *server);

#endif
