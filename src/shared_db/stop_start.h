/* One database being stopped or started: what the files of that share. */
#ifndef SHARED_DB_STOP_START_H
#define SHARED_DB_STOP_START_H

#include "client/items.h"
#include "http_client/probe.h"
#include "shared_db/shared_db_internal.h"

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
    struct belay_app_database found;           /* the target under the instance id that EC2 has for it */
    char found_id[64];
    bool is_start;
    struct belay_db_result *result; /* borrowed; filled as it goes */
    struct db_names names;    /* owned; of the database, or of all that the action ends: each is locked */
    struct net_ec2_found ec2; /* owned; what else EC2 calls the host */
    const struct app_registry *registry; /* borrowed; NULL: it has to be read anew */
    struct held_lock held[NAMES_MAX];
    size_t n_held;
    int relocks;
    int rechecks;
    bool is_last_try;           /* for the lock */
    bool retry_at_once;         /* the next attempt need not wait */
    int64_t *requested_unix_ms; /* borrowed; when the application's stop was requested; 0: it was not */
    int64_t *active_since;      /* owned; of each of result->active_apps: the record that was read */
    bool is_forbidden;  /* options->may_lock said so: it is not for the caller to record anything, either */
    bool has_new_names; /* the registry has names that are not locked: lock those too */
    struct belay_lock *lock; /* borrowed; that of target->id. NULL: none, or not needed */
    char owner[40];
    int attempts;
    bool has_reported_wait;
    atomic_bool lost;
    int64_t wait_end_ms;
};

/* Tell a step, one line. */
void db_op_say(struct db_op *op, enum belay_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Set what was decided. The last one counts. */
void db_op_decide(struct db_op *op, enum belay_db_action action, enum belay_code code, const char *format,
                  ...) __attribute__((format(printf, 4, 5)));

/* ---- db_op_lock.c ---- */

/* BELAY_OK: it is ours, or none is wanted. Else it has decided why not. */
enum belay_code db_op_lock(struct db_op *op);
/* BELAY_OK: it is still ours, the store says so. Else it has decided. */
enum belay_code db_op_check_lock(struct db_op *op);
void db_op_unlock(struct db_op *op, bool completed);

/* ---- run_names.c ---- */

/* Find the EC2 instance that the action is about. BELAY_OK: it is known, or not needed. Else it has decided. */
enum belay_code db_op_find_instance(struct db_op *op);
/* All names of what the action ends, into op->names. BELAY_OK, or it has decided. */
enum belay_code db_op_find_names(struct db_op *op, const struct app_registry *registry);
/* BELAY_OK if the caller may take the locks of op->names. Else it has decided. */
enum belay_code db_op_check_permitted(struct db_op *op);
/* Under the lock: BELAY_OK if the registry leaves no doubt about who uses it, and all its names are locked. */
enum belay_code db_op_check_names(struct db_op *op, const struct app_registry *registry);

/* ---- run_check.c ---- */

/* Whether anybody but options->app uses it. BELAY_OK: surely not. Else it has decided. */
enum belay_code db_op_check_users(struct db_op *op);
/* After the lock was released: one of those that were found active has requested its stop since. */
bool db_op_has_new_request(struct db_op *op);

/* ---- database.c ---- */

/* Keep the decision for who asks later, and as an event. */
void db_op_record(struct db_op *op);
/* Before it is done, as an event only: who is killed meanwhile leaves that. */
void db_op_record_begun(struct db_op *op);

#endif
