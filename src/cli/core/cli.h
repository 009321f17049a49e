/*
 * What every command of the program gets and gives.
 *
 * A command is one file that exports one const entry. Standard output is for
 * what was asked for, standard error for everything else; with --json both hold
 * JSON only. SIGPIPE is ignored: whoever starts another program puts
 * context->old_sigpipe back first.
 */
#ifndef CLI_CORE_CLI_H
#define CLI_CORE_CLI_H

#include <signal.h>
#include <stdio.h>

#include "belay.h"
#include "cli/core/options.h"

/* Exit codes; docs/cli.md and every man page list them. */
enum cli_exit {
    CLI_OK = 0,
    CLI_USAGE = 64,
    CLI_DATA = 65,
    CLI_NOT_FOUND = 66,
    CLI_UNREACHABLE = 69,
    CLI_BUG = 70,
    CLI_UNKNOWN = 74, /* it may have happened; also: standard output could not be written */
    CLI_HELD = 75,
    CLI_LOST = 76, /* while COMMAND ran */
    CLI_DENIED = 77,
    CLI_CONFIG = 78
};

struct cli_context {
    const char *store_url; /* of --store; NULL: what the configuration says */
    const char *state_store_url;
    const char *config_path;
    const char *metrics; /* of --metrics; NULL */
    bool json;
    bool quiet;
    bool verbose;
    bool color_out;
    bool color_err;
    struct belay_config *config; /* owned; use cli_config() */
    struct belay_client *client; /* owned; use cli_client() */
    struct telemetry *telemetry; /* owned; NULL: events go nowhere else */
    struct belay_cancel *cancel; /* owned; use cli_cancel() */
    struct sigaction old_sigpipe;
};

enum { CLI_GROUPS_MAX = 5, CLI_EXITS_MAX = 10, CLI_EXAMPLES_MAX = 3 };

struct cli_example {
    const char *line;
    const char *says; /* what it does; a phrase */
};

struct cli_exit_note {
    int code;
    const char *says;
};

struct cli_command {
    const char *name;     /* "acquire", or two words: "locks list" */
    const char *synopsis; /* what follows the name: "[OPTIONS] KEY" */
    const char *summary;  /* a phrase of at most 50 letters */
    const char *about;    /* paragraphs, with an empty line between two */
    const struct option_group *groups[CLI_GROUPS_MAX + 1];
    size_t min_args;
    size_t max_args;
    bool takes_key;     /* shells offer keys for its arguments */
    bool takes_command; /* what follows "--" is a command and left alone */
    struct cli_exit_note exits[CLI_EXITS_MAX + 1];
    struct cli_example examples[CLI_EXAMPLES_MAX + 1];
    int (*exec)(struct cli_context *context, const struct options *options); /* returns the exit code */
};

/* In the order in which help lists them; NULL at the end. */
extern const struct cli_command *const cli_commands[];

/* NULL if there is none of that name. */
const struct cli_command *cli_find_command(const char *name);
/* True for the first word of a command of two. */
bool cli_is_group(const char *word);

/* ---- what a command needs ---------------------------------------------- */

/* The configuration, read when first asked for. Borrowed. */
enum belay_code cli_config(struct cli_context *context, const struct belay_config **out_config,
                           struct belay_error *err);

/* The store, opened when first asked for. Borrowed. */
enum belay_code cli_client(struct cli_context *context, struct belay_client **out_client,
                           struct belay_error *err);

/*
 * From now on SIGINT, SIGTERM and SIGHUP request this cancellation instead of
 * ending the process. Borrowed; NULL if there is no memory.
 */
struct belay_cancel *cli_cancel(struct cli_context *context);
/* The signal that did; 0: none. */
int cli_signal(void);
/* Put the signals back as they were before cli_cancel(). */
void cli_restore_signals(struct cli_context *context);

/* Close the client, if there is one; with --verbose, say which server it went through. */
void cli_close(struct cli_context *context);

/* ---- what a command says ----------------------------------------------- */

/* The exit code for a code of the library; BELAY_CANCELLED is 128 and the signal. */
int cli_exit_code(enum belay_code code);

/* Say on standard error what went wrong, as text or JSON; returns the exit code. */
int cli_error(const struct cli_context *context, const struct belay_error *err);
int cli_fail(const struct cli_context *context, enum belay_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "belay: TEXT", unless --quiet or --json. */
void cli_note(const struct cli_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A second line under an error or a note, unless --quiet or --json. */
void cli_hint(const struct cli_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "belay: warning: TEXT", unless --quiet; with --json one object {"warning": TEXT}. */
void cli_warn(const struct cli_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Print a line of JSON and free it; NULL is want of memory. Returns the exit code. */
int cli_print_line(const struct cli_context *context, char *line);

/* Write out standard output. Returns `code`, or CLI_UNKNOWN if that failed. */
int cli_finish(const struct cli_context *context, int code);

#endif
