#include "server/systemd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

size_t systemd_listen_fds(void)
{
    const char *pid = getenv("LISTEN_PID");
    const char *count = getenv("LISTEN_FDS");
    long n = 0;

    if (pid != NULL && count != NULL && strtol(pid, NULL, 10) == (long)getpid()) {
        n = strtol(count, NULL, 10);
    }
    n = n < 0 ? 0 : n > SYSTEMD_FDS_MAX ? SYSTEMD_FDS_MAX : n;
    for (int i = 0; i < (int)n; i++) {
        (void)fcntl(SYSTEMD_FD_FIRST + i, F_SETFD, FD_CLOEXEC);
    }
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    return (size_t)n;
}

void systemd_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    size_t len = path == NULL ? 0 : strlen(path);
    int fd;

    if (len < 2 || len >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) {
        return;
    }
    memcpy(to.sun_path, path, len + 1);
    if (path[0] == '@') {
        to.sun_path[0] = '\0'; /* an abstract name */
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    (void)close(fd);
}

void systemd_notify_reloading(void)
{
    struct timespec now;
    char text[80];

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    (void)snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld",
                   (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    systemd_notify(text);
}
