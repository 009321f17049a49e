/* One database being stopped or started: what the files of that share. */
#ifndef GUARD_RUN_H
#define GUARD_RUN_H

#include "client/items.h"
#include "guard/guard.h"

struct guard_run {
    struct belay_client *client;             /* borrowed */
    const struct belay_db_options *options;  /* borrowed */
    const struct guard_settings *settings;   /* borrowed */
    const struct guard_action *action;       /* borrowed */
    const struct belay_app_database *target; /* borrowed */
    bool is_start;
    struct belay_db_result *result; /* borrowed; filled as it goes */
    struct belay_lock *lock;        /* owned; NULL: none, or not needed */
    char *key;                      /* owned */
    char owner[40];
    int attempts;
    bool said_waiting;
    atomic_bool lost;
    int64_t wait_end_ms;
};

/* Tell a step, one line. */
void run_say(struct guard_run *run, enum belay_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Set what was decided. The last one counts. */
void run_decide(struct guard_run *run, enum belay_db_action action, enum belay_code code, const char *format,
                ...) __attribute__((format(printf, 4, 5)));

/* ---- run_lock.c ---- */

/* BELAY_OK: it is ours, or none is wanted. Else it has decided why not. */
enum belay_code run_lock(struct guard_run *run);
/* BELAY_OK: it is still ours, the store says so. Else it has decided. */
enum belay_code run_check_lock(struct guard_run *run);
void run_unlock(struct guard_run *run, bool completed);

/* ---- run_check.c ---- */

/* Whether anybody but options->app uses it. BELAY_OK: surely not. Else it has decided. */
enum belay_code run_check_users(struct guard_run *run);

/* ---- database.c ---- */

/* Keep the decision for who asks later, and as an event. */
void run_record(struct guard_run *run);
/* Before it is done, as an event only: who is killed meanwhile leaves that. */
void run_record_begun(struct guard_run *run);

#endif
