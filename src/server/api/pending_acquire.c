#include "server/api/pending_acquire.h"

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

static struct wait **bucket_of_id(struct waits *waits, const char *lock_id)
{
    return &waits->buckets[fnv_text(FNV_INIT, lock_id) % WAIT_BUCKETS];
}

static struct wait *find_wait(struct waits *waits, const char *lock_id)
{
    struct wait *wait = *bucket_of_id(waits, lock_id);

    while (wait != NULL && (!wait->has_id || strcmp(wait->lock_id, lock_id) != 0)) {
        wait = wait->next;
    }
    return wait;
}

static void add(struct waits *waits, struct wait *wait)
{
    /* Nobody looks for one without an id: it may be anywhere. */
    wait->bucket = wait->has_id ? bucket_of_id(waits, wait->lock_id)
                                : &waits->buckets[((uintptr_t)wait >> 6) % WAIT_BUCKETS];
    wait->next = *wait->bucket;
    *wait->bucket = wait;
    waits->n++;
}

static void link_kept(struct wait *wait)
{
    struct waits *waits = wait->server->waits;

    wait->kept_back = &waits->kept[wait->client % WAIT_CLIENT_BUCKETS];
    wait->next_kept = *wait->kept_back;
    if (wait->next_kept != NULL) {
        wait->next_kept->kept_back = &wait->next_kept;
    }
    *wait->kept_back = wait;
    waits->n_kept++;
}

static void unlink_kept(struct wait *wait)
{
    *wait->kept_back = wait->next_kept;
    if (wait->next_kept != NULL) {
        wait->next_kept->kept_back = wait->kept_back;
    }
    wait->server->waits->n_kept--;
}

static void set_state(struct wait *wait, enum wait_state state)
{
    if (wait->state == WAIT_KEPT) {
        unlink_kept(wait);
    }
    wait->state = state;
    if (wait->state == WAIT_KEPT) {
        link_kept(wait);
    }
}

static void drop(struct wait *wait)
{
    struct waits *waits = wait->server->waits;
    struct wait **at = wait->bucket;

    while (*at != wait) {
        at = &(*at)->next;
    }
    *at = wait->next;
    waits->n--;
    if (wait->state == WAIT_KEPT) {
        unlink_kept(wait);
    }
    loop_timer_cancel(wait->server->loop, &wait->timer);
    if (wait->x != NULL) {
        wait->x->wait = NULL;
    }
    free(wait);
}

/* ---- what a waiter is told ---- */

/* The lock with its line. Many slices may end at once, so what was just looked up serves for a moment. */
static enum belay_code look(struct wait *wait, const struct belay_info **out_info, struct belay_error *err)
{
    struct waits *waits = wait->server->waits;
    int64_t now_ms = loop_now_ms(wait->server->loop);
    enum belay_code code;

    if (waits->seen == NULL || strcmp(waits->seen->key, wait->key) != 0 ||
        now_ms - waits->seen_ms > SEEN_FRESH_MS) {
        belay_info_free(waits->seen);
        waits->seen = NULL;
        code = belay_get(wait->server->client, wait->key, &waits->seen, err);
        if (code != BELAY_OK) {
            return code;
        }
        waits->seen_ms = now_ms;
    }
    *out_info = waits->seen;
    return BELAY_OK;
}

/* How many wait before it. The store does not tell ids: it is the one of that owner that began when we did. */
static json_t *position_of(const struct wait *wait, const struct belay_info *info)
{
    int64_t nearest_ms = INT64_MAX;
    json_int_t position = -1;

    for (size_t i = 0; i < info->n_waiters; i++) {
        const struct belay_waiter *other = &info->waiters[i];
        int64_t apart_ms = llabs(other->since_unix_ms - wait->began_unix_ms);

        if (apart_ms < nearest_ms && strcmp(other->locked_by, wait->owner) == 0 &&
            strcmp(other->key, wait->key) == 0) {
            nearest_ms = apart_ms;
            position = (json_int_t)i;
        }
    }
    return position < 0 ? json_null() : json_integer(position);
}

/* A store on the network is not asked again: what the call saw last will do. */
static json_t *seen_by_call(const struct wait *wait, const struct exchange *x, struct belay_error *err)
{
    struct belay_wait_info waiting = { 0 };
    bool waits = wait->call != NULL && belay_async_is_waiting(wait->call, &waiting);

    (void)error_set(err, BELAY_HELD, "lock '%s' is not free yet", wait->key);
    if (waits && waiting.holder != NULL) {
        char until[CLOCK_TEXT_SIZE];

        (void)error_set(err, BELAY_HELD, "lock '%s' held by %s until %s", wait->key,
                        waiting.holder->locked_by,
                        clock_format_utc(until, waiting.holder->expires_at_unix_ms, false));
    }
    return json_pack("{s:o, s:o}", "position",
                     waits ? json_integer((json_int_t)waiting.position) : json_null(), "lock",
                     waits && waiting.holder != NULL ? lock_for(x, waiting.holder) : json_null());
}

/* True, and said: it is not that somebody has the lock, but that the store fails. */
static bool say_trouble(const struct wait *wait, struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (wait->call == NULL || !belay_async_is_retrying(wait->call)) {
        return false;
    }
    (void)error_set(&err, BELAY_UNREACHABLE,
                    "lock '%s': the store fails at the moment; ask again with the same lock_id", wait->key);
    reply_error(x, &err);
    belay_error_release(&err);
    return true;
}

/* For how long the place is kept, and for whom. */
static void add_place(json_t *more, int64_t kept_ms)
{
    (void)json_object_set_new(more, "place_kept_ms", json_integer((json_int_t)kept_ms));
    (void)json_object_set_new(
        more, "hint",
        json_string(kept_ms > 0
                        ? "ask again with the same lock_id to keep your place in the queue"
                        : "send a lock_id of your own, the same each time, to keep a place in the queue"));
}

static void tell_held_elsewhere(struct wait *wait, int64_t kept_ms)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct exchange *x = wait->x;
    json_t *more;

    wait->x = NULL;
    x->wait = NULL;
    if (say_trouble(wait, x)) {
        return;
    }
    more = seen_by_call(wait, x, &err);
    add_place(more, kept_ms);
    reply_error_with(x, 409, &err, more);
    belay_error_release(&err);
}

/* The slice is over: who holds it, how many wait before us, for how long the place is kept. */
static void tell_held(struct wait *wait, int64_t kept_ms)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const struct belay_info *info = NULL;
    struct exchange *x = wait->x;
    enum belay_code code;
    char until[CLOCK_TEXT_SIZE];
    json_t *more;

    if (!wait->server->is_store_local) {
        tell_held_elsewhere(wait, kept_ms);
        return;
    }
    code = look(wait, &info, &err);
    wait->x = NULL;
    x->wait = NULL;
    if (code != BELAY_OK && code != BELAY_NOT_FOUND) {
        reply_error(x, &err);
    } else if (!say_trouble(wait, x)) {
        more = json_pack("{s:o, s:o}", "position", info == NULL ? json_null() : position_of(wait, info),
                         "lock", info == NULL ? json_null() : lock_for(x, info));
        add_place(more, kept_ms);
        /* A lock that a key above or below excludes is not itself held. */
        if (info == NULL || info->status != BELAY_STATUS_ACTIVE) {
            (void)error_set(&err, BELAY_HELD, "lock '%s' is not free yet", wait->key);
        } else {
            (void)error_set(&err, BELAY_HELD, "lock '%s' held by %s until %s", wait->key, info->locked_by,
                            clock_format_utc(until, info->expires_at_unix_ms, false));
        }
        reply_error_with(x, 409, &err, more);
    }
    belay_error_release(&err);
}

/* ---- the end of a call ---- */

static void ignore_end(void *context, enum belay_code code, const struct belay_info *info,
                       const struct belay_error *err)
{
    struct server *server = context;

    (void)info;
    if (code != BELAY_OK) {
        log_note(&server->log, LOG_WARN, "unclaimed", "a lock nobody came for was not released: %s",
                 err->text);
    }
}

/* Nobody came for it: the next in line may have it. */
static void pass_on(struct wait *wait)
{
    struct server *server = wait->server;
    struct belay_error err = BELAY_ERROR_INIT;

    log_note(&server->log, LOG_INFO, "unclaimed", "'%s' was granted to %s, who is gone; it is released",
             wait->key, wait->owner);
    if (belay_async_release(server->client, wait->key, wait->lock_id, BELAY_OUTCOME_FAILED, ignore_end,
                            server, &err) != BELAY_OK) {
        ignore_end(server, BELAY_BUG, NULL, &err);
    }
    belay_error_release(&err);
    drop(wait);
}

static void unclaimed(struct wait *wait, const struct belay_info *info)
{
    set_state(wait, WAIT_UNCLAIMED);
    if (wait->has_id && loop_timer_set(wait->server->loop, &wait->timer,
                                       loop_now_ms(wait->server->loop) + WAIT_UNCLAIMED_MS)) {
        return;
    }
    if (!wait->has_id && info->lock_id != NULL) {
        (void)strncpy(wait->lock_id, info->lock_id, BELAY_ID_MAX);
    }
    pass_on(wait);
}

static void on_acquired(void *context, enum belay_code code, const struct belay_info *info,
                        const struct belay_error *err)
{
    struct wait *wait = context;
    struct exchange *x = wait->x;

    wait->call = NULL;
    loop_timer_cancel(wait->server->loop, &wait->timer);
    if (code == BELAY_OK && x == NULL) {
        unclaimed(wait, info);
        return;
    }
    if (x != NULL) {
        x->wait = NULL;
        wait->x = NULL;
        if (code == BELAY_OK) {
            wait->server->group_commit.has_handover |= wait->began_turn != wait->server->group_commit.n_turns;
            reply_lock(x, info);
        } else if (code == BELAY_CANCELLED) {
            wait->x = x;
            tell_held(wait, 0); /* its client has closed its side, and may still read */
        } else {
            reply_error(x, err);
        }
    }
    drop(wait);
}

/* ---- time ---- */

static void leave(struct wait *wait)
{
    set_state(wait, WAIT_LEAVING);
    loop_timer_cancel(wait->server->loop, &wait->timer);
    belay_async_cancel(wait->call);
}

static void end_slice(struct wait *wait)
{
    struct server *server = wait->server;
    bool is_kept = wait->has_id && server->waits->n_kept < WAIT_KEPT_MAX;

    tell_held(wait, is_kept ? WAIT_KEPT_MS : 0);
    set_state(wait, WAIT_KEPT);
    if (!is_kept || !loop_timer_set(server->loop, &wait->timer, loop_now_ms(server->loop) + WAIT_KEPT_MS)) {
        leave(wait);
    }
}

/* A store on the network is being asked this very moment: soon it can be said who is in the way. */
static bool look_longer(struct wait *wait)
{
    struct loop *loop = wait->server->loop;
    struct belay_wait_info waiting;

    if (wait->server->is_store_local || wait->call == NULL || wait->looked_ms >= LOOK_MAX_MS ||
        belay_async_is_retrying(wait->call) || belay_async_is_waiting(wait->call, &waiting)) {
        return false;
    }
    wait->looked_ms += LOOK_MS;
    return loop_timer_set(loop, &wait->timer, loop_now_ms(loop) + LOOK_MS);
}

static void on_timer(struct timer *timer)
{
    struct wait *wait = (struct wait *)(void *)((char *)timer - offsetof(struct wait, timer));

    switch (wait->state) {
    case WAIT_WAITING:
        if (!look_longer(wait)) {
            end_slice(wait);
        }
        break;
    case WAIT_KEPT:
        leave(wait);
        break;
    case WAIT_UNCLAIMED:
        pass_on(wait);
        break;
    case WAIT_LEAVING:
        break;
    }
}

static void start_slice(struct wait *wait, int64_t wait_ms)
{
    set_state(wait, WAIT_WAITING);
    wait->looked_ms = 0;
    if (wait->can_wait &&
        !loop_timer_set(wait->server->loop, &wait->timer, loop_now_ms(wait->server->loop) + wait_ms)) {
        leave(wait);
    }
}

/* ---- the beginning ---- */

/* The connection's port is not part of it: many clients take a new one for each request. */
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
 * One who takes another lock_id for each slice does not come back for the places
 * it had before: they would be given the lock, one after the other, and it never.
 */
static void leave_older_places(const struct wait *wait)
{
    struct wait *next;

    for (struct wait *other = wait->server->waits->kept[wait->client % WAIT_CLIENT_BUCKETS]; other != NULL;
         other = next) {
        next = other->next_kept;
        if (other->client == wait->client && strcmp(other->key, wait->key) == 0 &&
            strcmp(other->owner, wait->owner) == 0) {
            leave(other);
        }
    }
}

static struct wait *wait_new(struct exchange *x, const struct belay_lock_options *options)
{
    size_t key_size = strlen(x->key) + 1;
    size_t owner_size = strlen(options->owner) + 1;
    size_t who_size = strlen(x->who) + 1;
    struct wait *wait = malloc(sizeof *wait + key_size + owner_size + who_size);
    char *texts;

    if (wait == NULL) {
        return NULL;
    }
    memset(wait, 0, sizeof *wait);
    texts = (char *)(wait + 1);
    wait->server = x->server;
    wait->x = x;
    wait->timer.fire = on_timer;
    wait->key = memcpy(texts, x->key, key_size);
    wait->owner = memcpy(texts + key_size, options->owner, owner_size);
    wait->who = memcpy(texts + key_size + owner_size, x->who, who_size);
    wait->client = client_of(x, options->owner);
    if (options->lock_id != NULL && strlen(options->lock_id) <= BELAY_ID_MAX) {
        (void)strncpy(wait->lock_id, options->lock_id, BELAY_ID_MAX);
        wait->has_id = true;
    }
    return wait;
}

/* A trace follows a lock id: if the client gave none, one is made, which is nobody's to come back with. */
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

void wait_begin(struct exchange *x, const struct belay_lock_options *options, int64_t wait_ms)
{
    struct belay_client *client = x->server->client;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_lock_options copy = *options;
    struct wait *wait = wait_new(x, options);
    char id[UUID_TEXT_SIZE];
    enum belay_code code;

    if (wait == NULL) {
        (void)error_no_memory(&err);
        reply_error(x, &err);
        return;
    }
    /* How long is for us to decide: it may be prolonged by the next slice. */
    wait->can_wait = wait_ms > 0;
    wait->began_unix_ms = wait->can_wait ? clock_unix_ms() : 0;
    wait->began_turn = x->server->group_commit.n_turns;
    if (wait->can_wait && wait->has_id && x->server->waits->n_kept > 0) {
        leave_older_places(wait);
    }
    copy.wait_ms = wait->can_wait ? BELAY_WAIT_FOREVER : 0;
    follow_trace(x, &copy, id);
    code = belay_async_acquire(client, x->key, &copy, on_acquired, wait, &wait->call, &err);
    if (code == BELAY_BUSY) {
        /* A renewal or a release with this id may be due now; then the id is free after this poll. */
        (void)belay_client_poll(client);
        code = belay_async_acquire(client, x->key, &copy, on_acquired, wait, &wait->call, &err);
    }
    if (code != BELAY_OK) {
        free(wait);
        reply_error(x, &err);
    } else {
        x->wait = wait;
        add(x->server->waits, wait);
        start_slice(wait, wait_ms);
    }
    belay_error_release(&err);
}

bool wait_resume(struct exchange *x, const char *lock_id, int64_t wait_ms)
{
    struct server *server = x->server;
    struct wait *wait = find_wait(server->waits, lock_id);

    if (wait != NULL && strcmp(wait->who, x->who) != 0) {
        reply_not_yours(x, lock_id);
        return true;
    }
    if (wait != NULL && (wait->state == WAIT_LEAVING || (!wait->can_wait && wait->call != NULL))) {
        (void)belay_client_poll(server->client); /* it ends here, one way or another */
        wait = find_wait(server->waits, lock_id);
    }
    if (wait != NULL && wait->state == WAIT_UNCLAIMED) {
        drop(wait); /* it has the lock, which acquiring again will find (L5) */
        wait = NULL;
    }
    if (wait == NULL) {
        return false;
    }
    if (strcmp(wait->key, x->key) != 0) {
        reply_problem(x, 400, "invalid", "lock_id '%s' waits for another key, '%.200s'", lock_id, wait->key);
        return true;
    }
    if (wait->x != NULL) {
        struct exchange *older = wait->x;

        older->wait = NULL;
        reply_problem(older, 409, "superseded",
                      "the same lock_id was asked for again; that request waits now");
    }
    wait->x = x;
    x->wait = wait;
    start_slice(wait, wait_ms);
    return true;
}

/* ---- going away ---- */

void wait_abandon(struct exchange *x, const char *lock_id)
{
    struct wait *wait = find_wait(x->server->waits, lock_id);

    if (wait != NULL && exchange_acts_for(x, wait->who) &&
        (wait->state == WAIT_WAITING || wait->state == WAIT_KEPT) && wait->can_wait) {
        leave(wait);
    }
}

void wait_half_closed(struct wait *wait)
{
    if (wait->state == WAIT_WAITING && wait->can_wait) {
        leave(wait);
    }
}

void wait_client_gone(struct wait *wait)
{
    wait->x->wait = NULL;
    wait->x = NULL;
    if (wait->state == WAIT_WAITING && wait->can_wait) {
        leave(wait);
    }
}

static void revoke(struct wait *wait)
{
    struct exchange *x = wait->x;

    if (x != NULL && wait->can_wait) {
        wait->x = NULL;
        x->wait = NULL;
        reply_problem(x, 401, "unauthorized", "the token may not take this lock any more");
    }
    if (wait->state == WAIT_UNCLAIMED) {
        pass_on(wait);
    } else if (wait->can_wait && wait->state != WAIT_LEAVING) {
        leave(wait);
    }
}

void waits_revoke(struct server *server)
{
    for (size_t i = 0; i < WAIT_BUCKETS; i++) {
        struct wait *next;

        for (struct wait *wait = server->waits->buckets[i]; wait != NULL; wait = next) {
            next = wait->next;
            if (!tokens_let_lock(server->tokens, wait->who, wait->key)) {
                revoke(wait);
            }
        }
    }
}

void waits_stop(struct server *server)
{
    for (size_t i = 0; i < WAIT_BUCKETS; i++) {
        struct wait *next;

        for (struct wait *wait = server->waits->buckets[i]; wait != NULL; wait = next) {
            struct exchange *x = wait->x;

            next = wait->next;
            if (wait->state == WAIT_UNCLAIMED) {
                pass_on(wait);
                continue;
            }
            if (!wait->can_wait) {
                continue; /* it ends in this turn */
            }
            if (x != NULL) {
                wait->x = NULL;
                x->wait = NULL;
                reply_problem(x, 503, "shutting_down",
                              "the server is stopping; ask again with the same lock_id in a moment");
            }
            if (wait->has_id && wait->state != WAIT_LEAVING) {
                belay_async_abandon(wait->call); /* the place is kept in the store, for who comes back */
                drop(wait);
            } else if (wait->state != WAIT_LEAVING) {
                leave(wait);
            }
        }
    }
}

void waits_release(struct waits *waits)
{
    for (size_t i = 0; i < WAIT_BUCKETS; i++) {
        while (waits->buckets[i] != NULL) {
            struct wait *wait = waits->buckets[i];

            waits->buckets[i] = wait->next;
            if (wait->x != NULL) {
                exchange_end(wait->x, 499);
            }
            free(wait);
        }
    }
    belay_info_free(waits->seen);
    waits->seen = NULL;
}
