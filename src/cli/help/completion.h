/* The tables of the commands as completion scripts. */
#ifndef CLI_HELP_COMPLETION_H
#define CLI_HELP_COMPLETION_H

#include <stdio.h>

void completion_bash(FILE *file);
void completion_zsh(FILE *file);
void completion_fish(FILE *file);

#endif
