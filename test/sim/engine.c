#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

/* ---- chance (splitmix64) ------------------------------------------------- */

uint64_t rng_next(struct rng *rng)
{
    uint64_t z = (rng->state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int64_t rng_range(struct rng *rng, int64_t from, int64_t to)
{
    return from + (int64_t)(rng_next(rng) % (uint64_t)(to - from + 1));
}

bool rng_percent(struct rng *rng, int percent)
{
    return rng_range(rng, 0, 99) < percent;
}

/* ---- time: a binary heap, first by t, then by arrival -------------------- */

static bool is_before(const struct event *a, const struct event *b)
{
    return a->t != b->t ? a->t < b->t : a->seq < b->seq;
}

static void swap(struct event *a, struct event *b)
{
    struct event kept = *a;

    *a = *b;
    *b = kept;
}

void heap_push(struct heap *heap, struct event event)
{
    size_t i = heap->n;

    if (heap->n == heap->cap) {
        heap->cap = heap->cap == 0 ? 64 : 2 * heap->cap;
        heap->events = realloc(heap->events, heap->cap * sizeof *heap->events);
        if (heap->events == NULL) {
            abort();
        }
    }
    event.seq = heap->seq++;
    heap->events[heap->n++] = event;
    while (i > 0 && is_before(&heap->events[i], &heap->events[(i - 1) / 2])) {
        swap(&heap->events[i], &heap->events[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
}

bool heap_pop(struct heap *heap, struct event *out_event)
{
    size_t i = 0;

    if (heap->n == 0) {
        return false;
    }
    *out_event = heap->events[0];
    heap->events[0] = heap->events[--heap->n];
    for (;;) {
        size_t least = i;

        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < heap->n; child++) {
            if (is_before(&heap->events[child], &heap->events[least])) {
                least = child;
            }
        }
        if (least == i) {
            return true;
        }
        swap(&heap->events[i], &heap->events[least]);
        i = least;
    }
}

/* ---- memory --------------------------------------------------------------- */

enum { BLOCK_SIZE = 1 << 16 };

struct arena_block {
    struct arena_block *next; /* owned */
    size_t used;
    char data[BLOCK_SIZE];
};

void *arena_alloc(struct arena *arena, size_t size)
{
    struct arena_block *block = arena->blocks;
    void *memory;

    size = (size + 15) & ~(size_t)15;
    if (size > BLOCK_SIZE) {
        abort();
    }
    if (block == NULL || block->used + size > BLOCK_SIZE) {
        block = malloc(sizeof *block);
        if (block == NULL) {
            abort();
        }
        block->used = 0;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    memory = block->data + block->used;
    block->used += size;
    memset(memory, 0, size);
    return memory;
}

char *arena_copy(struct arena *arena, const char *text)
{
    char *memory;

    if (text == NULL) {
        return NULL;
    }
    memory = arena_alloc(arena, strlen(text) + 1);
    strcpy(memory, text);
    return memory;
}

/* Keeps one block for the next world. */
void arena_reset(struct arena *arena)
{
    while (arena->blocks != NULL && arena->blocks->next != NULL) {
        struct arena_block *block = arena->blocks;

        arena->blocks = block->next;
        free(block);
    }
    if (arena->blocks != NULL) {
        arena->blocks->used = 0;
    }
}

void arena_release(struct arena *arena)
{
    arena_reset(arena);
    free(arena->blocks);
    arena->blocks = NULL;
}

/* ---- copies of batches ---------------------------------------------------- */

static const char *const *copy_list(struct arena *arena, const char *const *from, size_t n)
{
    const char **list = arena_alloc(arena, (n + 1) * sizeof *list);

    for (size_t i = 0; i < n; i++) {
        list[i] = arena_copy(arena, from[i]);
    }
    return list;
}

static struct belay_meta *copy_meta(struct arena *arena, const struct belay_meta *from, size_t n)
{
    struct belay_meta *meta = arena_alloc(arena, (n + 1) * sizeof *meta);

    for (size_t i = 0; i < n; i++) {
        meta[i].name = arena_copy(arena, from[i].name);
        meta[i].value = arena_copy(arena, from[i].value);
    }
    return meta;
}

static const struct belay_record *copy_values(struct arena *arena, const struct belay_record *from)
{
    struct belay_record *values;

    if (from == NULL) {
        return NULL;
    }
    values = arena_alloc(arena, sizeof *values);
    *values = *from;
    values->key = arena_copy(arena, from->key);
    values->lock_id = arena_copy(arena, from->lock_id);
    values->owner = arena_copy(arena, from->owner);
    values->owner_name = arena_copy(arena, from->owner_name);
    values->metadata = copy_meta(arena, from->metadata, from->n_metadata);
    values->tickets = NULL;
    values->n_tickets = 0;
    values->intents = NULL;
    values->n_intents = 0;
    return values;
}

static const struct belay_put_ticket *copy_ticket(struct arena *arena, const struct belay_put_ticket *from)
{
    struct belay_put_ticket *ticket;

    if (from == NULL) {
        return NULL;
    }
    ticket = arena_alloc(arena, sizeof *ticket);
    *ticket = *from;
    ticket->lock_id = arena_copy(arena, from->lock_id);
    ticket->key = arena_copy(arena, from->key);
    ticket->owner = arena_copy(arena, from->owner);
    ticket->owner_name = arena_copy(arena, from->owner_name);
    return ticket;
}

static const struct belay_put_intent *copy_intents(struct arena *arena, const struct belay_put_intent *from,
                                                   size_t n)
{
    struct belay_put_intent *intents = n == 0 ? NULL : arena_alloc(arena, n * sizeof *intents);

    for (size_t i = 0; i < n; i++) {
        intents[i] = from[i];
        intents[i].lock_id = arena_copy(arena, from[i].lock_id);
        intents[i].key = arena_copy(arena, from[i].key);
    }
    return intents;
}

static void copy_write(struct arena *arena, const struct belay_write *from, struct belay_write *write)
{
    *write = *from;
    write->key = arena_copy(arena, from->key);
    write->lock_id = arena_copy(arena, from->lock_id);
    write->values = copy_values(arena, from->values);
    write->drop_tickets = copy_list(arena, from->drop_tickets, from->n_drop_tickets);
    write->drop_intents = copy_list(arena, from->drop_intents, from->n_drop_intents);
    write->put_ticket = copy_ticket(arena, from->put_ticket);
    write->drop_holders = copy_list(arena, from->drop_holders, from->n_drop_holders);
    write->put_intents = copy_intents(arena, from->put_intents, from->n_put_intents);
}

static void copy_event(struct arena *arena, const struct belay_event *from, struct belay_event *event)
{
    *event = *from;
    event->type = arena_copy(arena, from->type);
    event->key = arena_copy(arena, from->key);
    event->lock_id = arena_copy(arena, from->lock_id);
    event->locked_by = arena_copy(arena, from->locked_by);
    event->locked_by_name = arena_copy(arena, from->locked_by_name);
    event->by = arena_copy(arena, from->by);
    event->reason = arena_copy(arena, from->reason);
    event->metadata = copy_meta(arena, from->metadata, from->n_metadata);
}

void batch_copy(struct arena *arena, const struct belay_batch *from, struct belay_batch *out_batch)
{
    struct belay_write *writes = arena_alloc(arena, (from->n_writes + 1) * sizeof *writes);
    struct belay_event *events = arena_alloc(arena, (from->n_events + 1) * sizeof *events);

    for (size_t i = 0; i < from->n_writes; i++) {
        copy_write(arena, &from->writes[i], &writes[i]);
    }
    for (size_t i = 0; i < from->n_events; i++) {
        copy_event(arena, &from->events[i], &events[i]);
    }
    *out_batch = *from;
    out_batch->writes = writes;
    out_batch->events = events;
    out_batch->require_unused_id = arena_copy(arena, from->require_unused_id);
}
