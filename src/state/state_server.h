/*
 * States that a belay server keeps: what src/state needs of one besides reading
 * blobs. The server takes the lock's id, renews it, and fences the write itself; here
 * nothing is written. src/remote is the one that is there.
 */
#ifndef STATE_STATE_SERVER_H
#define STATE_STATE_SERVER_H

#include "belay/state.h"

/* One write. What is recorded, and what it is made from, is in `write`. */
struct states_put {
    const char *rest; /* of the path: "", "/restore" or "/adopt" */
    const char *text; /* of "": the document; NULL: what is there, with the deployment recorded */
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
    /* The document, stamped with the lock of that id. May be repeated. */
    enum belay_code (*stamp)(struct states_server *server, const struct belay_state_name *name,
                             const char *lock_id, struct belay_blob *out_blob, struct belay_error *err);
    /* BELAY_UNKNOWN: it may have been saved. The caller finds out. */
    enum belay_code (*put)(struct states_server *server, const struct belay_state_name *name,
                           const struct states_put *put, struct states_saved *out, struct belay_error *err);
    enum belay_code (*backup)(struct states_server *server, const struct belay_state_name *name,
                              char **out_snapshot, struct belay_error *err);
    enum belay_code (*list)(struct states_server *server, belay_state_fn fn, void *context,
                            struct belay_error *err);
};

/* A server's own struct begins with this; the store of blobs that it comes with closes it. */
struct states_server {
    const struct states_server_ops *ops;
};

/* From now on writes go through the server, whose blobs `states` reads. */
void states_set_server(struct belay_states *states, struct states_server *server);

#endif
