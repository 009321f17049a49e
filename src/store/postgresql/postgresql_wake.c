/*
 * Waking waiters, wherever they are: NOTIFY with the lock id as its payload, on the channel of the waiter's
 * store, if the release knows it, else on one that all stores listen on. One thread of each store that has
 * waiters LISTENs on a connection of its own, and turns a notification into a word that the waiter sleeps on
 * as a futex. Ids that share a word wake each other needlessly, which does no harm.
 *
 *     release:  of a lock without ancestors, alone: change() in functions.sql finds the waiter and sends
 *               NOTIFY id with its commit, unless the ticket is of this store: then pg_wake_here()
 *               else: commit, then wake id if it sleeps in this store, else NOTIFY id
 *                                                    (a statement of its own: it writes nothing)
 *     waiter:   listen() -> the word; read the record; wait() on the word
 *     thread:   notification -> add to the word, wake; tell the subscriber, an event loop; or that loop reads
 *               notifications itself, from the thread's connection, and the thread only sees to the connection
 *               connection lost -> wake all waiters, connect again, wake all waiters
 *
 * A notification may get lost with the connection, so waiters poll as well, if seldom. Commits of
 * other processes notify no watcher (the NULL id): a watcher polls. A pooler in transaction mode accepts
 * LISTEN and forgets it: the thread asks for its channels, and finds out; then waiters poll more often,
 * unless `listen` names a direct connection. That may lead elsewhere, so the thread sends itself a notification
 * through the store's connections, and waiters poll more often unless it arrives.
 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fnv.h"
#include "store/postgresql/postgresql_internal.h"

enum { WATCH_POLL_MS = 500, READY_MS = 2000, PROBE_MS = 15000, ANSWER_MS = 3000 };
enum { RECONNECT_MS = 500, RECONNECT_MAX_MS = 4000 };

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
    struct pollfd fds[2] = { { .fd = store->wake.poke_fd, .events = POLLIN },
                             { .fd = fd, .events = POLLIN } };
    uint64_t count;

    (void)poll(fds, fd < 0 ? 1 : 2, timeout_ms);
    if (fds[0].revents != 0) {
        (void)!read(store->wake.poke_fd, &count, sizeof count);
    }
    return !is_stopped(store);
}

static void take_notifications(struct pg_store *store, struct pg_conn *conn)
{
    PGnotify *note;

    while ((note = PQnotifies(conn->pg)) != NULL) {
        bool is_own = strcmp(note->extra, store->here) == 0; /* see is_deaf() */

        store->wake.has_heard_itself = store->wake.has_heard_itself || is_own;
        if (!is_own) {
            wake_word(word_of(store, note->extra[0] == '\0' ? NULL : note->extra));
        }
        if (!is_own && note->extra[0] != '\0') {
            tell_subscriber(store, note->extra);
        }
        PQfreemem(note);
    }
}

/* Once: a server would repeat it with every probe. */
static void warn_of_listen(struct pg_store *store, const char *text)
{
    if (!store->wake.has_warned && store->options.on_warning != NULL) {
        store->wake.has_warned = true;
        store->options.on_warning(store->options.warn_context, text);
    }
}

static void warn_of_silence(struct pg_store *store, const struct pg_conn *conn)
{
    char text[400];

    (void)snprintf(
        text, sizeof text,
        "no notification of the store arrives through listen=, at '%.100s', database '%.60s': waiters "
        "poll; `belay doctor` says more",
        PQhost(conn->pg), PQdb(conn->pg));
    warn_of_listen(store, text);
}

/* For the store's own URL, those that use it report the same. */
static void warn_of_no_connection(struct pg_store *store, const struct belay_error *err)
{
    char text[600];

    if (store->params.listen != NULL) {
        (void)snprintf(text, sizeof text, "listen= cannot be used, so waiters poll: %.500s", err->text);
        warn_of_listen(store, text);
    }
}

/*
 * Whether a notification that the store's own connections send never arrives on this one: `listen` leads to
 * another database, or to a pooler. One that cannot be sent, and a connection that breaks, prove nothing.
 */
static bool is_deaf(struct pg_store *store, struct pg_conn *conn)
{
    char channel[sizeof store->here + 16];
    const char *values[] = { channel, store->here };
    struct pg_call call = { PG_WAKE, values, 2, true, ANSWER_MS };
    PGresult *result = NULL;
    int64_t until_boot_ms;
    bool goes_on;

    (void)snprintf(channel, sizeof channel, "belay_wake_%s", store->here);
    store->wake.has_heard_itself = false;
    goes_on = !is_stopped(store) && pg_call(store, &call, &result, NULL) == BELAY_OK;
    PQclear(result);
    until_boot_ms = clock_boot_ms() + ANSWER_MS;
    while (goes_on) {
        int64_t left_ms = until_boot_ms - clock_boot_ms();

        take_notifications(store, conn);
        if (store->wake.has_heard_itself || left_ms <= 0) {
            return !store->wake.has_heard_itself;
        }
        goes_on = pause_for(store, PQsocket(conn->pg), (int)left_ms) && PQconsumeInput(conn->pg) == 1;
    }
    return false;
}

/* Closing the store waits for this thread: for the answer to one statement at most, which is conn->run_ms. */
static bool run_unless_stopped(struct pg_store *store, struct pg_conn *conn, const char *sql,
                               PGresult **out_result)
{
    return !is_stopped(store) && pg_conn_run(conn, sql, out_result, NULL) == BELAY_OK;
}

/* LISTEN, and check in a transaction of its own that it is still in effect. */
static bool begin_listening(struct pg_store *store, struct pg_conn *conn)
{
    char sql[2 * PG_NAME_MAX + 64];
    char count[2 * PG_NAME_MAX + 96];
    PGresult *result = NULL;
    bool listens;

    /* `listen` names a place where it works, such as a pooler that keeps sessions. */
    if (store->params.listen == NULL && !is_stopped(store) && pg_conn_is_pooled(conn)) {
        atomic_store(&store->wake.is_pooled, true);
        return false;
    }

    (void)snprintf(sql, sizeof sql, "LISTEN \"%s\"; LISTEN \"belay_wake_%s\"", store->channel, store->here);
    /* A pooler may leave a session the channels of earlier clients. */
    (void)snprintf(count, sizeof count,
                   "SELECT count(*) FROM pg_listening_channels() c WHERE c IN ('%s', 'belay_wake_%s')",
                   store->channel, store->here);
    if (!run_unless_stopped(store, conn, sql, NULL) || !run_unless_stopped(store, conn, count, &result)) {
        return false;
    }
    listens = pg_number(result, 0, 0) == 2;
    PQclear(result);
    if (store->params.listen != NULL && (!listens || is_deaf(store, conn))) {
        listens = false;
        warn_of_silence(store, conn);
    }
    atomic_store(&store->wake.is_pooled, !listens);
    return listens && !is_stopped(store); /* is_deaf() may have read the poke of whoever closes the store */
}

/* ---- lending the connection to an event loop, which spares a waiter a switch of threads ---- */

static void poke(struct pg_wake *wake)
{
    const uint64_t one = 1;

    (void)!write(wake->poke_fd, &one, sizeof one);
}

void pg_wake_lend(struct pg_store *store, int epoll_fd)
{
    struct pg_wake *wake = &store->wake;

    (void)pthread_mutex_lock(&wake->lending);
    if (wake->lent != NULL) {
        (void)epoll_ctl(wake->epoll_fd, EPOLL_CTL_DEL, PQsocket(wake->lent->pg), NULL);
        wake->lent = NULL;
    }
    wake->epoll_fd = epoll_fd;
    (void)pthread_mutex_unlock(&wake->lending);
    poke(wake); /* it lends, or reads itself */
}

void pg_wake_read(struct pg_store *store, bool is_hung_up)
{
    struct pg_wake *wake = &store->wake;

    (void)pthread_mutex_lock(&wake->lending);
    if (wake->lent != NULL && !is_hung_up && PQconsumeInput(wake->lent->pg) == 1) {
        take_notifications(store, wake->lent);
    } else if (wake->lent != NULL) {
        (void)epoll_ctl(wake->epoll_fd, EPOLL_CTL_DEL, PQsocket(wake->lent->pg), NULL);
        wake->lent = NULL;
        poke(wake); /* it finds that the connection is lost */
    }
    (void)pthread_mutex_unlock(&wake->lending);
}

static bool lend(struct pg_wake *wake, struct pg_conn *conn)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP }; /* without a pointer: not a flight */
    bool is_lent;

    (void)pthread_mutex_lock(&wake->lending);
    is_lent =
        wake->epoll_fd >= 0 && epoll_ctl(wake->epoll_fd, EPOLL_CTL_ADD, PQsocket(conn->pg), &event) == 0;
    assert(wake->lent == NULL);
    wake->lent = is_lent ? conn : NULL;
    (void)pthread_mutex_unlock(&wake->lending);
    return is_lent;
}

static void take_back(struct pg_wake *wake)
{
    (void)pthread_mutex_lock(&wake->lending);
    if (wake->lent != NULL) {
        (void)epoll_ctl(wake->epoll_fd, EPOLL_CTL_DEL, PQsocket(wake->lent->pg), NULL);
        wake->lent = NULL;
    }
    (void)pthread_mutex_unlock(&wake->lending);
}

/* Until there is something to do for the thread. False: the store is closed. */
static bool await_news(struct pg_store *store, struct pg_conn *conn)
{
    bool is_lent = lend(&store->wake, conn);
    bool goes_on = pause_for(store, is_lent ? -1 : PQsocket(conn->pg), PROBE_MS);

    take_back(&store->wake);
    return goes_on;
}

/* Until the connection is lost or the store is closed. */
static void stay_listening(struct pg_store *store, struct pg_conn *conn)
{
    int64_t probed_boot_ms = clock_boot_ms();

    while (PQstatus(conn->pg) == CONNECTION_OK && await_news(store, conn)) {
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

/*
 * Before the next attempt to connect, after so many that failed. Longer and longer, and not for all processes the same:
 * a database that was started again, or is at its limit, is not to be kept from its work.
 */
static int reconnect_pause_ms(struct pg_store *store, int failures)
{
    uint64_t random = 0;
    int pause_ms = RECONNECT_MS;

    if (atomic_load(&store->wake.is_pooled)) {
        return PROBE_MS;
    }
    for (int i = 1; i < failures && pause_ms < RECONNECT_MAX_MS; i++) {
        pause_ms *= 2;
    }
    (void)random_bytes(&random, sizeof random);
    return pause_ms / 2 + (int)(random % (uint64_t)pause_ms);
}

static void *run_listener(void *context)
{
    struct pg_store *store = context;
    const char *conninfo = store->params.listen != NULL ? store->params.listen : store->params.conninfo;
    int failures = 0;
    bool is_first = true;

    while (!is_stopped(store)) {
        struct belay_error err = BELAY_ERROR_INIT;
        struct pg_conn *conn = NULL;
        bool listens = pg_connect(conninfo, clock_boot_ms() + ANSWER_MS, &conn, &err) == BELAY_OK;

        if (listens) {
            conn->run_ms = ANSWER_MS;
            listens = begin_listening(store, conn);
        } else {
            warn_of_no_connection(store, &err);
        }
        belay_error_release(&err);
        atomic_store(&store->wake.is_listening, listens);
        if (listens || is_first) {
            wake_everybody(store); /* what was sent before that is lost; see start_listener(), too */
        } /* else nothing has changed, and those that retry more and more seldom are not to be woken */
        is_first = false;
        failures = listens ? 0 : failures < INT_MAX ? failures + 1 : failures;
        if (listens) {
            stay_listening(store, conn);
            atomic_store(&store->wake.is_listening, false);
            wake_everybody(store);
        }
        pg_conn_close(conn);
        if (!is_stopped(store)) { /* closing has poked the thread, perhaps before this pause */
            (void)pause_for(store, -1, reconnect_pause_ms(store, failures));
        }
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
    (void)pthread_mutex_init(&wake->lending, NULL);
    wake->epoll_fd = -1;
    wake->poke_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void pg_wake_close(struct pg_store *store)
{
    struct pg_wake *wake = &store->wake;
    bool started;

    (void)pthread_mutex_lock(&wake->mutex);
    wake->stopped = true;
    started = wake->started;
    (void)pthread_mutex_unlock(&wake->mutex);
    poke(wake);
    if (started) {
        (void)pthread_join(wake->thread, NULL);
    }
    (void)close(wake->poke_fd);
    (void)pthread_mutex_destroy(&wake->lending);
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
        assert(*at != NULL);
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
