/* Records by key: a hash table to find one, and the C library's tree to list them in order. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/journaled/journaled_internal.h"

enum { BUCKETS_FIRST = 1024 };

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct item *)a)->key, ((const struct item *)b)->key);
}

bool items_init(struct items *table)
{
    table->n_buckets = BUCKETS_FIRST;
    table->buckets = calloc(table->n_buckets, sizeof(struct item *));
    return table->buckets != NULL;
}

void item_free(struct item *item)
{
    if (item != NULL) {
        free(item->packed);
        free(item);
    }
}

static void leave_alone(void *item)
{
    (void)item; /* items_release() frees it with its bucket */
}

void items_release(struct items *table)
{
    tdestroy(table->tree, leave_alone);
    for (size_t i = 0; table->buckets != NULL && i < table->n_buckets; i++) {
        while (table->buckets[i] != NULL) {
            struct item *item = table->buckets[i];

            table->buckets[i] = item->next;
            item_free(item);
        }
    }
    free((void *)table->buckets);
    memset(table, 0, sizeof *table);
}

static struct item **bucket_of(const struct items *table, uint64_t hash)
{
    return &table->buckets[hash & (table->n_buckets - 1)];
}

struct item *items_find(const struct items *table, const char *key)
{
    uint64_t hash = text_hash(key);
    struct item *item = *bucket_of(table, hash);

    while (item != NULL && (item->hash != hash || strcmp(item->key, key) != 0)) {
        item = item->next;
    }
    return item;
}

struct item *item_new(const char *key)
{
    size_t size = strlen(key) + 1;
    struct item *item = calloc(1, sizeof *item + size);

    if (item != NULL) {
        memcpy(item->key, key, size);
        item->hash = text_hash(key);
    }
    return item;
}

/* Without memory it stays as it is, only slower. */
static void grow(struct items *table)
{
    struct items larger = { .n_buckets = 2 * table->n_buckets };

    larger.buckets = calloc(larger.n_buckets, sizeof(struct item *));
    if (larger.buckets == NULL) {
        return;
    }
    for (size_t i = 0; i < table->n_buckets; i++) {
        while (table->buckets[i] != NULL) {
            struct item *item = table->buckets[i];
            struct item **bucket = bucket_of(&larger, item->hash);

            table->buckets[i] = item->next;
            item->next = *bucket;
            *bucket = item;
        }
    }
    free((void *)table->buckets);
    table->buckets = larger.buckets;
    table->n_buckets = larger.n_buckets;
}

bool items_add(struct items *table, struct item *item)
{
    struct item **bucket;

    if (tsearch(item, &table->tree, by_key) == NULL) {
        return false;
    }
    if (table->n >= table->n_buckets) {
        grow(table);
    }
    bucket = bucket_of(table, item->hash);
    item->next = *bucket;
    *bucket = item;
    table->n++;
    return true;
}

void items_remove(struct items *table, struct item *item)
{
    struct item **at = bucket_of(table, item->hash);

    while (*at != item) {
        at = &(*at)->next;
    }
    *at = item->next;
    (void)tdelete(item, &table->tree, by_key);
    table->n--;
    item_free(item);
}

/* The least greater key that a search passes on its way down the tree. */
struct search {
    const char *key;
    bool or_same;
    struct item *best;
};

static int go_down(const void *a, const void *b)
{
    struct search *search = *(struct search *const *)a;
    struct item *item = (struct item *)b;
    int order = strcmp(search->key, item->key);

    if (order < 0 || (order == 0 && search->or_same)) {
        search->best = item;
        return -1;
    }
    return 1;
}

struct item *items_after(const struct items *table, const char *key, bool or_same)
{
    struct search search = { .key = key, .or_same = or_same };
    struct search *at = &search;

    (void)tfind(&at, &table->tree, go_down);
    return search.best;
}
