/* The list of locks, once. */
#ifndef CLI_COMMANDS_CMD_LIST_H
#define CLI_COMMANDS_CMD_LIST_H

#include "cli/core/cli.h"

/* Print it as a table, as JSON or as keys, as the context says. Returns the exit code. */
int list_locks(struct cli_context *context, struct belay_client *client, const struct belay_query *query,
               struct belay_error *err);

#endif
