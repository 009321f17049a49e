#include <stdlib.h>

#include "base/error.h"
#include "store/dynamodb/dynamodb_internal.h"

/*
 * Polls are the cost of waiting: 1,800 reads an hour for the first in the queue. Waiters far
 * back poll at every 20th interval (src/lock/acquire.c), so a ticket lasts longer than that. A
 * dead waiter delays each hand-over by one claim until its ticket expires.
 */
enum { POLL_MS = 2000, FIRST_POLL_MS = 100, TICKET_POLLS = 24 };

static void ddb_close(struct belay_store *base)
{
    struct ddb_store *store = ddb_of(base);

    aws_close(store->aws);
    ddb_clock_release(store);
    ddb_seen_release(&store->seen);
    layout_made_release(&store->made);
    ddb_params_release(&store->params);
    free(store);
}

/*
 * Between two machines that follow belay's rules, one clock writes the expiry and the
 * service's Date ends the lease: one skew. A program that uses only its own clock may be early
 * by as much again.
 */
static int64_t margin_ms(const struct ddb_store *store)
{
    return layout_is_foreign(store->layout) ? 2 * store->params.max_skew_ms : store->params.max_skew_ms;
}

static const char *freezes_advice(const struct ddb_store *store)
{
    return layout_is_foreign(store->layout) ? "its programs would not obey a freeze: use layout belay"
                                            : "add freezes=on to the store's URL, for all clients of the "
                                              "table: each acquisition then reads "
                                              "the freezes first, and a client without it would ignore them";
}

static struct belay_store_capabilities ddb_capabilities(struct belay_store *base)
{
    const struct ddb_store *store = ddb_of(base);

    return (struct belay_store_capabilities){ .is_local = false,
                                              .margin_ms = margin_ms(store),
                                              .has_freezes = store->params.freezes,
                                              .freezes_advice = freezes_advice(store),
                                              .claim_ms = POLL_MS,
                                              .poll_ms = POLL_MS,
                                              .first_poll_ms = FIRST_POLL_MS,
                                              .ticket_ttl_ms = TICKET_POLLS * POLL_MS,
                                              .release_deletes = store->layout->release_deletes,
                                              .read_clock_lag_ms = DDB_DATE_RESOLUTION_MS,
                                              .has_modes = !layout_is_foreign(store->layout),
                                              .owner_name_meta = store->layout->owner_name_meta };
}

static const struct belay_store_ops ops = { .name = "dynamodb",
                                            .close = ddb_close,
                                            .get = ddb_get,
                                            .commit = ddb_commit,
                                            .scan = ddb_scan,
                                            .capabilities = ddb_capabilities,
                                            .item_get = ddb_item_get,
                                            .item_put = ddb_item_put,
                                            .item_list = ddb_item_list,
                                            .identity = ddb_identity };

static enum belay_code open_aws(struct ddb_store *store, struct belay_error *err)
{
    struct aws_options options = { .profile = store->params.profile, .region = store->params.region };

    options.endpoints[AWS_DYNAMODB] = store->params.endpoint;
    return aws_open(&options, &store->aws, err);
}

static enum belay_code choose_layout(struct ddb_store *store, const struct dynamodb_options *options,
                                     struct belay_error *err)
{
    const char *name = store->params.layout == NULL ? "belay" : store->params.layout;
    enum belay_code code = BELAY_OK;

    store->layout = layout_builtin(name);
    if (store->layout == NULL) {
        code = layout_make(name, options->setting, options->settings, &store->made, err);
        store->layout = &store->made.layout;
    }
    if (code == BELAY_NOT_FOUND) {
        return error_set(err, BELAY_INVALID,
                         "there is no layout '%.64s'; known are %s, and those under 'layouts:' in the "
                         "configuration",
                         name, layout_builtin_names());
    }
    if (code == BELAY_OK && store->params.fence_table != NULL && !layout_is_foreign(store->layout)) {
        return error_set(err, BELAY_INVALID, "layout 'belay' counts tokens itself: leave out fence_table");
    }
    if (code == BELAY_OK && store->params.freezes && layout_is_foreign(store->layout)) {
        return error_set(
            err, BELAY_INVALID,
            "layout '%.64s' belongs to programs that would not obey a freeze: leave out freezes=on",
            store->layout->name);
    }
    return code;
}

enum belay_code dynamodb_store_open(const char *table_and_params, const struct dynamodb_options *options,
                                    struct belay_store **out_store, char **out_url, struct belay_error *err)
{
    static const struct dynamodb_options none = { 0 };
    struct ddb_store *store = calloc(1, sizeof *store);
    char *url = NULL;
    enum belay_code code;

    if (store == NULL) {
        return error_no_memory(err);
    }
    options = options == NULL ? &none : options;
    store->base.ops = &ops;
    store->on_warning = options->on_warning;
    store->warn_context = options->warn_context;
    if (options->hooks != NULL) {
        store->hooks = *options->hooks;
    }
    ddb_clock_init(store);
    ddb_seen_init(&store->seen);
    code = ddb_params_parse(table_and_params, &store->params, err);
    if (code == BELAY_OK) {
        code = choose_layout(store, options, err);
    }
    if (code == BELAY_OK) {
        code = open_aws(store, err);
    }
    if (code == BELAY_OK) {
        url = ddb_params_url(&store->params);
        code = url == NULL ? error_no_memory(err) : BELAY_OK;
    }
    if (code != BELAY_OK) {
        ddb_close(&store->base);
        return code;
    }
    *out_store = &store->base;
    *out_url = url;
    return BELAY_OK;
}
