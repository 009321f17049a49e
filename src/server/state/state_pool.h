/*
 * The state store: a pool of handles for jobs, mutual exclusion of jobs on the same document, and a cache.
 */
#ifndef SERVER_STATE_STATE_POOL_H
#define SERVER_STATE_STATE_POOL_H

#include "belay/state.h"
#include "server/core/server.h"
#include "server/state/state_cache.h"

struct state_pool;

/*
 * Opens no store yet: a server whose state store is unreachable still serves locks. BELAY_CONFIG if server.terraform
 * of the configuration is wrong.
 */
enum belay_code state_pool_open(struct server *server, const char *url, const char *lock_store_url,
                                struct belay_error *err);
void state_pool_close(struct state_pool *pool);

/* From any thread: a handle for one job, which gives it back. */
enum belay_code state_pool_take(struct state_pool *pool, struct belay_states **out_states,
                                struct belay_error *err);
void state_pool_give(struct state_pool *pool, struct belay_states *states);

/* From a worker: jobs under one name run one after the other. */
void state_pool_enter(struct state_pool *pool, const char *name);
void state_pool_leave(struct state_pool *pool, const char *name);

/* By the key of the state's lock. */
struct state_cache *state_pool_cache(const struct state_pool *pool);

/* server.terraform of the configuration. */
enum force_unlock { FORCE_UNLOCK_ADMIN, FORCE_UNLOCK_LOCKER, FORCE_UNLOCK_NEVER };
struct terraform_policy {
    int64_t lease_ms;
    bool unlocked_writes;
    enum force_unlock force_unlock;
};
const struct terraform_policy *state_pool_terraform(const struct state_pool *pool);

#endif
