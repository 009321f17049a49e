#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/new_file.h"
#include "telemetry/sinks.h"

#define JOURNAL_SOCKET "/run/systemd/journal/socket"
#define SYSLOG_SOCKET "/dev/log"
enum { LINE_MAX_BYTES = 1 << 18, WHOLE_MAX = 4 << 20, ROOM_MS = 500 };

/* Never waits: a pipe that nobody reads must not hold up a lock. */
static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, new_file_mode(path));
}

/* Never blocks: a log daemon that does not read must not hold up a lock. */
static int open_socket(const char *path)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    memcpy(to.sun_path, path, strlen(path) + 1);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        int saved = errno;

        (void)close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static enum belay_code open_daemon(struct lines *lines, enum lines_kind kind, const char *setting,
                                   const char *path, struct belay_error *err)
{
    lines->fd = open_socket(path);
    if (lines->fd < 0) {
        return error_set(err, BELAY_CONFIG, "%s: nobody listens at %s: %s", setting, path, strerror(errno));
    }
    lines->kind = kind;
    return BELAY_OK;
}

enum belay_code lines_open(struct lines *lines, const char *setting, const char *where,
                           struct belay_error *err)
{
    *lines = (struct lines){ .kind = LINES_NONE, .fd = -1 };
    if (strcmp(where, "stderr") == 0) {
        lines->kind = LINES_STDERR;
        lines->fd = STDERR_FILENO;
        return BELAY_OK;
    }
    if (strcmp(where, "syslog") == 0) {
        return open_daemon(lines, LINES_SYSLOG, setting, SYSLOG_SOCKET, err);
    }
    if (strcmp(where, "journald") == 0) {
        return open_daemon(lines, LINES_JOURNALD, setting, JOURNAL_SOCKET, err);
    }
    lines->fd = open_file(where);
    if (lines->fd < 0 && errno != ENXIO) { /* a pipe without a reader may get one */
        return error_set(err, BELAY_CONFIG, "%s: cannot write to '%s': %s", setting, where, strerror(errno));
    }
    lines->path = strdup(where);
    if (lines->path == NULL) {
        lines_close(lines);
        return error_no_memory(err);
    }
    lines->kind = LINES_FILE;
    return BELAY_OK;
}

/* Who reads standard error, or a pipe, may be slow: it is waited for once, and not again until it has caught up. */
static bool has_room(const struct lines *lines)
{
    struct pollfd about = { .fd = lines->fd, .events = POLLOUT };
    int n;

    do {
        n = poll(&about, 1, lines->has_failed ? 0 : ROOM_MS);
    } while (n < 0 && errno == EINTR);
    if (n == 0) {
        errno = EAGAIN;
    }
    return n > 0;
}

/* One write for a line, so that the lines of several processes do not mix. */
static bool write_whole(struct lines *lines, const struct buf *whole)
{
    ssize_t n;

    do {
        n = write(lines->fd, whole->data, whole->len);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        lines->is_torn = (size_t)n != whole->len; /* what comes next begins a line of its own */
    }
    if (n >= 0 && (size_t)n != whole->len) {
        errno = ENOSPC;
    }
    return n == (ssize_t)whole->len;
}

static bool write_line(struct lines *lines, const char *text)
{
    struct buf whole = BUF_INIT(WHOLE_MAX);
    bool done;

    if (lines->fd < 0 && (lines->fd = open_file(lines->path)) < 0) {
        return false;
    }
    buf_addf(&whole, "%s%s\n", lines->is_torn ? "\n" : "", text);
    errno = ENOMEM;
    done = !whole.failed && has_room(lines) && write_whole(lines, &whole);
    buf_release(&whole);
    return done;
}

static bool send_text(int fd, const struct buf *text)
{
    return !text->failed && send(fd, text->data, text->len, MSG_NOSIGNAL) == (ssize_t)text->len;
}

/* A daemon that was started anew has a new socket, in the same place. */
static bool send_again(struct lines *lines, const struct buf *packet)
{
    int saved = errno;
    int fd = open_socket(lines->kind == LINES_JOURNALD ? JOURNAL_SOCKET : SYSLOG_SOCKET);

    if (fd < 0) {
        errno = saved;
        return false;
    }
    (void)close(lines->fd);
    lines->fd = fd;
    return send_text(fd, packet);
}

static bool send_line(struct lines *lines, enum belay_level level, const char *text)
{
    struct buf packet = BUF_INIT(LINE_MAX_BYTES);
    int priority = level == BELAY_LEVEL_WARNING ? LOG_WARNING : LOG_INFO;
    bool done;

    if (lines->kind == LINES_JOURNALD) {
        buf_addf(&packet, "SYSLOG_IDENTIFIER=belay\nPRIORITY=%d\nMESSAGE=%s\n", priority, text);
    } else {
        buf_addf(&packet, "<%d>belay[%ld]: %s", LOG_AUTHPRIV | priority, (long)getpid(), text);
    }
    errno = ENOMEM;
    done = send_text(lines->fd, &packet) || (errno != EAGAIN && !packet.failed && send_again(lines, &packet));
    buf_release(&packet);
    return done;
}

bool lines_write(struct lines *lines, enum belay_level level, const char *text)
{
    if (lines->kind == LINES_SYSLOG || lines->kind == LINES_JOURNALD) {
        return send_line(lines, level, text);
    }
    return write_line(lines, text);
}

bool lines_reopen(struct lines *lines)
{
    int fd;

    if (lines->kind != LINES_FILE) {
        return true;
    }
    fd = open_file(lines->path);
    if (fd < 0) {
        return false;
    }
    if (lines->fd >= 0) {
        (void)close(lines->fd);
    }
    lines->fd = fd;
    lines->is_torn = false;
    return true;
}

void lines_close(struct lines *lines)
{
    if (lines->kind != LINES_STDERR && lines->fd >= 0) {
        (void)close(lines->fd);
    }
    free(lines->path);
    *lines = (struct lines){ .kind = LINES_NONE, .fd = -1 };
}
