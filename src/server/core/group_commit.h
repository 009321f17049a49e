/*
 * The end of each turn of the loop: what its requests have asked for is done, had
 * on disk, and then told. For src/server only.
 */
#ifndef SERVER_CORE_GROUP_COMMIT_H
#define SERVER_CORE_GROUP_COMMIT_H

#include "base/pool.h"
#include "belay.h"
#include "server/http/loop.h"

struct server;

/* How a sync has ended. */
struct synced {
    enum belay_code code;
    struct belay_error err;
    int64_t took_us;
    bool has_commits; /* it had something to write */
};

struct turn {
    struct timer timer;   /* when the client has more to do */
    int64_t sync_by_ms;   /* what nobody waits for is on disk by then; 0: all is */
    int64_t gather_by_ms; /* until then others may join those who wait for a sync; 0: nobody waits */
    uint64_t number;      /* of turns so far */
    bool has_granted;     /* to somebody who stood in line, since the last sync */
    struct pool *pool;    /* owned; one thread, which syncs while the loop goes on */

    bool is_syncing; /* the thread has what follows */
    struct pool_job job;
    struct loop_task synced;
    struct synced result;
};

bool turn_open(struct server *server); /* false: no memory */
/* The loop's hook. */
void turn_end(void *context);
/* Before the client is closed. */
void turn_close(struct server *server);

#endif
