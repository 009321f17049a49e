/* Ending somebody else's lock: shows the holder, asks, ends that holder's lock only. */
#ifndef CLI_UNLOCK_H
#define CLI_UNLOCK_H

#include "cli/cli.h"

extern const struct option_group unlock_group; /* --force, --reason, --yes */

int unlock(struct cli_context *context, const struct options *options);

#endif
