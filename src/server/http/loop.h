/*
 * An event loop of one thread: descriptors, timers, tasks for the end of the turn,
 * and tasks posted by other threads. Knows nothing of HTTP.
 *
 * One turn is: wait; the ready descriptors; tasks that other threads posted; the
 * timers that are due; tasks put off to the end of the turn; and last the
 * "before sleep" hook. What is done once for many requests (one sync) is done
 * in the hook. Tasks that the hook itself adds run in the next turn, which then
 * does not sleep.
 *
 * Everything here belongs to the loop's thread, except loop_post() and loop_wake().
 */
#ifndef SERVER_HTTP_LOOP_H
#define SERVER_HTTP_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/http/timers.h"

struct loop;

struct loop *loop_new(void); /* NULL with errno set */
void loop_free(struct loop *loop);

/* Run until loop_stop(). False with errno set if epoll fails. */
bool loop_run(struct loop *loop);
void loop_stop(struct loop *loop);
/* One turn, sleeping at most max_ms (-1: until something happens). */
bool loop_turn(struct loop *loop, int max_ms);

/* Whether there is something to do at once. The next turn then does not sleep. */
bool loop_is_ready(struct loop *loop);

/* The boot clock, read once per turn. */
int64_t loop_now_ms(const struct loop *loop);

/* --- descriptors: also a signalfd, or the reading end of a pipe --- */

struct loop_watch {
    int fd;                                              /* borrowed */
    void (*ready)(struct loop_watch *, uint32_t events); /* EPOLL… bits */
};

/*
 * Call watch->ready whenever one of `events` (EPOLLIN, EPOLLOUT, EPOLLRDHUP:
 * level-triggered) is so. False with errno set.
 */
bool loop_watch(struct loop *loop, struct loop_watch *watch, uint32_t events);
bool loop_watch_change(struct loop *loop, struct loop_watch *watch, uint32_t events);
/* Before closing the descriptor. The watch itself must stay in memory until the end of the turn. */
void loop_unwatch(struct loop *loop, struct loop_watch *watch);

/* --- timers: see timers.h --- */

/* Fire once at `at_ms` of the boot clock, or at once if that has passed; an armed timer is moved. */
bool loop_timer_set(struct loop *loop, struct timer *timer, int64_t at_ms); /* false: no memory */
void loop_timer_cancel(struct loop *loop, struct timer *timer);

/* --- work --- */

struct loop_task {
    void (*run)(struct loop_task *);
    struct loop_task *next; /* the loop's */
    bool is_queued;         /* the loop's */
};

/* Run the task at the end of this turn. A task already queued stays where it is. */
void loop_later(struct loop *loop, struct loop_task *task);

/* Run now what waits for the end of the turn: before its owner is freed. Not inside a turn. */
void loop_run_later(struct loop *loop);

/* Run the task in the loop's thread, soon. From any thread; the task is the loop's until it runs. */
void loop_post(struct loop *loop, struct loop_task *task);

/* Have the loop take a turn. From any thread. */
void loop_wake(struct loop *loop);

typedef void loop_hook(void *context);
void loop_before_sleep(struct loop *loop, loop_hook *hook, void *context);

#endif
