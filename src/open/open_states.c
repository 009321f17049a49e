/* Where states are kept: by the URL, the configuration, or beside the locks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/store_url.h"
#include "base/text.h"
#include "belay/state.h"
#include "client/client.h"
#include "network/loader.h"
#include "open/open_internal.h"
#include "remote/remote_states.h"
#include "store/file/file_blob.h"

/* "file:FILE-state" beside "sqlite:FILE?..."; *out_url stays NULL if the locks are not in a file. */
static enum belay_code beside_locks(const char *store, char **out_url, struct belay_error *err)
{
    struct buf url = BUF_INIT(16384);
    char *path;
    char *real;
    enum belay_code code;

    if (store == NULL || !text_has_prefix(store, "sqlite:")) {
        return BELAY_OK;
    }
    path = store_url_place(store, "sqlite:");
    if (path == NULL) {
        return error_no_memory(err);
    }
    real = realpath(path, NULL); /* a database has one directory, even if links lead to it */
    buf_adds(&url, real == NULL ? path : real);
    buf_adds(&url, "-state");
    code = url.failed ? error_no_memory(err) : BELAY_OK;
    if (code == BELAY_OK) {
        struct buf encoded = BUF_INIT(16384);

        buf_adds(&encoded, "file:");
        store_url_add_place(&encoded, url.data);
        *out_url = buf_take(&encoded);
        code = *out_url == NULL ? error_no_memory(err) : BELAY_OK;
        buf_release(&encoded);
    }
    free(real);
    free(path);
    buf_release(&url);
    return code;
}

/* The URL of the state store. */
struct place {
    const char *url; /* borrowed */
    char *made;      /* owned; `url` points here if it was derived from that of the locks; NULL: it was not */
    bool configured; /* `url` is that of the setting state_store */
};

static enum belay_code say_unknown_place(const char *url, struct belay_error *err)
{
    static const char *const schemes[] = { "file", "s3", "postgresql", "http", "https" };
    char meant[256], shown[STORE_URL_SHOWN];

    url = store_url_show(url, shown);
    if (guess_store_url(url, schemes, sizeof schemes / sizeof schemes[0], "file", meant, sizeof meant)) {
        return error_set(err, BELAY_INVALID,
                         "'%.200s' is not a store of states that this belay knows: did you mean '%s'?", url,
                         meant);
    }
    return error_set(err, BELAY_INVALID,
                     "'%s' is not a store of states that this belay knows: use file:DIR, "
                     "s3://BUCKET/PREFIX, postgresql://HOST/DATABASE or http://HOST:PORT",
                     url);
}

/* *out_server is set only if the URL is that of a server. */
static enum belay_code open_state_url(const char *url, const struct belay_config *config,
                                      struct belay_blob_store **out_store, struct states_server **out_server,
                                      char **out_url, struct belay_error *err)
{
    if (text_has_prefix(url, "file:")) {
        return file_blob_open(url + strlen("file:"), out_store, out_url, err);
    }
    if (text_has_prefix(url, "s3://")) {
        const struct net_module *net;
        enum belay_code code = loader_net(&net, err);

        return code == BELAY_OK ? net->open_s3(url + strlen("s3://"), out_store, out_url, err) : code;
    }
    if (url_is_postgresql(url)) {
        const struct pg_module *pg;
        enum belay_code code = loader_pg(&pg, err);

        return code == BELAY_OK ? pg->open_blobs(url, NULL, out_store, out_url, err) : code;
    }
    if (url_is_server(url)) {
        struct remote_options options = client_remote_options(config);
        char *shown = NULL;
        enum belay_code code = remote_states_open(url, &options, out_store, out_server, &shown, err);

        if (out_url != NULL) {
            *out_url = shown;
        } else {
            free(shown);
        }
        return code;
    }
    return say_unknown_place(url, err);
}

static enum belay_code open_place(const struct place *place, const struct belay_config *config,
                                  struct belay_blob_store **out_store, struct states_server **out_server,
                                  char **out_url, struct belay_error *err)
{
    enum belay_code code = open_state_url(place->url, config, out_store, out_server, out_url, err);

    return code == BELAY_INVALID && place->configured ? say_configured(config, "state_store", code, err)
                                                      : code;
}

/*
 * The URL that was given or configured. With neither, the states are beside the locks: in a
 * directory beside the file, in the same PostgreSQL database, or on the same server.
 */
static enum belay_code find_place(const char *url, const char *lock_store, const struct belay_config *config,
                                  struct place *out, struct belay_error *err)
{
    const char *store = lock_store != NULL ? lock_store : belay_config_get(config, "store");
    enum belay_code code;

    *out = (struct place){ .url = url };
    if (out->url == NULL) {
        out->url = belay_config_get(config, "state_store");
        out->configured = out->url != NULL;
    }
    if (out->url == NULL && store != NULL && (url_is_server(store) || url_is_postgresql(store))) {
        out->url = store;
    }
    if (out->url != NULL) {
        return BELAY_OK;
    }
    code = beside_locks(store, &out->made, err);
    out->url = out->made;
    if (code == BELAY_OK && out->url == NULL) {
        code = error_set(err, BELAY_CONFIG,
                         "where is deployment state kept? Name it with --state-store, "
                         "BELAY_STATE_STORE or state_store: file:DIR, s3://BUCKET/PREFIX or "
                         "postgresql://HOST/DATABASE");
    }
    return code;
}

enum belay_code belay_blob_open(const char *url, const struct belay_config *config,
                                struct belay_blob_store **out_store, char **out_url, struct belay_error *err)
{
    struct states_server *server = NULL;
    struct belay_config *own = NULL;
    struct place place = { 0 };
    enum belay_code code = open_config(&config, &own, err);

    if (code == BELAY_OK) {
        code = find_place(url, NULL, config, &place, err);
    }
    if (code == BELAY_OK) {
        code = open_place(&place, config, out_store, &server, out_url, err);
    }
    free(place.made);
    belay_config_free(own);
    return code;
}

static void read_retention(const struct belay_config *config, struct belay_states_options *options)
{
    const char *count = belay_config_get(config, "state.keep_snapshots");
    const char *age = belay_config_get(config, "state.keep_for");

    if (options->keep_snapshots == 0 && count != NULL) {
        options->keep_snapshots = strtol(count, NULL, 10);
    }
    if (options->keep_for_ms == 0 && age != NULL) {
        (void)belay_parse_duration(age, &options->keep_for_ms);
    }
}

enum belay_code belay_states_open(const struct belay_states_options *options,
                                  struct belay_states **out_states, struct belay_error *err)
{
    struct belay_states_options filled = BELAY_STATES_OPTIONS_INIT;
    struct belay_blob_store *store = NULL;
    struct states_server *server = NULL;
    struct belay_config *own = NULL;
    struct place place = { 0 };
    char *url = NULL;
    enum belay_code code;

    if (options != NULL) {
        filled = *options;
    }
    code = open_config(&filled.config, &own, err);
    if (code == BELAY_OK) {
        read_retention(filled.config, &filled);
        code = find_place(filled.url, filled.lock_store_url, filled.config, &place, err);
    }
    if (code == BELAY_OK) {
        code = open_place(&place, filled.config, &store, &server, &url, err);
    }
    if (code == BELAY_OK) {
        filled.config = NULL;
        code = belay_states_open_store(store, url, &filled, out_states, err);
    }
    if (code == BELAY_OK && server != NULL) {
        states_set_server(*out_states, server);
    }
    free(place.made);
    free(url);
    belay_config_free(own);
    return code;
}
