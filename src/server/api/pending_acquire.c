#include "server/api/pending_acquire.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fnv.h"
#include "base/text.h"
#include "server/core/server.h"
#include "telemetry/telemetry.h"

enum { SEEN_FRESH_MS = 50, LOOK_MS = 20, LOOK_MAX_MS = 1000 };

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

static void add_pending(struct pending_acquires *all, struct pending_acquire *pending)
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
    *pending->kept_back = pending->next_kept;
    if (pending->next_kept != NULL) {
        pending->next_kept->kept_back = pending->kept_back;
    }
    pending->server->pending_acquires->n_kept--;
}

static void pending_set_state(struct pending_acquire *pending, enum pending_state state)
{
    assert(pending->state != PENDING_UNCLAIMED);
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

static void pending_free(struct pending_acquire *pending)
{
    free(pending->keys);
    free(pending);
}

static void pending_drop(struct pending_acquire *pending)
{
    struct pending_acquires *all = pending->server->pending_acquires;
    struct pending_acquire **at = pending->bucket;

    while (*at != pending) {
        at = &(*at)->next;
    }
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

/* ---- replies to waiters ---- */

/* How many wait before it; -1: it is not in the queue. The store does not return ids: owner and start time identify
   the waiter. */
static json_int_t position_of(const struct pending_acquire *pending, const struct belay_info *info)
{
    int64_t nearest_ms = INT64_MAX;
    json_int_t position = -1;

    for (size_t i = 0; i < info->n_waiters; i++) {
        const struct belay_waiter *other = &info->waiters[i];
        int64_t apart_ms = llabs(other->since_unix_ms - pending->began_unix_ms);

        if (apart_ms < nearest_ms && strcmp(other->locked_by, pending->owner) == 0 &&
            strcmp(other->key, pending->key) == 0) {
            nearest_ms = apart_ms;
            position = (json_int_t)i;
        }
    }
    return position;
}

/* Many slices may end at once, so the last read serves for a moment those that were in the queue by then. */
static bool has_just_seen(const struct pending_acquire *pending)
{
    const struct pending_acquires *all = pending->server->pending_acquires;

    return all->seen != NULL && strcmp(all->seen->key, pending->key) == 0 &&
           loop_now_ms(pending->server->loop) - all->seen_ms <= SEEN_FRESH_MS &&
           position_of(pending, all->seen) >= 0;
}

/* The lock with its queue. */
static enum belay_code read_lock_with_queue(struct pending_acquire *pending,
                                            const struct belay_info **out_info, struct belay_error *err)
{
    struct pending_acquires *all = pending->server->pending_acquires;
    enum belay_code code;

    if (!has_just_seen(pending)) {
        belay_info_free(all->seen);
        all->seen = NULL;
        code = belay_get(pending->server->client, pending->key, &all->seen, err);
        if (code != BELAY_OK) {
            return code;
        }
        all->seen_ms = loop_now_ms(pending->server->loop);
    }
    *out_info = all->seen;
    return BELAY_OK;
}

/* A store on the network is not read again: what the call saw last suffices. */
static json_t *seen_by_call(const struct pending_acquire *pending, const struct exchange *x,
                            struct belay_error *err)
{
    struct belay_wait_info waiting = { 0 };
    bool all = pending->call != NULL && belay_async_is_waiting(pending->call, &waiting);

    (void)error_set(err, BELAY_HELD, "lock '%s' is not free yet", pending->key);
    if (all && waiting.frozen != NULL) {
        (void)error_set(err, BELAY_FROZEN, "%s", waiting.frozen);
    } else if (all && waiting.holder != NULL) {
        char until[CLOCK_TEXT_SIZE];

        (void)error_set(err, BELAY_HELD, "lock '%s' held by %s until %s",
                        pending->keys == NULL ? pending->key : waiting.holder->key, waiting.holder->locked_by,
                        clock_format_utc(until, waiting.holder->expires_at_unix_ms, false));
    }
    return json_pack("{s:o, s:o}", "position", all ? json_integer((json_int_t)waiting.position) : json_null(),
                     "lock", all && waiting.holder != NULL ? blocker_for(x, waiting.holder) : json_null());
}

/* True, and answered, if the store fails: it is not known whether the lock is held. */
static bool say_trouble(const struct pending_acquire *pending, struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (pending->call == NULL || !belay_async_is_retrying(pending->call)) {
        return false;
    }
    (void)error_set(&err, BELAY_UNREACHABLE, "lock '%s': the store is failing; retry with the same lock_id",
                    pending->key);
    reply_error(x, &err);
    belay_error_release(&err);
    return true;
}

/* How long the place is kept, and how to use it. */
static void add_place(json_t *more, int64_t kept_ms)
{
    (void)json_object_set_new(more, "place_kept_ms", json_integer((json_int_t)kept_ms));
    (void)json_object_set_new(
        more, "hint",
        json_string(kept_ms > 0
                        ? "repeat the request with the same lock_id to keep your place in the queue"
                        : "send a lock_id of your own, the same each time, to keep a place in the queue"));
}

static void tell_held_elsewhere(struct pending_acquire *pending, int64_t kept_ms)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct exchange *x = pending->x;
    json_t *more;

    pending->x = NULL;
    x->pending = NULL;
    if (say_trouble(pending, x)) {
        return;
    }
    more = seen_by_call(pending, x, &err);
    add_place(more, kept_ms);
    reply_error_with(x, 409, &err, more);
    belay_error_release(&err);
}

static bool is_frozen(const struct pending_acquire *pending)
{
    struct belay_wait_info waiting = { 0 };

    return pending->call != NULL && belay_async_is_waiting(pending->call, &waiting) && waiting.frozen != NULL;
}

/* The slice is over: reply with the holder, the position and how long the place is kept. */
static void tell_held(struct pending_acquire *pending, int64_t kept_ms)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const struct belay_info *info = NULL;
    struct exchange *x = pending->x;
    enum belay_code code;
    char until[CLOCK_TEXT_SIZE];
    json_t *more;

    if (!pending->server->is_store_local || pending->keys != NULL || is_frozen(pending)) {
        tell_held_elsewhere(pending, kept_ms);
        return;
    }
    code = read_lock_with_queue(pending, &info, &err);
    pending->x = NULL;
    x->pending = NULL;
    if (code != BELAY_OK && code != BELAY_NOT_FOUND) {
        reply_error(x, &err);
    } else if (!say_trouble(pending, x)) {
        json_int_t position = info == NULL ? -1 : position_of(pending, info);

        more = json_pack("{s:o, s:o}", "position", position < 0 ? json_null() : json_integer(position),
                         "lock", info == NULL ? json_null() : blocker_for(x, info));
        add_place(more, kept_ms);
        /* If a key above or below blocks, the lock itself is not held. */
        if (info == NULL || info->status != BELAY_STATUS_ACTIVE) {
            (void)error_set(&err, BELAY_HELD, "lock '%s' is not free yet", pending->key);
        } else {
            (void)error_set(&err, BELAY_HELD, "lock '%s' held by %s until %s", pending->key, info->locked_by,
                            clock_format_utc(until, info->expires_at_unix_ms, false));
        }
        reply_error_with(x, 409, &err, more);
    }
    belay_error_release(&err);
}

/* ---- the end of a call ---- */

/* No client claimed the lock: the next waiter gets it. */
static void release_unclaimed(struct pending_acquire *pending)
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
static void unclaimed(struct pending_acquire *pending, const struct belay_info *info)
{
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
    release_unclaimed(pending);
}

static void on_pending_acquired(void *context, enum belay_code code, const struct belay_info *info,
                                const struct belay_error *err)
{
    struct pending_acquire *pending = context;
    struct exchange *x = pending->x;

    assert(x == NULL || x->pending == pending);
    pending->call = NULL;
    loop_timer_cancel(pending->server->loop, &pending->timer);
    if (code == BELAY_OK && x == NULL) {
        unclaimed(pending, info);
        return;
    }
    if (x != NULL) {
        x->pending = NULL;
        pending->x = NULL;
        if (code == BELAY_OK) {
            pending->server->group_commit.has_handover |=
                pending->began_turn != pending->server->group_commit.n_turns;
            reply_lock(x, info);
        } else if (code == BELAY_CANCELLED) {
            pending->x = x;
            tell_held(pending, 0); /* the client has closed its sending side, and may still read */
        } else {
            reply_error(x, err);
        }
    }
    pending_drop(pending);
}

/* ---- time ---- */

static void pending_leave(struct pending_acquire *pending)
{
    assert(pending->call != NULL);
    pending_set_state(pending, PENDING_LEAVING);
    loop_timer_cancel(pending->server->loop, &pending->timer);
    belay_async_cancel(pending->call);
}

static void end_slice(struct pending_acquire *pending)
{
    struct server *server = pending->server;
    bool is_kept = pending->has_id && server->pending_acquires->n_kept < PENDING_KEPT_MAX;

    tell_held(pending, is_kept ? PENDING_KEPT_MS : 0);
    pending_set_state(pending, PENDING_KEPT);
    if (!is_kept ||
        !loop_timer_set(server->loop, &pending->timer, loop_now_ms(server->loop) + PENDING_KEPT_MS)) {
        pending_leave(pending);
    }
}

/* A store on the network is being read: wait a little, so that the reply can name the holder. */
static bool look_longer(struct pending_acquire *pending)
{
    struct loop *loop = pending->server->loop;
    struct belay_wait_info waiting;

    if (pending->server->is_store_local || pending->call == NULL || pending->looked_ms >= LOOK_MAX_MS ||
        belay_async_is_retrying(pending->call) || belay_async_is_waiting(pending->call, &waiting)) {
        return false;
    }
    pending->looked_ms += LOOK_MS;
    return loop_timer_set(loop, &pending->timer, loop_now_ms(loop) + LOOK_MS);
}

static void on_slice_timer(struct timer *timer)
{
    struct pending_acquire *pending = CONTAINER_OF(timer, struct pending_acquire, timer);

    switch (pending->state) {
    case PENDING_WAITING:
        if (!look_longer(pending)) {
            end_slice(pending);
        }
        break;
    case PENDING_KEPT:
        pending_leave(pending);
        break;
    case PENDING_UNCLAIMED:
        release_unclaimed(pending);
        break;
    case PENDING_LEAVING:
        break;
    }
}

/* False: no memory for the timer that ends it. */
static bool start_slice(struct pending_acquire *pending, int64_t wait_ms)
{
    pending_set_state(pending, PENDING_WAITING);
    pending->looked_ms = 0;
    return !pending->can_wait || loop_timer_set(pending->server->loop, &pending->timer,
                                                loop_now_ms(pending->server->loop) + wait_ms);
}

/* ---- the beginning ---- */

/* Without the port: many clients open a new connection for each request. */
static uint64_t client_of(const struct exchange *x, const char *owner)
{
    const struct http_peer *peer = x->request->peer;
    const char *end = strrchr(peer->text, peer->is_unix ? ',' : ':');
    uint64_t hash = fnv_field(FNV_INIT, x->key);

    hash = fnv_field(hash, owner);
    hash = fnv_field(hash, x->who);
    return fnv_bytes(hash, peer->text, end == NULL ? strlen(peer->text) : (size_t)(end - peer->text));
}

/*
 * A client that sends a new lock_id with each slice never returns for the places it had before. They would be granted
 * the lock one after the other, and the client never.
 */
static void leave_older_places(const struct pending_acquire *pending)
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

/* In the table from now on. NULL: no memory. */
static struct pending_acquire *pending_new(struct exchange *x, const struct belay_lock_options *options,
                                           bool can_wait)
{
    size_t key_size = strlen(x->key) + 1;
    size_t owner_size = strlen(options->owner) + 1;
    size_t who_size = strlen(x->who) + 1;
    struct pending_acquire *pending = malloc(sizeof *pending + key_size + owner_size + who_size);
    char *texts;

    if (pending == NULL) {
        return NULL;
    }
    memset(pending, 0, sizeof *pending);
    if (x->keys != NULL && (pending->keys = lock_keys_new(x->keys->keys, x->keys->n)) == NULL) {
        free(pending);
        return NULL;
    }
    texts = (char *)(pending + 1);
    pending->server = x->server;
    pending->x = x;
    pending->timer.fire = on_slice_timer;
    pending->key = memcpy(texts, x->key, key_size);
    pending->owner = memcpy(texts + key_size, options->owner, owner_size);
    pending->who = memcpy(texts + key_size + owner_size, x->who, who_size);
    pending->has_id = options->lock_id != NULL && strlen(options->lock_id) <= BELAY_ID_MAX;
    if (pending->has_id) {
        memcpy(pending->lock_id, options->lock_id, strlen(options->lock_id) + 1);
    }
    pending->began_turn = x->server->group_commit.n_turns;
    pending->can_wait = can_wait;
    if (can_wait) {
        pending->began_unix_ms = clock_unix_ms();
        pending->client = client_of(x, options->owner);
    }
    x->pending = pending;
    add_pending(x->server->pending_acquires, pending);
    return pending;
}

/* A trace needs a lock id. If the client gave none, the server makes one, with which no client can return. */
static void follow_trace(const struct exchange *x, struct belay_lock_options *options,
                         char id[UUID_TEXT_SIZE])
{
    const char *traceparent = x->server->telemetry == NULL ? NULL : http_header(x->request, "traceparent");

    if (traceparent == NULL) {
        return;
    }
    if (options->lock_id == NULL && uuid_make(id)) {
        options->lock_id = id;
    }
    if (options->lock_id != NULL) {
        telemetry_set_parent(x->server->telemetry, options->lock_id, traceparent);
    }
}

void pending_acquire_begin(struct exchange *x, const struct belay_lock_options *options, int64_t wait_ms)
{
    struct belay_client *client = x->server->client;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_lock_options copy = *options;
    struct pending_acquire *pending = pending_new(x, options, wait_ms > 0);
    char id[UUID_TEXT_SIZE];
    enum belay_code code = BELAY_OK;

    if (pending == NULL || !start_slice(pending, wait_ms)) {
        code = error_no_memory(&err);
    } else if (pending->can_wait && pending->has_id && x->server->pending_acquires->n_kept > 0) {
        leave_older_places(pending);
    }
    /* The timer ends the wait, and the next slice may prolong it. */
    copy.wait_ms = wait_ms > 0 ? BELAY_WAIT_FOREVER : 0;
    if (code == BELAY_OK) {
        follow_trace(x, &copy, id);
        code = belay_async_acquire(client, x->key, &copy, on_pending_acquired, pending, &pending->call, &err);
    }
    if (code == BELAY_BUSY) {
        /* A renewal or a release with this id may be due now; then the id is free after this poll. */
        (void)belay_client_poll(client);
        code = belay_async_acquire(client, x->key, &copy, on_pending_acquired, pending, &pending->call, &err);
    }
    if (code != BELAY_OK) {
        if (pending != NULL) {
            pending_drop(pending);
        }
        reply_error(x, &err);
    }
    belay_error_release(&err);
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
        (void)belay_client_poll(server->client); /* the call ends here */
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
    pending->x = x;
    x->pending = pending;
    if (!start_slice(pending, wait_ms)) {
        pending_leave(pending);
    }
    return true;
}

/* ---- going away ---- */

void pending_acquire_abandon(struct exchange *x, const char *lock_id)
{
    struct pending_acquire *pending = find_pending(x->server->pending_acquires, lock_id);

    if (pending != NULL && exchange_acts_for(x, pending->who) &&
        (pending->state == PENDING_WAITING || pending->state == PENDING_KEPT) && pending->can_wait) {
        pending_leave(pending);
    }
}

void pending_acquire_half_closed(struct pending_acquire *pending)
{
    if (pending->state == PENDING_WAITING && pending->can_wait) {
        pending_leave(pending);
    }
}

void pending_acquire_client_gone(struct pending_acquire *pending)
{
    pending->x->pending = NULL;
    pending->x = NULL;
    if (pending->state == PENDING_WAITING && pending->can_wait) {
        pending_leave(pending);
    }
}

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

    if (x != NULL && pending->can_wait) {
        pending->x = NULL;
        x->pending = NULL;
        reply_problem(x, 401, "unauthorized", "the token may no longer take this lock");
    }
    if (pending->state == PENDING_UNCLAIMED) {
        release_unclaimed(pending);
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
                release_unclaimed(pending);
                continue;
            }
            if (!pending->can_wait) {
                continue; /* ends in this turn */
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
                exchange_end(pending->x, 499);
            }
            pending_free(pending);
        }
    }
    belay_info_free(all->seen);
    all->seen = NULL;
}
