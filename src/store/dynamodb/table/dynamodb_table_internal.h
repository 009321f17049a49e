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

/*
 * A store that was opened for queries only, and what its answers say about the local clock: it
 * is ahead of the service's by at least `low_ms` and at most `high_ms`.
 */
struct table_session {
    struct ddb_store *store; /* owned */
    bool has_date;
    int64_t low_ms;
    int64_t high_ms;
};
enum belay_code table_session_open(struct table_session *session, const char *table_and_params,
                                   const struct dynamodb_options *options, struct belay_error *err);
void table_session_close(struct table_session *session);

struct table_answer {
    json_t *body;     /* owned; NULL: none that could be read */
    char *error_code; /* owned; NULL after success */
    char *message;    /* owned; or NULL */
};
void table_answer_release(struct table_answer *answer);

/*
 * Sends one request with a short timeout. Takes over `request`. *out need not be initialised;
 * the caller releases it.
 */
enum belay_code table_call(struct table_session *session, const char *operation, json_t *request,
                           struct table_answer *out, struct belay_error *err);
bool table_is_denied(const struct table_answer *answer);  /* the action was denied, not the credentials */
bool table_is_lacking(const struct table_answer *answer); /* this server does not know the operation */

/* Describes the table. A missing table has no status. What the credentials may not read stays unknown. */
enum belay_code table_look(struct table_session *session, const struct table_spec *spec,
                           struct belay_dynamodb_table **out_table, struct belay_error *err);
/* Its parts. */
enum belay_code table_look_keys(struct table_session *session, struct belay_dynamodb_table *table,
                                struct table_answer *out_answer, struct belay_error *err);
enum belay_code table_look_ttl(struct table_session *session, struct belay_dynamodb_table *table,
                               struct table_answer *out_answer, struct belay_error *err);
/* A table with the properties that are known without a request. NULL: no memory. */
struct belay_dynamodb_table *table_new(const struct table_session *session, const struct table_spec *spec);

/* The policy as JSON; NULL: no memory. The caller frees it. */
char *table_policy(const struct belay_dynamodb_table *table);

#endif
