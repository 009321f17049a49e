/* The keys of a request for several locks at once. */
#ifndef SERVER_CORE_LOCK_KEYS_H
#define SERVER_CORE_LOCK_KEYS_H

#include "belay.h"

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

#endif
