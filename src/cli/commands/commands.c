/* Find commands by name; commands.h lists them. */
#include <string.h>

#include "base/text.h"
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

bool cli_is_group(const char *word)
{
    size_t n = strlen(word);

    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (text_has_prefix(cli_commands[i]->name, word) && cli_commands[i]->name[n] == ' ') {
            return true;
        }
    }
    return false;
}
