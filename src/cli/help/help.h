/* The tables of the commands as text: for --help, as man pages, as Markdown. */
#ifndef CLI_HELP_HELP_H
#define CLI_HELP_HELP_H

#include <stdio.h>

#include "cli/core/cli.h"

void help_overview(FILE *file);
void help_command(FILE *file, const struct cli_command *command);

/* `command` NULL: the page of the program, belay(1). */
void help_man(FILE *file, const struct cli_command *command);
void help_markdown(FILE *file);

/* What is true of every command. */
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
