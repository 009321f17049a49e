#include "server/api/holders.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fnv.h"
#include "server/core/json_body.h"
#include "server/core/server.h"

static struct holder **holder_bucket(struct holders *all, const char *lock_id)
{
    return &all->buckets[fnv_text(FNV_INIT, lock_id) % HOLDER_BUCKETS];
}

/* Returns the exchange, which the caller ends. */
static struct exchange *take_exchange(struct holder *holder)
{
    struct exchange *x = holder->x;
    struct holder **at = holder->bucket;

    assert(x->holder == holder && holder->all->n > 0);
    while (*at != holder) {
        at = &(*at)->next;
    }
    *at = holder->next;
    holder->all->n--;
    loop_timer_cancel(x->server->loop, &holder->timer);
    x->holder = NULL;
    free(holder);
    return x;
}

/* ---- the answer ---- */

/* Of a lock with several holders only the grant with this id counts. */
static enum belay_code judge_grant(const struct exchange *x, const struct belay_info *info,
                                   struct belay_error *err)
{
    const struct belay_info *grant = grant_of(info, x->found_id);

    assert(info->key != NULL);
    if (grant == NULL && info->n_holders > 1) {
        return error_set(err, BELAY_NOT_HOLDER, "not a holder: lock '%s' has %zu others", info->key,
                         info->n_holders);
    }
    if (grant == NULL) {
        return error_set(err, BELAY_NOT_HOLDER, "not the holder: lock '%s' is %s's, and %s", info->key,
                         info->locked_by, belay_status_name(info->status));
    }
    if (grant->status == BELAY_STATUS_RELEASED) {
        return error_set(err, BELAY_LOST, "lock '%s' was released%s", info->key,
                         grant->outcome == BELAY_OUTCOME_FORCED ? " by force" : "");
    }
    if (grant->status != BELAY_STATUS_ACTIVE) {
        return error_set(err, BELAY_LOST, "lock '%s': the lease has ended", info->key);
    }
    return BELAY_OK;
}

/* Reads every lock of the request and judges it. `out_locks` (NULL: not wanted) gets them as the client may see them. */
static enum belay_code check_locks(const struct exchange *x, json_t *out_locks, struct belay_error *err)
{
    const char *keys[BELAY_KEYS_MAX];
    size_t n = exchange_keys(x, keys);
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        struct belay_info *info = NULL;

        code = belay_get(x->server->client, keys[i], &info, err);
        if (code == BELAY_OK) {
            code = judge_grant(x, info, err);
        }
        if (code == BELAY_OK && out_locks != NULL &&
            json_array_append_new(out_locks, grant_for(x, info, x->found_id)) != 0) {
            code = error_no_memory(err);
        }
        belay_info_free(info);
    }
    return code;
}

/* A lock that was granted while locking is off cannot be lost: the store knows nothing of it. */
static bool is_granted(struct exchange *x)
{
    return !belay_client_locking_enabled(x->server->client);
}

static void reply_granted(struct exchange *x)
{
    char no_owner[] = "";
    const char *keys[BELAY_KEYS_MAX];
    size_t n = exchange_keys(x, keys);
    json_t *locks = json_array();

    for (size_t i = 0; i < n; i++) {
        const struct belay_info info = { .key = (char *)keys[i],
                                         .lock_id = x->found_id,
                                         .locked_by = no_owner,
                                         .locked_by_name = no_owner,
                                         .status = BELAY_STATUS_ACTIVE,
                                         .valid_for_ms = -1 };

        (void)json_array_append_new(locks, lock_for(x, &info));
    }
    reply_locks(x, locks);
}

static void ask_held(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    json_t *locks;

    if (is_granted(x)) {
        reply_granted(x);
        return;
    }
    locks = json_array();
    if (check_locks(x, locks, &err) == BELAY_OK) {
        reply_locks(x, locks);
    } else {
        json_decref(locks);
        reply_error(x, &err);
    }
    belay_error_release(&err);
}

void holder_answer(struct holder *holder)
{
    exchange_read(take_exchange(holder), WORK_READ, ask_held, NULL);
}

void holder_forget(struct holder *holder)
{
    (void)take_exchange(holder);
}

static void on_holder_timer(struct timer *timer)
{
    holder_answer(CONTAINER_OF(timer, struct holder, timer));
}

/* Has the holder's lock read again, and answers with what is found. */
static void wake(struct holder *holder)
{
    struct loop *loop = holder->x->server->loop;

    (void)loop_timer_set(loop, &holder->timer, loop_now_ms(loop));
}

/* The event has the new lock id only, so the old holder is found by the key. Adoptions are rare. */
static void wake_adopted(struct holders *all, const struct belay_event *event)
{
    for (size_t i = 0; i < HOLDER_BUCKETS; i++) {
        for (struct holder *holder = all->buckets[i]; holder != NULL; holder = holder->next) {
            if (strcmp(holder->x->key, event->key) == 0 || lock_keys_have(holder->x->keys, event->key)) {
                wake(holder);
            }
        }
    }
}

static void wake_in(struct holder *first, const char *lock_id)
{
    for (struct holder *holder = first; holder != NULL; holder = holder->next) {
        if (lock_id == NULL || strcmp(holder->lock_id, lock_id) == 0) {
            wake(holder);
        }
    }
}

void holders_wake(struct holders *all, const char *lock_id)
{
    if (all->n > 0 && lock_id != NULL) {
        wake_in(*holder_bucket(all, lock_id), lock_id);
    }
    for (size_t i = 0; i < HOLDER_BUCKETS && all->n > 0 && lock_id == NULL; i++) {
        wake_in(all->buckets[i], NULL);
    }
}

void holders_event(struct holders *all, const struct belay_event *event)
{
    if (all->n == 0 || event->lock_id == NULL) {
        return;
    }
    if (strcmp(event->type, "lock.adopted") == 0) {
        wake_adopted(all, event);
        return;
    }
    if (strcmp(event->type, "lock.forced") != 0 && strcmp(event->type, "lock.released") != 0 &&
        strcmp(event->type, "lock.taken_over") != 0) {
        return;
    }
    holders_wake(all, event->lock_id);
}

/* ---- the beginning ---- */

/* A store on this machine answers at once, and reports every change after that. */
static bool is_lost_already(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code;

    if (!x->server->is_store_local || is_granted(x)) {
        return false;
    }
    code = check_locks(x, NULL, &err);
    if (code != BELAY_OK) {
        reply_error(x, &err);
    }
    belay_error_release(&err);
    return code != BELAY_OK;
}

static void begin_waiting_for_loss(struct exchange *x, int64_t wait_ms)
{
    struct holders *all = x->server->holders;
    struct loop *loop = x->server->loop;
    struct holder *holder = all->n < HOLDERS_MAX ? calloc(1, sizeof *holder) : NULL;

    if (holder == NULL || !loop_timer_set(loop, &holder->timer, loop_now_ms(loop) + wait_ms)) {
        free(holder);
        reply_problem(x, 503, "busy", "too many holders wait to learn of a loss; retry later");
        return;
    }
    assert(x->holder == NULL && x->pending == NULL && x->stream == NULL);
    (void)snprintf(holder->lock_id, sizeof holder->lock_id, "%s", x->found_id);
    holder->timer.fire = on_holder_timer;
    holder->all = all;
    holder->x = x;
    holder->bucket = holder_bucket(all, holder->lock_id);
    holder->next = *holder->bucket;
    *holder->bucket = holder;
    all->n++;
    x->holder = holder;
}

void handle_held(struct exchange *x)
{
    int64_t wait_ms = x->body->wait_ms;

    (void)snprintf(x->found_id, sizeof x->found_id, "%s", x->body->lock_id);
    if (!x->server->is_store_local && wait_ms > HOLDER_NETWORK_MS) {
        wait_ms = HOLDER_NETWORK_MS;
    }
    if (wait_ms == 0) {
        exchange_read(x, WORK_READ, ask_held, NULL);
    } else if (x->server->is_draining) {
        reply_problem(x, 503, "shutting_down", "the server is stopping; retry in a moment");
    } else if (!is_lost_already(x)) {
        begin_waiting_for_loss(x, wait_ms);
    }
}

/* ---- the end ---- */

void holders_stop(struct holders *all)
{
    for (size_t i = 0; i < HOLDER_BUCKETS; i++) {
        for (struct holder *holder = all->buckets[i], *next; holder != NULL; holder = next) {
            next = holder->next;
            reply_problem(take_exchange(holder), 503, "shutting_down",
                          "the server is stopping; retry in a moment");
        }
    }
}

void holders_release(struct holders *all)
{
    for (size_t i = 0; i < HOLDER_BUCKETS; i++) {
        for (struct holder *holder = all->buckets[i], *next; holder != NULL; holder = next) {
            next = holder->next;
            exchange_end(take_exchange(holder), 499);
        }
    }
}
