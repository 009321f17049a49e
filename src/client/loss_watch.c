/*
 * Whether a held lock is still ours: the holder of a lock that was ended by force must
 * not go on until its next heartbeat, which may be far away (L6). One thread for each
 * lock with on_lost.
 *
 *     a server, by its URL     a request that is answered once the lock is no longer ours
 *     SQLite, served or not    the client that ends a lock wakes the holder, which reads it
 *     other stores             the holder polls every 8 s, unless a renewal has proved it since
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/pool.h"
#include "client/client.h"

enum {
    HELD_MS = 60000, /* of one request; a server whose store wakes no waiters ends it sooner */
    WOKEN_MS = 10000,
    FIRST_MS = 100,     /* before the first look: most of what a lock protects is over by then */
    SPURIOUS_MS = 1000, /* a wait that ends by itself sooner than this was none */
    LOOK_MS = 8000,
    NEAR_MS = 9500, /* a heartbeat that is due within so long shows it as well */
    AGAIN_MS = 1000
};

static bool watch_is_over(struct belay_lock *lock)
{
    bool over;

    if (belay_cancel_requested(lock->watch_cancel)) {
        return true; /* its release has begun */
    }
    (void)pthread_mutex_lock(&lock->client->mutex);
    over = lock->ending || lock->lost || lock->lease.over;
    (void)pthread_mutex_unlock(&lock->client->mutex);
    return over;
}

static bool is_one_of_holders(const struct belay_info *info, const char *lock_id)
{
    for (size_t i = 0; i < info->n_holders; i++) {
        if (info->holders[i].lock_id != NULL && strcmp(info->holders[i].lock_id, lock_id) == 0) {
            return true;
        }
    }
    return false;
}

/* BELAY_LOST: the lock on that key is not ours any more. Anything else proves nothing. */
static enum belay_code look_at(struct belay_lock *lock, const char *key, struct belay_error *err)
{
    struct belay_info *info = NULL;
    enum belay_code code = belay_get(lock->client, key, &info, err);

    assert(key != NULL && lock->is_protected);
    if (code == BELAY_NOT_FOUND) {
        return error_set(err, BELAY_LOST, "lock '%s' was ended by another client", key);
    }
    if (code == BELAY_OK && is_one_of_holders(info, lock->grant->lock_id)) {
        code = BELAY_OK;
    } else if (code == BELAY_OK && info->lock_id != NULL &&
               strcmp(info->lock_id, lock->grant->lock_id) != 0) {
        code = error_set(err, BELAY_LOST, "lock '%s' was ended by another client, and is held by %s", key,
                         info->locked_by);
    } else if (code == BELAY_OK && info->status == BELAY_STATUS_RELEASED) {
        code = error_set(err, BELAY_LOST, "lock '%s' was released%s", key,
                         info->outcome == BELAY_OUTCOME_FORCED ? " by force" : " by another client");
    }
    belay_info_free(info);
    return code;
}

static enum belay_code look(struct belay_lock *lock, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && i < belay_lock_n_keys(lock); i++) {
        code = look_at(lock, belay_lock_key_at(lock, i), err);
    }
    return code;
}

static enum belay_code await_server(struct belay_lock *lock, struct belay_error *err)
{
    struct backend *backend = lock->client->route.first;
    const struct op_request request = { .key = lock->grant->key,
                                        .joint = lock->joint,
                                        .lock_id = lock->grant->lock_id };
    int64_t wait_ms = lock->watch_failed ? 0 : HELD_MS; /* what happened meanwhile is to be seen at once */
    enum belay_code code = backend->ops->await_loss(backend, &request, wait_ms, lock->watch_cancel, err);

    assert(backend->ops->await_loss != NULL && lock->watch_cancel != NULL);
    lock->watch_failed = false;
    switch (code) {
    case BELAY_OK:
    case BELAY_CANCELLED:
        break;
    case BELAY_LOST:
    case BELAY_NOT_HOLDER:
    case BELAY_NOT_FOUND:
        return BELAY_LOST;
    case BELAY_CONFIG: /* an older server */
    case BELAY_NOT_PERMITTED:
        lock->polls = true;
        break;
    default:
        lock->watch_failed = true;
        client_sleep(AGAIN_MS, lock->watch_cancel);
    }
    return BELAY_OK;
}

/*
 * Listen before looking, or the wake-up between the two would be missed. The first look comes
 * a little later, or with the first wake-up: it finds a lock that was ended before this thread
 * listened.
 */
static enum belay_code await_wake(struct belay_lock *lock, struct belay_error *err)
{
    struct belay_store *store = lock->client->store;
    uint32_t heard = store->ops->listen(store, lock->grant->lock_id);
    int64_t began_ms = clock_boot_ms();
    enum belay_code code;

    assert(began_ms >= lock->looked_ms);
    if (lock->looked_ms == 0) {
        lock->looked_ms = began_ms;
        store->ops->wait(store, lock->grant->lock_id, heard, FIRST_MS, lock->watch_cancel);
        return BELAY_OK;
    }
    code = look(lock, err);
    if (code == BELAY_LOST) {
        return code;
    }
    store->ops->wait(store, lock->grant->lock_id, heard, WOKEN_MS, lock->watch_cancel);
    if (store->ops->listen(store, lock->grant->lock_id) == heard &&
        clock_boot_ms() - began_ms < SPURIOUS_MS) {
        client_sleep(SPURIOUS_MS, lock->watch_cancel);
    }
    return BELAY_OK;
}

/* When the store has to be asked: some time after the last sign that the lock is ours. */
static int64_t next_look_ms(struct belay_lock *lock)
{
    int64_t seen_ms;
    int64_t beat_ms;

    (void)pthread_mutex_lock(&lock->client->mutex);
    seen_ms = lock->proved_ms > lock->looked_ms ? lock->proved_ms : lock->looked_ms;
    beat_ms = lock->lease.next_beat_ms;
    (void)pthread_mutex_unlock(&lock->client->mutex);
    return beat_ms - seen_ms > 0 && beat_ms - seen_ms <= NEAR_MS ? seen_ms + NEAR_MS : seen_ms + LOOK_MS;
}

static enum belay_code await_look(struct belay_lock *lock, struct belay_error *err)
{
    client_sleep(next_look_ms(lock) - clock_boot_ms(), lock->watch_cancel);
    if (belay_cancel_requested(lock->watch_cancel) || next_look_ms(lock) > clock_boot_ms()) {
        return BELAY_OK;
    }
    lock->looked_ms = clock_boot_ms();
    return look(lock, err);
}

static enum belay_code await_sign(struct belay_lock *lock, struct belay_error *err)
{
    const struct belay_client *client = lock->client;

    if (client->route.first->ops->await_loss != NULL && !lock->polls) {
        return await_server(lock, err);
    }
    return client->store != NULL && client->store->ops->wait != NULL ? await_wake(lock, err)
                                                                     : await_look(lock, err);
}

static void *watch_main(void *argument)
{
    struct belay_lock *lock = argument;
    struct belay_error err = BELAY_ERROR_INIT;

    while (!watch_is_over(lock)) {
        if (await_sign(lock, &err) == BELAY_LOST) {
            keepalive_tell_lost(lock, err.text);
        }
    }
    belay_error_release(&err);
    return NULL;
}

bool loss_watch_start(struct belay_lock *lock)
{
    assert(lock->is_protected && lock->on_lost != NULL);
    if (lock->watches) {
        return true;
    }
    lock->watch_cancel = belay_cancel_new();
    if (lock->watch_cancel == NULL) {
        return false;
    }
    lock->watches = thread_start(&lock->watch_thread, watch_main, lock);
    if (!lock->watches) {
        belay_cancel_free(lock->watch_cancel);
        lock->watch_cancel = NULL;
    }
    return lock->watches;
}

void loss_watch_cancel(struct belay_lock *lock)
{
    assert(lock->watches == (lock->watch_cancel != NULL));
    if (lock->watches) {
        belay_cancel_request(lock->watch_cancel);
    }
}

void loss_watch_end(struct belay_lock *lock)
{
    if (lock->watches) {
        loss_watch_cancel(lock);
        (void)pthread_join(lock->watch_thread, NULL);
        belay_cancel_free(lock->watch_cancel);
        lock->watch_cancel = NULL;
        lock->watches = false;
    }
}
