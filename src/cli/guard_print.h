/* What the commands about applications and databases share. */
#ifndef CLI_GUARD_PRINT_H
#define CLI_GUARD_PRINT_H

#include "cli/cli.h"

/* Print the line and free it; NULL is want of memory. Returns the exit code. */
int guard_print_line(const struct cli_context *context, char *line);
/* "name      value". */
void guard_print_row(const char *name, const char *value);

#endif
