/* Removes records that were not held, waited for or an ancestor of a held lock for retain_records. */
#include <stdlib.h>
#include <string.h>

#include "store/journaled/journaled_internal.h"

/* Most are too young, which their packed numbers tell without unpacking the rest. */
static bool may_go(struct journaled *store, const struct item *item, int64_t now_ms, int64_t before_unix_ms)
{
    struct belay_record numbers;
    struct row row = { 0 };
    bool yes = record_unpack_numbers(item->packed, item->len, &numbers) &&
               record_may_go(&numbers, now_ms, before_unix_ms) &&
               record_unpack(item->key, item->packed, item->len, &row, NULL) == BELAY_OK &&
               record_may_go(&row.record, now_ms, before_unix_ms);

    (void)store;
    row_release(&row);
    return yes;
}

static void remove_all(struct journaled *store, struct item *const *items, size_t n, int64_t now_ms,
                       int64_t unix_ms)
{
    const char *keys[SWEEP_ROWS];
    struct journal_entry entry = {
        .number = store->next, .now_ms = now_ms, .unix_ms = unix_ms, .deletes = keys, .n_deletes = n
    };

    for (size_t i = 0; i < n; i++) {
        keys[i] = items[i]->key;
    }
    /* If the disk is full, they stay. */
    if (n > 0 && journaled_append(store, &entry, NULL) == BELAY_OK) {
        for (size_t i = 0; i < n; i++) {
            items_remove(&store->table, items[i]);
        }
    }
}

void journaled_sweep(struct journaled *store)
{
    struct item *gone[SWEEP_ROWS];
    int64_t now_ms = sqlite_now_ms(store->read_db);
    int64_t unix_ms = sqlite_unix_ms(store->read_db);
    size_t n = 0;
    struct item *item = items_after(&store->table, store->sweep_key == NULL ? "" : store->sweep_key,
                                    store->sweep_key == NULL);

    for (size_t i = 0; item != NULL && i < SWEEP_ROWS; i++) {
        if (may_go(store, item, now_ms, unix_ms - store->read_db->retain_records_ms)) {
            gone[n++] = item;
        }
        if (i + 1 == SWEEP_ROWS) {
            break;
        }
        item = items_after(&store->table, item->key, false);
    }
    free(store->sweep_key);
    store->sweep_key = item == NULL ? NULL : strdup(item->key);
    remove_all(store, gone, n, now_ms, unix_ms);
}
