/*
 * The output gate: an answer is sent only after every commit that it may reflect is durable.
 *
 *     answer made --> request.ready, with request.lsn = what is committed now
 *                          |
 *          its turn (`first`), and lsn <= durable_lsn     (answer_advance())
 *                          v
 *                      conn.out --> socket
 *
 * A connection is in http_server.waiting while its next answer waits for its LSN only.
 */
#include "server/http/http_internal.h"

#include <assert.h>

void gate_leave(struct conn *conn)
{
    if (conn->waiting_at == NULL) {
        return;
    }
    *conn->waiting_at = conn->next_waiting;
    if (conn->next_waiting != NULL) {
        conn->next_waiting->waiting_at = conn->waiting_at;
    }
    conn->waiting_at = NULL;
}

static void gate_enter(struct conn *conn)
{
    struct http_server *server = conn->server;

    assert(conn->state == CONN_OPEN);
    if (conn->waiting_at != NULL) {
        return;
    }
    conn->next_waiting = server->waiting;
    conn->waiting_at = &server->waiting;
    if (server->waiting != NULL) {
        server->waiting->waiting_at = &conn->next_waiting;
    }
    server->waiting = conn;
}

void gate_update(struct conn *conn)
{
    if (conn->first != NULL && !answer_is_durable(conn->first)) {
        gate_enter(conn);
    } else {
        gate_leave(conn);
    }
}

void http_server_set_durable(struct http_server *server, uint64_t lsn)
{
    struct conn *next;

    assert(lsn >= server->durable_lsn);
    server->durable_lsn = lsn;
    for (struct conn *conn = server->waiting; conn != NULL; conn = next) {
        next = conn->next_waiting;
        assert(conn->state == CONN_OPEN && conn->first != NULL);
        if (answer_is_durable(conn->first)) {
            answer_advance(conn);
            conn_flush(conn);
            answer_sent(conn);
        }
    }
}

bool http_server_is_waiting(const struct http_server *server)
{
    return server->waiting != NULL;
}

size_t http_server_count_waiting(const struct http_server *server, uint64_t lsn, size_t limit)
{
    size_t n = 0;

    for (const struct conn *conn = server->waiting; conn != NULL && n < limit; conn = conn->next_waiting) {
        n += conn->first->lsn > lsn && !conn->first->is_streaming ? 1 : 0;
    }
    return n;
}
