/*
 * A cache of the documents that were read or written last: a load of one that has not changed since needs no read,
 * verification or copy.
 *
 * The cache does not know whether a document is still current. The caller asks the store, with its tag
 * (belay_state_reload(), belay_document_reload()).
 */
#ifndef SERVER_STATE_STATE_CACHE_H
#define SERVER_STATE_STATE_CACHE_H

#include <sys/queue.h>

#include "belay/state.h"
#include "server/core/server.h"

struct state_cache;

struct kept {
    struct state_cache *cache; /* borrowed */
    TAILQ_ENTRY(kept) link;    /* in the cache */
    char *text;                /* owned */
    size_t len;
    struct belay_blob_tag tag;
    size_t n_users; /* the cache is one of them */
    char name[BELAY_KEY_MAX + 1];
};

struct state_cache *state_cache_new(size_t max_bytes); /* NULL: no memory */
void state_cache_free(struct state_cache *cache);

/* For any thread. */
struct kept *state_cache_find(struct state_cache *cache, const char *name); /* NULL: none */
/* Takes `text` in any case. NULL: no memory. A document that is too large is returned, but not cached. */
struct kept *state_cache_add(struct state_cache *cache, const char *name, char *text, size_t len,
                             const struct belay_blob_tag *tag);
void state_cache_drop(struct kept *kept); /* may be NULL */

/* Its text as the body of a reply, which drops it at its end. */
struct http_shared state_cache_share(struct kept *kept);

#endif
