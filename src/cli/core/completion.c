/*
 * Completion scripts. Commands and options are part of the script; keys and profile names are read at completion
 * time by running the belay on the command line.
 */
#include "cli/core/completion.h"

#include <assert.h>
#include <string.h>

size_t completion_first_word(const struct cli_command *command)
{
    return strcspn(command->name, " ");
}

const char *completion_second_word(const struct cli_command *command)
{
    const char *space = strchr(command->name, ' ');

    return space == NULL ? NULL : space + 1;
}

bool completion_begins_group(size_t i)
{
    size_t n = completion_first_word(cli_commands[i]);

    for (size_t k = 0; k < i; k++) {
        if (completion_first_word(cli_commands[k]) == n &&
            strncmp(cli_commands[k]->name, cli_commands[i]->name, n) == 0) {
            return false;
        }
    }
    return true;
}

const char *completion_summary(const struct cli_command *command)
{
    char group[32];
    const char *summary;

    (void)snprintf(group, sizeof group, "%.*s", (int)completion_first_word(command), command->name);
    summary = cli_group_summary(group);
    assert((summary != NULL) == (completion_second_word(command) != NULL));
    return summary == NULL ? command->summary : summary;
}

bool completion_takes_file(const struct cli_command *command)
{
    size_t n = strlen(command->synopsis);

    return command->max_args == 1 && !command->takes_key &&
           ((n >= 4 && strcmp(command->synopsis + n - 4, "FILE") == 0) ||
            (n >= 6 && strcmp(command->synopsis + n - 6, "[FILE]") == 0));
}

void completion_put_choices(FILE *file, const char *choices)
{
    for (; *choices != '\0'; choices++) {
        (void)fputc(*choices == '|' ? ' ' : *choices, file);
    }
}

/* True if no command before cli_commands[i] has its option group number `g`. */
static bool is_first_use(size_t i, size_t g)
{
    for (size_t k = 0; k < i; k++) {
        for (size_t h = 0; cli_commands[k]->groups[h] != NULL; h++) {
            if (cli_commands[k]->groups[h] == cli_commands[i]->groups[g]) {
                return false;
            }
        }
    }
    return true;
}

void completion_each_group(FILE *file, void (*put)(FILE *file, const struct option_def *defs))
{
    put(file, global_options);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        for (size_t g = 0; cli_commands[i]->groups[g] != NULL; g++) {
            if (is_first_use(i, g)) {
                put(file, cli_commands[i]->groups[g]->defs);
            }
        }
    }
}
