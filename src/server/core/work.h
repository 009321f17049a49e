/*
 * Work off the loop: work() runs in a worker thread, then done() runs on the loop.
 *
 *               work_queue()           a worker is free
 *    IDLE ----------------> QUEUED ----------------------> RUNNING
 *     ^                        |                              |
 *     |                        | work_cancel()                | work() returns
 *     |     on the loop        v                              v
 *     +---- done() ------ CANCELLED                        (posted)
 *     |                                                       |
 *     +---- done() -------------------------------------------+
 *
 *    state        the work and what it points to belong to
 *    IDLE         the caller
 *    QUEUED       the loop, which may still cancel it: work() is then never called
 *    RUNNING      the worker; the loop may only call work->cancel()
 *    CANCELLED    the loop, which calls done() at the end of this turn
 *
 * work_queue() that returns true leads to exactly one done(), also when the server stops. During done() the work is
 * IDLE again: done() may free it or queue it anew. The work of a class begins in the order in which it was queued;
 * done() is called in the order in which works end.
 *
 * All classes share one pool of threads. Each has a limit of its own, and the pool has as many threads as the limits
 * add up to: slow work of one class cannot keep another class waiting. The lists belong to the loop's thread, so only
 * the hand-over in each direction takes a mutex. A class without threads runs work() and done() at once, on the loop:
 * that is how a store on this machine is read.
 */
#ifndef SERVER_CORE_WORK_H
#define SERVER_CORE_WORK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/pool.h"
#include "server/http/loop.h"

enum work_class {
    WORK_READ,     /* read one lock; on the loop if the store is on this machine */
    WORK_SCAN,     /* read a large part of the store */
    WORK_STATS,    /* read its whole history: for seconds, so one at a time, and no list waits for it */
    WORK_JOB,      /* a request about states or the registry of applications */
    WORK_LONG_JOB, /* stop or start a database, make a backup */
    WORK_WEBHOOK,  /* call a webhook */
    WORK_NOTIFY,   /* send a notification */
    WORK_CLASSES
};

enum work_state { WORK_IDLE, WORK_QUEUED, WORK_RUNNING, WORK_CANCELLED };

struct work;
struct workers;
typedef void work_fn(struct work *work);

/* Embed it in the object that the work is about. */
struct work {
    work_fn *work;
    work_fn *done;
    work_fn *cancel;   /* NULL, or called on the loop while work() runs: makes it return soon */
    bool is_cancelled; /* for done(): work() was not called */
    /* work.c's */
    enum work_state state;
    enum work_class class;
    struct workers *workers; /* borrowed */
    struct work *next;
    struct work **link; /* what points to this work in the list of its class */
    struct pool_job job;
    struct loop_task task;
};

struct workers *workers_new(struct loop *loop, bool is_store_local); /* NULL without memory */
void workers_free(struct workers *workers);                          /* after every class is closed */

/* All of these are for the loop's thread. */

/* False: the class is full or closed, or no thread can be started; done() is not called then. */
bool work_queue(struct workers *workers, enum work_class class, struct work *work);
/* Work that has not begun is not begun; work that runs is asked to end by work->cancel(). Else nothing. */
void work_cancel(struct work *work);
/* Whether done() is still to come. */
bool work_is_pending(const struct work *work);

/* How many works of a class there can be. */
size_t work_most(const struct workers *workers, enum work_class class);
/* The works of a class that are queued or running, linked by `next`. */
struct work *work_first(const struct workers *workers, enum work_class class);
void work_cancel_all(struct workers *workers, enum work_class class);
/* Cancel all, take no more, and turn the loop until nothing is pending. */
void work_close(struct workers *workers, enum work_class class);

#endif
