/*
 * A store on a network that loses answers, with retries: each batch is done once or
 * not at all, as on a sound store. So the suite can run through a proxy that does harm.
 *
 * It finds the outcome of an unknown batch by reading what has changed. So only these
 * handles may write meanwhile; they take turns.
 */
#ifndef SUPPORT_RETRYING_STORE_H
#define SUPPORT_RETRYING_STORE_H

#include "belay/store.h"

/* Takes over `inner`, which may be NULL: then NULL. */
struct belay_store *retrying_store_open(struct belay_store *inner);

/* How often an outcome was unknown, and how often the batch had not happened. */
void retrying_store_counts(int *out_unknown, int *out_again);

#endif
