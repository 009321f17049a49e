/* The command tables as --help text, man pages, Markdown and completion scripts. */
#ifndef CLI_CORE_HELP_H
#define CLI_CORE_HELP_H

#include <stdio.h>

#include "cli/core/cli.h"

/* All commands, or those of one group, such as "state". */
void help_overview(FILE *file, const char *group);
void help_command(FILE *file, const struct cli_command *command);

/* `command` NULL: the page of the program itself, belay(1). */
void help_man(FILE *file, const struct cli_command *command);
void help_markdown(FILE *file);

/* Texts that hold for every command. */
struct help_pair {
    const char *term;
    const char *says;
};
extern const struct help_pair help_environment[];
extern const struct help_pair help_files[];
extern const struct help_pair help_exits[];
extern const char help_about[];

/* "--ttl D" into `out`. */
enum { HELP_TERM_SIZE = 80 };
char *help_term(char out[HELP_TERM_SIZE], const struct option_def *def);

/* Completion scripts. */
void completion_bash(FILE *file);
void completion_zsh(FILE *file);
void completion_fish(FILE *file);

#endif
