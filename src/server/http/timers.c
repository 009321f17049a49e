#include "server/http/timers.h"

#include <assert.h>
#include <stdlib.h>

#include "base/buf.h"

static void heap_place(struct timers *timers, size_t index, struct timer *timer)
{
    assert(index < timers->count && timers->count <= timers->cap);
    timers->heap[index] = timer;
    timer->place = index + 1;
}

static void sift_up(struct timers *timers, size_t index)
{
    struct timer *timer = timers->heap[index];

    while (index > 0) {
        size_t parent = (index - 1) / 2;
        if (timers->heap[parent]->at_ms <= timer->at_ms) {
            break;
        }
        heap_place(timers, index, timers->heap[parent]);
        index = parent;
    }
    heap_place(timers, index, timer);
}

static void sift_down(struct timers *timers, size_t index)
{
    struct timer *timer = timers->heap[index];

    for (;;) {
        size_t child = 2 * index + 1;
        if (child >= timers->count) {
            break;
        }
        if (child + 1 < timers->count && timers->heap[child + 1]->at_ms < timers->heap[child]->at_ms) {
            child++;
        }
        if (timers->heap[child]->at_ms >= timer->at_ms) {
            break;
        }
        heap_place(timers, index, timers->heap[child]);
        index = child;
    }
    heap_place(timers, index, timer);
}

bool timers_set(struct timers *timers, struct timer *timer, int64_t at_ms)
{
    int64_t before_ms = timer->at_ms;

    if (timer->place == 0) {
        struct timer **heap =
            array_grow((void *)timers->heap, sizeof(struct timer *), timers->count + 1, &timers->cap);

        if (heap == NULL) {
            return false;
        }
        timers->heap = heap;
        timer->at_ms = at_ms;
        timers->count++;
        heap_place(timers, timers->count - 1, timer);
        sift_up(timers, timers->count - 1);
        return true;
    }
    assert(timer->place <= timers->count && timers->heap[timer->place - 1] == timer);
    timer->at_ms = at_ms;
    if (at_ms < before_ms) {
        sift_up(timers, timer->place - 1);
    } else {
        sift_down(timers, timer->place - 1);
    }
    return true;
}

void timers_cancel(struct timers *timers, struct timer *timer)
{
    size_t index;
    struct timer *last;

    if (timer->place == 0) {
        return;
    }
    index = timer->place - 1;
    assert(index < timers->count && timers->heap[index] == timer);
    last = timers->heap[--timers->count];
    timer->place = 0;
    if (last == timer) {
        return;
    }
    heap_place(timers, index, last);
    sift_up(timers, index);
    sift_down(timers, last->place - 1);
}

bool timer_is_set(const struct timer *timer)
{
    return timer->place != 0;
}

bool timers_next(const struct timers *timers, int64_t *out_at_ms)
{
    if (timers->count == 0) {
        return false;
    }
    *out_at_ms = timers->heap[0]->at_ms;
    return true;
}

struct timer *timers_take_due(struct timers *timers, int64_t now_ms)
{
    struct timer *timer;

    if (timers->count == 0 || timers->heap[0]->at_ms > now_ms) {
        return NULL;
    }
    timer = timers->heap[0];
    timers_cancel(timers, timer);
    return timer;
}

void timers_release(struct timers *timers)
{
    free(timers->heap);
    *timers = (struct timers){ 0 };
}
