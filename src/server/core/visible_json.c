/* Locks and events as a client may see them. A lock id suffices to release a lock, so not every client gets it. */
#include <string.h>

#include "server/core/server.h"
#include "json/json_write.h"

bool may_see_id(enum role role, const char *who, const struct belay_info *info)
{
    return role == ROLE_ADMIN ||
           (*who != '\0' && info->acquired_by != NULL && strcmp(info->acquired_by, who) == 0);
}

/* A queue may have BELAY_QUEUE_MAX waiters, and each of them is answered with the lock: all are in .../queue only. */
enum { WAITING_SHOWN = 10 };

static json_t *without_id(json_t *lock)
{
    if (lock != NULL && json_object_set_new(lock, "lock_id", json_null()) != 0) {
        json_decref(lock);
        return NULL;
    }
    return lock;
}

static json_t *waiting_up_to(const struct exchange *x, const struct belay_info *info, const char *key,
                             size_t most)
{
    json_t *waiting = json_array();

    for (size_t i = 0; i < info->n_waiters && json_array_size(waiting) < most; i++) {
        if (key == NULL ? exchange_may_see(x, info->waiters[i].key)
                        : strcmp(info->waiters[i].key, key) == 0) {
            (void)json_array_append_new(waiting, wire_waiter(&info->waiters[i], json_array_size(waiting)));
        }
    }
    return waiting;
}

json_t *waiting_for(const struct exchange *x, const struct belay_info *info, const char *key)
{
    return waiting_up_to(x, info, key, info->n_waiters);
}

/* A lock, or one of its holders, as the client may see it: `object` is changed. False: nothing may be sent. */
static bool hide(const struct exchange *x, const struct belay_info *info, bool may_see, json_t *object)
{
    bool ok = json_is_object(object);

    /* A lock above or below blocks: its holder must be named; its other fields need not be. */
    if (ok && !may_see) {
        ok = json_object_set_new(object, "metadata", json_object()) == 0;
    }
    if (ok && !(may_see && may_see_id(x->role, x->who, info))) {
        ok = json_object_set_new(object, "lock_id", json_null()) == 0;
    }
    return ok;
}

json_t *lock_for(const struct exchange *x, const struct belay_info *info)
{
    struct belay_info shown = *info;
    json_t *lock;
    json_t *holders;
    bool may_see = exchange_may_see(x, info->key);
    bool ok;

    shown.n_waiters = 0; /* they follow */
    lock = wire_lock(&shown);
    holders = json_object_get(lock, "holders");
    ok = hide(x, info, may_see, lock);
    for (size_t i = 0; ok && i < json_array_size(holders); i++) {
        ok = hide(x, info->n_holders == 0 ? info : &info->holders[i], may_see, json_array_get(holders, i));
    }
    if (ok && info->has_queue) {
        ok = json_object_set_new(lock, "waiting", waiting_up_to(x, info, NULL, WAITING_SHOWN)) == 0;
    }
    if (!ok) { /* rather no reply than one with the id in it */
        json_decref(lock);
        return NULL;
    }
    return lock;
}

const struct belay_info *grant_of(const struct belay_info *info, const char *lock_id)
{
    for (size_t i = 0; i < info->n_holders; i++) {
        if (info->holders[i].lock_id != NULL && strcmp(info->holders[i].lock_id, lock_id) == 0) {
            return &info->holders[i];
        }
    }
    return info->lock_id != NULL && strcmp(info->lock_id, lock_id) == 0 ? info : NULL;
}

size_t count_active(const struct belay_info *info)
{
    size_t n = info->n_holders == 0 && info->status == BELAY_STATUS_ACTIVE;

    for (size_t i = 0; i < info->n_holders; i++) {
        n += info->holders[i].status == BELAY_STATUS_ACTIVE;
    }
    return n;
}

json_t *grant_for(const struct exchange *x, const struct belay_info *info, const char *lock_id)
{
    const struct belay_info *grant = grant_of(info, lock_id);
    struct belay_info own;

    if (grant == NULL) {
        return NULL;
    }
    own = *grant; /* borrows from the lock */
    own.mode = info->mode;
    own.slots = info->slots;
    own.holders = info->holders;
    own.n_holders = info->n_holders;
    own.waiters = info->waiters;
    own.n_waiters = info->n_waiters;
    own.has_queue = info->has_queue;
    return lock_for(x, &own);
}

json_t *event_for(const struct exchange *x, const struct belay_event *event)
{
    json_t *object = wire_event(event);

    return x->role == ROLE_ADMIN ? object : without_id(object);
}

json_t *blocker_for(const struct exchange *x, const struct belay_info *info)
{
    struct belay_info shown = *info;

    shown.n_holders = info->n_holders < WIRE_HOLDERS_SHOWN ? info->n_holders : WIRE_HOLDERS_SHOWN;
    return lock_for(x, &shown);
}

json_t *error_for(const struct exchange *x, const struct belay_error *err)
{
    const struct belay_info *holder = belay_error_holder(err);
    struct belay_error bare = *err;
    json_t *body;

    bare.holder = NULL; /* what may be seen of it follows */
    body = wire_error(&bare);
    if (holder != NULL && err->code != BELAY_NOT_FOUND && body != NULL &&
        json_object_set_new(json_object_get(body, "error"), "lock", blocker_for(x, holder)) != 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}
