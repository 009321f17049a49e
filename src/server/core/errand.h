/*
 * A question of the server's own to the store, which nobody's request is for.
 * Where the store is on the network, or the question is a long one, a thread asks it; the loop goes on meanwhile.
 */
#ifndef SERVER_CORE_ERRAND_H
#define SERVER_CORE_ERRAND_H

#include "base/pool.h"
#include "server/http/loop.h"

struct server;

/* Part of whatever it is for. */
struct errand {
    void (*work)(struct errand *errand); /* asks; in another thread, perhaps */
    void (*done)(struct errand *errand); /* in the loop's; also if it was not begun before the end */
    bool is_long;                        /* it may look at very much of the store */
    bool is_out;
    /* ask.c's */
    struct pool_job job;
    struct loop_task task;
    struct server *server; /* borrowed */
};

/* False: it is out already, or no thread can be had. On a store of this machine a short one is done at once. */
bool errand_send(struct server *server, struct errand *errand);

#endif
