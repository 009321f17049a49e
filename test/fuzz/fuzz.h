/* The interface between a fuzz program and fuzz_main.c (or libFuzzer). */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FUZZ_MAX_INPUT = 8192 };

/* One parser of bytes that come from outside. */
struct fuzz_target {
    const char *name; /* of its seeds, test/fuzz/seeds/NAME/, and its dictionary, test/fuzz/dict/NAME.dict */
    void (*run)(const uint8_t *data, size_t len); /* aborts when a rule is broken */
    void (*tear_down)(void);                      /* NULL: nothing to release */
};

/* The targets of this program; the last has no name. */
extern const struct fuzz_target fuzz_targets[];

/* Unlike assert(), holds in every build. */
void fuzz_must(bool holds, const char *what);

/* A directory for this process, removed with its content when the process ends. */
const char *fuzz_directory(void);
void fuzz_empty_directory(void);
/* Write `data` to the file `name` in it, and return its path; valid until the next call. */
const char *fuzz_file(const char *name, const void *data, size_t len);

#endif
