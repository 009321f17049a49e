/*
 * The port between the functions of belay.h and the locks themselves. Each function
 * returns what the API returns.
 *
 *     local_backend.c    the client's own store, through the state machines of src/lock
 *     src/remote         a belay server, over HTTP; it runs the same state machines
 *     route.c            a store whose file a server may own: both of them in turn
 *
 * Leases, heartbeats and on_lost are the client's in any case.
 */
#ifndef CLIENT_BACKEND_H
#define CLIENT_BACKEND_H

#include "belay/store.h"
#include "lock/op.h"

struct backend;
struct client_decision;
struct poller;

/* A request to list, begin or end freezes. All but the times is checked: the backend compares those with its clock. */
enum freeze_kind { FREEZE_LIST, FREEZE_BEGIN, FREEZE_END };
struct freeze_request {
    enum freeze_kind kind;
    const char *id;      /* begin: of the new freeze. end: its id, or the pattern of several */
    const char *pattern; /* begin */
    const char *reason;  /* end: may be NULL */
    const char *by;
    int64_t from_unix_ms;
    int64_t until_unix_ms;
    int64_t for_ms;
};

/* How the reason of an acquisition begins that ignores freezes. */
#define FREEZE_IGNORED "freeze ignored: "

/* How the caller follows a wait. */
struct wait_hooks {
    struct belay_cancel *cancel; /* NULL: none */
    void (*on_waiting)(void *context, const struct belay_wait_info *waiting);
    void *context;
};

/* The question of belay_check(). */
struct lock_check {
    const char *key;
    const char *lock_id; /* NULL: any that has the token */
    uint64_t token;      /* 0: any */
    int64_t min_valid_ms;
};

/* The lock as an operation left it. */
struct op_result {
    struct belay_info *info; /* owned */
    int64_t sent_ms;         /* boot clock: the lease counts from here */
    int64_t deadline_ms;     /* boot clock: how long the holder may rely on it; of acquire, adopt, renew */
    bool reentered;
};

struct backend_ops {
    void (*close)(struct backend *backend);
    /*
     * Run an operation to its end and emit its events. request->attempt becomes the last
     * attempt. `hooks` may be NULL. BELAY_REDIRECTED: the operation has to be started
     * again, with the same lock id, at another backend.
     */
    enum belay_code (*run)(struct backend *backend, struct op_request *request,
                           const struct wait_hooks *hooks, struct op_result *out_result,
                           struct belay_error *err);
    /* As the public functions of the same names; keys are checked already. */
    enum belay_code (*get)(struct backend *backend, const char *key, struct belay_info **out_info,
                           struct belay_error *err);
    /*
     * As belay_check(), without the kill switch. valid_for_ms is counted from before the call; the
     * caller takes off what has passed since, and compares it with min_valid_ms.
     */
    enum belay_code (*check)(struct backend *backend, const struct lock_check *check,
                             struct belay_info **out_info, struct belay_error *err);
    enum belay_code (*list)(struct backend *backend, const struct belay_query *query, belay_info_fn fn,
                            void *context, bool *out_more, struct belay_error *err);
    enum belay_code (*events)(struct backend *backend, const struct belay_events_query *query,
                              belay_event_fn fn, void *context, struct belay_error *err);
    /* As belay_stats(); the query is checked already. */
    enum belay_code (*stats)(struct backend *backend, const struct belay_stats_query *query,
                             struct belay_stats **out_stats, struct belay_error *err);
    /* As belay_past_holds(). *out_holds is empty before. */
    enum belay_code (*past_holds)(struct backend *backend, const char *key, struct belay_holds *out_holds,
                                  struct belay_error *err);
    /* *after is the last event that was seen (0: from now on), and moves with each. */
    enum belay_code (*watch)(struct backend *backend, const char *prefix, uint64_t *after, belay_event_fn fn,
                             void *context, struct belay_cancel *cancel, struct belay_error *err);
    /* Record an event that comes with no write: lock.lost. */
    enum belay_code (*note)(struct backend *backend, const struct belay_event *event,
                            struct belay_error *err);
    /*
     * BELAY_OK: the lock could be taken now. BELAY_HELD: err->holder blocks it; *retry_ms is
     * lowered to when the lock may become free. `poller` shares reads with other waiters. `cancel` (NULL: none)
     * ends a request to a server at once.
     */
    enum belay_code (*check_free)(struct backend *backend, const struct op_request *request,
                                  struct poller *poller, int64_t *retry_ms, struct belay_cancel *cancel,
                                  struct belay_error *err);
    /*
     * Wait until the lock on one of the keys is no longer that of lock_id: BELAY_LOST, BELAY_NOT_HOLDER or
     * BELAY_NOT_FOUND. BELAY_OK: it still is after wait_ms, or sooner if the backend cannot wait
     * so long. NULL: not supported; the client polls, or is woken by its store.
     */
    enum belay_code (*await_loss)(struct backend *backend, const struct op_request *request, int64_t wait_ms,
                                  struct belay_cancel *cancel, struct belay_error *err);
    /* As the functions of client/items.h. */
    enum belay_code (*item_get)(struct backend *backend, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err);
    enum belay_code (*item_put)(struct backend *backend, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err);
    enum belay_code (*item_list)(struct backend *backend, const char *space, belay_item_fn fn, void *context,
                                 bool *out_is_partial, struct belay_error *err);
    enum belay_code (*decide)(struct backend *backend, const struct client_decision *decision,
                              struct belay_error *err);
    /* Begin, end or list freezes, and record their events. Calls `fn` (may be NULL) with each freeze. */
    enum belay_code (*freezes)(struct backend *backend, const struct freeze_request *request,
                               belay_freeze_fn fn, void *context, struct belay_error *err);
    /* As the store port's functions of these names. */
    enum belay_code (*backup)(struct backend *backend, const char *path, struct belay_cancel *cancel,
                              struct belay_error *err);
    enum belay_code (*identity)(struct backend *backend, char out_id[BELAY_STORE_ID_SIZE],
                                struct belay_error *err);
    /* The name under which this backend acquires, struct belay_info's acquired_by; "": none. */
    enum belay_code (*credential)(struct backend *backend, char out_name[BELAY_OWNER_MAX + 1],
                                  struct belay_error *err);
};

/* A backend's own struct begins with this. */
struct backend {
    const struct backend_ops *ops;
};

#endif
