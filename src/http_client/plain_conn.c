#include "http_client/plain_conn.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "base/clock.h"

enum { ASK_MS = 1000 };

/* Waits for `events`. Asks once a second, and when wake_fd is readable, whether the request should stop. */
static enum plain_io wait_until_ready(int fd, short events, const struct plain_limit *limit)
{
    const struct http_client_request *request = limit->request;

    assert(fd >= 0 && (events == POLLIN || events == POLLOUT));
    for (;;) {
        struct pollfd fds[2] = { { .fd = fd, .events = events },
                                 { .fd = request->wake_fd > 0 ? request->wake_fd : -1, .events = POLLIN } };
        int64_t left_ms = limit->until_ms - clock_boot_ms();
        int n;

        if (left_ms <= 0) {
            return PLAIN_TIMEOUT;
        }
        n = poll(fds, 2, left_ms < ASK_MS ? (int)left_ms : ASK_MS);
        if (n < 0 && errno != EINTR) {
            return PLAIN_FAILED;
        }
        if (http_request_should_stop(request)) {
            return PLAIN_STOPPED;
        }
        if (n > 0 && fds[0].revents != 0) {
            return PLAIN_DONE;
        }
    }
}

static enum plain_io connect_socket(const struct sockaddr *address, socklen_t len,
                                    const struct plain_limit *limit, int *out_fd)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    enum plain_io io = PLAIN_DONE;
    int error = 0;
    socklen_t error_len = sizeof error;
    int on = 1;

    if (fd < 0) {
        return PLAIN_FAILED;
    }
    if (address->sa_family != AF_UNIX) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    if (connect(fd, address, len) != 0) {
        io = errno == EINPROGRESS ? wait_until_ready(fd, POLLOUT, limit) : PLAIN_FAILED;
        error = io == PLAIN_FAILED ? errno : 0;
        if (io == PLAIN_DONE && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len) == 0 && error != 0) {
            io = PLAIN_FAILED;
        }
    }
    if (io != PLAIN_DONE) {
        (void)close(fd);
        errno = error;
        return io;
    }
    *out_fd = fd;
    return PLAIN_DONE;
}

static enum plain_io connect_unix(const char *path, const struct plain_limit *limit, int *out_fd)
{
    struct sockaddr_un un;
    enum plain_io io;
    int folder = -1;
    int saved;

    if (!unix_address(path, &un, &folder)) {
        return PLAIN_FAILED;
    }
    io = connect_socket((const struct sockaddr *)&un, sizeof un, limit, out_fd);
    saved = errno;
    if (folder >= 0) {
        (void)close(folder);
    }
    errno = saved;
    return io;
}

enum plain_io plain_connect(const char *unix_path, const char *host, unsigned port,
                            const struct plain_limit *limit, int *out_fd, const char **out_why)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    enum plain_io io = PLAIN_FAILED;
    char service[16];
    int problem;

    *out_why = NULL;
    if (unix_path != NULL) {
        return connect_unix(unix_path, limit, out_fd);
    }
    (void)snprintf(service, sizeof service, "%u", port);
    problem = getaddrinfo(host, service, &hints, &found);
    if (problem != 0) {
        *out_why = gai_strerror(problem);
        return PLAIN_FAILED;
    }
    /* The next address is tried after a failure, not after a stop by the caller. */
    for (const struct addrinfo *info = found; info != NULL && io == PLAIN_FAILED; info = info->ai_next) {
        io = connect_socket(info->ai_addr, info->ai_addrlen, limit, out_fd);
    }
    problem = errno;
    freeaddrinfo(found);
    errno = problem;
    return io;
}

bool plain_is_quiet(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

static bool is_not_yet(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

enum plain_io plain_write(int fd, const char *data, size_t len, const struct plain_limit *limit,
                          size_t *out_sent)
{
    *out_sent = 0;
    while (*out_sent < len) {
        ssize_t n = send(fd, data + *out_sent, len - *out_sent, MSG_NOSIGNAL);
        enum plain_io io;

        if (n >= 0) {
            *out_sent += (size_t)n;
            continue;
        }
        if (!is_not_yet(errno)) {
            return PLAIN_FAILED;
        }
        io = wait_until_ready(fd, POLLOUT, limit);
        if (io != PLAIN_DONE) {
            return io;
        }
    }
    return PLAIN_DONE;
}

enum plain_io plain_read(int fd, char *out, size_t size, const struct plain_limit *limit, size_t *out_n)
{
    for (;;) {
        enum plain_io io = wait_until_ready(fd, POLLIN, limit);
        ssize_t n;

        if (io != PLAIN_DONE) {
            return io;
        }
        n = recv(fd, out, size, 0);
        if (n >= 0) {
            *out_n = (size_t)n;
            return PLAIN_DONE;
        }
        if (!is_not_yet(errno)) {
            return PLAIN_FAILED;
        }
    }
}
