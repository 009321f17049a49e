/*
 * The progress of a wait for a lock: on a terminal one line that is rewritten every second. Elsewhere, and in a CI job
 * even on a terminal: a line when the wait begins and then once a minute (BELAY_PROGRESS_EVERY), and one per attempt if they are
 * counted (S4.9).
 *
 * The line on a terminal has an estimate of when it is over, from how long the lock was held before, if the store or
 * the audit file tells that. The next holder never waits for this to be read.
 */
#ifndef CLI_CORE_WAIT_DISPLAY_H
#define CLI_CORE_WAIT_DISPLAY_H

#include "cli/core/cli.h"

struct wait_display;

enum wait_kind {
    WAIT_UNQUEUED, /* it only watches */
    WAIT_QUEUED,
    WAIT_COUNTED /* queued, and given up after some attempts: when the next one comes is shown */
};

/* `key` is borrowed. NULL if nothing is to be shown; the other functions accept NULL. */
struct wait_display *wait_display_new(struct cli_context *context, const char *key, enum wait_kind kind);
/* For belay_lock_options.on_waiting; `context` is the struct wait_display. */
void wait_display_update(void *context, const struct belay_wait_info *now);
/* Erases the line and ends the thread that rewrites it. */
void wait_display_free(struct wait_display *display);

#endif
