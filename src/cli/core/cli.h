/*
 * Shared by the commands.
 *
 * A command is one const entry in a cmd_*.c file. Results go to standard output, everything else to standard
 * error; with --json both contain only JSON. SIGPIPE is ignored: code that executes another program restores
 * context->old_sigpipe first.
 */
#ifndef CLI_CORE_CLI_H
#define CLI_CORE_CLI_H

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/buf.h"
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
    CLI_UNKNOWN = 74, /* the change may have happened; also: standard output cannot be written */
    CLI_HELD = 75,
    CLI_LOST = 76, /* while COMMAND ran */
    CLI_DENIED = 77,
    CLI_CONFIG = 78
};

struct cli_context {
    const char *store_url; /* of --store; NULL: as configured */
    const char *state_store_url;
    const char *config_path;
    const char *metrics; /* of --metrics; NULL */
    bool json;
    bool quiet;
    bool verbose;
    bool color_out;
    bool color_err;
    bool is_new_store;           /* its file did not exist when the client was opened */
    struct belay_config *config; /* owned; use cli_config() */
    bool is_locking_disabled;    /* as the configuration says */
    struct belay_client *client; /* owned; use cli_client() */
    atomic_int client_users;     /* threads that may still use it at the end, see cli_client_entered() */
    struct telemetry *telemetry; /* owned; NULL: none is configured */
    struct belay_cancel *cancel; /* owned; use cli_cancel() */
    struct sigaction old_sigpipe;
};

enum { CLI_GROUPS_MAX = 5, CLI_EXITS_MAX = 11, CLI_EXAMPLES_MAX = 5 };

struct cli_example {
    const char *line;
    const char *says; /* a phrase */
};

struct cli_exit_note {
    int code;
    const char *says;
};

/* clang-format off */
#define CLI_EXIT_USAGE { 64, "the command line is wrong" }
#define CLI_EXIT_NO_STORE { 66, "the path of the store that was given does not exist" }
#define CLI_EXIT_UNREACHABLE { 69, "the store is unreachable" }
#define CLI_EXIT_CONFIG { 78, "the configuration is wrong" }
/* clang-format on */

/* For max_args of a command that takes several keys: the library says how many are too many. */
#define CLI_MANY_KEYS SIZE_MAX

struct cli_command {
    const char *name;     /* "acquire", or two words: "locks list" */
    const char *synopsis; /* follows the name: "[OPTIONS] KEY" */
    const char *summary;  /* a phrase of at most 50 characters */
    const char *about;    /* paragraphs, separated by empty lines */
    const struct option_group *groups[CLI_GROUPS_MAX + 1];
    size_t min_args;
    size_t max_args;
    bool takes_key;     /* shells complete its argument with keys */
    bool takes_command; /* the words after "--" are a command */
    struct cli_exit_note exits[CLI_EXITS_MAX + 1];
    struct cli_example examples[CLI_EXAMPLES_MAX + 1];
    /* Returns the exit code, after it has printed its errors. `err` is empty; the caller releases it. */
    int (*exec)(struct cli_context *context, const struct options *options, struct belay_error *err);
};

/* In the order in which help lists them; NULL at the end. */
extern const struct cli_command *const cli_commands[];

/* NULL if there is no such command. */
const struct cli_command *cli_find_command(const char *name);
/* The summary of the commands that begin with this word; NULL: no command of two words does. */
const char *cli_group_summary(const char *word);

/* ---- cli.c: configuration and store ------------------------------------- */

/* The user of this process, by its user id, not by the environment, which anyone can set. */
void cli_user_name(char *out, size_t size);

/* The configuration, loaded by the first call. Borrowed. */
enum belay_code cli_config(struct cli_context *context, const struct belay_config **out_config,
                           struct belay_error *err);

/* The URL of the store: of --store, or as configured. NULL: there is none, or the configuration is wrong. */
const char *cli_store_url(struct cli_context *context);

/* The client, opened by the first call. Borrowed. */
enum belay_code cli_client(struct cli_context *context, struct belay_client **out_client,
                           struct belay_error *err);

/* The same for a command that only reads: BELAY_NOT_FOUND if the path that was given has no directory. */
enum belay_code cli_existing_client(struct cli_context *context, struct belay_client **out_client,
                                    struct belay_error *err);

/*
 * Around the use of the client by a thread that is not joined. If such a thread is still blocked in the store at the
 * end, the process exits without closing the client.
 */
void cli_client_entered(struct cli_context *context);
void cli_client_left(struct cli_context *context);

/*
 * Close the client and telemetry, if open. With --verbose, name the server that the client used. False: the client is
 * still in use, so only _exit() may follow.
 */
bool cli_close(struct cli_context *context);

/* ---- cli_signals.c --------------------------------------------------------- */

/*
 * From now on SIGINT, SIGTERM and SIGHUP request this cancellation instead of ending the process. Borrowed; NULL
 * if out of memory.
 */
struct belay_cancel *cli_cancel(struct cli_context *context);
/*
 * Between these calls, while a lock is waited for: if the store does not answer within a second after a signal, a hint
 * is printed, and a second signal ends the process at once. What the store was asked to do may happen then.
 */
void cli_allow_leaving(void);
void cli_forbid_leaving(void);
/* The signal that was caught; 0: none. */
int cli_signal(void);
/* Undo cli_cancel(). */
void cli_restore_signals(struct cli_context *context);

/* ---- cli_messages.c ------------------------------------------------------- */

/* The exit code for a code of the library; BELAY_CANCELLED is 128 plus the signal. */
int cli_exit_code(enum belay_code code);

/* Print the error to standard error, as text or JSON; returns the exit code. */
int cli_error(const struct cli_context *context, const struct belay_error *err);
int cli_fail(const struct cli_context *context, enum belay_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "belay: TEXT", unless --quiet or --json. */
void cli_note(const struct cli_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A second line under an error or a note, unless --quiet or --json. */
void cli_hint(const struct cli_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "belay: warning: TEXT"; with --json one object {"warning": TEXT}. Not with --quiet, unless locking is switched off. */
void cli_warn(const struct cli_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Warn that locking is switched off, unless a warning has said so already. */
void cli_warn_locking_off(const struct cli_context *context);

/*
 * Ask for confirmation, unless --yes is given. Only "yes" confirms, so that a stray key press changes nothing. `what`
 * completes "add --yes to ..." if there is no terminal.
 */
#define CLI_YES_OPTION OPT_FLAG("yes", "do not ask for confirmation; required without a terminal")
enum belay_code cli_confirm(const struct cli_context *context, const struct options *options,
                            const char *what, struct belay_error *err);

/* Print a line of JSON and free it; NULL: out of memory. Returns the exit code. */
int cli_print_line(const struct cli_context *context, char *line);

/*
 * Read a whole file, or standard input for "-", into `out`, whose limit is the largest file allowed. BELAY_NOT_FOUND: it
 * cannot be opened. After an error the caller releases `out`, too.
 */
enum belay_code cli_read_file(const char *path, struct buf *out, struct belay_error *err);

/* Flush standard output. Returns `code`, or CLI_UNKNOWN if that failed. */
int cli_finish(const struct cli_context *context, int code);

#endif
