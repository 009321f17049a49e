/* belay help, belay completion and belay version: what the program prints about itself. */
#include <string.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/core/help.h"

/* "locks list" comes as two arguments. Returns `out`, or the first one if they are too long to name a command. */
static const char *command_name(const struct options *options, char out[64])
{
    int n = snprintf(out, 64, "%s%s%s", options->args[0], options->n_args > 1 ? " " : "",
                     options->n_args > 1 ? options->args[1] : "");

    return n < 64 ? out : options->args[0];
}

static const struct cli_command *find_command(const struct options *options)
{
    char name[64];

    return cli_find_command(command_name(options, name));
}

static void print_names(void)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        (void)puts(cli_commands[i]->name);
    }
}

static int fail_unknown(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    char name[64];

    (void)options_unknown_command(command_name(options, name), err);
    err->code = BELAY_NOT_FOUND; /* 64 is for mistakes in the command line of 'help' itself */
    return cli_error(context, err);
}

static int exec_help(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    const struct cli_command *command = options->n_args == 0 ? NULL : find_command(options);

    if (options_has(options, "markdown")) {
        help_markdown(stdout);
    } else if (options_has(options, "list")) {
        print_names();
    } else if (options->n_args > 0 && command == NULL) {
        if (options->n_args == 1 && cli_group_summary(options->args[0]) != NULL) {
            help_overview(stdout, options->args[0]);
            return CLI_OK;
        }
        return fail_unknown(context, options, err);
    } else if (options_has(options, "man")) {
        help_man(stdout, command);
    } else if (command == NULL) {
        help_overview(stdout, NULL);
    } else {
        help_command(stdout, command);
    }
    return CLI_OK;
}

static const struct option_group help_group = {
    "Options", OPTION_TABLE(OPT_FLAG("list", "print the command names, one per line"),
                            OPT_FLAG("man", "print the man page"),
                            OPT_FLAG("markdown", "print the reference of all commands (docs/cli.md)"))
};

const struct cli_command cmd_help = {
    .name = "help",
    .synopsis = "[COMMAND]",
    .summary = "show how to use a command",
    .about = "Shows the description, options, exit codes and examples of COMMAND, as 'belay COMMAND --help' "
             "does. Without COMMAND it lists the commands.",
    .groups = { &help_group },
    .max_args = 2,
    .exits = { { 0, "shown" }, { 66, "there is no such command" } },
    .examples = { { "belay help acquire", "how to use 'belay acquire'" },
                  { "belay help --man acquire | man -l -", "the same as a man page" } },
    .exec = exec_help,
};

static int exec_completion(struct cli_context *context, const struct options *options,
                           struct belay_error *err)
{
    const char *shell = options->args[0];

    (void)err;
    if (strcmp(shell, "bash") == 0) {
        completion_bash(stdout);
    } else if (strcmp(shell, "zsh") == 0) {
        completion_zsh(stdout);
    } else if (strcmp(shell, "fish") == 0) {
        completion_fish(stdout);
    } else {
        return cli_fail(context, BELAY_INVALID, "unknown shell '%s': use bash, zsh or fish", shell);
    }
    return CLI_OK;
}

const struct cli_command cmd_completion = {
    .name = "completion",
    .synopsis = "bash|zsh|fish",
    .summary = "print the completion script for a shell",
    .about = "Prints a script that completes commands, options, profile names and the keys of held locks. "
             "Keys are read from the store that --store and --config on the command line name, and are "
             "inserted as one word whatever characters they contain.",
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "printed" }, { 64, "unknown shell" } },
    .examples = { { "source <(belay completion bash)", "enable it in this bash" },
                  { "belay completion fish > ~/.config/fish/completions/belay.fish",
                    "enable it in every fish" } },
    .exec = exec_completion,
};

static int exec_version(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    (void)options;
    (void)err;
    if (context->json) {
        (void)printf("{\"version\":\"%s\"}\n", belay_version());
    } else {
        (void)printf("belay %s\n", belay_version());
    }
    return CLI_OK;
}

const struct cli_command cmd_version = {
    .name = "version",
    .synopsis = "",
    .summary = "show the version",
    .about = "Prints the version of belay.",
    .exits = { { 0, "printed" } },
    .examples = { { "belay version", "print the version" }, { "belay version --json", "print it as JSON" } },
    .exec = exec_version,
};
