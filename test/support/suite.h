/*
 * The conformance suite of the store port (include/belay/store.h).
 *
 * A store is a store of belay if all these cases pass on it. They are written
 * against struct belay_store only; what they need besides comes as a fixture.
 * A case does not abort: it reports what was wrong, so that the same cases can
 * be run against stores that are broken on purpose (support/broken.h).
 */
#ifndef SUPPORT_SUITE_H
#define SUPPORT_SUITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "belay/store.h"

/* An empty store. Every case wants a fresh one. */
struct suite_fixture {
    /* Another handle on the same data; the suite closes it. NULL: it cannot be opened. */
    struct belay_store *(*open)(void *ctx);
    /* Let the store's clock go on by at least `ms`: by hand where it can be, else by sleeping. */
    void (*advance)(void *ctx, int64_t ms);
    /* Have the store forget what it may: records long over, old events. NULL: it forgets nothing. */
    void (*forget)(void *ctx);
    void *ctx;
    int64_t patience_ms; /* a wake-up that takes longer was missed; 0: 3 s */
    bool keeps_events;
    bool knows_used_ids; /* belay_batch.unused_id is honoured */
    bool clock_stands;   /* the store's clock moves by advance() only, and by exactly what it says */
};

size_t suite_count(void);

/* A sentence about stores, fit for a line in a report. */
const char *suite_name(size_t i);

/* Which promise of DESIGN.md rests on it, such as "L2"; "port": the header's word. */
const char *suite_promise(size_t i);

/* False if the case does not apply to such a store. */
bool suite_applies(size_t i, const struct suite_fixture *fixture);

/* Run one case. If it fails, `why` says where and what. */
bool suite_run(size_t i, const struct suite_fixture *fixture, char *why, size_t why_size);

#endif
