/* The items of the keys that were read last, in memory. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/dynamodb/dynamodb_internal.h"

void ddb_items_release(struct ddb_items *items)
{
    json_decref(items->item);
    json_decref(items->queue);
    json_decref(items->fence);
    memset(items, 0, sizeof *items);
}

void ddb_seen_init(struct ddb_seen *seen)
{
    (void)pthread_mutex_init(&seen->mutex, NULL);
}

static void entry_clear(struct ddb_seen_entry *entry)
{
    free(entry->key);
    ddb_items_release(&entry->items);
    memset(entry, 0, sizeof *entry);
}

void ddb_seen_release(struct ddb_seen *seen)
{
    for (size_t i = 0; i < SEEN_MAX; i++) {
        entry_clear(&seen->entries[i]);
    }
    (void)pthread_mutex_destroy(&seen->mutex);
}

/* The entry of a key, or a new one in place of the oldest. With the mutex held. */
static struct ddb_seen_entry *entry_for(struct ddb_seen *seen, const char *key)
{
    struct ddb_seen_entry *entry;

    for (size_t i = 0; i < SEEN_MAX; i++) {
        if (seen->entries[i].key != NULL && strcmp(seen->entries[i].key, key) == 0) {
            return &seen->entries[i];
        }
    }
    assert(seen->next < SEEN_MAX);
    entry = &seen->entries[seen->next];
    seen->next = (seen->next + 1) % SEEN_MAX;
    entry_clear(entry);
    entry->key = strdup(key);
    return entry;
}

/* Copies: jansson reads the count of a value that two threads share without a lock. */
static struct ddb_items copy_items(const struct ddb_items *items)
{
    struct ddb_items copy = *items;

    copy.item = json_deep_copy(items->item);
    copy.queue = items->queue == items->item ? json_incref(copy.item) : json_deep_copy(items->queue);
    copy.fence = json_deep_copy(items->fence);
    return copy;
}

int64_t ddb_seen_put(struct ddb_seen *seen, const char *key, const struct ddb_items *items,
                     const struct belay_record *record, int64_t now_ms)
{
    struct ddb_items kept = copy_items(items);
    struct ddb_seen_entry *entry;
    int64_t since;

    (void)pthread_mutex_lock(&seen->mutex);
    entry = entry_for(seen, key);
    ddb_items_release(&entry->items);
    entry->items = kept;
    entry->revision = record->revision;
    if (record->held) {
        entry->free_since_ms = 0;
    } else if (entry->free_since_ms == 0) {
        entry->free_since_ms = now_ms;
    }
    since = entry->free_since_ms;
    (void)pthread_mutex_unlock(&seen->mutex);
    return since;
}

bool ddb_seen_find(struct ddb_seen *seen, const char *key, uint64_t revision, struct ddb_items *out_items)
{
    bool found = false;

    (void)pthread_mutex_lock(&seen->mutex);
    for (size_t i = 0; !found && i < SEEN_MAX; i++) {
        struct ddb_seen_entry *entry = &seen->entries[i];

        if (entry->key != NULL && entry->revision == revision && strcmp(entry->key, key) == 0) {
            *out_items = copy_items(&entry->items);
            found = true;
        }
    }
    (void)pthread_mutex_unlock(&seen->mutex);
    return found;
}
