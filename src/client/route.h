/*
 * Which backend a client asks: its store, a server, or, for a store whose file a server
 * may own, the one of the two that has the file now.
 *
 *     store --BELAY_REDIRECTED: a server owns the file--> server
 *       ^                                                   |
 *       +---BELAY_REDIRECTED: it has stopped, or died ------+
 *
 * A call that is redirected is started again at the other backend. The lock id stays
 * the same, so nothing is done twice, and a waiter keeps its place in the queue.
 */
#ifndef CLIENT_ROUTE_H
#define CLIENT_ROUTE_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/backend.h"

/*
 * Find the server that owns the store's file. *server is the backend that was opened
 * before, or NULL; *out_pid is 0 if no server owns the file any more.
 */
typedef enum belay_code (*route_find_fn)(void *context, struct backend **server, long *out_pid,
                                         struct belay_error *err);

struct backend_route {
    struct backend *first;  /* owned; the store, or the server that the client was told to use */
    struct backend *server; /* owned; the server that owns the store's file; NULL: none so far */
    atomic_long server_pid; /* not 0: `server` owns the file now */
    pthread_mutex_t mutex;  /* guards opening `server` */
    route_find_fn find;     /* NULL: no server can come to own the store */
    void *context;
};

void route_init(struct backend_route *route);
void route_release(struct backend_route *route); /* closes the backends */

static inline struct backend *route_current(struct backend_route *route)
{
    return atomic_load(&route->server_pid) != 0 ? route->server : route->first;
}

/* After `used` returned *code: true if the call must be started again at route_current(). */
bool route_is_redirected(struct backend_route *route, const struct backend *used, enum belay_code *code,
                         struct belay_error *err);

/* Set `code` to what a function of the port returns, wherever it has to be called. */
#define ROUTE(route, code, err, function, ...)                                                               \
    do {                                                                                                     \
        struct backend *used_;                                                                               \
                                                                                                             \
        do {                                                                                                 \
            used_ = route_current(route);                                                                    \
            (code) = used_->ops->function(used_, __VA_ARGS__, err);                                          \
        } while (route_is_redirected(route, used_, &(code), err));                                           \
    } while (0)

/* The same of backend_ops.run, which begins as a restart the second time. */
enum belay_code route_run(struct backend_route *route, struct op_request *request,
                          const struct wait_hooks *hooks, struct op_result *out_result,
                          struct belay_error *err);

#endif
