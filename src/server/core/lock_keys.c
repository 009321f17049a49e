#include "server/core/lock_keys.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct lock_keys *lock_keys_new(const char *const *keys, size_t n)
{
    struct lock_keys *copy;
    size_t size = 0;
    char *at;

    assert(n > 0 && n <= BELAY_KEYS_MAX);
    for (size_t i = 0; i < n; i++) {
        size += strlen(keys[i]) + 1;
    }
    copy = malloc(sizeof *copy + size);
    if (copy == NULL) {
        return NULL;
    }
    copy->n = n;
    at = (char *)(copy + 1);
    for (size_t i = 0; i < n; i++) {
        size = strlen(keys[i]) + 1;
        copy->keys[i] = memcpy(at, keys[i], size);
        at += size;
    }
    return copy;
}

bool lock_keys_are_same(const struct lock_keys *a, const struct lock_keys *b)
{
    size_t n_a = a == NULL ? 1 : a->n;
    size_t n_b = b == NULL ? 1 : b->n;

    for (size_t i = 0; n_a == n_b && i < n_a && a != NULL && b != NULL; i++) {
        if (strcmp(a->keys[i], b->keys[i]) != 0) {
            return false;
        }
    }
    return n_a == n_b;
}

bool lock_keys_have(const struct lock_keys *keys, const char *key)
{
    for (size_t i = 0; keys != NULL && i < keys->n; i++) {
        if (strcmp(keys->keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

void lock_keys_fill(const struct lock_keys *keys, struct belay_lock_options *options)
{
    options->more_keys = keys == NULL ? NULL : keys->keys + 1;
    options->n_more_keys = keys == NULL ? 0 : keys->n - 1;
}
