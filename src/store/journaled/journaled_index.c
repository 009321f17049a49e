/* Records by key: a hash table to find one, and the C library's tree to list them in order. */
#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/journaled/journaled_internal.h"

enum { BUCKETS_FIRST = 1024 };

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct stored_record *)a)->key, ((const struct stored_record *)b)->key);
}

bool table_init(struct record_table *table)
{
    table->n_buckets = BUCKETS_FIRST;
    table->buckets = calloc(table->n_buckets, sizeof(struct stored_record *));
    return table->buckets != NULL;
}

void stored_record_free(struct stored_record *stored)
{
    if (stored != NULL) {
        free(stored->packed);
        free(stored);
    }
}

static void leave_alone(void *stored)
{
    (void)stored; /* table_release() frees it with its bucket */
}

void table_release(struct record_table *table)
{
    tdestroy(table->tree, leave_alone);
    for (size_t i = 0; table->buckets != NULL && i < table->n_buckets; i++) {
        while (table->buckets[i] != NULL) {
            struct stored_record *stored = table->buckets[i];

            table->buckets[i] = stored->next;
            stored_record_free(stored);
        }
    }
    free((void *)table->buckets);
    memset(table, 0, sizeof *table);
}

static struct stored_record **table_bucket(const struct record_table *table, uint64_t hash)
{
    assert(table->n_buckets != 0 && (table->n_buckets & (table->n_buckets - 1)) == 0);
    return &table->buckets[hash & (table->n_buckets - 1)];
}

struct stored_record *table_find(const struct record_table *table, const char *key)
{
    uint64_t hash = text_hash(key);
    struct stored_record *stored = *table_bucket(table, hash);

    while (stored != NULL && (stored->hash != hash || strcmp(stored->key, key) != 0)) {
        stored = stored->next;
    }
    return stored;
}

struct stored_record *stored_record_new(const char *key)
{
    size_t size = strlen(key) + 1;
    struct stored_record *stored = calloc(1, sizeof *stored + size);

    if (stored != NULL) {
        memcpy(stored->key, key, size);
        stored->hash = text_hash(key);
    }
    return stored;
}

/* Without memory it stays as it is, only slower. */
static void table_grow(struct record_table *table)
{
    struct record_table larger = { .n_buckets = 2 * table->n_buckets };

    larger.buckets = calloc(larger.n_buckets, sizeof(struct stored_record *));
    if (larger.buckets == NULL) {
        return;
    }
    for (size_t i = 0; i < table->n_buckets; i++) {
        while (table->buckets[i] != NULL) {
            struct stored_record *stored = table->buckets[i];
            struct stored_record **bucket = table_bucket(&larger, stored->hash);

            table->buckets[i] = stored->next;
            stored->next = *bucket;
            *bucket = stored;
        }
    }
    free((void *)table->buckets);
    table->buckets = larger.buckets;
    table->n_buckets = larger.n_buckets;
}

bool table_add(struct record_table *table, struct stored_record *stored)
{
    struct stored_record **bucket;

    assert(stored->next == NULL);
    if (tsearch(stored, &table->tree, compare_keys) == NULL) {
        return false;
    }
    if (table->n >= table->n_buckets) {
        table_grow(table);
    }
    bucket = table_bucket(table, stored->hash);
    stored->next = *bucket;
    *bucket = stored;
    table->n++;
    return true;
}

void table_remove(struct record_table *table, struct stored_record *stored)
{
    struct stored_record **at = table_bucket(table, stored->hash);

    while (*at != stored) {
        assert(*at != NULL); /* the record is in the table */
        at = &(*at)->next;
    }
    assert(table->n > 0);
    *at = stored->next;
    (void)tdelete(stored, &table->tree, compare_keys);
    table->n--;
    stored_record_free(stored);
}

/* The least greater key that a search passes on its way down the tree. */
struct search {
    const char *key;
    bool or_same;
    struct stored_record *best;
};

static int go_down(const void *a, const void *b)
{
    struct search *search = *(struct search *const *)a;
    struct stored_record *stored = (struct stored_record *)b;
    int order = strcmp(search->key, stored->key);

    if (order < 0 || (order == 0 && search->or_same)) {
        search->best = stored;
        return -1;
    }
    return 1;
}

struct stored_record *table_after(const struct record_table *table, const char *key, bool or_same)
{
    struct search search = { .key = key, .or_same = or_same };
    struct search *at = &search;

    (void)tfind(&at, &table->tree, go_down);
    return search.best;
}
