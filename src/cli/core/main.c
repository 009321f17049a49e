#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/core/cli.h"
#include "cli/core/help.h"
#include "cli/output/print.h"

/* If the command line cannot be parsed, its error is JSON if --json is anywhere in it. */
static bool wants_json(char **argv)
{
    for (; *argv != NULL && strcmp(*argv, "--") != 0; argv++) {
        if (strcmp(*argv, "--json") == 0) {
            return true;
        }
    }
    return false;
}

static void read_globals(struct cli_context *context, const struct options *options)
{
    const char *term = getenv("TERM");
    bool may_color = !options_has(options, "no-color") && env_text("NO_COLOR") == NULL &&
                     (term == NULL || strcmp(term, "dumb") != 0);

    context->store_url = options_text(options, "store");
    context->state_store_url = options_text(options, "state-store");
    context->config_path = options_text(options, "config");
    context->metrics = options_text(options, "metrics");
    context->json = options_has(options, "json");
    context->quiet = options_has(options, "quiet");
    context->verbose = options_has(options, "verbose");
    context->color_out = may_color && isatty(STDOUT_FILENO);
    context->color_err = may_color && isatty(STDERR_FILENO);
}

static int usage_error(const struct cli_context *context, const struct options *options,
                       const struct belay_error *err)
{
    int code = cli_error(context, err);

    if (options->command != NULL || options->group != NULL) {
        cli_hint(context, "try 'belay %s --help'",
                 options->command == NULL ? options->group : options->command->name);
    } else {
        cli_hint(context, "try 'belay --help'");
    }
    return code;
}

static int run_parsed(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    if (options_has(options, "help")) {
        if (options->command != NULL) {
            help_command(stdout, options->command);
        } else {
            help_overview(stdout, options->group);
        }
        return CLI_OK;
    }
    if (options_has(options, "version")) {
        (void)printf("belay %s\n", belay_version());
        return CLI_OK;
    }
    if (options->command == NULL) {
        help_overview(stderr, NULL);
        return CLI_USAGE;
    }
    return options->command->exec(context, options, err);
}

int main(int argc, char **argv)
{
    struct cli_context context = { 0 };
    struct options options = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    struct sigaction ignore = { 0 };
    int code;

    /*
     * Without statistics of its memory SQLite takes no mutex for an allocation. Here, not in the
     * library: the setting is the whole process's.
     */
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    ignore.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &ignore, &context.old_sigpipe);
    if (options_parse(&options, argc, argv, &err) == BELAY_OK) {
        read_globals(&context, &options);
        code = run_parsed(&context, &options, &err);
    } else {
        context.json = wants_json(argv);
        code = usage_error(&context, &options, &err);
    }
    code = cli_finish(&context, code);
    cli_restore_signals(&context);
    if (!cli_close(&context)) {
        _exit(code); /* a thread is blocked in a store that does not answer: do not wait for it */
    }
    belay_config_free(context.config);
    options_release(&options);
    belay_error_release(&err);
    return code;
}
