/*
 * The places of clients that wait, kept whether or not a request of theirs is open: each has a place in the queue, found
 * by its lock id when it comes back; the answer that it has not had; and for a moment the lock, if it was granted while
 * the client was away. pending_acquire.c has the wait of one request, and calls these functions. What the rest of the
 * server calls is in pending_acquire.h, with a drawing of the states.
 */
#ifndef SERVER_API_KEPT_PLACES_H
#define SERVER_API_KEPT_PLACES_H

#include <jansson.h>

#include "server/api/pending_acquire.h"

/* An answer that says who holds the lock. */
struct held_reply {
    struct belay_error err;
    json_t *more; /* owned */
};

void held_reply_free(struct held_reply *reply); /* or NULL */

void pending_add(struct pending_acquires *all, struct pending_acquire *pending);
void pending_set_state(struct pending_acquire *pending, enum pending_state state);
/* Take it out of the table, and free it. Its call has ended, or was abandoned. */
void pending_drop(struct pending_acquire *pending);

/* WAITING, for so long. False: no memory for the timer that ends it. */
bool pending_start_slice(struct pending_acquire *pending, int64_t wait_ms);

/* LEAVING: its call ends when it has left the queue. */
void pending_leave(struct pending_acquire *pending);
/*
 * A client that sends a new lock_id with each slice never returns for the places it had before. They would be granted
 * the lock one after the other, and the client never.
 */
void pending_leave_older_places(const struct pending_acquire *pending);

/* The lock was granted while no request waits: keep it for a moment, if its client can come back. May free it. */
void pending_keep_unclaimed(struct pending_acquire *pending, const struct belay_info *info);
/* No client claimed the lock: the next waiter gets it. Frees it. */
void pending_release_unclaimed(struct pending_acquire *pending);

#endif
