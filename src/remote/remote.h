/* A belay server as a client's store: http://HOST:PORT, https://HOST, a list of these, or a socket on this machine. */
#ifndef REMOTE_REMOTE_H
#define REMOTE_REMOTE_H

#include <jansson.h>

#include "client/backend.h"

struct http;
struct http_client_options;

struct remote_options {
    /* What https:// and proxies need, libcurl's client: see net/http.h. */
    enum belay_code (*open_curl)(const struct http_client_options *options, struct http **out_http,
                                 struct belay_error *err);
    /*
     * Not NULL: the server is on this machine and owns a file. Then `moved` is
     * asked after every request that did not get through; true ends it with
     * BELAY_REDIRECTED: the file can be used without a server.
     */
    const char *socket;
    bool (*moved)(void *owner);
    void *owner;
    const char *auth_file; /* has the token; NULL: none */
    const char *ca_file;   /* certificates to trust, in PEM; NULL: the system's */
    /* As in belay_client_options. */
    void (*on_event)(void *context, const struct belay_event *event);
    void (*on_warning)(void *context, const char *text);
    bool (*traceparent)(void *context, const char *lock_id, bool is_held, char out[BELAY_TRACEPARENT_SIZE]);
    void *context;
};

/*
 * Sends nothing yet. BELAY_CONFIG if the URL or the file with the token is not
 * what it should be. The caller frees *out_url.
 */
enum belay_code remote_open(const char *url, const struct remote_options *options,
                            struct backend **out_remote, char **out_url, struct belay_error *err);

#endif
