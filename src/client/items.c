#include "client/items.h"

#include "client/client.h"

/* A server that owns the store's file leaves the items in it, where the store finds them too. */

enum belay_code client_item_get(struct belay_client *client, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err)
{
    return client->route.first->ops->item_get(client->route.first, space, name, out_item, err);
}

enum belay_code client_item_put(struct belay_client *client, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err)
{
    uint64_t version = 0;
    enum belay_code code = client->route.first->ops->item_put(client->route.first, write, &version, err);

    if (code == BELAY_OK && out_version != NULL) {
        *out_version = version;
    }
    return code;
}

enum belay_code client_item_list(struct belay_client *client, const char *space, belay_item_fn fn,
                                 void *context, bool *out_is_partial, struct belay_error *err)
{
    return client->route.first->ops->item_list(client->route.first, space, fn, context, out_is_partial, err);
}

enum belay_code client_decide(struct belay_client *client, const struct client_decision *decision,
                              struct belay_error *err)
{
    enum belay_code code;

    ROUTE(&client->route, code, err, decide, decision);
    return code;
}

const struct belay_config *client_config(const struct belay_client *client)
{
    return client->config;
}

bool client_is_remote(const struct belay_client *client)
{
    return client->store == NULL;
}
