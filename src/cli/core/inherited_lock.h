/*
 * The lock that a command inherits from 'belay run': BELAY_KEY, BELAY_LOCK_ID and BELAY_TOKEN; of
 * several keys BELAY_TOKENS has a line "TOKEN KEY" for each.
 */
#ifndef CLI_CORE_INHERITED_LOCK_H
#define CLI_CORE_INHERITED_LOCK_H

#include <stdbool.h>
#include <stddef.h>

/* A line of BELAY_TOKENS; borrowed, without ends. */
struct inherited_line {
    const char *token;
    const char *key;
    size_t token_len;
    size_t key_len;
};

/* Read the line at *at, and advance. False: there is none, or it is wrong. */
bool inherited_next(const char **at, struct inherited_line *out);

/* The token that the environment has for `key`; empty: none. False: the lock there is another one. */
enum { INHERITED_TOKEN_SIZE = 32 };
bool inherited_lock_find(const char *key, char out_token[INHERITED_TOKEN_SIZE]);

#endif
