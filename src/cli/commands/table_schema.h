/* `belay table` on PostgreSQL. */
#ifndef CLI_COMMANDS_TABLE_SCHEMA_H
#define CLI_COMMANDS_TABLE_SCHEMA_H

#include "cli/core/cli.h"

/*
 * True if the store is PostgreSQL. *out_exit is not CLI_OK, and the error is printed, if an option does not apply to
 * the store.
 */
bool schema_is_meant(struct cli_context *context, const struct options *options, bool create, int *out_exit);

/* Create the schema, or describe it. Returns the exit code. */
int schema_exec(struct cli_context *context, const struct options *options, bool create,
                struct belay_error *err);

#endif
