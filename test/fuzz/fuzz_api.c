/*
 * The whole of the HTTP API under bytes of any kind: routes, URIs, queries,
 * credentials and JSON bodies, down to a store in memory.
 *
 * No answer may be malformed, none may be a 500, and nobody may be left waiting
 * when the client has gone. Webhooks are checked, but not called. fuzz_main.c
 * makes the inputs; of their first two bytes nothing is used here.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz_http.h"
#include "server/feed.h"
#include "server/jobs.h"
#include "server/live.h"
#include "server/metrics.h"
#include "server/server.h"
#include "support/memstore.h"

enum { CONTROL_BYTES = 2, QUIET_TURNS = 4, TURNS_MAX = 400, FRESH_AFTER = 300, OUT_SIZE = 1 << 22 };

static struct server *server;
static struct memstore_data *data_of_store;
static unsigned used;
static char out[OUT_SIZE];

static void must(bool holds, const char *what)
{
    if (!holds) {
        (void)fprintf(stderr, "fuzz_api: %s\n", what);
        abort();
    }
}

static void before_sleep(void *context)
{
    (void)context;
    (void)belay_client_turn(server->client);
    hooks_pump(server);
    feed_pump(server->feed);
    server->log.out.len = 0;
}

static void add_tokens(void)
{
    static const char *const secrets[] = { "admin", "locker", "reader" };

    server->tokens.items = calloc(3, sizeof *server->tokens.items);
    server->tokens.n = 3;
    for (size_t i = 0; i < 3; i++) {
        struct token *token = &server->tokens.items[i];

        (void)snprintf(token->name, sizeof token->name, "%s", secrets[i]);
        token->role = (enum role)(ROLE_ADMIN - i);
        token_hash(secrets[i], strlen(secrets[i]), token->hash);
    }
}

static void set_up(void)
{
    struct http_options options = { .handle = exchange_handle };
    struct belay_error err = BELAY_ERROR_INIT;

    server = calloc(1, sizeof *server);
    data_of_store = memstore_data_new(NULL, NULL, NULL);
    must(server != NULL && data_of_store != NULL, "no memory");
    log_begin(&server->log, true);
    server->hooks.file.fd = -1; /* and room for none: settings.max is 0 */
    server->loop = loop_new();
    server->feed = feed_new(server);
    server->live = live_new(server);
    server->jobs = calloc(1, sizeof *server->jobs);
    server->thread = pthread_self();
    options.context = server;
    must(belay_client_open_store(memstore_open(data_of_store), NULL, &server->client, &err) == BELAY_OK &&
             belay_config_load("/dev/null", &server->config, &err) == BELAY_OK &&
             http_server_open(server->loop, &options, &server->http, &err) == BELAY_OK,
         err.text);
    server->metrics = metrics_new(server->config);
    live_begin(server->live);
    add_tokens();
    loop_before_sleep(server->loop, before_sleep, NULL);
}

void fuzz_tear_down(void)
{
    if (server == NULL) {
        return;
    }
    (void)belay_client_turn(server->client);
    http_server_close(server->http);
    (void)belay_client_turn(server->client);
    delays_release(&server->delays);
    waits_release(&server->waits);
    belay_client_close(server->client);
    hooks_close(server);
    belay_config_free(server->config);
    tokens_release(&server->tokens);
    feed_free(server->feed);
    live_free(server->live);
    metrics_free(server->metrics);
    free(server->jobs);
    loop_free(server->loop);
    buf_release(&server->log.out);
    exchanges_release(server);
    free(server->openapi);
    free(server);
    memstore_data_free(data_of_store);
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

/* Every status line that is there is sound, and none says that we have a bug. */
static void check(size_t len)
{
    must(len == 0 || (len >= 9 && memcmp(out, "HTTP/1.1 ", 9) == 0), "an answer does not begin as one");
    must(memmem(out, len, "HTTP/1.1 500", 12) == NULL, "a 500");
}

int fuzz_http(const uint8_t *data, size_t len)
{
    int pair[2];
    size_t sent = CONTROL_BYTES;
    size_t got = 0;
    int quiet = 0;

    if (len < CONTROL_BYTES || len > FUZZ_MAX_INPUT) {
        return 0;
    }
    if (used++ >= FRESH_AFTER) {
        fuzz_tear_down();
    }
    if (server == NULL) {
        set_up();
    }
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "no socket");
    must(http_server_adopt(server->http, pair[1]), "it was not served");
    for (int turn = 0; turn < TURNS_MAX && quiet < QUIET_TURNS; turn++) {
        ssize_t n = sent < len ? send(pair[0], data + sent, len - sent, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        size_t before = got;

        sent = n < 0 ? len : sent + (size_t)n;
        must(loop_turn(server->loop, 0), "the loop has ended");
        got = read_some(pair[0], got);
        quiet = got == before && sent >= len ? quiet + 1 : 0;
    }
    (void)close(pair[0]);
    for (int turn = 0; turn < QUIET_TURNS; turn++) {
        must(loop_turn(server->loop, 0), "the loop has ended");
    }
    must(http_server_connections(server->http) == 0, "a connection is left");
    check(got);
    return 0;
}
