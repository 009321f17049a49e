/* Internals of src/shared_db. Nothing outside this folder includes it. */
#ifndef SHARED_DB_SHARED_DB_INTERNAL_H
#define SHARED_DB_SHARED_DB_INTERNAL_H

#include <jansson.h>
#include <stdatomic.h>

#include "belay/shared_db.h"

/* ---- app.c ---- */

bool app_state_parse(const char *text, enum belay_app_state *out_state);
/* BELAY_INVALID says what a valid name is. `name` may be NULL. */
enum belay_code app_name_check(const char *name, struct belay_error *err);
void app_database_release(struct belay_app_database *database);

/* ---- decision.c ---- */

void names_free(char **names, size_t n);
bool db_action_parse(const char *name, enum belay_db_action *out_action);

/* ---- identify.c ---- */

/* The canonical identifier: lower case, addresses in their usual form. NULL: invalid, or no memory. */
char *db_identifier(const char *text);
bool db_is_instance(const char *id); /* an EC2 instance id, not HOST:PORT */
bool app_url_is_valid(const char *url);
bool app_name_is_valid(const char *name);
/* Two rows of one database: the same identifier, or the host of one is that of the other. */
bool db_is_same(const struct belay_app_database *a, const struct belay_app_database *b);
/* "LOCK#DB#ID" (S3.1). The caller frees it; NULL: no memory. */
char *db_lock_key(const char *id);

/* ---- shared_db_json.c ---- */

json_t *db_result_json(const struct belay_db_result *result, bool whole);
enum belay_code db_result_read(const char *text, struct belay_db_result *out_result, struct belay_error *err);

/* ---- registry.c ---- */

struct app_registry {
    struct belay_app **apps; /* owned; sorted by name */
    size_t n;
    size_t cap;
    bool is_partial; /* the server hid applications that the token may not see */
};
/*
 * Into an empty registry, which is to be released in any case. All of it, or an error: a part does not tell all users
 * of a database.
 */
enum belay_code registry_read(struct belay_client *client, struct app_registry *registry,
                              struct belay_error *err);
void registry_release(struct app_registry *registry);
/* Takes ownership of `app`, unless it returns false: no memory. */
bool registry_add(struct app_registry *registry, struct belay_app *app);
/* NULL: it is not in the registry. */
const struct belay_app *registry_find_app(const struct app_registry *registry, const char *name);
/* Set `err`: the application is not in the registry. Returns BELAY_NOT_FOUND. */
enum belay_code app_say_unknown(const char *name, struct belay_error *err);
/* As belay_app_put(), for a write that does not change databases. */
enum belay_code app_put(struct belay_client *client, const struct belay_app *app, uint64_t *out_version,
                        struct belay_error *err);
enum { APP_TRIES = 16 }; /* of a change, while other clients change the application */
/* A state of an application to be recorded, as of now. */
struct app_mark {
    const char *name;
    enum belay_app_state state;
    const char *by;                                                    /* NULL: keep the name that is there */
    bool (*applies)(const struct belay_app *app, const void *context); /* NULL: in any case */
    const void *context;
};
/* *out_app (may be NULL) is the changed application, which the caller frees. It stays NULL if the mark does not apply. */
enum belay_code app_mark(struct belay_client *client, const struct app_mark *mark, struct belay_app **out_app,
                         struct belay_error *err);

/* ---- links.c ---- */

/*
 * An application is about to lose databases (after NULL: all of them). If it alone
 * links an instance to a HOST:PORT, write the link into the rows of the applications
 * that name either.
 */
enum belay_code links_keep(struct belay_client *client, const struct belay_app *before,
                           const struct belay_app *after, struct belay_error *err);

/* ---- sharing.c ---- */

enum { NAMES_MAX = 64 }; /* of one database, or of all on one host */

/* All names of one database; both lists are sorted. */
struct db_names {
    char **ids; /* owned; instance ids and HOST:PORT */
    size_t n_ids;
    char **hosts; /* owned; the hosts of `ids`, and further ones from EC2 */
    size_t n_hosts;
    bool by_host; /* every database on these hosts belongs to it */
    bool failed;
};
void db_names_release(struct db_names *names);
/* False: no memory. also_hosts: further names and addresses of the host. */
bool db_names_collect(const struct app_registry *registry, const struct belay_app_database *target,
                      bool by_host, char *const *also_hosts, size_t n_also, struct db_names *out_names);
bool db_names_used_by(const struct db_names *names, const struct belay_app *app);
bool db_names_contain(const struct db_names *all, const struct db_names *some);
/* The best row of this database: one with the instance id if there is any. NULL: none. */
const struct belay_app_database *registry_find_database(const struct app_registry *registry,
                                                        const struct belay_app_database *database);
bool db_row_is_valid(const struct belay_app_database *row);
/* BELAY_OK: the registry tells all users of the database. Else why not. */
enum belay_code sharing_check(const struct app_registry *registry, const struct db_names *names,
                              const char *but_app, struct belay_error *err);

/* ---- shared_db_settings.c ---- */

struct shared_db_settings {
    bool lock_enabled;
    int64_t lock_ttl_ms;
    int lock_attempts;
    int64_t quick_timeout_ms;
    bool cautious;           /* quick_status_rule */
    const char *gateway_url; /* borrowed; NULL: check the applications directly */
    const char *auth_file;   /* borrowed; has the token for the gateway. NULL: none */
    int64_t record_max_age_ms;
    const char *ca_file;               /* borrowed; NULL: the system's */
    const struct belay_config *config; /* borrowed; for quick_status_allow */
};
struct shared_db_settings shared_db_settings(const struct belay_config *config);
/* The duration of a setting; `otherwise` if it is not set. */
int64_t span_or(const char *text, int64_t otherwise);

/* ---- health_check.c ---- */

/* Check n applications in parallel. out_statuses has room for n; the caller frees the entries. */
enum belay_code health_check_all(const struct shared_db_settings *settings, struct belay_app *const *apps,
                                 size_t n, struct belay_app_status **out_statuses, struct belay_error *err);

/* ---- gateway.c: health checks by another belay, or by document 003's own handler ---- */

/* "BASE/status/quick?app=NAME". The caller frees it; NULL: no memory. */
char *gateway_make_url(const char *base, const char *name);
/* The Authorization header for the gateway; NULL: no token, or the connection is not private. */
enum belay_code gateway_authorization(const struct shared_db_settings *settings, char **out_header,
                                      struct belay_error *err);
struct net_probe gateway_probe(const char *url, const char *authorization);
/* Read the answer. Anything but an answer about this application is UNKNOWN. */
void gateway_take(const struct shared_db_settings *settings, const struct belay_app *app,
                  const struct net_probe *probe, struct belay_app_status *status);

/* ---- app_record.c ---- */

/* Why the status of an application is UNKNOWN. */
enum app_silence {
    SILENCE_NONE,       /* something answered or accepted a connection, or the gateway failed */
    SILENCE_UNREPORTED, /* no answer; the gateway does not say whether it could connect */
    SILENCE_UNREACHED   /* no connection */
};
/* Make it DOWN if a valid record says that it is stopped, and nothing contradicts it. */
void app_record_apply(const struct shared_db_settings *settings, const struct belay_app *app,
                      enum app_silence silence, struct belay_app_status *status);
/* The application was seen UP: clear the record that was read before. Failures are ignored. */
void app_record_clear(struct belay_client *client, const struct belay_app *seen);
/* Record the request; *out_since_unix_ms identifies it. */
enum belay_code app_record_stop_requested(struct belay_client *client, const char *name, const char *by,
                                          int64_t *out_since_unix_ms, struct belay_error *err);
/*
 * Record the request again after failing to acquire the lock, so that the holder sees
 * it. BELAY_REFUSED if another record was written since.
 */
enum belay_code app_record_renew_request(struct belay_client *client, const char *name, const char *by,
                                         int64_t *requested_unix_ms, struct belay_error *err);
/* All databases of the application are stopped. Records nothing unless that request is the last record. */
enum belay_code app_record_stopped(struct belay_client *client, const char *name, int64_t requested_unix_ms,
                                   struct belay_error *err);
void app_status_set_reason(struct belay_app_status *status, const char *reason);

/* ---- action.c: how a database is stopped and started ---- */

enum action_kind { ACTION_NONE, ACTION_COMMAND, ACTION_HTTP, ACTION_EC2 };

/* A command, a request or an EC2 call, to act or to check. Strings are borrowed from the configuration. */
struct action_step {
    enum action_kind kind;
    const char **argv; /* owned array; ends in NULL */
    size_t n_argv;
    const char *method;
    const char *url;
    const char *body;         /* NULL: none */
    const char *content_type; /* NULL: JSON */
    bool ec2_start;           /* else stop */
};

struct db_action {
    struct action_step step;
    struct action_step until; /* ACTION_NONE: no check */
    int64_t timeout_ms;
    int64_t every_ms; /* the interval of `until` */
    bool ends_host;   /* it stops every database on the host */
};

enum belay_code action_read(const struct belay_config *config, const char *kind, const char *verb,
                            struct db_action *out_action, struct belay_error *err);
void action_release(struct db_action *action);

/* The target of an action, and what cancels it. */
struct action_context {
    const char *database;
    const char *kind;
    const char *store_url;
    struct belay_lock *lock; /* NULL: none */
    const atomic_bool *lost; /* the lease was lost: cancel at once */
    struct belay_cancel *cancel;
    const struct shared_db_settings *settings;
};

/* Whether it has taken effect already. False also if the check fails. */
bool action_has_taken_effect(const struct db_action *action, const struct action_context *context);
/* Run it, and wait until it has taken effect. */
enum belay_code action_run(const struct db_action *action, const struct action_context *context,
                           struct belay_error *err);

/* ---- action_command.c, action_net.c: one step within `timeout_ms` ---- */

enum belay_code action_run_command(const struct action_step *step, const struct action_context *context,
                                   int64_t timeout_ms, struct belay_error *err);
enum belay_code action_run_http(const struct action_step *step, const struct action_context *context,
                                int64_t timeout_ms, struct belay_error *err);
enum belay_code action_run_ec2(const struct action_step *step, const struct action_context *context,
                               int64_t timeout_ms, struct belay_error *err);
/* Whether the instance is in the state that the step leads to. */
enum belay_code action_check_ec2(const struct action_step *step, const struct action_context *context,
                                 int64_t timeout_ms, bool *out_is_there, struct belay_error *err);

#endif
