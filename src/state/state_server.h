/*
 * States on a belay server: what src/state needs of the server besides reading
 * blobs. The server checks the lock id, renews the lease, and fences the write.
 * src/remote implements it.
 */
#ifndef STATE_STATE_SERVER_H
#define STATE_STATE_SERVER_H

#include "belay/state.h"

/* One write; `write` has the deployment and the version that it was made from. */
struct states_put {
    const char *rest; /* of the path: "", "/restore" or "/adopt" */
    const char *text; /* of "": the document; NULL: record the deployment only */
    size_t len;
    const char *snapshot; /* of the others; NULL: none is named */
    const struct belay_state_write *write;
};

struct states_saved {
    char *snapshot; /* owned; NULL: none */
    struct belay_blob_tag tag;
};

struct states_server;

struct states_server_ops {
    /* Mark the document with the lock of that id, and return it. Idempotent. */
    enum belay_code (*begin)(struct states_server *server, const struct belay_state_name *name,
                             const char *lock_id, struct belay_blob *out_blob, struct belay_error *err);
    /* BELAY_UNKNOWN: it may have been saved; the caller finds out. */
    enum belay_code (*put)(struct states_server *server, const struct belay_state_name *name,
                           const struct states_put *put, struct states_saved *out, struct belay_error *err);
    enum belay_code (*backup)(struct states_server *server, const struct belay_state_name *name,
                              char **out_snapshot, struct belay_error *err);
    enum belay_code (*list)(struct states_server *server, belay_state_fn fn, void *context,
                            struct belay_error *err);
};

/* An implementation's struct begins with this; closing its blob store closes it. */
struct states_server {
    const struct states_server_ops *ops;
};

/* Send writes through the server whose blobs `states` reads. */
void states_set_server(struct belay_states *states, struct states_server *server);

#endif
