/*
 * What a person sees while belay waits: on a terminal one line that is
 * rewritten every second, elsewhere one line per try (S4.9).
 */
#ifndef CLI_CORE_WAIT_DISPLAY_H
#define CLI_CORE_WAIT_DISPLAY_H

#include "cli/core/cli.h"

struct wait_display;

/* NULL if nothing is to be shown, which the other functions take as well. */
struct wait_display *wait_display_new(const struct cli_context *context, const char *key);
/* For belay_lock_options.on_waiting, with the struct wait_display as its context. */
void wait_display_update(void *context, const struct belay_wait_info *now);
/* Takes the line away and ends the thread that rewrote it. */
void wait_display_free(struct wait_display *display);

#endif
