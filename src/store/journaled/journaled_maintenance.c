/* Removes records that were not held, waited for or an ancestor of a held lock for retain_records. */
#include <stdlib.h>
#include <string.h>

#include "store/journaled/journaled_internal.h"

/* Most are too young, which their packed numbers tell without unpacking the rest. */
static bool may_go(const struct stored_record *stored, int64_t now_ms, int64_t before_unix_ms)
{
    struct belay_record numbers;
    struct row row = { 0 };
    bool yes = record_unpack_numbers(stored->packed, stored->len, &numbers) &&
               record_may_go(&numbers, now_ms, before_unix_ms) &&
               record_unpack(stored->key, stored->packed, stored->len, &row, NULL) == BELAY_OK &&
               record_may_go(&row.record, now_ms, before_unix_ms);

    row_release(&row);
    return yes;
}

static void remove_records(struct journaled *store, struct stored_record *const *records, size_t n,
                           int64_t now_ms, int64_t unix_ms)
{
    const char *keys[SWEEP_ROWS];
    struct journal_entry entry = {
        .number = store->next, .now_ms = now_ms, .unix_ms = unix_ms, .deletes = keys, .n_deletes = n
    };
    size_t frame_len = store->frame.len;

    if (n == 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        keys[i] = records[i]->key;
    }
    entry_pack(&store->frame, &entry);
    if (journaled_append(store, 0, now_ms, NULL) != BELAY_OK) {
        journaled_cut_frame(store, frame_len);
        return; /* if the disk is full, they stay */
    }
    for (size_t i = 0; i < n; i++) {
        table_remove(&store->table, records[i]);
    }
}

void journaled_sweep(struct journaled *store)
{
    struct stored_record *gone[SWEEP_ROWS];
    int64_t now_ms = sqlite_now_ms(store->read_db);
    int64_t unix_ms = sqlite_unix_ms(store->read_db);
    size_t n = 0;
    struct stored_record *stored = table_after(
        &store->table, store->sweep_key == NULL ? "" : store->sweep_key, store->sweep_key == NULL);

    for (size_t i = 0; stored != NULL && i < SWEEP_ROWS; i++) {
        if (may_go(stored, now_ms, unix_ms - store->read_db->retain_records_ms)) {
            gone[n++] = stored;
        }
        if (i + 1 == SWEEP_ROWS) {
            break;
        }
        stored = table_after(&store->table, stored->key, false);
    }
    free(store->sweep_key);
    store->sweep_key = stored == NULL ? NULL : strdup(stored->key);
    remove_records(store, gone, n, now_ms, unix_ms);
}
