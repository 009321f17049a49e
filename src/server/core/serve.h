/*
 * The interface of the module belay-serve.so. The program loads it only to serve: OpenSSL and the HTTP parser would
 * slow down the start of every other command.
 */
#ifndef SERVER_CORE_SERVE_H
#define SERVER_CORE_SERVE_H

#include "belay.h"

enum { SERVE_LISTEN_MAX = 16, SERVE_HASH_SIZE = 65 };

enum serve_log { SERVE_LOG_AUTO, SERVE_LOG_JSON, SERVE_LOG_TEXT };

struct serve_options {
    const char *version;         /* of the program: the module refuses another version */
    const char *config_path;     /* NULL: search for it; read again on SIGHUP */
    const char *store_url;       /* NULL: as configured */
    const char *state_store_url; /* NULL: as configured, else beside the store */
    const char *metrics;         /* the argument of --metrics; or NULL */
    const char *listen[SERVE_LISTEN_MAX];
    size_t n_listen;       /* 0: server.listen, else 127.0.0.1:7420 */
    const char *unix_path; /* NULL: none */
    const char *tls_certificate;
    const char *tls_key;
    bool insecure; /* serve other machines without tokens */
    enum serve_log log;
    bool json; /* print one JSON object at the start */
    bool quiet;
};

/* Serve until a signal. */
typedef enum belay_code serve_run_fn(const struct serve_options *options, struct belay_error *err);
/* The hash under which the configuration knows a token, in hexadecimal digits. */
typedef void serve_hash_fn(const char *token, char out[SERVE_HASH_SIZE]);

BELAY_API serve_run_fn belay_serve_run;
BELAY_API serve_hash_fn belay_serve_hash;

#endif
