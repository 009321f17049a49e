/*
 * The lock that a command is about: --id LOCK_ID, or --owner ID for a re-entrant profile; or the lock that it inherits
 * from 'belay run', in BELAY_KEY, BELAY_LOCK_ID and BELAY_TOKEN. Of several keys, BELAY_TOKENS has a line "TOKEN KEY"
 * for each.
 */
#ifndef CLI_CORE_LOCK_ID_H
#define CLI_CORE_LOCK_ID_H

#include "cli/core/cli.h"

#define ID_OR_OWNER                                                                                          \
    OPT_TEXT("id", "LOCK_ID", "the lock id that 'belay acquire' printed"),                                   \
        OPT_TEXT("owner", "ID",                                                                              \
                 "instead of --id, with a re-entrant profile: the owner that acquired the lock")

#define ABOUT_OWNER                                                                                          \
    "With a re-entrant profile (execution, or the profile of the key) the owner is enough, if the "          \
    "credential is the one that acquired the lock: without a server, any local user; through a server, "     \
    "the same token."

/* False, and reported, unless exactly one of --id and --owner is given. */
bool has_lock_id(const struct cli_context *context, const struct options *options);

/* Opens the client. BELAY_INVALID: the profile of the lock is not re-entrant. */
enum belay_code read_lock_id(struct cli_context *context, const struct options *options, const char *key,
                             char out_id[BELAY_ID_MAX + 1], struct belay_error *err);

/* A line of BELAY_TOKENS; its texts are borrowed and do not end with '\0'. */
struct inherited_line {
    const char *token;
    const char *key;
    size_t token_len;
    size_t key_len;
};

/* Read the line at *at, and advance. False: there is none, or it is wrong. */
bool inherited_next(const char **at, struct inherited_line *out);

/* The token that the environment has for `key`; empty: none. False: the environment names another lock, or none. */
enum { INHERITED_TOKEN_SIZE = 32 };
bool inherited_lock_find(const char *key, char out_token[INHERITED_TOKEN_SIZE]);

#endif
