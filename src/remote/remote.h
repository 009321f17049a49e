/* A belay server as a client's store: http://HOST:PORT and https://HOST. Part of belay-net.so. */
#ifndef REMOTE_REMOTE_H
#define REMOTE_REMOTE_H

#include "client/remote.h"

struct remote_options {
    const char *auth_file; /* has the token; NULL: none */
    const char *ca_file;   /* certificates to trust, in PEM; NULL: the system's */
    void (*on_warning)(void *context, const char *text);
    void *context;
};

/*
 * Sends nothing yet. BELAY_CONFIG if the URL or the file with the token is not
 * what it should be. The caller frees *out_url.
 */
enum belay_code remote_open(const char *url, const struct remote_options *options,
                            struct client_remote **out_remote, char **out_url, struct belay_error *err);

#endif
