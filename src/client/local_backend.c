/* The client's own store as a backend; local_run.c and local_read.c have the larger functions. */
#include "base/error.h"
#include "client/client.h"
#include "client/report.h"

static void local_close(struct backend *backend)
{
    struct belay_store *store = local_client(backend)->store;

    store->ops->close(store);
}

static struct belay_store_capabilities local_capabilities(struct backend *backend)
{
    struct belay_store *store = local_client(backend)->store;

    return store->ops->capabilities(store);
}

static enum belay_code local_note(struct backend *backend, const struct belay_event *event,
                                  struct belay_error *err)
{
    struct belay_client *client = local_client(backend);
    struct belay_batch batch = { .events = event, .n_events = 1 };
    struct belay_commit result = { 0 };
    enum belay_code code =
        client_count_commit(client, client->store->ops->commit(client->store, &batch, &result, err));

    if (code == BELAY_OK) {
        report_commit(client->on_event, client->context, &batch, &result, -1, 0);
    }
    belay_commit_release(&result);
    return code;
}

/* ---- items ---- */

static enum belay_code check_items(struct backend *backend, struct belay_error *err)
{
    const struct belay_client *client = local_client(backend);

    return client->store->ops->item_list != NULL
               ? BELAY_OK
               : error_set(
                     err, BELAY_CONFIG,
                     "the store '%.200s' keeps no applications: use sqlite:PATH, dynamodb:TABLE or a server",
                     client->url);
}

static enum belay_code local_item_get(struct backend *backend, const char *space, const char *name,
                                      struct belay_item *out_item, struct belay_error *err)
{
    struct belay_store *store = local_client(backend)->store;
    enum belay_code code = check_items(backend, err);

    return code == BELAY_OK ? store->ops->item_get(store, space, name, out_item, err) : code;
}

static enum belay_code local_item_put(struct backend *backend, const struct belay_item_write *write,
                                      uint64_t *out_version, struct belay_error *err)
{
    struct belay_store *store = local_client(backend)->store;
    enum belay_code code = check_items(backend, err);

    return code == BELAY_OK ? store->ops->item_put(store, write, out_version, err) : code;
}

static enum belay_code local_item_list(struct backend *backend, const char *space, belay_item_fn fn,
                                       void *context, bool *out_is_partial, struct belay_error *err)
{
    struct belay_store *store = local_client(backend)->store;
    enum belay_code code = check_items(backend, err);

    if (code == BELAY_OK) {
        code = store->ops->item_list(store, space, fn, context, err);
    }
    if (code == BELAY_OK) {
        *out_is_partial = false;
    }
    return code;
}

/* The event first: if a server owns the file, it records both, and would mistake our item for its own. */
static enum belay_code local_decide(struct backend *backend, const struct client_decision *decision,
                                    struct belay_error *err)
{
    uint64_t version;
    enum belay_code code = check_items(backend, err);

    if (code == BELAY_OK) {
        code = local_note(backend, decision->event, err);
    }
    if (code == BELAY_OK && decision->is_done) {
        code = local_item_put(backend, &decision->write, &version, err);
    }
    return code;
}

/* ---- the store as a whole ---- */

static enum belay_code local_backup(struct backend *backend, const char *path, struct belay_cancel *cancel,
                                    struct belay_error *err)
{
    const struct belay_client *client = local_client(backend);
    struct belay_store *store = client->store;

    if (store->ops->backup == NULL) {
        return error_set(
            err, BELAY_INVALID,
            "the store '%.200s' is not a file that belay could copy; DynamoDB has point-in-time recovery "
            "and on-demand backups for its tables",
            client->url);
    }
    return store->ops->backup(store, path, cancel, err);
}

static enum belay_code local_identity(struct backend *backend, char out_id[BELAY_STORE_ID_SIZE],
                                      struct belay_error *err)
{
    const struct belay_client *client = local_client(backend);
    struct belay_store *store = client->store;

    return store->ops->identity != NULL
               ? store->ops->identity(store, out_id, err)
               : error_set(err, BELAY_CONFIG, "the store '%.200s' has no id", client->url);
}

const struct backend_ops local_ops = {
    .close = local_close,
    .capabilities = local_capabilities,
    .run = local_run,
    .get = local_get,
    .list = local_list,
    .events = local_events,
    .watch = local_watch,
    .note = local_note,
    .check_free = local_check_free,
    .item_get = local_item_get,
    .item_put = local_item_put,
    .item_list = local_item_list,
    .decide = local_decide,
    .backup = local_backup,
    .identity = local_identity,
};
