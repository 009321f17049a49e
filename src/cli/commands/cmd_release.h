#ifndef CLI_COMMANDS_CMD_RELEASE_H
#define CLI_COMMANDS_CMD_RELEASE_H

#include "cli/core/cli.h"

/* Release KEY with --id and --outcome: for `release` and `locks release`. */
int release_exec(struct cli_context *context, const struct options *options);

#endif
