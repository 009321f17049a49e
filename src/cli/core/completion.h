/* Shared by the completion scripts of the three shells. */
#ifndef CLI_CORE_COMPLETION_H
#define CLI_CORE_COMPLETION_H

#include <stdio.h>

#include "cli/core/cli.h"

/* The length of the first word of a command's name, and its second word; NULL: it has one word. */
size_t completion_first_word(const struct cli_command *command);
const char *completion_second_word(const struct cli_command *command);
/* True if no command before cli_commands[i] has the same first word. */
bool completion_begins_group(size_t i);
/* The description of a first word: the summary of the command, or of all commands that begin with it. */
const char *completion_summary(const struct cli_command *command);

/* True if the last argument is a file. */
bool completion_takes_file(const struct cli_command *command);
/* "a b c" of "a|b|c". */
void completion_put_choices(FILE *file, const char *choices);

/* Calls put() for the options of every command, then for each group of options once: commands share groups. */
void completion_each_group(FILE *file, void (*put)(FILE *file, const struct option_def *defs));

#endif
