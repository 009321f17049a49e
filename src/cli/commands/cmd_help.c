#include <string.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/help/help.h"

/* The two words of "locks list" may come as two arguments. */
static const struct cli_command *find(const struct options *options)
{
    char name[64];
    int n = snprintf(name, sizeof name, "%s%s%s", options->args[0], options->n_args > 1 ? " " : "",
                     options->n_args > 1 ? options->args[1] : "");

    return n < (int)sizeof name ? cli_find_command(name) : NULL;
}

/* What is below "locks", for who asks for the group alone. */
static void print_group(const char *group)
{
    (void)printf("Commands of 'belay %s':\n", group);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        const char *name = cli_commands[i]->name;
        size_t n = strlen(group);

        if (strncmp(name, group, n) == 0 && name[n] == ' ') {
            (void)printf("  %-20s  %s\n", name, cli_commands[i]->summary);
        }
    }
}

static void print_names(void)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        (void)puts(cli_commands[i]->name);
    }
}

static int exec_help(struct cli_context *context, const struct options *options)
{
    const struct cli_command *command = options->n_args == 0 ? NULL : find(options);

    if (options_has(options, "markdown")) {
        help_markdown(stdout);
    } else if (options_has(options, "list")) {
        print_names();
    } else if (options->n_args > 0 && command == NULL) {
        if (options->n_args == 1 && cli_is_group(options->args[0])) {
            print_group(options->args[0]);
            return CLI_OK;
        }
        return cli_fail(context, BELAY_NOT_FOUND, "no help for '%s': there is no such command",
                        options->args[0]);
    } else if (options_has(options, "man")) {
        help_man(stdout, command);
    } else if (command == NULL) {
        help_overview(stdout);
    } else {
        help_command(stdout, command);
    }
    return CLI_OK;
}

static const struct option_def defs[] = {
    { .name = "list", .kind = OPTION_FLAG, .help = "print the names of the commands, one on each line" },
    { .name = "man", .kind = OPTION_FLAG, .help = "print the man page instead" },
    { .name = "markdown", .kind = OPTION_FLAG, .help = "print the reference of all commands, docs/cli.md" },
    { .name = NULL },
};
static const struct option_group group = { "Options", defs };

const struct cli_command cmd_help = {
    .name = "help",
    .synopsis = "[COMMAND]",
    .summary = "show how to use a command",
    .about = "Shows what a command does, its options, exit codes and examples: the same as COMMAND --help. "
             "Without COMMAND it lists all of them.",
    .groups = { &group },
    .max_args = 2,
    .exits = { { 0, "done" }, { 66, "there is no such command" } },
    .examples = { { "belay help acquire", "how to use 'belay acquire'" },
                  { "belay help --man acquire | man -l -", "the same as a man page" } },
    .exec = exec_help,
};
