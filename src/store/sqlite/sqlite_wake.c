/*
 * Waking processes on the same machine: words in a mapped file, on which waiters sleep as
 * futexes. The hash of a lock id chooses its word; ids that share a word wake each other
 * needlessly, which does no harm.
 *
 *     word 0   the NULL id: every batch with events
 *     word 1   how many watch word 0; after a crash perhaps too many
 *     word 2   goes up when a write transaction has ended
 *     word 3   how many sleep on word 2; after a crash perhaps too many
 *     word 4   how many stores listen for a lock id; after a crash perhaps too many
 *     word 5.. lock ids
 *
 * Words 1 to 4 are read together, once for each commit, so that a commit without waiters
 * makes no system call to wake any.
 *
 * Another program may truncate the file while it is mapped; an access to a word would then
 * end the process with SIGBUS. So the words are read with pread(), and the kernel adds to
 * them: both then fail with an error, and waiters poll until the next process that opens the
 * file restores its length.
 *
 * No wake-up is missed: a release commits first and then adds to the word; a waiter reads
 * the word first and then the record.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "store/sqlite/sqlite_internal.h"

enum {
    WORDS = 4096,
    WORD_ANY = 0,
    WORD_WATCHERS = 1,
    WORD_WRITTEN = 2,
    WORD_WRITERS = 3,
    WORD_LISTENERS = 4,
    WORD_IDS = 5,
    SHORT_SLEEP_MS = 10
};
#define WAKE_BYTES (WORDS * sizeof(uint32_t))

/* Allocate all blocks now: on a full disk a write would later raise SIGBUS. */
static bool wake_file_fill(int fd, const char *database)
{
    struct stat st;
    struct stat db;

    if (fstat(fd, &st) != 0) {
        return false;
    }
    if (st.st_size >= (off_t)WAKE_BYTES && (size_t)st.st_blocks * 512 >= WAKE_BYTES) {
        return true;
    }
    /* The same users as of the database. */
    if (st.st_size == 0 && st.st_uid == geteuid() && stat(database, &db) == 0) {
        (void)fchmod(fd, db.st_mode & 0666);
        if (geteuid() == 0 && fchown(fd, db.st_uid, db.st_gid) != 0) {
            return false;
        }
    }
    return posix_fallocate(fd, 0, (off_t)WAKE_BYTES) == 0;
}

void wake_open(struct sqlite_store *store)
{
    struct wake_file *wake = &store->wake;
    void *map = MAP_FAILED;

    wake->fd = open(store->wake_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (wake->fd >= 0 && wake_file_fill(wake->fd, store->path)) {
        map = mmap(NULL, WAKE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, wake->fd, 0);
    }
    if (map != MAP_FAILED) {
        wake->words = map;
    } else if (wake->fd >= 0) {
        (void)close(wake->fd);
        wake->fd = -1;
    }
}

static uint32_t read_word(const struct sqlite_store *store, size_t i)
{
    uint32_t value = 0;

    return pread(store->wake.fd, &value, sizeof value, (off_t)(i * sizeof value)) == sizeof value ? value : 0;
}

/* Futexes are not private here: other processes sleep on them. */
static void futex_add(uint32_t *word, int delta, int n_wake)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_OP, n_wake, 0L, word,
                  FUTEX_OP(FUTEX_OP_ADD, (unsigned)delta & 0xfff, FUTEX_OP_CMP_LT, 0));
}

static void futex_wake(uint32_t *word)
{
    futex_add(word, 1, INT_MAX);
}

void wake_close(struct sqlite_store *store)
{
    struct wake_file *wake = &store->wake;

    if (wake->is_watcher) {
        futex_add(&wake->words[WORD_WATCHERS], -1, 0);
    }
    if (wake->is_listener) {
        futex_add(&wake->words[WORD_LISTENERS], -1, 0);
    }
    if (wake->words != NULL) {
        (void)munmap(wake->words, WAKE_BYTES);
    }
    if (wake->probe_fd >= 0) {
        (void)close(wake->probe_fd);
    }
    if (wake->fd >= 0) {
        (void)close(wake->fd);
    }
}

void wake_reset(struct sqlite_store *store)
{
    static const size_t counters[] = { WORD_WATCHERS, WORD_LISTENERS };
    const uint32_t none = 0;

    for (size_t i = 0; store->wake.words != NULL && i < sizeof counters / sizeof counters[0]; i++) {
        (void)!pwrite(store->wake.fd, &none, sizeof none, (off_t)(counters[i] * sizeof none));
    }
}

static uint32_t *word_of_id(struct sqlite_store *store, const char *lock_id)
{
    return &store->wake
                .words[lock_id == NULL ? WORD_ANY : WORD_IDS + hash_text(lock_id) % (WORDS - WORD_IDS)];
}

void wake_before_commit(struct sqlite_store *store)
{
    __atomic_store_n(&store->wake.listeners, 1, __ATOMIC_RELAXED);
}

void wake_after_commit(struct sqlite_store *store, bool has_events)
{
    uint32_t counts[WORD_IDS] = { 0 }; /* 0 where the file has none */

    if (store->wake.words == NULL) {
        return;
    }
#ifndef __SANITIZE_THREAD__ /* which does not support it */
    /* The commit that other processes are to see comes before the counts are read. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
    (void)!pread(store->wake.fd, counts, sizeof counts, 0);
    __atomic_store_n(&store->wake.listeners, counts[WORD_LISTENERS], __ATOMIC_RELAXED);
    if (counts[WORD_WRITERS] > 0) {
        futex_wake(&store->wake.words[WORD_WRITTEN]);
    }
    if (has_events && counts[WORD_WATCHERS] > 0) {
        futex_wake(word_of_id(store, NULL));
    }
}

void wake_all(struct sqlite_store *store)
{
    for (size_t i = 0; store->wake.words != NULL && i < WORDS; i++) {
        if (i == WORD_ANY || i >= WORD_IDS) {
            futex_wake(&store->wake.words[i]);
        }
    }
}

void wake_writers(struct sqlite_store *store)
{
    if (store->wake.words != NULL && read_word(store, WORD_WRITERS) > 0) {
        futex_wake(&store->wake.words[WORD_WRITTEN]);
    }
}

void wake_wait_for_writer(struct sqlite_store *store, int64_t most_us)
{
    struct timespec timeout = { 0, (long)most_us * 1000 };
    uint32_t *words;
    uint32_t seen;

    assert(most_us > 0 && most_us < 1000000); /* nanoseconds of less than a second */
    if (store->wake.words == NULL) {
        (void)nanosleep(&timeout, NULL);
        return;
    }
    words = store->wake.words;
    seen = read_word(store, WORD_WRITTEN);
    futex_add(&words[WORD_WRITERS], 1, 0);
    if (syscall(SYS_futex, &words[WORD_WRITTEN], FUTEX_WAIT, seen, &timeout, NULL, 0) != 0 &&
        errno == EFAULT) {
        (void)nanosleep(&timeout, NULL);
    }
    futex_add(&words[WORD_WRITERS], -1, 0);
}

/* Once for a store, and again if the file was truncated since. */
static void count_in(struct sqlite_store *store, bool *counted, size_t word)
{
    assert(store->wake.words != NULL && word < WORD_IDS);
    (void)pthread_mutex_lock(&store->wake_mutex);
    if (!*counted || read_word(store, word) == 0) {
        *counted = true;
        futex_add(&store->wake.words[word], 1, 0);
    }
    (void)pthread_mutex_unlock(&store->wake_mutex);
}

uint32_t sqlite_listen(struct belay_store *base, const char *lock_id)
{
    struct sqlite_store *store = (struct sqlite_store *)base;

    if (store->wake.words == NULL) {
        return 0;
    }
    if (lock_id == NULL) {
        count_in(store, &store->wake.is_watcher, WORD_WATCHERS);
    } else {
        count_in(store, &store->wake.is_listener, WORD_LISTENERS);
    }
    return read_word(store, (size_t)(word_of_id(store, lock_id) - store->wake.words));
}

void sqlite_wake(struct belay_store *base, const char *lock_id)
{
    struct sqlite_store *store = (struct sqlite_store *)base;

    if (store->wake.words != NULL && __atomic_load_n(&store->wake.listeners, __ATOMIC_RELAXED) > 0) {
        futex_wake(word_of_id(store, lock_id));
    }
}

void sqlite_wait(struct belay_store *base, const char *lock_id, uint32_t listened, int64_t timeout_ms,
                 struct belay_cancel *cancel)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    uint32_t own_word = listened; /* without the file only a cancelling thread can wake this one */
    bool ready = store->wake.words != NULL;
    uint32_t *word = ready ? word_of_id(store, lock_id) : &own_word;
    int64_t most = ready ? INT_MAX : SHORT_SLEEP_MS;
    struct timespec timeout;

    if (timeout_ms <= 0) {
        return;
    }
    timeout_ms = timeout_ms < most ? timeout_ms : most;
    timeout.tv_sec = (time_t)(timeout_ms / 1000);
    timeout.tv_nsec = (long)(timeout_ms % 1000 * 1000000);
    if (cancel != NULL) {
        belay_cancel_bind(cancel, word);
    }
    if ((cancel == NULL || !belay_cancel_requested(cancel)) &&
        syscall(SYS_futex, word, FUTEX_WAIT, listened, &timeout, NULL, 0) != 0 && errno == EFAULT) {
        (void)nanosleep(&(struct timespec){ 0, SHORT_SLEEP_MS * 1000000L }, NULL);
    }
    if (cancel != NULL) {
        belay_cancel_bind(cancel, NULL);
    }
}
