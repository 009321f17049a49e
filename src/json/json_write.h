/*
 * Locks, events and errors as JSON: the same from every command and over HTTP.
 *
 * Every field is always there, absent values are null. Times are RFC 3339, UTC,
 * with milliseconds. Bytes that are no UTF-8 become U+FFFD: a store that was
 * written by others must not stop a listing.
 */
#ifndef JSON_JSON_WRITE_H
#define JSON_JSON_WRITE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "belay.h"

/* Each returns a new reference, or NULL if there is no memory. */
json_t *wire_lock(const struct belay_info *info);
json_t *wire_waiter(const struct belay_waiter *waiter, size_t position);
json_t *wire_event(const struct belay_event *event);
/* {"error": {"code", "message", "lock"}}; lock is null if nobody is known to be in the way. */
json_t *wire_error(const struct belay_error *err);
/*
 * Adds the same text as wire_line(wire_lock(info)), in a fraction of the time. False:
 * that has to do it, because of metadata, of what a text has in it, or for want of memory.
 */
bool wire_lock_line(struct buf *out, const struct belay_info *info);
json_t *wire_text(const char *text); /* null for NULL */
json_t *wire_time(int64_t unix_ms);  /* null for 0 */

/*
 * One line without a newline, which the caller frees. Characters that could act
 * upon a terminal are written as \uXXXX. Takes the reference; NULL for NULL.
 */
char *wire_line(json_t *value);

#endif
