/*
 * The store of a client whose own store cannot be opened while locking is switched off.
 * The kill switch is for a broken store, so acquiring must still work. Every function of this
 * store returns the error with which the other could not be opened.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "client/client.h"

struct disabled_store {
    struct belay_store base;
    char why[sizeof((struct belay_error *)0)->text];
};

static enum belay_code say_why(struct belay_store *store, struct belay_error *err)
{
    return error_set(err, BELAY_UNREACHABLE, "%s", ((struct disabled_store *)store)->why);
}

static enum belay_code disabled_get(struct belay_store *store, const char *const *keys, size_t n,
                                    struct belay_record *out_records, int64_t *out_now_ms,
                                    struct belay_error *err)
{
    (void)keys;
    (void)n;
    (void)out_records;
    (void)out_now_ms;
    return say_why(store, err);
}

static enum belay_code disabled_commit(struct belay_store *store, const struct belay_batch *batch,
                                       struct belay_commit *out, struct belay_error *err)
{
    (void)batch;
    (void)out;
    return say_why(store, err);
}

static enum belay_code disabled_scan(struct belay_store *store, const struct belay_scan *scan,
                                     belay_record_fn fn, void *context, struct belay_error *err)
{
    (void)scan;
    (void)fn;
    (void)context;
    return say_why(store, err);
}

static enum belay_code disabled_events(struct belay_store *store, const struct belay_events_query *query,
                                       belay_event_fn fn, void *context, struct belay_error *err)
{
    (void)query;
    (void)fn;
    (void)context;
    return say_why(store, err);
}

static struct belay_store_capabilities disabled_capabilities(struct belay_store *store)
{
    (void)store;
    return (struct belay_store_capabilities){ .is_local = true };
}

static void disabled_close(struct belay_store *store)
{
    free(store);
}

static const struct belay_store_ops disabled_ops = {
    .name = "off",
    .close = disabled_close,
    .get = disabled_get,
    .commit = disabled_commit,
    .scan = disabled_scan,
    .events = disabled_events,
    .capabilities = disabled_capabilities,
};

struct belay_store *disabled_store_new(const char *why)
{
    struct disabled_store *store = calloc(1, sizeof *store);

    if (store == NULL) {
        return NULL;
    }
    store->base.ops = &disabled_ops;
    (void)snprintf(store->why, sizeof store->why, "%s", why);
    return &store->base;
}
