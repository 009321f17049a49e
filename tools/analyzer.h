/*
 * For clang-tidy only (tools/lint includes it in front of every file but src/base/error.c).
 *
 * The analyzer reads one file at a time, so it assumes that error_set() might
 * return BELAY_OK. Here it sees that error_set() returns the given code.
 */
#ifndef TOOLS_ANALYZER_H
#define TOOLS_ANALYZER_H

#include "base/error.h"

#define error_set(err, code, ...) (error_set((err), (code), __VA_ARGS__), (code))
#define error_no_memory(err) (error_no_memory(err), BELAY_NO_MEMORY)

#endif
