#include "server/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { LOG_BUFFER_MAX = 1 << 20, LOG_FLUSH_AT = 64 << 10, LOG_TEXT_MAX = 1024 };

static const char *const level_names[] = { "info", "warn", "error" };

void log_begin(struct log *log, bool is_json)
{
    log->out = (struct buf)BUF_INIT(LOG_BUFFER_MAX);
    log->is_json = is_json;
    (void)pthread_mutex_init(&log->mutex, NULL);
}

/* What a request says of itself is hostile: only printable ASCII is written as it is. */
static void add_text(struct log *log, const char *text)
{
    size_t n = 0;

    for (const unsigned char *at = (const unsigned char *)text; *at != '\0' && n < LOG_TEXT_MAX; at++, n++) {
        size_t plain = 0;

        while (n + plain < LOG_TEXT_MAX && at[plain] >= 0x20 && at[plain] < 0x7f && at[plain] != '"' &&
               at[plain] != '\\') {
            plain++;
        }
        if (plain > 0) {
            buf_add(&log->out, at, plain);
            at += plain - 1;
            n += plain - 1;
        } else if (log->is_json && (*at == '"' || *at == '\\')) {
            buf_addf(&log->out, "\\%c", *at);
        } else if (*at >= 0x20 && *at < 0x7f) {
            buf_add(&log->out, at, 1);
        } else {
            buf_addf(&log->out, log->is_json ? "\\u%04x" : "\\x%02x", *at);
        }
    }
}

/* Without printf(), here and below: a line is written for every request. */
static void add_member(struct log *log, const char *name, const char *text)
{
    if (log->is_json) {
        buf_adds(&log->out, ",\"");
        buf_adds(&log->out, name);
        buf_adds(&log->out, "\":\"");
        add_text(log, text);
        buf_adds(&log->out, "\"");
    } else {
        buf_adds(&log->out, " ");
        buf_adds(&log->out, name);
        buf_adds(&log->out, "=");
        add_text(log, *text == '\0' ? "-" : text);
    }
}

static void begin_line(struct log *log, enum log_level level, const char *event)
{
    char now[CLOCK_TEXT_SIZE];

    clock_format_utc(now, clock_unix_ms(), true);
    (void)pthread_mutex_lock(&log->mutex); /* until end_line() */
    if (log->is_json) {
        buf_adds(&log->out, "{\"timestamp\":\"");
        buf_adds(&log->out, now);
        buf_adds(&log->out, "\"");
        add_member(log, "level", level_names[level]);
        add_member(log, "event", event);
    } else {
        buf_addf(&log->out, "%s %-5s %s", now, level_names[level], event);
    }
}

static void flush(struct log *log)
{
    static const char lost[] = "{\"level\":\"error\",\"event\":\"log\",\"message\":\"lines were lost\"}\n";
    size_t at = 0;

    while (at < log->out.len) {
        ssize_t n = write(STDERR_FILENO, log->out.data + at, log->out.len - at);

        if (n < 0 && errno != EINTR) {
            break; /* a log that nobody takes must not end the server */
        }
        at += n > 0 ? (size_t)n : 0;
    }
    if (log->out.failed) {
        (void)!write(STDERR_FILENO, lost, sizeof lost - 1);
        buf_release(&log->out);
        log->out = (struct buf)BUF_INIT(LOG_BUFFER_MAX);
    }
    log->out.len = 0;
}

static void end_line(struct log *log)
{
    buf_adds(&log->out, log->is_json ? "}\n" : "\n");
    if (log->out.len >= LOG_FLUSH_AT || log->out.failed) {
        flush(log);
    }
    (void)pthread_mutex_unlock(&log->mutex);
}

void log_request(struct log *log, const struct log_request *line)
{
    begin_line(log, line->status >= 500 ? LOG_ERROR : LOG_INFO, "request");
    add_member(log, "request_id", line->id);
    add_member(log, "method", line->method);
    add_member(log, "path", line->path);
    buf_addf(&log->out, log->is_json ? ",\"status\":%d,\"duration_ms\":%" PRId64 : " %d %" PRId64 "ms",
             line->status, line->duration_ms);
    add_member(log, "peer", line->peer);
    add_member(log, "who", line->who);
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
        add_member(log, "message", text);
    } else {
        buf_adds(&log->out, ": ");
        add_text(log, text);
    }
    end_line(log);
}

void log_flush(struct log *log)
{
    (void)pthread_mutex_lock(&log->mutex);
    flush(log);
    (void)pthread_mutex_unlock(&log->mutex);
}
