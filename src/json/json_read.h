/* Locks and events from the JSON of json_write.h. */
#ifndef JSON_JSON_READ_H
#define JSON_JSON_READ_H

#include <jansson.h>

#include "belay/store.h"

/* NULL if `lock` is not a lock, or without memory. */
struct belay_info *json_read_lock(const json_t *lock);

/* The locks of several keys: the first, with the others as `joint`. NULL as above. */
struct belay_info *json_read_locks(const json_t *locks);

/*
 * Fills the waiters of an `info` that has none yet. False if `waiting` is not the queue of a
 * lock, or without memory.
 */
bool json_read_waiters(const json_t *waiting, struct belay_info *info);

/* A time in ms since 1970; 0 for null. */
int64_t json_read_time(const json_t *object, const char *name);

/* Calls fn with the freeze; *out_go_on is its result. False if `freeze` is not a freeze. */
bool json_read_freeze(const json_t *freeze, belay_freeze_fn fn, void *context, bool *out_go_on);

/* Calls fn with the event; *out_go_on is its result. False if `event` is not an event. */
bool json_read_event(const json_t *event, belay_event_fn fn, void *context, bool *out_go_on,
                     uint64_t *out_id);

#endif
