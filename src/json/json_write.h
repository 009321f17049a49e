/*
 * Locks, events and errors as JSON: the same from every command and over HTTP.
 * Every field is always present; absent values are null. Times are RFC 3339, UTC, with
 * milliseconds. Bytes that are not UTF-8 become U+FFFD: what another program wrote into a
 * store must not stop a listing.
 */
#ifndef JSON_JSON_WRITE_H
#define JSON_JSON_WRITE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "belay.h"

/* Each returns a new reference, or NULL without memory. */
json_t *wire_lock(const struct belay_info *info);
/* For its holder: the same without the lock ids of the other holders. It shows at most WIRE_HOLDERS_SHOWN of them. */
enum { WIRE_HOLDERS_SHOWN = 100 };
json_t *wire_grant(const struct belay_info *info);
/* {"lock_id", "locks": [...]}: the locks of several keys that were granted together. */
json_t *wire_grants(const struct belay_info *info);
json_t *wire_waiter(const struct belay_waiter *waiter, size_t position);
json_t *wire_event(const struct belay_event *event);
json_t *wire_freeze(const struct belay_freeze *freeze);
/* {"error": {"code", "message", "lock"}}; lock is null if no holder is known. */
json_t *wire_error(const struct belay_error *err);
/*
 * Adds the same text as wire_line(wire_grant(info)), much faster. False: use that function, because of metadata, a
 * queue, characters that need escapes, more than WIRE_HOLDERS_SHOWN holders, or without memory.
 */
bool wire_grant_line(struct buf *out, const struct belay_info *info);
json_t *wire_text(const char *text); /* null for NULL */
json_t *wire_time(int64_t unix_ms);  /* null for 0 */

/*
 * One line without a newline, which the caller frees. Characters that a terminal may act on
 * are written as \uXXXX. Takes over the reference; NULL for NULL.
 */
char *wire_line(json_t *value);

#endif
