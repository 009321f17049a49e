/* What the files of src/shared_db share. Nothing outside this folder includes it. */
#ifndef SHARED_DB_SHARED_DB_INTERNAL_H
#define SHARED_DB_SHARED_DB_INTERNAL_H

#include <jansson.h>
#include <stdatomic.h>

#include "belay/shared_db.h"

/* ---- app.c ---- */

bool app_state_parse(const char *text, enum belay_app_state *out_state);

/* ---- identify.c: what names a database, and what a URL is ---- */

/* The identifier as it is compared: in lower case, addresses in their usual form. NULL: it is neither. */
char *db_identifier(const char *text);
bool db_is_instance(const char *id); /* an EC2 instance id, not HOST:PORT */
bool app_url_is_valid(const char *url);
bool app_name_is_valid(const char *name);
/* One database under two names: the same identifier, or one's host is the other's. */
bool db_is_same(const struct belay_app_database *a, const struct belay_app_database *b);
/* "LOCK#DB#ID" (S3.1). The caller frees it; NULL: no memory. */
char *db_lock_key(const char *id);

/* ---- json.c ---- */

json_t *db_result_json(const struct belay_db_result *result, bool whole);
enum belay_code db_result_read(const char *text, struct belay_db_result *out_result, struct belay_error *err);
json_t *json_text_or_null(const char *text); /* null for NULL */

/* ---- registry.c ---- */

struct app_registry {
    struct belay_app **apps; /* owned; in the order of their names */
    size_t n;
    size_t cap;
    bool is_partial; /* a server has left out applications that the token may not see */
};
/* All of it, or an error: from a part of it nobody can tell who uses a database. */
enum belay_code registry_read(struct belay_client *client, struct app_registry *out_registry,
                              struct belay_error *err);
/* As much of it as may be seen. */
enum belay_code registry_read_visible(struct belay_client *client, struct app_registry *out_registry,
                                      struct belay_error *err);
void registry_release(struct app_registry *registry);
/* As belay_app_put(), for a write that changes no database. */
enum belay_code app_put(struct belay_client *client, const struct belay_app *app, uint64_t *out_version,
                        struct belay_error *err);

/* ---- links.c ---- */

/*
 * An application is about to lose databases (after NULL: all of them). What it alone
 * says, that an instance and a HOST:PORT are one database, is written into the rows of
 * the others that name either.
 */
enum belay_code links_keep(struct belay_client *client, const struct belay_app *before,
                           const struct belay_app *after, struct belay_error *err);

/* ---- sharing.c ---- */

enum { NAMES_MAX = 64 }; /* of one database, or of all on one host */

/* All names of one database, each list in its order. */
struct db_names {
    char **ids; /* owned; instance ids and HOST:PORT */
    size_t n_ids;
    char **hosts; /* owned; of these, and those that EC2 knows */
    size_t n_hosts;
    bool by_host; /* everything on these hosts is one */
    bool failed;
};
void db_names_release(struct db_names *names);
/* False: no memory. also_hosts: further names and addresses of the host. */
bool db_names_collect(const struct app_registry *registry, const struct belay_app_database *target,
                      bool by_host, char *const *also_hosts, size_t n_also, struct db_names *out_names);
bool db_names_used_by(const struct db_names *names, const struct belay_app *app);
bool db_names_contain(const struct db_names *all, const struct db_names *some);
/* The row that names this database best: with the instance id if any application knows it. NULL: none. */
const struct belay_app_database *registry_find_database(const struct app_registry *registry,
                                                        const struct belay_app_database *database);
bool db_row_is_valid(const struct belay_app_database *row);
/* BELAY_OK: it can be told from the registry who uses it. Else why not. */
enum belay_code sharing_check(const struct app_registry *registry, const struct db_names *names,
                              const char *but_app, struct belay_error *err);

/* ---- settings.c ---- */

struct shared_db_settings {
    bool lock_enabled;
    int64_t lock_ttl_ms;
    int lock_attempts;
    int64_t quick_timeout_ms;
    bool cautious;           /* quick_status_rule */
    const char *gateway_url; /* borrowed; NULL: ask the applications themselves */
    const char *auth_file;   /* borrowed; has the token for the gateway. NULL: there is none */
    int64_t record_max_age_ms;
    const char *ca_file;               /* borrowed; NULL: the system's */
    const struct belay_config *config; /* borrowed; for quick_status_allow */
};
struct shared_db_settings shared_db_settings(const struct belay_config *config);

/* ---- quick.c ---- */

/* Ask so many applications side by side. out_statuses has room for n; entries are the caller's. */
enum belay_code health_check_all(const struct shared_db_settings *settings, struct belay_app *const *apps,
                                 size_t n, struct belay_app_status **out_statuses, struct belay_error *err);

/* ---- gateway.c: asking another belay, or document 003's own handler ---- */

/* "BASE/status/quick?app=NAME". The caller frees it; NULL: no memory. */
char *gateway_make_url(const char *base, const char *name);
/* The Authorization header for the gateway, or NULL: it has no token, or the connection could be listened to. */
enum belay_code gateway_authorization(const struct shared_db_settings *settings, char **out_header,
                                      struct belay_error *err);
/* How to ask it. */
struct net_probe gateway_probe(const char *url, const char *authorization);
/* What the answer says. Anything that is not an answer about this application is UNKNOWN. */
void gateway_take(const struct shared_db_settings *settings, const struct belay_app *app,
                  const struct net_probe *probe, struct belay_app_status *status);

/* ---- record.c: what is recorded of an application ---- */

/* What is known of an application whose status is UNKNOWN. */
enum app_silence {
    SILENCE_NONE,       /* something answered, accepted a connection, or the answer is not about it */
    SILENCE_UNREPORTED, /* it did not answer; whether a connection was made is not known */
    SILENCE_UNREACHED   /* no connection could be made */
};
/* Make it DOWN if it is recorded as stopped, the record still counts, and nothing speaks against it. */
void app_record_apply(const struct shared_db_settings *settings, const struct belay_app *app,
                      enum app_silence silence, struct belay_app_status *status);
/* It was seen UP: the record that was read before is not true any more. Failure is no error here. */
void app_record_clear(struct belay_client *client, const struct belay_app *seen);
/* Record the request; its time identifies it. */
enum belay_code app_record_stop_requested(struct belay_client *client, const char *name, const char *by,
                                          int64_t *out_since_unix_ms, struct belay_error *err);
/*
 * The request stands although the lock was not to be had: record it anew, for who holds the lock to see.
 * BELAY_REFUSED if another record has come in between.
 */
enum belay_code app_record_renew_request(struct belay_client *client, const char *name, const char *by,
                                         int64_t *requested_unix_ms, struct belay_error *err);
/* All databases of the application are stopped. Nothing is recorded if that request is not the last record. */
enum belay_code app_record_stopped(struct belay_client *client, const char *name, int64_t requested_unix_ms,
                                   struct belay_error *err);
void app_status_set_reason(struct belay_app_status *status, const char *reason);

/* ---- action.c: what stopping and starting means ---- */

enum action_kind { ACTION_NONE, ACTION_COMMAND, ACTION_HTTP, ACTION_EC2 };

/* One thing to do or to ask. The texts are borrowed from the configuration. */
struct action_step {
    enum action_kind kind;
    const char **argv; /* owned array; ends in NULL */
    size_t n_argv;
    const char *method;
    const char *url;
    const char *body;         /* NULL: none */
    const char *content_type; /* NULL: that of JSON */
    bool ec2_start;           /* else stop */
};

struct db_action {
    struct action_step step;
    struct action_step until; /* ACTION_NONE: done when the step is */
    int64_t timeout_ms;
    int64_t every_ms; /* how often `until` is asked */
    bool ends_host;   /* it ends every database on the host, and not this one alone */
};

enum belay_code action_read(const struct belay_config *config, const char *kind, const char *verb,
                            struct db_action *out_action, struct belay_error *err);
void action_release(struct db_action *action);

/* Where and under what it is done. */
struct action_context {
    const char *database;
    const char *kind;
    const char *store_url;
    struct belay_lock *lock; /* NULL: there is none */
    const atomic_bool *lost; /* the lease: then it is ended at once */
    struct belay_cancel *cancel;
    const struct shared_db_settings *settings;
};

/* Whether it has taken effect already. False also if that cannot be told. */
bool action_has_taken_effect(const struct db_action *action, const struct action_context *context);
/* Do it, and wait until it has taken effect. BELAY_LOST, BELAY_CANCELLED, or what went wrong. */
enum belay_code action_run(const struct db_action *action, const struct action_context *context,
                           struct belay_error *err);

/* ---- action_command.c, action_net.c: one step within `timeout_ms` ---- */

enum belay_code action_run_command(const struct action_step *step, const struct action_context *context,
                                   int64_t timeout_ms, struct belay_error *err);
enum belay_code action_run_http(const struct action_step *step, const struct action_context *context,
                                int64_t timeout_ms, struct belay_error *err);
enum belay_code action_run_ec2(const struct action_step *step, const struct action_context *context,
                               int64_t timeout_ms, struct belay_error *err);
/* Whether the instance is where the step would bring it; an error if it cannot be told. */
enum belay_code action_check_ec2(const struct action_step *step, const struct action_context *context,
                                 int64_t timeout_ms, bool *out_is_there, struct belay_error *err);

#endif
