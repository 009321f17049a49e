/* Listening sockets, opened here or inherited, and the connections that they accept. */
#include "server/http/http_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/address.h"
#include "base/error.h"
#include "base/text.h"

#define UNIX_PREFIX "unix:"

enum {
    MAX_PER_NAME = 4, /* addresses that one host name may stand for, such as 127.0.0.1 and ::1 */
    BACKLOG = 4096,
    /* A client whose machine died while it waited is noticed after about a minute. */
    KEEPALIVE_IDLE_S = 30,
    KEEPALIVE_INTERVAL_S = 10,
    KEEPALIVE_COUNT = 3,
};

static void pause_accepting(struct http_server *server, bool is_paused)
{
    server->is_accept_paused = is_paused;
    for (size_t i = 0; i < server->n_listeners; i++) {
        if (server->listeners[i].watch.fd >= 0) {
            loop_watch_change(server->loop, &server->listeners[i].watch, is_paused ? 0 : EPOLLIN);
        }
    }
}

void listeners_resume(struct http_server *server)
{
    if (server->is_accept_paused && server->n_conns < server->limits.max_connections) {
        loop_timer_cancel(server->loop, &server->accept_timer);
        pause_accepting(server, false);
    }
}

static void on_accept_timer(struct timer *timer)
{
    struct http_server *server = CONTAINER_OF(timer, struct http_server, accept_timer);

    if (server->is_accept_paused && server->n_conns < server->limits.max_connections + REFUSED_ROOM) {
        pause_accepting(server, false);
    }
}

/* New connections wait in the kernel's queue meanwhile; the existing ones go on. */
static void pause_for_a_moment(struct http_server *server, const char *why)
{
    server_notice(server, NULL, 0, why);
    pause_accepting(server, true);
    loop_timer_set(server->loop, &server->accept_timer, loop_now_ms(server->loop) + ACCEPT_PAUSE_MS);
}

static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void on_connection(struct loop_watch *watch, uint32_t events)
{
    struct listener *listener = CONTAINER_OF(watch, struct listener, watch);
    struct http_server *server = listener->server;

    (void)events;
    for (int i = 0; i < ACCEPTS_PER_EVENT && watch->fd >= 0; i++) {
        struct sockaddr_storage address = { 0 };
        socklen_t len = sizeof address;
        int fd;

        if (server->n_conns >= server->limits.max_connections + REFUSED_ROOM) {
            pause_for_a_moment(server, "there are too many connections: new ones wait");
            return;
        }
        fd = accept4(watch->fd, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && is_shortage(errno)) {
            pause_for_a_moment(server, "no descriptors or memory left: new connections wait");
            return;
        }
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (fd >= 0) {
            struct conn *conn = conn_open(server, fd, &address, len, listener->is_tls);

            if (conn != NULL) {
                conn->peer.is_trusted = listener->is_trusted;
            }
        }
    }
}

static void set_number(int fd, int level, int name, int value)
{
    /* A unix socket refuses the options of TCP, which is harmless. */
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

/* Accepted sockets inherit these. */
static void set_options(int fd)
{
    set_number(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_number(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_number(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_number(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_number(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
}

static enum belay_code cannot_listen(struct belay_error *err, const char *address, int error)
{
    return error_set(err, BELAY_UNREACHABLE, "cannot listen on '%s': %s", address, strerror(error));
}

/* Remove a socket that no process listens on any more. */
static void remove_stale(const struct sockaddr_un *un)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct stat st;

    if (fd < 0) {
        return;
    }
    if (connect(fd, (const struct sockaddr *)un, sizeof *un) != 0 && errno == ECONNREFUSED &&
        lstat(un->sun_path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        unlink(un->sun_path);
    }
    close(fd);
}

/* Takes over the descriptor and, if there is one, the path, also when it fails. */
static enum belay_code add_listener(struct http_server *server, int fd, const struct http_listen *wanted,
                                    char *unix_path, struct belay_error *err)
{
    struct listener *listener = &server->listeners[server->n_listeners++];
    struct sockaddr_storage bound = { 0 };
    socklen_t len = sizeof bound;

    *listener = (struct listener){ .watch = { fd, on_connection }, .server = server };
    listener->given = wanted->address;
    listener->is_tls = wanted->is_tls;
    listener->is_trusted = wanted->is_trusted;
    listener->unix_path = unix_path;
    set_options(fd);
    if (unix_path != NULL) {
        (void)snprintf(listener->address, sizeof listener->address, "unix:%.100s", unix_path);
    } else if (getsockname(fd, (struct sockaddr *)&bound, &len) == 0) {
        address_format(listener->address, sizeof listener->address, &bound);
    }
    if (!loop_watch(server->loop, &listener->watch, EPOLLIN)) {
        return cannot_listen(err, listener->address, errno);
    }
    return BELAY_OK;
}

/* The listening socket, or -1 with errno set. */
static int listen_unix(const struct sockaddr_un *un, mode_t mode)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int saved;

    if (fd < 0) {
        return -1;
    }
    if (bind(fd, (const struct sockaddr *)un, sizeof *un) == 0) {
        /* No client can connect before listen(), so the mode is set in time. */
        if (chmod(un->sun_path, mode == 0 ? S_IRUSR | S_IWUSR : mode) == 0 && listen(fd, BACKLOG) == 0) {
            return fd;
        }
        saved = errno;
        unlink(un->sun_path);
        errno = saved;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static enum belay_code open_unix(struct http_server *server, const struct http_listen *wanted,
                                 struct belay_error *err)
{
    const char *path = wanted->address + strlen(UNIX_PREFIX);
    struct sockaddr_un un;
    int folder = -1;
    char *copy;
    int saved;
    int fd;

    if (!unix_address(path, &un, &folder)) {
        return error_set(err, errno == EINVAL || errno == ENAMETOOLONG ? BELAY_INVALID : BELAY_UNREACHABLE,
                         "the path of the socket '%s' cannot be used: %s", path, strerror(errno));
    }
    copy = strdup(path);
    fd = -1;
    if (copy != NULL) {
        remove_stale(&un);
        fd = listen_unix(&un, wanted->unix_mode);
    }
    saved = errno;
    if (folder >= 0) {
        (void)close(folder);
    }
    if (fd < 0) {
        free(copy);
        return copy == NULL ? error_no_memory(err) : cannot_listen(err, wanted->address, saved);
    }
    return add_listener(server, fd, wanted, copy, err);
}

static int listen_tcp(const struct addrinfo *info)
{
    int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, info->ai_protocol);
    int saved;

    if (fd < 0) {
        return -1;
    }
    set_number(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (info->ai_family == AF_INET6) {
        set_number(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    }
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
        return fd;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* "host:port", "[v6]:port" or ":port" for all addresses. */
static bool split_listen_address(const char *address, char *host, size_t host_size, const char **out_port)
{
    const char *colon = strrchr(address, ':');
    unsigned port;
    size_t len;

    if (colon == NULL || !address_parse_port(colon + 1, &port)) {
        return false;
    }
    len = (size_t)(colon - address);
    if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    } else if (memchr(address, ':', len) != NULL) {
        return false; /* an IPv6 address needs its brackets */
    }
    if (len >= host_size) {
        return false;
    }
    memcpy(host, address, len);
    host[len] = '\0';
    *out_port = colon + 1;
    return true;
}

/* A host name may have addresses of a family that this machine lacks: skip those. */
static bool is_missing(int error)
{
    return error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

static enum belay_code listen_on_addresses(struct http_server *server, const struct http_listen *wanted,
                                           const struct addrinfo *found, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    int missing = 0;
    int opened = 0;

    for (const struct addrinfo *info = found; info != NULL && opened < MAX_PER_NAME; info = info->ai_next) {
        int fd = listen_tcp(info);
        if (fd < 0 && is_missing(errno)) {
            missing = errno;
            continue;
        }
        if (fd < 0) {
            return cannot_listen(err, wanted->address, errno);
        }
        opened++;
        code = add_listener(server, fd, wanted, NULL, err);
        if (code != BELAY_OK) {
            return code;
        }
    }
    return opened > 0 ? BELAY_OK : cannot_listen(err, wanted->address, missing);
}

static enum belay_code open_tcp(struct http_server *server, const struct http_listen *wanted,
                                struct belay_error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    const char *port = NULL;
    char host[256];
    enum belay_code code;
    int problem;

    if (!split_listen_address(wanted->address, host, sizeof host, &port)) {
        return error_set(
            err, BELAY_INVALID,
            "'%s' is not an address to listen on: use HOST:PORT, [IPV6]:PORT or unix:PATH; a port is at "
            "most 65535",
            wanted->address);
    }
    problem = getaddrinfo(*host == '\0' ? NULL : host, port, &hints, &found);
    if (problem != 0) {
        return error_set(err, BELAY_INVALID, "cannot listen on '%s': %s", wanted->address,
                         gai_strerror(problem));
    }
    code = listen_on_addresses(server, wanted, found, err);
    freeaddrinfo(found);
    return code;
}

static enum belay_code take_inherited(struct http_server *server, const struct http_listen *wanted,
                                      struct belay_error *err)
{
    int is_listening = 0;
    socklen_t len = sizeof is_listening;
    int flags = fcntl(wanted->fd, F_GETFL);

    if (flags < 0 || getsockopt(wanted->fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) != 0 ||
        !is_listening) {
        return error_set(err, BELAY_INVALID, "descriptor %d is not a listening socket", wanted->fd);
    }
    if (fcntl(wanted->fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(wanted->fd, F_SETFD, FD_CLOEXEC) != 0) {
        return error_set(err, BELAY_UNREACHABLE, "descriptor %d: %s", wanted->fd, strerror(errno));
    }
    return add_listener(server, wanted->fd, wanted, NULL, err);
}

enum belay_code listeners_open(struct http_server *server, const struct http_options *options,
                               struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    server->accept_timer.fire = on_accept_timer;
    /* Not enlarged later: the loop keeps pointers into it. */
    server->listeners = calloc(options->n_listen * MAX_PER_NAME + 1, sizeof *server->listeners);
    if (server->listeners == NULL) {
        return error_no_memory(err);
    }
    for (size_t i = 0; i < options->n_listen && code == BELAY_OK; i++) {
        const struct http_listen *wanted = &options->listen[i];
        if (wanted->address == NULL) {
            code = take_inherited(server, wanted, err);
        } else if (text_has_prefix(wanted->address, UNIX_PREFIX)) {
            code = open_unix(server, wanted, err);
        } else {
            code = open_tcp(server, wanted, err);
        }
    }
    return code;
}

void listeners_close(struct http_server *server)
{
    loop_timer_cancel(server->loop, &server->accept_timer);
    server->is_accept_paused = false;
    for (size_t i = 0; i < server->n_listeners; i++) {
        struct listener *listener = &server->listeners[i];
        int fd = listener->watch.fd;

        if (fd >= 0) {
            loop_unwatch(server->loop, &listener->watch);
            close(fd);
        }
        if (listener->unix_path != NULL) {
            unlink(listener->unix_path);
            free(listener->unix_path);
            listener->unix_path = NULL;
        }
    }
}
