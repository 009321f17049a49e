/*
 * Shared databases: stop a database only when no application uses it.
 *
 * A registry, kept in the lock store, lists the applications, the databases that each
 * uses, and the URLs of its health checks. To stop a database belay acquires the
 * database's lock, reads the registry, checks the other applications that use the
 * database, and stops it only if all of them are DOWN. If anything is in doubt, the
 * database keeps running: an application that does not answer, a registry that cannot
 * be read completely, a lost lease.
 *
 *     struct belay_db_options options = BELAY_DB_OPTIONS_INIT;
 *     struct belay_db_results *results;
 *
 *     options.app = "shop";
 *     if (belay_db_stop(client, &options, &results, &err) == BELAY_OK) {
 *         for (size_t i = 0; i < results->n; i++) ...
 *         belay_db_results_free(results);
 *     }
 *
 * The configuration says how a kind of database is stopped and started (`databases:`).
 * docs/shared-databases.md has the decision table. The conventions of belay.h apply.
 */
#ifndef BELAY_SHARED_DB_H
#define BELAY_SHARED_DB_H

#include "belay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits on arguments; a value beyond its limit is BELAY_INVALID. */
enum {
    BELAY_APP_NAME_MAX = 128, /* letters, digits, and '.', '_', '-', '@', ':', '+' after the first */
    BELAY_APP_URLS_MAX = 16,
    BELAY_APP_URL_MAX = 1024, /* bytes */
    BELAY_APP_DATABASES_MAX = 16,
    BELAY_APP_LABELS_MAX = 32,
    BELAY_KIND_MAX = 64,
    BELAY_DATABASE_MAX = 255 /* bytes of an identifier */
};

/* ---- the registry ------------------------------------------------------- */

/*
 * The recorded state of an application. STOPPED: an operator recorded it, or the
 * application's databases were stopped on its behalf. STOP_REQUESTED: belay_db_stop() was
 * called for it and left a database running. With either state an application that cannot
 * be reached at all counts as DOWN, until it is seen UP or the record is older than
 * `controller.stopped_record_max_age`.
 */
enum belay_app_state { BELAY_APP_RUNNING, BELAY_APP_STOPPED, BELAY_APP_STOP_REQUESTED };
/* "running", "stopped", "stop_requested" */
BELAY_API const char *belay_app_state_name(enum belay_app_state state);

struct belay_app_database {
    char *kind; /* "postgres", "neo4j", or a kind from `databases` in the configuration */
    char *id;   /* an EC2 instance id, or HOST:PORT */
    char *host; /* with an instance id: the HOST:PORT that other applications may use; NULL: none */
};

struct belay_app {
    char *name;
    char **urls;
    size_t n_urls;
    struct belay_app_database *databases;
    size_t n_databases;
    struct belay_meta *labels; /* owned, as are the strings in it */
    size_t n_labels;
    enum belay_app_state state;
    int64_t since_unix_ms; /* when the state was recorded; 0: never recorded */
    char *by;              /* the user or client that recorded it; NULL: never recorded */
    uint64_t version;      /* changes with each write; 0: not in the registry */
    /*
     * Registered through a server with a token that is not an admin's: the health check
     * connects only to public addresses and to those in `controller.quick_status_allow`. The
     * server sets this; an admin or a local command clears it by replacing the application.
     */
    bool public_only;
};
BELAY_API void belay_app_free(struct belay_app *app);

/*
 * Check an application before it is registered. BELAY_INVALID says what is wrong and what is
 * valid: the name or the URL is missing or malformed, a kind is not known, an identifier is
 * neither an instance id nor HOST:PORT. With `config` NULL every kind is accepted.
 */
BELAY_API enum belay_code belay_app_check(const struct belay_config *config, const struct belay_app *app,
                                          struct belay_error *err);

/* Add a database, a URL or a label. `text` is "KIND=ID" or "KIND=ID@HOST:PORT". The strings are copied. */
BELAY_API enum belay_code belay_app_add_database(struct belay_app *app, const char *text,
                                                 struct belay_error *err);
BELAY_API enum belay_code belay_app_add_url(struct belay_app *app, const char *url, struct belay_error *err);
BELAY_API enum belay_code belay_app_add_label(struct belay_app *app, const char *name, const char *value,
                                              struct belay_error *err);

/* The application as one line of JSON, as in the HTTP API. The caller frees it; NULL: no memory. */
BELAY_API char *belay_app_to_json(const struct belay_app *app);
/* Parse that JSON. BELAY_INVALID: it is malformed or has an unknown name. The caller frees *out_app. */
BELAY_API enum belay_code belay_app_from_json(const char *text, size_t len, struct belay_app **out_app,
                                              struct belay_error *err);

/* Read one application. BELAY_NOT_FOUND: it is not in the registry. The caller frees *out_app. */
BELAY_API enum belay_code belay_app_get(struct belay_client *client, const char *name,
                                        struct belay_app **out_app, struct belay_error *err);

/* Return false to stop. `app` is borrowed. */
typedef bool (*belay_app_fn)(void *context, const struct belay_app *app);

/* List all applications in the order of their names. Fails if any of them cannot be read. */
BELAY_API enum belay_code belay_app_list(struct belay_client *client, belay_app_fn fn, void *context,
                                         struct belay_error *err);

/*
 * Write an application if its version in the registry is app->version (0: it is not in the
 * registry); otherwise BELAY_REFUSED. out_version may be NULL.
 */
BELAY_API enum belay_code belay_app_put(struct belay_client *client, const struct belay_app *app,
                                        uint64_t *out_version, struct belay_error *err);

/*
 * Register an application. If an application of that name exists, `replace` replaces it;
 * without `replace` the result is BELAY_INVALID. Replacing keeps the recorded state unless the
 * URLs change. out_is_new may be NULL.
 */
BELAY_API enum belay_code belay_app_register(struct belay_client *client, const struct belay_app *app,
                                             bool replace, bool *out_is_new, struct belay_error *err);

/* Remove an application if it has `version` (0: any). BELAY_NOT_FOUND: it is not in the registry. */
BELAY_API enum belay_code belay_app_remove(struct belay_client *client, const char *name, uint64_t version,
                                           struct belay_error *err);

/* Record a state. `by` names the person or program that does so; NULL: user@host. out_app may be NULL. */
BELAY_API enum belay_code belay_app_set_state(struct belay_client *client, const char *name,
                                              enum belay_app_state state, const char *by,
                                              struct belay_app **out_app, struct belay_error *err);

/*
 * Read applications from YAML: a list `apps`, each with name, urls, databases, labels and
 * state. The whole text is checked before `fn` is called for the first application.
 * BELAY_BAD_CONTENT names the line of an error in the file `path`.
 */
BELAY_API enum belay_code belay_apps_from_yaml(const struct belay_config *config, const char *path,
                                               const char *text, size_t len, belay_app_fn fn, void *context,
                                               struct belay_error *err);
/* One entry of that list, ending in a newline. The caller frees it; NULL: no memory. */
BELAY_API char *belay_app_to_yaml(const struct belay_app *app);

/* ---- health checks (S3.4) ------------------------------------------------- */

enum belay_health { BELAY_HEALTH_UNKNOWN, BELAY_HEALTH_DOWN, BELAY_HEALTH_UP };
BELAY_API const char *belay_health_name(enum belay_health health); /* "UP", "DOWN", "UNKNOWN" */

struct belay_url_status {
    char *url;
    int http_code; /* 0: no answer */
    int64_t took_ms;
    enum belay_health status;
    char *reason;   /* with BELAY_HEALTH_UNKNOWN: why; else NULL */
    bool connected; /* a connection was made, whether or not an answer came */
};

struct belay_app_status {
    char *app;
    enum belay_health status;
    int http_code; /* of the URL that decided; 0: no URL answered */
    int64_t at_unix_ms;
    char *reason;                  /* NULL: none */
    bool connected;                /* a connection was made, or may have been made */
    struct belay_url_status *urls; /* empty: `controller.api_gateway_url` answered for the application */
    size_t n_urls;
};
BELAY_API void belay_app_status_free(struct belay_app_status *status);
/* {"app","status","http_code","timestamp","reason","connected"} and, with `urls`, "urls". The caller frees it. */
BELAY_API char *belay_app_status_to_json(const struct belay_app_status *status, bool urls);

/*
 * Request all URLs of an application in parallel, within quick_status_timeout. UP: any of
 * them answers 200, which also clears a record that the application is stopped. An
 * application that is not in the registry is UNKNOWN with a reason, and not an error. The
 * caller frees *out_status.
 */
BELAY_API enum belay_code belay_app_check_health(struct belay_client *client, const char *name,
                                                 struct belay_app_status **out_status,
                                                 struct belay_error *err);

/* ---- databases ------------------------------------------------------------ */

enum belay_db_action {
    BELAY_DB_STOPPED,
    BELAY_DB_STARTED,
    BELAY_DB_SKIPPED_SHARED_ACTIVE, /* another application uses it, or may use it */
    BELAY_DB_SKIPPED_LOCK,          /* another operation is in progress */
    BELAY_DB_SKIPPED,               /* nothing to do */
    BELAY_DB_ERROR
};
BELAY_API const char *belay_db_action_name(enum belay_db_action action); /* "skipped_lock" */

/* The decision about one database, and its reason. */
struct belay_db_result {
    char *database;
    char *kind;
    char *host; /* NULL: the same as `database` */
    enum belay_db_action action;
    enum belay_code code; /* of the failure, with BELAY_DB_ERROR */
    char *reason;
    bool shared;
    char **sharing_apps; /* the other applications, in the order of their names */
    size_t n_sharing;
    char **active_apps; /* those among them that are UP or UNKNOWN */
    size_t n_active;
    int lock_attempts;
    int64_t lock_ms; /* how long acquiring the lock took */
    int64_t at_unix_ms;
    char *by; /* the user or client that requested it; NULL: not known */
};
BELAY_API void belay_db_result_release(struct belay_db_result *result); /* leaves it empty */

struct belay_db_results {
    struct belay_db_result *results;
    size_t n;
};
BELAY_API void belay_db_results_free(struct belay_db_results *results);
/* {"results":[{"database","kind","host","action","reason","shared","sharing_apps","active_apps"}]}.
   The caller frees it. */
BELAY_API char *belay_db_results_to_json(const struct belay_db_results *results);

/* The worst result, for an exit code: BELAY_OK, BELAY_HELD (in use or locked), or the code of an error. */
BELAY_API enum belay_code belay_db_results_code(const struct belay_db_results *results);

struct belay_db_options {
    size_t struct_size;
    /*
     * Act on the databases of `app`, on `database`, or with both on that database of `app`. The
     * applications that use a database are checked, except `app` itself.
     */
    const char *app;
    const char *database;
    bool dry_run;    /* decide and report, change nothing */
    int64_t wait_ms; /* repeat the checks for this long until all applications are down; 0: once */
    const char *by;  /* the name of the person or program that requests it; NULL: user@host */
    /* Called with one line of text for each step. */
    void (*on_step)(void *context, enum belay_level level, const char *text);
    void *context;
    struct belay_cancel *cancel;
    const char *acquired_by; /* as in struct belay_lock_options, for the database's lock */
    /*
     * Called with the key of each lock, before and after it is acquired: the caller cannot know
     * the keys in advance. Returns false to forbid it; then nothing is done. May be NULL.
     */
    bool (*may_lock)(void *context, const char *key);
};
#define BELAY_DB_OPTIONS_INIT                                                                                \
    {                                                                                                        \
        sizeof(struct belay_db_options), NULL, NULL, false, 0, NULL, NULL, NULL, NULL, NULL, NULL            \
    }

/*
 * Stop databases that no other application uses; see the top of this header. First
 * records that a stop of the application was requested; once all its databases are
 * stopped, records that it is stopped. BELAY_OK says only that there are results: each
 * has its own action. With another code nothing was done: the application or the database
 * is not in the registry, or the configuration does not say how to stop it (BELAY_CONFIG).
 * The caller frees *out_results.
 */
BELAY_API enum belay_code belay_db_stop(struct belay_client *client, const struct belay_db_options *options,
                                        struct belay_db_results **out_results, struct belay_error *err);

/* Start databases, under the same lock. Records the application as running while it holds the lock. */
BELAY_API enum belay_code belay_db_start(struct belay_client *client, const struct belay_db_options *options,
                                         struct belay_db_results **out_results, struct belay_error *err);

/* An application that uses a database. */
struct belay_db_user {
    char *app;
    enum belay_app_state state;
    int64_t since_unix_ms; /* when the state was recorded; 0: never recorded */
};
/* A database, the applications that use it, and the last decision about it. */
struct belay_database {
    char *id;
    char *kind;
    char *host; /* NULL: the same as `id` */
    struct belay_db_user *users;
    size_t n_users;
    struct belay_db_result *last; /* owned; NULL: none yet */
};
typedef bool (*belay_database_fn)(void *context, const struct belay_database *database);
BELAY_API char *belay_database_to_json(const struct belay_database *database); /* the caller frees it */

/* List the databases in the order of their identifiers. `fn` returns false to stop. */
BELAY_API enum belay_code belay_db_list(struct belay_client *client, belay_database_fn fn, void *context,
                                        struct belay_error *err);

/* For servers: record a decision, as JSON, that a client has made. */
BELAY_API enum belay_code belay_db_record_result(struct belay_client *client, const char *database,
                                                 const char *result_json, struct belay_error *err);

#ifdef __cplusplus
}
#endif

#endif
