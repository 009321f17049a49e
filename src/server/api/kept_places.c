#include "server/api/kept_places.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "server/core/server.h"

/* ---- the table ---- */

static struct pending_acquire **bucket_of_id(struct pending_acquires *all, const char *lock_id)
{
    return &all->buckets[text_hash(lock_id) % PENDING_BUCKETS];
}

static struct pending_acquire *find_pending(struct pending_acquires *all, const char *lock_id)
{
    struct pending_acquire *pending = *bucket_of_id(all, lock_id);

    while (pending != NULL && (!pending->has_id || strcmp(pending->lock_id, lock_id) != 0)) {
        pending = pending->next;
    }
    return pending;
}

void pending_add(struct pending_acquires *all, struct pending_acquire *pending)
{
    /* One without an id is never searched for: any bucket will do. */
    pending->bucket = pending->has_id ? bucket_of_id(all, pending->lock_id)
                                      : &all->buckets[((uintptr_t)pending >> 6) % PENDING_BUCKETS];
    pending->next = *pending->bucket;
    *pending->bucket = pending;
    all->n++;
}

static void link_kept(struct pending_acquire *pending)
{
    struct pending_acquires *all = pending->server->pending_acquires;

    pending->kept_back = &all->kept[pending->client % PENDING_CLIENT_BUCKETS];
    pending->next_kept = *pending->kept_back;
    if (pending->next_kept != NULL) {
        pending->next_kept->kept_back = &pending->next_kept;
    }
    *pending->kept_back = pending;
    all->n_kept++;
}

static void unlink_kept(struct pending_acquire *pending)
{
    assert(*pending->kept_back == pending && pending->server->pending_acquires->n_kept > 0);
    *pending->kept_back = pending->next_kept;
    if (pending->next_kept != NULL) {
        pending->next_kept->kept_back = pending->kept_back;
    }
    pending->server->pending_acquires->n_kept--;
}

void pending_set_state(struct pending_acquire *pending, enum pending_state state)
{
#define TO(state) (1U << PENDING_##state)
    static const unsigned may_become[] = {
        [PENDING_WAITING] = TO(WAITING) | TO(KEPT) | TO(LEAVING) | TO(UNCLAIMED),
        [PENDING_KEPT] = TO(WAITING) | TO(LEAVING) | TO(UNCLAIMED),
        [PENDING_LEAVING] = TO(UNCLAIMED),
        [PENDING_UNCLAIMED] = 0,
    };
#undef TO

    assert((may_become[pending->state] & 1U << state) != 0);
    assert(state != PENDING_KEPT || pending->x == NULL);
    assert(state != PENDING_UNCLAIMED || pending->call == NULL);
    if (pending->state == PENDING_KEPT) {
        unlink_kept(pending);
    }
    pending->state = state;
    if (pending->state == PENDING_KEPT) {
        link_kept(pending);
    }
}

void held_reply_free(struct held_reply *reply)
{
    if (reply != NULL) {
        belay_error_release(&reply->err);
        json_decref(reply->more);
        free(reply);
    }
}

static void pending_free(struct pending_acquire *pending)
{
    held_reply_free(pending->reply);
    free(pending->keys);
    free(pending);
}

void pending_drop(struct pending_acquire *pending)
{
    struct pending_acquires *all = pending->server->pending_acquires;
    struct pending_acquire **at = pending->bucket;

    while (*at != pending) {
        at = &(*at)->next;
    }
    assert(all->n > 0);
    *at = pending->next;
    all->n--;
    if (pending->state == PENDING_KEPT) {
        unlink_kept(pending);
    }
    loop_timer_cancel(pending->server->loop, &pending->timer);
    if (pending->x != NULL) {
        pending->x->pending = NULL;
    }
    pending_free(pending);
}

/* ---- leaving the queue ---- */

void pending_leave(struct pending_acquire *pending)
{
    assert(pending->call != NULL);
    pending_set_state(pending, PENDING_LEAVING);
    loop_timer_cancel(pending->server->loop, &pending->timer);
    belay_async_cancel(pending->call);
}

void pending_leave_older_places(const struct pending_acquire *pending)
{
    struct pending_acquire *next;

    for (struct pending_acquire *other =
             pending->server->pending_acquires->kept[pending->client % PENDING_CLIENT_BUCKETS];
         other != NULL; other = next) {
        next = other->next_kept;
        if (other->client == pending->client && strcmp(other->key, pending->key) == 0 &&
            lock_keys_are_same(other->keys, pending->keys) && strcmp(other->owner, pending->owner) == 0) {
            pending_leave(other);
        }
    }
}

/* ---- a lock that no client has claimed ---- */

void pending_release_unclaimed(struct pending_acquire *pending)
{
    log_note(&pending->server->log, LOG_INFO, "unclaimed",
             "'%s' was granted to %s, which is gone; releasing it", pending->key, pending->owner);
    server_release(pending->server, pending->key, pending->keys, pending->lock_id, NULL);
    pending_drop(pending);
}

/*
 * On a store on the network, the client may have switched to another server with its lock id, and hold the lock
 * through that. So the lock is not released here: its lease ends it unless the client does.
 */
void pending_keep_unclaimed(struct pending_acquire *pending, const struct belay_info *info)
{
    assert(pending->x == NULL && pending->call == NULL && info != NULL);
    if (pending->has_id && !pending->server->is_store_local) {
        log_note(&pending->server->log, LOG_INFO, "unclaimed",
                 "'%s' was granted to %s, which is gone; it is left to its lease", pending->key,
                 pending->owner);
        pending_drop(pending);
        return;
    }
    pending_set_state(pending, PENDING_UNCLAIMED);
    if (pending->has_id && loop_timer_set(pending->server->loop, &pending->timer,
                                          loop_now_ms(pending->server->loop) + PENDING_UNCLAIMED_MS)) {
        return;
    }
    if (!pending->has_id && info->lock_id != NULL) {
        (void)strncpy(pending->lock_id, info->lock_id, BELAY_ID_MAX);
    }
    pending_release_unclaimed(pending);
}

/* ---- a client comes back ---- */

bool pending_start_slice(struct pending_acquire *pending, int64_t wait_ms)
{
    pending_set_state(pending, PENDING_WAITING);
    pending->looked_ms = 0;
    return !pending->can_wait || loop_timer_set(pending->server->loop, &pending->timer,
                                                loop_now_ms(pending->server->loop) + wait_ms);
}

/* Without memory for the timer, the request is answered when the call has left. */
static void await_leaving(struct pending_acquire *pending, int64_t wait_ms)
{
    struct loop *loop = pending->server->loop;
    int64_t most_ms = wait_ms > PENDING_LEAVE_MAX_MS ? wait_ms : PENDING_LEAVE_MAX_MS;

    (void)loop_timer_set(loop, &pending->timer, loop_now_ms(loop) + most_ms);
}

bool pending_acquire_resume(struct exchange *x, const char *lock_id, int64_t wait_ms)
{
    struct server *server = x->server;
    struct pending_acquire *pending = find_pending(server->pending_acquires, lock_id);

    if (pending != NULL && strcmp(pending->who, x->who) != 0) {
        reply_not_yours(x, lock_id);
        return true;
    }
    if (pending != NULL &&
        (pending->state == PENDING_LEAVING || (!pending->can_wait && pending->call != NULL))) {
        (void)belay_client_poll(server->client); /* on a local store, the call ends here */
        pending = find_pending(server->pending_acquires, lock_id);
    }
    if (pending != NULL && pending->state == PENDING_UNCLAIMED) {
        pending_drop(pending); /* it has the lock, which a new acquire will find (L5) */
        pending = NULL;
    }
    if (pending == NULL) {
        return false;
    }
    if (strcmp(pending->key, x->key) != 0 || !lock_keys_are_same(pending->keys, x->keys)) {
        reply_problem(x, 400, "invalid", "lock_id '%s' waits for %s, '%.200s'%s", lock_id,
                      pending->keys == NULL ? "another key" : "other keys", pending->key,
                      pending->keys == NULL ? "" : " and more");
        return true;
    }
    if (pending->x != NULL) {
        struct exchange *older = pending->x;

        older->pending = NULL;
        reply_problem(older, 409, "superseded", "superseded by a newer request with the same lock_id");
    }
    assert(pending->call != NULL && x->pending == NULL);
    pending->x = x;
    x->pending = pending;
    pending->restarts = pending->state == PENDING_LEAVING || (!pending->can_wait && wait_ms > 0);
    if (pending->state == PENDING_LEAVING) {
        await_leaving(pending, wait_ms);
    } else if (!pending_start_slice(pending, wait_ms)) {
        pending_leave(pending);
    }
    return true;
}

/* ---- a client goes away ---- */

/* A token may not be permitted the key that the id waits for, and a release of another key is not about this wait. */
static bool names_key_of(const struct exchange *x, const struct pending_acquire *pending)
{
    const char *keys[BELAY_KEYS_MAX];
    size_t n = exchange_keys(x, keys);
    bool found = false;

    for (size_t i = 0; i < n; i++) {
        found = found || strcmp(keys[i], pending->key) == 0 || lock_keys_have(pending->keys, keys[i]);
    }
    return found;
}

void pending_acquire_abandon(struct exchange *x, const char *lock_id)
{
    struct pending_acquire *pending = find_pending(x->server->pending_acquires, lock_id);

    if (pending == NULL || !exchange_acts_for(x, pending->who) || !names_key_of(x, pending)) {
        return;
    }
    pending->restarts = false;
    if ((pending->state == PENDING_WAITING || pending->state == PENDING_KEPT) && pending->can_wait) {
        pending_leave(pending);
    }
}

void pending_acquire_half_closed(struct pending_acquire *pending)
{
    pending->restarts = false;
    if (pending->state == PENDING_WAITING && pending->can_wait) {
        pending_leave(pending);
    }
}

void pending_acquire_client_gone(struct pending_acquire *pending)
{
    assert(pending->x != NULL && pending->x->pending == pending);
    pending->x->pending = NULL;
    pending->x = NULL;
    if (pending->state == PENDING_WAITING && pending->can_wait) {
        pending_leave(pending);
    }
}

/* ---- all of them ---- */

static bool pending_is_allowed(const struct pending_acquire *pending)
{
    const struct tokens *tokens = pending->server->tokens;

    for (size_t i = 0; pending->keys != NULL && i < pending->keys->n; i++) {
        if (!tokens_let_lock(tokens, pending->who, pending->keys->keys[i])) {
            return false;
        }
    }
    return tokens_let_lock(tokens, pending->who, pending->key);
}

static void revoke(struct pending_acquire *pending)
{
    struct exchange *x = pending->x;

    if (x != NULL && (pending->can_wait || pending->restarts)) {
        pending->x = NULL;
        x->pending = NULL;
        reply_problem(x, 401, "unauthorized", "the token may no longer take this lock");
    }
    if (pending->state == PENDING_UNCLAIMED) {
        pending_release_unclaimed(pending);
    } else if (pending->can_wait && pending->state != PENDING_LEAVING) {
        pending_leave(pending);
    }
}

void pending_acquires_revoke(struct server *server)
{
    for (size_t i = 0; i < PENDING_BUCKETS; i++) {
        struct pending_acquire *next;

        for (struct pending_acquire *pending = server->pending_acquires->buckets[i]; pending != NULL;
             pending = next) {
            next = pending->next;
            if (!pending_is_allowed(pending)) {
                revoke(pending);
            }
        }
    }
}

void pending_acquires_stop(struct server *server)
{
    for (size_t i = 0; i < PENDING_BUCKETS; i++) {
        struct pending_acquire *next;

        for (struct pending_acquire *pending = server->pending_acquires->buckets[i]; pending != NULL;
             pending = next) {
            struct exchange *x = pending->x;

            next = pending->next;
            if (pending->state == PENDING_UNCLAIMED) {
                pending_release_unclaimed(pending);
                continue;
            }
            if (!pending->can_wait) {
                continue; /* ends by itself */
            }
            if (x != NULL) {
                pending->x = NULL;
                x->pending = NULL;
                reply_problem(x, 503, "shutting_down", "the server is stopping; retry with the same lock_id");
            }
            if (pending->has_id && pending->state != PENDING_LEAVING) {
                /* The ticket stays in the store, for a client that retries. */
                belay_async_abandon(pending->call);
                pending_drop(pending);
            } else if (pending->state != PENDING_LEAVING) {
                pending_leave(pending);
            }
        }
    }
}

void pending_acquires_release(struct pending_acquires *all)
{
    for (size_t i = 0; i < PENDING_BUCKETS; i++) {
        while (all->buckets[i] != NULL) {
            struct pending_acquire *pending = all->buckets[i];

            all->buckets[i] = pending->next;
            if (pending->x != NULL) {
                pending->x->pending = NULL;
                exchange_end(pending->x, 499);
            }
            pending_free(pending);
        }
    }
    belay_info_free(all->seen);
    all->seen = NULL;
}
