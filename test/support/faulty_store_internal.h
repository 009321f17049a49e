/* Shared by faulty_store.c and faulty_store_commit.c. */
#ifndef SUPPORT_FAULTY_STORE_INTERNAL_H
#define SUPPORT_FAULTY_STORE_INTERNAL_H

#include <pthread.h>
#include <string.h>

#include "support/faulty_store.h"

struct faulty_store {
    struct belay_store base;
    struct belay_store *inner; /* owned */
    enum faulty_store_rule rule;
    pthread_mutex_t mutex; /* around what follows; never held while the inner store works */
    uint64_t tokens;
    unsigned answers;
    int64_t first_ms;               /* what the clock said first */
    struct belay_record remembered; /* what was read last; no key: nothing */
};

enum belay_code faulty_store_commit(struct belay_store *store, const struct belay_batch *batch,
                                    struct belay_commit *out, struct belay_error *err);

/* The faults in returned records and clock readings. */
void faulty_store_bend_record(const struct faulty_store *b, struct belay_record *record);
int64_t faulty_store_bend_clock(struct faulty_store *b, int64_t now_ms);
void faulty_store_forget(struct faulty_store *b);
void faulty_store_lower(const char *text, char out[BELAY_KEY_MAX + 1]);

static inline bool faulty_store_same(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

#endif
