/* The server as a whole: options, opening, draining, closing. */
#include "server/http/http_internal.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"

void server_notice(struct http_server *server, const struct conn *conn, int status, const char *text)
{
    struct http_notice notice = { status, conn == NULL ? "" : conn->peer.text, text };

    if (server->notice != NULL) {
        server->notice(server->context, &notice);
    }
}

static void default_size(size_t *value, size_t fallback)
{
    if (*value == 0) {
        *value = fallback;
    }
}

static void default_ms(int64_t *value, int64_t fallback)
{
    if (*value <= 0) {
        *value = fallback;
    }
}

static void set_limits(struct http_limits *limits)
{
    default_size(&limits->max_body_bytes, HTTP_DEFAULT_MAX_BODY);
    default_size(&limits->max_bodies_bytes, HTTP_DEFAULT_MAX_BODIES);
    default_size(&limits->max_head_bytes, HTTP_DEFAULT_MAX_HEAD);
    default_size(&limits->max_target_bytes, HTTP_DEFAULT_MAX_TARGET);
    default_size(&limits->max_connections, HTTP_DEFAULT_MAX_CONNECTIONS);
    default_size(&limits->max_per_peer, HTTP_DEFAULT_MAX_PER_PEER);
    default_ms(&limits->evict_ms, HTTP_DEFAULT_EVICT_MS);
    default_size(&limits->max_pipelined, HTTP_DEFAULT_MAX_PIPELINED);
    default_size(&limits->max_stream_bytes, HTTP_DEFAULT_MAX_STREAM);
    default_size(&limits->max_unsent_bytes, HTTP_DEFAULT_MAX_UNSENT);
    default_ms(&limits->handshake_ms, HTTP_DEFAULT_HANDSHAKE_MS);
    default_ms(&limits->head_ms, HTTP_DEFAULT_HEAD_MS);
    default_ms(&limits->body_ms, HTTP_DEFAULT_BODY_MS);
    default_ms(&limits->idle_ms, HTTP_DEFAULT_IDLE_MS);
    default_ms(&limits->send_ms, HTTP_DEFAULT_SEND_MS);
    if (limits->max_head_bytes > HTTP_HARD_MAX_HEAD) {
        limits->max_head_bytes = HTTP_HARD_MAX_HEAD;
    }
    if (limits->max_body_bytes > MAX_ANSWER) {
        limits->max_body_bytes = MAX_ANSWER;
    }
}

static enum belay_code set_tls(struct http_server *server, const struct http_options *options,
                               struct belay_error *err)
{
    bool is_wanted = false;

    for (size_t i = 0; i < options->n_listen; i++) {
        is_wanted = is_wanted || options->listen[i].is_tls;
    }
    if (options->tls_certificate == NULL && !is_wanted) {
        return BELAY_OK;
    }
    if (options->tls_certificate == NULL || options->tls_key == NULL) {
        return error_set(err, BELAY_CONFIG, "TLS needs a certificate and a key");
    }
    server->tls_certificate = strdup(options->tls_certificate);
    server->tls_key = strdup(options->tls_key);
    if (server->tls_certificate == NULL || server->tls_key == NULL) {
        return error_no_memory(err);
    }
    return tls_load(server->tls_certificate, server->tls_key, &server->tls, err);
}

enum belay_code http_server_reload_tls(struct http_server *server, struct belay_error *err)
{
    SSL_CTX *tls = NULL;
    enum belay_code code;

    if (server->tls == NULL) {
        return BELAY_OK;
    }
    code = tls_load(server->tls_certificate, server->tls_key, &tls, err);
    if (code != BELAY_OK) {
        return code;
    }
    SSL_CTX_free(server->tls); /* connections have references of their own */
    server->tls = tls;
    return BELAY_OK;
}

static enum belay_code set_peers(struct http_server *server, const struct http_options *options,
                                 struct belay_error *err)
{
    size_t size = options->n_unlimited * sizeof *options->unlimited;

    (void)random_bytes(&server->peer_seed, sizeof server->peer_seed);
    if (options->n_unlimited == 0) {
        return BELAY_OK;
    }
    server->unlimited = malloc(size);
    if (server->unlimited == NULL) {
        return error_no_memory(err);
    }
    memcpy(server->unlimited, options->unlimited, size);
    server->n_unlimited = options->n_unlimited;
    return BELAY_OK;
}

static void tell_done(struct http_server *server)
{
    if (server->is_draining && !server->was_done_told && server->n_conns == 0) {
        server->was_done_told = true;
        loop_timer_cancel(server->loop, &server->drain_timer);
        if (server->done != NULL) {
            server->done(server->done_context);
        }
    }
}

static void run_drain_task(struct loop_task *task)
{
    tell_done(CONTAINER_OF(task, struct http_server, drain_task));
}

static void on_drain_timer(struct timer *timer)
{
    struct http_server *server = CONTAINER_OF(timer, struct http_server, drain_timer);

    if (server->n_conns > 0) {
        server_notice(server, NULL, 0, "connections that did not finish in time were closed");
    }
    while (server->conns != NULL) {
        conn_close(server->conns);
    }
}

void server_on_conn_closed(struct http_server *server)
{
    listeners_resume(server);
    if (server->is_draining && server->n_conns == 0) {
        loop_later(server->loop, &server->drain_task);
    }
}

void http_server_drain(struct http_server *server, int64_t limit_ms, loop_hook *done, void *context)
{
    if (server->is_draining) {
        return;
    }
    server->is_draining = true;
    server->done = done;
    server->done_context = context;
    listeners_close(server);
    for (struct conn *conn = server->conns; conn != NULL; conn = conn->next) {
        conn_later(conn);
    }
    if (!loop_timer_set(server->loop, &server->drain_timer, loop_now_ms(server->loop) + limit_ms)) {
        on_drain_timer(&server->drain_timer);
    }
    loop_later(server->loop, &server->drain_task);
}

enum belay_code http_server_open(struct loop *loop, const struct http_options *options,
                                 struct http_server **out_server, struct belay_error *err)
{
    struct http_server *server = calloc(1, sizeof *server);
    enum belay_code code;

    if (server == NULL) {
        return error_no_memory(err);
    }
    server->loop = loop;
    server->limits = options->limits;
    server->handle = options->handle;
    server->notice = options->notice;
    server->admit = options->admit;
    server->committed_lsn = options->committed_lsn;
    server->context = options->context;
    server->date_s = -1;
    server->drain_task.run = run_drain_task;
    server->drain_timer.fire = on_drain_timer;
    set_limits(&server->limits);
    code = set_peers(server, options, err);
    if (code == BELAY_OK) {
        code = set_tls(server, options, err);
    }
    if (code == BELAY_OK) {
        code = listeners_open(server, options, err);
    }
    if (code == BELAY_OK) {
        *out_server = server;
        server = NULL;
    }
    http_server_close(server);
    return code;
}

void http_server_close(struct http_server *server)
{
    if (server == NULL) {
        return;
    }
    server->is_draining = true;
    server->was_done_told = true;
    listeners_close(server);
    loop_timer_cancel(server->loop, &server->drain_timer);
    while (server->conns != NULL) {
        conn_close(server->conns);
    }
    loop_run_later(server->loop); /* frees the connections */
    requests_release(server);
    while (server->n_spare_buffers > 0) {
        buf_release(&server->spare_buffers[--server->n_spare_buffers]);
    }
    SSL_CTX_free(server->tls);
    free(server->unlimited);
    free(server->tls_certificate);
    free(server->tls_key);
    free(server->listeners);
    free(server);
}

bool http_server_adopt(struct http_server *server, int fd)
{
    struct sockaddr_storage address = { 0 };
    socklen_t len = sizeof address;
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        getpeername(fd, (struct sockaddr *)&address, &len) != 0) {
        close(fd);
        return false;
    }
    return conn_open(server, fd, &address, len, false) != NULL;
}

const char *http_server_address(const struct http_server *server, size_t index)
{
    return index < server->n_listeners ? server->listeners[index].address : NULL;
}

const char *http_server_given(const struct http_server *server, size_t index)
{
    return index < server->n_listeners ? server->listeners[index].given : NULL;
}

size_t http_server_connections(const struct http_server *server)
{
    return server->n_conns;
}
