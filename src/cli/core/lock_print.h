/* Print one lock, as text or JSON. */
#ifndef CLI_CORE_LOCK_PRINT_H
#define CLI_CORE_LOCK_PRINT_H

#include <jansson.h>

#include "base/buf.h"
#include "cli/core/cli.h"

/* The lock as one line of JSON on standard output. Returns the exit code. */
int lock_print_json(const struct cli_context *context, const struct belay_info *info);
/* The same for its holder; of several keys {"lock_id", "locks": [...]}. `info` has them, or none if locking is off. */
int lock_print_grant_json(const struct cli_context *context, const struct belay_info *info,
                          const char *const *keys, size_t n_keys);
/* That object, of locks that were made before; takes over the reference. */
int lock_print_locks_json(const struct cli_context *context, const char *lock_id, json_t *locks);

/*
 * All fields of the lock, one per line, with each of its holders. `is_grant`: for its holder, that is of several holders
 * only its own fields, and of several keys each with its token.
 */
void lock_print_card(const struct cli_context *context, const struct belay_info *info, bool is_grant);

/* "exclusive", "3 shared", "2/3 slots": with the number of holders. */
void lock_format_mode(struct buf *out, const struct belay_info *info);

/* "1. alice (run-1), for 4m, expires in 5m, token 7, id 0190...": holder number `i`, which is escaped. */
void lock_format_holder(struct buf *out, const struct belay_info *info, size_t i, int64_t now_unix_ms);

/* "active", "stale", "expired", "released: failed". */
void lock_format_state(struct buf *out, const struct belay_info *info);

/* Add `text` quoted for a shell. */
void shell_quote(struct buf *out, const char *text);

/* Add "belay VERB [--store URL] KEY... --id ID", quoted for a shell. */
void lock_format_command(struct buf *out, const struct cli_context *context, const char *verb,
                         const char *const *keys, size_t n_keys, const char *lock_id);

#endif
