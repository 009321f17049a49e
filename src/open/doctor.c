/* belay_doctor(): checks of the configuration and the store. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/diagnostics.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/secret.h"
#include "base/store_url.h"
#include "base/text.h"
#include "belay/blob.h"
#include "client/client.h"
#include "network/loader.h"
#include "open/open_internal.h"
#include "remote/remote.h"
#include "store/sqlite/sqlite_store.h"

enum { SERVER_ANSWER_MS = 5000 };
enum { SECRET_SIZE = 2049 }; /* of a URL or a key, as in src/server/webhooks */

/* ---- notifications: formats and URLs; a server checks the rest when it starts (src/server/notify) ---- */

static const char *notify_get(const struct belay_config *config, size_t i, const char *name)
{
    char dotted[48];

    (void)snprintf(dotted, sizeof dotted, "notify.%zu.%s", i, name);
    return belay_config_get(config, dotted);
}

static bool has_notify(const struct belay_config *config, size_t i)
{
    static const char *const names[] = {
        "format", "url", "url_file", "url_env", "name", "events.0", "keys.0"
    };
    bool has = false;

    for (size_t n = 0; !has && n < sizeof names / sizeof names[0]; n++) {
        has = notify_get(config, i, names[n]) != NULL;
    }
    return has;
}

/* False: a file with a secret cannot be read, and there is a warning. The server may run as another user. */
static bool check_notify_files(const struct belay_config *config, size_t i, struct diagnostics *diagnostics)
{
    static const char *const names[] = { "url_file", "secret_file" };
    struct belay_error err = BELAY_ERROR_INIT;
    char text[SECRET_SIZE];
    bool ok = true;

    for (size_t n = 0; ok && n < sizeof names / sizeof names[0]; n++) {
        const char *path = notify_get(config, i, names[n]);

        ok = path == NULL || secret_read(path, text, sizeof text, &err) == BELAY_OK;
    }
    if (!ok) {
        diagnostics_warn(diagnostics, "notify", "the server must be able to read it, or it does not start",
                         "notify.%zu: %s", i, err.text);
    }
    belay_error_release(&err);
    return ok;
}

static void check_notify_url(const char *format, const char *url, size_t i, struct diagnostics *diagnostics)
{
    const char *host = strstr(url, "://"); /* src/config has checked that it is there */
    size_t len = host == NULL ? 0 : strcspn(host + 3, "/?#");

    if (len == 0 || memchr(host + 3, '@', len) != NULL) {
        diagnostics_fail(diagnostics, BELAY_CONFIG, "notify", "write it as https://HOST/PATH",
                         "notify.%zu.url has no host, or a user in it", i);
    } else {
        diagnostics_ok(diagnostics, "notify", "%s to %.*s", format, (int)len, host + 3);
    }
}

static void check_notify_entry(const struct belay_config *config, size_t i, struct diagnostics *diagnostics)
{
    const char *format = notify_get(config, i, "format");
    const char *url = notify_get(config, i, "url");
    const char *file = notify_get(config, i, "url_file");
    const char *env = notify_get(config, i, "url_env");

    if (format == NULL) {
        diagnostics_fail(diagnostics, BELAY_CONFIG, "notify", "write slack, teams or json",
                         "notify.%zu has no format", i);
    } else if ((url != NULL) + (file != NULL) + (env != NULL) != 1) {
        diagnostics_fail(diagnostics, BELAY_CONFIG, "notify", "give one of url, url_file and url_env",
                         "notify.%zu has no URL, or several", i);
    } else if (!check_notify_files(config, i, diagnostics)) {
        return;
    } else if (url != NULL) {
        check_notify_url(format, url, i, diagnostics);
    } else if (env != NULL && getenv(env) == NULL) {
        diagnostics_warn(diagnostics, "notify", "set it for the server, which does not start without it",
                         "the variable '%.60s' with the URL of notify.%zu is not set here", env, i);
    } else {
        diagnostics_ok(diagnostics, "notify", "%s to the URL in %s", format, file != NULL ? file : env);
    }
}

static void check_notify(const struct belay_config *config, struct diagnostics *diagnostics)
{
    for (size_t i = 0; has_notify(config, i); i++) {
        check_notify_entry(config, i, diagnostics);
    }
}

/* ---- configuration and stores ---- */

static void check_config(const struct belay_doctor_options *options, struct diagnostics *diagnostics,
                         struct belay_config **out_config)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const char *enabled;

    if (belay_config_load(options->config_path, out_config, &err) != BELAY_OK) {
        diagnostics_error(diagnostics, "configuration", "mend the file, or name another with --config FILE",
                          &err);
        belay_error_release(&err);
        return;
    }
    if (belay_config_path(*out_config) != NULL) {
        diagnostics_ok(diagnostics, "configuration", "%s", belay_config_path(*out_config));
    } else {
        diagnostics_ok(diagnostics, "configuration",
                       "there is no file; the defaults and the environment count");
    }
    check_notify(*out_config, diagnostics);
    enabled = belay_config_get(*out_config, "locking_enabled");
    if (enabled != NULL && strcmp(enabled, "true") != 0) {
        diagnostics_warn(diagnostics, "locking", "take that away to have locks again",
                         "is switched off (%s): every lock is granted and protects nothing",
                         setting_origin(*out_config, "locking_enabled"));
    }
}

static void check_dynamodb(const char *table, const struct belay_config *config,
                           struct diagnostics *diagnostics)
{
    struct dynamodb_options options = module_options(config);
    struct belay_error err = BELAY_ERROR_INIT;
    const struct net_module *net;

    if (loader_net(&net, &err) != BELAY_OK) {
        diagnostics_error(diagnostics, "network module", "install the whole package of belay", &err);
    } else {
        net->doctor_dynamodb(table, &options, diagnostics);
    }
    belay_error_release(&err);
}

/* The module reports the store itself: the URL may contain a password. */
static void check_postgresql(const char *url, const char *origin, struct diagnostics *diagnostics)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const struct pg_module *pg;

    if (loader_pg(&pg, &err) != BELAY_OK) {
        diagnostics_error(diagnostics, "PostgreSQL module", NULL, &err);
    } else {
        pg->doctor(url, origin, diagnostics);
    }
    belay_error_release(&err);
}

static void on_server_warning(void *context, const char *text)
{
    diagnostics_warn(context, "server", NULL, "%s", text);
}

/* A server that hangs must not take the time of three long attempts for each check. Nothing was sent yet. */
static enum belay_code open_briefly(const struct belay_client_options *options, int tries,
                                    struct belay_client **out_client, struct belay_error *err)
{
    enum belay_code code = belay_client_open(options, out_client, err);

    /* With locking switched off, a client that cannot open its server has a store of its own. */
    if (code == BELAY_OK && (*out_client)->route.first != &(*out_client)->local.base) {
        remote_limit((*out_client)->route.first, tries, SERVER_ANSWER_MS);
    }
    return code;
}

/* The id of its store, once the server has also read from it: it knows the id even if the store is gone. */
static enum belay_code ask_server(struct belay_client *client, const char **out_id, struct belay_error *err)
{
    struct belay_info *info = NULL;
    enum belay_code code = belay_get(client, "belay-doctor", &info, err);

    belay_info_free(info);
    if (code == BELAY_NOT_FOUND || code == BELAY_NOT_PERMITTED) { /* the token may be for other keys */
        belay_error_release(err);
        code = BELAY_OK;
    }
    return code == BELAY_OK ? belay_client_store_id(client, out_id, err) : code;
}

/* Several servers, all of which must have one store: that of the first that answers. */
struct server_list {
    const struct belay_config *config;
    struct diagnostics *diagnostics;
    int n;
    int n_missing;
    char *id; /* owned; NULL: no server has answered yet */
};

/* A client uses the first that answers, so one that is missing would not be noticed. */
static void check_listed_server(struct server_list *list, const char *url)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client = NULL;
    int64_t began_ms = clock_boot_ms();
    const char *id = NULL;
    enum belay_code code;

    options.config = list->config;
    options.store_url = url;
    code = open_briefly(&options, 1, &client, &err);
    if (code == BELAY_OK) {
        code = ask_server(client, &id, &err);
    }
    list->n++;
    if (code == BELAY_UNREACHABLE) {
        list->n_missing++;
        diagnostics_warn(list->diagnostics, "server", "correct this, or remove the server from the list",
                         "%.200s cannot be used: %s", url, err.text);
    } else if (code != BELAY_OK) {
        diagnostics_fail(list->diagnostics, code, "server", NULL, "%.200s cannot be used: %s", url, err.text);
    } else if (list->id != NULL && strcmp(list->id, id) != 0) {
        diagnostics_fail(list->diagnostics, BELAY_CONFIG, "server",
                         "give all servers of the list the same store", "%.200s has another store, %s", url,
                         id);
    } else {
        diagnostics_ok(list->diagnostics, "server", "%.200s answers within %lld ms; its store is %s", url,
                       (long long)(clock_boot_ms() - began_ms), id);
        if (list->id == NULL) {
            list->id = strdup(id);
        }
    }
    belay_client_close(client);
    belay_error_release(&err);
}

static void check_server_list(const char *urls, const struct belay_config *config,
                              struct diagnostics *diagnostics)
{
    struct server_list list = { .config = config, .diagnostics = diagnostics };
    char *copy = strdup(urls);
    char *rest = NULL;

    for (char *url = copy == NULL ? NULL : strtok_r(copy, ",", &rest); url != NULL;
         url = strtok_r(NULL, ",", &rest)) {
        check_listed_server(&list, url);
    }
    if (list.n == list.n_missing) {
        diagnostics_fail(diagnostics, BELAY_UNREACHABLE, "server", NULL, "none of the %d servers can be used",
                         list.n);
    }
    free(list.id);
    free(copy);
}

/* Whether it answers, is a belay server, accepts our token, and can read its store. */
static void check_remote(const char *url, const struct belay_config *config, struct diagnostics *diagnostics)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client = NULL;
    bool is_list = strchr(url, ',') != NULL;
    int64_t began_ms = clock_boot_ms();
    const char *id;

    options.config = config;
    options.store_url = url;
    options.on_warning = on_server_warning;
    options.context = diagnostics;
    if (open_briefly(&options, 2, &client, &err) != BELAY_OK ||
        (!is_list && ask_server(client, &id, &err) != BELAY_OK)) {
        diagnostics_error(diagnostics, "server", NULL, &err);
    } else if (is_list) {
        check_server_list(url, config, diagnostics);
    } else {
        diagnostics_ok(diagnostics, "server", "answers within %lld ms; its store is %s",
                       (long long)(clock_boot_ms() - began_ms), id);
    }
    belay_client_close(client);
    belay_error_release(&err);
}

static void check_store_url(const struct belay_doctor_options *options, const struct belay_config *config,
                            struct diagnostics *diagnostics)
{
    const char *url = options->store_url;
    const char *origin = options->store_origin == NULL ? "the caller" : options->store_origin;
    char shown[STORE_URL_SHOWN];
    bool is_known;

    if (url == NULL && config != NULL) {
        url = belay_config_get(config, "store");
        origin = setting_origin(config, "store");
    }
    if (url == NULL) {
        if (config != NULL) {
            diagnostics_fail(diagnostics, BELAY_CONFIG, "store", "set --store or BELAY_STORE to sqlite:PATH",
                             "there is no home directory to keep locks in");
        }
        return;
    }
    if (url_is_postgresql(url)) {
        check_postgresql(url, origin, diagnostics);
        return;
    }
    is_known = text_has_prefix(url, "sqlite:") || text_has_prefix(url, "dynamodb:") || url_is_server(url);
    (void)store_url_show(url, shown);
    diagnostics_ok(diagnostics, "store", "%s (%s)",
                   text_has_prefix(url, "http") && strchr(url, '@') != NULL ? "with a password"
                   : is_known                                               ? url
                                                                            : shown,
                   origin);
    if (text_has_prefix(url, "sqlite:")) {
        sqlite_store_doctor(url + strlen("sqlite:"), NULL, diagnostics);
    } else if (text_has_prefix(url, "dynamodb:")) {
        check_dynamodb(url + strlen("dynamodb:"), config, diagnostics);
    } else if (url_is_server(url)) {
        check_remote(url, config, diagnostics);
    } else {
        diagnostics_fail(diagnostics, BELAY_CONFIG, "store",
                         "use sqlite:PATH, postgresql://HOST/DATABASE, dynamodb:TABLE or http://HOST:PORT",
                         "'%s' is not a store that this belay knows", shown);
    }
}

/* ---- the store of deployment state ---- */

static bool stop_at_first(void *context, const struct belay_blob_entry *entry)
{
    (void)context;
    (void)entry;
    return false;
}

/* The rights that a reader needs: to list, and to learn that a state does not exist. */
static enum belay_code read_state_store(struct belay_blob_store *store, struct belay_error *err)
{
    struct belay_blob blob = { 0 };
    enum belay_code code = store->ops->list(store, "", true, stop_at_first, NULL, err);

    if (code == BELAY_OK) {
        code = store->ops->get(store, "belay-doctor", &blob, err);
        belay_blob_release(&blob);
    }
    if (code == BELAY_NOT_FOUND) {
        belay_error_release(err);
        code = BELAY_OK;
    }
    return code;
}

/* A directory tells whether it may be written; the other stores only if one writes. */
static void check_state_folder(const char *url, struct diagnostics *diagnostics)
{
    char *path = store_url_place(url, "file:");
    bool exists = path != NULL && access(path, F_OK) == 0;
    const char *directory = path;
    char parent[PATH_MAX];

    if (path == NULL) {
        diagnostics_fail(diagnostics, BELAY_NO_MEMORY, "state store", NULL, "out of memory");
        return;
    }
    if (!exists) {
        existing_parent(path, parent);
        directory = parent;
    }
    if (access(directory, W_OK | X_OK) != 0) {
        diagnostics_fail(diagnostics, BELAY_NOT_PERMITTED, "state store", "let this user write to it",
                         "the directory %.200s cannot be written: %s", directory, strerror(errno));
    } else {
        diagnostics_ok(diagnostics, "state store",
                       exists ? "can be read, and its directory written"
                              : "does not exist yet: the first save creates it");
    }
    free(path);
}

static void check_state_store(const struct belay_doctor_options *options, const struct belay_config *config,
                              struct diagnostics *diagnostics)
{
    const char *configured = config == NULL ? NULL : belay_config_get(config, "state_store");
    const char *url = options->state_store_url != NULL ? options->state_store_url : configured;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_blob_store *store = NULL;
    char *shown = NULL;
    enum belay_code code;

    if (url == NULL) {
        return;
    }
    code = belay_blob_open(url, config, &store, &shown, &err);
    if (code == BELAY_OK) {
        diagnostics_ok(diagnostics, "state store", "%s (%s)", shown,
                       options->state_store_url != NULL ? "option --state-store"
                                                        : setting_origin(config, "state_store"));
        code = url_is_server(url) ? BELAY_OK : read_state_store(store, &err);
    }
    if (code == BELAY_OK && url_is_server(url)) {
        check_remote(url, config, diagnostics);
    } else if (code != BELAY_OK) {
        diagnostics_error(diagnostics, "state store", NULL, &err);
    } else if (text_has_prefix(url, "file:")) {
        check_state_folder(shown, diagnostics);
    } else {
        diagnostics_ok(diagnostics, "state store", "can be listed and read");
    }
    if (store != NULL) {
        store->ops->close(store);
    }
    free(shown);
    belay_error_release(&err);
}

enum belay_code belay_doctor(const struct belay_doctor_options *options, belay_finding_fn fn, void *context,
                             struct belay_error *err)
{
    static const struct belay_doctor_options defaults = BELAY_DOCTOR_OPTIONS_INIT;
    struct diagnostics diagnostics = { .fn = fn, .context = context };
    struct belay_config *config = NULL;

    options = options == NULL ? &defaults : options;
    check_config(options, &diagnostics, &config);
    check_store_url(options, config, &diagnostics);
    check_state_store(options, config, &diagnostics);
    belay_config_free(config);
    if (diagnostics.n_failed == 0) {
        return BELAY_OK;
    }
    return error_set(err, diagnostics.worst, "%zu of %zu checks failed", diagnostics.n_failed, diagnostics.n);
}
