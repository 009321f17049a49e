/*
 * The record that this store wrote last, if somebody holds it: its release or renewal usually
 * comes next, and need not read it again while no other process has written (store->left). A
 * record with waiters or several holders is not kept: what is known of them also depends on
 * the wake file.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "store/sqlite/sqlite_internal.h"

enum { N_TEXTS = 5 };

/* The texts of `from` in one block of `to`, and the array of released ids. */
static bool copy_texts(const struct belay_record *from, struct belay_record *to)
{
    const char *const texts[N_TEXTS] = { from->key, from->lock_id, from->owner, from->owner_name,
                                         from->acquired_by };
    char **const fields[N_TEXTS] = { &to->key, &to->lock_id, &to->owner, &to->owner_name, &to->acquired_by };
    struct buf block = BUF_INIT(1 << 20);
    char *at;

    to->released_ids = calloc(from->n_released_ids + 1, sizeof *to->released_ids);
    for (size_t i = 0; i < N_TEXTS; i++) {
        buf_add(&block, texts[i], strlen(texts[i]) + 1);
    }
    for (size_t i = 0; i < from->n_released_ids; i++) {
        buf_add(&block, from->released_ids[i], strlen(from->released_ids[i]) + 1);
    }
    if (block.failed || to->released_ids == NULL) {
        buf_release(&block);
        free(to->released_ids);
        return false;
    }
    at = to->text = block.data;
    to->text_size = block.len;
    for (size_t i = 0; i < N_TEXTS + from->n_released_ids; i++) {
        *(i < N_TEXTS ? fields[i] : &to->released_ids[i - N_TEXTS]) = at;
        at += strlen(at) + 1;
    }
    return true;
}

void last_keep(struct sqlite_store *store, const struct row *row)
{
    const struct belay_record *record = &row->record;
    struct row kept = { .record = *record, .stored = true };

    row_release(&store->last);
    if (record->revision == 0 || !record->held || record->mode != BELAY_EXCLUSIVE || record->n_tickets > 0 ||
        record->n_intents > 0 || !copy_texts(record, &kept.record)) {
        return;
    }
    kept.record.tickets = NULL;
    kept.record.intents = NULL;
    kept.record.holders = NULL;
    kept.record.metadata = meta_copy(record->metadata, record->n_metadata);
    if (kept.record.metadata == NULL && record->n_metadata > 0) {
        kept.record.n_metadata = 0;
        row_release(&kept);
        return;
    }
    store->last = kept;
}

bool last_take(struct sqlite_store *store, const char *key, struct row *out_row)
{
    if (store->left.version == 0 || store->last.record.key == NULL ||
        strcmp(store->last.record.key, key) != 0) {
        return false;
    }
    *out_row = store->last;
    memset(&store->last, 0, sizeof store->last);
    return true;
}
