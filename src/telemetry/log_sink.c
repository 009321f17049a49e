#include <assert.h>
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

/* Non-blocking: a pipe without a reader must not block a lock. */
static int open_log_file(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, new_file_mode(path));
}

static int open_socket(const char *path)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };

    memcpy(to.sun_path, path, strlen(path) + 1);
    return connect_datagram(AF_UNIX, &to, sizeof to);
}

static enum belay_code open_daemon(struct log_sink *sink, enum log_sink_kind kind, const char *setting,
                                   const char *path, struct belay_error *err)
{
    sink->fd = open_socket(path);
    if (sink->fd < 0) {
        return error_set(err, BELAY_CONFIG, "%s: cannot connect to %s: %s", setting, path, strerror(errno));
    }
    sink->kind = kind;
    return BELAY_OK;
}

enum belay_code log_sink_open(struct log_sink *sink, const char *setting, const char *where,
                              struct belay_error *err)
{
    *sink = (struct log_sink){ .kind = LOG_SINK_NONE, .fd = -1 };
    if (strcmp(where, "stderr") == 0) {
        sink->kind = LOG_SINK_STDERR;
        sink->fd = STDERR_FILENO;
        return BELAY_OK;
    }
    if (strcmp(where, "syslog") == 0) {
        return open_daemon(sink, LOG_SINK_SYSLOG, setting, SYSLOG_SOCKET, err);
    }
    if (strcmp(where, "journald") == 0) {
        return open_daemon(sink, LOG_SINK_JOURNALD, setting, JOURNAL_SOCKET, err);
    }
    sink->fd = open_log_file(where);
    if (sink->fd < 0 && errno != ENXIO) { /* a pipe without a reader may get one later */
        return error_set(err, BELAY_CONFIG, "%s: cannot write to '%s': %s", setting, where, strerror(errno));
    }
    sink->path = strdup(where);
    if (sink->path == NULL) {
        log_sink_close(sink);
        return error_no_memory(err);
    }
    sink->kind = LOG_SINK_FILE;
    return BELAY_OK;
}

/* A slow reader of standard error or a pipe is waited for once, and not again until it has caught up. */
static bool wait_for_room(const struct log_sink *sink)
{
    struct pollfd about = { .fd = sink->fd, .events = POLLOUT };
    int n;

    do {
        n = poll(&about, 1, sink->has_failed ? 0 : ROOM_MS);
    } while (n < 0 && errno == EINTR);
    if (n == 0) {
        errno = EAGAIN;
    }
    return n > 0;
}

/* One write per line, so that the lines of several processes do not mix. */
static bool write_whole(struct log_sink *sink, const struct buf *whole)
{
    ssize_t n;

    do {
        n = write(sink->fd, whole->data, whole->len);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        sink->is_torn = (size_t)n != whole->len; /* the next line starts with a newline */
    }
    if (n >= 0 && (size_t)n != whole->len) {
        errno = ENOSPC;
    }
    return n == (ssize_t)whole->len;
}

static bool write_line(struct log_sink *sink, const char *text)
{
    struct buf whole = BUF_INIT(WHOLE_MAX);
    bool done;

    if (sink->fd < 0 && (sink->fd = open_log_file(sink->path)) < 0) {
        return false;
    }
    buf_addf(&whole, "%s%s\n", sink->is_torn ? "\n" : "", text);
    errno = ENOMEM;
    done = !whole.failed && wait_for_room(sink) && write_whole(sink, &whole);
    buf_release(&whole);
    return done;
}

static bool send_text(int fd, const struct buf *text)
{
    return !text->failed && send(fd, text->data, text->len, MSG_NOSIGNAL) == (ssize_t)text->len;
}

/* A restarted daemon has a new socket at the same path. */
static bool reconnect_and_send(struct log_sink *sink, const struct buf *packet)
{
    int saved = errno;
    int fd = open_socket(sink->kind == LOG_SINK_JOURNALD ? JOURNAL_SOCKET : SYSLOG_SOCKET);

    if (fd < 0) {
        errno = saved;
        return false;
    }
    (void)close(sink->fd);
    sink->fd = fd;
    return send_text(fd, packet);
}

static bool send_line(struct log_sink *sink, enum belay_level level, const char *text)
{
    struct buf packet = BUF_INIT(LINE_MAX_BYTES);
    int priority = level == BELAY_LEVEL_WARNING ? LOG_WARNING : LOG_INFO;
    bool done;

    if (sink->kind == LOG_SINK_JOURNALD) {
        buf_addf(&packet, "SYSLOG_IDENTIFIER=belay\nPRIORITY=%d\nMESSAGE=%s\n", priority, text);
    } else {
        buf_addf(&packet, "<%d>belay[%ld]: %s", LOG_AUTHPRIV | priority, (long)getpid(), text);
    }
    errno = ENOMEM;
    done = send_text(sink->fd, &packet) ||
           (errno != EAGAIN && !packet.failed && reconnect_and_send(sink, &packet));
    buf_release(&packet);
    return done;
}

bool log_sink_write(struct log_sink *sink, enum belay_level level, const char *text)
{
    assert(sink->kind != LOG_SINK_NONE && text != NULL);
    assert(sink->kind != LOG_SINK_FILE || sink->path != NULL);
    if (sink->kind == LOG_SINK_SYSLOG || sink->kind == LOG_SINK_JOURNALD) {
        return send_line(sink, level, text);
    }
    return write_line(sink, text);
}

bool log_sink_reopen(struct log_sink *sink)
{
    int fd;

    if (sink->kind != LOG_SINK_FILE) {
        return true;
    }
    fd = open_log_file(sink->path);
    if (fd < 0) {
        return false;
    }
    if (sink->fd >= 0) {
        (void)close(sink->fd);
    }
    sink->fd = fd;
    sink->is_torn = false;
    return true;
}

void log_sink_close(struct log_sink *sink)
{
    if (sink->kind != LOG_SINK_STDERR && sink->fd >= 0) {
        (void)close(sink->fd);
    }
    free(sink->path);
    *sink = (struct log_sink){ .kind = LOG_SINK_NONE, .fd = -1 };
}
