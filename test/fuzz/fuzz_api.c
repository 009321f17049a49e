/*
 * The whole HTTP API under bytes of any kind: routes, URIs, queries, credentials
 * and bodies; locks, deployment state, Terraform's backend and applications, down
 * to an embedded store and a state store on files in memory.
 *
 * No answer may be malformed, none may be a 500, and no request may be left
 * waiting when its client has gone. The module that connects to other machines is
 * not loaded: no application is asked and no webhook called, whatever the input
 * says. FUZZ_SHOW=1 prints the answers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "server/api/holders.h"
#include "server/api/pending_acquire.h"
#include "server/core/job.h"
#include "server/core/routes.h"
#include "server/core/server.h"
#include "server/dashboard/dashboard_stream.h"
#include "server/events/event_stream.h"
#include "server/metrics/metrics.h"
#include "server/metrics/shared_db_counts.h"
#include "server/state/state_pool.h"
#include "server/webhooks/webhooks.h"

enum { CONTROL_BYTES = 2, QUIET_TURNS = 4, TURNS_MAX = 400, FRESH_AFTER = 300, OUT_SIZE = 1 << 22 };

static struct server *server;
static unsigned used;
static char out[OUT_SIZE];

void *__wrap_dlopen(const char *path, int flags);

/* Keep the network out of reach: addresses in the input are made up. */
void *__wrap_dlopen(const char *path, int flags)
{
    (void)path;
    (void)flags;
    return NULL;
}

static void before_sleep(void *context)
{
    (void)context;
    (void)belay_client_poll(server->client);
    webhooks_pump(server);
    event_stream_pump(server->events);
    server->log.out.len = 0;
}

static void add_tokens(void)
{
    static const char *const secrets[] = { "admin", "locker", "reader" };

    server->tokens = tokens_keep(calloc(1, sizeof *server->tokens));
    fuzz_must(server->tokens != NULL, "no memory");
    server->tokens->items = calloc(3, sizeof *server->tokens->items);
    server->tokens->n = 3;
    for (size_t i = 0; i < 3; i++) {
        struct token *token = &server->tokens->items[i];

        (void)snprintf(token->name, sizeof token->name, "%s", secrets[i]);
        token->role = (enum role)(ROLE_ADMIN - i);
        token_hash(secrets[i], strlen(secrets[i]), token->hash);
    }
}

static void open_stores(struct belay_error *err)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    char locks[400];
    char states[400];

    (void)snprintf(locks, sizeof locks, "sqlite:%s/belay.db", fuzz_directory());
    (void)snprintf(states, sizeof states, "file:%s/state", fuzz_directory());
    options.store_url = locks;
    options.config = server->config;
    fuzz_must(belay_client_open(&options, &server->client, err) == BELAY_OK &&
                  state_pool_open(server, states, locks, err) == BELAY_OK,
              err->text);
}

static struct pending_acquires pending_acquires;
static struct holders holders;
static struct webhooks webhooks;
static struct shared_db_counts shared_db_counts;

static void set_up(void)
{
    /* One after the other: a request is to find what the one before it has left. */
    struct http_options options = { .handle = exchange_handle, .limits = { .max_pipelined = 1 } };
    struct belay_error err = BELAY_ERROR_INIT;

    server = calloc(1, sizeof *server);
    fuzz_must(server != NULL, "no memory");
    server->pending_acquires = &pending_acquires;
    server->holders = &holders;
    server->webhooks = &webhooks;
    server->shared_db_counts = &shared_db_counts;
    log_begin(&server->log, true);
    server->webhooks->file.fd = -1; /* and room for none: settings.max is 0 */
    server->loop = loop_new();
    server->events = event_stream_new(server);
    server->dashboard = dashboard_stream_new(server);
    server->thread = pthread_self();
    options.context = server;
    fuzz_must(belay_config_load("/dev/null", &server->config, &err) == BELAY_OK &&
                  http_server_open(server->loop, &options, &server->http, &err) == BELAY_OK,
              err.text);
    open_stores(&err);
    server->is_store_local = true;
    server->workers = workers_new(server->loop, true);
    fuzz_must(server->workers != NULL, "no memory");
    server->metrics = metrics_new(server->config);
    server->route_counts = route_counts_new();
    fuzz_must(server->metrics != NULL && server->route_counts != NULL, "no memory");
    dashboard_stream_begin(server->dashboard);
    event_stream_begin(server->events);
    add_tokens();
    loop_before_sleep(server->loop, before_sleep, NULL);
}

static void tear_down(void)
{
    if (server == NULL) {
        return;
    }
    (void)belay_client_poll(server->client);
    http_server_close(server->http);
    for (enum work_class class = 0; class < WORK_CLASSES; class ++) {
        work_close(server->workers, class);
    }
    (void)belay_client_poll(server->client);
    delays_release(&server->delays);
    pending_acquires_release(server->pending_acquires);
    state_pool_close(server->states);
    belay_client_close(server->client);
    webhooks_close(server);
    belay_config_free(server->config);
    tokens_drop(server->tokens);
    event_stream_free(server->events);
    dashboard_stream_free(server->dashboard);
    metrics_free(server->metrics);
    free(server->route_counts);
    loop_free(server->loop);
    workers_free(server->workers);
    buf_release(&server->log.out);
    exchanges_release(server);
    free(server->openapi);
    free(server);
    fuzz_empty_directory();
    server = NULL;
    used = 0;
}

static size_t read_some(int fd, size_t at)
{
    ssize_t n;

    while (at < OUT_SIZE && (n = recv(fd, out + at, OUT_SIZE - at, MSG_DONTWAIT)) > 0) {
        at += (size_t)n;
    }
    return at;
}

/* Every status line is sound, and none reports a bug. */
static void check(size_t len)
{
    static const char server_error[] = "HTTP/1.1 500 Internal Server Error\r\n";

    if (getenv("FUZZ_SHOW") != NULL) {
        (void)fwrite(out, 1, len, stderr);
    }
    fuzz_must(len == 0 || (len >= 9 && memcmp(out, "HTTP/1.1 ", 9) == 0), "an answer does not begin as one");
    /* With the end of the line: an error may quote its start from the request, but a JSON text has no CR. */
    fuzz_must(memmem(out, len, server_error, strlen(server_error)) == NULL, "a 500");
}

static bool is_working(void)
{
    for (enum work_class class = 0; class < WORK_CLASSES; class ++) {
        if (work_first(server->workers, class) != NULL) {
            return true;
        }
    }
    return false;
}

static void turn_loop(void)
{
    fuzz_must(loop_turn(server->loop, is_working() ? 10 : 0), "the loop has ended");
}

/* Turn the loop until nothing more happens: no output, nothing left to send, no work pending. */
static size_t talk(int fd, const uint8_t *data, size_t len)
{
    size_t sent = 0;
    size_t got = 0;
    int quiet = 0;

    for (int turn = 0; turn < TURNS_MAX && quiet < QUIET_TURNS; turn++) {
        ssize_t n = sent < len ? send(fd, data + sent, len - sent, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        size_t before = got;

        sent = n < 0 ? len : sent + (size_t)n;
        turn_loop();
        got = read_some(fd, got);
        quiet = got == before && sent >= len && !is_working() ? quiet + 1 : 0;
    }
    return got;
}

static void fuzz_api(const uint8_t *data, size_t len)
{
    int pair[2];
    size_t got;

    if (len < CONTROL_BYTES || len > FUZZ_MAX_INPUT) {
        return;
    }
    if (used++ >= FRESH_AFTER) {
        tear_down();
    }
    if (server == NULL) {
        set_up();
    }
    fuzz_must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "no socket");
    fuzz_must(http_server_adopt(server->http, pair[1]), "it was not served");
    got = talk(pair[0], data + CONTROL_BYTES, len - CONTROL_BYTES);
    (void)close(pair[0]);
    for (int turn = 0; turn < QUIET_TURNS || (is_working() && turn < TURNS_MAX); turn++) {
        turn_loop();
    }
    fuzz_must(http_server_connections(server->http) == 0, "a connection is left");
    check(got);
}

const struct fuzz_target fuzz_targets[] = { { "api", fuzz_api, tear_down }, { 0 } };
