/* Arrays that grow. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <stddef.h>
#include <stdlib.h>

enum { ARRAY_FIRST = 16 };

/*
 * Room for n elements of `size` bytes; the capacity at least doubles. Returns the array, which may have moved. NULL: no
 * memory, and the array is unchanged.
 */
static inline void *array_grow(void *array, size_t size, size_t n, size_t *cap)
{
    size_t wanted = *cap == 0 ? ARRAY_FIRST : 2 * *cap;
    void *grown;

    if (n <= *cap) {
        return array;
    }
    wanted = wanted < n ? n : wanted;
    grown = realloc(array, wanted * size);
    *cap = grown == NULL ? *cap : wanted;
    return grown;
}

#endif
