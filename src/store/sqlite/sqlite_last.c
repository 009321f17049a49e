/*
 * The record that this store wrote last, if somebody holds it: its release or renewal usually
 * comes next, and need not read it again while no other process has written (store->left). A
 * record with waiters or several holders is not kept: what is known of them also depends on
 * the wake file.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/sqlite/sqlite_internal.h"

enum { N_TEXTS = 5 };

static bool copy_texts(const struct belay_record *from, struct belay_record *to)
{
    const char *const texts[N_TEXTS] = { from->key, from->lock_id, from->owner, from->owner_name,
                                         from->acquired_by };
    char **const fields[N_TEXTS] = { &to->key, &to->lock_id, &to->owner, &to->owner_name, &to->acquired_by };
    size_t sizes[N_TEXTS];
    size_t total = 0;
    char *at;

    for (size_t i = 0; i < N_TEXTS; i++) {
        sizes[i] = strlen(texts[i]) + 1;
        total += sizes[i];
    }
    at = malloc(total);
    if (at == NULL) {
        return false;
    }
    to->text = at;
    to->text_size = total;
    for (size_t i = 0; i < N_TEXTS; i++) {
        *fields[i] = memcpy(at, texts[i], sizes[i]);
        at += sizes[i];
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
