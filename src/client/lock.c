#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "client/client.h"
#include "lock/info.h"

static struct belay_lock *lock_new(struct belay_client *client, const char *key)
{
    struct belay_lock *lock = calloc(1, sizeof *lock);

    if (lock == NULL) {
        return NULL;
    }
    lock->client = client;
    lock->key = strdup(key);
    if (lock->key == NULL) {
        belay_lock_free(lock);
        return NULL;
    }
    return lock;
}

/* What an operation that succeeded gave us. */
static enum belay_code lock_fill(struct belay_lock *lock, const struct op *op,
                                 const struct belay_lock_options *options, struct belay_error *err)
{
    struct belay_info *info = info_from_record(&op->record, op->record_now_ms);

    lock->lock_id = strdup(op->record.lock_id);
    lock->owner = strdup(op->record.owner);
    lock->owner_name = strdup(op->record.owner_name);
    lock->metadata = meta_copy(op->record.metadata, op->record.n_metadata);
    lock->n_metadata = lock->metadata == NULL ? 0 : op->record.n_metadata;
    for (size_t i = 0; i < op->request.n_ancestors; i++) {
        lock->ancestors[i] = strdup(op->request.ancestors[i]);
        lock->n_ancestors += lock->ancestors[i] != NULL;
    }
    if (info == NULL || lock->lock_id == NULL || lock->owner == NULL || lock->owner_name == NULL ||
        lock->n_metadata != op->record.n_metadata || lock->n_ancestors != op->request.n_ancestors) {
        belay_info_free(info);
        return error_no_memory(err);
    }
    lock->info = info;
    lock->token = op->record.token;
    lock->reentered = op->reentered;
    lock->on_lost = options->on_lost;
    lock->context = options->context;
    /* A lock that was there before has its own ttl, for which our heartbeat may be too slow. */
    lease_begin(&lock->lease, op->sent_ms, op->deadline_ms, op->record.ttl_ms,
                options->heartbeat_ms < op->record.ttl_ms ? options->heartbeat_ms : op->record.ttl_ms / 4);
    lock->proved_ms = op->sent_ms;
    keeper_add(lock);
    return options->defer_heartbeat ? BELAY_OK : keeper_start(lock, err);
}

static enum belay_code lock_from_op(struct belay_client *client, struct op *op,
                                    const struct belay_lock_options *options, struct belay_lock **out_lock,
                                    struct belay_error *err)
{
    struct run_hooks hooks = { options->cancel, options->on_waiting, options->context };
    struct belay_lock *lock = lock_new(client, op->request.key);
    enum belay_code code;

    if (lock == NULL) {
        return error_no_memory(err);
    }
    client_run(client, op, &hooks);
    code = op->code;
    if (code != BELAY_OK) {
        (void)error_set(err, code, "%s", op->err.text);
        error_set_holder(err, op->err.holder);
        op->err.holder = NULL;
        goto done;
    }
    code = lock_fill(lock, op, options, err);
    if (code != BELAY_OK) {
        (void)belay_release(client, op->record.key, op->record.lock_id, BELAY_OUTCOME_FAILED, NULL, NULL);
        goto done;
    }
    *out_lock = lock;
    lock = NULL; /* the caller's now */

done:
    belay_lock_free(lock);
    return code;
}

/* A lock that protects nothing, for when locking is switched off. Its id is for people and for release. */
static enum belay_code lock_unprotected(struct belay_client *client, const struct op_request *request,
                                        struct belay_lock **out_lock, struct belay_error *err)
{
    const struct belay_info nobody = { .key = (char *)request->key,
                                       .lock_id = (char *)request->lock_id,
                                       .locked_by = (char *)"",
                                       .locked_by_name = (char *)"",
                                       .valid_for_ms = -1 };
    struct belay_lock *lock = lock_new(client, request->key);

    if (lock == NULL || (lock->info = info_copy(&nobody)) == NULL) {
        belay_lock_free(lock);
        return error_no_memory(err);
    }
    client_say_unprotected(client, request);
    *out_lock = lock;
    return BELAY_OK;
}

static const struct belay_lock_options default_options = BELAY_LOCK_OPTIONS_INIT;

/* Run what `request` asks for, begun by `start`, to a lock. Ends the request. */
static enum belay_code take(struct belay_client *client, struct request *request,
                            const struct belay_lock_options *options, struct belay_lock **out_lock,
                            struct belay_error *err)
{
    enum belay_code code;
    struct op op;

    if (client->enabled) {
        op_start(&op, &request->op, clock_boot_ms());
        code = lock_from_op(client, &op, options, out_lock, err);
        op_destroy(&op);
    } else {
        code = lock_unprotected(client, &request->op, out_lock, err);
    }
    request_release(request);
    return code;
}

enum belay_code belay_lock_acquire(struct belay_client *client, const char *key,
                                   const struct belay_lock_options *options, struct belay_lock **out_lock,
                                   struct belay_error *err)
{
    const struct belay_lock_options *settings = options == NULL ? &default_options : options;
    struct request request;
    enum belay_code code = request_init_lock(&request, client, key, settings, err);

    return code == BELAY_OK ? take(client, &request, settings, out_lock, err) : code;
}

enum belay_code belay_lock_adopt(struct belay_client *client, const char *key, const char *lock_id,
                                 const struct belay_lock_options *options, struct belay_lock **out_lock,
                                 struct belay_error *err)
{
    const struct belay_lock_options *settings = options == NULL ? &default_options : options;
    struct request request;
    enum belay_code code = request_init_adopt(&request, client, key, lock_id, settings, err);

    return code == BELAY_OK ? take(client, &request, settings, out_lock, err) : code;
}

enum belay_code belay_lock_start_heartbeat(struct belay_lock *lock, struct belay_error *err)
{
    return lock->lock_id == NULL ? BELAY_OK : keeper_start(lock, err);
}

enum belay_code belay_lock_renew(struct belay_lock *lock, struct belay_error *err)
{
    enum belay_code code;

    if (lock->lock_id == NULL) {
        return BELAY_OK;
    }
    if (!belay_lock_is_mine(lock)) {
        return error_set(err, BELAY_LOST, "lock '%s' was lost or released before", lock->key);
    }
    code = keeper_renew(lock, err);
    if (code == BELAY_NOT_HOLDER || code == BELAY_NOT_FOUND) {
        code = BELAY_LOST;
        if (err != NULL) {
            err->code = code;
        }
    }
    if (code == BELAY_LOST) {
        keeper_lose(lock);
    }
    return code;
}

enum belay_code belay_lock_release(struct belay_lock *lock, enum belay_outcome outcome,
                                   struct belay_error *err)
{
    struct belay_client *client = lock->client;
    struct belay_info *info = NULL;
    bool lost;
    enum belay_code code;

    if (lock->lock_id == NULL) {
        return BELAY_OK;
    }
    keeper_quiet(lock);
    (void)pthread_mutex_lock(&client->mutex);
    lost = lock->lost || lease_has_run_out(&lock->lease, clock_boot_ms());
    if (lost && !lock->lost) {
        lock->lost = lock->lost_unsaid = true;
    }
    lease_end(&lock->lease);
    (void)pthread_mutex_unlock(&client->mutex);
    if (lock->reentered) {
        return lost ? error_set(err, BELAY_LOST, "lock '%s' was lost", lock->key) : BELAY_OK;
    }
    /* Even one that was lost: if nobody has taken it since, the next need not wait. */
    code = belay_release(client, lock->key, lock->lock_id, outcome, &info, err);
    /* Somebody ended it before us: that nobody has taken it since is luck. */
    lost = lost || (code == BELAY_OK && info != NULL && info->outcome == BELAY_OUTCOME_FORCED);
    belay_info_free(info);
    if (lost || code == BELAY_NOT_HOLDER || code == BELAY_NOT_FOUND) {
        return error_set(err, BELAY_LOST, "lock '%s' was lost before it was released", lock->key);
    }
    return code;
}

void belay_lock_free(struct belay_lock *lock)
{
    if (lock == NULL) {
        return;
    }
    if (lock->lock_id != NULL) {
        keeper_remove(lock);
    }
    for (size_t i = 0; i < lock->n_ancestors; i++) {
        free(lock->ancestors[i]);
    }
    belay_info_free(lock->info);
    belay_info_free(lock->shown);
    free(lock->key);
    free(lock->lock_id);
    free(lock->owner);
    free(lock->owner_name);
    meta_free(lock->metadata, lock->n_metadata);
    free(lock);
}

const char *belay_lock_key(const struct belay_lock *lock)
{
    return lock->key;
}

const char *belay_lock_id(const struct belay_lock *lock)
{
    return lock->lock_id;
}

uint64_t belay_lock_token(const struct belay_lock *lock)
{
    return lock->token;
}

bool belay_lock_is_protected(const struct belay_lock *lock)
{
    return lock->lock_id != NULL;
}

bool belay_lock_is_reentered(const struct belay_lock *lock)
{
    return lock->reentered;
}

const struct belay_info *belay_lock_info(struct belay_lock *lock)
{
    (void)pthread_mutex_lock(&lock->client->mutex);
    belay_info_free(lock->shown);
    lock->shown = info_copy(lock->info);
    if (lock->shown != NULL && lock->lock_id != NULL) {
        int64_t left_ms = lock->lease.deadline_ms - clock_boot_ms();

        lock->shown->valid_for_ms = lock->lease.over || left_ms < 0 ? 0 : left_ms;
    }
    (void)pthread_mutex_unlock(&lock->client->mutex);
    return lock->shown;
}

int64_t belay_lock_deadline_boot_ms(struct belay_lock *lock)
{
    int64_t deadline_ms = INT64_MAX;

    if (lock->lock_id != NULL) {
        (void)pthread_mutex_lock(&lock->client->mutex);
        deadline_ms = lock->lease.over ? 0 : lock->lease.deadline_ms;
        (void)pthread_mutex_unlock(&lock->client->mutex);
    }
    return deadline_ms;
}

int64_t belay_lock_heartbeat_ms(struct belay_lock *lock)
{
    int64_t beat_ms;

    (void)pthread_mutex_lock(&lock->client->mutex);
    beat_ms = lock->lease.heartbeat_ms > 0 ? lock->lease.beat_ms : 0;
    (void)pthread_mutex_unlock(&lock->client->mutex);
    return beat_ms;
}

bool belay_lock_is_mine(struct belay_lock *lock)
{
    return lock->lock_id != NULL && clock_boot_ms() < belay_lock_deadline_boot_ms(lock);
}
