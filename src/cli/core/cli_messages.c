/* The input and output of a command: errors, notes, warnings, confirmations, files, and the end of its output. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/core/cli.h"
#include "cli/output/print.h"
#include "json/json_write.h"

/* How a warning about the kill switch begins. It is never left out: such a lock protects nothing (S0.9). */
#define LOCKING_OFF "locking is switched off"
static atomic_bool has_said_off;

int cli_exit_code(enum belay_code code)
{
    switch (code) {
    case BELAY_OK:
        return CLI_OK;
    case BELAY_HELD:
    case BELAY_FROZEN:
        return CLI_HELD;
    case BELAY_LOST:
    case BELAY_NOT_HOLDER:
    case BELAY_ID_USED:
    case BELAY_NOT_PERMITTED:
        return CLI_DENIED;
    case BELAY_NOT_FOUND:
        return CLI_NOT_FOUND;
    case BELAY_INVALID:
        return CLI_USAGE;
    case BELAY_BAD_CONTENT:
        return CLI_DATA;
    case BELAY_CONFIG:
        return CLI_CONFIG;
    case BELAY_UNREACHABLE:
    case BELAY_BUSY:
        return CLI_UNREACHABLE;
    case BELAY_UNKNOWN:
        return CLI_UNKNOWN;
    case BELAY_CANCELLED:
        return 128 + (cli_signal() == 0 ? SIGINT : cli_signal());
    case BELAY_NO_MEMORY:
    case BELAY_BUG:
    case BELAY_REFUSED:
    case BELAY_REDIRECTED:
        break;
    }
    return CLI_BUG;
}

/* One write per line, so that the lines of several processes do not mix. */
static void print_message(const char *style, const char *lead, const char *text)
{
    struct buf line = BUF_INIT(1 << 16);

    buf_adds(&line, lead);
    buf_adds(&line, style);
    escape_text(&line, text);
    buf_adds(&line, *style == '\0' ? "\n" : "\033[0m\n");
    (void)fputs(line.failed ? "belay: out of memory\n" : line.data, stderr);
    buf_release(&line);
}

/* Name the holder below the refusal (S0.1). */
static void hint_holder(const struct cli_context *context, const struct belay_info *holder)
{
    struct buf who = BUF_INIT(4096);
    char since[PRINT_TIME_SIZE];

    print_holder(&who, holder);
    cli_hint(context, "held since %s by %s", print_ago(since, holder->locked_at_unix_ms, clock_unix_ms()),
             who.failed ? "?" : who.data);
    buf_release(&who);
}

int cli_error(const struct cli_context *context, const struct belay_error *err)
{
    const struct belay_info *holder = belay_error_holder(err);

    if (context->json) {
        char *line = wire_line(wire_error(err));

        (void)fprintf(stderr, "%s\n", line == NULL ? "{\"error\":{\"code\":\"no_memory\"}}" : line);
        free(line);
        return cli_exit_code(err->code);
    }
    print_message("", "belay: ", err->text);
    if (err->code == BELAY_HELD && holder != NULL && holder->locked_at_unix_ms != 0) {
        hint_holder(context, holder);
    }
    return cli_exit_code(err->code);
}

int cli_fail(const struct cli_context *context, enum belay_code code, const char *format, ...)
{
    struct belay_error err = BELAY_ERROR_INIT;
    va_list args;

    err.code = code;
    va_start(args, format);
    (void)vsnprintf(err.text, sizeof err.text, format, args);
    va_end(args);
    return cli_error(context, &err);
}

/* Unless --quiet or --json. */
static void print_note(const struct cli_context *context, const char *lead, const char *format, va_list args)
{
    char text[4096];

    if (!context->quiet && !context->json) {
        (void)vsnprintf(text, sizeof text, format, args);
        print_message("", lead, text);
    }
}

void cli_note(const struct cli_context *context, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_note(context, "belay: ", format, args);
    va_end(args);
}

void cli_hint(const struct cli_context *context, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_note(context, "  ", format, args);
    va_end(args);
}

void cli_warn(const struct cli_context *context, const char *format, ...)
{
    char text[4096];
    bool is_off;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    is_off = text_has_prefix(text, LOCKING_OFF);
    if (context->quiet && !is_off) {
        return;
    }
    if (is_off) {
        atomic_store(&has_said_off, true);
    }
    if (context->json) {
        char *line = wire_line(json_pack("{s:o}", "warning", wire_text(text)));

        (void)fprintf(stderr, "%s\n", line == NULL ? "{}" : line);
        free(line);
        return;
    }
    print_message(print_style(context->color_err, "yellow"), "belay: warning: ", text);
}

void cli_warn_locking_off(const struct cli_context *context)
{
    if (!atomic_load(&has_said_off)) {
        cli_warn(context, LOCKING_OFF ": no lock protects anything");
    }
}

enum belay_code cli_confirm(const struct cli_context *context, const struct options *options,
                            const char *what, struct belay_error *err)
{
    char answer[64] = "";

    if (options_has(options, "yes")) {
        return BELAY_OK;
    }
    if (context->json || !isatty(STDIN_FILENO)) {
        return error_set(err, BELAY_INVALID, "no terminal to ask for confirmation: add --yes to %.540s",
                         what);
    }
    (void)fputs("\nAre you sure? (yes/no): ", stderr);
    (void)fflush(stderr);
    if (fgets(answer, sizeof answer, stdin) == NULL) {
        (void)fputc('\n', stderr);
    }
    answer[strcspn(answer, "\n")] = '\0';
    return strcasecmp(answer, "yes") == 0
               ? BELAY_OK
               : error_set(err, BELAY_NOT_PERMITTED, "not confirmed: nothing was changed");
}

int cli_print_line(const struct cli_context *context, char *line)
{
    if (line == NULL) {
        return cli_fail(context, BELAY_NO_MEMORY, "out of memory");
    }
    (void)printf("%s\n", line);
    free(line);
    return CLI_OK;
}

enum belay_code cli_read_file(const char *path, struct buf *out, struct belay_error *err)
{
    bool is_input = strcmp(path, "-") == 0;
    int fd = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    enum belay_code code = BELAY_OK;
    char piece[1 << 16];
    struct stat st;

    if (fd < 0) {
        return error_set(err, BELAY_NOT_FOUND, "cannot open '%.300s': %s", path, strerror(errno));
    }
    /* Allocate the whole size if it is known: growing step by step would copy a large file many times. */
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size < out->max) {
        (void)buf_reserve(out, (size_t)st.st_size);
    }
    for (ssize_t n = 1; n != 0 && !out->failed && code == BELAY_OK;) {
        n = read(fd, piece, sizeof piece);
        if (n < 0 && errno != EINTR) {
            code = error_set(err, BELAY_BAD_CONTENT, "cannot read '%.300s': %s", path, strerror(errno));
        } else if (n > 0) {
            buf_add(out, piece, (size_t)n);
        }
    }
    if (code == BELAY_OK && out->failed) {
        code = error_set(err, BELAY_BAD_CONTENT, "'%.300s' is larger than %zu MB", path, out->max >> 20);
    }
    if (!is_input) {
        (void)close(fd);
    }
    return code;
}

/* Whether standard output is a pipe whose reader has closed it. */
static bool is_pipe_closed(void)
{
    struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };

    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

int cli_finish(const struct cli_context *context, int code)
{
    int reason;

    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return code;
    }
    reason = errno;
    clearerr(stdout);
    /* A reader that closed the pipe (head, less) needs no message. */
    if (reason != EPIPE && !is_pipe_closed()) {
        (void)cli_fail(context, BELAY_UNKNOWN, "cannot write to standard output: %s",
                       reason == 0 ? "an earlier write failed" : strerror(reason));
    }
    return code == CLI_OK ? CLI_UNKNOWN : code;
}
