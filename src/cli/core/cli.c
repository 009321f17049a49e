#include "cli/core/cli.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/error.h"
#include "base/store_url.h"
#include "base/text.h"
#include "cli/output/print.h"
#include "telemetry/telemetry.h"
#include "json/json_write.h"

/* How a warning about the kill switch begins. It is never left out: a lock that protects nothing is no detail (S0.9). */
#define LOCKING_OFF "locking is switched off"
static atomic_bool has_said_off;

/* ---- configuration and store ------------------------------------------- */

enum belay_code cli_config(struct cli_context *context, const struct belay_config **out_config,
                           struct belay_error *err)
{
    if (context->config == NULL) {
        enum belay_code code = belay_config_load(context->config_path, &context->config, err);

        if (code != BELAY_OK) {
            return code;
        }
        context->is_locking_disabled =
            strcmp(belay_config_get(context->config, "locking_enabled"), "false") == 0;
    }
    *out_config = context->config;
    return BELAY_OK;
}

static void on_client_warning(void *context, const char *text)
{
    cli_warn(context, "%s", text);
}

static void on_client_event(void *context, const struct belay_event *event)
{
    const struct cli_context *cli = context;

    if (cli->verbose) {
        print_event(stderr, event, cli->json, cli->color_err);
    }
    telemetry_event(cli->telemetry, event);
}

static bool traceparent(void *context, const char *lock_id, bool is_held, char out[BELAY_TRACEPARENT_SIZE])
{
    const struct cli_context *cli = context;

    return telemetry_traceparent(cli->telemetry, lock_id, is_held, out);
}

static bool is_missing_file(const char *store_url)
{
    char *path = store_url == NULL ? NULL : store_url_place(store_url, "sqlite:");
    bool is_missing = path != NULL && access(path, F_OK) != 0 && errno == ENOENT;

    free(path);
    return is_missing;
}

enum belay_code cli_client(struct cli_context *context, struct belay_client **out_client,
                           struct belay_error *err)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct telemetry_options telemetry = { .metrics = context->metrics,
                                           .service = "belay",
                                           .traceparent = getenv("TRACEPARENT"),
                                           .on_warning = on_client_warning,
                                           .context = context };

    if (context->client == NULL) {
        enum belay_code code = cli_config(context, &options.config, err);

        if (code != BELAY_OK) {
            return code;
        }
        telemetry.config = options.config;
        code = telemetry_open(&telemetry, &context->telemetry, err);
        if (code != BELAY_OK) {
            return code;
        }
        options.store_url = context->store_url;
        context->is_new_store = is_missing_file(
            options.store_url == NULL ? belay_config_get(options.config, "store") : options.store_url);
        options.on_warning = on_client_warning;
        options.on_event = context->verbose || context->telemetry != NULL ? on_client_event : NULL;
        options.traceparent = context->telemetry == NULL ? NULL : traceparent;
        options.context = context;
        code = belay_client_open(&options, &context->client, err);
        if (code != BELAY_OK) {
            return code;
        }
    }
    *out_client = context->client;
    return BELAY_OK;
}

static bool is_store_configured(const struct cli_context *context)
{
    for (size_t i = 0; i < belay_config_count(context->config); i++) {
        struct belay_setting setting = belay_config_setting(context->config, i);

        if (strcmp(setting.name, "store") == 0) {
            return strcmp(setting.origin, "default") != 0;
        }
    }
    return false;
}

/* A path with a typo in it must not become an empty store. The default path may be new. */
static enum belay_code check_store_path(const struct cli_context *context, struct belay_error *err)
{
    const char *url =
        context->store_url != NULL ? context->store_url : belay_config_get(context->config, "store");
    char *path = url == NULL ? NULL : store_url_place(url, "sqlite:");
    char *slash = path == NULL ? NULL : strrchr(path, '/');
    enum belay_code code = BELAY_OK;

    if (slash != NULL && slash != path && !context->is_locking_disabled &&
        (context->store_url != NULL || is_store_configured(context))) {
        *slash = '\0';
        if (access(path, F_OK) != 0 && errno == ENOENT) {
            code = error_set(err, BELAY_NOT_FOUND,
                             "there is no store at '%.200s': the directory '%.200s' does not exist; "
                             "'belay acquire' and 'belay run' create a store",
                             url, path);
        }
    }
    free(path);
    return code;
}

enum belay_code cli_existing_client(struct cli_context *context, struct belay_client **out_client,
                                    struct belay_error *err)
{
    const struct belay_config *config;
    enum belay_code code = cli_config(context, &config, err);

    if (code == BELAY_OK) {
        code = check_store_path(context, err);
    }
    return code == BELAY_OK ? cli_client(context, out_client, err) : code;
}

void cli_client_entered(struct cli_context *context)
{
    atomic_fetch_add(&context->client_users, 1);
}

void cli_client_left(struct cli_context *context)
{
    atomic_fetch_sub(&context->client_users, 1);
}

/* ---- signals ------------------------------------------------------------ */

enum { LEAVE_HINT_S = 1 };

static const int ending_signals[] = { SIGINT, SIGTERM, SIGHUP };
enum { N_ENDING = sizeof ending_signals / sizeof ending_signals[0] };

static volatile sig_atomic_t caught_signal;
static struct belay_cancel *signal_cancel;
static struct sigaction old_actions[N_ENDING];

static volatile sig_atomic_t may_leave;

static void catch_signal(int number)
{
    int saved = errno;

    if (may_leave && caught_signal == 0) {
        (void)alarm(LEAVE_HINT_S);
    } else if (may_leave) {
        (void)signal(number, SIG_DFL);
        (void)raise(number); /* it ends the process when this handler returns */
    }
    caught_signal = number;
    belay_cancel_request(signal_cancel);
    errno = saved;
}

struct belay_cancel *cli_cancel(struct cli_context *context)
{
    struct sigaction action;

    if (context->cancel != NULL) {
        return context->cancel;
    }
    context->cancel = belay_cancel_new();
    if (context->cancel == NULL) {
        return NULL;
    }
    assert(signal_cancel == NULL); /* one context per process */
    signal_cancel = context->cancel;
    memset(&action, 0, sizeof action);
    action.sa_handler = catch_signal;
    for (size_t i = 0; i < N_ENDING; i++) {
        (void)sigaction(ending_signals[i], NULL, &old_actions[i]);
        /* A signal that nohup or a background job ignores stays ignored. */
        if (old_actions[i].sa_handler != SIG_IGN) {
            (void)sigaction(ending_signals[i], &action, NULL);
        }
    }
    return context->cancel;
}

static void hint_to_leave(int number)
{
    static const char text[] =
        "belay: interrupted: waiting for the store to answer; interrupt again to leave at once\n";
    int saved = errno;

    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    errno = saved;
}

void cli_allow_leaving(void)
{
    struct sigaction action = { .sa_handler = hint_to_leave, .sa_flags = SA_RESTART };

    (void)sigaction(SIGALRM, &action, NULL);
    may_leave = 1;
}

void cli_forbid_leaving(void)
{
    may_leave = 0;
    (void)alarm(0);
}

int cli_signal(void)
{
    return caught_signal;
}

void cli_restore_signals(struct cli_context *context)
{
    if (context->cancel == NULL) {
        return;
    }
    for (size_t i = 0; i < N_ENDING; i++) {
        (void)sigaction(ending_signals[i], &old_actions[i], NULL);
    }
    signal_cancel = NULL;
    belay_cancel_free(context->cancel);
    context->cancel = NULL;
}

/* ---- messages ----------------------------------------------------------- */

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
        return 128 + (caught_signal == 0 ? SIGINT : caught_signal);
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

static void vprint_message(const char *style, const char *lead, const char *format, va_list args)
{
    char text[4096];

    (void)vsnprintf(text, sizeof text, format, args);
    print_message(style, lead, text);
}

void cli_note(const struct cli_context *context, const char *format, ...)
{
    va_list args;

    if (context->quiet || context->json) {
        return;
    }
    va_start(args, format);
    vprint_message("", "belay: ", format, args);
    va_end(args);
}

void cli_hint(const struct cli_context *context, const char *format, ...)
{
    va_list args;

    if (context->quiet || context->json) {
        return;
    }
    va_start(args, format);
    vprint_message("", "  ", format, args);
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
    atomic_store(&has_said_off, atomic_load(&has_said_off) || is_off);
    if (context->json) {
        char *line = wire_line(json_pack("{s:o}", "warning", wire_text(text)));

        (void)fprintf(stderr, "%s\n", line == NULL ? "{}" : line);
        free(line);
        return;
    }
    print_message(print_style(context->color_err, "yellow"), "belay: warning: ", text);
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

bool cli_close(struct cli_context *context)
{
    long pid = context->client == NULL ? 0 : belay_client_server_pid(context->client);
    bool is_used = atomic_load(&context->client_users) > 0;

    if (context->verbose && pid != 0) {
        cli_note(context, "used the server with process id %ld, which serves %s", pid,
                 belay_client_store_url(context->client));
    }
    if (context->client != NULL && context->is_locking_disabled && !atomic_load(&has_said_off)) {
        cli_warn(context, LOCKING_OFF ": no lock protects anything");
    }
    if (!is_used) {
        belay_client_close(context->client);
        context->client = NULL;
    }
    telemetry_close(context->telemetry);
    context->telemetry = NULL;
    return !is_used;
}
