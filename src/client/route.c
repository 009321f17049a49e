#include "client/route.h"

#include <assert.h>

#include "client/client.h"

void route_init(struct backend_route *route)
{
    (void)pthread_mutex_init(&route->mutex, NULL);
}

void route_release(struct backend_route *route)
{
    if (route->first != NULL) {
        route->first->ops->close(route->first);
    }
    if (route->server != NULL) {
        route->server->ops->close(route->server);
    }
    (void)pthread_mutex_destroy(&route->mutex);
}

bool route_is_redirected(struct backend_route *route, const struct backend *used, enum belay_code *code,
                         struct belay_error *err)
{
    long pid = 0;

    if (*code != BELAY_REDIRECTED || route->find == NULL) {
        return false;
    }
    assert(used == route->first || used == route->server);
    if (used != route->first) {
        atomic_store(&route->server_pid, 0);
        return true;
    }
    (void)pthread_mutex_lock(&route->mutex);
    *code = route->find(route->context, &route->server, &pid, err);
    assert(*code != BELAY_OK || pid == 0 || route->server != NULL);
    if (*code == BELAY_OK) {
        atomic_store(&route->server_pid, pid);
    }
    (void)pthread_mutex_unlock(&route->mutex);
    return *code == BELAY_OK;
}

enum belay_code route_run(struct backend_route *route, struct op_request *request,
                          const struct wait_hooks *hooks, struct op_result *out_result,
                          struct belay_error *err)
{
    struct backend *used = route_current(route);
    enum belay_code code = used->ops->run(used, request, hooks, out_result, err);

    assert(request->key != NULL && request->lock_id != NULL);
    while (route_is_redirected(route, used, &code, err)) {
        request->id_is_fresh = false; /* the backend before may have used it */
        request->is_restart = true;
        used = route_current(route);
        code = used->ops->run(used, request, hooks, out_result, err);
    }
    assert(code != BELAY_REFUSED && (code != BELAY_OK || out_result->info != NULL));
    assert(code == BELAY_OK || code == BELAY_REDIRECTED || err == NULL || err->code == code);
    return code;
}

struct belay_store_capabilities client_capabilities(const struct belay_client *client)
{
    if (client->store == NULL) {
        return (struct belay_store_capabilities){ .has_modes = true }; /* the server knows its store's */
    }
    return client->store->ops->capabilities(client->store);
}

bool belay_client_is_local(const struct belay_client *client)
{
    return client_capabilities(client).is_local;
}
