/* Print one lock, as text or JSON. */
#ifndef CLI_CORE_LOCK_PRINT_H
#define CLI_CORE_LOCK_PRINT_H

#include "base/buf.h"
#include "cli/core/cli.h"

/* The lock as one line of JSON on standard output. Returns the exit code. */
int lock_print_json(const struct cli_context *context, const struct belay_info *info);

/* All fields of the lock, one per line. */
void lock_print_card(const struct cli_context *context, const struct belay_info *info);

/* "active", "stale", "expired", "released: failed". */
void lock_format_state(struct buf *out, const struct belay_info *info);

/* Add `text` quoted for a shell. */
void shell_quote(struct buf *out, const char *text);

/* Add "belay VERB [--store URL] KEY --id ID", quoted for a shell. */
void lock_format_command(struct buf *out, const struct cli_context *context, const char *verb,
                         const char *key, const char *lock_id);

#endif
