#include "server/state/state_cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct state_cache {
    pthread_mutex_t mutex;
    TAILQ_HEAD(kept_list, kept) list; /* the most recently used first */
    size_t bytes;
    size_t max_bytes;
};

struct state_cache *state_cache_new(size_t max_bytes)
{
    struct state_cache *cache = calloc(1, sizeof *cache);

    if (cache != NULL) {
        (void)pthread_mutex_init(&cache->mutex, NULL);
        TAILQ_INIT(&cache->list);
        cache->max_bytes = max_bytes;
    }
    return cache;
}

/* ---- with the mutex ---- */

static size_t kept_size(const struct kept *kept)
{
    return sizeof *kept + kept->len;
}

/* True if it has no user left. */
static bool forget_kept(struct state_cache *cache, struct kept *kept)
{
    assert(kept->n_users > 0 && cache->bytes >= kept_size(kept));
    TAILQ_REMOVE(&cache->list, kept, link);
    cache->bytes -= kept_size(kept);
    return --kept->n_users == 0;
}

static struct kept *find_kept(struct state_cache *cache, const char *name)
{
    struct kept *kept = TAILQ_FIRST(&cache->list);

    while (kept != NULL && strcmp(kept->name, name) != 0) {
        kept = TAILQ_NEXT(kept, link);
    }
    return kept;
}

/* ---- for any thread ---- */

static void kept_free(struct kept *kept)
{
    free(kept->text);
    free(kept);
}

void state_cache_free(struct state_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    for (struct kept *kept; (kept = TAILQ_FIRST(&cache->list)) != NULL;) {
        if (forget_kept(cache, kept)) {
            kept_free(kept);
        }
    }
    (void)pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

struct kept *state_cache_find(struct state_cache *cache, const char *name)
{
    struct kept *kept;

    (void)pthread_mutex_lock(&cache->mutex);
    kept = find_kept(cache, name);
    if (kept != NULL) {
        TAILQ_REMOVE(&cache->list, kept, link);
        TAILQ_INSERT_HEAD(&cache->list, kept, link);
        kept->n_users++;
    }
    (void)pthread_mutex_unlock(&cache->mutex);
    return kept;
}

/* Make room, and let it replace the one of that name. Entries without users are moved to `dead`. */
static void keep_document(struct state_cache *cache, struct kept *kept, struct kept_list *dead)
{
    struct kept *old = find_kept(cache, kept->name);

    while (old != NULL || (!TAILQ_EMPTY(&cache->list) && cache->bytes + kept_size(kept) > cache->max_bytes)) {
        struct kept *gone = old != NULL ? old : TAILQ_LAST(&cache->list, kept_list);

        old = NULL;
        if (forget_kept(cache, gone)) {
            TAILQ_INSERT_HEAD(dead, gone, link);
        }
    }
    if (kept_size(kept) <= cache->max_bytes) {
        TAILQ_INSERT_HEAD(&cache->list, kept, link);
        cache->bytes += kept_size(kept);
        kept->n_users++;
    }
    assert(cache->bytes <= cache->max_bytes);
}

struct kept *state_cache_add(struct state_cache *cache, const char *name, char *text, size_t len,
                             const struct belay_blob_tag *tag)
{
    struct kept *kept = calloc(1, sizeof *kept);
    struct kept_list dead = TAILQ_HEAD_INITIALIZER(dead);

    if (kept == NULL) {
        free(text);
        return NULL;
    }
    *kept = (struct kept){ .cache = cache, .text = text, .len = len, .tag = *tag, .n_users = 1 };
    (void)snprintf(kept->name, sizeof kept->name, "%s", name);
    (void)pthread_mutex_lock(&cache->mutex);
    keep_document(cache, kept, &dead);
    (void)pthread_mutex_unlock(&cache->mutex);
    for (struct kept *gone; (gone = TAILQ_FIRST(&dead)) != NULL;) {
        TAILQ_REMOVE(&dead, gone, link);
        kept_free(gone);
    }
    return kept;
}

void state_cache_drop(struct kept *kept)
{
    bool is_last;

    if (kept == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&kept->cache->mutex);
    assert(kept->n_users > 0);
    is_last = --kept->n_users == 0;
    (void)pthread_mutex_unlock(&kept->cache->mutex);
    if (is_last) {
        kept_free(kept);
    }
}

static void release_document(void *owner)
{
    state_cache_drop(owner);
}

struct http_shared state_cache_share(struct kept *kept)
{
    return (struct http_shared){ kept->text, kept->len, release_document, kept, false };
}
