#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

enum { CLAIM_MS = 1000, TICKET_TTL_MS = 15000 };

static void close_store(struct belay_store *base)
{
    struct pg_store *store = pg_of(base);

    if (store == NULL) {
        return;
    }
    pg_wake_close(store);
    pg_loop_free(store->loop);
    pg_close_idle(store);
    pg_group_leave(store->group);
    for (size_t i = 0; i < PG_STATEMENTS; i++) {
        free(store->sql[i]);
    }
    (void)pthread_cond_destroy(&store->returned);
    (void)pthread_cond_destroy(&store->mended);
    (void)pthread_mutex_destroy(&store->mutex);
    pg_params_release(&store->params);
    free(store->tail.prefix);
    free(store);
}

static struct belay_store_capabilities capabilities(struct belay_store *base)
{
    struct pg_store *store = pg_of(base);
    bool is_pooled = atomic_load(&store->wake.is_pooled);

    return (struct belay_store_capabilities){ .is_local = false,
                                              .margin_ms = store->params.clock_step_ms,
                                              .claim_ms = CLAIM_MS,
                                              .poll_ms = is_pooled ? PG_POLL_UNWOKEN_MS : PG_POLL_MS,
                                              .ticket_ttl_ms = TICKET_TTL_MS,
                                              .has_freezes = true,
                                              .takes_turns = true,
                                              .has_modes = true };
}

static const struct belay_store_ops ops = { .name = "postgresql",
                                            .close = close_store,
                                            .get = pg_get,
                                            .commit = pg_commit,
                                            .scan = pg_scan,
                                            .events = pg_events,
                                            .capabilities = capabilities,
                                            .listen = pg_listen,
                                            .wait = pg_wait,
                                            .wake = pg_wake,
                                            .subscribe = pg_subscribe,
                                            .item_get = pg_item_get,
                                            .item_put = pg_item_put,
                                            .item_list = pg_item_list,
                                            .identity = pg_identity,
                                            .loop = &pg_loop_ops };

static bool init_mutexes(struct pg_store *store)
{
    pthread_condattr_t monotonic;

    (void)pthread_mutex_init(&store->mutex, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&store->returned, &monotonic);
    (void)pthread_cond_init(&store->mended, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    pg_wake_init(&store->wake);
    store->group = pg_group_join(&store->params);
    return store->wake.poke_fd >= 0 && store->group != NULL;
}

/* A command makes a few commits only, and one of them, of all commands, has to delete old events now and then. */
static void begin_counting(struct pg_store *store)
{
    uint64_t random = 0;

    (void)random_bytes(&random, sizeof random);
    store->commits = random % PG_FORGET_EVERY;
}

/* Two stores of one name would only poll for what the other ones release. */
static void name_store(struct pg_store *store)
{
    uint64_t name = (uint64_t)clock_boot_us();

    (void)random_bytes(&name, sizeof name);
    (void)snprintf(store->here, sizeof store->here, "w%016" PRIx64, name);
}

enum belay_code postgresql_store_open(const char *url, const struct postgresql_options *options,
                                      struct belay_store **out_store, char **out_url, struct belay_error *err)
{
    struct pg_params params = { 0 };
    struct pg_store *store;
    enum belay_code code = pg_params_parse(url, &params, err);

    if (code != BELAY_OK) {
        return code;
    }
    store = calloc(1, sizeof *store);
    if (store == NULL) {
        pg_params_release(&params);
        return error_no_memory(err);
    }
    store->base.ops = &ops;
    store->params = params;
    if (options != NULL) {
        store->options = *options;
    }
    name_store(store);
    begin_counting(store);
    pg_name_machine(store->machine, sizeof store->machine);
    (void)snprintf(store->channel, sizeof store->channel, "%s_wake", params.schema);
    *out_url = strdup(params.url);
    if (!init_mutexes(store) || !pg_make_statements(store) || *out_url == NULL) {
        free(*out_url);
        *out_url = NULL;
        close_store(&store->base);
        return error_no_memory(err);
    }
    *out_store = &store->base;
    return BELAY_OK;
}
