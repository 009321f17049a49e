#include "server/dashboard/changed_keys.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fnv.h"

/* Most keys are short. Thousands of these come and go every second: freed ones are reused. */
enum { SHORT_KEY = 71 };

struct changed_key {
    struct changed_key *in_bucket;
    struct changed_key *next;
    struct changed_key **back; /* what points to it in the list by age */
    bool is_short;
    enum change_kind first_kind;
    char key[];
};

static struct changed_key **change_bucket(struct changes *changes, const char *key)
{
    return &changes->buckets[fnv_text(FNV_INIT, key) % CHANGES_BUCKETS];
}

static struct changed_key **find_changed_key(struct changes *changes, const char *key)
{
    struct changed_key **at = change_bucket(changes, key);

    while (*at != NULL && strcmp((*at)->key, key) != 0) {
        at = &(*at)->in_bucket;
    }
    return at;
}

static struct changed_key *change_new(struct changes *changes, const char *key, enum change_kind kind)
{
    size_t len = strlen(key);
    struct changed_key *change = changes->spare;

    if (changes->n >= CHANGES_MAX || len > BELAY_KEY_MAX) {
        return NULL;
    }
    if (change == NULL || len > SHORT_KEY) {
        change = malloc(sizeof *change + (len > SHORT_KEY ? len : SHORT_KEY) + 1);
        if (change == NULL) {
            return NULL;
        }
    } else {
        changes->spare = change->next;
    }
    *change = (struct changed_key){ .is_short = len <= SHORT_KEY, .first_kind = kind };
    memcpy(change->key, key, len + 1);
    return change;
}

/* `in_bucket` points to it in its bucket; to NULL: it was removed before. */
static void change_drop(struct changes *changes, struct changed_key **in_bucket)
{
    struct changed_key *change = *in_bucket;

    if (change == NULL) {
        return;
    }
    assert(changes->n > 0 && *change->back == change);
    *in_bucket = change->in_bucket;
    *change->back = change->next;
    if (change->next != NULL) {
        change->next->back = change->back;
    } else {
        changes->end = change->back;
    }
    changes->n--;
    if (change->is_short) {
        change->next = changes->spare;
        changes->spare = change;
    } else {
        free(change);
    }
}

void changes_mark(struct changes *changes, const char *key, enum change_kind kind)
{
    struct changed_key **at = find_changed_key(changes, key);
    struct changed_key *change = *at;

    if (change != NULL) {
        if (change->first_kind == CHANGE_TAKEN && kind == CHANGE_FREED) {
            change_drop(changes, at);
        }
        return;
    }
    change = change_new(changes, key, kind);
    if (change == NULL) {
        changes->overrun = true;
        return;
    }
    *at = change;
    change->back = changes->end == NULL ? &changes->first : changes->end;
    *change->back = change;
    changes->end = &change->next;
    changes->n++;
}

bool changes_take(struct changes *changes, char out_key[BELAY_KEY_MAX + 1])
{
    if (changes->first == NULL) {
        return false;
    }
    assert(changes->n > 0 && changes->n <= CHANGES_MAX);
    memcpy(out_key, changes->first->key, strlen(changes->first->key) + 1);
    change_drop(changes, find_changed_key(changes, out_key));
    return true;
}

static void free_changes(struct changed_key *change)
{
    while (change != NULL) {
        struct changed_key *next = change->next;

        free(change);
        change = next;
    }
}

void changes_clear(struct changes *changes)
{
    free_changes(changes->first);
    free_changes(changes->spare);
    *changes = (struct changes){ 0 };
}
