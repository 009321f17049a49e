#include "server/routes.h"

#include <stdio.h>
#include <string.h>

#include "config/nearest.h"

enum { SEGMENTS_MAX = 6 };

#define LOCK_FAILS 400, 401, 403, 404, 409, 413, 503, 504

/* clang-format off */
const struct route routes[] = {
    { "POST", "/v1/locks/{key}/acquire", ROLE_LOCKER, handle_acquire, acquire_fields + 1, { { 0 } }, "Lock",
      { 200, 400, 401, 403, 409, 413, 503, 504 }, "Acquire a lock, waiting in line if asked to" },
    { "POST", "/v1/locks/{key}/adopt", ROLE_LOCKER, handle_adopt, adopt_fields + 1, { { 0 } }, "Lock",
      { 200, LOCK_FAILS }, "Exchange a lock_id you were given for one of your own" },
    { "POST", "/v1/locks/{key}/renew", ROLE_LOCKER, handle_renew, renew_fields + 1, { { 0 } }, "Lock",
      { 200, LOCK_FAILS }, "Start the lease again, with its whole ttl" },
    { "POST", "/v1/locks/{key}/release", ROLE_LOCKER, handle_release, release_fields + 1, { { 0 } }, "Lock",
      { 200, LOCK_FAILS }, "End your own lock" },
    { "POST", "/v1/locks/{key}/lost", ROLE_LOCKER, handle_lost, lost_fields + 1, { { 0 } }, "Noted",
      { 200, 400, 401, 403, 413, 503, 504 }, "Record that you have lost a lock: its lease could not be proved any more" },
    { "POST", "/v1/acquire", ROLE_LOCKER, handle_acquire, acquire_fields, { { 0 } }, "Lock",
      { 200, 400, 401, 403, 409, 413, 503, 504 }, "Acquire, with the key in the body" },
    { "POST", "/v1/adopt", ROLE_LOCKER, handle_adopt, adopt_fields, { { 0 } }, "Lock",
      { 200, LOCK_FAILS }, "Adopt, with the key in the body" },
    { "POST", "/v1/renew", ROLE_LOCKER, handle_renew, renew_fields, { { 0 } }, "Lock",
      { 200, LOCK_FAILS }, "Renew, with the key in the body" },
    { "POST", "/v1/release", ROLE_LOCKER, handle_release, release_fields, { { 0 } }, "Lock",
      { 200, LOCK_FAILS }, "Release, with the key in the body" },
    { "POST", "/v1/lost", ROLE_LOCKER, handle_lost, lost_fields, { { 0 } }, "Noted",
      { 200, 400, 401, 403, 413, 503, 504 }, "Record that you have lost a lock, with the key in the body" },
    { "GET", "/v1/locks", ROLE_READER, handle_list, NULL,
      { { "prefix", "string", "only keys that begin with this" },
        { "status", "string", "active, expired, released or all; by default active and expired" },
        { "stale", "boolean", "only those without their heartbeat" },
        { "limit", "integer", "at most so many, 1 to 1000; by default 100" },
        { "cursor", "string", "next_cursor of the page before" } },
      "LockList", { 200, 400, 401, 403, 503 }, "Locks in the order of their keys" },
    { "GET", "/v1/locks/{key}", ROLE_READER, handle_get, NULL, { { 0 } }, "Lock",
      { 200, 400, 401, 403, 404, 503 }, "One lock" },
    { "DELETE", "/v1/locks/{key}", ROLE_ADMIN, handle_force, force_fields + 1,
      { { "reason", "string", "why, if it is not in the body" },
        { "lock_id", "string", "end this lock and no later one" } },
      "Lock", { 200, LOCK_FAILS }, "End somebody else's lock" },
    { "GET", "/v1/locks/{key}/history", ROLE_READER, handle_history, NULL,
      { { "limit", "integer", "the last so many, 1 to 10000; by default 100" } },
      "EventList", { 200, 400, 401, 403, 404, 503 }, "What happened to one lock, oldest first" },
    { "GET", "/v1/locks/{key}/queue", ROLE_READER, handle_queue, NULL, { { 0 } }, "Queue",
      { 200, 400, 401, 403, 404, 503 }, "Who holds it and who waits, in order" },
    { "GET", "/v1/locks/{key}/free", ROLE_READER, handle_free, NULL, { { 0 } }, "Free",
      { 200, 400, 401, 403, 409, 503 }, "Whether it could be taken now, keys above and below it considered" },
    { "GET", "/v1/events", ROLE_READER, handle_events, NULL,
      { { "prefix", "string", "only events of keys that begin with this" },
        { "last_event_id", "integer", "go on after this one, for clients that cannot send Last-Event-ID" } },
      "text/event-stream", { 200, 400, 401, 403, 404, 503 }, "Events as they happen, as Server-Sent Events" },
    { "GET", "/healthz", ROLE_NONE, handle_health, NULL, { { 0 } }, "Health", { 200 }, "The server runs" },
    { "GET", "/readyz", ROLE_NONE, handle_ready, NULL, { { 0 } }, "Health", { 200, 503 },
      "The store answers and the server is not stopping" },
    { "GET", "/openapi.json", ROLE_NONE, handle_openapi, NULL, { { 0 } }, "application/json", { 200 }, "This document" },
    { "GET", "/", ROLE_NONE, handle_page, NULL, { { 0 } }, "text/html", { 200 }, "A page for people" },
};
/* clang-format on */
const size_t n_routes = sizeof routes / sizeof routes[0];

static bool path_fits(const char *path, const struct http_slice *segments, size_t n,
                      struct http_slice *out_key)
{
    struct http_slice wanted[SEGMENTS_MAX];
    size_t n_wanted = http_path_split(path, wanted, SEGMENTS_MAX);

    out_key->data = NULL;
    out_key->len = 0;
    if (n_wanted != n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (wanted[i].len > 0 && wanted[i].data[0] == '{') {
            *out_key = segments[i];
        } else if (wanted[i].len != segments[i].len ||
                   memcmp(wanted[i].data, segments[i].data, wanted[i].len) != 0) {
            return false;
        }
    }
    return true;
}

static bool method_fits(const char *wanted, const char *method)
{
    return strcmp(wanted, method) == 0 || (strcmp(wanted, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

const struct route *route_find(const struct http_request *request, struct http_slice *out_key,
                               char out_allow[ROUTE_ALLOW_SIZE])
{
    struct http_slice segments[SEGMENTS_MAX];
    size_t n = request->path[0] == '/' ? http_path_split(request->path, segments, SEGMENTS_MAX) : 0;
    size_t len = 0;

    out_allow[0] = '\0';
    if (n == 0 || n > SEGMENTS_MAX) {
        return NULL;
    }
    for (size_t i = 0; i < n_routes; i++) {
        bool is_get = strcmp(routes[i].method, "GET") == 0;

        if (!path_fits(routes[i].path, segments, n, out_key)) {
            continue;
        }
        if (method_fits(routes[i].method, request->method)) {
            return &routes[i];
        }
        len += (size_t)snprintf(out_allow + len, ROUTE_ALLOW_SIZE - len, "%s%s", len == 0 ? "" : ", ",
                                is_get ? "GET, HEAD" : routes[i].method);
    }
    return NULL;
}

static bool refuse_query(struct exchange *x, const char *name)
{
    const char *names[ROUTE_QUERY_MAX];
    const char *nearest;
    size_t n = 0;

    for (; n < ROUTE_QUERY_MAX && x->route->query[n].name != NULL; n++) {
        names[n] = x->route->query[n].name;
    }
    nearest = nearest_name(name, names, n);
    if (nearest != NULL) {
        reply_problem(x, 400, "invalid", "there is no parameter '%.60s'; did you mean '%s'?", name, nearest);
    } else {
        reply_problem(x, 400, "invalid", "this path has no parameter '%.60s'", name);
    }
    return false;
}

bool route_check_query(struct exchange *x)
{
    const char *cursor = x->request->query;
    struct http_slice name;
    struct http_slice value;

    while (http_query_next(&cursor, &name, &value)) {
        char text[64] = "";
        bool known = false;

        if (name.len == 0 && value.len == 0) {
            continue;
        }
        if (!http_decode(name, text, sizeof text)) {
            text[0] = '\0';
        }
        for (size_t i = 0; i < ROUTE_QUERY_MAX && x->route->query[i].name != NULL; i++) {
            known = known || strcmp(x->route->query[i].name, text) == 0;
        }
        if (!known) {
            return refuse_query(x, text);
        }
    }
    return true;
}
