/* What somebody probably meant. */
#ifndef CLI_NEAREST_H
#define CLI_NEAREST_H

#include <stddef.h>

struct nearest {
    const char *word;  /* borrowed; what was typed */
    const char *found; /* borrowed; NULL while nothing is near enough */
    size_t distance;
};

void nearest_begin(struct nearest *nearest, const char *word);
void nearest_offer(struct nearest *nearest, const char *candidate);

#endif
