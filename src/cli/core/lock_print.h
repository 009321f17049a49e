/* One lock, for people and for programs. */
#ifndef CLI_CORE_LOCK_PRINT_H
#define CLI_CORE_LOCK_PRINT_H

#include "base/buf.h"
#include "cli/core/cli.h"

/* The lock as one line of JSON on standard output. Returns the exit code. */
int lock_print_json(const struct cli_context *context, const struct belay_info *info);

/* Everything that is known of it, a line each. */
void lock_print_card(const struct cli_context *context, const struct belay_info *info);

/* "active", "stale", "expired", "released: failed". */
void lock_format_state(struct buf *out, const struct belay_info *info);

/* `text` so that a shell reads it as one word. */
void shell_quote(struct buf *out, const char *text);

/* "belay VERB [--store URL] KEY --id ID", to be typed as it stands. */
void lock_format_command(struct buf *out, const struct cli_context *context, const char *verb,
                         const char *key, const char *lock_id);

#endif
