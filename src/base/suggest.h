/* The name that somebody may have meant. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

struct nearest {
    const char *typed; /* borrowed */
    const char *found; /* borrowed; NULL while nothing is near enough */
    size_t distance;
};

/*
 * The candidate that takes the fewest changes to become what was typed: a letter
 * added, dropped, replaced, or swapped with the next. One that differs in more
 * than a third of its letters was not meant.
 */
void nearest_begin(struct nearest *nearest, const char *typed);
void nearest_offer(struct nearest *nearest, const char *candidate);

/* The same for names in an array. NULL: none is near. */
const char *nearest_name(const char *typed, const char *const *names, size_t n);

#endif
