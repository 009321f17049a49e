/*
 * Durability: commits collect in a frame in memory, and sync() writes the frame to the journal.
 *
 *     commit --> frame --sync(): frames change places--> flushing --written and synced--> journal
 *                  ^                                        |
 *                  +------- empty, for the commits after ---+
 *
 * `committed` is the LSN of the last entry in `frame`. `durable` is raised to the last LSN of `flushing` once
 * that is on disk. If the write fails it is not known what is on disk: the store is broken, `durable` stays where
 * it is, and nothing more is committed.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "store/journaled/journaled_internal.h"

enum { SLACK_BYTES = 512 << 10 };

static void index_frame(struct journaled *store)
{
    const struct journal *journal = &store->journals[store->active];
    struct frame_index *index = &store->frame_index[store->active];

    assert(store->frame_first != 0 && index->n <= FRAME_INDEX_MAX);
    if (index->n == 0) {
        index->apart = FRAME_INDEX_BYTES;
    }
    if (index->n == FRAME_INDEX_MAX) {
        index->apart *= 2;
        for (index->n = 0; index->n < FRAME_INDEX_MAX / 2; index->n++) {
            index->all[index->n] = index->all[2 * index->n];
        }
    }
    if (index->n == 0 || journal->used >= index->all[index->n - 1].at + index->apart) {
        index->all[index->n].number = store->frame_first;
        index->all[index->n].frames = journal->frames;
        index->all[index->n++].at = journal->used;
    }
}

void journaled_switch_files(struct journaled *store)
{
    int other = 1 - store->active;
    uint64_t first = store->first[store->active];

    if (!store->is_ready[other] || store->is_flushing || first == 0 || first == store->frame_first) {
        return;
    }
    assert(store->first[other] == 0); /* it is ready: all its entries are in the database */
    assert(store->journals[other].use == store->journals[store->active].use + 1);
    assert(store->journals[other].frames == 0);
    if (journal_reserve(&store->journals[other], store->frame.len, NULL) == BELAY_OK) {
        store->first[other] = store->frame_first;
        store->is_ready[other] = false;
        store->active = other;
        (void)pthread_cond_signal(&store->wake);
    }
}

static void count_batch(struct journaled *store, uint64_t commits)
{
    size_t i = 0;

    assert(commits > 0);
    while (i + 1 < BELAY_BATCH_BUCKETS && commits > (uint64_t)1 << i) {
        i++;
    }
    store->counts.batches[i]++;
    store->counts.syncs++;
    store->counts.commits += commits;
}

/* Write the frame to the journal and sync it. Commits fill the other frame meanwhile: the mutex is released. */
static enum belay_code flush_frame(struct journaled *store, struct belay_error *err)
{
    struct journal *journal = &store->journals[store->active];
    uint64_t lsn = atomic_load(&store->committed);
    uint64_t commits = store->frame_commits;
    struct buf frame = store->frame;
    enum belay_code code = BELAY_NO_MEMORY;

    assert(!store->is_flushing && !store->is_broken);
    assert(store->frame_first == atomic_load(&store->durable) + 1 && store->frame_first <= lsn);
    assert(commits > 0 && lsn + 1 == store->next && lsn < store->ceiling);
    assert(store->first[store->active] != 0 && store->first[store->active] <= store->frame_first);
    index_frame(store);
    store->frame = store->flushing;
    store->flushing = frame;
    store->frame_first = store->frame_commits = 0;
    if (journal_seal(journal, &store->flushing)) {
        assert(journal->used + store->flushing.len <= journal->size); /* journaled_append() has reserved it */
        store->is_flushing = true;
        (void)pthread_mutex_unlock(&store->mutex);
        code = journal_write(journal, &store->flushing, err);
        (void)pthread_mutex_lock(&store->mutex);
        store->is_flushing = false;
        (void)pthread_cond_broadcast(&store->flushed);
    } else {
        (void)error_no_memory(err);
    }
    if (code != BELAY_OK) {
        store->is_broken = true; /* `durable` rises no more: no client learns of what may not be on disk */
        return code;
    }
    assert(!store->is_broken && lsn > atomic_load(&store->durable) && lsn <= atomic_load(&store->committed));
    journal_written(journal, &store->flushing);
    count_batch(store, commits);
    atomic_store(&store->durable, lsn);
    return BELAY_OK;
}

/* With the mutex. One thread flushes at a time, and its frame may be the one that this caller waits for. */
enum belay_code journaled_sync_to(struct journaled *store, uint64_t lsn, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    assert(lsn <= atomic_load(&store->committed));
    while (code == BELAY_OK && atomic_load(&store->durable) < lsn) {
        const struct journal *journal = &store->journals[store->active];

        if (store->is_broken) {
            return error_set(err, BELAY_UNKNOWN, "the server's journal '%s' has failed", journal->path);
        }
        if (store->is_flushing) {
            (void)pthread_cond_wait(&store->flushed, &store->mutex);
            continue;
        }
        /* Switch while there is still room: to enlarge a file takes time, and clients wait here. */
        if (journal->used + store->frame.len + SLACK_BYTES >= journal->size) {
            journaled_switch_files(store);
        }
        code = flush_frame(store, err);
    }
    assert(code != BELAY_OK || atomic_load(&store->durable) >= lsn);
    return code;
}

enum belay_code journaled_sync(struct belay_store *base, uint64_t lsn, struct belay_error *err)
{
    struct journaled *store = (struct journaled *)base;
    enum belay_code code;
    char *warning;

    (void)pthread_mutex_lock(&store->mutex);
    code = journaled_sync_to(store, lsn, err);
    warning = store->warning;
    store->warning = NULL;
    (void)pthread_mutex_unlock(&store->mutex);
    if (warning != NULL && store->on_warning != NULL) {
        store->on_warning(store->context, warning);
    }
    free(warning);
    return code;
}

uint64_t journaled_committed_lsn(struct belay_store *base)
{
    return atomic_load(&((struct journaled *)base)->committed);
}

uint64_t journaled_durable_lsn(struct belay_store *base)
{
    return atomic_load(&((struct journaled *)base)->durable);
}

void journaled_counts(struct belay_store *base, struct belay_store_counts *out)
{
    struct journaled *store = (struct journaled *)base;
    uint64_t errors = out->errors;

    (void)pthread_mutex_lock(&store->mutex);
    *out = store->counts;
    (void)pthread_mutex_unlock(&store->mutex);
    out->errors = errors;
}
