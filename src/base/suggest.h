/* Suggest the name that a user may have meant. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

struct suggestion {
    const char *typed; /* borrowed */
    const char *found; /* borrowed; NULL: no candidate is similar enough */
    size_t distance;
};

/*
 * Choose the candidate with the smallest edit distance: letters added, dropped, replaced, or swapped with the next one.
 * A candidate that differs in more than a third of its letters and one more, or in more than half, is not suggested.
 */
void suggest_begin(struct suggestion *suggestion, const char *typed);
void suggest_add(struct suggestion *suggestion, const char *candidate);

/* The same for an array of names. NULL: none is similar enough. */
const char *suggest_name(const char *typed, const char *const *names, size_t n);

#endif
