/* What a caller may see. The lock id lets one end a lock, so it is not for everybody. */
#include <string.h>

#include "server/server.h"
#include "wire/wire.h"

/* A lock taken with a token has the token's name at the end of its holder's: "ci" or "Alice (ci)". */
static bool acquired_it(const struct exchange *x, const struct belay_info *info)
{
    size_t n = strlen(x->who);
    size_t len = strlen(info->locked_by_name);
    const char *end = info->locked_by_name + len;

    if (n == 0) {
        return false;
    }
    return strcmp(info->locked_by_name, x->who) == 0 ||
           (len > n + 3 && end[-1] == ')' && memcmp(end - 1 - n, x->who, n) == 0 &&
            memcmp(end - 3 - n, " (", 2) == 0);
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

    return x->role == ROLE_ADMIN || acquired_it(x, info) ? lock : without_id(lock);
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

    /* Rather no answer than one with the id in it. */
    if (holder != NULL && body != NULL &&
        json_object_set_new(json_object_get(body, "error"), "lock", lock_for(x, holder)) != 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}
