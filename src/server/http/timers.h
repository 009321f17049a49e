/* Timers in a binary heap: set, move and cancel in log(n), for tens of thousands. */
#ifndef SERVER_HTTP_TIMERS_H
#define SERVER_HTTP_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The object that a timer, a task or a work is a part of. */
#define CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Part of whatever it is for. All zero is a timer that is not set. */
struct timer {
    int64_t at_ms;
    void (*fire)(struct timer *);
    size_t place; /* the heap's: index + 1, or 0 when not set */
};

struct timers {
    struct timer **heap; /* owned; the timers are borrowed */
    size_t count;
    size_t cap;
};

bool timers_set(struct timers *timers, struct timer *timer, int64_t at_ms); /* false: no memory */
void timers_cancel(struct timers *timers, struct timer *timer);
bool timer_is_set(const struct timer *timer);

/* The earliest time; false if none is set. */
bool timers_next(const struct timers *timers, int64_t *out_at_ms);
/* Take out and return the earliest that is due at now_ms, or NULL. */
struct timer *timers_take_due(struct timers *timers, int64_t now_ms);
void timers_release(struct timers *timers);

#endif
