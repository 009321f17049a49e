#include "cli/guard_print.h"

#include <stdlib.h>

#include "cli/print.h"

int guard_print_line(const struct cli_context *context, char *line)
{
    if (line == NULL) {
        return cli_fail(context, BELAY_NO_MEMORY, "out of memory");
    }
    (void)printf("%s\n", line);
    free(line);
    return CLI_OK;
}

void guard_print_row(const char *name, const char *value)
{
    (void)printf("%-14s", name);
    print_safe(stdout, value);
    (void)fputc('\n', stdout);
}
