/* Ending somebody else's lock: shows the holder, asks, ends that holder's lock only. */
#ifndef CLI_COMMANDS_UNLOCK_H
#define CLI_COMMANDS_UNLOCK_H

#include "cli/core/cli.h"

extern const struct option_group unlock_group; /* --force, --reason, --yes */

/* Who does it, for the record: user@host. */
void unlock_actor(char *out, size_t size);

/* The lock of `key`, if it is held and its id is ours to know. The caller frees *out_info also after an error. */
enum belay_code unlock_find_held(struct belay_client *client, const char *key, struct belay_info **out_info,
                                 struct belay_error *err);

int unlock_exec(struct cli_context *context, const struct options *options);

#endif
