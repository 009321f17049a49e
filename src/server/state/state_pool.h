/*
 * Where the states are kept: one store of blobs, which any number of jobs use,
 * and what jobs that change the same document need to come one after the other.
 */
#ifndef SERVER_STATE_STATE_POOL_H
#define SERVER_STATE_STATE_POOL_H

#include "belay/state.h"
#include "server/core/server.h"
#include "server/state/state_cache.h"

struct state_pool;

/*
 * Nothing is opened yet: a server whose store of states cannot be reached still
 * serves locks. BELAY_CONFIG if the configuration of Terraform's part is wrong.
 */
enum belay_code state_pool_open(struct server *server, const char *url, const char *lock_store_url,
                                struct belay_error *err);
void state_pool_close(struct state_pool *pool);

/* For any thread: a handle for one job at a time, which it gives back. */
enum belay_code state_pool_take(struct state_pool *pool, struct belay_states **out_states,
                                struct belay_error *err);
void state_pool_give(struct state_pool *pool, struct belay_states *states);

/* Jobs under one name come one after the other. */
void state_pool_enter(struct state_pool *pool, const char *name);
void state_pool_leave(struct state_pool *pool, const char *name);

/* What was read or written last; by the key of its lock. */
struct state_cache *state_pool_cache(const struct state_pool *pool);

/* What the configuration says of Terraform's backend. */
enum force_unlock { FORCE_UNLOCK_ADMIN, FORCE_UNLOCK_LOCKER, FORCE_UNLOCK_NEVER };
struct terraform_policy {
    int64_t lease_ms;
    bool unlocked_writes;
    enum force_unlock force_unlock;
};
const struct terraform_policy *state_pool_terraform(const struct state_pool *pool);

#endif
