/*
 * Through what a client's locks are reached: its store, a server it was told to
 * use, or the server that has come to own the store's file.
 *
 *     store --BELAY_REDIRECTED: a server owns the file--> served
 *       ^                                                  |
 *       +---BELAY_REDIRECTED: it has stopped, or died ------+
 *
 * The lock id stays the same on the way, so nothing is done twice, and a place
 * in line is found again.
 */
#include "client/route.h"

#include <stdlib.h>

#include "base/error.h"
#include "client/client.h"
#include "remote/remote.h"
#include "store/journaled/journaled_store.h"
#include "store/sqlite/sqlite_store.h"

struct client_remote *client_via(struct belay_client *client)
{
    if (client->remote != NULL) {
        return client->remote;
    }
    return atomic_load(&client->is_served) ? client->served : NULL;
}

/* For a request that did not get through. */
static bool has_moved(void *owner)
{
    struct belay_client *client = owner;
    struct sqlite_server server;
    bool moved = sqlite_store_server(client->store, &server, NULL) == BELAY_OK && server.socket == NULL;

    sqlite_server_release(&server);
    return moved;
}

static enum belay_code open_served(struct belay_client *client, struct belay_error *err)
{
    struct remote_options options = {
        .moved = has_moved, .owner = client, .traceparent = client->traceparent, .context = client->context
    };
    struct sqlite_server server;
    char *url = NULL;
    enum belay_code code = sqlite_store_server(client->store, &server, err);

    if (code != BELAY_OK) {
        return code;
    }
    client->served_pid = server.pid;
    if (server.socket != NULL && client->served == NULL) {
        options.socket = server.socket;
        code = remote_open("http://localhost", &options, &client->served, &url, err);
    }
    if (code == BELAY_OK) {
        atomic_store(&client->is_served, server.socket != NULL);
    }
    free(url);
    sqlite_server_release(&server);
    return code;
}

bool client_moved(struct belay_client *client, const struct client_remote *used, enum belay_code *code,
                  struct belay_error *err)
{
    if (*code != BELAY_REDIRECTED) {
        return false;
    }
    if (used != NULL) {
        atomic_store(&client->is_served, false);
        return true;
    }
    (void)pthread_mutex_lock(&client->via_mutex);
    *code = open_served(client, err);
    (void)pthread_mutex_unlock(&client->via_mutex);
    return *code == BELAY_OK;
}

long belay_client_server_pid(struct belay_client *client)
{
    return atomic_load(&client->is_served) ? client->served_pid : 0;
}

const char *belay_client_socket(const struct belay_client *client, const char **out_file)
{
    if (client->socket != NULL) {
        *out_file = ledger_store_path(client->store);
    }
    return client->socket;
}
