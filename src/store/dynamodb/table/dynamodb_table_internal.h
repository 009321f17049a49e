/* Shared by the creation, the description and the examination of a table. */
#ifndef STORE_DYNAMODB_TABLE_DYNAMODB_TABLE_INTERNAL_H
#define STORE_DYNAMODB_TABLE_DYNAMODB_TABLE_INTERNAL_H

#include "store/dynamodb/dynamodb_internal.h"
#include "store/dynamodb/dynamodb_store.h"

/* The properties that a table must have. All borrowed. */
struct table_spec {
    const char *table;
    const char *layout; /* NULL: it is the fence table */
    const char *keys[LAYOUT_KEYS_MAX];
    size_t n_keys;
    const char *ttl; /* NULL: none */
};
void table_spec_of_layout(const struct ddb_store *store, struct table_spec *out_spec);
/* False: no fence table is configured. */
bool table_spec_of_fence(const struct ddb_store *store, struct table_spec *out_spec);

/* A store for 'belay table' and 'belay doctor', which lock nothing: few attempts, short timeouts. */
enum belay_code table_store_open(const char *table_and_params, const struct dynamodb_options *options,
                                 struct ddb_store **out_store, struct belay_error *err);
void table_store_close(struct ddb_store *store); /* NULL does nothing */

/*
 * Sends one request with a short timeout. Takes over `request`. *out need not be initialised;
 * the caller releases it.
 */
enum belay_code table_call(struct ddb_store *store, const char *operation, json_t *request,
                           struct ddb_answer *out, struct belay_error *err);
bool table_is_denied(const struct ddb_answer *answer);  /* the action was denied, not the credentials */
bool table_is_lacking(const struct ddb_answer *answer); /* this server does not know the operation */

/* Describes the table. A missing table has no status. What the credentials may not read stays unknown. */
enum belay_code table_look(struct ddb_store *store, const struct table_spec *spec,
                           struct belay_dynamodb_table **out_table, struct belay_error *err);
/* Its parts. */
enum belay_code table_look_keys(struct ddb_store *store, struct belay_dynamodb_table *table,
                                struct ddb_answer *out_answer, struct belay_error *err);
enum belay_code table_look_ttl(struct ddb_store *store, struct belay_dynamodb_table *table,
                               struct ddb_answer *out_answer, struct belay_error *err);
/* A table with the properties that are known without a request. NULL: no memory. */
struct belay_dynamodb_table *table_new(const struct ddb_store *store, const struct table_spec *spec);

/* The policy as JSON; NULL: no memory. The caller frees it. */
char *table_policy(const struct belay_dynamodb_table *table);

#endif
