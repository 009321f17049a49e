/*
 * A store behind a network that loses answers, made whole again: who uses it
 * sees each batch done once or not at all, as on a sound store. So the suite can
 * be run through a proxy that does harm.
 *
 * It finds out what became of a batch of which nothing is known by what has
 * changed, so nobody but these handles may write meanwhile; they take turns.
 */
#ifndef SUPPORT_RETRYING_STORE_H
#define SUPPORT_RETRYING_STORE_H

#include "belay/store.h"

/* Takes over `inner`, which may be NULL: then NULL. */
struct belay_store *retrying_store_open(struct belay_store *inner);

/* How often an outcome was not known, and how often nothing had happened. */
void retrying_store_counts(int *out_unknown, int *out_again);

#endif
