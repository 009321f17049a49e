/*
 * The other end of a connection: its address, or the process behind a unix socket. How many connections each peer
 * has, and which are closed when there are too many: a peer is then an address, the /64 of an IPv6 address, or a user
 * of this machine.
 */
#include "server/http/http_internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/text.h"

enum {
    EVICT_BATCH = 64,       /* evicted at most in one pass over all connections */
    NO_IDLE_PAUSE_MS = 100, /* after a pass that found none */
    OTHERS_SHARE = 64,      /* one in so many is reserved for other peers than the largest */
    FEW = 8,                /* of fewer than these none is reserved */
    NETWORK_BYTES = 8,      /* of an IPv6 address; its owner chooses the rest */
};

/* ---- describing ---- */

/* 127.0.0.1 may come as ::ffff:127.0.0.1. */
static bool as_ipv4(const struct sockaddr_storage *address, struct in_addr *out_ip, unsigned *out_port)
{
    if (address->ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        *out_ip = in.sin_addr;
        *out_port = ntohs(in.sin_port);
        return true;
    }
    if (address->ss_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof in6);
        if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
            memcpy(out_ip, in6.sin6_addr.s6_addr + 12, sizeof *out_ip);
            *out_port = ntohs(in6.sin6_port);
            return true;
        }
    }
    return false;
}

void address_format(char *out, size_t size, const struct sockaddr_storage *address)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct in_addr ip;
    unsigned port;

    if (as_ipv4(address, &ip, &port)) {
        inet_ntop(AF_INET, &ip, text, sizeof text);
        (void)snprintf(out, size, "%s:%u", text, port);
    } else if (address->ss_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof in6);
        inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
        (void)snprintf(out, size, "[%s]:%u", text, (unsigned)ntohs(in6.sin6_port));
    } else if (address->ss_family == AF_UNIX) {
        struct sockaddr_un un;
        memcpy(&un, address, sizeof un);
        (void)snprintf(out, size, "unix:%.100s", un.sun_path);
    } else {
        (void)snprintf(out, size, "?");
    }
}

static bool is_loopback_address(const struct sockaddr_storage *address)
{
    struct in_addr ip;
    unsigned port;
    struct sockaddr_in6 in6;

    if (as_ipv4(address, &ip, &port)) {
        return ntohl(ip.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    if (address->ss_family != AF_INET6) {
        return false;
    }
    memcpy(&in6, address, sizeof in6);
    return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

void peer_describe(struct http_peer *peer, int fd, const struct sockaddr_storage *address, socklen_t len)
{
    struct ucred credentials;
    socklen_t len_found = sizeof credentials;

    peer->uid = (uid_t)-1;
    if (len < sizeof address->ss_family) {
        (void)snprintf(peer->text, sizeof peer->text, "?");
        return;
    }
    peer->is_unix = address->ss_family == AF_UNIX;
    if (!peer->is_unix) {
        peer->is_loopback = is_loopback_address(address);
        address_format(peer->text, sizeof peer->text, address);
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &len_found) == 0) {
        peer->uid = credentials.uid;
        peer->pid = credentials.pid;
    }
    (void)snprintf(peer->text, sizeof peer->text, "unix:uid=%lld,pid=%lld", (long long)(int)peer->uid,
                   (long long)peer->pid);
}

/* ---- counting ---- */

static void make_peer_key(const struct conn *conn, const struct sockaddr_storage *address,
                          struct peer_key *out)
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };

    memset(out, 0, sizeof *out);
    if (conn->peer.is_unix) {
        out->is_unix = true;
        memcpy(out->address.bytes, &conn->peer.uid, sizeof conn->peer.uid);
    } else if (address_of_socket((const struct sockaddr *)address, &out->address) &&
               memcmp(out->address.bytes, mapped, sizeof mapped) != 0) {
        memset(out->address.bytes + NETWORK_BYTES, 0, ADDRESS_BYTES - NETWORK_BYTES);
    }
}

static struct peer_group **group_bucket(struct http_server *server, const struct peer_key *key)
{
    uint64_t words[2];
    uint64_t hash;

    memcpy(words, key->address.bytes, sizeof words);
    hash = (words[0] ^ server->peer_seed) * 0x9e3779b97f4a7c15ULL;
    hash = (hash ^ hash >> 29 ^ words[1] ^ (key->is_unix ? 1 : 0)) * 0xbf58476d1ce4e5b9ULL;
    return &server->peers[(hash >> 40) % PEER_BUCKETS];
}

static struct peer_group *find_group(struct peer_group *group, const struct peer_key *key)
{
    while (group != NULL && (group->key.is_unix != key->is_unix ||
                             memcmp(group->key.address.bytes, key->address.bytes, ADDRESS_BYTES) != 0)) {
        group = group->next;
    }
    return group;
}

/* No peer may take all connections, not even a proxy that many clients share. */
static size_t limit_of(const struct http_server *server, const struct conn *conn,
                       const struct sockaddr_storage *address)
{
    size_t all = server->limits.max_connections;
    size_t others = all / OTHERS_SHARE > 0 ? all / OTHERS_SHARE : all / FEW > 0 ? 1 : 0;
    size_t most = all - others;
    struct address exact;

    if (conn->peer.is_unix || (address_of_socket((const struct sockaddr *)address, &exact) &&
                               address_is_within(&exact, server->unlimited, server->n_unlimited))) {
        return most;
    }
    return server->limits.max_per_peer < most ? server->limits.max_per_peer : most;
}

bool peer_enter(struct conn *conn, const struct sockaddr_storage *address)
{
    struct http_server *server = conn->server;
    struct peer_key key;
    struct peer_group **bucket;
    struct peer_group *group;

    make_peer_key(conn, address, &key);
    bucket = group_bucket(server, &key);
    group = find_group(*bucket, &key);
    if (group == NULL) {
        group = calloc(1, sizeof *group);
        if (group == NULL) {
            return false;
        }
        group->key = key;
        group->next = *bucket;
        *bucket = group;
    }
    group->n++;
    conn->group = group;
    conn->max_of_group = limit_of(server, conn, address);
    return true;
}

void peer_leave(struct conn *conn)
{
    struct peer_group *group = conn->group;
    struct peer_group **at;

    conn->group = NULL;
    if (group == NULL || --group->n > 0) {
        return;
    }
    at = group_bucket(conn->server, &group->key);
    while (*at != group) {
        at = &(*at)->next;
    }
    *at = group->next;
    free(group);
}

/* ---- making room ---- */

/* The time since which nothing is in progress on it; INT64_MAX: something is. */
static int64_t idle_since(const struct conn *conn)
{
    const struct http_limits *limits = &conn->server->limits;

    switch (conn->state) {
    case CONN_HANDSHAKE:
        return conn->deadline_ms - limits->handshake_ms;
    case CONN_LINGER:
        return conn->deadline_ms - LINGER_MS;
    case CONN_DEAD:
        return INT64_MAX;
    case CONN_OPEN:
        break;
    }
    if (conn->waiting_at != NULL || conn->deadline_ms == NO_DEADLINE ||
        (conn->first != NULL && (!conn->first->is_answered || conn->first != conn->last))) {
        return INT64_MAX;
    }
    if (conn->current != NULL) {
        return conn->current->is_head_done ? INT64_MAX : conn->current->pub.received_ms;
    }
    return conn_unsent(conn) > 0 ? conn->sent_ms : conn->deadline_ms - limits->idle_ms;
}

struct eviction {
    struct conn *conn;
    int64_t rank;
};

/* Clients without a token are closed first, and then those that have been idle the longest. */
static int64_t rank_of(const struct conn *conn, int64_t now_ms)
{
    int64_t since_ms = idle_since(conn);

    if (since_ms == INT64_MAX || now_ms - since_ms < conn->server->limits.evict_ms) {
        return INT64_MAX;
    }
    return conn->is_known ? since_ms + INT64_MAX / 2 : since_ms;
}

/* Insert `one`, and keep the first `max` in the order of their ranks. Returns the new count. */
static size_t keep_first(struct eviction *all, size_t n, size_t max, struct eviction one)
{
    size_t at = n < max ? n : max - 1;

    if (n == max && all[max - 1].rank <= one.rank) {
        return n;
    }
    while (at > 0 && all[at - 1].rank > one.rank) {
        all[at] = all[at - 1];
        at--;
    }
    all[at] = one;
    return n < max ? n + 1 : n;
}

/* Close some idle connections of this peer; NULL: of all. */
static void evict(struct http_server *server, const struct peer_group *group, size_t max)
{
    struct eviction evicted[EVICT_BATCH];
    int64_t now_ms = loop_now_ms(server->loop);
    size_t n = 0;

    for (struct conn *conn = server->conns; conn != NULL; conn = conn->next) {
        int64_t rank = group == NULL || conn->group == group ? rank_of(conn, now_ms) : INT64_MAX;

        if (rank != INT64_MAX) {
            n = keep_first(evicted, n, max, (struct eviction){ conn, rank });
        }
    }
    if (n == 0) {
        server->no_idle_until_ms = now_ms + NO_IDLE_PAUSE_MS;
        return;
    }
    if (now_ms >= server->evict_said_ms + 1000) {
        server->evict_said_ms = now_ms;
        server_notice(server, evicted[0].conn, 0,
                      "there are too many connections: those idle the longest are closed");
    }
    while (n > 0) {
        conn_close(evicted[--n].conn);
    }
}

const char *peer_make_room(struct conn *conn)
{
    struct http_server *server = conn->server;
    size_t max = server->limits.max_connections;
    size_t batch = conn->max_of_group / 16 + 1;
    bool may_look = loop_now_ms(server->loop) >= server->no_idle_until_ms;

    if (conn->group->n > conn->max_of_group && may_look) {
        evict(server, conn->group, batch < EVICT_BATCH ? batch : EVICT_BATCH);
    }
    if (conn->group->n > conn->max_of_group) {
        return "there are too many connections from this address";
    }
    if (server->n_conns > max && may_look) {
        batch = max / 16 + 1;
        evict(server, NULL, batch < EVICT_BATCH ? batch : EVICT_BATCH);
    }
    return server->n_conns > max ? "there are too many connections" : NULL;
}
