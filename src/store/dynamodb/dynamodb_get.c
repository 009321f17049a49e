#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/dynamodb/dynamodb_internal.h"

/* The item, its queue and its counter, as far as the layout has them. */
static size_t places_per_key(const struct ddb_store *store)
{
    return 1U + (layout_is_foreign(store->layout) ? 1U : 0U) + (store->params.fence_table != NULL ? 1U : 0U);
}

static void name_places(const struct ddb_store *store, const char *key, struct ddb_place *places)
{
    size_t n = 0;

    places[n++] = (struct ddb_place){ store->params.table, ddb_item_key(store->layout, key), NULL };
    if (layout_is_foreign(store->layout)) {
        places[n++] = (struct ddb_place){ store->params.table, ddb_queue_key(store->layout, key), NULL };
    }
    if (store->params.fence_table != NULL) {
        places[n] = (struct ddb_place){ store->params.fence_table, ddb_fence_key(store, key), NULL };
    }
}

static void take_places(const struct ddb_store *store, struct ddb_place *places, struct ddb_items *items)
{
    size_t n = 0;

    items->item = json_incref(places[n++].item);
    if (layout_is_foreign(store->layout)) {
        items->queue = json_incref(places[n++].item);
    }
    if (store->params.fence_table != NULL) {
        items->fence = json_incref(places[n].item);
    }
    items->queue_known = true;
}

enum belay_code ddb_read_locks(struct ddb_store *store, const char *const *keys, size_t n,
                               struct ddb_items *out_items, struct belay_error *err)
{
    size_t each = places_per_key(store);
    struct ddb_place *places = calloc(n * each + 1, sizeof *places);
    enum belay_code code;

    if (places == NULL) {
        return error_no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        name_places(store, keys[i], places + i * each);
    }
    code = n == 0 ? BELAY_OK : ddb_read(store, places, n * each, err);
    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        memset(&out_items[i], 0, sizeof out_items[i]);
        take_places(store, places + i * each, &out_items[i]);
    }
    ddb_places_release(places, n * each);
    free(places);
    return code;
}

static enum belay_code make_records(struct ddb_store *store, const char *const *keys, size_t n,
                                    const struct ddb_items *items, struct belay_record *out_records,
                                    struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    size_t made = 0;

    for (; code == BELAY_OK && made < n; made++) {
        code = ddb_record(store, keys[made], &items[made], &out_records[made], err);
    }
    if (code != BELAY_OK) {
        for (size_t i = 0; i + 1 < made; i++) {
            belay_record_release(&out_records[i]);
        }
    }
    return code;
}

enum belay_code ddb_get(struct belay_store *base, const char *const *keys, size_t n,
                        struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err)
{
    struct ddb_store *store = ddb_of(base);
    struct ddb_items *items = calloc(n + 1, sizeof *items);
    enum belay_code code = items == NULL ? error_no_memory(err) : ddb_read_locks(store, keys, n, items, err);

    if (code == BELAY_OK) {
        code = make_records(store, keys, n, items, out_records, err);
    }
    if (code == BELAY_OK) {
        *out_now_ms = ddb_clock_judge_ms(store);
    }
    for (size_t i = 0; items != NULL && i < n; i++) {
        ddb_items_release(&items[i]);
    }
    free(items);
    return code;
}
