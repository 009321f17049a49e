/* Run a program, without a shell, and read what it prints. */
#ifndef AWS_PROCESS_H
#define AWS_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "belay.h"

/*
 * Runs arguments[0], found by PATH, with no standard input, for at most
 * timeout_ms; then it is killed. Fills *out and *complaints (its standard
 * error) up to their limits; more than fits of *out is an error.
 * *out_status is its exit status, or 128 plus the signal.
 */
enum belay_code process_run(char *const arguments[], int64_t timeout_ms, struct buf *out,
                            struct buf *complaints, int *out_status, struct belay_error *err);

#endif
