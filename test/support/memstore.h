/*
 * A store in memory, for tests: linearizable, on clocks of the test's own.
 *
 * It keeps to include/belay/store.h in the plainest way (arrays, copies, one
 * mutex), so that one can see that it is right. Any number of handles may be
 * open on the same data, and threads may use them at once. Memory that cannot
 * be had ends the program: this is a test.
 */
#ifndef SUPPORT_MEMSTORE_H
#define SUPPORT_MEMSTORE_H

#include "belay/store.h"

struct memstore_data;

/*
 * `now_ms` is the store's clock, `unix_ms` the wall clock for what people read.
 * NULL stands for the machine's own boot clock and wall clock. They are called
 * with the mutex held and must not call the store.
 */
struct memstore_data *memstore_data_new(int64_t (*now_ms)(void *ctx), int64_t (*unix_ms)(void *ctx),
                                        void *ctx);
/* After every handle was closed. */
void memstore_data_free(struct memstore_data *data);

/* A handle; its ops->close() frees it and leaves the data alone. */
struct belay_store *memstore_open(struct memstore_data *data);

/* Items and freezes, too. Before a handle is opened, and after the capabilities are set. */
void memstore_keep_items(struct memstore_data *data);

/* To be set before the handles are used. The default is { 0, 1000, 1000, 60000 }. */
void memstore_set_capabilities(struct memstore_data *data, struct belay_store_capabilities capabilities);

/* False: batch.require_unused_id is left out, as on a store without memory of ids. */
void memstore_set_knows_used_ids(struct memstore_data *data, bool knows);

/* The tickets of that id, present and future, are those of a waiter that is gone. */
void memstore_set_waiter_dead(struct memstore_data *data, const char *lock_id, bool dead);

/*
 * For checks from within: the records, sorted by key. Borrowed until the next commit;
 * not thread-safe.
 */
const struct belay_record *memstore_records(const struct memstore_data *data, size_t *out_n);

/* How many events are kept. */
size_t memstore_event_count(struct memstore_data *data);

#endif
