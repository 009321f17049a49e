/*
 * What the program asks of the module belay-serve.so, which it loads only for
 * that: OpenSSL and the HTTP parser cost every other command its start.
 */
#ifndef SERVER_CORE_SERVE_H
#define SERVER_CORE_SERVE_H

#include "belay.h"

enum { SERVE_LISTEN_MAX = 16, SERVE_HASH_SIZE = 65 };

enum serve_log { SERVE_LOG_AUTO, SERVE_LOG_JSON, SERVE_LOG_TEXT };

struct serve_options {
    const char *version;         /* the program's: a module of another version is refused */
    const char *config_path;     /* NULL: the one that is found; read again on SIGHUP */
    const char *store_url;       /* NULL: what the configuration says */
    const char *state_store_url; /* NULL: what the configuration says, else beside the store */
    const char *metrics;         /* as --metrics says; NULL */
    const char *listen[SERVE_LISTEN_MAX];
    size_t n_listen;       /* 0: server.listen, else 127.0.0.1:7420 */
    const char *unix_path; /* NULL: none */
    const char *tls_certificate;
    const char *tls_key;
    bool insecure; /* serve others than this machine without tokens */
    enum serve_log log;
    bool json; /* what is said at the start is one JSON object */
    bool quiet;
};

/* Serve until a signal ends it. */
typedef enum belay_code serve_run_fn(const struct serve_options *options, struct belay_error *err);
/* The hash under which the configuration knows a token, in hexadecimal digits. */
typedef void serve_hash_fn(const char *token, char out[SERVE_HASH_SIZE]);

BELAY_API serve_run_fn belay_serve_run;
BELAY_API serve_hash_fn belay_serve_hash;

#endif
