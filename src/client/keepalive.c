/*
 * Two timers keep the leases of a client. The renewal timer renews, which may take as
 * long as the store does. The deadline timer never waits for the store, so that a slow
 * store cannot keep a holder from hearing in time that it has lost its lock. loss_watch.c
 * notices that another client has ended a lock.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"
#include "lock/info.h"

static struct belay_event event_of_lock(const struct belay_lock *lock, const char *type, const char *why)
{
    return (struct belay_event){ .at_unix_ms = clock_unix_ms(),
                                 .level = BELAY_LEVEL_WARNING,
                                 .type = type,
                                 .key = lock->grant->key,
                                 .lock_id = lock->grant->lock_id,
                                 .token = lock->grant->token,
                                 .locked_by = lock->grant->locked_by,
                                 .locked_by_name = lock->grant->locked_by_name,
                                 .reason = why,
                                 .metadata = lock->grant->metadata,
                                 .n_metadata = lock->grant->n_metadata,
                                 .duration_ms = -1 };
}

/* The loss as an event, once the store can be asked. Without the mutex. */
static void note_loss(struct belay_lock *lock, const char *why)
{
    struct belay_event event = event_of_lock(lock, "lock.lost", why);

    enum belay_code code;

    ROUTE(&lock->client->route, code, NULL, note, &event);
    (void)code; /* best effort */
}

/* A renewal that will be tried again: counted (S4.11), but not a change that a store would keep. */
static void tell_failed_beat(const struct belay_lock *lock, const char *why)
{
    const struct belay_client *client = lock->client;
    struct belay_event event = event_of_lock(lock, "heartbeat.failed", why);

    if (client->on_event != NULL) {
        client->on_event(client->context, &event);
    }
}

/* With the mutex held; it is unlocked for the callback. `users` keeps the lock from being freed meanwhile. */
static void tell_lost(struct belay_lock *lock, const char *why)
{
    struct belay_client *client = lock->client;

    assert(lock->is_protected && lock->users >= 0);
    if (lock->lost) {
        return;
    }
    assert(!lock->loss_unreported);
    lock->lost = true;
    lock->loss_unreported = true;
    lease_end(&lock->lease);
    if (lock->on_lost != NULL && !lock->ending) {
        lock->users++;
        (void)pthread_mutex_unlock(&client->mutex);
        lock->on_lost(lock->context, lock, why);
        (void)pthread_mutex_lock(&client->mutex);
        assert(lock->users > 0);
        lock->users--; /* not restored: the heartbeat may have ended meanwhile */
        (void)pthread_cond_broadcast(&client->idle);
    }
    ticker_poke(&client->renew_timer);
}

void keepalive_tell_lost(struct belay_lock *lock, const char *why)
{
    struct belay_client *client = lock->client;

    (void)pthread_mutex_lock(&client->mutex);
    if (!lock->ending) {
        tell_lost(lock, why);
    }
    (void)pthread_mutex_unlock(&client->mutex);
}

enum belay_code keepalive_renew(struct belay_lock *lock, struct belay_error *err)
{
    struct belay_client *client = lock->client;
    const struct belay_info *grant = lock->grant;
    struct op_request request = { .kind = OP_RENEW,
                                  .key = grant->key,
                                  .n_ancestors = lock->n_ancestors,
                                  .joint = lock->joint,
                                  .mode = grant->mode,
                                  .slots = grant->slots,
                                  .lock_id = grant->lock_id,
                                  .owner = grant->locked_by,
                                  .owner_name = grant->locked_by_name,
                                  .capabilities = client_capabilities(client),
                                  .began_ms = clock_boot_ms(),
                                  .seed = (uint64_t)clock_boot_ms() };
    struct op_result result;
    enum belay_code code;

    assert(lock->is_protected && lock->n_ancestors <= BELAY_ANCESTORS_MAX);
    memcpy(request.ancestors, lock->ancestors, sizeof request.ancestors);
    (void)pthread_mutex_lock(&client->mutex);
    request.ttl_ms = lock->lease.ttl_ms;
    request.rely_until_ms = lock->lease.deadline_ms;
    (void)pthread_mutex_unlock(&client->mutex);
    code = route_run(&client->route, &request, NULL, &result, err);
    if (code != BELAY_OK) {
        return code;
    }
    assert(result.info != NULL);
    (void)pthread_mutex_lock(&client->mutex);
    if (lock->lease.over) {
        code = error_set(err, BELAY_LOST, "lock '%s' was lost before", grant->key);
        belay_info_free(result.info);
    } else {
        lease_renewed(&lock->lease, result.sent_ms, result.deadline_ms, result.info->ttl_ms);
        lock->proved_ms = result.sent_ms;
        belay_info_free(lock->info);
        lock->info = result.info;
        ticker_poke(&client->deadline_timer);
    }
    (void)pthread_mutex_unlock(&client->mutex);
    return code;
}

/* Whether a failed renewal means that the lock is not ours. */
static bool means_lost(enum belay_code code)
{
    assert(code != BELAY_REFUSED); /* it does not leave the backend */
    return code == BELAY_LOST || code == BELAY_NOT_HOLDER || code == BELAY_NOT_FOUND;
}

void keepalive_lose(struct belay_lock *lock)
{
    (void)pthread_mutex_lock(&lock->client->mutex);
    lock->lease.deadline_ms = 0; /* as if it had expired: the deadline timer calls on_lost */
    ticker_poke(&lock->client->deadline_timer);
    (void)pthread_mutex_unlock(&lock->client->mutex);
}

/* With the mutex held. */
static void beat(struct belay_lock *lock)
{
    struct belay_client *client = lock->client;
    struct belay_error err = BELAY_ERROR_INIT;
    bool unreported = lock->loss_unreported;
    char span[CLOCK_TEXT_SIZE];
    int64_t lasted_ms;
    enum belay_code code = BELAY_OK;

    assert(lock->users == 0 && !lock->ending);
    lock->users++;
    lock->loss_unreported = false;
    (void)pthread_mutex_unlock(&client->mutex);
    if (unreported) {
        note_loss(lock, "the lease could no longer be proved");
    } else {
        code = keepalive_renew(lock, &err);
        if (code != BELAY_OK && code != BELAY_NOT_FOUND) {
            tell_failed_beat(lock, err.text);
        }
    }
    (void)pthread_mutex_lock(&client->mutex);
    assert(lock->users > 0);
    lock->users--;
    if (means_lost(code)) {
        tell_lost(lock, err.text);
    } else if (code != BELAY_OK) {
        lease_beat_failed(&lock->lease, clock_boot_ms());
        if (outage_note(&lock->outage, code, clock_boot_ms())) {
            client_warn(client, "lock '%s' was not renewed, trying again: %s", lock->grant->key, err.text);
        }
    } else if (!unreported && outage_end(&lock->outage, clock_boot_ms(), &lasted_ms)) {
        client_warn(client, "lock '%s' was renewed again, after %s", lock->grant->key,
                    clock_format_span(span, lasted_ms));
    }
    (void)pthread_cond_broadcast(&client->idle);
    belay_error_release(&err);
}

static bool wants_beat(const struct belay_lock *lock, int64_t now_ms)
{
    if (lock->users > 0 || lock->ending) {
        return false;
    }
    return lock->loss_unreported || lease_wants_beat(&lock->lease, now_ms);
}

static int64_t renew_due(struct belay_client *client)
{
    int64_t next_ms = INT64_MAX;
    struct belay_lock *lock = client->locks;

    while (lock != NULL && !client->renew_timer.stop) {
        if (wants_beat(lock, clock_boot_ms())) {
            beat(lock);
            lock = client->locks; /* the list may have changed while we were away */
            next_ms = INT64_MAX;
            continue;
        }
        if (!lock->lease.over && !lock->ending && lock->lease.next_beat_ms < next_ms) {
            next_ms = lock->lease.next_beat_ms;
        }
        lock = lock->next;
    }
    return next_ms;
}

static int64_t deadline_due(struct belay_client *client)
{
    int64_t next_ms = INT64_MAX;
    struct belay_lock *lock = client->locks;

    while (lock != NULL && !client->deadline_timer.stop) {
        if (!lock->lost && lease_has_run_out(&lock->lease, clock_boot_ms())) {
            tell_lost(lock, "the lease ran out before it could be renewed");
            lock = client->locks;
            next_ms = INT64_MAX;
            continue;
        }
        if (!lock->lease.over && lock->lease.deadline_ms < next_ms) {
            next_ms = lock->lease.deadline_ms;
        }
        lock = lock->next;
    }
    return next_ms;
}

void keepalive_add(struct belay_lock *lock)
{
    struct belay_client *client = lock->client;

    assert(lock->is_protected && !lock->lease.over && !lock->ending && !lock->lost);
    assert(lock->grant != NULL && lock->users == 0 && lock->next == NULL);
    (void)pthread_mutex_lock(&client->mutex);
    lock->next = client->locks;
    client->locks = lock;
    (void)pthread_mutex_unlock(&client->mutex);
}

enum belay_code keepalive_start(struct belay_lock *lock, struct belay_error *err)
{
    struct belay_client *client = lock->client;
    bool ok = true;

    (void)pthread_mutex_lock(&client->mutex);
    if (lock->lease.heartbeat_ms > 0 && !client->renew_timer.running) {
        ok = ticker_start(&client->renew_timer, client, renew_due);
    }
    if (ok && lock->on_lost != NULL && !client->deadline_timer.running) {
        ok = ticker_start(&client->deadline_timer, client, deadline_due);
    }
    ticker_poke(&client->renew_timer);
    ticker_poke(&client->deadline_timer);
    (void)pthread_mutex_unlock(&client->mutex);
    ok = ok && (lock->on_lost == NULL || loss_watch_start(lock));
    return ok ? BELAY_OK : error_set(err, BELAY_NO_MEMORY, "cannot start a thread to keep the lock alive");
}

void keepalive_quiesce(struct belay_lock *lock)
{
    struct belay_client *client = lock->client;

    loss_watch_cancel(lock);
    (void)pthread_mutex_lock(&client->mutex);
    assert(lock->users >= 0);
    lock->ending = true;
    while (lock->users > 0) {
        (void)pthread_cond_wait(&client->idle, &client->mutex);
    }
    (void)pthread_mutex_unlock(&client->mutex);
}

void keepalive_remove(struct belay_lock *lock)
{
    struct belay_client *client = lock->client;
    bool unreported;

    keepalive_quiesce(lock);
    loss_watch_end(lock);
    (void)pthread_mutex_lock(&client->mutex);
    for (struct belay_lock **at = &client->locks; *at != NULL; at = &(*at)->next) {
        if (*at == lock) {
            *at = lock->next;
            break;
        }
    }
    assert(lock->ending && lock->users == 0);
    lease_end(&lock->lease);
    unreported = lock->loss_unreported;
    (void)pthread_mutex_unlock(&client->mutex);
    if (unreported) {
        note_loss(lock, "the lease could no longer be proved");
    }
}
