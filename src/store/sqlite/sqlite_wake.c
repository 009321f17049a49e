/*
 * Waking processes on the same machine: words in a mapped file, slept upon as
 * futexes. A lock id has a word by its hash; ids that share a word wake each other
 * needlessly, which does no harm.
 *
 *     word 0   the NULL id: every batch with events
 *     word 1   how many watch word 0; after a crash perhaps too many
 *     word 2   goes up when a write transaction has ended
 *     word 3   how many sleep on word 2; after a crash perhaps too many
 *     word 4.. lock ids
 *
 * Who releases commits first and then adds to the word; who waits reads the
 * word first and then looks at the record. So one of them sees the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fnv.h"
#include "store/sqlite/sqlite_internal.h"

enum {
    WORDS = 4096,
    WORD_ANY = 0,
    WORD_WATCHERS = 1,
    WORD_WRITTEN = 2,
    WORD_WRITERS = 3,
    WORD_IDS = 4,
    SHORT_SLEEP_MS = 10
};
#define WAKE_BYTES (WORDS * sizeof(uint32_t))

uint64_t hash_text(const char *text)
{
    uint64_t hash = fnv_text(FNV_INIT, text);

    hash ^= hash >> 32; /* the high bits of FNV are weak for short strings */
    hash *= 0xd6e8feb86659fd93ULL;
    return hash ^ hash >> 32;
}

int64_t hash_acquisition(const char *key, const char *lock_id)
{
    return (int64_t)(hash_text(key) * 31 + hash_text(lock_id));
}

/* Allocate all blocks now: on a full disk a write would later raise SIGBUS. */
static bool make_room(int fd, const char *database)
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

static void open_file(struct sqlite_store *store)
{
    struct wake_file *wake = &store->wake;
    void *map;

    wake->tried = true;
    wake->fd = open(store->wake_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (wake->fd < 0) {
        return;
    }
    map = make_room(wake->fd, store->path)
              ? mmap(NULL, WAKE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, wake->fd, 0)
              : MAP_FAILED;
    if (map == MAP_FAILED) {
        (void)close(wake->fd);
        wake->fd = -1;
        return;
    }
    __atomic_store_n(&wake->words, map, __ATOMIC_RELEASE);
}

bool wake_ready(struct sqlite_store *store)
{
    if (__atomic_load_n(&store->wake.words, __ATOMIC_ACQUIRE) != NULL) {
        return true;
    }
    (void)pthread_mutex_lock(&store->wake_mutex);
    if (!store->wake.tried) {
        open_file(store);
    }
    (void)pthread_mutex_unlock(&store->wake_mutex);
    return __atomic_load_n(&store->wake.words, __ATOMIC_ACQUIRE) != NULL;
}

void wake_close(struct sqlite_store *store)
{
    struct wake_file *wake = &store->wake;

    if (wake->watching) {
        (void)__atomic_sub_fetch(&wake->words[WORD_WATCHERS], 1, __ATOMIC_SEQ_CST);
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
    if (wake_ready(store)) {
        __atomic_store_n(&store->wake.words[WORD_WATCHERS], 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&store->wake.words[WORD_WRITERS], 0, __ATOMIC_SEQ_CST);
    }
}

static uint32_t *word_of(struct sqlite_store *store, const char *lock_id)
{
    return &store->wake
                .words[lock_id == NULL ? WORD_ANY : WORD_IDS + hash_text(lock_id) % (WORDS - WORD_IDS)];
}

/* Futexes are not private here: other processes sleep on them. */
static void futex_wake(uint32_t *word)
{
    (void)__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void wake_watchers(struct sqlite_store *store)
{
    /* An atomic write, of nothing: it is ordered after the commit that others are to see. */
    if (wake_ready(store) && __atomic_fetch_add(&store->wake.words[WORD_WATCHERS], 0, __ATOMIC_SEQ_CST) > 0) {
        futex_wake(word_of(store, NULL));
    }
}

void wake_all(struct sqlite_store *store)
{
    for (size_t i = 0; wake_ready(store) && i < WORDS; i++) {
        if (i == WORD_ANY || i >= WORD_IDS) {
            futex_wake(&store->wake.words[i]);
        }
    }
}

void wake_writers(struct sqlite_store *store)
{
    uint32_t *words = __atomic_load_n(&store->wake.words, __ATOMIC_ACQUIRE);

    if (words != NULL && __atomic_load_n(&words[WORD_WRITERS], __ATOMIC_SEQ_CST) > 0) {
        futex_wake(&words[WORD_WRITTEN]);
    }
}

void wake_wait_for_writer(struct sqlite_store *store, int64_t most_us)
{
    struct timespec timeout = { 0, (long)most_us * 1000 };
    uint32_t *words;
    uint32_t seen;

    if (!wake_ready(store)) {
        (void)nanosleep(&timeout, NULL);
        return;
    }
    words = store->wake.words;
    seen = __atomic_load_n(&words[WORD_WRITTEN], __ATOMIC_SEQ_CST);
    (void)__atomic_add_fetch(&words[WORD_WRITERS], 1, __ATOMIC_SEQ_CST);
    (void)syscall(SYS_futex, &words[WORD_WRITTEN], FUTEX_WAIT, seen, &timeout, NULL, 0);
    (void)__atomic_sub_fetch(&words[WORD_WRITERS], 1, __ATOMIC_SEQ_CST);
}

static void count_watcher(struct sqlite_store *store)
{
    (void)pthread_mutex_lock(&store->wake_mutex);
    if (!store->wake.watching) {
        store->wake.watching = true;
        (void)__atomic_add_fetch(&store->wake.words[WORD_WATCHERS], 1, __ATOMIC_SEQ_CST);
    }
    (void)pthread_mutex_unlock(&store->wake_mutex);
}

uint32_t sqlite_listen(struct belay_store *base, const char *lock_id)
{
    struct sqlite_store *store = (struct sqlite_store *)base;

    if (!wake_ready(store)) {
        return 0;
    }
    if (lock_id == NULL) {
        count_watcher(store);
    }
    return __atomic_load_n(word_of(store, lock_id), __ATOMIC_SEQ_CST);
}

void sqlite_wake(struct belay_store *base, const char *lock_id)
{
    struct sqlite_store *store = (struct sqlite_store *)base;

    if (wake_ready(store)) {
        futex_wake(word_of(store, lock_id));
    }
}

void sqlite_wait(struct belay_store *base, const char *lock_id, uint32_t listened, int64_t timeout_ms,
                 struct belay_cancel *cancel)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    uint32_t own_word = listened; /* without the file only a cancelling thread can wake this one */
    bool ready = wake_ready(store);
    uint32_t *word = ready ? word_of(store, lock_id) : &own_word;
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
    if (cancel == NULL || !belay_cancel_requested(cancel)) {
        (void)syscall(SYS_futex, word, FUTEX_WAIT, listened, &timeout, NULL, 0);
    }
    if (cancel != NULL) {
        belay_cancel_bind(cancel, NULL);
    }
}
