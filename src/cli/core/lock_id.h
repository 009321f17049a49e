/* The lock id that a command line names: --id LOCK_ID, or --owner ID for a re-entrant profile. */
#ifndef CLI_CORE_LOCK_ID_H
#define CLI_CORE_LOCK_ID_H

#include "cli/core/cli.h"

#define ID_OR_OWNER                                                                                          \
    { .name = "id",                                                                                          \
      .kind = OPTION_TEXT,                                                                                   \
      .value = "LOCK_ID",                                                                                    \
      .help = "the lock id that 'belay acquire' printed" },                                                  \
    {                                                                                                        \
        .name = "owner", .kind = OPTION_TEXT, .value = "ID",                                                 \
        .help = "instead of --id, with a re-entrant profile: the owner that acquired the lock"               \
    }

#define ABOUT_OWNER                                                                                          \
    "With a re-entrant profile (execution, or the profile of the key) the owner is enough, if the "          \
    "credential is the one that acquired the lock: without a server, any local user; through a server, "     \
    "the same token."

/* False, and reported, unless exactly one of --id and --owner is given. */
bool has_lock_id(const struct cli_context *context, const struct options *options);

/* Opens the client. BELAY_INVALID: the profile of the lock is not re-entrant. */
enum belay_code read_lock_id(struct cli_context *context, const struct options *options, const char *key,
                             char out_id[BELAY_ID_MAX + 1], struct belay_error *err);

#endif
