/* The dashboard's log-in: a token for a cookie, and back to none. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/core/server.h"
#include "server/core/sse.h"
#include "server/dashboard/dashboard_stream.h"
#include "server/events/event_stream.h"
#include "json/json_write.h"

static void reply_cookie(struct exchange *x, const char *cookie, json_t *body)
{
    const struct http_header headers[] = { { "Content-Type", "application/json" },
                                           { "Cache-Control", "no-store" },
                                           { "Set-Cookie", cookie } };
    char *line = wire_line(body);

    if (line == NULL) {
        reply_line(x, 503, NULL);
    } else {
        reply_with(x, 200, headers, sizeof headers / sizeof headers[0], line, strlen(line));
    }
    free(line);
}

static json_t *session_json(const struct exchange *x, bool has_end)
{
    return json_pack("{s:o, s:s, s:o}", "name", x->who[0] == '\0' ? json_null() : wire_text(x->who), "role",
                     role_name(x->role), "expires_at",
                     has_end ? wire_time(clock_unix_ms() + SESSION_MS) : json_null());
}

void handle_session_post(struct exchange *x)
{
    struct server *server = x->server;
    char cookie[SESSION_COOKIE_SIZE];

    if (x->session != 0) {
        /* Else a session could prolong itself for ever. */
        reply_problem(x, 401, "unauthorized", "a session begins with a token: 'Authorization: Bearer TOKEN'");
    } else if (x->token == NULL) {
        reply(x, 200, session_json(x, false));
    } else if (!session_begin(&server->sessions, x->token, x->request, loop_now_ms(server->loop), cookie)) {
        reply_problem(x, 503, "no_memory", "no memory");
    } else {
        reply_cookie(x, cookie, session_json(x, true));
    }
}

void handle_session_delete(struct exchange *x)
{
    struct server *server = x->server;
    char cookie[SESSION_COOKIE_SIZE];

    session_end(&server->sessions, x->session, x->request, cookie);
    if (x->session != 0) {
        dashboard_stream_end_session(server->dashboard, x->session);
        event_stream_end_session(server->events, x->session);
    }
    reply_cookie(x, cookie, json_object());
}
