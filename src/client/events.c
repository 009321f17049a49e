/* What happened: of one lock, of all, and from now on. */
#include "base/error.h"
#include "client/audit_trail.h"
#include "client/client.h"
#include "client/route.h"

enum { WATCH_LOOK_MS = 1000 };

/* L9: where events are not kept they go to the configured sinks. */
static enum belay_code say_no_history(const struct belay_client *client, struct belay_error *err)
{
    const char *file = client->config == NULL ? NULL : belay_config_get(client->config, "audit.file");

    if (file != NULL) {
        return error_set(err, BELAY_NOT_FOUND,
                         "%.200s keeps no history: its events are in the audit file, %.300s, of each machine",
                         client->url, file);
    }
    return error_set(
        err, BELAY_NOT_FOUND,
        "%.200s keeps no history: to have one, set 'audit: {file: PATH}' in the configuration of "
        "everyone who uses it",
        client->url);
}

static enum belay_code query_events(struct belay_client *client, const struct belay_events_query *query,
                                    belay_event_fn fn, void *context, struct belay_error *err)
{
    const char *audit = audit_trail_path(client->config);

    if (client_via(client) != NULL) {
        return error_set(err, BELAY_NOT_FOUND,
                         "a server tells the events of one lock, or those to come: use belay_history() or "
                         "belay_watch()");
    }
    if (client->store->ops->events == NULL && query->key != NULL && audit != NULL) {
        return audit_trail_read(audit, query->key, query->last, fn, context, err);
    }
    if (client->store->ops->events == NULL) {
        return say_no_history(client, err);
    }
    return client_count_read(client, client->store->ops->events(client->store, query, fn, context, err));
}

enum belay_code belay_history(struct belay_client *client, const char *key, size_t limit, belay_event_fn fn,
                              void *context, struct belay_error *err)
{
    struct belay_events_query query = { .key = key, .last = limit };
    enum belay_code code = belay_key_check(client->config, NULL, key, err);
    struct client_remote *remote;

    if (code != BELAY_OK) {
        return code;
    }
    do {
        remote = client_via(client);
        code = remote != NULL ? remote->ops->history(remote, key, limit, fn, context, err)
                              : query_events(client, &query, fn, context, err);
    } while (client_moved(client, remote, &code, err));
    return code;
}

enum belay_code belay_report_lost(struct belay_client *client, const struct belay_event *event,
                                  struct belay_error *err)
{
    struct belay_event copy = *event;
    struct request request;
    enum belay_code code = request_init_id(&request, client, OP_RELEASE, event->key, event->lock_id, err);

    if (code != BELAY_OK) {
        return code;
    }
    request_release(&request); /* it was for the checks */
    code = metadata_check(event->metadata, event->n_metadata, err);
    if (code != BELAY_OK) {
        return code;
    }
    copy.type = "lock.lost";
    copy.level = BELAY_LEVEL_WARNING;
    copy.duration_ms = -1;
    return client_note(client, &copy, err);
}

enum belay_code belay_events(struct belay_client *client, const char *prefix, uint64_t after_id, size_t last,
                             belay_event_fn fn, void *context, struct belay_error *err)
{
    struct belay_events_query query = { .prefix = prefix, .after = after_id, .last = last };
    struct client_remote *remote;
    enum belay_code code;

    do {
        remote = client_via(client);
        code = query_events(client, &query, fn, context, err);
    } while (client_moved(client, remote, &code, err));
    return code;
}

struct watching {
    belay_event_fn fn;
    void *context;
    uint64_t after;
    bool stopped;
};

static bool watch_one(void *context, const struct belay_event *event)
{
    struct watching *watching = context;

    watching->after = event->id;
    watching->stopped = watching->fn != NULL && !watching->fn(watching->context, event);
    return !watching->stopped;
}

/* The store's events after watching->after (0: from now on), until it is elsewhere. */
static enum belay_code watch_here(struct belay_client *client, const char *prefix, struct watching *watching,
                                  struct belay_cancel *cancel, struct belay_error *err)
{
    struct belay_store *store = client->store;
    struct belay_events_query query = { .last = 1 };
    belay_event_fn fn = watching->fn;
    enum belay_code code = BELAY_OK;

    if (watching->after == 0) {
        watching->fn = NULL;
        code = query_events(client, &query, watch_one, watching, err); /* where we are now */
        watching->fn = fn;
    }
    query.last = 0;
    query.prefix = prefix;
    while (code == BELAY_OK && !watching->stopped && !belay_cancel_requested(cancel)) {
        uint32_t heard = store->ops->listen == NULL ? 0 : store->ops->listen(store, NULL);

        query.after = watching->after;
        code = query_events(client, &query, watch_one, watching, err);
        if (code != BELAY_OK || watching->stopped) {
            break;
        }
        if (store->ops->wait != NULL) {
            store->ops->wait(store, NULL, heard, WATCH_LOOK_MS, cancel);
        } else {
            client_sleep(WATCH_LOOK_MS, cancel);
        }
    }
    return code;
}

enum belay_code belay_watch(struct belay_client *client, const char *prefix, uint64_t after_id,
                            belay_event_fn fn, void *context, struct belay_cancel *cancel,
                            struct belay_error *err)
{
    struct watching watching = { .fn = fn, .context = context, .after = after_id };
    struct client_remote *remote;
    enum belay_code code;

    do {
        remote = client_via(client);
        code = remote != NULL
                   ? remote->ops->watch(remote, prefix, watching.after, watch_one, &watching, cancel, err)
                   : watch_here(client, prefix, &watching, cancel, err);
    } while (client_moved(client, remote, &code, err) && !watching.stopped);
    return code;
}
