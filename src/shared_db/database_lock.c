/* The lock of a database (S3.1, S3.2): always released, and never relied upon without asking. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "shared_db/stop_start.h"

enum { BEATS_PER_LEASE = 4, CHECK_MARGIN_MS = 1000, CHECK_MAX_MS = 60000 };

static void on_lost(void *context, struct belay_lock *lock, const char *why)
{
    struct guard_run *run = context;

    (void)lock;
    (void)why;
    atomic_store(&run->lost, true);
}

static void on_waiting(void *context, const struct belay_wait_info *waiting)
{
    struct guard_run *run = context;

    run->attempts = waiting->attempt > run->attempts ? waiting->attempt : run->attempts;
    if (!run->said_waiting) {
        run_say(run, BELAY_LEVEL_INFO, "Lock held by another process, retrying...");
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
        options->attempts = run->is_last_try ? 1 : run->settings->lock_attempts;
    }
}

/* How long another stop may hold the lock to ask the others: a stop that gives up sooner is missed by it. */
static int64_t check_ms(const struct guard_run *run)
{
    int64_t ms = run->settings->quick_timeout_ms + CHECK_MARGIN_MS;

    return run->is_start || run->is_last_try || run->options->wait_ms > 0 ? 0
           : ms < CHECK_MAX_MS                                            ? ms
                                                                          : CHECK_MAX_MS;
}

/* The attempts that are configured, and then as a waiter for what is left of a check. */
static enum belay_code acquire(struct guard_run *run, const char *key, struct belay_lock_options *options,
                               struct belay_lock **out_lock, struct belay_error *err)
{
    int64_t end_ms = clock_boot_ms() + check_ms(run);
    enum belay_code code = belay_lock_acquire(run->client, key, options, out_lock, err);
    int64_t left_ms = end_ms - clock_boot_ms();

    if (code == BELAY_HELD && left_ms > 0) {
        belay_error_release(err);
        options->attempts = 0;
        options->wait_ms = left_ms;
        code = belay_lock_acquire(run->client, key, options, out_lock, err);
    }
    return code;
}

static enum belay_code refused(struct guard_run *run, const char *id, enum belay_code code,
                               const struct belay_error *err)
{
    if (code == BELAY_HELD) {
        if (!run->is_last_try) {
            run_say(run, BELAY_LEVEL_WARNING, "Lock not acquired for db=%s after %d attempts", id,
                    run->attempts > 0 ? run->attempts : 1); /* a dry run looks once */
        }
        run_decide(run, BELAY_DB_SKIPPED_LOCK, code, "%s", err->text);
    } else {
        run_say(run, BELAY_LEVEL_WARNING, "Lock not acquired for db=%s: %s", id, err->text);
        run_decide(run, BELAY_DB_ERROR, code, "the lock could not be taken: %s", err->text);
    }
    return code;
}

/* A dry run changes nothing, not even by taking the lock: it looks whether it is free. */
static enum belay_code look_only(struct guard_run *run, const char *id, struct belay_error *err)
{
    struct belay_info *info = NULL;
    char *key = guard_lock_key(id);
    enum belay_code code = key == NULL ? error_no_memory(err) : belay_get(run->client, key, &info, err);

    if (code == BELAY_OK && info->status == BELAY_STATUS_ACTIVE) {
        code = error_set(err, BELAY_HELD, "lock '%.300s' is held by %.200s", key, info->locked_by);
    }
    belay_info_free(info);
    free(key);
    return code == BELAY_OK || code == BELAY_NOT_FOUND ? BELAY_OK : refused(run, id, code, err);
}

static enum belay_code take_one(struct guard_run *run, const char *id, struct belay_error *err)
{
    const struct belay_meta metadata[2] = { { "lock_type", "database" }, { "db_identifier", id } };
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct run_held *held = &run->held[run->n_held];
    enum belay_code code = BELAY_OK;

    fill_options(run, metadata, &options);
    *held = (struct run_held){ .id = id, .key = guard_lock_key(id) };
    if (held->key == NULL) {
        return error_no_memory(err);
    }
    code = acquire(run, held->key, &options, &held->lock, err);
    if (code != BELAY_OK) {
        free(held->key);
        return code;
    }
    run->n_held++;
    if (strcmp(id, run->target->id) == 0) {
        run->lock = held->lock;
    }
    if (!belay_lock_is_protected(held->lock)) {
        run_say(run, BELAY_LEVEL_WARNING, "locking is switched off: going on without a lock");
    } else {
        run_say(run, BELAY_LEVEL_INFO, "Lock acquired for db=%s, owner=%s", id, run->owner);
    }
    return BELAY_OK;
}

/* All names, in their order: of two who want some of them neither waits for the other for ever. */
static enum belay_code take_all(struct guard_run *run)
{
    struct belay_error err = BELAY_ERROR_INIT;
    int64_t began_ms = clock_boot_ms();
    enum belay_code code =
        uuid_make(run->owner) ? BELAY_OK : error_set(&err, BELAY_BUG, "the system gives no random bytes");
    const char *id = run->target->id;

    atomic_store(&run->lost, false);
    for (size_t i = 0; code == BELAY_OK && i < run->names.n_ids; i++) {
        id = run->names.ids[i];
        code = take_one(run, id, &err);
    }
    run->result->lock_ms += clock_boot_ms() - began_ms;
    /* What was told of a wait is how often it had been tried before. */
    run->attempts =
        code == BELAY_HELD && run->options->wait_ms == 0 ? run->settings->lock_attempts : run->attempts + 1;
    run->result->lock_attempts = run->attempts;
    if (code != BELAY_OK) {
        (void)refused(run, id, code, &err);
        run_unlock(run, false);
    }
    belay_error_release(&err);
    return code;
}

enum belay_code run_lock(struct guard_run *run)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = BELAY_OK;

    if (!run->settings->lock_enabled) {
        run_say(run, BELAY_LEVEL_WARNING, "shared_db_lock_enabled is false: going on without a lock");
        return BELAY_OK;
    }
    if (!run->options->dry_run) {
        return take_all(run);
    }
    for (size_t i = 0; code == BELAY_OK && i < run->names.n_ids; i++) {
        code = look_only(run, run->names.ids[i], &err);
    }
    belay_error_release(&err);
    return code;
}

enum belay_code run_check_lock(struct guard_run *run)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && i < run->n_held; i++) {
        struct belay_lock *lock = run->held[i].lock;

        if (belay_lock_is_protected(lock)) {
            /* The store is asked, not the clock alone: somebody may have forced it. */
            code = belay_lock_renew(lock, &err);
            if (code == BELAY_OK && (atomic_load(&run->lost) || !belay_lock_is_mine(lock))) {
                code = error_set(&err, BELAY_LOST, "the lease is over");
            }
        }
    }
    if (code != BELAY_OK) {
        run_decide(run, BELAY_DB_ERROR, code, "the lock was lost before anything was done: %s", err.text);
    }
    belay_error_release(&err);
    return code;
}

static void release_one(struct guard_run *run, struct run_held *held, bool completed)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (belay_lock_release(held->lock, completed ? BELAY_OUTCOME_COMPLETED : BELAY_OUTCOME_FAILED, &err) !=
        BELAY_OK) {
        run_say(run, BELAY_LEVEL_WARNING, "Lock not released for %s: %s; it ends by itself", held->key,
                err.text);
    } else if (belay_lock_is_protected(held->lock)) {
        run_say(run, BELAY_LEVEL_INFO, "Lock released for %s, owner=%s", held->key, run->owner);
    }
    belay_lock_free(held->lock);
    free(held->key);
    belay_error_release(&err);
}

void run_unlock(struct guard_run *run, bool completed)
{
    while (run->n_held > 0) {
        release_one(run, &run->held[--run->n_held], completed);
    }
    run->lock = NULL;
}
