/* The lock that a request is for: its key or keys, by name or by their parts; its id, or the owner instead. */
#ifndef SERVER_CORE_LOCK_KEY_H
#define SERVER_CORE_LOCK_KEY_H

#include "belay.h"

struct body;
struct exchange;
struct server;

/* The keys of a request for several locks at once. */
struct lock_keys {
    size_t n;                         /* 1 to BELAY_KEYS_MAX */
    const char *keys[BELAY_KEYS_MAX]; /* in the same allocation */
};

/* A copy, to be freed with free(). NULL: no memory. */
struct lock_keys *lock_keys_new(const char *const *keys, size_t n);
/* Whether both name the same keys in the same order; NULL: `key` alone, which is the first of the others. */
bool lock_keys_are_same(const struct lock_keys *a, const struct lock_keys *b);
/* Whether `key` is among them. NULL: there are none. */
bool lock_keys_have(const struct lock_keys *keys, const char *key);
/* Make it an acquisition of all of them; NULL: of one key. */
void lock_keys_fill(const struct lock_keys *keys, struct belay_lock_options *options);

/*
 * Write the key that the body names, in full or by its parts, to x->key; without either, the key of the path stays. Of
 * several keys, all are in x->keys. BELAY_INVALID: more than one of these, none, or a wrong part.
 */
enum belay_code lock_key_read(struct exchange *x, const struct body *body, struct belay_error *err);

/* A profile by name. The error lists no other profiles: their names are not for every client. */
enum belay_code lock_key_profile(const struct server *server, const char *name,
                                 struct belay_profile *out_profile, struct belay_error *err);

/*
 * Set x->body->lock_id, if the body names the owner instead, to the id of the lock that this owner holds. True if it is
 * set. False: replied, or the store is being read, and the handler is called again after that.
 */
bool lock_key_find_id(struct exchange *x);

#endif
