/* What the server says of itself. */
#include <string.h>

#include "server/routes.h"
#include "server/server.h"

void handle_health(struct exchange *x)
{
    reply(x, 200, json_pack("{s:s, s:s}", "status", "ok", "version", belay_version()));
}

static void ask_ready(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;
    enum belay_code code = belay_get(x->server->client, "belay-readiness-probe", &info, &err);
    if (code == BELAY_OK || code == BELAY_NOT_FOUND) {
        reply(x, 200, json_pack("{s:s, s:s}", "status", "ready", "version", belay_version()));
    } else {
        reply_error_with(x, 503, &err, NULL); /* whatever the reason: send the requests elsewhere */
    }
    belay_info_free(info);
    belay_error_release(&err);
}

/* Ready is who can serve an acquire: the store answers, and nobody has asked us to stop. */
void handle_ready(struct exchange *x)
{
    if (x->server->is_draining) {
        reply_problem(x, 503, "shutting_down", "the server is stopping");
    } else {
        exchange_ask(x, ask_ready, NULL);
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

static const char page[] =
    "<!doctype html>\n"
    "<html lang=\"en\"><head><meta charset=\"utf-8\"><title>belay</title>\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}"
    "pre{background:#f3f3f0;padding:.8rem;overflow-x:auto}"
    "@media(prefers-color-scheme:dark){body{background:#16181a;color:#ddd}pre{background:#22262a}a{color:#"
    "8cf}}"
    "</style></head><body>\n"
    "<h1>belay</h1>\n"
    "<p>This is a lock server: one deploy, build, migration or database stop at a time.\n"
    "It is for programs. From a shell:</p>\n"
    "<pre>curl -d '{\"locked_by\":\"me\",\"ttl_ms\":60000}' \\\n"
    "     http://ADDRESS/v1/locks/deploy-api-prod/acquire\n"
    "curl http://ADDRESS/v1/locks\n"
    "curl http://ADDRESS/v1/locks/deploy-api-prod/queue\n"
    "curl -N http://ADDRESS/v1/events</pre>\n"
    "<p>ADDRESS is what your browser shows above. Where tokens are configured, add\n"
    "<code>-H \"Authorization: Bearer TOKEN\"</code>.</p>\n"
    "<p><a href=\"openapi.json\">openapi.json</a> lists every path.\n"
    "<a href=\"readyz\">readyz</a> says whether the store answers.</p>\n"
    "</body></html>\n";

void handle_page(struct exchange *x)
{
    reply_text(x, 200, "text/html; charset=utf-8", page, sizeof page - 1);
}
