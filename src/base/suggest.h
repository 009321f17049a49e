/* The name that somebody may have meant. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

struct suggestion {
    const char *typed; /* borrowed */
    const char *found; /* borrowed; NULL while nothing is near enough */
    size_t distance;
};

/*
 * The candidate that takes the fewest changes to become what was typed: a letter
 * added, dropped, replaced, or swapped with the next. One that differs in more
 * than a third of its letters was not meant.
 */
void suggest_begin(struct suggestion *suggestion, const char *typed);
void suggest_add(struct suggestion *suggestion, const char *candidate);

/* The same for names in an array. NULL: none is near. */
const char *suggest_name(const char *typed, const char *const *names, size_t n);

#endif
