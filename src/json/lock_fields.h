/* The values of the fields of a lock in JSON; shared by json_write.c and lock_line.c. */
#ifndef JSON_LOCK_FIELDS_H
#define JSON_LOCK_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "belay.h"

/* NULL for a name that is unknown, or that the store cannot keep. */
static inline const char *lock_known_name(const char *name)
{
    return name == NULL || name[0] == '\0' ? NULL : name;
}

/* An expired lock has a holder, too, until another client takes it over. */
static inline bool lock_is_held(const struct belay_info *info)
{
    return info->status == BELAY_STATUS_ACTIVE || info->status == BELAY_STATUS_EXPIRED;
}

/* 0: it is held, has expired, or was never held. */
static inline int64_t lock_released_at(const struct belay_info *info)
{
    return info->status == BELAY_STATUS_RELEASED ? info->released_at_unix_ms : 0;
}

/* Of several holders, whether `holder` is the one that `info` was granted to. */
static inline bool lock_is_own_holder(const struct belay_info *info, const struct belay_info *holder)
{
    return holder->lock_id != NULL && info->lock_id != NULL && strcmp(holder->lock_id, info->lock_id) == 0;
}

#endif
