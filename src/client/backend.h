/*
 * A client whose store is another belay: `belay serve`, over HTTP.
 *
 * The server runs the operations of src/lock itself, so an operation is handed
 * over whole. Everything above it stays here: leases, heartbeats, on_lost. The
 * code that talks HTTP is src/remote, in the library; only https:// and proxies
 * need libcurl, from belay-net.so.
 */
#ifndef CLIENT_BACKEND_H
#define CLIENT_BACKEND_H

#include "belay/store.h"
#include "lock/op.h"

struct run_hooks {
    struct belay_cancel *cancel;
    void (*on_waiting)(void *context, const struct belay_wait_info *waiting);
    void *context;
};

struct client_remote;

struct client_remote_ops {
    void (*close)(struct client_remote *remote);
    /*
     * Run an operation to its end. Fills code, err, record with record_now_ms,
     * sent_ms and reentered. `hooks` may be NULL.
     */
    void (*run)(struct client_remote *remote, struct op *op, const struct run_hooks *hooks);
    /* As the public functions of the same names; keys are checked already. */
    enum belay_code (*get)(struct client_remote *remote, const char *key, struct belay_info **out_info,
                           struct belay_error *err);
    enum belay_code (*list)(struct client_remote *remote, const struct belay_query *query, belay_info_fn fn,
                            void *context, bool *out_more, struct belay_error *err);
    enum belay_code (*history)(struct client_remote *remote, const char *key, size_t limit, belay_event_fn fn,
                               void *context, struct belay_error *err);
    enum belay_code (*watch)(struct client_remote *remote, const char *prefix, uint64_t after_id,
                             belay_event_fn fn, void *context, struct belay_cancel *cancel,
                             struct belay_error *err);
    /* Have the event lock.lost recorded. */
    enum belay_code (*note_lost)(struct client_remote *remote, const struct belay_event *event,
                                 struct belay_error *err);
    /*
     * Wait until the lock is no longer that of lock_id: BELAY_LOST, BELAY_NOT_HOLDER or
     * BELAY_NOT_FOUND. BELAY_OK: it still is after wait_ms, or sooner if the server cannot wait so long.
     */
    enum belay_code (*held)(struct client_remote *remote, const char *key, const char *lock_id,
                            int64_t wait_ms, struct belay_cancel *cancel, struct belay_error *err);
    /* BELAY_OK: it could be taken now. BELAY_HELD: the error says who is in the way. */
    enum belay_code (*look_free)(struct client_remote *remote, const char *key, struct belay_error *err);
    /* As the store port's functions of these names. */
    enum belay_code (*item_get)(struct client_remote *remote, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err);
    enum belay_code (*item_put)(struct client_remote *remote, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err);
    enum belay_code (*item_list)(struct client_remote *remote, const char *space, belay_item_fn fn,
                                 void *context, bool *out_is_partial, struct belay_error *err);
    /* Likewise. */
    enum belay_code (*backup)(struct client_remote *remote, const char *path, struct belay_cancel *cancel,
                              struct belay_error *err);
    enum belay_code (*identity)(struct client_remote *remote, char out_id[BELAY_STORE_ID_SIZE],
                                struct belay_error *err);
};

/* A remote's own struct begins with this. */
struct client_remote {
    const struct client_remote_ops *ops;
};

#endif
