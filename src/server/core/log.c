#include "server/core/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/utf8.h"

enum {
    LOG_BUFFER_MAX = 1 << 20,
    LOG_FLUSH_AT = 64 << 10,
    LOG_TEXT_MAX = 1024,
    END_LOOKS = 10,
    END_LOOK_MS = 100
};

static const char *const level_names[] = { "info", "warn", "error" };

void log_begin(struct log *log, bool is_json)
{
    struct stat about;

    log->out = (struct buf)BUF_INIT(LOG_BUFFER_MAX);
    log->is_json = is_json;
    log->is_file = fstat(STDERR_FILENO, &about) == 0 &&
                   (S_ISREG(about.st_mode) || (S_ISCHR(about.st_mode) && !isatty(STDERR_FILENO)));
    (void)pthread_mutex_init(&log->mutex, NULL);
}

/*
 * Requests are hostile: JSON escapes what acts on a terminal, and a plain line has only printable ASCII unescaped. No
 * printf() here and below: each request writes a line.
 */
static void log_add_text(struct log *log, const char *text)
{
    size_t len = strnlen(text, LOG_TEXT_MAX);

    if (log->is_json) {
        json_text_add(&log->out, text, len, JSON_TEXT_SAFE);
        return;
    }
    for (size_t at = 0; at < len; at++) {
        size_t n = text_plain(text + at, len - at);
        unsigned char c;

        buf_add(&log->out, text + at, n);
        at += n;
        c = (unsigned char)text[at];
        if (at < len) {
            buf_addf(&log->out, c >= 0x20 && c < 0x7f ? "%c" : "\\x%02x", c);
        }
    }
}

/* A macro, so that the compiler knows the length of the name. */
#define ADD_MEMBER(log, name, text)                                                                          \
    do {                                                                                                     \
        if ((log)->is_json) {                                                                                \
            buf_adds(&(log)->out, ",\"" name "\":");                                                         \
            log_add_text(log, text);                                                                         \
        } else {                                                                                             \
            buf_adds(&(log)->out, " " name "=");                                                             \
            log_add_text(log, *(text) == '\0' ? "-" : (text));                                               \
        }                                                                                                    \
    } while (0)

static void begin_line(struct log *log, enum log_level level, const char *event)
{
    char now[CLOCK_TEXT_SIZE];

    clock_format_utc(now, clock_unix_ms(), true);
    (void)pthread_mutex_lock(&log->mutex); /* until end_line() */
    if (log->is_json) {
        buf_adds(&log->out, "{\"timestamp\":\"");
        buf_adds(&log->out, now);
        buf_adds(&log->out, "\",\"level\":\"");
        buf_adds(&log->out, level_names[level]);
        buf_adds(&log->out, "\",\"event\":\"");
        buf_adds(&log->out, event); /* one of our own words: needs no escaping */
        buf_adds(&log->out, "\"");
    } else {
        buf_addf(&log->out, "%s %-5s %s", now, level_names[level], event);
    }
}

/* The reader of standard error may be slow or stopped: requests do not wait for it. */
static bool stderr_has_room(void)
{
    struct pollfd about = { .fd = STDERR_FILENO, .events = POLLOUT };

    return poll(&about, 1, 0) > 0;
}

/* Lines that cannot be written now are kept for the next time, as long as there is room. */
void log_flush(struct log *log)
{
    static const char lost[] = "{\"level\":\"error\",\"event\":\"log\",\"message\":\"lines were lost\"}\n";
    size_t at = 0;

    (void)pthread_mutex_lock(&log->mutex);
    while (at < log->out.len && (log->is_file || stderr_has_room())) {
        size_t len = log->out.len - at;
        ssize_t n;

        if (!log->is_file && len > PIPE_BUF) {
            len = PIPE_BUF; /* a pipe with room takes this much without blocking */
        }
        n = write(STDERR_FILENO, log->out.data + at, len);
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            at = log->out.len; /* a log without a reader must not end the server */
        } else if (n < 0 && errno == EAGAIN) {
            break;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    if (log->out.failed) {
        buf_release(&log->out);
        log->out = (struct buf)BUF_INIT(LOG_BUFFER_MAX);
        buf_adds(&log->out, lost);
    } else if (at > 0) {
        log->out.len -= at;
        memmove(log->out.data, log->out.data + at, log->out.len);
    }
    (void)pthread_mutex_unlock(&log->mutex);
}

static void end_line(struct log *log)
{
    bool is_full;

    buf_adds(&log->out, log->is_json ? "}\n" : "\n");
    is_full = log->out.len >= LOG_FLUSH_AT || log->out.failed;
    (void)pthread_mutex_unlock(&log->mutex);
    if (is_full) {
        log_flush(log);
    }
}

void log_request(struct log *log, const struct log_request *line)
{
    begin_line(log, line->status >= 500 ? LOG_ERROR : LOG_INFO, "request");
    ADD_MEMBER(log, "request_id", line->id);
    ADD_MEMBER(log, "method", line->method);
    ADD_MEMBER(log, "path", line->path);
    buf_adds(&log->out, log->is_json ? ",\"status\":" : " ");
    buf_add_number(&log->out, line->status);
    buf_adds(&log->out, log->is_json ? ",\"duration_ms\":" : " ");
    buf_add_number(&log->out, line->duration_ms);
    buf_adds(&log->out, log->is_json ? "" : "ms");
    ADD_MEMBER(log, "peer", line->peer);
    ADD_MEMBER(log, "who", line->who);
    if (line->reason != NULL) {
        ADD_MEMBER(log, "reason", line->reason);
    }
    end_line(log);
}

void log_note(struct log *log, enum log_level level, const char *event, const char *format, ...)
{
    char text[LOG_TEXT_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    begin_line(log, level, event);
    if (log->is_json) {
        ADD_MEMBER(log, "message", text);
    } else {
        buf_adds(&log->out, ": ");
        log_add_text(log, text);
    }
    end_line(log);
}

void log_end(struct log *log)
{
    struct pollfd about = { .fd = STDERR_FILENO, .events = POLLOUT };

    log_flush(log);
    for (int i = 0; log->out.len > 0 && i < END_LOOKS && poll(&about, 1, END_LOOK_MS) >= 0; i++) {
        log_flush(log);
    }
    buf_release(&log->out);
}
