/*
 * Locks in a PostgreSQL database. docs/stores/postgresql.md describes the tables, schema.sql
 * the functions that change them.
 */
#ifndef STORE_POSTGRESQL_POSTGRESQL_STORE_H
#define STORE_POSTGRESQL_POSTGRESQL_STORE_H

#include "belay/store.h"

struct diagnostics;

struct postgresql_options {
    void (*on_warning)(void *warn_context, const char *text); /* NULL: warnings are dropped */
    void *warn_context;
    int timeout_factor; /* for tests: factor for all timeouts; 0: 1 */
};

/*
 * `url` is libpq's own, postgresql:// or postgres://, with belay's parameters among its own: schema,
 * listen, max_clock_step, retain_events and retain_records. Does not connect. *out_url is the URL without a
 * password, which is shown and passed on; the caller frees it. `options` may be NULL.
 */
enum belay_code postgresql_store_open(const char *url, const struct postgresql_options *options,
                                      struct belay_store **out_store, char **out_url,
                                      struct belay_error *err);

struct belay_blob_store;

/* Blobs in the same schema; `url` and `options` as above. `out_url` may be NULL. */
enum belay_code postgresql_blob_open(const char *url, const struct postgresql_options *options,
                                     struct belay_blob_store **out_store, char **out_url,
                                     struct belay_error *err);

/* Make the schema if there is none, and what it lacks for deployment state. `grant_to` (may be NULL) is a role that may use it from now on. */
enum belay_code postgresql_schema_create(const char *url, const char *grant_to,
                                         struct belay_postgresql_schema *out_schema, struct belay_error *err);
enum belay_code postgresql_schema_describe(const char *url, struct belay_postgresql_schema *out_schema,
                                           struct belay_error *err);

/* `origin` says where the URL comes from. */
void postgresql_doctor(const char *url, const char *origin, struct diagnostics *diagnostics);

#endif
