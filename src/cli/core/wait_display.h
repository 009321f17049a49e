/*
 * The progress of a wait for a lock. On a terminal one line is rewritten every second. Elsewhere, and in a CI job even
 * on a terminal, a line is printed when the wait begins and then once a minute (BELAY_PROGRESS_EVERY), and one per
 * attempt if attempts are counted (S4.9).
 *
 * On a terminal the line has an estimate of the time to go, made from earlier holds of the lock, if the store or the
 * audit file has its history. Reading the history never delays the acquisition.
 */
#ifndef CLI_CORE_WAIT_DISPLAY_H
#define CLI_CORE_WAIT_DISPLAY_H

#include "cli/core/cli.h"

struct wait_display;

enum wait_kind {
    WAIT_UNQUEUED, /* the client only watches, without a place in the queue */
    WAIT_QUEUED,
    WAIT_COUNTED /* queued, with a limit of attempts: shows when the next attempt follows */
};

/* `key` is borrowed. NULL if nothing is to be shown; the other functions accept NULL. */
struct wait_display *wait_display_new(struct cli_context *context, const char *key, enum wait_kind kind);
/* For belay_lock_options.on_waiting; `context` is the struct wait_display. */
void wait_display_update(void *context, const struct belay_wait_info *now);
/* Erases the line and ends the thread that rewrites it. */
void wait_display_free(struct wait_display *display);

#endif
