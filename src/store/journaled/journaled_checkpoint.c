/*
 * Checkpoints: a thread writes the journal's entries to the database, behind the commits.
 *
 *     active --full, or no commit for idle_ms--> other, once that is ready
 *       ^                                          |
 *       +------ ready: begun again, empty <--- written to the database
 *
 * While the other journal is not ready, the active one grows. The thread never holds
 * the mutex while it reads or writes: commits do not wait for it.
 */
#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/pool.h"
#include "store/journaled/journaled_internal.h"

enum {
    LOOK_MS = 200,           /* between two looks for work */
    SOON_MS = 5,             /* the same while a backup waits */
    BACKUP_LIMIT_MS = 60000, /* for the checkpoint that a backup waits for */
    RETRY_MS = 5000,         /* after a checkpoint that failed */
    CHECKPOINT_NICE = 5,
    GROW_FACTOR = 8,  /* a new file has so many times the room of the one in use, up to journal_bytes */
    REST_MAX_MS = 50, /* between two steps of enlarging a file */
};

/* With the mutex. The next sync() reports the error, because this thread has no caller. */
static void keep_warning(struct journaled *store, const struct belay_error *err)
{
    free(store->warning);
    store->warning = strdup(err->text);
}

/* ---- the thread ---- */

static bool keep_going(void *context)
{
    struct journaled *store = context;
    bool stopping;

    (void)pthread_mutex_lock(&store->mutex);
    stopping = store->is_stopping;
    (void)pthread_mutex_unlock(&store->mutex);
    return !stopping;
}

/* With the mutex, which is released meanwhile. If it fails, the commit that needs a number tries again. */
static void raise_ceiling_early(struct journaled *store)
{
    uint64_t to = store->next + CEILING_AHEAD;

    assert(store->ceiling >= store->next); /* L2 */
    if (store->ceiling - store->next >= store->ahead / 2) {
        return;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    if (sqlite_raise_ceiling(store->checkpoint_db, to, NULL) != BELAY_OK) {
        to = 0;
    }
    (void)pthread_mutex_lock(&store->mutex);
    if (to > store->ceiling) {
        store->ceiling = to;
        store->ahead = CEILING_AHEAD;
    }
}

/*
 * Called between two steps of enlarging a file. Commits need the same disk: leave it to them for half of the
 * time, unless the active journal fills up meanwhile, or a backup waits.
 */
static bool yield_disk(void *context)
{
    struct journaled *store = context;
    const struct journal *active;
    int64_t took_ms;
    bool goes_on;

    (void)pthread_mutex_lock(&store->mutex);
    active = &store->journals[store->active];
    took_ms = sqlite_now_ms(store->read_db) - store->step_ms;
    if (!store->is_stopping && store->wanted == 0 && active->used < active->size / 2) {
        cond_wait_for(&store->wake, &store->mutex, took_ms < REST_MAX_MS ? took_ms : REST_MAX_MS);
    }
    raise_ceiling_early(store);
    store->step_ms = sqlite_now_ms(store->read_db);
    goes_on = !store->is_stopping;
    (void)pthread_mutex_unlock(&store->mutex);
    return goes_on;
}

/* Write the journal that is not active to the database, and make it ready again. Without the mutex. */
static enum belay_code checkpoint_other(struct journaled *store, int which, bool has_entries,
                                        struct belay_error *err)
{
    struct journal *journal = &store->journals[which];
    uint64_t use = store->journals[1 - which].use + 1;
    enum belay_code code = BELAY_OK;
    size_t size;

    assert(which == 0 || which == 1);
    if (has_entries) {
        code = sqlite_replay(store->checkpoint_db, journal, keep_going, store, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    /* Readers of events hold the mutex: from here on they read these from the database. */
    (void)pthread_mutex_lock(&store->mutex);
    assert(which != store->active && !store->is_ready[which]);
    store->first[which] = 0;
    store->frame_index[which].n = 0;
    size = GROW_FACTOR * store->journals[1 - which].size;
    size = size < store->journal_bytes ? size : store->journal_bytes;
    store->step_ms = sqlite_now_ms(store->read_db);
    (void)pthread_mutex_unlock(&store->mutex);
    code = journal_begin_gently(journal, use, size, store->checkpoint_db->path, yield_disk, store, err);
    if (code == BELAY_OK) {
        /* Before it has an entry, so that its loss is noticed. */
        code = sqlite_journal_want(store->checkpoint_db, journal->id, use, use - JOURNAL_FILES, 0, err);
    }
    (void)pthread_mutex_lock(&store->mutex);
    assert(which != store->active && !store->is_ready[which] && store->first[which] == 0);
    store->is_ready[which] = code == BELAY_OK;
    (void)pthread_mutex_unlock(&store->mutex);
    return code;
}

static void *checkpoint_thread(void *context)
{
    struct journaled *store = context;

    /* Commits come first. On Linux this applies to the thread alone. */
    (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){ 0 });
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), CHECKPOINT_NICE);
    (void)pthread_mutex_lock(&store->mutex);
    while (!store->is_stopping) {
        int other = 1 - store->active;
        bool has_entries = store->first[other] != 0;
        struct belay_error err = BELAY_ERROR_INIT;
        enum belay_code code;

        raise_ceiling_early(store);
        if (!store->is_ready[other]) {
            (void)pthread_mutex_unlock(&store->mutex);
            code = checkpoint_other(store, other, has_entries, &err);
            (void)pthread_mutex_lock(&store->mutex);
            if (code != BELAY_OK && code != BELAY_CANCELLED) {
                keep_warning(store, &err);
                store->faults++;
            }
            belay_error_release(&err);
            if (code != BELAY_OK && !store->is_stopping) {
                cond_wait_for(&store->wake, &store->mutex, RETRY_MS);
            }
            continue;
        }
        if (store->first[store->active] != 0 &&
            (sqlite_now_ms(store->read_db) - store->committed_ms >= store->idle_ms ||
             store->first[store->active] <= store->wanted)) {
            journaled_switch_files(store);
        }
        if (store->is_ready[1 - store->active]) {
            cond_wait_for(&store->wake, &store->mutex, store->wanted != 0 ? SOON_MS : LOOK_MS);
        }
    }
    (void)pthread_mutex_unlock(&store->mutex);
    return NULL;
}

bool journaled_start_thread(struct journaled *store)
{
    assert(!store->has_thread && !store->is_stopping);
    store->has_thread = thread_start(&store->thread, checkpoint_thread, store);
    return store->has_thread;
}

void journaled_stop_thread(struct journaled *store)
{
    if (!store->has_thread) {
        return;
    }
    (void)pthread_mutex_lock(&store->mutex);
    store->is_stopping = true;
    (void)pthread_cond_signal(&store->wake);
    (void)pthread_mutex_unlock(&store->mutex);
    (void)pthread_join(store->thread, NULL);
    store->has_thread = false;
}

enum belay_code journaled_checkpoint_all(struct journaled *store, struct belay_error *err)
{
    enum belay_code code = journaled_sync(&store->base, atomic_load(&store->committed), err);

    assert(!store->has_thread);
    for (int i = 0; code == BELAY_OK && i < JOURNAL_FILES; i++) {
        int which = i == 0 ? 1 - store->active : store->active;

        if (store->first[which] != 0) {
            code = sqlite_replay(store->checkpoint_db, &store->journals[which], NULL, NULL, err);
        }
    }
    if (code == BELAY_OK) {
        code = sqlite_journal_want(store->checkpoint_db, 0, 0, 0, 0, err);
    }
    for (int i = 0; code == BELAY_OK && i < JOURNAL_FILES; i++) {
        (void)unlink(store->journals[i].path);
    }
    return code;
}

/* ---- a backup ---- */

/* With the mutex: whether all entries up to `last` are in the database. */
static bool is_checkpointed(const struct journaled *store, uint64_t last)
{
    for (int i = 0; i < JOURNAL_FILES; i++) {
        if (store->first[i] != 0 && store->first[i] <= last) {
            return false;
        }
    }
    return true;
}

/* Have the thread checkpoint all that is committed by now. */
static enum belay_code checkpoint_now(struct journaled *store, struct belay_cancel *cancel,
                                      struct belay_error *err)
{
    int64_t until_ms = sqlite_now_ms(store->read_db) + BACKUP_LIMIT_MS;
    const struct timespec step = { 0, SOON_MS * 1000000L };
    unsigned faults = store->faults;
    uint64_t last;
    enum belay_code code = journaled_sync_to(store, atomic_load(&store->committed), err);

    assert(store->is_copying && store->wanted == 0);
    last = store->next - 1;
    store->wanted = last;
    (void)pthread_cond_signal(&store->wake);
    while (code == BELAY_OK && !is_checkpointed(store, last)) {
        (void)pthread_mutex_unlock(&store->mutex);
        (void)nanosleep(&step, NULL);
        (void)pthread_mutex_lock(&store->mutex);
        if (belay_cancel_requested(cancel) || store->is_stopping) {
            code = error_set(err, BELAY_CANCELLED, "the backup was cancelled");
        } else if (sqlite_now_ms(store->read_db) > until_ms || store->faults != faults || store->is_broken) {
            code =
                error_set(err, BELAY_UNREACHABLE, "the journal cannot be written to the database%s%s",
                          store->warning == NULL ? "" : ": ", store->warning == NULL ? "" : store->warning);
        }
    }
    store->wanted = 0;
    return code;
}

enum belay_code journaled_backup(struct belay_store *base, const char *path, struct belay_cancel *cancel,
                                 struct belay_error *err)
{
    struct journaled *store = (struct journaled *)base;
    enum belay_code code;

    (void)pthread_mutex_lock(&store->mutex);
    if (store->is_copying) {
        (void)pthread_mutex_unlock(&store->mutex);
        return error_set(err, BELAY_UNREACHABLE, "another backup is in progress: try again in a moment");
    }
    store->is_copying = true;
    code = checkpoint_now(store, cancel, err);
    (void)pthread_mutex_unlock(&store->mutex);
    if (code == BELAY_OK) {
        code = sqlite_backup_make(store->read_db, path, cancel, err);
    }
    (void)pthread_mutex_lock(&store->mutex);
    assert(store->is_copying);
    store->is_copying = false;
    (void)pthread_mutex_unlock(&store->mutex);
    return code;
}
