/* Group commit: one fsync for the requests of many clients. group_commit.c has the drawing. For src/server only. */
#ifndef SERVER_CORE_GROUP_COMMIT_H
#define SERVER_CORE_GROUP_COMMIT_H

#include "base/pool.h"
#include "belay.h"
#include "server/http/loop.h"

struct server;

/* A sync, by the loop or by the thread. */
struct sync_result {
    enum belay_code code;
    struct belay_error err;
    int64_t took_us;
    bool has_commits; /* it had something to write */
};

struct group_commit {
    struct timer timer;     /* wakes the loop when the client has more to do, or a delayed sync is due */
    int64_t delay_until_ms; /* a sync that no client waits for starts at this time; 0: none is delayed */
    /* A sync that clients wait for starts at this time at the latest; 0: it is not put off. */
    int64_t gather_until_ms;
    uint64_t n_turns;  /* of the loop, so far */
    bool has_handover; /* since the last sync a waiter got its lock */
    struct pool *pool; /* owned; one thread */

    bool is_syncing; /* the thread has what follows */
    struct pool_job job;
    struct loop_task done;
    struct sync_result result;
};

bool group_commit_open(struct server *server); /* false: no memory */
/* The loop calls this at the end of each turn. */
void group_commit_end_turn(void *context);
/* Before the client is closed. */
void group_commit_close(struct server *server);

#endif
