/* Shared by broken.c and broken_commit.c. */
#ifndef SUPPORT_BROKEN_INTERNAL_H
#define SUPPORT_BROKEN_INTERNAL_H

#include <pthread.h>
#include <string.h>

#include "support/broken.h"

struct broken {
    struct belay_store base;
    struct belay_store *inner; /* owned */
    enum broken_rule rule;
    pthread_mutex_t mutex; /* around what follows; never held while the inner store works */
    uint64_t tokens;
    unsigned answers;
    int64_t first_ms;               /* what the clock said first */
    struct belay_record remembered; /* what was read last; no key: nothing */
};

enum belay_code broken_commit(struct belay_store *store, const struct belay_batch *batch,
                              struct belay_commit *out, struct belay_error *err);

/* What is wrong with every record and every clock reading that goes out. */
void broken_bend_record(const struct broken *b, struct belay_record *record);
int64_t broken_bend_clock(struct broken *b, int64_t now_ms);
void broken_forget(struct broken *b);
void broken_lower(const char *text, char out[BELAY_KEY_MAX + 1]);

static inline bool broken_same(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

#endif
