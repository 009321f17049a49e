#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "client/client.h"
#include "network/loader.h"
#include "remote/remote.h"
#include "store/dynamodb/dynamodb_store.h"
#include "store/journaled/journaled_store.h"
#include "store/sqlite/sqlite_store.h"
#include "version.h"

const char *belay_version(void)
{
    return BELAY_VERSION;
}

static const char *read_setting(const void *settings, const char *name)
{
    return belay_config_get(settings, name);
}

static enum belay_code open_dynamodb(const char *table, const struct belay_client_options *options,
                                     const struct belay_config *config, struct belay_store **out_store,
                                     char **out_url, struct belay_error *err)
{
    struct dynamodb_options store_options = { .setting = config == NULL ? NULL : read_setting,
                                              .settings = config,
                                              .on_warning = options->on_warning,
                                              .warn_context = options->context };
    const struct net_module *net;
    enum belay_code code = loader_net(&net, err);

    return code == BELAY_OK ? net->open_dynamodb(table, &store_options, out_store, out_url, err) : code;
}

static enum belay_code open_curl(const struct http_options *options, struct http **out_http,
                                 struct belay_error *err)
{
    const struct net_module *net;
    enum belay_code code = loader_net(&net, err);

    return code == BELAY_OK ? net->http_open(options, out_http, err) : code;
}

struct remote_options client_remote_options(const struct belay_config *config)
{
    return (struct remote_options){ .open_curl = open_curl,
                                    .auth_file = belay_config_get(config, "auth_file"),
                                    .ca_file = belay_config_get(config, "ca_file") };
}

/* A server; and a store that says so to whoever asks it instead. */
static enum belay_code open_remote(const char *url, const struct belay_client_options *options,
                                   const struct belay_config *config, struct belay_store **out_store,
                                   struct client_remote **out_remote, char **out_url, struct belay_error *err)
{
    struct remote_options remote_options = client_remote_options(config);
    enum belay_code code;

    remote_options.on_warning = options->on_warning;
    remote_options.traceparent = options->traceparent;
    remote_options.context = options->context;
    code = remote_open(url, &remote_options, out_remote, out_url, err);
    if (code != BELAY_OK) {
        return code;
    }
    *out_store = off_store_new("this is for the server to do");
    if (*out_store == NULL) {
        (*out_remote)->ops->close(*out_remote);
        *out_remote = NULL;
        free(*out_url);
        return error_no_memory(err);
    }
    return BELAY_OK;
}

static enum belay_code open_store(const char *url, const struct belay_client_options *options,
                                  const struct belay_config *config, struct belay_store **out_store,
                                  struct client_remote **out_remote, char **out_url, struct belay_error *err)
{
    if (text_has_prefix(url, "sqlite:")) {
        return sqlite_store_open(url + strlen("sqlite:"), NULL, out_store, out_url, err);
    }
    if (text_has_prefix(url, "dynamodb:")) {
        return open_dynamodb(url + strlen("dynamodb:"), options, config, out_store, out_url, err);
    }
    if (text_has_prefix(url, "http://") || text_has_prefix(url, "https://")) {
        return open_remote(url, options, config, out_store, out_remote, out_url, err);
    }
    return error_set(err, BELAY_INVALID,
                     "'%.200s' is not a store that this belay knows: use sqlite:PATH, dynamodb:TABLE or "
                     "http://HOST:PORT",
                     url);
}

static const struct belay_client_options default_options = BELAY_CLIENT_OPTIONS_INIT;

static bool is_enabled(const struct belay_config *config)
{
    const char *enabled = config == NULL ? NULL : belay_config_get(config, "locking_enabled");

    return enabled == NULL || strcmp(enabled, "true") == 0;
}

/* Takes over the store, the remote (NULL: none) and the url, also if it fails. */
static enum belay_code client_new(struct belay_store *store, struct client_remote *remote, char *url,
                                  const struct belay_config *config,
                                  const struct belay_client_options *options,
                                  struct belay_client **out_client, struct belay_error *err)
{
    struct belay_client *client = calloc(1, sizeof *client);
    uint64_t seed = (uint64_t)(uintptr_t)client;

    if (client == NULL) {
        store->ops->close(store);
        if (remote != NULL) {
            remote->ops->close(remote);
        }
        free(url);
        return error_no_memory(err);
    }
    client->store = store;
    client->remote = remote;
    client->url = url;
    client->config = config;
    client->on_event = options->on_event;
    client->on_warning = options->on_warning;
    client->traceparent = options->traceparent;
    client->context = options->context;
    client->enabled = is_enabled(config);
    (void)random_bytes(&seed, sizeof seed); /* jitter does without, if it must */
    atomic_init(&client->seed, seed);
    (void)pthread_mutex_init(&client->mutex, NULL);
    (void)pthread_mutex_init(&client->via_mutex, NULL);
    (void)pthread_cond_init(&client->idle, NULL);
    lookout_init(&client->lookout);
    *out_client = client;
    return BELAY_OK;
}

static enum belay_code open_with_config(const struct belay_client_options *options,
                                        const struct belay_config *config, struct belay_client **out_client,
                                        struct belay_error *err)
{
    struct belay_store *store = NULL;
    struct client_remote *remote = NULL;
    char *store_url = NULL;
    char *socket = NULL;
    const char *url = options->store_url != NULL ? options->store_url : belay_config_get(config, "store");
    enum belay_code code;

    if (url == NULL) {
        return error_set(err, BELAY_CONFIG,
                         "no home directory to keep locks in: set --store or BELAY_STORE to sqlite:PATH");
    }
    if (options->owns_file && text_has_prefix(url, "sqlite:") && is_enabled(config)) {
        code = ledger_store_open(url + strlen("sqlite:"), NULL, options->on_warning, options->context, &store,
                                 &store_url, &socket, err);
    } else {
        code = open_store(url, options, config, &store, &remote, &store_url, err);
    }
    if (code != BELAY_OK && !is_enabled(config)) {
        store = off_store_new(err == NULL ? "the store could not be opened" : err->text);
        store_url = strdup(url);
        if (store == NULL || store_url == NULL) {
            if (store != NULL) {
                store->ops->close(store);
            }
            free(store_url);
            return error_no_memory(err);
        }
        code = BELAY_OK;
    }
    if (code == BELAY_OK) {
        code = client_new(store, remote, store_url, config, options, out_client, err);
    }
    if (code == BELAY_OK) {
        (*out_client)->socket = socket;
        socket = NULL; /* the client's now */
    }
    free(socket);
    return code;
}

enum belay_code belay_client_open(const struct belay_client_options *options,
                                  struct belay_client **out_client, struct belay_error *err)
{
    struct belay_config *config = NULL;
    enum belay_code code;

    if (options == NULL) {
        options = &default_options;
    }
    if (options->config != NULL) {
        return open_with_config(options, options->config, out_client, err);
    }
    code = belay_config_load(NULL, &config, err);
    if (code == BELAY_OK) {
        code = open_with_config(options, config, out_client, err);
    }
    if (code == BELAY_OK) {
        (*out_client)->own_config = config;
        config = NULL;
    }
    belay_config_free(config);
    return code;
}

enum belay_code belay_client_open_store(struct belay_store *store, const struct belay_client_options *options,
                                        struct belay_client **out_client, struct belay_error *err)
{
    char *url = strdup(store->ops->name);

    if (options == NULL) {
        options = &default_options;
    }
    if (url == NULL) {
        store->ops->close(store);
        return error_no_memory(err);
    }
    return client_new(store, NULL, url, options->config, options, out_client, err);
}

void belay_client_close(struct belay_client *client)
{
    if (client == NULL) {
        return;
    }
    keeper_stop(client);
    calls_drop(client);
    client->store->ops->close(client->store);
    if (client->remote != NULL) {
        client->remote->ops->close(client->remote);
    }
    if (client->served != NULL) {
        client->served->ops->close(client->served);
    }
    (void)pthread_mutex_destroy(&client->mutex);
    (void)pthread_mutex_destroy(&client->via_mutex);
    free(client->socket);
    (void)pthread_cond_destroy(&client->idle);
    lookout_release(&client->lookout);
    belay_config_free(client->own_config);
    free(client->url);
    free(client);
}

const char *belay_client_store_url(const struct belay_client *client)
{
    return client->url;
}

enum belay_code belay_client_store_id(struct belay_client *client, const char **out_id,
                                      struct belay_error *err)
{
    char id[BELAY_STORE_ID_SIZE] = "";
    enum belay_code code = BELAY_OK;

    (void)pthread_mutex_lock(&client->mutex);
    (void)snprintf(id, sizeof id, "%s", client->store_id);
    (void)pthread_mutex_unlock(&client->mutex);
    if (id[0] == '\0') {
        code = client->remote != NULL ? client->remote->ops->identity(client->remote, id, err)
               : client->store->ops->identity != NULL
                   ? client->store->ops->identity(client->store, id, err)
                   : error_set(err, BELAY_CONFIG, "the store '%.200s' has no id", client->url);
    }
    if (code != BELAY_OK) {
        return code;
    }
    (void)pthread_mutex_lock(&client->mutex);
    if (client->store_id[0] == '\0') { /* once it is there it stays: others may have been given it */
        memcpy(client->store_id, id, sizeof id);
    }
    (void)pthread_mutex_unlock(&client->mutex);
    *out_id = client->store_id;
    return BELAY_OK;
}

bool belay_client_locking_enabled(const struct belay_client *client)
{
    return client->enabled;
}
