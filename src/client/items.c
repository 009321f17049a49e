#include "client/items.h"

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"
#include "client/route.h"

/* BELAY_OK if the client's store can keep items at all. */
static enum belay_code check_store(const struct belay_client *client, struct belay_error *err)
{
    if (client->remote == NULL && client->store->ops->item_list == NULL) {
        return error_set(
            err, BELAY_CONFIG,
            "the store '%.200s' keeps no applications: use sqlite:PATH, dynamodb:TABLE or a server",
            client->url);
    }
    return BELAY_OK;
}

enum belay_code client_item_get(struct belay_client *client, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err)
{
    enum belay_code code = check_store(client, err);

    if (code != BELAY_OK) {
        return code;
    }
    return client->remote != NULL ? client->remote->ops->item_get(client->remote, space, name, out_item, err)
                                  : client->store->ops->item_get(client->store, space, name, out_item, err);
}

enum belay_code client_item_put(struct belay_client *client, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err)
{
    enum belay_code code = check_store(client, err);
    uint64_t version = 0;

    if (code != BELAY_OK) {
        return code;
    }
    code = client->remote != NULL ? client->remote->ops->item_put(client->remote, write, &version, err)
                                  : client->store->ops->item_put(client->store, write, &version, err);
    if (code == BELAY_OK && out_version != NULL) {
        *out_version = version;
    }
    return code;
}

enum belay_code client_item_list(struct belay_client *client, const char *space, belay_item_fn fn,
                                 void *context, bool *out_is_partial, struct belay_error *err)
{
    enum belay_code code = check_store(client, err);

    if (code != BELAY_OK) {
        return code;
    }
    if (client->remote != NULL) {
        return client->remote->ops->item_list(client->remote, space, fn, context, out_is_partial, err);
    }
    code = client->store->ops->item_list(client->store, space, fn, context, err);
    if (code == BELAY_OK) {
        *out_is_partial = false;
    }
    return code;
}

const struct belay_config *client_config(const struct belay_client *client)
{
    return client->config;
}

bool client_is_remote(const struct belay_client *client)
{
    return client->remote != NULL;
}

static enum belay_code decide_here(struct belay_client *client, const struct client_decision *decision,
                                   struct belay_error *err)
{
    uint64_t version;
    /* First the event: if a server has come to own the file it keeps both, and would take the item for its own. */
    enum belay_code code = client_note_here(client, decision->event, err);

    if (code == BELAY_OK && decision->is_done) {
        code = client->store->ops->item_put(client->store, &decision->write, &version, err);
    }
    return code;
}

enum belay_code client_decide(struct belay_client *client, const struct client_decision *decision,
                              struct belay_error *err)
{
    struct belay_event now = *decision->event;
    struct client_remote *remote;
    uint64_t version;
    enum belay_code code = check_store(client, err);

    if (code != BELAY_OK) {
        return code;
    }
    do {
        remote = client_via(client);
        code = remote != NULL ? remote->ops->item_put(remote, &decision->write, &version, err)
                              : decide_here(client, decision, err);
    } while (client_moved(client, remote, &code, err));
    /* Our own sinks are told of it in any case; here that came with the event. */
    if (client->on_event != NULL && remote != NULL) {
        now.at_unix_ms = clock_unix_ms();
        client->on_event(client->context, &now);
    }
    return code;
}
