/* Keys that have changed since the viewers were last told, in the order of the changes. */
#ifndef SERVER_DASHBOARD_CHANGED_KEYS_H
#define SERVER_DASHBOARD_CHANGED_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "belay.h"

enum { CHANGES_BUCKETS = 4096, CHANGES_MAX = 20000 };

enum change_kind { CHANGE_OTHER, CHANGE_TAKEN, CHANGE_FREED };

struct changed_key;

struct changes {
    struct changed_key *buckets[CHANGES_BUCKETS];
    struct changed_key *first; /* owned */
    struct changed_key **end;  /* NULL: &first */
    struct changed_key *spare; /* owned; for reuse, until changes_clear() */
    size_t n;
    bool overrun; /* there were too many: some are missing */
};

/* A key that was acquired and released since is dropped: for the viewers nothing has changed. */
void changes_mark(struct changes *changes, const char *key, enum change_kind kind);

/* The oldest. False if there is none. */
bool changes_take(struct changes *changes, char out_key[BELAY_KEY_MAX + 1]);

void changes_clear(struct changes *changes);

#endif
