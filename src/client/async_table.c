/* async_table.h has a drawing. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "client/async_table.h"

/* SPARE_TEXTS: room for the strings of most calls, so that the memory of an ended call fits the next one. */
enum { BUCKETS = 4096, SPARE_TEXTS = 256 };
#ifdef __SANITIZE_ADDRESS__
enum { SPARE_MAX = 0 }; /* so that it sees the use of a call that has ended */
#else
enum { SPARE_MAX = 64 };
#endif

static size_t async_bucket(const char *lock_id)
{
    return text_hash(lock_id) % BUCKETS;
}

/* ---- memory ---- */

/* A call is too large for malloc's own cache, and there is one for every request to a server. */
struct belay_async *async_table_alloc(struct async_table *table, size_t size)
{
    const size_t usual = sizeof(struct belay_async) + SPARE_TEXTS;
    struct belay_async *call = table->spare;

    if (size <= usual && call != NULL) {
        assert(table->n_spare > 0 && call->size >= size);
        table->spare = call->next_ready;
        table->n_spare--;
        return call;
    }
    size = size < usual ? usual : size;
    call = malloc(size);
    if (call != NULL) {
        call->size = size;
    }
    return call;
}

void async_table_free(struct async_table *table, struct belay_async *call)
{
    assert(call->heap_at == 0 && !call->is_ready && table->n_spare <= SPARE_MAX);
    if (call->size > sizeof *call + SPARE_TEXTS || table->n_spare == SPARE_MAX) {
        free(call);
        return;
    }
    call->next_ready = table->spare;
    table->spare = call;
    table->n_spare++;
}

/* ---- the heap ---- */

static void heap_put(struct async_table *table, size_t at, struct belay_async *call)
{
    assert(at < table->cap_heap);
    table->heap[at] = call;
    call->heap_at = at + 1;
}

static bool is_sooner(const struct belay_async *a, const struct belay_async *b)
{
    return a->op.wait_until_ms < b->op.wait_until_ms;
}

static void heap_rise(struct async_table *table, size_t at)
{
    struct belay_async *call = table->heap[at];

    for (; at > 0 && is_sooner(call, table->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        heap_put(table, at, table->heap[(at - 1) / 2]);
    }
    heap_put(table, at, call);
}

static void heap_sink(struct async_table *table, size_t at)
{
    struct belay_async *call = table->heap[at];

    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < table->n_heap && is_sooner(table->heap[child + 1], table->heap[child])) {
            child++;
        }
        if (child >= table->n_heap || !is_sooner(table->heap[child], call)) {
            break;
        }
        heap_put(table, at, table->heap[child]);
        at = child;
    }
    heap_put(table, at, call);
}

static void heap_remove(struct async_table *table, struct belay_async *call)
{
    size_t at = call->heap_at - 1;

    assert(call->heap_at > 0 && at < table->n_heap && table->heap[at] == call);
    call->heap_at = 0;
    table->n_heap--;
    if (at < table->n_heap) {
        heap_put(table, at, table->heap[table->n_heap]);
        heap_rise(table, at);
        heap_sink(table, at);
    }
}

bool async_table_wait(struct async_table *table, struct belay_async *call)
{
    struct belay_async **heap =
        array_grow((void *)table->heap, sizeof(struct belay_async *), table->n_heap + 1, &table->cap_heap);

    assert(call->heap_at == 0 && !call->is_ready && !call->is_in_flight && call->op.want == OP_WAIT);
    assert(table->n_heap <= table->cap_heap);
    if (heap == NULL) {
        return false;
    }
    table->heap = heap;
    heap_put(table, table->n_heap++, call);
    heap_rise(table, table->n_heap - 1);
    return true;
}

void async_table_wake_by(struct async_table *table, struct belay_async *call, int64_t at_ms)
{
    assert(call->heap_at > 0 && call->heap_at <= table->n_heap);
    if (at_ms < call->op.wait_until_ms) {
        call->op.wait_until_ms = at_ms;
        heap_rise(table, call->heap_at - 1);
    }
}

void async_table_wake_frozen_by(struct async_table *table, int64_t at_ms)
{
    for (size_t i = 0; i < table->n_heap; i++) {
        struct op *op = &table->heap[i]->op;

        if (op->is_frozen && at_ms < op->wait_until_ms) {
            op->wait_until_ms = at_ms;
        }
    }
    for (size_t i = 0; i < table->n_heap; i++) {
        heap_rise(table, i); /* what is before it is a heap again */
    }
}

struct belay_async *async_table_soonest(const struct async_table *table)
{
    return table->n_heap == 0 ? NULL : table->heap[0];
}

/* ---- by id ---- */

bool async_table_add(struct async_table *table, struct belay_async *call)
{
    if (table->buckets == NULL) {
        table->buckets = calloc(BUCKETS, sizeof(struct belay_async *));
        table->ready_end = &table->ready;
    }
    if (table->buckets == NULL) {
        return false;
    }
    assert(call->heap_at == 0 && !call->is_ready);
    call->bucket = async_bucket(call->op.request.lock_id);
    call->next_in_bucket = table->buckets[call->bucket];
    table->buckets[call->bucket] = call;
    return true;
}

struct belay_async *async_table_find(struct async_table *table, const char *lock_id)
{
    struct belay_async *call = table->buckets == NULL ? NULL : table->buckets[async_bucket(lock_id)];

    while (call != NULL && (call->is_abandoned || strcmp(call->op.request.lock_id, lock_id) != 0)) {
        call = call->next_in_bucket;
    }
    return call;
}

void async_table_wake_all(struct async_table *table)
{
    for (size_t i = 0; table->buckets != NULL && i < BUCKETS; i++) {
        for (struct belay_async *call = table->buckets[i]; call != NULL; call = call->next_in_bucket) {
            call->was_woken = call->was_woken || call->is_in_flight;
            if (call->heap_at != 0) {
                async_table_set_ready(table, call);
            }
        }
    }
}

/* Slow for a long list, but rare: a ready call is removed only if it is abandoned before the next poll. */
static void ready_remove(struct async_table *table, struct belay_async *call)
{
    struct belay_async **at = &table->ready;

    assert(call->is_ready);
    while (*at != call) {
        at = &(*at)->next_ready;
    }
    *at = call->next_ready;
    if (*at == NULL) {
        table->ready_end = at;
    }
    call->is_ready = false;
}

void async_table_remove(struct async_table *table, struct belay_async *call)
{
    struct belay_async **at = &table->buckets[call->bucket];

    assert(call->bucket < BUCKETS);
    assert(!(call->is_ready && call->heap_at > 0)); /* in one of the two lists at most */
    if (call->heap_at > 0) {
        heap_remove(table, call);
    }
    if (call->is_ready) {
        ready_remove(table, call);
    }
    while (*at != NULL && *at != call) {
        at = &(*at)->next_in_bucket;
    }
    if (*at != NULL) {
        *at = call->next_in_bucket;
    }
}

struct belay_async *async_table_any(const struct async_table *table)
{
    for (size_t i = 0; table->buckets != NULL && i < BUCKETS; i++) {
        if (table->buckets[i] != NULL) {
            return table->buckets[i];
        }
    }
    return NULL;
}

/* ---- ready ---- */

void async_table_set_ready(struct async_table *table, struct belay_async *call)
{
    if (call->is_ready) {
        return;
    }
    if (call->heap_at > 0) {
        heap_remove(table, call);
    }
    assert(!call->is_in_flight && *table->ready_end == NULL);
    call->is_ready = true;
    call->next_ready = NULL;
    *table->ready_end = call;
    table->ready_end = &call->next_ready;
}

struct belay_async *async_table_next_ready(struct async_table *table)
{
    struct belay_async *call = table->ready;

    if (call == NULL) {
        return NULL;
    }
    assert(call->is_ready && call->heap_at == 0);
    table->ready = call->next_ready;
    if (table->ready == NULL) {
        table->ready_end = &table->ready;
    }
    call->is_ready = false;
    return call;
}

void async_table_release(struct async_table *table)
{
    while (table->spare != NULL) {
        struct belay_async *call = table->spare;

        table->spare = call->next_ready;
        free(call);
    }
    free(table->buckets);
    free(table->heap);
    memset(table, 0, sizeof *table);
}
