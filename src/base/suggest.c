#include "base/suggest.h"

#include <stdint.h>
#include <string.h>

enum { NAME_MAX_COMPARED = 48 };

static size_t smaller_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Three rows of the distance matrix suffice: a swap looks back two rows. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][NAME_MAX_COMPARED + 1];
    size_t na = strlen(a);
    size_t nb = strlen(b);

    if (na > NAME_MAX_COMPARED || nb > NAME_MAX_COMPARED) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= nb; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i % 3];
        const size_t *before = rows[(i - 1) % 3];

        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            row[j] =
                smaller_of(smaller_of(before[j], row[j - 1]) + 1, before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = smaller_of(row[j], rows[(i - 2) % 3][j - 2] + 1);
            }
        }
    }
    return rows[na % 3][nb];
}

void suggest_begin(struct suggestion *suggestion, const char *typed)
{
    suggestion->typed = typed;
    suggestion->found = NULL;
    suggestion->distance = SIZE_MAX;
}

void suggest_add(struct suggestion *suggestion, const char *candidate)
{
    size_t d = edit_distance(suggestion->typed, candidate);
    size_t n = strlen(candidate);

    if (d < suggestion->distance && d <= n / 3 + 1 && d <= n / 2) {
        suggestion->found = candidate;
        suggestion->distance = d;
    }
}

const char *suggest_name(const char *typed, const char *const *names, size_t n)
{
    struct suggestion suggestion;

    suggest_begin(&suggestion, typed);
    for (size_t i = 0; i < n; i++) {
        suggest_add(&suggestion, names[i]);
    }
    return suggestion.found;
}
