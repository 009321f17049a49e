/* Answers that wait until they may leave: held, then sealed, then free to go, then let out. */
#include "server/http/http_internal.h"

#include <assert.h>

/* One that was sealed and has more to say now waits, with all of it, for those that are held now. */
void conn_hold(struct conn *conn)
{
    struct http_server *server = conn->server;

    if (conn->held_back != NULL && !conn->is_sealed) {
        return;
    }
    if (conn->held_back == NULL) {
        conn->held_ms = loop_now_ms(server->loop);
    }
    conn->is_late = conn->is_sealed;
    conn_unhold(conn);
    conn->next_held = server->held;
    conn->held_back = &server->held;
    if (server->held != NULL) {
        server->held->held_back = &conn->next_held;
    }
    server->held = conn;
    conn->is_counted = conn->first == NULL || !conn->first->is_streaming;
    server->n_held += conn->is_counted ? 1 : 0;
}

void conn_unhold(struct conn *conn)
{
    if (conn->held_back == NULL) {
        return;
    }
    *conn->held_back = conn->next_held;
    if (conn->next_held != NULL) {
        conn->next_held->held_back = conn->held_back;
    }
    conn->held_back = NULL;
    conn->server->n_held -= conn->is_counted && !conn->is_sealed ? 1 : 0;
    conn->is_sealed = false;
}

void http_server_hold(struct http_server *server)
{
    server->is_holding = true;
}

size_t http_server_held(const struct http_server *server)
{
    return server->n_held;
}

bool http_server_has_held(const struct http_server *server)
{
    return server->held != NULL;
}

void http_server_seal(struct http_server *server)
{
    assert(server->sealed == NULL);
    if (server->held == NULL) {
        return;
    }
    for (struct conn *conn = server->held; conn != NULL; conn = conn->next_held) {
        conn->is_sealed = true;
        conn->has_added = false;
    }
    server->sealed = server->held;
    server->sealed->held_back = &server->sealed;
    server->held = NULL;
    server->n_held = 0;
}

void http_server_unseal(struct http_server *server)
{
    assert(server->free == NULL);
    if (server->sealed == NULL) {
        return;
    }
    server->free = server->sealed;
    server->free->held_back = &server->free;
    server->sealed = NULL;
}

void http_server_let_out(struct http_server *server)
{
    while (server->free != NULL) {
        struct conn *conn = server->free;

        conn_unhold(conn);
        conn->is_late = false;
        conn->is_let_out = true;
        conn->sent_ms += loop_now_ms(server->loop) - conn->held_ms; /* it was we who kept it waiting */
        conn_flush(conn);
        if (conn->held_back == NULL) {
            answer_sent(conn);
        }
    }
}
