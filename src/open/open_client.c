/* Clients: opening the store that a URL names, and closing it. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/store_url.h"
#include "base/suggest.h"
#include "base/text.h"
#include "client/client.h"
#include "network/loader.h"
#include "open/open_internal.h"
#include "remote/remote.h"
#include "store/dynamodb/dynamodb_store.h"
#include "store/journaled/journaled_store.h"
#include "store/postgresql/postgresql_store.h"
#include "store/sqlite/sqlite_store.h"
#include "version.h"

const char *belay_version(void)
{
    return BELAY_VERSION;
}

bool url_is_postgresql(const char *url)
{
    return text_has_prefix(url, "postgresql://") || text_has_prefix(url, "postgres://");
}

bool url_is_server(const char *url)
{
    return text_has_prefix(url, "http://") || text_has_prefix(url, "https://");
}

enum belay_code open_config(const struct belay_config **config, struct belay_config **out_own,
                            struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    if (*config == NULL) {
        code = belay_config_load(NULL, out_own, err);
        *config = *out_own;
    }
    return code;
}

static enum belay_code open_dynamodb(struct belay_client *client, const char *table, struct belay_error *err)
{
    struct dynamodb_options options = module_options(client->config);
    const struct net_module *net;
    enum belay_code code = loader_net(&net, err);

    options.on_warning = client->on_warning;
    options.warn_context = client->context;
    return code == BELAY_OK ? net->open_dynamodb(table, &options, &client->store, &client->url, err) : code;
}

static enum belay_code open_postgresql(struct belay_client *client, const char *url, struct belay_error *err)
{
    struct postgresql_options options = { .on_warning = client->on_warning, .warn_context = client->context };
    const struct pg_module *pg;
    enum belay_code code = loader_pg(&pg, err);

    return code == BELAY_OK ? pg->open(url, &options, &client->store, &client->url, err) : code;
}

static enum belay_code open_curl(const struct http_client_options *options, struct http **out_http,
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

/* ---- the server that owns a store's file ---- */

/* For remote_options.moved: no server owns the file any more. */
static bool server_is_gone(void *owner)
{
    struct belay_client *client = owner;
    struct sqlite_server server;
    bool gone = sqlite_store_server(client->store, &server, NULL) == BELAY_OK && server.socket == NULL;

    sqlite_server_release(&server);
    return gone;
}

static enum belay_code find_server(void *context, struct backend **server, long *out_pid,
                                   struct belay_error *err)
{
    struct belay_client *client = context;
    struct remote_options options = { .moved = server_is_gone,
                                      .owner = client,
                                      .on_event = client->on_event,
                                      .traceparent = client->traceparent,
                                      .context = client->context };
    struct sqlite_server found;
    char *url = NULL;
    enum belay_code code = sqlite_store_server(client->store, &found, err);

    if (code != BELAY_OK) {
        return code;
    }
    if (found.socket != NULL && *server == NULL) {
        options.socket = found.socket;
        code = remote_open("http://localhost", &options, server, &url, err);
    }
    if (code == BELAY_OK) {
        *out_pid = found.socket == NULL ? 0 : found.pid;
    }
    free(url);
    sqlite_server_release(&found);
    return code;
}

long belay_client_server_pid(struct belay_client *client)
{
    return atomic_load(&client->route.server_pid);
}

const char *belay_client_socket(const struct belay_client *client, const char **out_file)
{
    if (client->socket != NULL) {
        *out_file = journaled_store_path(client->store);
    }
    return client->socket;
}

/* ---- opening ---- */

static const struct belay_client_options default_options = BELAY_CLIENT_OPTIONS_INIT;

static struct belay_client *client_new(const struct belay_config *config,
                                       const struct belay_client_options *options)
{
    const char *enabled = config == NULL ? NULL : belay_config_get(config, "locking_enabled");
    struct belay_client *client = calloc(1, sizeof *client);
    uint64_t seed = (uint64_t)(uintptr_t)client;

    if (client == NULL) {
        return NULL;
    }
    client->local = (struct local_backend){ { &local_ops }, client };
    client->config = config;
    client->on_event = options->on_event;
    client->on_warning = options->on_warning;
    client->traceparent = options->traceparent;
    client->on_wake = options->on_wake;
    client->context = options->context;
    client->enabled = enabled == NULL || strcmp(enabled, "true") == 0;
    (void)random_bytes(&seed, sizeof seed); /* for jitter; without random bytes the address serves */
    atomic_init(&client->seed, seed);
    (void)pthread_mutex_init(&client->mutex, NULL);
    (void)pthread_cond_init(&client->idle, NULL);
    shared_poll_init(&client->shared_poll);
    route_init(&client->route);
    return client;
}

static enum belay_code open_server(struct belay_client *client, const char *url, struct belay_error *err)
{
    struct remote_options options = client_remote_options(client->config);

    options.on_event = client->on_event;
    options.on_warning = client->on_warning;
    options.traceparent = client->traceparent;
    options.context = client->context;
    return remote_open(url, &options, &client->route.first, &client->url, err);
}

const char *setting_origin(const struct belay_config *config, const char *name)
{
    for (size_t i = 0; i < belay_config_count(config); i++) {
        struct belay_setting setting = belay_config_setting(config, i);

        if (strcmp(setting.name, name) == 0) {
            return setting.origin;
        }
    }
    return "default";
}

enum belay_code say_configured(const struct belay_config *config, const char *name, enum belay_code code,
                               struct belay_error *err)
{
    const char *origin = setting_origin(config, name);
    char where[PATH_MAX];

    if (text_has_prefix(origin, "environment ")) {
        (void)error_wrap(err, "%s", origin);
        return code;
    }
    (void)snprintf(where, sizeof where, "%s: %s", origin, name);
    return error_in_setting(err, code, where);
}

/* Whether what follows the scheme is a name, and not "//HOST". */
static bool is_plain_scheme(const char *scheme)
{
    return strcmp(scheme, "sqlite") == 0 || strcmp(scheme, "dynamodb") == 0 || strcmp(scheme, "file") == 0;
}

bool guess_store_url(const char *url, const char *const schemes[], size_t n, const char *file_scheme,
                     char *meant, size_t size)
{
    size_t len = strcspn(url, ":");
    const char *rest = url[len] == ':' ? url + len + 1 : "";
    const char *scheme;
    char typed[16];

    if (*url == '/' || *url == '.' || *url == '~') {
        (void)snprintf(meant, size, "%s:%.160s", file_scheme, url);
        return true;
    }
    if (*rest != '\0' && strspn(rest, "0123456789") == strlen(rest)) {
        (void)snprintf(meant, size, "http://%.160s", url);
        return true;
    }
    if (url[len] != ':' || len >= sizeof typed) {
        return false;
    }
    for (size_t i = 0; i <= len; i++) {
        typed[i] = i == len ? '\0' : (char)tolower((unsigned char)url[i]);
    }
    scheme = suggest_name(typed, schemes, n);
    if (scheme == NULL) {
        return false;
    }
    rest += is_plain_scheme(scheme) ? 0 : strspn(rest, "/");
    (void)snprintf(meant, size, "%s:%s%.160s", scheme, is_plain_scheme(scheme) ? "" : "//", rest);
    return true;
}

static enum belay_code say_unknown_store(const char *url, struct belay_error *err)
{
    static const char *const schemes[] = { "sqlite", "postgresql", "dynamodb", "http", "https" };
    char meant[256], shown[STORE_URL_SHOWN];

    url = store_url_show(url, shown);
    if (guess_store_url(url, schemes, sizeof schemes / sizeof schemes[0], "sqlite", meant, sizeof meant)) {
        return error_set(err, BELAY_INVALID,
                         "'%.200s' is not a store that this belay knows: did you mean '%s'?", url, meant);
    }
    return error_set(
        err, BELAY_INVALID,
        "'%.200s' is not a store that this belay knows: use sqlite:PATH, postgresql://HOST/DATABASE, "
        "dynamodb:TABLE or http://HOST:PORT",
        url);
}

static enum belay_code open_lock_url(struct belay_client *client, const char *url, bool owns_file,
                                     struct belay_error *err)
{
    if (text_has_prefix(url, "sqlite:") && owns_file && client->enabled) {
        return journaled_store_open(url + strlen("sqlite:"), NULL, client->on_warning, client->context,
                                    &client->store, &client->url, &client->socket, err);
    }
    if (text_has_prefix(url, "sqlite:")) {
        client->route.find = find_server;
        client->route.context = client;
        return sqlite_store_open(url + strlen("sqlite:"), NULL, &client->store, &client->url, err);
    }
    if (text_has_prefix(url, "dynamodb:")) {
        return open_dynamodb(client, url + strlen("dynamodb:"), err);
    }
    if (url_is_postgresql(url)) {
        return open_postgresql(client, url, err);
    }
    if (url_is_server(url)) {
        return open_server(client, url, err);
    }
    return say_unknown_store(url, err);
}

/* With locking disabled a client works even if its store cannot be opened. */
static enum belay_code use_disabled_store(struct belay_client *client, const char *url, const char *why,
                                          struct belay_error *err)
{
    struct buf shown = BUF_INIT(STORE_URL_MAX);

    store_url_add_shown(&shown, url); /* no store has taken a password out of it */
    client->store = disabled_store_new(why);
    client->url = buf_take(&shown);
    return client->store == NULL || client->url == NULL ? error_no_memory(err) : BELAY_OK;
}

enum belay_code belay_client_open(const struct belay_client_options *given, struct belay_client **out_client,
                                  struct belay_error *err)
{
    const struct belay_client_options *options = given == NULL ? &default_options : given;
    const struct belay_config *config = options->config;
    struct belay_config *own_config = NULL;
    struct belay_client *client = NULL;
    const char *url = options->store_url;
    enum belay_code code = open_config(&config, &own_config, err);

    if (code == BELAY_OK && url == NULL && (url = belay_config_get(config, "store")) == NULL) {
        code = error_set(err, BELAY_CONFIG,
                         "no home directory to keep locks in: set --store or BELAY_STORE to sqlite:PATH");
    }
    if (code == BELAY_OK && (client = client_new(config, options)) == NULL) {
        code = error_no_memory(err);
    }
    if (code != BELAY_OK) {
        belay_config_free(own_config);
        return code;
    }
    client->own_config = own_config;
    code = open_lock_url(client, url, options->owns_file, err);
    if (code == BELAY_INVALID && options->store_url == NULL) {
        code = say_configured(config, "store", code, err);
    }
    if (code != BELAY_OK && !client->enabled) {
        code =
            use_disabled_store(client, url, err == NULL ? "the store could not be opened" : err->text, err);
    }
    if (client->store != NULL) {
        client->route.first = &client->local.base;
    }
    if (code == BELAY_OK) {
        *out_client = client;
    } else {
        belay_client_close(client);
    }
    return code;
}

enum belay_code belay_client_open_store(struct belay_store *store, const struct belay_client_options *options,
                                        struct belay_client **out_client, struct belay_error *err)
{
    struct belay_client *client;

    if (options == NULL) {
        options = &default_options;
    }
    client = client_new(options->config, options);
    if (client == NULL) {
        store->ops->close(store);
        return error_no_memory(err);
    }
    client->store = store;
    client->route.first = &client->local.base;
    client->url = strdup(store->ops->name);
    if (client->url == NULL) {
        belay_client_close(client);
        return error_no_memory(err);
    }
    *out_client = client;
    return BELAY_OK;
}

void belay_client_close(struct belay_client *client)
{
    if (client == NULL) {
        return;
    }
    ticker_stop(&client->renew_timer);
    ticker_stop(&client->deadline_timer);
    async_drop_all(client);
    route_release(&client->route);
    (void)pthread_mutex_destroy(&client->mutex);
    free(client->socket);
    (void)pthread_cond_destroy(&client->idle);
    shared_poll_release(&client->shared_poll);
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
        code = client->route.first->ops->identity(client->route.first, id, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    (void)pthread_mutex_lock(&client->mutex);
    if (client->store_id[0] == '\0') { /* never changed again: callers have a pointer to it */
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
