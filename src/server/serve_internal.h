/* Shared by the files of `belay serve`: one run of the server. For src/server/serve*.c only. */
#ifndef SERVER_SERVE_INTERNAL_H
#define SERVER_SERVE_INTERNAL_H

#include <signal.h>

#include "server/api/holders.h"
#include "server/api/pending_acquire.h"
#include "server/core/serve.h"
#include "server/core/server.h"
#include "server/metrics/shared_db_counts.h"
#include "server/systemd.h"
#include "server/webhooks/webhooks.h"

enum { LISTEN_ALL_MAX = SERVE_LISTEN_MAX + SYSTEMD_FDS_MAX + 2, UNLIMITED_MAX = 64 };

/* One run of the server. */
struct run {
    struct server server;
    struct pending_acquires pending_acquires; /* `server` points to these */
    struct holders holders;
    struct webhooks webhooks;
    struct shared_db_counts shared_db_counts;
    const struct serve_options *options; /* borrowed */
    struct loop_watch signals;
    struct http_listen listen[LISTEN_ALL_MAX];
    size_t n_listen;
    size_t n_said; /* the first so many are printed at the start */
    struct address_range unlimited[UNLIMITED_MAX];
    char *unix_address;   /* owned */
    char *beside_address; /* owned; the socket beside the store's file; NULL: none */
    const char *tls_certificate;
    const char *tls_key;
    sigset_t old_mask;
};

/* serve_http.c: listen as the options and the configuration say. */
enum belay_code serve_open_http(struct run *run, struct belay_error *err);
/* Without tokens only this machine is served, unless --insecure is given. */
enum belay_code serve_check_exposure(const struct run *run, const struct tokens *tokens,
                                     struct belay_error *err);

#endif
