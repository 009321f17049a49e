/*
 * What a person sees while belay waits: on a terminal one line that is
 * rewritten every second, elsewhere one line per try (S4.9).
 */
#ifndef CLI_CORE_WAITING_H
#define CLI_CORE_WAITING_H

#include "cli/core/cli.h"

struct waiting;

/* NULL if nothing is to be shown, which the other functions take as well. */
struct waiting *waiting_new(const struct cli_context *context, const char *key);
/* For belay_lock_options.on_waiting, with the struct waiting as its context. */
void waiting_show(void *context, const struct belay_wait_info *now);
/* Takes the line away and ends the thread that rewrote it. */
void waiting_free(struct waiting *waiting);

#endif
