/* The other end of a connection: its address, or the process behind a unix socket. */
#include "server/http/http_internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

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

static bool is_loopback(const struct sockaddr_storage *address)
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
        peer->is_loopback = is_loopback(address);
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
