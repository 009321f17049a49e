/* The name that somebody may have meant. */
#ifndef CONFIG_NEAREST_H
#define CONFIG_NEAREST_H

#include <stddef.h>

/*
 * The one of `names` that takes the fewest changes to become `typed`: a letter
 * added, dropped, replaced, or swapped with the next. NULL if even that one
 * differs in more than a third of its letters, in which case it was not meant.
 */
const char *nearest_name(const char *typed, const char *const *names, size_t n);

#endif
