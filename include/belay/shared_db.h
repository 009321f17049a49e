/*
 * Stop a shared database only when nobody uses it.
 *
 * A registry, kept beside the locks, says which applications there are, which
 * databases each uses, and under which URLs one can ask whether it is up. To
 * stop a database, belay takes the database's lock, reads the registry, asks
 * the other applications that use it, and stops it only if all of them are
 * DOWN. Every doubt means no stop: an application that does not answer, a
 * registry that cannot be read whole, a lease that was lost.
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
 * What "stop" and "start" do is configured per kind of database (`databases:`).
 * docs/shared-databases.md has the table of decisions.
 */
#ifndef BELAY_SHARED_DB_H
#define BELAY_SHARED_DB_H

#include "belay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits on what a caller may say; one more is BELAY_INVALID. */
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
 * The last record of an application. STOPPED: an operator said so, or its databases
 * were stopped on its behalf. STOP_REQUESTED: belay_db_stop() was called on its
 * behalf, and a database was left running. Either makes an application DOWN that
 * cannot be reached at all, until it is seen UP or the record is older than
 * `controller.stopped_record_max_age`.
 */
enum belay_app_state { BELAY_APP_RUNNING, BELAY_APP_STOPPED, BELAY_APP_STOP_REQUESTED };
/* "running", "stopped", "stop_requested" */
BELAY_API const char *belay_app_state_name(enum belay_app_state state);

struct belay_app_database {
    char *kind; /* "postgres", "neo4j", or one that the configuration has under `databases` */
    char *id;   /* an EC2 instance id, else HOST:PORT */
    char *host; /* NULL; or, beside an instance id, the HOST:PORT under which others may know it */
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
    int64_t since_unix_ms; /* when the state was recorded; 0: never */
    char *by;              /* who did; NULL: nobody yet */
    uint64_t version;      /* changes with every write; 0: not in the registry */
    /*
     * Registered through a server by a token that is no admin's: its URLs are asked on public addresses, and on those in
     * `controller.quick_status_allow`, only. A server sets it; replacing the application as an admin or with a local
     * command clears it.
     */
    bool public_only;
};
BELAY_API void belay_app_free(struct belay_app *app);

/*
 * BELAY_INVALID names what is wrong and what would be right: no name, no URL, a
 * malformed one, a kind that is not known (config: NULL means any kind will
 * do), an identifier that is neither an instance id nor HOST:PORT.
 */
BELAY_API enum belay_code belay_app_check(const struct belay_config *config, const struct belay_app *app,
                                          struct belay_error *err);

/* "KIND=ID" or "KIND=ID@HOST:PORT", as it is typed. Adds a database to the application. */
BELAY_API enum belay_code belay_app_add_database(struct belay_app *app, const char *text,
                                                 struct belay_error *err);
BELAY_API enum belay_code belay_app_add_url(struct belay_app *app, const char *url, struct belay_error *err);
BELAY_API enum belay_code belay_app_add_label(struct belay_app *app, const char *name, const char *value,
                                              struct belay_error *err);

/* One line of JSON, as every command and the HTTP API show it. The caller frees it; NULL: no memory. */
BELAY_API char *belay_app_to_json(const struct belay_app *app);
/* The same back. A name that it does not know is BELAY_INVALID. */
BELAY_API enum belay_code belay_app_from_json(const char *text, size_t len, struct belay_app **out_app,
                                              struct belay_error *err);

/* BELAY_NOT_FOUND if there is none of that name. */
BELAY_API enum belay_code belay_app_get(struct belay_client *client, const char *name,
                                        struct belay_app **out_app, struct belay_error *err);

/* Return false to stop. The application is borrowed. */
typedef bool (*belay_app_fn)(void *context, const struct belay_app *app);

/* All of them in the order of their names: an error if one of them cannot be read. */
BELAY_API enum belay_code belay_app_list(struct belay_client *client, belay_app_fn fn, void *context,
                                         struct belay_error *err);

/*
 * Write one, on condition that it is in the registry as app->version says (0: not
 * at all); BELAY_REFUSED if it is not. *out_version may be NULL.
 */
BELAY_API enum belay_code belay_app_put(struct belay_client *client, const struct belay_app *app,
                                        uint64_t *out_version, struct belay_error *err);

/*
 * Put an application into the registry. One of that name is replaced, but for
 * its recorded state if the URLs stay, if `replace`; else it is BELAY_INVALID.
 * *out_is_new may be NULL.
 */
BELAY_API enum belay_code belay_app_register(struct belay_client *client, const struct belay_app *app,
                                             bool replace, bool *out_is_new, struct belay_error *err);

/* BELAY_NOT_FOUND if there is none of that name. `version` 0: whichever it is. */
BELAY_API enum belay_code belay_app_remove(struct belay_client *client, const char *name, uint64_t version,
                                           struct belay_error *err);

/* Record that it is stopped or running. `by` is for people; NULL: user@host. *out_app may be NULL. */
BELAY_API enum belay_code belay_app_set_state(struct belay_client *client, const char *name,
                                              enum belay_app_state state, const char *by,
                                              struct belay_app **out_app, struct belay_error *err);

/*
 * Applications as YAML: a list `apps`, each with name, urls, databases, labels
 * and state. Reading checks all of it (BELAY_BAD_CONTENT names the line) before
 * `fn` is called for the first.
 */
BELAY_API enum belay_code belay_apps_from_yaml(const struct belay_config *config, const char *path,
                                               const char *text, size_t len, belay_app_fn fn, void *context,
                                               struct belay_error *err);
/* One entry of that list, with a newline at its end. The caller frees it; NULL: no memory. */
BELAY_API char *belay_app_to_yaml(const struct belay_app *app);

/* ---- quick status (S3.4) ------------------------------------------------- */

enum belay_health { BELAY_HEALTH_UNKNOWN, BELAY_HEALTH_DOWN, BELAY_HEALTH_UP };
BELAY_API const char *belay_health_name(enum belay_health quick); /* "UP", "DOWN", "UNKNOWN" */

struct belay_url_status {
    char *url;
    int http_code; /* 0: no answer */
    int64_t took_ms;
    enum belay_health status;
    char *reason;   /* why it is UNKNOWN; NULL */
    bool connected; /* a connection was made, with or without an answer */
};

struct belay_app_status {
    char *app;
    enum belay_health status;
    int http_code; /* of the URL that decided; 0: none answered */
    int64_t at_unix_ms;
    char *reason;                  /* NULL: there is nothing to add */
    bool connected;                /* a connection to it was made, or it is not known that none was */
    struct belay_url_status *urls; /* empty if `controller.api_gateway_url` was asked instead */
    size_t n_urls;
};
BELAY_API void belay_app_status_free(struct belay_app_status *status);
/* {"app","status","http_code","timestamp","reason","connected"} and, if `urls`, "urls". The caller frees it. */
BELAY_API char *belay_app_status_to_json(const struct belay_app_status *status, bool urls);

/*
 * Ask all URLs of an application side by side, within quick_status_timeout. UP
 * if any answers 200, which also clears a record that it is stopped. An
 * application that is not in the registry is UNKNOWN, with a reason, and no error.
 */
BELAY_API enum belay_code belay_app_check_health(struct belay_client *client, const char *name,
                                                 struct belay_app_status **out_status,
                                                 struct belay_error *err);

/* ---- databases ------------------------------------------------------------ */

enum belay_db_action {
    BELAY_DB_STOPPED,
    BELAY_DB_STARTED,
    BELAY_DB_SKIPPED_SHARED_ACTIVE, /* another application uses it, or it is not known that none does */
    BELAY_DB_SKIPPED_LOCK,          /* somebody else is at it */
    BELAY_DB_SKIPPED,               /* there was nothing to do */
    BELAY_DB_ERROR
};
BELAY_API const char *belay_db_action_name(enum belay_db_action action); /* "skipped_lock" */

/* What was decided about one database, and why. */
struct belay_db_result {
    char *database;
    char *kind;
    char *host; /* NULL: as `database` says */
    enum belay_db_action action;
    enum belay_code code; /* with BELAY_DB_ERROR: of what went wrong */
    char *reason;
    bool shared;
    char **sharing_apps; /* the others, in the order of their names */
    size_t n_sharing;
    char **active_apps; /* those of them that are UP or UNKNOWN */
    size_t n_active;
    int lock_attempts;
    int64_t lock_ms; /* how long it took to get the lock */
    int64_t at_unix_ms;
    char *by; /* who asked; NULL: not known */
};
BELAY_API void belay_db_result_release(struct belay_db_result *result); /* leaves it empty */

struct belay_db_results {
    struct belay_db_result *results;
    size_t n;
};
BELAY_API void belay_db_results_free(struct belay_db_results *results);
/* {"results":[{"database","kind","host","action","reason","shared","sharing_apps","active_apps"}]} */
BELAY_API char *belay_db_results_to_json(const struct belay_db_results *results);

/* The worst of them, as an exit code has it: BELAY_OK, BELAY_HELD (in use or locked), or an error's. */
BELAY_API enum belay_code belay_db_results_code(const struct belay_db_results *results);

struct belay_db_options {
    size_t struct_size;
    const char *app;      /* the databases of this application, which itself is not asked */
    const char *database; /* or this one, of which all users are asked but `app`. One of the two, or both. */
    bool dry_run;         /* find out and tell, change nothing */
    int64_t wait_ms;      /* ask again until all are down, for so long; 0: once */
    const char *by;       /* who asks, for people; NULL: user@host */
    /* Called for every step, one line each, as document 003 words them. */
    void (*on_step)(void *context, enum belay_level level, const char *text);
    void *context;
    struct belay_cancel *cancel;
    const char *acquired_by; /* as in struct belay_lock_options, for the database's lock; NULL: none */
    /* Asked before and after every lock is taken: a name alone does not tell which those are. False: nothing is done. */
    bool (*may_lock)(void *context, const char *key);
};
#define BELAY_DB_OPTIONS_INIT                                                                                \
    {                                                                                                        \
        sizeof(struct belay_db_options), NULL, NULL, false, 0, NULL, NULL, NULL, NULL, NULL, NULL            \
    }

/*
 * Stop databases that nobody else uses; see above. Before anything, it is recorded
 * that the application's stop was requested; once all its databases are stopped,
 * that it is stopped. BELAY_OK says only that there are results: each has its own
 * action. Other codes: the application or the database is not in the registry,
 * or nothing says what stopping means (BELAY_CONFIG); nothing was done.
 */
BELAY_API enum belay_code belay_db_stop(struct belay_client *client, const struct belay_db_options *options,
                                        struct belay_db_results **out_results, struct belay_error *err);

/* Start them, under the same lock. The application is recorded as running while the lock is held. */
BELAY_API enum belay_code belay_db_start(struct belay_client *client, const struct belay_db_options *options,
                                         struct belay_db_results **out_results, struct belay_error *err);

/* A database, who uses it, and what was last decided about it. */
struct belay_db_user {
    char *app;
    enum belay_app_state state;
    int64_t since_unix_ms;
};
struct belay_database {
    char *id;
    char *kind;
    char *host; /* NULL: as `id` says */
    struct belay_db_user *users;
    size_t n_users;
    struct belay_db_result *last; /* owned; NULL: nothing yet */
};
typedef bool (*belay_database_fn)(void *context, const struct belay_database *database);
BELAY_API char *belay_database_to_json(const struct belay_database *database); /* the caller frees it */

/* In the order of their identifiers. Return false from `fn` to stop. */
BELAY_API enum belay_code belay_db_list(struct belay_client *client, belay_database_fn fn, void *context,
                                        struct belay_error *err);

/* Keep a decision that another process came to: for a server, on behalf of its clients. As JSON. */
BELAY_API enum belay_code belay_db_record_result(struct belay_client *client, const char *database,
                                                 const char *result_json, struct belay_error *err);

#ifdef __cplusplus
}
#endif

#endif
