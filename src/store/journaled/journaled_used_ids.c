/*
 * The lock ids that have held a key before (L5), as hashes of 64 bits: one unused id in
 * billions is refused by mistake. Two sets: when one is full, the older is dropped. They
 * keep at least as many as the database does.
 */
#include <stdlib.h>
#include <string.h>

#include "store/journaled/journaled_internal.h"

enum { SLOTS = 1 << 21, FULL = EVENTS_KEPT };

bool ids_init(struct id_set *ids)
{
    ids->slots[0] = calloc(SLOTS, sizeof *ids->slots[0]);
    return ids->slots[0] != NULL;
}

void ids_release(struct id_set *ids)
{
    free(ids->slots[0]);
    free(ids->slots[1]);
    memset(ids, 0, sizeof *ids);
}

/* The slot that has it, or the one it belongs in. */
static size_t slot_of(const uint64_t *slots, uint64_t hash)
{
    size_t at = (size_t)(hash * 0x9e3779b97f4a7c15ULL >> 43) & (SLOTS - 1);

    while (slots[at] != 0 && slots[at] != hash) {
        at = (at + 1) & (SLOTS - 1);
    }
    return at;
}

void ids_add(struct id_set *ids, uint64_t hash)
{
    size_t at;

    hash = hash == 0 ? 1 : hash;
    if (ids->n >= FULL) {
        /* calloc() zeroes pages as they are used; to clear the old set would take milliseconds. */
        uint64_t *other;

        free(ids->slots[1]);
        ids->slots[1] = NULL;
        other = calloc(SLOTS, sizeof *other);
        if (other != NULL) {
            ids->slots[1] = ids->slots[0];
            ids->slots[0] = other;
        } else {
            /* Without memory for a second set the older ids are dropped at once. */
            memset(ids->slots[0], 0, SLOTS * sizeof *ids->slots[0]);
        }
        ids->n = 0;
    }
    at = slot_of(ids->slots[0], hash);
    ids->n += ids->slots[0][at] == 0;
    ids->slots[0][at] = hash;
}

bool ids_has(const struct id_set *ids, uint64_t hash)
{
    hash = hash == 0 ? 1 : hash;
    return ids->slots[0][slot_of(ids->slots[0], hash)] == hash ||
           (ids->slots[1] != NULL && ids->slots[1][slot_of(ids->slots[1], hash)] == hash);
}
