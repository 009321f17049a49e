#include "cli/output/print.h"

#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/utf8.h"
#include "json/json_write.h"

enum { EVENT_TYPE_WIDTH = 14, MIN_COLUMNS = 60, WORD_SIZE = 512 };

void escape_text(struct buf *out, const char *text)
{
    buf_add(out, "", 0); /* an empty text becomes "", not NULL */
    while (*text != '\0') {
        uint32_t point = 0;
        size_t n = utf8_read(text, UTF8_MAX, &point);

        if (n == 0 || (utf8_is_unsafe(point) && n == 1)) {
            buf_addf(out, "\\x%02x", (unsigned char)*text);
            n = 1;
        } else if (utf8_is_unsafe(point)) {
            buf_addf(out, "\\u{%04x}", (unsigned)point);
        } else {
            buf_add(out, text, n);
        }
        text += n;
    }
}

void print_escaped(FILE *file, const char *text)
{
    struct buf line = BUF_INIT((size_t)1 << 24);

    escape_text(&line, text);
    (void)fputs(line.failed ? "?" : line.data == NULL ? "" : line.data, file);
    buf_release(&line);
}

void print_line_escaped(FILE *file, const char *format, ...)
{
    struct buf text = BUF_INIT((size_t)1 << 24);
    va_list args;

    va_start(args, format);
    buf_vaddf(&text, format, args);
    va_end(args);
    print_escaped(file, text.failed ? "?" : text.data);
    (void)fputc('\n', file);
    buf_release(&text);
}

static size_t point_width(uint32_t point)
{
    static bool ready;
    int width;

    if (point < 0x80) {
        return 1;
    }
    /* wcwidth() depends on the locale, and services often run in "C". */
    if (!ready) {
        (void)setlocale(LC_CTYPE, "C.UTF-8");
        ready = true;
    }
    width = wcwidth((wchar_t)point);
    return width < 0 ? 1 : (size_t)width;
}

/* How many bytes of `text` fit in `columns`; *out_width is their width. */
static size_t fit(const char *text, size_t columns, size_t *out_width)
{
    size_t at = 0;
    size_t width = 0;

    while (text[at] != '\0') {
        uint32_t point = 0;
        size_t n = utf8_read(text + at, UTF8_MAX, &point);
        size_t w = n == 0 ? 1 : point_width(point);

        if (width + w > columns) {
            break;
        }
        width += w;
        at += n == 0 ? 1 : n;
    }
    *out_width = width;
    return at;
}

void print_field(const char *name, const char *value)
{
    print_line_escaped(stdout, "%-14s%s", name, value == NULL ? "unknown" : value);
}

size_t text_width(const char *text)
{
    size_t width;

    (void)fit(text, SIZE_MAX / 2, &width);
    return width;
}

void truncate_text(struct buf *out, const char *text, size_t columns)
{
    size_t width;

    if (text_width(text) <= columns) {
        buf_adds(out, text);
    } else if (columns > 0) {
        buf_add(out, text, fit(text, columns - 1, &width));
        buf_adds(out, "…");
    }
}

void truncate_middle(struct buf *out, const char *text, size_t columns)
{
    const char *tail = text;
    size_t width;

    if (text_width(text) <= columns || columns < 3) {
        truncate_text(out, text, columns);
        return;
    }
    while (text_width(tail) > (columns - 1) / 2) {
        do {
            tail++;
        } while (((unsigned char)*tail & 0xc0) == 0x80); /* not into a character */
    }
    buf_add(out, text, fit(text, columns - 1 - text_width(tail), &width));
    buf_addf(out, "…%s", tail);
}

/* The columns of the word that `text` begins with; its bytes are *out_bytes. */
static size_t word_width(const char *text, size_t *out_bytes)
{
    char word[WORD_SIZE];
    size_t width;

    *out_bytes = strcspn(text, " ");
    if (*out_bytes >= sizeof word) {
        return *out_bytes; /* it is too long for every terminal */
    }
    memcpy(word, text, *out_bytes);
    word[*out_bytes] = '\0';
    (void)fit(word, SIZE_MAX / 2, &width);
    return width;
}

/* A word stays in one piece, because it may be a path or a URL to be copied: if it is long, it has less indent. */
static void wrap_words(FILE *file, size_t columns, size_t at, size_t indent, const char *text)
{
    bool is_first = true; /* of its line */

    while (*text != '\0') {
        size_t n;
        size_t width = word_width(text, &n);

        if (at + !is_first + width > columns) {
            size_t room = width < columns ? columns - width : 0;

            at = indent < room ? indent : room;
            is_first = true;
            (void)fprintf(file, "\n%*s", (int)at, "");
        }
        (void)fprintf(file, "%s%.*s", is_first ? "" : " ", (int)n, text);
        at += width + !is_first;
        is_first = false;
        text += n + strspn(text + n, " ");
    }
}

void print_wrapped(FILE *file, int fd, size_t at, size_t indent, const char *text)
{
    size_t columns = print_columns(fd);
    struct buf escaped = BUF_INIT((size_t)1 << 24);

    if (columns == 0) {
        print_line_escaped(file, "%s", text);
        return;
    }
    columns = columns < MIN_COLUMNS ? MIN_COLUMNS : columns;
    escape_text(&escaped, text);
    /* Not in the last column: some terminals begin another line then. */
    wrap_words(file, columns - 1, at, indent, escaped.failed || escaped.data == NULL ? "?" : escaped.data);
    (void)fputc('\n', file);
    buf_release(&escaped);
}

size_t print_columns(int fd)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");

    if (!isatty(fd)) {
        return 0;
    }
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
    return columns != NULL && atoi(columns) > 0 ? (size_t)atoi(columns) : 80;
}

const char *print_style(bool on, const char *style)
{
    static const struct {
        const char *name;
        const char *sequence;
    } styles[] = { { "bold", "\033[1m" },   { "dim", "\033[2m" },     { "red", "\033[31m" },
                   { "green", "\033[32m" }, { "yellow", "\033[33m" }, { PRINT_RESET, "\033[0m" } };

    for (size_t i = 0; on && i < sizeof styles / sizeof styles[0]; i++) {
        if (strcmp(styles[i].name, style) == 0) {
            return styles[i].sequence;
        }
    }
    return "";
}

char *print_ago(char out[PRINT_TIME_SIZE], int64_t unix_ms, int64_t now_unix_ms)
{
    char at[CLOCK_TEXT_SIZE];
    char span[CLOCK_TEXT_SIZE];

    clock_format_utc(at, unix_ms, false);
    if (now_unix_ms - unix_ms < 1000) {
        (void)snprintf(out, PRINT_TIME_SIZE, "%s (just now)", at);
    } else {
        (void)snprintf(out, PRINT_TIME_SIZE, "%s (%s ago)", at,
                       clock_format_span(span, now_unix_ms - unix_ms));
    }
    return out;
}

char *print_day(char out[PRINT_TIME_SIZE], int64_t unix_ms)
{
    char at[CLOCK_TEXT_SIZE];

    clock_format_utc(at, unix_ms, false);
    (void)snprintf(out, PRINT_TIME_SIZE, "%.10s %.8s UTC", at, at + 11);
    return out;
}

char *print_long_span(char out[PRINT_TIME_SIZE], int64_t ms, size_t units)
{
    static const struct {
        const char *name;
        int64_t ms;
    } scale[] = { { "day", 86400000 }, { "hour", 3600000 }, { "minute", 60000 }, { "second", 1000 } };
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; i < sizeof scale / sizeof scale[0] && units > 0; i++) {
        int64_t count = ms / scale[i].ms;

        if (count > 0) {
            n += (size_t)snprintf(out + n, PRINT_TIME_SIZE - n, "%s%lld %s%s", n == 0 ? "" : " ",
                                  (long long)count, scale[i].name, count == 1 ? "" : "s");
            ms -= count * scale[i].ms;
        }
        /* After the largest unit, only the next smaller one counts. */
        units -= n > 0;
    }
    if (n == 0) {
        (void)snprintf(out, PRINT_TIME_SIZE, "0 seconds");
    }
    return out;
}

/* True if there is no name, or if the owner begins with it. */
static bool owner_has_name(const char *owner, const char *name)
{
    return name == NULL || *name == '\0' || strncmp(owner, name, strlen(name)) == 0;
}

/* "NAME (OWNER)". If the owner begins with the name, only one of them is needed. */
static void print_owner(struct buf *out, const char *owner, const char *name, bool is_short)
{
    if (!owner_has_name(owner, name)) {
        escape_text(out, name);
        buf_adds(out, " (");
        escape_text(out, owner);
        buf_adds(out, ")");
    } else {
        escape_text(out, is_short && name != NULL && *name != '\0' ? name : owner);
    }
}

void print_holder(struct buf *out, const struct belay_info *info)
{
    print_owner(out, info->locked_by, info->locked_by_name, false);
}

void print_holder_short(struct buf *out, const struct belay_info *info)
{
    print_owner(out, info->locked_by, info->locked_by_name, true);
}

void print_holders_short(struct buf *out, const struct belay_info *info)
{
    print_holder_short(out, info->n_holders > 0 ? &info->holders[0] : info);
    if (info->n_holders > 1) {
        buf_addf(out, " +%zu", info->n_holders - 1);
    }
}

/* ---- events ---- */

void print_event_holder(struct buf *out, const struct belay_event *event)
{
    print_owner(out, event->locked_by == NULL ? "" : event->locked_by, event->locked_by_name, true);
}

void add_event_details(struct buf *line, const struct belay_event *event)
{
    char span[CLOCK_TEXT_SIZE];

    if (event->duration_ms >= 0) {
        buf_addf(line, " after %s", clock_format_span(span, event->duration_ms));
    }
    if (event->by != NULL) {
        buf_adds(line, ", by ");
        escape_text(line, event->by);
    }
    if (event->reason != NULL) {
        buf_adds(line, ": ");
        escape_text(line, event->reason);
    }
}

void print_event(FILE *file, const struct belay_event *event, bool json, bool color)
{
    struct buf line = BUF_INIT(1 << 16);
    char at[CLOCK_TEXT_SIZE];
    size_t type_from;

    if (json) {
        char *text = wire_line(wire_event(event));

        (void)fprintf(file, "%s\n", text == NULL ? "{}" : text);
        free(text);
        return;
    }
    buf_addf(&line, "%s %s", clock_format_utc(at, event->at_unix_ms, true),
             print_style(color && event->level == BELAY_LEVEL_WARNING, "yellow"));
    type_from = line.len;
    escape_text(&line, event->type);
    buf_addf(&line, "%*s%s ",
             line.len - type_from < EVENT_TYPE_WIDTH ? (int)(EVENT_TYPE_WIDTH - (line.len - type_from)) : 0,
             "", print_style(color && event->level == BELAY_LEVEL_WARNING, PRINT_RESET));
    escape_text(&line, event->key);
    buf_adds(&line, " ");
    print_event_holder(&line, event);
    add_event_details(&line, event);
    (void)fprintf(file, "%s\n", line.failed ? "?" : line.data);
    buf_release(&line);
}
