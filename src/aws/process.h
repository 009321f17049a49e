/* Runs a program, without a shell, and reads its output. */
#ifndef AWS_PROCESS_H
#define AWS_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "belay.h"

/*
 * Runs arguments[0], found by PATH, without standard input. It is killed after timeout_ms.
 * Fills *out and *errors (its standard error) up to their limits; a longer *out is an
 * error. *out_status is its exit status, or 128 plus the signal.
 */
enum belay_code process_run(char *const arguments[], int64_t timeout_ms, struct buf *out, struct buf *errors,
                            int *out_status, struct belay_error *err);

#endif
