/*
 * Behind the commits: one sync for many of them, and the thread that brings the
 * journal into the database.
 *
 *     active --full, or nothing happens for a while--> the other, if that is ready
 *       ^                                                 |
 *       +-- begun anew <-- brought into the database <----+
 *
 * While the other is not ready yet the active one grows. The thread never holds
 * the mutex while it reads or writes: commits do not wait for it.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "store/journaled/journaled_internal.h"

enum {
    LOOK_MS = 200,
    SOON_MS = 5,
    BACKUP_LIMIT_MS = 60000,
    RETRY_MS = 5000,
    FOLD_NICE = 5,
    SLACK_BYTES = 512 << 10,
    GROW_FACTOR = 8, /* a new file has so many times the room of the one in use, up to journal_bytes */
    REST_MAX_MS = 50,
};

/* Told by who syncs: the thread has nobody to talk to. With the mutex. */
static void warn(struct ledger *ledger, const struct belay_error *err)
{
    free(ledger->warning);
    ledger->warning = strdup(err->text);
}

static void add_mark(struct ledger *ledger)
{
    const struct journal *journal = &ledger->journals[ledger->active];
    struct marks *marks = &ledger->marks[ledger->active];

    if (marks->n == 0) {
        marks->apart = MARK_BYTES;
    }
    if (marks->n == MARKS_MAX) {
        marks->apart *= 2;
        for (marks->n = 0; marks->n < MARKS_MAX / 2; marks->n++) {
            marks->all[marks->n] = marks->all[2 * marks->n];
        }
    }
    if (marks->n == 0 || journal->used >= marks->all[marks->n - 1].at + marks->apart) {
        marks->all[marks->n].number = ledger->frame_first;
        marks->all[marks->n].frames = journal->frames;
        marks->all[marks->n++].at = journal->used;
    }
}

/*
 * The other file from now on, if it is ready; the thread sees to the rest. What
 * the frame has goes there as well, and not into this one.
 */
static void switch_files(struct ledger *ledger)
{
    int other = 1 - ledger->active;
    uint64_t first = ledger->first[ledger->active];

    if (!ledger->is_ready[other] || ledger->is_writing || first == 0 || first == ledger->frame_first) {
        return;
    }
    if (journal_reserve(&ledger->journals[other], ledger->frame.len, NULL) == BELAY_OK) {
        ledger->first[other] = ledger->frame_first;
        ledger->is_ready[other] = false;
        ledger->active = other;
        (void)pthread_cond_signal(&ledger->wake);
    }
}

static void count_batch(struct ledger *ledger, uint64_t commits)
{
    size_t i = 0;

    while (i + 1 < BELAY_BATCH_BUCKETS && commits > (uint64_t)1 << i) {
        i++;
    }
    ledger->counts.batches[i]++;
    ledger->counts.syncs++;
    ledger->counts.commits += commits;
}

/* Seal the frame, and begin another: commits go on while the sealed one is written, without the mutex. */
static enum belay_code write_frame(struct ledger *ledger, struct belay_error *err)
{
    struct journal *journal = &ledger->journals[ledger->active];
    uint64_t commits = ledger->frame_commits;
    struct buf frame = ledger->frame;
    enum belay_code code = BELAY_NO_MEMORY;

    add_mark(ledger);
    ledger->frame = ledger->sealed;
    ledger->sealed = frame;
    ledger->frame_first = ledger->frame_commits = 0;
    if (journal_seal(journal, &ledger->sealed)) {
        ledger->is_writing = true;
        (void)pthread_mutex_unlock(&ledger->mutex);
        code = journal_write(journal, &ledger->sealed, err);
        (void)pthread_mutex_lock(&ledger->mutex);
        ledger->is_writing = false;
        (void)pthread_cond_broadcast(&ledger->written);
    } else {
        (void)error_no_memory(err);
    }
    if (code != BELAY_OK) {
        ledger->is_broken = true;
        return code;
    }
    journal_written(journal, &ledger->sealed);
    count_batch(ledger, commits);
    return BELAY_OK;
}

/* One at a time. Who finds somebody writing waits: what it wants on disk may be in either frame. */
static enum belay_code sync_frame(struct ledger *ledger, struct belay_error *err)
{
    const struct journal *journal;

    while (ledger->is_writing) {
        (void)pthread_cond_wait(&ledger->written, &ledger->mutex);
    }
    journal = &ledger->journals[ledger->active];
    if (ledger->is_broken) {
        return error_set(err, BELAY_UNKNOWN, "the server's journal '%s' has failed", journal->path);
    }
    if (!ledger_has_unsynced(ledger)) {
        return BELAY_OK;
    }
    /* Before there is no room: to make some takes time, and this is where somebody waits. */
    if (journal->used + ledger->frame.len + SLACK_BYTES >= journal->size) {
        switch_files(ledger);
    }
    return write_frame(ledger, err);
}

enum belay_code ledger_sync(struct belay_store *base, struct belay_error *err)
{
    struct ledger *ledger = (struct ledger *)base;
    enum belay_code code;
    char *warning;

    (void)pthread_mutex_lock(&ledger->mutex);
    code = sync_frame(ledger, err);
    warning = ledger->warning;
    ledger->warning = NULL;
    (void)pthread_mutex_unlock(&ledger->mutex);
    if (warning != NULL && ledger->on_warning != NULL) {
        ledger->on_warning(ledger->context, warning);
    }
    free(warning);
    return code;
}

bool ledger_is_synced(struct belay_store *base)
{
    struct ledger *ledger = (struct ledger *)base;
    bool is_synced;

    (void)pthread_mutex_lock(&ledger->mutex);
    is_synced = !ledger_has_unsynced(ledger) && !ledger->is_writing && !ledger->is_broken;
    (void)pthread_mutex_unlock(&ledger->mutex);
    return is_synced;
}

void ledger_batches(struct belay_store *base, struct belay_store_counts *out)
{
    struct ledger *ledger = (struct ledger *)base;
    uint64_t errors = out->errors;

    (void)pthread_mutex_lock(&ledger->mutex);
    *out = ledger->counts;
    (void)pthread_mutex_unlock(&ledger->mutex);
    out->errors = errors;
}

/* ---- the thread ---- */

static bool keep_going(void *context)
{
    struct ledger *ledger = context;
    bool stopping;

    (void)pthread_mutex_lock(&ledger->mutex);
    stopping = ledger->is_stopping;
    (void)pthread_mutex_unlock(&ledger->mutex);
    return !stopping;
}

/* With the mutex, which is let go of. */
static void sleep_for(struct ledger *ledger, int64_t ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000 * 1000000);
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    (void)pthread_cond_timedwait(&ledger->wake, &ledger->mutex, &until);
}

/* With the mutex, which is let go of. A failure is met by who needs a number (ledger_commit.c). */
static void see_to_ceiling(struct ledger *ledger)
{
    uint64_t to = ledger->next + CEILING_AHEAD;

    if (ledger->ceiling - ledger->next >= ledger->ahead / 2) {
        return;
    }
    (void)pthread_mutex_unlock(&ledger->mutex);
    if (sqlite_raise_ceiling(ledger->folds, to, NULL) != BELAY_OK) {
        to = 0;
    }
    (void)pthread_mutex_lock(&ledger->mutex);
    if (to > ledger->ceiling) {
        ledger->ceiling = to;
        ledger->ahead = CEILING_AHEAD;
    }
}

/*
 * A file is being enlarged, on the disk that commits wait for: they have it for half of the time, unless
 * theirs is filling up meanwhile, or a backup waits for it.
 */
static bool rest(void *context)
{
    struct ledger *ledger = context;
    const struct journal *active;
    int64_t took_ms;
    bool goes_on;

    (void)pthread_mutex_lock(&ledger->mutex);
    active = &ledger->journals[ledger->active];
    took_ms = sqlite_now_ms(ledger->reads) - ledger->step_ms;
    if (!ledger->is_stopping && ledger->wanted == 0 && active->used < active->size / 2) {
        sleep_for(ledger, took_ms < REST_MAX_MS ? took_ms : REST_MAX_MS);
    }
    see_to_ceiling(ledger);
    ledger->step_ms = sqlite_now_ms(ledger->reads);
    goes_on = !ledger->is_stopping;
    (void)pthread_mutex_unlock(&ledger->mutex);
    return goes_on;
}

/* Bring in the one that commits do not go to, and make it ready again. Without the mutex. */
static enum belay_code fold_other(struct ledger *ledger, int which, bool has_entries, struct belay_error *err)
{
    struct journal *journal = &ledger->journals[which];
    uint64_t use = ledger->journals[1 - which].use + 1;
    enum belay_code code = BELAY_OK;
    size_t size;

    if (has_entries) {
        code = sqlite_replay(ledger->folds, journal, keep_going, ledger, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    /* Who reads events holds the mutex: they find them in the database from here on. */
    (void)pthread_mutex_lock(&ledger->mutex);
    ledger->first[which] = 0;
    ledger->marks[which].n = 0;
    size = GROW_FACTOR * ledger->journals[1 - which].size;
    size = size < ledger->journal_bytes ? size : ledger->journal_bytes;
    ledger->step_ms = sqlite_now_ms(ledger->reads);
    (void)pthread_mutex_unlock(&ledger->mutex);
    code = journal_begin_gently(journal, use, size, ledger->folds->path, rest, ledger, err);
    if (code == BELAY_OK) {
        /* Before it has an entry: that it is missed if it is lost. */
        code = sqlite_journal_want(ledger->folds, journal->id, use, use - JOURNAL_FILES, 0, err);
    }
    (void)pthread_mutex_lock(&ledger->mutex);
    ledger->is_ready[which] = code == BELAY_OK;
    (void)pthread_mutex_unlock(&ledger->mutex);
    return code;
}

static void *run_thread(void *context)
{
    struct ledger *ledger = context;

    /* Commits come first. On Linux this is of the thread alone. */
    (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){ 0 });
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), FOLD_NICE);
    (void)pthread_mutex_lock(&ledger->mutex);
    while (!ledger->is_stopping) {
        int other = 1 - ledger->active;
        bool has_entries = ledger->first[other] != 0;
        struct belay_error err = BELAY_ERROR_INIT;
        enum belay_code code;

        see_to_ceiling(ledger);
        if (!ledger->is_ready[other]) {
            (void)pthread_mutex_unlock(&ledger->mutex);
            code = fold_other(ledger, other, has_entries, &err);
            (void)pthread_mutex_lock(&ledger->mutex);
            if (code != BELAY_OK && code != BELAY_CANCELLED) {
                warn(ledger, &err);
                ledger->faults++;
            }
            belay_error_release(&err);
            if (code != BELAY_OK && !ledger->is_stopping) {
                sleep_for(ledger, RETRY_MS);
            }
            continue;
        }
        if (ledger->first[ledger->active] != 0 &&
            (sqlite_now_ms(ledger->reads) - ledger->committed_ms >= ledger->idle_ms ||
             ledger->first[ledger->active] <= ledger->wanted)) {
            switch_files(ledger);
        }
        if (ledger->is_ready[1 - ledger->active]) {
            sleep_for(ledger, ledger->wanted != 0 ? SOON_MS : LOOK_MS);
        }
    }
    (void)pthread_mutex_unlock(&ledger->mutex);
    return NULL;
}

bool ledger_start_thread(struct ledger *ledger)
{
    sigset_t all;
    sigset_t old;

    /* Signals are for the threads of who opened the store. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    ledger->has_thread = pthread_create(&ledger->thread, NULL, run_thread, ledger) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ledger->has_thread;
}

void ledger_stop_thread(struct ledger *ledger)
{
    if (!ledger->has_thread) {
        return;
    }
    (void)pthread_mutex_lock(&ledger->mutex);
    ledger->is_stopping = true;
    (void)pthread_cond_signal(&ledger->wake);
    (void)pthread_mutex_unlock(&ledger->mutex);
    (void)pthread_join(ledger->thread, NULL);
    ledger->has_thread = false;
}

enum belay_code ledger_fold_all(struct ledger *ledger, struct belay_error *err)
{
    enum belay_code code = ledger_sync(&ledger->base, err);

    for (int i = 0; code == BELAY_OK && i < JOURNAL_FILES; i++) {
        int which = i == 0 ? 1 - ledger->active : ledger->active;

        if (ledger->first[which] != 0) {
            code = sqlite_replay(ledger->folds, &ledger->journals[which], NULL, NULL, err);
        }
    }
    if (code == BELAY_OK) {
        code = sqlite_journal_want(ledger->folds, 0, 0, 0, 0, err);
    }
    for (int i = 0; code == BELAY_OK && i < JOURNAL_FILES; i++) {
        (void)unlink(ledger->journals[i].path);
    }
    return code;
}

/* ---- a backup ---- */

/* With the mutex: whether all up to `last` is in the database. */
static bool is_folded(const struct ledger *ledger, uint64_t last)
{
    for (int i = 0; i < JOURNAL_FILES; i++) {
        if (ledger->first[i] != 0 && ledger->first[i] <= last) {
            return false;
        }
    }
    return true;
}

/* Have the thread bring in all that was committed until now. */
static enum belay_code fold_now(struct ledger *ledger, struct belay_cancel *cancel, struct belay_error *err)
{
    int64_t until_ms = sqlite_now_ms(ledger->reads) + BACKUP_LIMIT_MS;
    const struct timespec step = { 0, SOON_MS * 1000000L };
    unsigned faults = ledger->faults;
    uint64_t last;
    enum belay_code code = sync_frame(ledger, err);

    last = ledger->next - 1;
    ledger->wanted = last;
    (void)pthread_cond_signal(&ledger->wake);
    while (code == BELAY_OK && !is_folded(ledger, last)) {
        (void)pthread_mutex_unlock(&ledger->mutex);
        (void)nanosleep(&step, NULL);
        (void)pthread_mutex_lock(&ledger->mutex);
        if (belay_cancel_requested(cancel) || ledger->is_stopping) {
            code = error_set(err, BELAY_CANCELLED, "the backup was cancelled");
        } else if (sqlite_now_ms(ledger->reads) > until_ms || ledger->faults != faults || ledger->is_broken) {
            code = error_set(err, BELAY_UNREACHABLE, "the journal cannot be brought into the database%s%s",
                             ledger->warning == NULL ? "" : ": ",
                             ledger->warning == NULL ? "" : ledger->warning);
        }
    }
    ledger->wanted = 0;
    return code;
}

enum belay_code ledger_backup(struct belay_store *base, const char *path, struct belay_cancel *cancel,
                              struct belay_error *err)
{
    struct ledger *ledger = (struct ledger *)base;
    enum belay_code code;

    (void)pthread_mutex_lock(&ledger->mutex);
    if (ledger->is_copying) {
        (void)pthread_mutex_unlock(&ledger->mutex);
        return error_set(err, BELAY_UNREACHABLE, "another backup is being made: try again in a moment");
    }
    ledger->is_copying = true;
    code = fold_now(ledger, cancel, err);
    (void)pthread_mutex_unlock(&ledger->mutex);
    if (code == BELAY_OK) {
        code = sqlite_backup_make(ledger->reads, path, cancel, err);
    }
    (void)pthread_mutex_lock(&ledger->mutex);
    ledger->is_copying = false;
    (void)pthread_mutex_unlock(&ledger->mutex);
    return code;
}
