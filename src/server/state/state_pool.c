#include "server/state/state_pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fnv.h"
#include "base/text.h"
#include "server/core/job.h"

enum { SPARE_MAX = 8, STRIPES = 64, LEASE_MS = 6 * 3600 * 1000, KEPT_MAX = 200 << 20 };

struct state_pool {
    struct server *server; /* borrowed */
    char *url;             /* owned; NULL: as configured */
    char *lock_store_url;  /* owned; likewise */
    struct terraform_policy terraform;
    pthread_mutex_t mutex;                 /* guards `spare` and `n_spare` */
    struct belay_states *spare[SPARE_MAX]; /* owned */
    size_t n_spare;
    pthread_mutex_t stripes[STRIPES];
    struct state_cache *cache; /* owned */
};

/* ---- opening ---- */

/* src/config has checked the duration and the switch. */
static enum belay_code read_policy(const struct belay_config *config, struct terraform_policy *out,
                                   struct belay_error *err)
{
    static const char *const names[] = {
        [FORCE_UNLOCK_ADMIN] = "admin", [FORCE_UNLOCK_LOCKER] = "locker", [FORCE_UNLOCK_NEVER] = "never"
    };
    const char *lease = belay_config_get(config, "server.terraform.lease");
    const char *unlocked = belay_config_get(config, "server.terraform.unlocked_writes");
    const char *force = belay_config_get(config, "server.terraform.force_unlock");

    *out = (struct terraform_policy){ .lease_ms = LEASE_MS };
    (void)belay_parse_duration(lease, &out->lease_ms);
    out->unlocked_writes = unlocked != NULL && strcmp(unlocked, "true") == 0;
    for (int i = FORCE_UNLOCK_ADMIN; i <= FORCE_UNLOCK_NEVER; i++) {
        if (force == NULL || strcmp(force, names[i]) == 0) {
            out->force_unlock = (enum force_unlock)i;
            return BELAY_OK;
        }
    }
    return error_set(err, BELAY_CONFIG,
                     "server.terraform.force_unlock: '%.60s' must be admin, locker or never", force);
}

enum belay_code state_pool_open(struct server *server, const char *url, const char *lock_store_url,
                                struct belay_error *err)
{
    struct state_pool *pool = calloc(1, sizeof *pool);
    bool ok = true;

    if (pool == NULL) {
        return error_no_memory(err);
    }
    pool->server = server;
    (void)pthread_mutex_init(&pool->mutex, NULL);
    for (size_t i = 0; i < STRIPES; i++) {
        (void)pthread_mutex_init(&pool->stripes[i], NULL);
    }
    server->states = pool;
    pool->cache = state_cache_new(KEPT_MAX);
    pool->url = text_copy(url, &ok);
    pool->lock_store_url = text_copy(lock_store_url, &ok);
    if (pool->cache == NULL || !ok) {
        return error_no_memory(err);
    }
    return read_policy(server->config, &pool->terraform, err);
}

void state_pool_close(struct state_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    for (size_t i = 0; i < pool->n_spare; i++) {
        belay_states_close(pool->spare[i]);
    }
    for (size_t i = 0; i < STRIPES; i++) {
        (void)pthread_mutex_destroy(&pool->stripes[i]);
    }
    (void)pthread_mutex_destroy(&pool->mutex);
    state_cache_free(pool->cache);
    free(pool->url);
    free(pool->lock_store_url);
    free(pool);
}

const struct terraform_policy *state_pool_terraform(const struct state_pool *pool)
{
    return &pool->terraform;
}

struct state_cache *state_pool_cache(const struct state_pool *pool)
{
    return pool->cache;
}

/* ---- handles ---- */

static void log_state_warning(void *context, const char *text)
{
    server_log(context, LOG_WARN, "state", text);
}

enum belay_code state_pool_take(struct state_pool *pool, struct belay_states **out_states,
                                struct belay_error *err)
{
    struct belay_states_options options = BELAY_STATES_OPTIONS_INIT;
    struct belay_states *states = NULL;

    (void)pthread_mutex_lock(&pool->mutex);
    if (pool->n_spare > 0) {
        states = pool->spare[--pool->n_spare];
    }
    (void)pthread_mutex_unlock(&pool->mutex);
    if (states != NULL) {
        *out_states = states;
        return BELAY_OK;
    }
    options.url = pool->url;
    options.config = pool->server->config;
    options.lock_store_url = pool->lock_store_url;
    options.on_warning = log_state_warning;
    options.context = pool->server;
    assert(*out_states == NULL);
    return belay_states_open(&options, out_states, err);
}

void state_pool_give(struct state_pool *pool, struct belay_states *states)
{
    if (states == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&pool->mutex);
    assert(pool->n_spare <= SPARE_MAX);
    if (pool->n_spare < SPARE_MAX) {
        pool->spare[pool->n_spare++] = states;
        states = NULL;
    }
    (void)pthread_mutex_unlock(&pool->mutex);
    belay_states_close(states);
}

/* ---- mutual exclusion by name ---- */

/* Two names may share a mutex: their jobs then wait for each other, which is harmless. */
static pthread_mutex_t *stripe_of(struct state_pool *pool, const char *name)
{
    return &pool->stripes[fnv_text(FNV_INIT, name) % STRIPES];
}

void state_pool_enter(struct state_pool *pool, const char *name)
{
    (void)pthread_mutex_lock(stripe_of(pool, name));
}

void state_pool_leave(struct state_pool *pool, const char *name)
{
    (void)pthread_mutex_unlock(stripe_of(pool, name));
}
