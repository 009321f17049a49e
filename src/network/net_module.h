/*
 * belay-net.so: the code that needs libcurl and OpenSSL.
 * A program linked with libcurl loads some 40 libraries before main(), which is too expensive
 * for one that only acquires a lock in SQLite. So libbelay and the program do not contain this
 * code. For a store on the network they open belay-net.so, from the directory of libbelay or of
 * the program, or from the folder belay that belongs to it, and look up its one symbol:
 *     const struct net_module *net = dlsym(handle, NET_MODULE_SYMBOL);
 *     if (net->abi != NET_MODULE_ABI || strcmp(net->version, BELAY_VERSION) != 0)
 *         refuse: "belay-net.so is of version X, this is belay Y: install both from one package"
 * It is never closed: libcurl and libcrypto leave threads and exit handlers behind. libbelay.a
 * contains this code, and uses &belay_net_entry.
 * The module has its own copy of src/base, without global state, so nothing has to be exported
 * to it. Memory passes between the two (errors, records): both use the one malloc of the
 * process.
 */
#ifndef NETWORK_NET_MODULE_H
#define NETWORK_NET_MODULE_H

#include <stdint.h>

#include "belay.h"

struct belay_blob_store;
struct belay_store;
struct dynamodb_options;
struct diagnostics;
struct http;
struct http_client_options;
struct http_client_request;
struct net_ec2_found;
struct net_probe;

#define NET_MODULE_FILE "belay-net.so"
#define NET_MODULE_SYMBOL "belay_net_entry"
enum { NET_MODULE_ABI = 10 }; /* increment it whenever this struct changes */

struct net_module {
    uint32_t abi;
    const char *version;

    /* store/dynamodb/dynamodb_store.h */
    enum belay_code (*open_dynamodb)(const char *table_and_params, const struct dynamodb_options *options,
                                     struct belay_store **out_store, char **out_url, struct belay_error *err);

    /* the table itself */
    enum belay_code (*table_create)(const char *table_and_params, const struct dynamodb_options *store,
                                    const struct belay_dynamodb_table_options *options,
                                    struct belay_dynamodb_table **out_table, struct belay_error *err);
    enum belay_code (*table_describe)(const char *table_and_params, const struct dynamodb_options *store,
                                      struct belay_dynamodb_table **out_table, struct belay_error *err);
    void (*doctor_dynamodb)(const char *table_and_params, const struct dynamodb_options *store,
                            struct diagnostics *diagnostics);

    /* http_client/http.h: for src/remote, over TLS */
    enum belay_code (*http_open)(const struct http_client_options *options, struct http **out_http,
                                 struct belay_error *err);
    enum belay_code (*send_once)(const struct http_client_options *options,
                                 const struct http_client_request *request, int *out_status,
                                 struct belay_error *err);

    /* http_client/probe.h */
    enum belay_code (*probe_all)(struct net_probe *probes, size_t n, int64_t timeout_ms, const char *ca_file,
                                 struct belay_error *err);
    enum belay_code (*ec2)(const char *operation, const char *instance, int64_t timeout_ms, char *out_state,
                           struct belay_error *err);
    enum belay_code (*ec2_find)(const char *instance, const char *host, int64_t timeout_ms,
                                struct net_ec2_found *out_found, struct belay_error *err);

    /* http_client/http.h */
    enum belay_code (*post)(const struct belay_http_post *post, int *out_status, struct belay_error *err);

    /* store/s3/s3_blob.h */
    enum belay_code (*open_s3)(const char *bucket_and_params, struct belay_blob_store **out_store,
                               char **out_url, struct belay_error *err);
};

extern BELAY_API const struct net_module belay_net_entry;

#endif
