/* What a client may see. A lock id suffices to release a lock, so not every client gets it. */
#include <string.h>

#include "server/core/server.h"
#include "json/json_write.h"

bool may_see_id(enum role role, const char *who, const struct belay_info *info)
{
    return role == ROLE_ADMIN ||
           (*who != '\0' && info->acquired_by != NULL && strcmp(info->acquired_by, who) == 0);
}

static json_t *without_id(json_t *lock)
{
    if (lock != NULL && json_object_set_new(lock, "lock_id", json_null()) != 0) {
        json_decref(lock);
        return NULL;
    }
    return lock;
}

json_t *lock_for(const struct exchange *x, const struct belay_info *info)
{
    json_t *lock = wire_lock(info);
    bool may_see = exchange_may_see(x, info->key);

    /* A lock above or below blocks: its holder must be named; its other fields need not be. */
    if (lock != NULL && !may_see && json_object_set_new(lock, "metadata", json_object()) != 0) {
        json_decref(lock);
        return NULL;
    }
    return may_see && may_see_id(x->role, x->who, info) ? lock : without_id(lock);
}

json_t *event_for(const struct exchange *x, const struct belay_event *event)
{
    json_t *object = wire_event(event);

    return x->role == ROLE_ADMIN ? object : without_id(object);
}

json_t *error_for(const struct exchange *x, const struct belay_error *err)
{
    const struct belay_info *holder = belay_error_holder(err);
    json_t *body = wire_error(err);

    /* Rather no reply than one with the id in it. */
    if (holder != NULL && body != NULL &&
        json_object_set_new(json_object_get(body, "error"), "lock", lock_for(x, holder)) != 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}
