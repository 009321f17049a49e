/*
 * Answers stay in memory until their clients have read them. A client may ask for a large one on each of its
 * connections and read none, or a byte now and then. So if all answers together take more than max_unsent_bytes, some
 * connections are closed: first those whose clients have read nothing for the longest time. Small answers stay.
 */
#include "server/http/http_internal.h"

#include <assert.h>

enum {
    UNSENT_SMALL = 64 << 10,
    UNSENT_BATCH = 64,   /* closed at most in one pass over all connections */
    UNSENT_PAUSE_MS = 50 /* between two passes */
};

/* The memory of the answers of a connection. A body that other answers share, such as a cached state, is not theirs. */
static size_t unsent_memory(const struct conn *conn)
{
    size_t bytes = conn->out.cap;

    for (const struct request *request = conn->first; request != NULL; request = request->next) {
        bytes += request->ready.len + (request->shared.is_own ? request->shared.len : 0);
    }
    return bytes;
}

/* Insert `one`, and keep the first UNSENT_BATCH in the order of their last reading. Returns the new count. */
static size_t keep_slowest(struct conn *slowest[UNSENT_BATCH], size_t n, struct conn *one)
{
    size_t at = n < UNSENT_BATCH ? n : UNSENT_BATCH - 1;

    if (n == UNSENT_BATCH && slowest[at]->sent_ms <= one->sent_ms) {
        return n;
    }
    while (at > 0 && slowest[at - 1]->sent_ms > one->sent_ms) {
        slowest[at] = slowest[at - 1];
        at--;
    }
    slowest[at] = one;
    return n < UNSENT_BATCH ? n + 1 : n;
}

static void close_slowest(struct http_server *server, struct conn *slowest[UNSENT_BATCH], size_t n,
                          size_t bytes)
{
    for (size_t i = 0; i < n && bytes > server->limits.max_unsent_bytes; i++) {
        size_t own = unsent_memory(slowest[i]);

        assert(slowest[i]->state == CONN_OPEN && bytes >= own);
        server_notice(server, slowest[i], 0,
                      "unread answers take too much memory: the connection of a slow reader is closed");
        slowest[i]->is_broken = true;
        conn_later(slowest[i]);
        bytes -= own;
    }
}

void unsent_limit(struct http_server *server)
{
    struct conn *slowest[UNSENT_BATCH];
    int64_t now_ms = loop_now_ms(server->loop);
    size_t bytes = 0;
    size_t n = 0;

    if (now_ms < server->unsent_look_ms) {
        return;
    }
    server->unsent_look_ms = now_ms + UNSENT_PAUSE_MS;
    for (struct conn *conn = server->conns; conn != NULL; conn = conn->next) {
        size_t own = conn->state == CONN_OPEN && !conn->is_broken ? unsent_memory(conn) : 0;

        bytes += own;
        if (own >= UNSENT_SMALL && conn_unsent(conn) > 0) {
            n = keep_slowest(slowest, n, conn);
        }
    }
    close_slowest(server, slowest, n, bytes);
}
