/*
 * Waking waiters, wherever they are: NOTIFY on one channel, with the lock id as its payload. One
 * thread of each store that has waiters LISTENs on a connection of its own, and turns a notification
 * into a word that the waiter sleeps on as a futex. Ids that share a word wake each other needlessly,
 * which does no harm.
 *
 *     release:  of a lock without ancestors, alone: change() in functions.sql finds the waiter and sends
 *               NOTIFY id with its commit, unless the ticket is of this store: then pg_wake_here()
 *               else: commit, then wake id if it sleeps in this store, else NOTIFY id
 *                                                    (a statement of its own: it writes nothing)
 *     waiter:   listen() -> the word; read the record; wait() on the word
 *     thread:   notification -> add to the word, wake; tell the subscriber, an event loop
 *               connection lost -> wake all waiters, connect again, wake all waiters
 *
 * A notification may get lost with the connection, so waiters poll as well, if seldom. Commits of
 * other processes notify no watcher (the NULL id): a watcher polls. A pooler in transaction mode accepts
 * LISTEN and forgets it: the thread asks for its channels, and finds out; then waiters poll more often,
 * unless `listen` names a direct connection.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fnv.h"
#include "store/postgresql/postgresql_internal.h"

enum { WATCH_POLL_MS = 500, RECONNECT_MS = 500, READY_MS = 2000, PROBE_MS = 15000, ANSWER_MS = 3000 };

static uint32_t *word_of(struct pg_store *store, const char *lock_id)
{
    return &store->wake
                .words[lock_id == NULL ? 0 : 1 + fnv_text(FNV_INIT, lock_id) % (uint64_t)(PG_WORDS - 1)];
}

/* Not private: belay_cancel_request() wakes words of other stores, too, which are in files. */
static void wake_word(uint32_t *word)
{
    (void)__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* NULL: all of its waiters. */
static void tell_subscriber(struct pg_store *store, const char *lock_id)
{
    (void)pthread_mutex_lock(&store->wake.mutex);
    if (store->wake.fn != NULL) {
        store->wake.fn(store->wake.context, lock_id);
    }
    (void)pthread_mutex_unlock(&store->wake.mutex);
}

static void wake_everybody(struct pg_store *store)
{
    for (size_t i = 0; i < PG_WORDS; i++) {
        wake_word(&store->wake.words[i]);
    }
    tell_subscriber(store, NULL);
}

void pg_wake_here(struct pg_store *store, const char *lock_id)
{
    wake_word(word_of(store, lock_id));
    tell_subscriber(store, lock_id);
}

void pg_wake_watchers(struct pg_store *store)
{
    wake_word(word_of(store, NULL));
}

/* ---- the thread that listens ---- */

static bool is_stopped(struct pg_store *store)
{
    bool stopped;

    (void)pthread_mutex_lock(&store->wake.mutex);
    stopped = store->wake.stopped;
    (void)pthread_mutex_unlock(&store->wake.mutex);
    return stopped;
}

/* Sleep until then, or until the store is closed. */
static bool pause_for(struct pg_store *store, int fd, int timeout_ms)
{
    struct pollfd fds[2] = { { .fd = store->wake.stop_fd, .events = POLLIN },
                             { .fd = fd, .events = POLLIN } };

    (void)poll(fds, fd < 0 ? 1 : 2, timeout_ms);
    return !is_stopped(store);
}

/* LISTEN, and check in a transaction of its own that it is still in effect. */
static bool begin_listening(struct pg_store *store, struct pg_conn *conn)
{
    char sql[PG_NAME_MAX + 32];
    PGresult *result = NULL;
    bool listens;

    /* `listen` names a place where it works, such as a pooler that keeps sessions. */
    if (store->params.listen == NULL && pg_conn_is_pooled(conn)) {
        atomic_store(&store->wake.is_pooled, true);
        return false;
    }

    (void)snprintf(sql, sizeof sql, "LISTEN \"%s\"", store->channel);
    if (pg_conn_run(conn, sql, NULL, NULL) != BELAY_OK ||
        pg_conn_run(conn, "SELECT count(*) FROM pg_listening_channels()", &result, NULL) != BELAY_OK) {
        return false;
    }
    listens = pg_number(result, 0, 0) == 1;
    PQclear(result);
    atomic_store(&store->wake.is_pooled, !listens);
    return listens;
}

static void take_notifications(struct pg_store *store, struct pg_conn *conn)
{
    PGnotify *note;

    while ((note = PQnotifies(conn->pg)) != NULL) {
        wake_word(word_of(store, note->extra[0] == '\0' ? NULL : note->extra));
        if (note->extra[0] != '\0') {
            tell_subscriber(store, note->extra);
        }
        PQfreemem(note);
    }
}

/* Until the connection is lost or the store is closed. */
static void stay_listening(struct pg_store *store, struct pg_conn *conn)
{
    int64_t probed_boot_ms = clock_boot_ms();

    while (PQstatus(conn->pg) == CONNECTION_OK && pause_for(store, PQsocket(conn->pg), PROBE_MS)) {
        if (PQconsumeInput(conn->pg) != 1) {
            return;
        }
        take_notifications(store, conn);
        if (clock_boot_ms() - probed_boot_ms >= PROBE_MS) {
            /* A connection that is silently gone is noticed; a pooler may have taken it away. */
            if (!begin_listening(store, conn)) {
                return;
            }
            take_notifications(store, conn);
            probed_boot_ms = clock_boot_ms();
        }
    }
}

static void *run_listener(void *context)
{
    struct pg_store *store = context;
    const char *conninfo = store->params.listen != NULL ? store->params.listen : store->params.conninfo;

    while (!is_stopped(store)) {
        struct pg_conn *conn = NULL;
        bool listens = pg_connect(conninfo, clock_boot_ms() + ANSWER_MS, &conn, NULL) == BELAY_OK;

        if (listens) {
            conn->run_ms = ANSWER_MS; /* closing the store waits for this thread */
            listens = begin_listening(store, conn);
        }

        atomic_store(&store->wake.is_listening, listens);
        wake_everybody(store); /* what was sent before that is lost */
        if (listens) {
            stay_listening(store, conn);
            atomic_store(&store->wake.is_listening, false);
            wake_everybody(store);
        }
        pg_conn_close(conn);
        (void)pause_for(store, -1, atomic_load(&store->wake.is_pooled) ? PROBE_MS : RECONNECT_MS);
    }
    return NULL;
}

/* With the first waiter. It waits for the connection, or the waiter's first look could miss a release. */
static void start_listener(struct pg_store *store)
{
    struct pg_wake *wake = &store->wake;
    uint32_t before = __atomic_load_n(&wake->words[0], __ATOMIC_SEQ_CST);
    struct timespec most = { READY_MS / 1000, READY_MS % 1000 * 1000000L };
    sigset_t all, old;
    bool first = false;

    (void)pthread_mutex_lock(&wake->mutex);
    if (!wake->started && !wake->stopped) {
        (void)sigfillset(&all); /* signals are for the program's own threads */
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
        wake->started = first = pthread_create(&wake->thread, NULL, run_listener, store) == 0;
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    (void)pthread_mutex_unlock(&wake->mutex);
    if (first) {
        (void)syscall(SYS_futex, &wake->words[0], FUTEX_WAIT, before, &most, NULL, 0);
    }
}

void pg_wake_init(struct pg_wake *wake)
{
    (void)pthread_mutex_init(&wake->mutex, NULL);
    wake->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void pg_wake_close(struct pg_store *store)
{
    struct pg_wake *wake = &store->wake;
    const uint64_t one = 1;
    bool started;

    (void)pthread_mutex_lock(&wake->mutex);
    wake->stopped = true;
    started = wake->started;
    (void)pthread_mutex_unlock(&wake->mutex);
    (void)!write(wake->stop_fd, &one, sizeof one);
    if (started) {
        (void)pthread_join(wake->thread, NULL);
    }
    (void)close(wake->stop_fd);
    (void)pthread_mutex_destroy(&wake->mutex);
}

/* ---- the port ---- */

uint32_t pg_listen(struct belay_store *base, const char *lock_id)
{
    struct pg_store *store = pg_of(base);

    start_listener(store);
    return __atomic_load_n(word_of(store, lock_id), __ATOMIC_SEQ_CST);
}

/* A thread in pg_wait(). Only one client waits with an id. */
struct pg_sleeper {
    const char *lock_id; /* borrowed */
    struct pg_sleeper *next;
};

static void add_sleeper(struct pg_wake *wake, struct pg_sleeper *sleeper)
{
    (void)pthread_mutex_lock(&wake->mutex);
    sleeper->next = wake->sleepers;
    wake->sleepers = sleeper;
    (void)pthread_mutex_unlock(&wake->mutex);
}

static void remove_sleeper(struct pg_wake *wake, struct pg_sleeper *sleeper)
{
    struct pg_sleeper **at = &wake->sleepers;

    (void)pthread_mutex_lock(&wake->mutex);
    while (*at != sleeper) {
        at = &(*at)->next;
    }
    *at = sleeper->next;
    (void)pthread_mutex_unlock(&wake->mutex);
}

static bool sleeps_here(struct pg_wake *wake, const char *lock_id)
{
    const struct pg_sleeper *sleeper;

    (void)pthread_mutex_lock(&wake->mutex);
    sleeper = wake->sleepers;
    while (sleeper != NULL && strcmp(sleeper->lock_id, lock_id) != 0) {
        sleeper = sleeper->next;
    }
    (void)pthread_mutex_unlock(&wake->mutex);
    return sleeper != NULL;
}

void pg_wake(struct belay_store *base, const char *lock_id)
{
    struct pg_store *store = pg_of(base);
    const char *values[] = { store->channel, lock_id == NULL ? "" : lock_id };
    struct pg_call call = { PG_WAKE, values, 2, true, 0 };
    PGresult *result = NULL;
    bool is_here = lock_id != NULL && sleeps_here(&store->wake, lock_id);

    wake_word(word_of(store, lock_id));
    if (is_here) {
        return;
    }
    (void)pg_call(store, &call, &result, NULL); /* if it fails, the waiter polls */
    PQclear(result);
}

void pg_subscribe(struct belay_store *base, void (*fn)(void *context, const char *lock_id), void *context)
{
    struct pg_store *store = pg_of(base);

    (void)pthread_mutex_lock(&store->wake.mutex);
    store->wake.fn = fn;
    store->wake.context = context;
    (void)pthread_mutex_unlock(&store->wake.mutex);
    if (fn != NULL) {
        start_listener(store);
    }
}

void pg_wait(struct belay_store *base, const char *lock_id, uint32_t listened, int64_t timeout_ms,
             struct belay_cancel *cancel)
{
    struct pg_store *store = pg_of(base);
    uint32_t *word = word_of(store, lock_id);
    bool is_listening = atomic_load(&store->wake.is_listening);
    /* A loss of the connection wakes all waiters, so a waiter with one need not look by itself. */
    int64_t most_ms = lock_id == NULL ? WATCH_POLL_MS : is_listening ? INT_MAX : PG_POLL_UNWOKEN_MS;
    struct pg_sleeper sleeper = { .lock_id = lock_id == NULL ? "" : lock_id };
    struct timespec timeout;

    if (timeout_ms <= 0) {
        return;
    }
    add_sleeper(&store->wake, &sleeper);
    timeout_ms = timeout_ms < most_ms ? timeout_ms : most_ms;
    timeout = (struct timespec){ (time_t)(timeout_ms / 1000), (long)(timeout_ms % 1000 * 1000000) };
    if (cancel != NULL) {
        belay_cancel_bind(cancel, word);
    }
    if (cancel == NULL || !belay_cancel_requested(cancel)) {
        (void)syscall(SYS_futex, word, FUTEX_WAIT, listened, &timeout, NULL, 0);
    }
    if (cancel != NULL) {
        belay_cancel_bind(cancel, NULL);
    }
    remove_sleeper(&store->wake, &sleeper);
}
