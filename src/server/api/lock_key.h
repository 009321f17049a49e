/* The lock that a request's body names: by its key or by the key's parts, by its id or by its owner. */
#ifndef SERVER_API_LOCK_KEY_H
#define SERVER_API_LOCK_KEY_H

#include "server/core/server.h"

/*
 * Write the key that the body names, in full or by its parts, to x->key; without either, the key of the path stays. Of
 * several keys, all are in x->keys. BELAY_INVALID: more than one of these, none, or a wrong part.
 */
enum belay_code lock_key_read(struct exchange *x, const struct body *body, struct belay_error *err);

/* A profile by name. The error lists no other profiles: their names are not for every client. */
enum belay_code lock_key_profile(const struct server *server, const char *name,
                                 struct belay_profile *out_profile, struct belay_error *err);

/*
 * Set body->lock_id, if the body names the owner instead, to the id of the lock that this owner holds. True if
 * body->lock_id is set. False: replied, or the store is being read, and again(x) follows on the loop.
 */
bool lock_key_find_id(struct exchange *x, struct body *body, exchange_fn *again);

#endif
