/* One database being stopped or started: shared by stop_start.c, usage_check.c and database*.c. */
#ifndef SHARED_DB_STOP_START_H
#define SHARED_DB_STOP_START_H

#include "client/items.h"
#include "http_client/probe.h"
#include "shared_db/shared_db_internal.h"

#define DB_NO_REGISTRY "cannot read the registry, so its users are unknown"

struct held_lock {
    const char *id;          /* borrowed from op.names */
    char *key;               /* owned */
    struct belay_lock *lock; /* owned */
};

struct db_op {
    struct belay_client *client;               /* borrowed */
    const struct belay_db_options *options;    /* borrowed */
    const struct shared_db_settings *settings; /* borrowed */
    const struct db_action *action;            /* borrowed */
    const struct belay_app_database *target;   /* borrowed; or &found */
    struct belay_app_database found;           /* the target under its EC2 instance id */
    char found_id[64];
    bool is_start;
    struct belay_db_result *result; /* borrowed */
    struct db_names names;    /* owned; of the database, or of all that the action stops: each is locked */
    struct net_ec2_found ec2; /* owned; further names of the host in EC2 */
    const struct app_registry *registry; /* borrowed; NULL: read it again */
    struct held_lock held[NAMES_MAX];
    size_t n_held;
    int relocks;
    int rechecks;
    bool is_last_try;           /* to acquire the lock */
    bool retry_at_once;         /* the next attempt starts without a pause */
    int64_t *requested_unix_ms; /* borrowed; when the application's stop was requested; 0: not requested */
    int64_t *active_since;      /* owned; for each of result->active_apps the time of its record */
    bool is_forbidden;          /* options->may_lock refused: nothing may be recorded either */
    bool has_new_names;         /* the registry has names that are not locked yet */
    struct belay_lock *lock;    /* borrowed; that of target->id. NULL: none */
    char owner[40];
    int attempts;
    bool has_reported_wait;
    atomic_bool lost;
    int64_t wait_end_ms;
};

/* Report a step, one line. */
void db_op_say(struct db_op *op, enum belay_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Set the decision. The last one counts. Returns `code`. */
enum belay_code db_op_decide(struct db_op *op, enum belay_db_action action, enum belay_code code,
                             const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The end of a step: unless `code` is BELAY_OK, decide on the error "WHAT: err". Releases `err`. Returns `code`. */
enum belay_code db_op_end_step(struct db_op *op, enum belay_code code, struct belay_error *err,
                               const char *what);

/* ---- database_lock.c ---- */

/* All functions below return BELAY_OK, or have decided. */

/* Lock all names, unless locking is off. */
enum belay_code db_op_lock(struct db_op *op);
/* Renew the locks in the store: they are still ours. */
enum belay_code db_op_check_lock(struct db_op *op);
void db_op_unlock(struct db_op *op, bool completed);

/* ---- database_names.c ---- */

/* Find the EC2 instance of the action, if it needs one. */
enum belay_code db_op_find_instance(struct db_op *op);
/* Collect all names of the databases that the action stops into op->names. */
enum belay_code db_op_find_names(struct db_op *op, const struct app_registry *registry);
/* The caller may take the locks of op->names. */
enum belay_code db_op_check_permitted(struct db_op *op);
/* Under the lock: the registry tells all users without doubt, and all names are locked. */
enum belay_code db_op_check_names(struct db_op *op, const struct app_registry *registry);

/* ---- usage_check.c ---- */

/* No application but options->app uses the database. */
enum belay_code db_op_check_users(struct db_op *op);
/* After the lock was released: an application that was active has requested its stop since. */
bool db_op_has_new_request(struct db_op *op);

/* ---- database.c ---- */

/*
 * Record the decision as the database's last one, and as an event. With is_done false only an event, before the action:
 * this process may be killed during it.
 */
void db_op_record(struct db_op *op, bool is_done);

#endif
