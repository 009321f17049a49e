/*
 * The conformance suite of the store port (include/belay/store.h).
 *
 * A store is a store of belay if all these cases pass on it. They are written
 * against struct belay_store only; what they need besides comes as a fixture.
 * A case does not abort: it reports what was wrong, so that the same cases can
 * be run against stores that are broken on purpose (support/faulty_store.h).
 */
#ifndef SUPPORT_SUITE_H
#define SUPPORT_SUITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "belay/store.h"

/*
 * What a store cannot keep because the form of its data is others', or cannot
 * do because its server cannot. Cases that are about that do not apply to it.
 */
enum suite_lack {
    SUITE_LACKS_TOKENS = 1 << 8,
    SUITE_LACKS_RELEASED = 1 << 9,      /* a record that outlives its release */
    SUITE_LACKS_OUTCOMES = 1 << 10,     /* each of the ways in which a holding ends */
    SUITE_LACKS_LIVENESS = 1 << 11,     /* heartbeat and staleness, durable locks, the time of release */
    SUITE_LACKS_NAMES = 1 << 12,        /* the owner's name */
    SUITE_LACKS_METADATA = 1 << 13,     /* of any name */
    SUITE_LACKS_MILLIS = 1 << 14,       /* times more exact than a second */
    SUITE_LACKS_REVISIONS = 1 << 15,    /* a write that sets what is there already cannot be seen */
    SUITE_LACKS_WHOLE_IMAGES = 1 << 16, /* after a write the queue is unknown without reading */
    SUITE_LACKS_BATCHES = 1 << 17,      /* of several writes */
    SUITE_LACKS_ALL = (1 << 18) - (1 << 8)
};

/* An empty store. Every case wants a fresh one. */
struct suite_fixture {
    /* Another handle on the same data; the suite closes it. NULL: it cannot be opened. */
    struct belay_store *(*open)(void *ctx);
    /* Advance the store's clock by at least `ms`: directly if possible, else by sleeping. */
    void (*advance)(void *ctx, int64_t ms);
    /* Have the store forget what it may: records long over, old events. NULL: it forgets nothing. */
    void (*forget)(void *ctx);
    void *ctx;
    int64_t timeout_ms; /* a wake-up that takes longer was missed; 0: 20 s */
    bool keeps_events;
    bool keeps_items; /* small values beside the locks, of any JSON; or, */
    bool
        items_are_apps; /* in the space of applications, nothing but these, as belay/shared_db.h writes them */
    bool knows_used_ids; /* belay_batch.require_unused_id is honoured */
    bool keeps_modes;    /* capabilities.has_modes */
    bool keeps_freezes;  /* capabilities.has_freezes, and items */
    unsigned lacks;      /* SUITE_LACKS_... */
    bool clock_stands;   /* the store's clock moves by advance() only, and by exactly what it says */
};

size_t suite_count(void);

/* A sentence about stores, fit for a line in a report. */
const char *suite_name(size_t i);

/* The promise of docs/safety.md that depends on it, such as "L2"; "port": the header. */
const char *suite_promise(size_t i);

/* False if the case does not apply to such a store. */
bool suite_applies(size_t i, const struct suite_fixture *fixture);

/* Run one case. If it fails, `why` has the place and the reason. */
bool suite_run(size_t i, const struct suite_fixture *fixture, char *why, size_t why_size);

#endif
