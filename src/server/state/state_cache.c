#include "server/state/state_cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct state_cache {
    pthread_mutex_t mutex;
    struct kept *first; /* the most recently used */
    struct kept *last;
    size_t bytes;
    size_t max_bytes;
};

struct state_cache *state_cache_new(size_t max_bytes)
{
    struct state_cache *cache = calloc(1, sizeof *cache);

    if (cache != NULL) {
        (void)pthread_mutex_init(&cache->mutex, NULL);
        cache->max_bytes = max_bytes;
    }
    return cache;
}

/* ---- with the mutex ---- */

static size_t kept_size(const struct kept *kept)
{
    return sizeof *kept + kept->len;
}

static void put_first(struct state_cache *cache, struct kept *kept)
{
    kept->prev = NULL;
    kept->next = cache->first;
    if (cache->first != NULL) {
        cache->first->prev = kept;
    } else {
        cache->last = kept;
    }
    cache->first = kept;
}

static void unlink_entry(struct state_cache *cache, struct kept *kept)
{
    if (kept->prev != NULL) {
        kept->prev->next = kept->next;
    } else {
        cache->first = kept->next;
    }
    if (kept->next != NULL) {
        kept->next->prev = kept->prev;
    } else {
        cache->last = kept->prev;
    }
}

/* True if it has no user left. */
static bool forget_kept(struct state_cache *cache, struct kept *kept)
{
    assert(kept->n_users > 0 && cache->bytes >= kept_size(kept));
    unlink_entry(cache, kept);
    cache->bytes -= kept_size(kept);
    return --kept->n_users == 0;
}

static struct kept *find_kept(struct state_cache *cache, const char *name)
{
    struct kept *kept = cache->first;

    while (kept != NULL && strcmp(kept->name, name) != 0) {
        kept = kept->next;
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
    for (struct kept *kept = cache->first, *next; kept != NULL; kept = next) {
        next = kept->next;
        if (--kept->n_users == 0) {
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
        unlink_entry(cache, kept);
        put_first(cache, kept);
        kept->n_users++;
    }
    (void)pthread_mutex_unlock(&cache->mutex);
    return kept;
}

/* Make room, and let it replace the one of that name. Entries without users are linked in *out_dead. */
static void keep_document(struct state_cache *cache, struct kept *kept, struct kept **out_dead)
{
    struct kept *old = find_kept(cache, kept->name);

    while (old != NULL || (cache->last != NULL && cache->bytes + kept_size(kept) > cache->max_bytes)) {
        struct kept *gone = old != NULL ? old : cache->last;

        old = NULL;
        if (forget_kept(cache, gone)) {
            gone->next = *out_dead;
            *out_dead = gone;
        }
    }
    if (kept_size(kept) <= cache->max_bytes) {
        put_first(cache, kept);
        cache->bytes += kept_size(kept);
        kept->n_users++;
    }
}

struct kept *state_cache_add(struct state_cache *cache, const char *name, char *text, size_t len,
                             const struct belay_blob_tag *tag)
{
    struct kept *kept = calloc(1, sizeof *kept);
    struct kept *dead = NULL;

    if (kept == NULL) {
        free(text);
        return NULL;
    }
    *kept = (struct kept){ .cache = cache, .text = text, .len = len, .tag = *tag, .n_users = 1 };
    (void)snprintf(kept->name, sizeof kept->name, "%s", name);
    (void)pthread_mutex_lock(&cache->mutex);
    keep_document(cache, kept, &dead);
    (void)pthread_mutex_unlock(&cache->mutex);
    while (dead != NULL) {
        struct kept *next = dead->next;

        kept_free(dead);
        dead = next;
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
    return (struct http_shared){ kept->text, kept->len, release_document, kept };
}
