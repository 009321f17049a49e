/* All locks of a table, page by page, sorted by key at the end. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "store/dynamodb/dynamodb_internal.h"

struct scan_found {
    char *key; /* owned */
    struct ddb_items items;
};

struct found_locks {
    const struct belay_scan *scan;
    struct scan_found *list; /* owned */
    size_t n;
    size_t cap;
};

static void found_locks_release(struct found_locks *found_locks)
{
    for (size_t i = 0; i < found_locks->n; i++) {
        free(found_locks->list[i].key);
        ddb_items_release(&found_locks->list[i].items);
    }
    free(found_locks->list);
}

/* Takes over `key`. */
static bool add_found_lock(struct found_locks *found_locks, char *key, json_t *item, bool is_queue)
{
    struct scan_found found = { .key = key, .items = { .queue_known = true } };
    struct scan_found *list =
        array_grow(found_locks->list, sizeof *list, found_locks->n + 1, &found_locks->cap);

    if (list == NULL) {
        free(key);
        return false;
    }
    found_locks->list = list;
    *(is_queue ? &found.items.queue : &found.items.item) = json_incref(item);
    found_locks->list[found_locks->n++] = found;
    return true;
}

/* The lock's key in an item's key; NULL if it is not a lock's. */
static char *lock_key_of(const struct layout *layout, const json_t *item, bool *out_is_queue)
{
    const struct layout_key *first = &layout->keys[0];
    const char *text = item_text(item, first->name);
    size_t before = strlen(first->before), after = strlen(first->after);

    *out_is_queue = false;
    for (size_t i = 1; i < layout->n_keys; i++) {
        const char *other = item_text(item, layout->keys[i].name);

        if (other == NULL || (!layout->keys[i].has_key && strcmp(other, layout->keys[i].before) != 0)) {
            return NULL;
        }
    }
    if (text == NULL || ddb_is_item(layout, text)) {
        return NULL;
    }
    if (layout->queue_prefix != NULL && text_has_prefix(text, layout->queue_prefix)) {
        *out_is_queue = true;
        return strdup(text + strlen(layout->queue_prefix));
    }
    if (!text_has_prefix(text, first->before) || strlen(text) <= before + after ||
        strcmp(text + strlen(text) - after, first->after) != 0) {
        return NULL;
    }
    return strndup(text + before, strlen(text) - before - after);
}

static bool scan_wants(const char *key, const struct belay_scan *scan)
{
    return (scan->prefix == NULL || text_has_prefix(key, scan->prefix)) &&
           (scan->after == NULL || strcmp(key, scan->after) > 0);
}

static enum belay_code take_item(struct ddb_store *store, json_t *item, void *context,
                                 struct belay_error *err)
{
    struct found_locks *found_locks = context;
    bool is_queue;
    char *key = lock_key_of(store->layout, item, &is_queue);

    if (key == NULL || !scan_wants(key, found_locks->scan)) {
        free(key);
        return BELAY_OK;
    }
    return add_found_lock(found_locks, key, item, is_queue) ? BELAY_OK : error_no_memory(err);
}

enum belay_code ddb_each_item(struct ddb_store *store, ddb_item_fn fn, void *context, struct belay_error *err)
{
    json_t *start = NULL;
    enum belay_code code;

    do {
        json_t *request = json_pack("{s:s,s:b}", "TableName", store->params.table, "ConsistentRead", 1);
        struct ddb_answer answer;
        json_t *items;

        if (request != NULL && start != NULL) {
            (void)json_object_set_new(request, "ExclusiveStartKey", start);
        }
        start = NULL;
        code = ddb_call(store, "Scan", request, &answer, err);
        if (code == BELAY_OK) {
            items = json_object_get(answer.body, "Items");
            start = json_incref(json_object_get(answer.body, "LastEvaluatedKey"));
            if (!json_is_array(items)) {
                code =
                    error_set(err, BELAY_UNREACHABLE, "a page of table '%s' is missing", store->params.table);
            }
            for (size_t i = 0; code == BELAY_OK && i < json_array_size(items); i++) {
                code = fn(store, json_array_get(items, i), context, err);
            }
        }
        ddb_answer_release(&answer);
    } while (code == BELAY_OK && start != NULL);
    json_decref(start);
    return code;
}

static int compare_found_keys(const void *a, const void *b)
{
    return strcmp(((const struct scan_found *)a)->key, ((const struct scan_found *)b)->key);
}

/* An item and the queue beside it are one record. */
static void join_queues(struct found_locks *found_locks)
{
    size_t n = 0;

    for (size_t i = 0; i < found_locks->n; i++) {
        struct scan_found *last = n == 0 ? NULL : &found_locks->list[n - 1];
        struct scan_found *next = &found_locks->list[i];

        if (last == NULL || strcmp(last->key, next->key) != 0) {
            found_locks->list[n++] = *next;
            continue;
        }
        if (last->items.item == NULL) {
            last->items.item = next->items.item;
            next->items.item = NULL;
        }
        if (last->items.queue == NULL) {
            last->items.queue = next->items.queue;
            next->items.queue = NULL;
        }
        free(next->key);
        ddb_items_release(&next->items);
    }
    found_locks->n = n;
}

/* The counters in the fence table, if there is one. */
static enum belay_code read_fences(struct ddb_store *store, struct found_locks *found_locks,
                                   struct belay_error *err)
{
    struct ddb_place *places;
    enum belay_code code;

    if (store->params.fence_table == NULL || found_locks->n == 0) {
        return BELAY_OK;
    }
    places = calloc(found_locks->n, sizeof *places);
    if (places == NULL) {
        return error_no_memory(err);
    }
    for (size_t i = 0; i < found_locks->n; i++) {
        places[i].table = store->params.fence_table;
        places[i].key = ddb_fence_key(store, found_locks->list[i].key);
    }
    code = ddb_read(store, places, found_locks->n, err);
    for (size_t i = 0; code == BELAY_OK && i < found_locks->n; i++) {
        found_locks->list[i].items.fence = json_incref(places[i].item);
    }
    ddb_places_release(places, found_locks->n);
    free(places);
    return code;
}

static enum belay_code report_found_locks(struct ddb_store *store, const struct found_locks *found_locks,
                                          belay_record_fn fn, void *context, struct belay_error *err)
{
    int64_t now_ms = ddb_clock_judge_ms(store);
    enum belay_code code = BELAY_OK;
    bool go_on = true;

    for (size_t i = 0; code == BELAY_OK && go_on && i < found_locks->n; i++) {
        struct belay_record record;

        code = ddb_record(store, found_locks->list[i].key, &found_locks->list[i].items, &record, err);
        if (code == BELAY_OK) {
            if (record.revision != 0 && (record.held || !found_locks->scan->held_only)) {
                go_on = fn(context, &record, now_ms);
            }
            belay_record_release(&record);
        }
    }
    return code;
}

enum belay_code ddb_scan(struct belay_store *base, const struct belay_scan *scan, belay_record_fn fn,
                         void *context, struct belay_error *err)
{
    struct ddb_store *store = ddb_of(base);
    struct found_locks found_locks = { .scan = scan };
    enum belay_code code = ddb_each_item(store, take_item, &found_locks, err);

    if (code == BELAY_OK) {
        if (found_locks.n > 0) {
            qsort(found_locks.list, found_locks.n, sizeof *found_locks.list, compare_found_keys);
        }
        join_queues(&found_locks);
        code = read_fences(store, &found_locks, err);
    }
    if (code == BELAY_OK) {
        code = report_found_locks(store, &found_locks, fn, context, err);
    }
    found_locks_release(&found_locks);
    return code;
}
