/* A connection: its bytes in and out, events, timeouts, the end. http_internal.h has the drawing. */
#include "server/http/http_internal.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

void conn_later(struct conn *conn)
{
    loop_later(conn->server->loop, &conn->task);
}

/*
 * The timer is moved only to fire earlier, and checks the deadline when it fires: so a
 * busy connection never touches the heap of timers.
 */
void conn_deadline(struct conn *conn, int64_t at_ms)
{
    conn->deadline_ms = at_ms;
    if (at_ms == NO_DEADLINE || (timer_is_set(&conn->timer) && conn->timer.at_ms <= at_ms)) {
        return;
    }
    if (!loop_timer_set(conn->server->loop, &conn->timer, at_ms)) {
        conn->is_broken = true;
        conn_later(conn);
    }
}

/* ---- bytes in and out, with or without TLS ---- */

static size_t out_unsent(const struct conn *conn)
{
    assert(conn->out_sent <= conn->out.len);
    return conn->out.len - conn->out_sent;
}

size_t conn_unsent(const struct conn *conn)
{
    const struct request *first = conn->first;
    bool is_shared = first != NULL && first->shared.data != NULL && first->ready.len == 0;

    assert(!is_shared || first->shared_sent <= first->shared.len);
    return out_unsent(conn) + (is_shared ? first->shared.len - first->shared_sent : 0);
}

static ssize_t io_recv(struct conn *conn, char *out, size_t size)
{
    ssize_t n;

    if (conn->ssl != NULL) {
        return tls_recv(conn, out, size);
    }
    do {
        n = recv(conn->watch.fd, out, size, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? IO_AGAIN : IO_FAILED;
    }
    return n;
}

static ssize_t io_send(struct conn *conn, const char *data, size_t len)
{
    ssize_t n;

    if (conn->ssl != NULL) {
        return tls_send(conn, data, len);
    }
    do {
        n = send(conn->watch.fd, data, len, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? IO_AGAIN : IO_FAILED;
    }
    return n;
}

/* The buffer for bytes to send. The server lends it: a connection with nothing to send has none. */
struct buf *conn_out(struct conn *conn)
{
    struct http_server *server = conn->server;

    if (conn->out.cap == 0 && server->n_spare_buffers > 0) {
        conn->out = server->spare_buffers[--server->n_spare_buffers];
    }
    if (conn_unsent(conn) == 0) {
        conn->sent_ms = loop_now_ms(server->loop);
    }
    return &conn->out;
}

/* A large answer is not copied; a small one is, so that its request keeps the memory for the next. */
void conn_add_out(struct conn *conn, struct buf *answer)
{
    struct buf *out;

    assert(answer->len > 0);
    if (conn->out.cap == 0 && answer->len > SPARE_TEXT) {
        conn->sent_ms = loop_now_ms(conn->server->loop);
        conn->out = *answer;
        *answer = (struct buf)BUF_INIT(MAX_ANSWER);
        return;
    }
    out = conn_out(conn);
    buf_add(out, answer->data, answer->len);
    answer->len = 0;
    conn->is_broken = conn->is_broken || out->failed;
}

static void end_output(struct conn *conn)
{
    struct http_server *server = conn->server;

    conn->out_sent = 0;
    conn->out.len = 0;
    if (conn->out.data == NULL) {
        return;
    }
    if (server->n_spare_buffers < SPARE_BUFFERS && conn->out.cap <= SPARE_OUT && !conn->out.failed) {
        server->spare_buffers[server->n_spare_buffers++] = conn->out;
    } else {
        buf_release(&conn->out);
    }
    conn->out = (struct buf)BUF_INIT(MAX_ANSWER);
}

/* Move what is unsent to the front once most is sent, or a stream's buffer would grow without end. */
static void compact(struct conn *conn)
{
    size_t left = out_unsent(conn);

    if (conn->out_sent < conn->out.len / 2) {
        return;
    }
    memmove(conn->out.data, conn->out.data + conn->out_sent, left);
    conn->out.len = left;
    conn->out_sent = 0;
}

/* The next bytes to send: those of `out`, then the shared body of the first request. */
static const char *next_unsent(const struct conn *conn, size_t *out_len)
{
    size_t len = out_unsent(conn);
    const char *data = conn->out.data + conn->out_sent;

    if (len == 0) {
        assert(conn->first != NULL && conn->first->shared.data != NULL);
        data = conn->first->shared.data + conn->first->shared_sent;
        len = conn->first->shared.len - conn->first->shared_sent;
    }
    assert(len > 0);
    *out_len = len < SEND_SIZE ? len : SEND_SIZE;
    return data;
}

static void count_sent(struct conn *conn, size_t n)
{
    struct request *first = conn->first;

    conn->sent_ms = loop_now_ms(conn->server->loop);
    if (out_unsent(conn) > 0) {
        conn->out_sent += n;
        assert(conn->out_sent <= conn->out.len);
        return;
    }
    first->shared_sent += n;
    assert(first->shared_sent <= first->shared.len);
    if (first->shared_sent == first->shared.len) {
        end_output(conn); /* all of it is sent */
        request_release_shared(first);
        answer_advance(conn);
    }
}

void conn_flush(struct conn *conn)
{
    size_t sent = 0;

    assert(conn->state == CONN_OPEN);
    while (conn_unsent(conn) > 0 && !conn->is_broken && sent < (size_t)SEND_SIZE * SENDS_PER_EVENT) {
        size_t len;
        const char *data = next_unsent(conn, &len);
        ssize_t n = io_send(conn, data, len);

        if (n == IO_AGAIN) {
            break;
        }
        if (n <= 0) {
            conn->is_broken = true;
            return;
        }
        sent += (size_t)n;
        count_sent(conn, (size_t)n);
    }
    if (out_unsent(conn) == 0) {
        end_output(conn);
    } else {
        compact(conn);
    }
}

/*
 * Whether what is to be read has been there for STALE_MS although nothing on this connection kept it waiting, and its
 * client has closed its sending side meanwhile. Not known of a unix socket.
 */
static bool input_is_stale(const struct conn *conn)
{
    struct tcp_info info = { 0 };
    socklen_t size = sizeof info;

    return conn->is_half_closed && conn->n_queued == 0 &&
           getsockopt(conn->watch.fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_last_data_recv > STALE_MS;
}

/* Read until there is no more, there is no room for more, or other connections come first. */
static void read_socket(struct conn *conn)
{
    struct http_server *server = conn->server;

    if (conn->stash.len == 0) {
        conn->is_input_stale = input_is_stale(conn);
    }
    for (int i = 0; i < READS_PER_EVENT && conn->stash.len == 0 && !conn->is_eof && conn_can_take(conn);
         i++) {
        ssize_t n = io_recv(conn, server->scratch, sizeof server->scratch);
        size_t taken;

        if (n == IO_AGAIN) {
            return;
        }
        if (n == IO_FAILED) {
            conn->is_broken = true;
            return;
        }
        if (n == 0) {
            conn->is_eof = true;
            conn->is_half_closed = true;
            return;
        }
        taken = conn_input(conn, server->scratch, (size_t)n);
        assert(taken <= (size_t)n);
        assert(conn->stash.len == 0 || taken == (size_t)n);
        if (taken < (size_t)n) {
            buf_add(&conn->stash, server->scratch + taken, (size_t)n - taken);
            conn->is_broken = conn->is_broken || conn->stash.failed;
        }
        /* A short read has emptied the socket: another recv() would return EAGAIN. */
        if (conn->ssl == NULL && (size_t)n < sizeof server->scratch && !conn->is_half_closed) {
            return;
        }
    }
    if (conn->ssl != NULL && tls_has_more(conn) && conn_can_take(conn)) {
        conn_later(conn); /* there is no event for what OpenSSL has read already */
    }
}

/* Lingering: input is discarded. */
static void discard_input(struct conn *conn)
{
    for (int i = 0; i < READS_PER_EVENT; i++) {
        ssize_t n = recv(conn->watch.fd, conn->server->scratch, sizeof conn->server->scratch, 0);
        if (n > 0) {
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            conn->is_broken = true;
        }
        return;
    }
}

static void update_interest(struct conn *conn)
{
    uint32_t wanted = conn->is_half_closed ? 0 : EPOLLRDHUP;

    if (conn->state != CONN_OPEN || (!conn->is_eof && conn->stash.len == 0 && conn_can_take(conn))) {
        wanted |= EPOLLIN;
    }
    if (conn_unsent(conn) > 0 || conn->tls_wants_out) {
        wanted |= EPOLLOUT;
    }
    if (wanted == conn->interest) {
        return;
    }
    conn->interest = wanted;
    if (!loop_watch_change(conn->server->loop, &conn->watch, wanted)) {
        conn->is_broken = true;
        conn_later(conn);
    }
}

/* ---- the life of a connection ---- */

static void update_deadline(struct conn *conn)
{
    const struct http_limits *limits = &conn->server->limits;
    const struct request *current = conn->current;
    int64_t at_ms = NO_DEADLINE;

    if (conn->state != CONN_OPEN) {
        return; /* set when that state began */
    }
    if (current != NULL) {
        at_ms = current->is_head_done
                    ? current->body_from_ms +
                          (current->max_body > limits->max_body_bytes ? HTTP_LARGE_BODY_MS : limits->body_ms)
                    : current->pub.received_ms + limits->head_ms;
    } else if (conn->first == NULL) {
        at_ms = loop_now_ms(conn->server->loop) + limits->idle_ms;
    }
    if (conn_unsent(conn) > 0 && conn->sent_ms + limits->send_ms < at_ms) {
        at_ms = conn->sent_ms + limits->send_ms;
    }
    conn_deadline(conn, at_ms);
}

static void unlink_conn(struct conn *conn)
{
    struct http_server *server = conn->server;

    assert(server->n_conns > 0 && (conn->previous != NULL || server->conns == conn));
    if (conn->previous != NULL) {
        conn->previous->next = conn->next;
    } else {
        server->conns = conn->next;
    }
    if (conn->next != NULL) {
        conn->next->previous = conn->previous;
    }
    server->n_conns--;
}

/* The transitions of the drawing in http_internal.h. */
static void conn_set_state(struct conn *conn, enum conn_state next)
{
    static const bool is_allowed[CONN_DEAD + 1][CONN_DEAD + 1] = {
        [CONN_HANDSHAKE] = { [CONN_OPEN] = true, [CONN_DEAD] = true },
        [CONN_OPEN] = { [CONN_LINGER] = true, [CONN_DEAD] = true },
        [CONN_LINGER] = { [CONN_DEAD] = true },
    };

    assert(is_allowed[conn->state][next]);
    conn->state = next;
}

void conn_close(struct conn *conn)
{
    int fd = conn->watch.fd;

    assert(!conn->is_busy); /* a handler is not on the stack */
    conn_set_state(conn, CONN_DEAD);
    loop_timer_cancel(conn->server->loop, &conn->timer);
    loop_unwatch(conn->server->loop, &conn->watch);
    SSL_free(conn->ssl);
    conn->ssl = NULL;
    close(fd);
    unlink_conn(conn);
    peer_leave(conn);
    answer_stop_waiting(conn);
    while (conn->first != NULL) {
        struct request *request = conn->first;
        if (!request->is_answered && request->notice != NULL) {
            request->notice(&request->pub, HTTP_GONE, request->notice_context);
        }
        conn->first = request->next;
        request_free(request);
    }
    request_free(conn->current);
    conn->current = NULL;
    conn_later(conn); /* events of this turn may still name it */
    server_on_conn_closed(conn->server);
}

static void linger(struct conn *conn)
{
    assert(conn->first == NULL && conn_unsent(conn) == 0);
    tls_close_notify(conn);
    shutdown(conn->watch.fd, SHUT_WR);
    conn_set_state(conn, CONN_LINGER);
    conn_deadline(conn, loop_now_ms(conn->server->loop) + LINGER_MS);
    update_interest(conn);
}

/* Whether all answers are sent, and there is no reason to keep the connection. */
static bool is_finished(const struct conn *conn)
{
    if (conn->first != NULL || conn_unsent(conn) > 0) {
        return false;
    }
    if (conn->is_eof && conn->stash.len > 0 && conn_can_take(conn)) {
        return false; /* other connections come first */
    }
    if (conn->is_last || conn->is_eof) {
        return true;
    }
    return conn->server->is_draining && conn->current == NULL && conn->stash.len == 0;
}

/* Do what has become possible or due. The connection may be DEAD afterwards, so not from an answer function. */
static void conn_settle(struct conn *conn)
{
    bool had_stash = conn->stash.len > 0;

    assert(conn->state != CONN_DEAD && !conn->is_busy);
    if (conn->state == CONN_OPEN && !conn->is_broken) {
        conn_input_stash(conn);
        if (conn->is_eof && conn->stash.len == 0 && conn->current != NULL && !conn->is_last) {
            conn_refuse(conn, 400, "the request ended early");
        }
        conn_flush(conn);
    }
    if (conn->is_broken || (conn->state == CONN_HANDSHAKE && conn->server->is_draining)) {
        conn_close(conn);
        return;
    }
    if (conn->state == CONN_OPEN && is_finished(conn)) {
        if (conn->must_linger && !conn->is_eof) {
            linger(conn);
            return;
        }
        tls_close_notify(conn);
        conn_close(conn);
        return;
    }
    /* There is room for the stash now, or for what OpenSSL has read already behind it. */
    if (had_stash && conn_can_take(conn) &&
        (conn->stash.len > 0 || (conn->ssl != NULL && tls_has_more(conn)))) {
        conn_later(conn);
    }
    if (conn_unsent(conn) > 0) {
        unsent_limit(conn->server);
    }
    update_interest(conn);
    update_deadline(conn);
}

static void run_task(struct loop_task *task)
{
    struct conn *conn = CONTAINER_OF(task, struct conn, task);

    if (conn->state == CONN_DEAD) {
        assert(conn->first == NULL && conn->current == NULL && conn->waiting_at == NULL);
        end_output(conn);
        buf_release(&conn->stash);
        free(conn);
        return;
    }
    if (conn->state == CONN_OPEN && conn->ssl != NULL && tls_has_more(conn)) {
        read_socket(conn);
    }
    conn_settle(conn);
}

/* True once requests can be read. */
static bool continue_handshake(struct conn *conn)
{
    int result = tls_handshake(conn);

    if (result == IO_FAILED) {
        conn->is_broken = true;
    }
    if (result != 1) {
        return false;
    }
    conn_set_state(conn, CONN_OPEN);
    return true;
}

/*
 * EPOLLHUP: both directions are closed, or the connection was reset. What the
 * client sent before is still read and carried out, if there is room for it.
 */
static void on_ready(struct loop_watch *watch, uint32_t events)
{
    struct conn *conn = CONTAINER_OF(watch, struct conn, watch);
    bool is_gone = (events & (EPOLLHUP | EPOLLERR)) != 0;

    assert(conn->state != CONN_DEAD); /* it is not watched any more */
    if (conn->state == CONN_LINGER) {
        discard_input(conn);
        conn->is_broken = conn->is_broken || is_gone;
        conn_settle(conn);
        return;
    }
    if (conn->state == CONN_HANDSHAKE && !continue_handshake(conn)) {
        conn->is_broken = conn->is_broken || is_gone;
        conn_settle(conn);
        return;
    }
    if ((events & EPOLLRDHUP) != 0) {
        conn->is_half_closed = true;
    }
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) != 0 || conn->tls_wants_out || conn->ssl != NULL) {
        conn->tls_wants_out = false;
        read_socket(conn);
    }
    if (conn->is_half_closed && !is_gone && !conn->is_broken) {
        conn_tell_half_closed(conn);
    }
    conn->is_broken = conn->is_broken || is_gone;
    conn_settle(conn);
}

static void time_out(struct conn *conn)
{
    const struct http_server *server = conn->server;
    bool is_unsent =
        conn_unsent(conn) > 0 && conn->sent_ms + server->limits.send_ms <= loop_now_ms(server->loop);

    if (conn->state == CONN_OPEN && !is_unsent && conn->current != NULL && !conn->is_last) {
        conn_refuse(conn, 408, "the request took too long to arrive");
    } else {
        if (is_unsent) {
            server_notice(conn->server, conn, 0,
                          "a client does not read its answer: the connection is closed");
        } else if (conn->state == CONN_HANDSHAKE) {
            server_notice(conn->server, conn, 0, "the TLS handshake took too long");
        }
        conn->is_broken = true;
    }
    conn_settle(conn);
}

static void on_deadline_timer(struct timer *timer)
{
    struct conn *conn = CONTAINER_OF(timer, struct conn, timer);

    assert(conn->state != CONN_DEAD);
    if (conn->deadline_ms == NO_DEADLINE) {
        return;
    }
    if (loop_now_ms(conn->server->loop) < conn->deadline_ms) {
        conn_deadline(conn, conn->deadline_ms);
        return;
    }
    time_out(conn);
}

/* Too many connections: answer once, so that the client knows why. */
static void refuse_conn(struct conn *conn, const char *why)
{
    if (conn->state == CONN_OPEN) {
        conn_refuse(conn, 503, why);
    } else {
        conn->is_broken = true;
    }
    conn_later(conn);
}

static void link_conn(struct conn *conn)
{
    struct http_server *server = conn->server;

    conn->next = server->conns;
    if (conn->next != NULL) {
        conn->next->previous = conn;
    }
    server->conns = conn;
    server->n_conns++;
}

struct conn *conn_open(struct http_server *server, int fd, const struct sockaddr_storage *address,
                       socklen_t address_len, bool is_tls)
{
    struct conn *conn = calloc(1, sizeof *conn);
    const char *why;

    if (conn == NULL) {
        close(fd);
        return NULL;
    }
    conn->server = server;
    conn->watch = (struct loop_watch){ fd, on_ready };
    conn->task.run = run_task;
    conn->timer.fire = on_deadline_timer;
    conn->deadline_ms = NO_DEADLINE;
    conn->state = is_tls ? CONN_HANDSHAKE : CONN_OPEN;
    conn->interest = EPOLLIN | EPOLLRDHUP;
    conn->stash = (struct buf)BUF_INIT(READ_SIZE);
    conn->out = (struct buf)BUF_INIT(MAX_ANSWER);
    peer_describe(&conn->peer, fd, address, address_len);
    if (!peer_enter(conn, address) || (is_tls && !tls_start(conn)) ||
        !loop_watch(server->loop, &conn->watch, conn->interest)) {
        peer_leave(conn);
        SSL_free(conn->ssl);
        close(fd);
        free(conn);
        return NULL;
    }
    link_conn(conn);
    conn_deadline(conn, loop_now_ms(server->loop) +
                            (is_tls ? server->limits.handshake_ms : server->limits.idle_ms));
    why = peer_make_room(conn);
    if (why != NULL) {
        refuse_conn(conn, why);
    }
    return conn;
}
