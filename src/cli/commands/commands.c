/* Find commands by name; commands.h lists them. */
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/core/cli.h"

#define COMMAND_ENTRY(name) &cmd_##name,
const struct cli_command *const cli_commands[] = { CLI_COMMANDS(COMMAND_ENTRY) NULL };

const struct cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0) {
            return cli_commands[i];
        }
    }
    return NULL;
}

/* The first words of commands with two. */
static const struct {
    const char *name;
    const char *summary;
} groups[] = {
    { "locks", "list, show and release locks, by other names" },
    { "state", "read and write deployment state" },
    { "app", "register applications that share databases" },
    { "db", "stop and start shared databases" },
    { "auth", "make tokens for a server" },
    { "table", "create and examine a table of locks" },
    { "config", "show the configuration" },
};

const char *cli_group_summary(const char *word)
{
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if (strcmp(groups[i].name, word) == 0) {
            return groups[i].summary;
        }
    }
    return NULL;
}
