/* Liveness, readiness and the OpenAPI document. */
#include <string.h>

#include "server/core/routes.h"
#include "server/core/server.h"

void handle_health(struct exchange *x)
{
    reply(x, 200,
          json_pack("{s:s, s:s, s:b}", "status", "ok", "version", belay_version(), "locking_enabled",
                    belay_client_locking_enabled(x->server->client)));
}

static void ask_ready(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;
    enum belay_code code = belay_get(x->server->client, "belay-readiness-probe", &info, &err);
    bool is_enabled = belay_client_locking_enabled(x->server->client);

    /* While locking is switched off, an acquire does not need the store. */
    if (code == BELAY_OK || code == BELAY_NOT_FOUND || !is_enabled) {
        reply(x, 200,
              json_pack("{s:s, s:s, s:b}", "status", "ready", "version", belay_version(), "locking_enabled",
                        is_enabled));
    } else {
        reply_error_with(x, 503, &err, NULL); /* 503 for every reason: a load balancer uses another server */
    }
    belay_info_free(info);
    belay_error_release(&err);
}

/* A server is ready if it can serve an acquire: the store answers, and the server is not stopping. */
void handle_ready(struct exchange *x)
{
    if (x->server->is_draining) {
        reply_problem(x, 503, "shutting_down", "the server is stopping");
    } else {
        exchange_read(x, WORK_READ, ask_ready, NULL);
    }
}

void handle_openapi(struct exchange *x)
{
    struct server *server = x->server;

    if (server->openapi == NULL) {
        server->openapi = openapi_make();
    }
    if (server->openapi == NULL) {
        reply_problem(x, 503, "no_memory", "no memory");
        return;
    }
    reply_text(x, 200, "application/json", server->openapi, strlen(server->openapi));
}
