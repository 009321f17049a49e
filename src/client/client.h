/*
 * A client: the backend that has its locks, the locks that it keeps alive, and its
 * asynchronous operations. For src/client and src/open only.
 */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "belay/store.h"
#include "client/async_table.h"
#include "client/backend.h"
#include "client/items.h"
#include "client/route.h"
#include "client/shared_poll.h"
#include "lock/lease.h"
#include "lock/op.h"
#include "lock/outage.h"

/*
 * A thread that calls `due` whenever the time has come that `due` itself last
 * asked for, or when poked. The time is on the boot clock: it goes on while the
 * machine sleeps.
 */
struct ticker {
    pthread_t thread;
    bool running;
    bool stop; /* under the client's mutex */
    int timer_fd;
    int poke_fd;
    struct belay_client *client; /* borrowed */
    /* Called with the client's mutex held; may unlock it in between. Returns when it is next due. */
    int64_t (*due)(struct belay_client *client);
};

bool ticker_start(struct ticker *ticker, struct belay_client *client, int64_t (*due)(struct belay_client *));
void ticker_poke(struct ticker *ticker);
void ticker_stop(struct ticker *ticker); /* without the mutex */

enum { CLIENT_STALE_MAX = 256 };
struct config_profile;
struct remote_options;

/* The client's own store as a backend (local_backend.c). */
struct local_backend {
    struct backend base;
    struct belay_client *client; /* borrowed */
};

struct belay_client {
    struct backend_route route;        /* to the backend that has the locks */
    struct local_backend local;        /* what route.first is if the client has a store */
    struct belay_store *store;         /* owned by `local`; NULL: a server does it all */
    char *socket;                      /* owned; we own the file, and are to listen here. NULL: we do not */
    const struct belay_config *config; /* borrowed */
    struct belay_config *own_config;   /* owned; what `config` is if the caller gave none */
    char *url;                         /* owned */
    bool enabled;
    _Atomic uint64_t seed; /* of jitter: another one for each request */
    void (*on_event)(void *context, const struct belay_event *event);
    void (*on_warning)(void *context, const char *text);
    bool (*traceparent)(void *context, const char *lock_id, bool is_held, char out[BELAY_TRACEPARENT_SIZE]);
    void (*on_wake)(void *context, const char *lock_id);
    void *context;

    pthread_mutex_t mutex;                 /* guards what follows, and the leases of `locks` */
    char user[BELAY_OWNER_MAX + 1];        /* "user@host"; "": not asked for yet */
    char store_id[BELAY_STORE_ID_SIZE];    /* likewise */
    uint64_t stale_told[CLIENT_STALE_MAX]; /* what was reported as stale, for stores that cannot keep that */
    size_t n_stale_told;                   /* in all; the oldest is forgotten */
    pthread_cond_t idle;                   /* a lock's `users` has become less */
    struct belay_lock *locks;              /* protected ones: their leases are kept */
    struct ticker renew_timer;             /* renews what is due */
    struct posted_wake *posted_wakes;      /* owned; by other threads, for the next poll */
    struct async_table asyncs;   /* of the thread that calls belay_client_poll(), and not under the mutex */
    atomic_bool freeze_ended;    /* a freeze was ended: the next poll wakes the operations that wait for it */
    atomic_bool missed_wakes;    /* wake-ups may have been lost: the next poll has every operation look */
    atomic_bool has_poll_thread; /* there is such a thread, poll_thread */
    pthread_t poll_thread;
    bool is_taking; /* the poll thread collects answers, and then wake-ups; no other thread uses this */
    struct threads *threads;           /* owned; NULL: the poll thread asks the store itself */
    struct shared_poll shared_poll;    /* of waiters, on a store that wakes none; has a mutex of its own */
    struct ticker deadline_timer;      /* reports passed deadlines to holders; never waits for the store */
    atomic_uint_fast64_t commits;      /* that the store has done */
    atomic_uint_fast64_t store_errors; /* see belay_client_store_counts() */
};

struct belay_lock {
    struct belay_client *client; /* borrowed */
    struct belay_lock *next;
    struct belay_info *grant; /* owned; the lock as it was granted: its texts never change */
    char *ancestors[BELAY_ANCESTORS_MAX];
    size_t n_ancestors;
    struct op_joint *joint; /* owned, in one block; NULL: one key */
    bool is_protected;
    bool reentered;
    void (*on_lost)(void *context, struct belay_lock *lock, const char *why);
    void *context;

    /* Under the client's mutex. */
    struct lease lease;
    struct belay_info *info;  /* owned; as the last renewal left it; NULL: as it was granted */
    struct belay_info *shown; /* owned; what belay_lock_info() last handed out */
    int users;                /* library threads that use it without the mutex: heartbeat, loss watch */
    bool ending;              /* no more heartbeats: it is being released */
    bool lost;
    bool loss_unreported; /* the event of the loss is not in the store yet */
    int64_t proved_ms;    /* boot clock: before the last answer that showed it to be ours was asked for */
    struct outage outage; /* of the heartbeat */

    /* Of loss_watch.c. */
    bool watches;
    pthread_t watch_thread;
    struct belay_cancel *watch_cancel; /* owned; not NULL while it watches */
    bool polls;                        /* the thread's own: it has to look */
    bool watch_failed;                 /* likewise: the last request to the server was not answered */
    int64_t looked_ms;                 /* likewise: boot clock, when it last did */
};

/* Options for a server that is named by its URL: the credential and the certificates of the configuration. */
struct remote_options client_remote_options(const struct belay_config *config);

/* A store that answers everything with BELAY_UNREACHABLE and `why`. NULL without memory. */
struct belay_store *disabled_store_new(const char *why);

/* ---- the store, with asserts on what the port promises (store_port.c) ---- */

enum belay_code store_get(struct belay_store *store, const char *const *keys, size_t n,
                          struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err);
enum belay_code store_commit(struct belay_store *store, const struct belay_batch *batch,
                             struct belay_commit *out, struct belay_error *err);
/* The same asserts for a commit that the store's loop (struct belay_loop_ops) has made. */
void store_assert_commit(struct belay_store *store, const struct belay_batch *batch, enum belay_code code,
                         const struct belay_commit *result);
enum belay_code store_scan(struct belay_store *store, const struct belay_scan *scan, belay_record_fn fn,
                           void *context, struct belay_error *err);
enum belay_code store_events(struct belay_store *store, const struct belay_events_query *query,
                             belay_event_fn fn, void *context, struct belay_error *err);
enum belay_code store_item_get(struct belay_store *store, const char *space, const char *name,
                               struct belay_item *out_item, struct belay_error *err);
enum belay_code store_item_put(struct belay_store *store, const struct belay_item_write *write,
                               uint64_t *out_version, struct belay_error *err);
enum belay_code store_item_list(struct belay_store *store, const char *space, belay_item_fn fn, void *context,
                                struct belay_error *err);
/* Of a store with group commit. */
enum belay_code store_sync(struct belay_store *store, uint64_t lsn, struct belay_error *err);
uint64_t store_durable_lsn(struct belay_store *store);

/* ---- the store as a backend (local_backend.c, local_run.c) ---- */

extern const struct backend_ops local_ops;

static inline struct belay_client *local_client(struct backend *backend)
{
    return ((struct local_backend *)backend)->client;
}

/* statistics.c */
enum belay_code local_stats(struct backend *backend, const struct belay_stats_query *query,
                            struct belay_stats **out_stats, struct belay_error *err);

/* freezes.c */
enum belay_code local_freezes(struct backend *backend, const struct freeze_request *request,
                              belay_freeze_fn fn, void *context, struct belay_error *err);
/* local_backend.c: commit an event that comes with no write. */
enum belay_code local_note(struct backend *backend, const struct belay_event *event, struct belay_error *err);

enum belay_code local_run(struct backend *backend, struct op_request *request, const struct wait_hooks *hooks,
                          struct op_result *out_result, struct belay_error *err);

enum belay_code local_check(struct backend *backend, const struct lock_check *check,
                            struct belay_info **out_info, struct belay_error *err); /* check.c */

/* Do the commit or the read that the operation wants. In any thread: the operation itself does not change. */
void store_step_ask(struct belay_client *client, const struct op *op, struct poller *poller,
                    struct store_step *step);
/* On the poll thread: begin a commit by the store's loop->begin(), without waiting. False: use store_step_ask(). */
bool store_step_begin(struct belay_client *client, const struct op *op, struct store_step *step,
                      void *context);
/* Answer a commit without asking the store: it was not sent in time. */
void store_step_refuse_late(struct belay_client *client, struct store_step *step);
/* Such a commit has been answered with `code`. */
void store_step_answered(struct belay_client *client, struct store_step *step, enum belay_code code);
/* Report the answer to the operation, and pass on events and wake-ups. Leaves the step empty. */
void store_step_report(struct belay_client *client, struct op *op, struct store_step *step);
void store_step_release(struct store_step *step);
/* How the operation waits, for display. */
struct belay_wait_info client_wait_info(const struct op *op);
/* The wait of an operation in the queue begins, and ends: meanwhile it shares the polls of other waiters. */
void client_wait_begins(struct belay_client *client, struct op *op, struct poller *poller);
void client_wait_ends(struct belay_client *client, struct poller *poller);

struct belay_store_capabilities client_capabilities(const struct belay_client *client);
void client_warn(struct belay_client *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Warn, as far as it is due, that the store does not answer and is asked again; and that it answers. */
void client_warn_outage(struct belay_client *client, struct outage *outage, enum belay_code code,
                        const char *why);
void client_warn_answers(struct belay_client *client, struct outage *outage);

/*
 * Releases what `held` names by its keys and lock id (query.c). Its mode is known here, so that the
 * first request is the right one: on DynamoDB each one costs.
 */
enum belay_code client_release(struct belay_client *client, const struct op_request *held,
                               enum belay_outcome outcome, struct belay_info **out_info,
                               struct belay_error *err);

/* ---- the kill switch (granting.c) ---- */

/* How the id of a lock begins that was granted while locking was switched off. No other id begins so. */
#define UNPROTECTED_PREFIX "unprotected-"
bool id_is_unprotected(const char *lock_id);
/* True: the request is granted without asking the backend. */
bool client_grants(struct belay_client *client, const struct op_request *request);
/* True: the request failed with `code`, but is granted because locking is switched off. */
bool client_forgives(struct belay_client *client, const struct op_request *request, enum belay_code code,
                     const char *why);
/* The lock as the caller of a granted request sees it; all borrowed from the request. */
struct belay_info granted_info(const struct op_request *request);
/* Report that a lock protects nothing: an event and a warning. */
void client_say_unprotected(struct belay_client *client, const struct op_request *request);

/* ---- counters (local_run.c) ---- */

/* Count an answer of the store. Returns `code`. */
enum belay_code client_count(struct belay_client *client, bool is_commit, enum belay_code code);

/* ---- asynchronous operations (async.c) ---- */

/*
 * Wake an operation of this client whose turn it may be, without waiting for the store to do it.
 * Not `at_once`: it looks in the next belay_client_poll(). True: there is one, which waits.
 */
bool async_wake(struct belay_client *client, const char *lock_id, bool at_once);
/* For a store's subscribe(). `context` is the client. */
void async_on_store_wake(void *context, const char *lock_id);
/* Abandon all; their tickets in the store expire. */
void async_drop_all(struct belay_client *client);

/* ---- worker threads that ask the store (threads.c) ---- */

/* False: no thread or no memory, so the caller must ask the store itself. */
bool threads_ask(struct belay_client *client, struct belay_async *call);
/* Collect the answers of the store's loop: for threads_next(), or for a thread to finish. */
void threads_take(struct belay_client *client);
/* Have the store's loop send what it was asked. Returns when to poll again (boot clock); INT64_MAX: no need. */
int64_t threads_flush(struct belay_client *client);
/* The next operation that was answered, or NULL. */
struct belay_async *threads_next(struct belay_client *client);
/* Have the store wake a waiter, wherever it is; not on the poll thread if there are others. */
void threads_wake(struct belay_client *client, const char *lock_id);
void threads_poke(struct belay_client *client); /* have the poll thread poll; NULL threads: nothing */
void threads_stop(struct belay_client *client); /* waits for what is in progress */

/* ---- requests, checked (lock_request.c) ---- */

/* A request, with room for what it borrows. Only one for several keys must be released. */
struct client_request {
    struct op_request op;
    struct op_joint *joint;               /* owned; what op.joint is */
    const struct config_profile *profile; /* borrowed; the one that the key belongs to; NULL: none */
    char ancestors[BELAY_ANCESTORS_MAX][BELAY_KEY_MAX + 1];
    char id[BELAY_ID_MAX + 1];
    char owner[BELAY_OWNER_MAX + 1];
    char reason[sizeof FREEZE_IGNORED + BELAY_REASON_MAX];
    struct belay_meta metadata[BELAY_META_MAX + 1];
};

/* A request with a key and an id, which an acquire or an adopt need not have. */
enum belay_code request_init(struct client_request *request, struct belay_client *client, enum op_kind kind,
                             const char *key, const char *lock_id, struct belay_error *err);
/* Of a client that does not acquire the lock: how it would hold it. */
enum belay_code request_init_wait(struct client_request *request, struct belay_client *client,
                                  const char *key, const struct belay_lock_options *options,
                                  struct belay_error *err);
enum belay_code request_init_acquire(struct client_request *request, struct belay_client *client,
                                     const char *key, const struct belay_lock_options *options,
                                     struct belay_error *err);
enum belay_code request_init_adopt(struct client_request *request, struct belay_client *client,
                                   const char *key, const char *lock_id,
                                   const struct belay_lock_options *options, struct belay_error *err);
enum belay_code request_init_renew(struct client_request *request, struct belay_client *client,
                                   const char *key, const char *lock_id, int64_t ttl_ms,
                                   struct belay_error *err);
enum belay_code request_init_release(struct client_request *request, struct belay_client *client,
                                     const char *key, const char *lock_id, enum belay_outcome outcome,
                                     struct belay_error *err);
enum belay_code request_init_force(struct client_request *request, struct belay_client *client,
                                   const char *key, const char *lock_id, const char *by, const char *reason,
                                   struct belay_error *err);
/* Make it a request for further keys as well, all at once. `n` may be 0. */
enum belay_code request_add_keys(struct client_request *request, struct belay_client *client,
                                 const char *const *more_keys, size_t n, struct belay_error *err);
void request_release(struct client_request *request);
/* A copy in one block, with its texts; free() it. NULL: no memory. */
struct op_joint *joint_copy(const struct op_joint *joint);
/* The room for all its texts; and their copies at *at, which moves behind them. */
size_t joint_text_size(const struct op_joint *joint);
void joint_keep_texts(struct op_joint *joint, char **at);
/* BELAY_INVALID if it is not 1 to BELAY_ID_MAX of the characters of an id. */
enum belay_code lock_id_check(const char *id, struct belay_error *err);
/* BELAY_INVALID if `text`, which the error calls `what`, is empty, too long, or not for people to read. */
enum belay_code client_check_text(const char *what, const char *text, size_t max, struct belay_error *err);
/* BELAY_INVALID names the entry that is wrong. */
enum belay_code metadata_check(const struct belay_meta *metadata, size_t n, struct belay_error *err);

/* ---- keeping leases (keepalive.c) ---- */

/* Keep the lock alive from now on. */
void keepalive_add(struct belay_lock *lock);
/* Start the threads that this lock needs. */
enum belay_code keepalive_start(struct belay_lock *lock, struct belay_error *err);
/* No more heartbeats; waits for one in progress. */
void keepalive_quiesce(struct belay_lock *lock);
void keepalive_remove(struct belay_lock *lock);
/* Renew once. Without the mutex. */
enum belay_code keepalive_renew(struct belay_lock *lock, struct belay_error *err);
/* The store has said that the lock is not ours: stop relying on it. */
void keepalive_lose(struct belay_lock *lock);
/* The lock is not ours any more: call on_lost, unless it is being released. Without the mutex. */
void keepalive_tell_lost(struct belay_lock *lock, const char *why);

/* ---- noticing that another client ended a lock (loss_watch.c) ---- */

/* False: no memory or no thread. Doing it again is not an error. */
bool loss_watch_start(struct belay_lock *lock);
/* Ask the thread to end, without waiting for it. */
void loss_watch_cancel(struct belay_lock *lock);
void loss_watch_end(struct belay_lock *lock); /* without the mutex */

#endif
