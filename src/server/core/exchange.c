/* One request from its arrival to its log line: authorization, route, reply. */
#include <assert.h>
#include <sanitizer/asan_interface.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "server/core/routes.h"
#include "server/core/server.h"
#include "server/core/site.h"
#include "server/core/sse.h"
#include "json/json_write.h"

#define STORE_HEADER "Belay-Store"

enum { HEADERS_MAX = 12, HEADERS_ADDED = 3, SPARE_MAX = 256, LINE_MAX = 1 << 16, NO_BODY_MAX = 16 << 10 };

/* ---- replies ---- */

static void write_log(const struct exchange *x, int status)
{
    const struct http_request *request = x->request;
    struct log_request line = { .id = x->id, .who = x->who, .status = status };

    if (request == NULL) {
        return; /* on_hangup() has written it */
    }
    line.method = request->method;
    line.path = request->path;
    line.peer = request->peer->text;
    line.reason = x->reason;
    line.duration_ms = loop_now_ms(x->server->loop) - request->received_ms;
    log_request(&x->server->log, &line);
    route_count(x->server->route_counts, x->route, status, clock_boot_us() - x->began_us);
}

/*
 * There are as many exchanges as clients, and malloc() is slow at that size and number: they are reused. A spare one
 * must not be touched.
 */
static void exchange_free(struct exchange *x)
{
    struct server *server = x->server;

    assert(!work_is_pending(&x->read.work));
    assert(x->pending == NULL && x->holder == NULL && x->stream == NULL); /* nothing points to it */
    tokens_drop(x->tokens);
    free(x->keys);
    if (server->n_spare == SPARE_MAX) {
        free(x);
        return;
    }
    x->next = server->spare;
    server->spare = x;
    server->n_spare++;
    ASAN_POISON_MEMORY_REGION(x, sizeof *x);
}

static struct exchange *exchange_alloc(struct server *server)
{
    struct exchange *x = server->spare;

    if (x == NULL) {
        return malloc(sizeof *x);
    }
    assert(server->n_spare > 0 && server->n_spare <= SPARE_MAX);
    ASAN_UNPOISON_MEMORY_REGION(x, sizeof *x);
    server->spare = x->next;
    server->n_spare--;
    return x;
}

void exchanges_release(struct server *server)
{
    while (server->n_spare > 0) {
        free(exchange_alloc(server));
    }
    buf_release(&server->line);
}

void exchange_end(struct exchange *x, int status)
{
    write_log(x, status);
    exchange_free(x);
}

void reply_shared(struct exchange *x, int status, const struct http_header *headers, size_t n,
                  const struct http_shared *body)
{
    struct http_header all[HEADERS_MAX + HEADERS_ADDED];
    size_t n_all = 0;

    assert(n <= HEADERS_MAX && status >= 200 && status < 600);
    all[n_all++] = (struct http_header){ "X-Request-Id", x->id };
    if (!belay_client_locking_enabled(x->server->client)) {
        all[n_all++] = (struct http_header){ "Belay-Locking", "off" };
    }
    if (x->request != NULL && x->server->identity.id[0] != '\0' &&
        http_header(x->request, STORE_HEADER) != NULL) {
        all[n_all++] = (struct http_header){ STORE_HEADER, x->server->identity.id };
    }
    memcpy(all + n_all, headers, n * sizeof *headers);
    write_log(x, status);
    if (x->request != NULL && body->release == NULL) {
        http_answer(x->request, status, all, n_all + n, body->data, body->len);
    } else if (x->request != NULL) {
        http_answer_shared(x->request, status, all, n_all + n, body);
    } else if (body->release != NULL) {
        body->release(body->owner);
    }
    exchange_free(x);
}

void reply_with(struct exchange *x, int status, const struct http_header *headers, size_t n, const void *body,
                size_t len)
{
    reply_shared(x, status, headers, n, &(struct http_shared){ .data = body, .len = len });
}

void reply_text(struct exchange *x, int status, const char *type, const char *body, size_t len)
{
    struct http_header headers[4] = { { "Content-Type", type }, { "Cache-Control", "no-store" } };
    size_t n = 2;

    if (status == 401) {
        headers[n++] = (struct http_header){ "WWW-Authenticate", "Bearer realm=\"belay\"" };
    } else if (status == 503) {
        headers[n++] = (struct http_header){ "Retry-After", "1" };
    } else if (status == 405) {
        headers[n++] = (struct http_header){ "Allow", x->allow };
    }
    reply_with(x, status, headers, n, body, len);
}

/* For the log: what the server or its store lacks. One of "busy" names a lock id. */
static const char *failure_message(const json_t *body)
{
    const json_t *error = json_object_get(body, "error");
    const char *code = json_string_value(json_object_get(error, "code"));

    return code == NULL || strcmp(code, "busy") == 0 ? NULL
                                                     : json_string_value(json_object_get(error, "message"));
}

void reply_line(struct exchange *x, int status, char *line)
{
    static const char no_memory[] =
        "{\"error\":{\"code\":\"no_memory\",\"message\":\"no memory\",\"lock\":null}}";
    json_t *body = line != NULL && status >= 500 ? json_loads(line, 0, NULL) : NULL;

    x->reason = failure_message(body);
    if (line == NULL) {
        reply_text(x, 503, "application/json", no_memory, sizeof no_memory - 1);
    } else {
        reply_text(x, status, "application/json", line, strlen(line));
    }
    json_decref(body);
    free(line);
}

void reply(struct exchange *x, int status, json_t *body)
{
    if (!exchange_keeps_reply(x, status, body)) {
        reply_line(x, status, wire_line(body));
    }
}

void reply_lock(struct exchange *x, const struct belay_info *info)
{
    struct buf *line = &x->server->line;

    line->len = 0;
    line->max = LINE_MAX;
    line->failed = false;
    if (x->keys != NULL) {
        reply_line(x, 200, wire_line(wire_grants(info)));
    } else if (wire_grant_line(line, info)) {
        reply_text(x, 200, "application/json", line->data, line->len);
    } else {
        reply_line(x, 200, wire_line(wire_grant(info)));
    }
}

void reply_locks(struct exchange *x, json_t *locks)
{
    json_t *first = json_array_get(locks, 0);

    if (x->keys == NULL) {
        first = json_incref(first);
        json_decref(locks);
        reply(x, 200, first);
    } else {
        reply(x, 200, json_pack("{s:O, s:o}", "lock_id", json_object_get(first, "lock_id"), "locks", locks));
    }
}

int status_of(enum belay_code code)
{
    switch (code) {
    case BELAY_OK:
        return 200;
    case BELAY_INVALID:
        return 400;
    case BELAY_NOT_PERMITTED:
        return 403;
    case BELAY_NOT_FOUND:
        return 404;
    case BELAY_HELD:
    case BELAY_FROZEN:
    case BELAY_LOST:
    case BELAY_NOT_HOLDER:
    case BELAY_ID_USED:
    case BELAY_CANCELLED:
        return 409;
    case BELAY_UNREACHABLE:
    case BELAY_BUSY:
    case BELAY_NO_MEMORY:
    case BELAY_BAD_CONTENT: /* in the store, not in the request */
    case BELAY_CONFIG:
        return 503;
    case BELAY_UNKNOWN:
        return 504;
    case BELAY_BUG:
    case BELAY_REFUSED:
    case BELAY_REDIRECTED:
        break;
    }
    return 500;
}

enum belay_code code_of_server(enum belay_code code)
{
    return code == BELAY_NOT_PERMITTED ? BELAY_UNREACHABLE : code;
}

void reply_error_with(struct exchange *x, int status, const struct belay_error *err, json_t *more)
{
    json_t *body = error_for(x, err);

    if (body != NULL && more != NULL) {
        (void)json_object_update(json_object_get(body, "error"), more);
    }
    json_decref(more);
    reply(x, status, body);
}

/* The request is wrong, or its token does not permit it. */
static void reply_request_error(struct exchange *x, const struct belay_error *err)
{
    assert(err->code != BELAY_OK);
    reply_error_with(x, status_of(err->code), err, NULL);
}

void reply_error(struct exchange *x, const struct belay_error *err)
{
    struct belay_error of_server = *err;

    of_server.code = code_of_server(err->code);
    reply_request_error(x, &of_server);
}

void reply_problem(struct exchange *x, int status, const char *code, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    reply(x, status,
          json_pack("{s:{s:s, s:o, s:n}}", "error", "code", code, "message", wire_text(text), "lock"));
}

void reply_not_yours(struct exchange *x, const char *lock_id)
{
    reply_problem(x, 409, "id_used", "another token queued with the lock_id '%.100s'; use a new one",
                  lock_id);
}

/* ---- the client goes away ---- */

static void on_hangup(struct http_request *request, enum http_hangup what, void *context)
{
    struct exchange *x = context;

    assert(x->request == request);
    assert((x->pending != NULL) + (x->holder != NULL) + (x->stream != NULL) <=
           1); /* it waits for one thing */
    if (what == HTTP_HALF_CLOSED) {
        if (x->pending != NULL) {
            pending_acquire_half_closed(x->pending);
        } else if (x->holder != NULL) {
            holder_answer(x->holder);
        } else if (x->stream != NULL) {
            stream_end(x->stream);
        } else if (work_is_pending(&x->read.work)) {
            http_probe(x->request);
        }
        return;
    }
    if (x->stream != NULL) {
        stream_forget(x->stream);
        exchange_end(x, 200);
    } else if (x->pending != NULL) {
        pending_acquire_client_gone(x->pending);
        exchange_end(x, 499);
    } else if (x->holder != NULL) {
        holder_forget(x->holder);
        exchange_end(x, 499);
    } else {
        write_log(x, 499);
        x->request = NULL;          /* a pending read, job or call of the library ends the exchange */
        work_cancel(&x->read.work); /* a read that has not begun, or takes long, is not needed */
    }
}

/* ---- authorization ---- */

static bool is_id(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

    return n > 0 && n < REQUEST_ID_SIZE && text[n] == '\0';
}

/* "RUN-NUMBER". */
static void make_request_id(struct exchange *x, uint64_t number)
{
    char digits[NUMBER_TEXT_SIZE];
    const char *text = number_text(digits, number);
    size_t len = strlen(x->server->run);

    memcpy(x->id, x->server->run, len);
    x->id[len] = '-';
    memcpy(x->id + len + 1, text, (size_t)(digits + sizeof digits - text));
}

static struct exchange *exchange_new(struct server *server, struct http_request *request)
{
    struct exchange *x = exchange_alloc(server);
    const char *theirs = http_header(request, "X-Request-Id");

    if (x == NULL) {
        return NULL;
    }
    memset(x, 0, offsetof(struct exchange, who)); /* the rest is strings, most of which stay empty */
    x->who[0] = x->key[0] = x->more[0][0] = x->more[1][0] = x->found_id[0] = '\0';
    x->server = server;
    x->began_us = clock_boot_us();
    x->request = request;
    x->query = request->query;
    if (theirs != NULL && is_id(theirs)) {
        memcpy(x->id, theirs, strlen(theirs) + 1);
    } else {
        make_request_id(x, request->id);
    }
    http_on_hangup(request, on_hangup, x);
    return x;
}

/* By its token, or if it has none by the cookie of a dashboard's session. */
static enum auth authenticate(const struct server *server, const struct http_request *request,
                              const struct token **out_token, uint64_t *out_session)
{
    enum auth auth = auth_check(server->tokens, request, out_token);

    return auth != AUTH_MISSING ? auth
                                : session_check(&server->sessions, server->tokens, request,
                                                loop_now_ms(server->loop), out_token, out_session);
}

/* False, and answered, if the page or the client may not use the route. */
static bool authorize(struct exchange *x)
{
    struct server *server = x->server;

    switch (site_check(server, x->request)) {
    case SITE_FINE:
        break;
    case SITE_OTHER_ORIGIN:
        reply_problem(x, 403, "cross_origin", "requests from pages of other sites are refused");
        return false;
    case SITE_OTHER_HOST:
        reply_problem(x, 403, "wrong_host",
                      "without tokens this server answers only to localhost; configure tokens to serve "
                      "others ('belay auth new')");
        return false;
    }
    if (server->tokens->n == 0 || x->request->peer->is_trusted) {
        http_mark_known(x->request);
        x->role = ROLE_ADMIN;
        return true;
    }
    switch (authenticate(server, x->request, &x->token, &x->session)) {
    case AUTH_MISSING:
        reply_problem(x, 401, "unauthorized", "a token is required: 'Authorization: Bearer TOKEN'");
        return false;
    case AUTH_WRONG:
        auth_refuse_later(x);
        return false;
    case AUTH_FORGED:
        reply_problem(
            x, 403, "cross_origin",
            "a request of a session that changes something needs an Origin of this server, or the header "
            "'" SESSION_HEADER ": 1'");
        return false;
    case AUTH_OK:
        break;
    }
    http_mark_known(x->request);
    assert(x->token != NULL && x->tokens == NULL);
    x->tokens = tokens_keep(server->tokens);
    x->role = x->token->role;
    memcpy(x->who, x->token->name, sizeof x->who);
    if (x->role < x->route->role) {
        reply_problem(x, 403, "not_permitted", "'%s' has the role %s; this needs the role %s", x->who,
                      role_name(x->role), role_name(x->route->role));
        return false;
    }
    return true;
}

enum belay_code mark_name(const char *name, const char *who, const char *what, char *out, size_t size,
                          struct belay_error *err)
{
    size_t len = strlen(name);
    size_t n = *who == '\0' ? 0 : strlen(who) + 3; /* length of the mark */
    bool is_marked =
        strcmp(name, who) == 0 || (n > 0 && len > n && strncmp(name + len - n, " (", 2) == 0 &&
                                   strncmp(name + len - n + 2, who, n - 3) == 0 && name[len - 1] == ')');

    if (!text_is_clean(name, size - 1) || len + (is_marked ? 0 : n) >= size) {
        return error_set(err, BELAY_INVALID,
                         "%s, with the name of the token, is not 1 to %zu bytes of UTF-8 without control "
                         "characters",
                         what, size - 1);
    }
    if (is_marked || n == 0) {
        (void)snprintf(out, size, "%s", name);
    } else {
        (void)snprintf(out, size, "%s (%s)", name, who);
    }
    return BELAY_OK;
}

enum belay_code name_change(const char *said, const char *who, const char *usual, char *out, size_t size,
                            struct belay_error *err)
{
    if (said != NULL) {
        return mark_name(said, who, "by", out, size, err);
    }
    (void)snprintf(out, size, "%s", usual);
    return BELAY_OK;
}

bool exchange_acts_for(const struct exchange *x, const char *who)
{
    return x->role == ROLE_ADMIN || strcmp(x->who, who) == 0;
}

bool exchange_has_share(const struct exchange *x, size_t n, size_t most)
{
    return x->who[0] == '\0' || x->server->tokens->n == 1 || n < most - most / 4;
}

bool exchange_may_see(const struct exchange *x, const char *key)
{
    return x->token == NULL || token_may_touch(x->token, key);
}

bool exchange_may_see_pattern(const struct exchange *x, const char *pattern)
{
    const struct token *token = x->token;
    bool yes = token == NULL || token->n_keys == 0;

    for (size_t i = 0; !yes && i < token->n_keys; i++) {
        yes = text_patterns_meet(token->keys[i], pattern);
    }
    return yes;
}

bool exchange_sees_all(struct exchange *x)
{
    if (x->token == NULL || x->token->n_keys == 0) {
        return true;
    }
    reply_problem(
        x, 403, "not_permitted",
        "'%s' is limited to some keys, and these numbers are over all keys: use a token without 'keys'",
        x->who);
    return false;
}

bool exchange_may_touch(struct exchange *x, const char *key)
{
    if (exchange_may_see(x, key)) {
        return true;
    }
    reply_problem(x, 403, "not_permitted", "'%s' may not touch the key '%.200s'", x->who, key);
    return false;
}

/* The same for x->key and all of x->keys. */
static bool may_touch_keys(struct exchange *x)
{
    const char *keys[BELAY_KEYS_MAX];
    size_t n = exchange_keys(x, keys);

    for (size_t i = 0; i < n; i++) {
        if (!exchange_may_touch(x, keys[i])) {
            return false;
        }
    }
    return true;
}

size_t exchange_keys(const struct exchange *x, const char *out_keys[BELAY_KEYS_MAX])
{
    out_keys[0] = x->key;
    for (size_t i = 0; x->keys != NULL && i < x->keys->n; i++) {
        out_keys[i] = x->keys->keys[i];
    }
    return x->keys == NULL ? 1 : x->keys->n;
}

void exchange_by(const struct exchange *x, char *out, size_t size)
{
    const struct http_peer *peer = x->request == NULL ? NULL : x->request->peer;

    if (x->who[0] != '\0' || peer == NULL) {
        (void)snprintf(out, size, "%s", x->who[0] == '\0' ? "server" : x->who);
    } else if (peer->is_unix) {
        (void)snprintf(out, size, "%s", peer->text);
    } else {
        const char *port = strrchr(peer->text, ':');

        (void)snprintf(out, size, "anonymous@%.*s",
                       (int)(port == NULL ? strlen(peer->text) : (size_t)(port - peer->text)), peer->text);
    }
}

/* ---- dispatch ---- */

static void refuse_path(struct exchange *x, const char *allow)
{
    if (*allow == '\0') {
        reply_problem(x, 404, "no_such_route", "no such path; GET /openapi.json lists all");
        return;
    }
    x->allow = allow;
    reply_problem(x, 405, "method_not_allowed", "this path takes %s", allow);
}

static bool take_names(struct exchange *x, const struct http_slice names[ROUTE_NAMES_MAX])
{
    char *const to[ROUTE_NAMES_MAX] = { x->key, x->more[0], x->more[1] };

    for (size_t i = 0; i < ROUTE_NAMES_MAX && names[i].data != NULL; i++) {
        if (names[i].len == 0 || !http_decode(names[i], to[i], sizeof x->key)) {
            reply_problem(x, 400, "invalid", "%s in the path is empty, over %d bytes, or not percent-encoded",
                          i == 0 ? "the key" : "a name", BELAY_KEY_MAX);
            return false;
        }
    }
    return true;
}

static size_t body_limit(const struct route *route, size_t usual)
{
    if (route_is_large(route)) {
        return ROUTE_LARGE_BODY;
    }
    return route->fields == NULL && route->body == NULL ? NO_BODY_MAX : usual;
}

/* Before the body is read: whether this client may send it. exchange_handle() then refuses what this does. */
bool exchange_admit(void *context, const struct http_request *request, size_t *max_body)
{
    struct server *server = context;
    const struct token *token = NULL;
    uint64_t session = 0;
    struct http_slice names[ROUTE_NAMES_MAX];
    char allow[ROUTE_ALLOW_SIZE];
    const struct route *route = route_find(request, names, allow);

    if (route == NULL) {
        return false;
    }
    *max_body = body_limit(route, *max_body);
    if (route->role == ROLE_NONE) {
        return true;
    }
    if (site_check(server, request) != SITE_FINE) {
        return false;
    }
    return server->tokens->n == 0 || request->peer->is_trusted ||
           (authenticate(server, request, &token, &session) == AUTH_OK && token->role >= route->role);
}

/* A client that goes from server to server names the store that it began with; "?": not known yet. */
static bool check_store_header(struct exchange *x)
{
    const char *wanted = http_header(x->request, STORE_HEADER);
    const char *id = x->server->identity.id;

    if (wanted == NULL || *id == '\0' || strcmp(wanted, "?") == 0 || strcmp(wanted, id) == 0) {
        return true;
    }
    reply_problem(
        x, 400, "invalid",
        "this server has another store, '%.100s', than the one before, '%.100s': a list of servers must "
        "name servers of one store",
        id, wanted);
    return false;
}

/* The body of a route that names a lock, and the key from it if it is not in the path. False, and answered: wrong. */
static bool read_body(struct exchange *x, struct body *body)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = body_read(body, x->route->fields, x->request->body, x->request->body_len, &err);

    if (code == BELAY_OK) {
        code = lock_key_read(x, body, &err);
    }
    if (code != BELAY_OK) {
        reply_request_error(x, &err);
        belay_error_release(&err);
        return false;
    }
    return may_touch_keys(x);
}

void exchange_run_handler(struct exchange *x)
{
    struct body body;

    assert(x->request != NULL && x->route != NULL && x->pending == NULL);
    if (!route_names_lock(x->route)) {
        x->route->handle(x);
        return;
    }
    if (read_body(x, &body)) {
        /* The handler may free x, so this cannot be taken back: see struct exchange. */
        x->body = &body; /* cppcheck-suppress autoVariables */
        x->route->handle(x);
    }
    body_release(&body);
}

/*
 * A server that was suspended finds requests of clients that have gone to another server long since. What such a client
 * was refused there must not be done now: a lock would have a holder that does not know of it. What it gives back is
 * still given back.
 */
static bool check_stale(struct exchange *x)
{
    const char *method = x->request->method;

    if (!x->request->is_stale || strcmp(method, "GET") == 0 || strcmp(method, "UNLOCK") == 0 ||
        x->route->handle == handle_release) {
        return true;
    }
    reply_problem(
        x, 503, "busy",
        "the server was suspended, and the client closed its connection before the request was read");
    return false;
}

void exchange_handle(void *context, struct http_request *request)
{
    struct exchange *x = exchange_new(context, request);
    struct http_slice names[ROUTE_NAMES_MAX];
    char allow[ROUTE_ALLOW_SIZE];

    if (x == NULL) {
        http_answer_error(request, 503, "no_memory", "no memory");
        return;
    }
    x->route = route_find(request, names, allow);
    if (x->route == NULL) {
        refuse_path(x, allow);
        return;
    }
    /* Public routes are open to pages of other sites too, and probes may add anything to the query. */
    if (x->route->role != ROLE_NONE && (!authorize(x) || !check_store_header(x) || !route_check_query(x))) {
        return;
    }
    if (request->is_unwanted) {
        /* exchange_admit() refused the body, but the checks pass now: do not act on half a request. */
        reply_problem(x, 503, "busy", "the request was not read; send it again");
        return;
    }
    if (check_stale(x) && take_names(x, names)) {
        exchange_run_handler(x);
    }
}
