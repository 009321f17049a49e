/*
 * For clang-tidy only (tools/lint includes it in front of every file but src/base/error.c).
 *
 * The analyzer looks into one file at a time and so believes that error_set() might
 * return BELAY_OK. Here it can see that it returns the code it was given.
 */
#ifndef TOOLS_ANALYZER_H
#define TOOLS_ANALYZER_H

#include "base/error.h"

#define error_set(err, code, ...) (error_set((err), (code), __VA_ARGS__), (code))
#define error_no_memory(err) (error_no_memory(err), BELAY_NO_MEMORY)

#endif
