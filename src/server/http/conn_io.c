/* A connection's bytes in and out, with or without TLS. */
#include "server/http/http_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static size_t out_unsent(const struct conn *conn)
{
    return conn->out.len - conn->out_sent;
}

size_t conn_unsent(const struct conn *conn)
{
    const struct request *first = conn->first;
    bool is_shared = first != NULL && first->shared.data != NULL && first->ready.len == 0;

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

/* What is to be sent. Its memory is shared: a connection with nothing to send has none. */
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

void conn_out_done(struct conn *conn)
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

/* What is to be sent next: `out`, then the shared body of the first request. */
static const char *next_unsent(const struct conn *conn, size_t *out_len)
{
    size_t len = out_unsent(conn);
    const char *data = conn->out.data + conn->out_sent;

    if (len == 0) {
        data = conn->first->shared.data + conn->first->shared_sent;
        len = conn->first->shared.len - conn->first->shared_sent;
    }
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
        conn_out_done(conn); /* all of it is sent */
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
        conn_out_done(conn);
    } else {
        compact(conn);
    }
}

/* Read until there is no more, there is no room for more, or other connections come first. */
void conn_read(struct conn *conn)
{
    struct http_server *server = conn->server;

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
void conn_discard(struct conn *conn)
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

void conn_update_interest(struct conn *conn)
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
