#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "client/client.h"
#include "lock/info.h"

/* A lock for what the request asks for. Before the store is asked: nothing may fail after it has granted it. */
static struct belay_lock *lock_new(struct belay_client *client, const struct op_request *request,
                                   const struct belay_lock_options *options)
{
    struct belay_lock *lock = calloc(1, sizeof *lock);
    bool ok = true;

    if (lock == NULL) {
        return NULL;
    }
    assert(request->n_ancestors <= BELAY_ANCESTORS_MAX);
    lock->client = client;
    lock->on_lost = options->on_lost;
    lock->context = options->context;
    for (size_t i = 0; ok && i < request->n_ancestors; i++) {
        lock->ancestors[i] = strdup(request->ancestors[i]);
        ok = lock->ancestors[i] != NULL;
        lock->n_ancestors += ok;
    }
    if (ok && request->joint != NULL) {
        lock->joint = joint_copy(request->joint);
        ok = lock->joint != NULL;
    }
    if (!ok) {
        belay_lock_free(lock);
        return NULL;
    }
    return lock;
}

/* A lock that protects nothing, while locking is switched off. Its id is for people and for release. */
static enum belay_code grant_unprotected(struct belay_lock *lock, const struct op_request *request,
                                         struct belay_error *err)
{
    const struct belay_info unowned = { .key = (char *)request->key,
                                        .lock_id = (char *)request->lock_id,
                                        .locked_by = (char *)"",
                                        .locked_by_name = (char *)"",
                                        .valid_for_ms = -1 };

    lock->grant = info_copy(&unowned);
    if (lock->grant == NULL) {
        return error_no_memory(err);
    }
    client_say_unprotected(lock->client, request);
    return BELAY_OK;
}

static const struct belay_lock_options default_options = BELAY_LOCK_OPTIONS_INIT;

/* Acquire the lock or, with an adopt_id, adopt the one that has that id. */
static enum belay_code take(struct belay_client *client, const char *key, const char *adopt_id,
                            const struct belay_lock_options *options, struct belay_lock **out_lock,
                            struct belay_error *err)
{
    struct wait_hooks hooks = { options->cancel, options->on_waiting, options->context };
    struct client_request request;
    struct belay_lock *lock = NULL;
    struct op_result result = { 0 };
    enum belay_code code = adopt_id == NULL
                               ? request_init_acquire(&request, client, key, options, err)
                               : request_init_adopt(&request, client, key, adopt_id, options, err);

    if (code == BELAY_OK && (lock = lock_new(client, &request.op, options)) == NULL) {
        code = error_no_memory(err);
    }
    if (code != BELAY_OK) {
        request_release(&request);
        return code;
    }
    if (!client->enabled) {
        code = grant_unprotected(lock, &request.op, err);
    } else {
        code = route_run(&client->route, &request.op, &hooks, &result, err);
    }
    if (code == BELAY_OK && client->enabled) {
        int64_t ttl_ms;

        assert(result.info != NULL);
        ttl_ms = result.info->ttl_ms > 0 ? result.info->ttl_ms : 0; /* others may have written it */
        lock->grant = result.info;
        lock->is_protected = true;
        lock->reentered = result.reentered;
        /* A lock that was there before has its own ttl, for which our heartbeat may be too slow. */
        lease_begin(&lock->lease, result.sent_ms, result.deadline_ms, ttl_ms,
                    options->heartbeat_ms < ttl_ms ? options->heartbeat_ms : ttl_ms / 4);
        lock->proved_ms = result.sent_ms;
        keepalive_add(lock);
        code = options->defer_heartbeat ? BELAY_OK : keepalive_start(lock, err);
    }
    if (code == BELAY_NO_MEMORY && client->enabled) { /* it may have been taken */
        (void)client_release(client, &request.op, BELAY_OUTCOME_FAILED, NULL, NULL);
    }
    request_release(&request);
    if (code == BELAY_OK) {
        assert(lock->grant != NULL && lock->is_protected == client->enabled);
        *out_lock = lock;
    } else {
        belay_lock_free(lock);
    }
    return code;
}

enum belay_code belay_lock_acquire(struct belay_client *client, const char *key,
                                   const struct belay_lock_options *options, struct belay_lock **out_lock,
                                   struct belay_error *err)
{
    return take(client, key, NULL, options == NULL ? &default_options : options, out_lock, err);
}

enum belay_code belay_lock_adopt(struct belay_client *client, const char *key, const char *lock_id,
                                 const struct belay_lock_options *options, struct belay_lock **out_lock,
                                 struct belay_error *err)
{
    if (lock_id == NULL) {
        return error_set(err, BELAY_INVALID, "no lock id: say which lock to adopt");
    }
    return take(client, key, lock_id, options == NULL ? &default_options : options, out_lock, err);
}

enum belay_code belay_lock_start_heartbeat(struct belay_lock *lock, struct belay_error *err)
{
    return !lock->is_protected ? BELAY_OK : keepalive_start(lock, err);
}

enum belay_code belay_lock_renew(struct belay_lock *lock, struct belay_error *err)
{
    enum belay_code code;

    if (!lock->is_protected) {
        return BELAY_OK;
    }
    if (!belay_lock_is_mine(lock)) {
        return error_set(err, BELAY_LOST, "lock '%s' was lost or released before", lock->grant->key);
    }
    code = keepalive_renew(lock, err);
    if (code == BELAY_NOT_HOLDER || code == BELAY_NOT_FOUND) {
        code = BELAY_LOST;
        if (err != NULL) {
            err->code = code;
        }
    }
    if (code == BELAY_LOST) {
        keepalive_lose(lock);
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

    if (!lock->is_protected) {
        return BELAY_OK;
    }
    keepalive_quiesce(lock);
    (void)pthread_mutex_lock(&client->mutex);
    lost = lock->lost || lease_has_run_out(&lock->lease, clock_boot_ms());
    if (lost && !lock->lost) {
        lock->lost = lock->loss_unreported = true;
    }
    lease_end(&lock->lease);
    (void)pthread_mutex_unlock(&client->mutex);
    if (lock->reentered) {
        return lost ? error_set(err, BELAY_LOST, "lock '%s' was lost", lock->grant->key) : BELAY_OK;
    }
    /* Even a lost lock: if it has not been taken since, the next waiter need not wait for the expiry. */
    code = client_release(client,
                          &(struct op_request){ .key = lock->grant->key,
                                                .joint = lock->joint,
                                                .lock_id = lock->grant->lock_id,
                                                .mode = lock->grant->mode,
                                                .slots = lock->grant->slots },
                          outcome, &info, err);
    /* Another client ended it before us; that it has not been taken since is luck. */
    lost = lost || (code == BELAY_OK && info != NULL && info->outcome == BELAY_OUTCOME_FORCED);
    belay_info_free(info);
    if (lost || code == BELAY_NOT_HOLDER || code == BELAY_NOT_FOUND) {
        return error_set(err, BELAY_LOST, "lock '%s' was lost before it was released", lock->grant->key);
    }
    return code;
}

void belay_lock_free(struct belay_lock *lock)
{
    if (lock == NULL) {
        return;
    }
    if (lock->is_protected) {
        keepalive_remove(lock);
    }
    for (size_t i = 0; i < lock->n_ancestors; i++) {
        free(lock->ancestors[i]);
    }
    free(lock->joint);
    belay_info_free(lock->grant);
    belay_info_free(lock->info);
    belay_info_free(lock->shown);
    free(lock);
}

const char *belay_lock_key(const struct belay_lock *lock)
{
    return lock->grant->key;
}

const char *belay_lock_id(const struct belay_lock *lock)
{
    return lock->is_protected ? lock->grant->lock_id : NULL;
}

size_t belay_lock_n_keys(const struct belay_lock *lock)
{
    return lock->joint == NULL ? 1 : lock->joint->n_keys;
}

const char *belay_lock_key_at(const struct belay_lock *lock, size_t i)
{
    if (i >= belay_lock_n_keys(lock)) {
        return NULL;
    }
    return lock->joint == NULL ? lock->grant->key : lock->joint->keys[i];
}

uint64_t belay_lock_token_at(const struct belay_lock *lock, size_t i)
{
    if (i == 0) {
        return lock->grant->token;
    }
    return i <= lock->grant->n_joint ? lock->grant->joint[i - 1].token : 0;
}

uint64_t belay_lock_token(const struct belay_lock *lock)
{
    return lock->grant->token;
}

bool belay_lock_is_protected(const struct belay_lock *lock)
{
    return lock->is_protected;
}

bool belay_lock_is_reentered(const struct belay_lock *lock)
{
    return lock->reentered;
}

const struct belay_info *belay_lock_info(struct belay_lock *lock)
{
    (void)pthread_mutex_lock(&lock->client->mutex);
    belay_info_free(lock->shown);
    lock->shown = info_copy(lock->info != NULL ? lock->info : lock->grant);
    if (lock->shown != NULL && lock->is_protected) {
        int64_t left_ms = lock->lease.deadline_ms - clock_boot_ms();

        info_set_valid_for(lock->shown, lock->lease.over || left_ms < 0 ? 0 : left_ms);
    }
    (void)pthread_mutex_unlock(&lock->client->mutex);
    return lock->shown;
}

int64_t belay_lock_deadline_boot_ms(struct belay_lock *lock)
{
    int64_t deadline_ms = INT64_MAX;

    if (lock->is_protected) {
        (void)pthread_mutex_lock(&lock->client->mutex);
        deadline_ms = lock->lease.over ? 0 : lock->lease.deadline_ms;
        (void)pthread_mutex_unlock(&lock->client->mutex);
    }
    return deadline_ms;
}

int64_t belay_lock_ttl_ms(const struct belay_lock *lock)
{
    return lock->grant->ttl_ms;
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
    return lock->is_protected && clock_boot_ms() < belay_lock_deadline_boot_ms(lock);
}
