/*
 * Locks in a DynamoDB table, for a whole fleet, and together with programs that already keep
 * locks in it. docs/stores/dynamodb.md describes the items.
 */
#ifndef STORE_DYNAMODB_DYNAMODB_STORE_H
#define STORE_DYNAMODB_DYNAMODB_STORE_H

#include "belay/store.h"

struct diagnostics;

/* Replaced by tests. NULL: the real thing. */
struct dynamodb_hooks {
    int64_t (*boot_ms)(void *context);
    int64_t (*unix_ms)(void *context);
    /* The service's clock in place of the answers' Date, exact to the millisecond. */
    int64_t (*date_ms)(void *context);
    /* A request was sent or repeated. Called from any thread. */
    void (*on_request)(void *context, const char *operation);
    void *context;
    int timeout_factor; /* factor for all timeouts; 0: 1 */
};

struct dynamodb_options {
    /* The value of a setting, such as "layouts.NAME.key", or NULL. NULL: there are no settings. */
    const char *(*setting)(const void *settings, const char *name);
    const void *settings;
    void (*on_warning)(void *warn_context, const char *text); /* may be NULL */
    void *warn_context;
    const struct dynamodb_hooks *hooks; /* borrowed; NULL: none */
};

/*
 * `table_and_params` is what follows "dynamodb:": TABLE?NAME=VALUE&NAME=VALUE (or
 * with ','). Sends nothing. *out_url is the same in full; the caller frees it.
 * `options` may be NULL.
 */
enum belay_code dynamodb_store_open(const char *table_and_params, const struct dynamodb_options *options,
                                    struct belay_store **out_store, char **out_url, struct belay_error *err);

/* `store` and `table_and_params` replace options->store_url and options->config. */
enum belay_code dynamodb_table_create(const char *table_and_params, const struct dynamodb_options *store,
                                      const struct belay_dynamodb_table_options *options,
                                      struct belay_dynamodb_table **out_table, struct belay_error *err);
enum belay_code dynamodb_table_describe(const char *table_and_params, const struct dynamodb_options *options,
                                        struct belay_dynamodb_table **out_table, struct belay_error *err);

void dynamodb_doctor(const char *table_and_params, const struct dynamodb_options *store,
                     struct diagnostics *diagnostics);

#endif
