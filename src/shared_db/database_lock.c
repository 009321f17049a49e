/* The locks of a database (S3.1, S3.2): always released, and renewed in the store before the action. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "shared_db/stop_start.h"

enum { BEATS_PER_LEASE = 4, CHECK_MARGIN_MS = 1000, CHECK_MAX_MS = 60000 };

static void on_lease_lost(void *context, struct belay_lock *lock, const char *why)
{
    struct db_op *op = context;

    (void)lock;
    (void)why;
    atomic_store(&op->lost, true);
}

static void on_waiting(void *context, const struct belay_wait_info *waiting)
{
    struct db_op *op = context;

    op->attempts = waiting->attempt > op->attempts ? waiting->attempt : op->attempts;
    if (!op->has_reported_wait) {
        db_op_say(op, BELAY_LEVEL_INFO, "Lock held by another process, retrying...");
        op->has_reported_wait = true;
    }
}

static void fill_options(struct db_op *op, const struct belay_meta metadata[2],
                         struct belay_lock_options *options)
{
    int64_t left_ms = op->wait_end_ms - clock_boot_ms();

    options->ttl_ms = op->settings->lock_ttl_ms;
    options->heartbeat_ms = op->settings->lock_ttl_ms / BEATS_PER_LEASE;
    options->owner = op->owner;
    options->owner_name = op->options->by;
    options->acquired_by = op->options->acquired_by;
    options->metadata = metadata;
    options->n_metadata = 2;
    options->on_lost = on_lease_lost;
    options->on_waiting = on_waiting;
    options->context = op;
    options->cancel = op->options->cancel;
    if (op->options->wait_ms > 0) {
        options->wait_ms = left_ms > 0 ? left_ms : 0;
        options->attempts = left_ms > 0 ? 0 : 1;
    } else {
        options->attempts = op->is_last_try ? 1 : op->settings->lock_attempts;
    }
}

/* How long another stop may hold the lock for its health checks: giving up earlier would miss it. */
static int64_t check_ms(const struct db_op *op)
{
    int64_t ms = op->settings->quick_timeout_ms + CHECK_MARGIN_MS;

    return op->is_start || op->is_last_try || op->options->wait_ms > 0 ? 0
           : ms < CHECK_MAX_MS                                         ? ms
                                                                       : CHECK_MAX_MS;
}

/* The configured attempts, then as a waiter for the rest of another stop's health checks. */
static enum belay_code acquire_in_turn(struct db_op *op, const char *key, struct belay_lock_options *options,
                                       struct belay_lock **out_lock, struct belay_error *err)
{
    int64_t end_ms = clock_boot_ms() + check_ms(op);
    enum belay_code code = belay_lock_acquire(op->client, key, options, out_lock, err);
    int64_t left_ms = end_ms - clock_boot_ms();

    if (code == BELAY_HELD && left_ms > 0) {
        belay_error_release(err);
        options->attempts = 0;
        options->wait_ms = left_ms;
        code = belay_lock_acquire(op->client, key, options, out_lock, err);
    }
    return code;
}

static enum belay_code report_lock_refusal(struct db_op *op, const char *id, enum belay_code code,
                                           const struct belay_error *err)
{
    if (code == BELAY_HELD || code == BELAY_FROZEN) {
        if (!op->is_last_try) {
            db_op_say(op, BELAY_LEVEL_WARNING, "Lock not acquired for db=%s after %d attempts", id,
                      op->attempts > 0 ? op->attempts : 1); /* a dry run reads once */
        }
        (void)db_op_decide(op, BELAY_DB_SKIPPED_LOCK, BELAY_HELD, "%s", err->text);
        return code;
    }
    db_op_say(op, BELAY_LEVEL_WARNING, "Lock not acquired for db=%s: %s", id, err->text);
    return db_op_decide(op, BELAY_DB_ERROR, code, "cannot acquire the lock: %s", err->text);
}

/* A dry run does not acquire the lock: it only reads whether it is free. */
static enum belay_code check_is_free(struct db_op *op, const char *id, struct belay_error *err)
{
    struct belay_info *info = NULL;
    char *key = db_lock_key(id);
    enum belay_code code = key == NULL ? error_no_memory(err) : belay_get(op->client, key, &info, err);

    if (code == BELAY_OK && info->status == BELAY_STATUS_ACTIVE) {
        code = error_set(err, BELAY_HELD, "lock '%.300s' is held by %.200s", key, info->locked_by);
    }
    belay_info_free(info);
    free(key);
    return code == BELAY_OK || code == BELAY_NOT_FOUND ? BELAY_OK : report_lock_refusal(op, id, code, err);
}

static enum belay_code take_lock_of(struct db_op *op, const char *id, struct belay_error *err)
{
    const struct belay_meta metadata[2] = { { "lock_type", "database" }, { "db_identifier", id } };
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct held_lock *held = &op->held[op->n_held];
    enum belay_code code = BELAY_OK;

    assert(op->n_held < NAMES_MAX);
    fill_options(op, metadata, &options);
    *held = (struct held_lock){ .id = id, .key = db_lock_key(id) };
    if (held->key == NULL) {
        return error_no_memory(err);
    }
    code = acquire_in_turn(op, held->key, &options, &held->lock, err);
    if (code != BELAY_OK) {
        free(held->key);
        return code;
    }
    op->n_held++;
    if (strcmp(id, op->target->id) == 0) {
        op->lock = held->lock;
    }
    if (!belay_lock_is_protected(held->lock)) {
        db_op_say(op, BELAY_LEVEL_WARNING, "locking is switched off: continuing without a lock");
    } else {
        db_op_say(op, BELAY_LEVEL_INFO, "Lock acquired for db=%s, owner=%s", id, op->owner);
    }
    return BELAY_OK;
}

/* All names, in sorted order, so that two stops cannot deadlock. */
static enum belay_code take_all_locks(struct db_op *op)
{
    struct belay_error err = BELAY_ERROR_INIT;
    int64_t began_ms = clock_boot_ms();
    enum belay_code code =
        uuid_make(op->owner) ? BELAY_OK : error_set(&err, BELAY_BUG, "the system provides no random bytes");
    const char *id = op->target->id;

    atomic_store(&op->lost, false);
    for (size_t i = 0; code == BELAY_OK && i < op->names.n_ids; i++) {
        id = op->names.ids[i];
        code = take_lock_of(op, id, &err);
    }
    op->result->lock_ms += clock_boot_ms() - began_ms;
    /* on_waiting() counts the tries before the last one. */
    op->attempts =
        code == BELAY_HELD && op->options->wait_ms == 0 ? op->settings->lock_attempts : op->attempts + 1;
    op->result->lock_attempts = op->attempts;
    if (code != BELAY_OK) {
        (void)report_lock_refusal(op, id, code, &err);
        db_op_unlock(op, false);
    }
    belay_error_release(&err);
    return code;
}

enum belay_code db_op_lock(struct db_op *op)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = BELAY_OK;

    assert(op->n_held == 0);
    if (!op->settings->lock_enabled) {
        db_op_say(op, BELAY_LEVEL_WARNING, "shared_db_lock_enabled is false: continuing without a lock");
        return BELAY_OK;
    }
    if (!op->options->dry_run) {
        return take_all_locks(op);
    }
    for (size_t i = 0; code == BELAY_OK && i < op->names.n_ids; i++) {
        code = check_is_free(op, op->names.ids[i], &err);
    }
    belay_error_release(&err);
    return code;
}

enum belay_code db_op_check_lock(struct db_op *op)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && i < op->n_held; i++) {
        struct belay_lock *lock = op->held[i].lock;

        if (belay_lock_is_protected(lock)) {
            /* Renew in the store: the lock may have been ended by force. */
            code = belay_lock_renew(lock, &err);
            if (code == BELAY_OK && (atomic_load(&op->lost) || !belay_lock_is_mine(lock))) {
                code = error_set(&err, BELAY_LOST, "the lease has expired");
            }
        }
    }
    return db_op_end_step(op, code, &err, "the lock was lost before the action");
}

static void release_held(struct db_op *op, struct held_lock *held, bool completed)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (belay_lock_release(held->lock, completed ? BELAY_OUTCOME_COMPLETED : BELAY_OUTCOME_FAILED, &err) !=
        BELAY_OK) {
        db_op_say(op, BELAY_LEVEL_WARNING, "Lock not released for %s: %s; it expires by itself", held->key,
                  err.text);
    } else if (belay_lock_is_protected(held->lock)) {
        db_op_say(op, BELAY_LEVEL_INFO, "Lock released for %s, owner=%s", held->key, op->owner);
    }
    belay_lock_free(held->lock);
    free(held->key);
    belay_error_release(&err);
}

void db_op_unlock(struct db_op *op, bool completed)
{
    while (op->n_held > 0) {
        release_held(op, &op->held[--op->n_held], completed);
    }
    op->lock = NULL;
}
