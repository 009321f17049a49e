/*
 * The only way to change records: check the conditions, apply the writes to copies, pack
 * the copies and an entry of the journal's frame, and only then publish the copies. What
 * can fail (memory, a full disk) fails before that.
 */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/journaled/journaled_internal.h"

/* The record of a write in the table. */
struct step {
    struct stored_record *found;  /* the one that the table has; NULL: none */
    struct stored_record *stored; /* the one to change: `found`, or a new one; NULL: nothing changes */
};

struct journaled_batch {
    struct journaled *store;
    struct step *steps; /* beside base.batch->writes; owned unless they are few */
    struct step few_steps[BATCH_FEW];
    struct batch_work base; /* batch_begin() zeroes it */
};

static enum belay_code stored_record_unpack(const struct stored_record *stored, const char *key,
                                            struct row *out_row, struct belay_error *err)
{
    return stored == NULL ? row_absent(key, out_row, err)
                          : record_unpack(key, stored->packed, stored->len, out_row, err);
}

enum belay_code journaled_load(struct journaled *store, const char *key, struct row *out_row,
                               struct belay_error *err)
{
    return stored_record_unpack(table_find(&store->table, key), key, out_row, err);
}

static enum belay_code unpack_rows(struct journaled_batch *work, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && i < work->base.batch->n_writes; i++) {
        const char *key = work->base.batch->writes[i].key;

        work->steps[i].found = table_find(&work->store->table, key);
        code = stored_record_unpack(work->steps[i].found, key, &work->base.rows[i], err);
    }
    return code;
}

static enum belay_code find_used_id(void *context, const char *key, const char *lock_id, bool *out_used,
                                    struct belay_error *err)
{
    const struct journaled *store = context;

    (void)err;
    *out_used = ids_has(&store->ids, (uint64_t)hash_acquisition(key, lock_id));
    return BELAY_OK;
}

void journaled_cut_frame(struct journaled *store, size_t len)
{
    assert(len >= JOURNAL_FRAME_HEAD && len <= store->frame.len);
    store->frame.len = len;
    store->frame.failed = false;
}

enum belay_code journaled_append(struct journaled *store, size_t n_events, int64_t now_ms,
                                 struct belay_error *err)
{
    const struct buf *frame = &store->frame;
    size_t in_front = store->is_flushing ? store->flushing.len : 0; /* not in journal.used yet */
    uint64_t last = store->next + (n_events == 0 ? 0 : n_events - 1);
    enum belay_code code = frame->failed
                               ? error_no_memory(err)
                               : journal_reserve(&store->journals[store->active], in_front + frame->len, err);

    assert(!store->is_broken);
    if (code != BELAY_OK) {
        return code;
    }
    if (store->first[store->active] == 0) {
        store->first[store->active] = store->next;
    }
    assert((store->frame_first == 0) == (store->frame_commits == 0));
    if (store->frame_first == 0) {
        store->frame_first = store->next;
    }
    assert(last >= store->next && last < store->ceiling); /* L2: below what is on disk */
    assert(last > atomic_load(&store->committed));
    store->frame_commits++;
    store->next = last + 1;
    atomic_store(&store->committed, last);
    store->committed_ms = now_ms;
    return BELAY_OK;
}

/* Find or add the records to change. */
static enum belay_code place_records(struct journaled_batch *work, struct belay_error *err)
{
    for (size_t i = 0; i < work->base.batch->n_writes; i++) {
        struct step *step = &work->steps[i];

        if (!work->base.rows[i].is_changed) {
            continue;
        }
        step->stored = step->found != NULL ? step->found : stored_record_new(work->base.batch->writes[i].key);
        if (step->stored == NULL || (step->found == NULL && !table_add(&work->store->table, step->stored))) {
            return error_no_memory(err);
        }
    }
    return BELAY_OK;
}

static void publish_records(struct journaled_batch *work)
{
    for (size_t i = 0; i < work->base.batch->n_writes; i++) {
        struct stored_record *stored = work->steps[i].stored;
        struct row *row = &work->base.rows[i];

        if (stored != NULL) {
            assert(row->packed != NULL);
            free(stored->packed);
            stored->packed = row->packed;
            stored->len = row->packed_len;
            row->packed = NULL;
        }
    }
    for (size_t i = 0; i < work->base.batch->n_events; i++) {
        const struct belay_event *event = &work->base.events[i];

        if (event->lock_id != NULL && event_takes(event)) {
            ids_add(&work->store->ids, (uint64_t)hash_acquisition(event->key, event->lock_id));
        }
    }
}

/* Remove the records that were added for a commit that failed. */
static void discard_added(struct journaled_batch *work)
{
    for (size_t i = 0; i < work->base.batch->n_writes; i++) {
        struct stored_record *stored = work->steps[i].stored;

        if (stored == NULL || stored->packed != NULL) {
            continue;
        }
        if (table_find(&work->store->table, stored->key) == stored) {
            table_remove(&work->store->table, stored);
        } else {
            stored_record_free(stored);
        }
    }
}

/* Usually the checkpoint thread has raised it in time, over its own connection. */
static enum belay_code raise_ceiling(struct journaled *store, uint64_t last, struct belay_error *err)
{
    uint64_t to = last + (uint64_t)sqlite_numbers_ahead(store->read_db);
    enum belay_code code;

    (void)pthread_mutex_lock(&store->read_db->mutex);
    code = sqlite_raise_ceiling(store->read_db, to, err);
    (void)pthread_mutex_unlock(&store->read_db->mutex);
    if (code == BELAY_OK) {
        assert(to >= store->ceiling);
        store->ceiling = to;
    }
    return code;
}

static enum belay_code load_freezes(struct journaled *store, struct belay_error *err)
{
    struct belay_item item = { 0 };
    struct freeze_list list = { 0 };
    enum belay_code code =
        sqlite_item_get(&store->read_db->base, BELAY_SPACE_FREEZES, FREEZE_ITEM, &item, err);

    if (code == BELAY_OK) {
        code = freeze_list_read(&item, &list, err);
    }
    if (code == BELAY_OK) {
        freeze_list_release(&store->freezes);
        store->freezes = list;
        store->has_freezes = true;
    }
    belay_item_release(&item);
    return code;
}

static enum belay_code commit_in_memory(struct journaled_batch *work, struct belay_error *err)
{
    struct journaled *store = work->store;
    size_t frame_len = store->frame.len;
    enum belay_code code;

    if (store->is_broken) {
        return error_set(err, BELAY_UNREACHABLE, "the server's journal has failed; nothing more is done");
    }
    work->base.txn.now_ms = sqlite_now_ms(store->read_db);
    work->base.txn.unix_ms = sqlite_unix_ms(store->read_db);
    work->base.txn.next = store->next;
    assert(store->next == atomic_load(&store->committed) + 1);
    assert(atomic_load(&store->durable) <= atomic_load(&store->committed));
    code = unpack_rows(work, err);
    if (code == BELAY_OK && work->base.batch->check_freezes && !store->has_freezes) {
        code = load_freezes(store, err);
    }
    if (code == BELAY_OK) {
        code = batch_check(&work->base, &store->freezes, err);
    }
    if (code == BELAY_OK) {
        code = batch_check_unused(&work->base, find_used_id, store, err);
    }
    /* One more than the events: a batch without any takes a number, and so does the sweep after it. */
    if (code == BELAY_OK && store->next + work->base.batch->n_events + 1 >= store->ceiling) {
        code = raise_ceiling(store, store->next + work->base.batch->n_events + 1, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    code = batch_apply(&work->base, NULL, err);
    if (code == BELAY_OK) {
        code = batch_pack(&work->base, &store->scratch, &store->frame, err);
    }
    if (code == BELAY_OK) {
        code = place_records(work, err);
    }
    if (code == BELAY_OK) {
        code = journaled_append(store, work->base.batch->n_events, work->base.txn.now_ms, err);
    }
    if (code == BELAY_OK) {
        publish_records(work); /* which cannot fail */
    } else {
        journaled_cut_frame(store, frame_len);
        discard_added(work);
    }
    return code;
}

enum belay_code journaled_commit(struct belay_store *base, const struct belay_batch *batch,
                                 struct belay_commit *out, struct belay_error *err)
{
    struct journaled *store = (struct journaled *)base;
    struct journaled_batch work;
    size_t n = batch->n_writes;
    enum belay_code code;

    memset(&work, 0, offsetof(struct journaled_batch, base));
    work.store = store;
    code = batch_begin(&work.base, batch, err);
    if (code != BELAY_OK) {
        return code;
    }
    work.steps = n <= BATCH_FEW ? work.few_steps : calloc(n, sizeof *work.steps);
    if (work.steps == NULL) {
        code = error_no_memory(err);
        goto done;
    }
    (void)pthread_mutex_lock(&store->mutex);
    code = commit_in_memory(&work, err);
    if (code == BELAY_OK && work.base.txn.next / SWEEP_EVERY != store->next / SWEEP_EVERY) {
        journaled_sweep(store);
    }
    if (code == BELAY_OK) {
        wake_after_commit(store->read_db, batch->n_events > 0); /* in the order of commits */
    }
    (void)pthread_mutex_unlock(&store->mutex);
    batch_answer(&work.base, code, out);

done:
    if (n > BATCH_FEW) {
        free(work.steps);
    }
    batch_release(&work.base);
    return code;
}
