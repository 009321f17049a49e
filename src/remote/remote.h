/* A belay server as a client's backend: http://HOST:PORT, https://HOST, a list of these, or a local socket. */
#ifndef REMOTE_REMOTE_H
#define REMOTE_REMOTE_H

#include <jansson.h>

#include "client/backend.h"

struct http;
struct http_client_options;

struct remote_options {
    /* Opens an HTTP client that uses libcurl, for https:// and proxies; see http_client/http.h. */
    enum belay_code (*open_curl)(const struct http_client_options *options, struct http **out_http,
                                 struct belay_error *err);
    /*
     * Not NULL: the server is on this machine, listens at this socket, and owns a file. Then
     * moved(owner) is called after each request without an answer. If it returns true, no
     * server owns the file any more, and the request ends with BELAY_REDIRECTED.
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
 * Open a server; sends nothing yet. BELAY_CONFIG: the URL or the file with the token is wrong.
 * *out_url is the URL in full; the caller frees it.
 */
enum belay_code remote_open(const char *url, const struct remote_options *options,
                            struct backend **out_remote, char **out_url, struct belay_error *err);

/* For a check: at most so many attempts at each server, and so long for each. `remote` is from remote_open(). */
void remote_limit(struct backend *remote, int tries, int64_t answer_ms);

#endif
