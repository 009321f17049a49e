/* The lock of a database (S3.1, S3.2): always released, and never relied upon without asking. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "guard/run.h"

enum { BEATS_PER_LEASE = 4 };

static void on_lost(void *context, struct belay_lock *lock, const char *why)
{
    struct guard_run *run = context;

    (void)lock;
    (void)why;
    atomic_store(&run->lost, true);
}

static void on_waiting(void *context, const struct belay_waiting *waiting)
{
    struct guard_run *run = context;

    run->attempts = waiting->attempt > run->attempts ? waiting->attempt : run->attempts;
    if (!run->said_waiting) {
        run_say(run, BELAY_INFO_LEVEL, "Lock held by another process, retrying...");
        run->said_waiting = true;
    }
}

static void fill_options(struct guard_run *run, const struct belay_meta metadata[2],
                         struct belay_lock_options *options)
{
    int64_t left_ms = run->wait_end_ms - clock_boot_ms();

    options->ttl_ms = run->settings->lock_ttl_ms;
    options->heartbeat_ms = run->settings->lock_ttl_ms / BEATS_PER_LEASE;
    options->owner = run->owner;
    options->owner_name = run->options->by;
    options->acquired_by = run->options->acquired_by;
    options->metadata = metadata;
    options->n_metadata = 2;
    options->on_lost = on_lost;
    options->on_waiting = on_waiting;
    options->context = run;
    options->cancel = run->options->cancel;
    if (run->options->wait_ms > 0) {
        options->wait_ms = left_ms > 0 ? left_ms : 0;
        options->attempts = left_ms > 0 ? 0 : 1;
    } else {
        options->attempts = run->settings->lock_attempts;
    }
}

static enum belay_code refused(struct guard_run *run, enum belay_code code, const struct belay_error *err)
{
    if (code == BELAY_HELD) {
        run_say(run, BELAY_WARN_LEVEL, "Lock not acquired for db=%s after %d attempts", run->target->id,
                run->attempts > 0 ? run->attempts : 1); /* a dry run looks once */
        run_decide(run, BELAY_DB_SKIPPED_LOCK, code, "%s", err->text);
    } else {
        run_say(run, BELAY_WARN_LEVEL, "Lock not acquired for db=%s: %s", run->target->id, err->text);
        run_decide(run, BELAY_DB_ERROR, code, "the lock could not be taken: %s", err->text);
    }
    return code;
}

/* A dry run changes nothing, not even by taking the lock: it looks whether it is free. */
static enum belay_code look_only(struct guard_run *run, struct belay_error *err)
{
    struct belay_info *info = NULL;
    enum belay_code code = belay_get(run->client, run->key, &info, err);

    if (code == BELAY_NOT_FOUND) {
        return BELAY_OK;
    }
    if (code != BELAY_OK) {
        return refused(run, code, err);
    }
    if (info->status == BELAY_STATUS_ACTIVE) {
        code = error_set(err, BELAY_HELD, "lock '%.300s' is held by %.200s", run->key, info->locked_by);
        (void)refused(run, code, err);
    }
    belay_info_free(info);
    return code;
}

enum belay_code run_lock(struct guard_run *run)
{
    const struct belay_meta metadata[2] = { { "lock_type", "database" },
                                            { "db_identifier", run->target->id } };
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    int64_t began_ms = clock_boot_ms();
    enum belay_code code;

    if (!run->settings->lock_enabled) {
        run_say(run, BELAY_WARN_LEVEL, "shared_db_lock_enabled is false: going on without a lock");
        return BELAY_OK;
    }
    if (run->options->dry_run) {
        code = look_only(run, &err);
        belay_error_release(&err);
        return code;
    }
    atomic_store(&run->lost, false);
    fill_options(run, metadata, &options);
    code = uuid_make(run->owner) ? belay_lock_acquire(run->client, run->key, &options, &run->lock, &err)
                                 : error_set(&err, BELAY_BUG, "the system gives no random bytes");
    run->result->lock_ms += clock_boot_ms() - began_ms;
    /* What was told of a wait is how often it had been tried before. */
    run->attempts =
        code == BELAY_HELD && run->options->wait_ms == 0 ? run->settings->lock_attempts : run->attempts + 1;
    run->result->lock_attempts = run->attempts;
    if (code != BELAY_OK) {
        run->lock = NULL;
        (void)refused(run, code, &err);
    } else if (!belay_lock_is_protected(run->lock)) {
        run_say(run, BELAY_WARN_LEVEL, "locking is switched off: going on without a lock");
    } else {
        run_say(run, BELAY_INFO_LEVEL, "Lock acquired for db=%s, owner=%s", run->target->id, run->owner);
    }
    belay_error_release(&err);
    return code;
}

enum belay_code run_check_lock(struct guard_run *run)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = BELAY_OK;

    if (run->lock == NULL || !belay_lock_is_protected(run->lock)) {
        return BELAY_OK;
    }
    /* The store is asked, not the clock alone: somebody may have forced it. */
    code = belay_lock_renew(run->lock, &err);
    if (code == BELAY_OK && (atomic_load(&run->lost) || !belay_lock_is_mine(run->lock))) {
        code = error_set(&err, BELAY_LOST, "the lease is over");
    }
    if (code != BELAY_OK) {
        run_decide(run, BELAY_DB_ERROR, code, "the lock was lost before anything was done: %s", err.text);
    }
    belay_error_release(&err);
    return code;
}

void run_unlock(struct guard_run *run, bool completed)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (run->lock == NULL) {
        return;
    }
    if (belay_lock_release(run->lock, completed ? BELAY_OUTCOME_COMPLETED : BELAY_OUTCOME_FAILED, &err) !=
        BELAY_OK) {
        run_say(run, BELAY_WARN_LEVEL, "Lock not released for %s: %s; it ends by itself", run->key, err.text);
    } else if (belay_lock_is_protected(run->lock)) {
        run_say(run, BELAY_INFO_LEVEL, "Lock released for %s, owner=%s", run->key, run->owner);
    }
    belay_lock_free(run->lock);
    run->lock = NULL;
    belay_error_release(&err);
}
