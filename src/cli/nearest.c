#include "cli/nearest.h"

#include <stdint.h>
#include <string.h>

enum { WORD_MAX = 48 };

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;

    return least < c ? least : c;
}

/* How many letters to change, add, drop or swap with their neighbour. */
static size_t distance(const char *a, const char *b)
{
    size_t rows[3][WORD_MAX + 1];
    size_t n = strlen(a);
    size_t m = strlen(b);

    if (n > WORD_MAX || m > WORD_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= m; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        const size_t *before = rows[(i + 1) % 3];

        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j]) {
                row[j] = before[j - 2] + 1;
            }
        }
    }
    return rows[n % 3][m];
}

void nearest_begin(struct nearest *nearest, const char *word)
{
    size_t n = strlen(word);

    nearest->word = word;
    nearest->found = NULL;
    /* Nearer than this or not at all: a third of the word, and always one slip. */
    nearest->distance = n < 4 ? 2 : n / 3 + 1;
}

void nearest_offer(struct nearest *nearest, const char *candidate)
{
    size_t d = distance(nearest->word, candidate);

    if (d < nearest->distance) {
        nearest->distance = d;
        nearest->found = candidate;
    }
}
