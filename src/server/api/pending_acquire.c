#include "server/api/pending_acquire.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fnv.h"
#include "base/text.h"
#include "server/api/kept_places.h"
#include "server/core/server.h"
#include "telemetry/telemetry.h"

enum { SEEN_FRESH_MS = 50, LOOK_MS = 20, LOOK_MAX_MS = 1000 };

/* ---- replies to waiters ---- */

/* The start of the wait as the queue shows it: a client that returns after a restart of the server has waited for longer. */
static int64_t queued_since_unix_ms(const struct pending_acquire *pending)
{
    struct belay_wait_info waiting = { 0 };

    return pending->call != NULL && belay_async_is_waiting(pending->call, &waiting) ? waiting.since_unix_ms
                                                                                    : pending->began_unix_ms;
}

/* How many wait before it; -1: it is not in the queue. The store does not return ids: owner and start time identify
   the waiter. */
static json_int_t position_of(const struct pending_acquire *pending, const struct belay_info *info)
{
    int64_t began_unix_ms = queued_since_unix_ms(pending);
    int64_t nearest_ms = INT64_MAX;
    json_int_t position = -1;

    for (size_t i = 0; i < info->n_waiters; i++) {
        const struct belay_waiter *other = &info->waiters[i];
        int64_t apart_ms = llabs(other->since_unix_ms - began_unix_ms);

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

/* A store on the network is not read again: what the call saw last suffices. NULL: no memory. */
static struct held_reply *seen_by_call(const struct pending_acquire *pending, const struct exchange *x)
{
    struct held_reply *reply = calloc(1, sizeof *reply);
    struct belay_wait_info waiting = { 0 };
    bool all = pending->call != NULL && belay_async_is_waiting(pending->call, &waiting);

    if (reply == NULL) {
        return NULL;
    }
    (void)error_set(&reply->err, BELAY_HELD, "lock '%s' is not free yet", pending->key);
    if (all && waiting.frozen != NULL) {
        (void)error_set(&reply->err, BELAY_FROZEN, "%s", waiting.frozen);
    } else if (all && waiting.holder != NULL) {
        char until[CLOCK_TEXT_SIZE];

        (void)error_set(&reply->err, BELAY_HELD, "lock '%s' held by %s until %s",
                        pending->keys == NULL ? pending->key : waiting.holder->key, waiting.holder->locked_by,
                        clock_format_utc(until, waiting.holder->expires_at_unix_ms, false));
    }
    reply->more =
        json_pack("{s:o, s:o}", "position", all ? json_integer((json_int_t)waiting.position) : json_null(),
                  "lock", all && waiting.holder != NULL ? blocker_for(x, waiting.holder) : json_null());
    return reply;
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
static void add_place(json_t *more, const struct pending_acquire *pending, int64_t kept_ms)
{
    const char *hint = "send a lock_id of your own, the same each time, to keep a place in the queue";

    if (pending->has_id) {
        hint = kept_ms > 0 ? "repeat the request with the same lock_id to keep your place in the queue"
                           : "repeat the request with the same lock_id to join the queue again";
    }
    (void)json_object_set_new(more, "place_kept_ms", json_integer((json_int_t)kept_ms));
    (void)json_object_set_new(more, "hint", json_string(hint));
}

static void tell_held_elsewhere(struct pending_acquire *pending, int64_t kept_ms)
{
    struct exchange *x = pending->x;
    struct held_reply *reply = pending->reply;

    pending->x = NULL;
    pending->reply = NULL;
    x->pending = NULL;
    if (reply == NULL && say_trouble(pending, x)) {
        return;
    }
    reply = reply == NULL ? seen_by_call(pending, x) : reply;
    if (reply == NULL) {
        reply_problem(x, 503, "no_memory", "no memory");
        return;
    }
    add_place(reply->more, pending, kept_ms);
    reply_error_with(x, 409, &reply->err, reply->more);
    reply->more = NULL;
    held_reply_free(reply);
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
        add_place(more, pending, kept_ms);
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

/* Whether its request, which came later, is still to be served. */
static bool has_to_restart(const struct pending_acquire *pending, enum belay_code code)
{
    return pending->x != NULL && pending->restarts &&
           (code == BELAY_CANCELLED || code == BELAY_HELD || code == BELAY_FROZEN);
}

static void on_pending_acquired(void *context, enum belay_code code, const struct belay_info *info,
                                const struct belay_error *err)
{
    struct pending_acquire *pending = context;
    struct exchange *x = pending->x;

    assert(x == NULL || x->pending == pending);
    assert(pending->state != PENDING_UNCLAIMED && (code == BELAY_OK ? info != NULL : err->code == code));
    pending->call = NULL;
    loop_timer_cancel(pending->server->loop, &pending->timer);
    if (code == BELAY_OK && x == NULL) {
        pending_keep_unclaimed(pending, info);
        return;
    }
    if (has_to_restart(pending, code)) {
        pending_drop(pending);
        exchange_run_handler(x);
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

/*
 * The answer says that the client has no place in the queue: on a store on the network, it has one until the call has
 * left. If it were answered before, its next attempt could be refused because of its own place. False: no memory.
 */
static bool leave_before_answering(struct pending_acquire *pending)
{
    struct loop *loop = pending->server->loop;

    pending->reply = seen_by_call(pending, pending->x);
    if (pending->reply == NULL ||
        !loop_timer_set(loop, &pending->timer, loop_now_ms(loop) + PENDING_LEAVE_MAX_MS)) {
        return false;
    }
    pending_set_state(pending, PENDING_LEAVING);
    belay_async_cancel(pending->call);
    return true;
}

/*
 * The client asks another server, or this one again. Without a client, the call would take the ticket over as soon as
 * the store answers, and then leave the queue, although the client waits elsewhere. So it ends; the ticket stays.
 */
static void leave_to_client(struct pending_acquire *pending)
{
    tell_held(pending, 0);
    belay_async_abandon(pending->call);
    pending->call = NULL;
    pending_drop(pending);
}

static void end_slice(struct pending_acquire *pending)
{
    struct server *server = pending->server;
    bool is_kept = pending->has_id && server->pending_acquires->n_kept < PENDING_KEPT_MAX;

    assert(pending->state == PENDING_WAITING && pending->x != NULL && pending->call != NULL);
    if (!is_kept && !server->is_store_local && !belay_async_is_retrying(pending->call) &&
        leave_before_answering(pending)) {
        return;
    }
    if (is_kept && !server->is_store_local && belay_async_is_retrying(pending->call)) {
        leave_to_client(pending);
        return;
    }
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
        pending_release_unclaimed(pending);
        break;
    case PENDING_LEAVING:
        if (pending->x != NULL) {
            tell_held(pending, 0); /* the store is slow */
        }
        break;
    }
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

/* In the table from now on. NULL: no memory. */
static struct pending_acquire *pending_new(struct exchange *x, const struct belay_lock_options *options,
                                           bool can_wait)
{
    struct pending_acquire *pending =
        malloc(sizeof *pending + text_room(x->key) + text_room(options->owner) + text_room(x->who));
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
    pending->key = text_place(&texts, x->key);
    pending->owner = text_place(&texts, options->owner);
    pending->who = text_place(&texts, x->who);
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
    pending_add(x->server->pending_acquires, pending);
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

    assert(wait_ms >= 0 && x->request != NULL);
    if (pending == NULL || !pending_start_slice(pending, wait_ms)) {
        code = error_no_memory(&err);
    } else if (pending->can_wait && pending->has_id && x->server->pending_acquires->n_kept > 0) {
        pending_leave_older_places(pending);
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
