/* Threads, and a pool of them with one queue. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Start a thread that blocks all signals: those are for the program's own threads. */
bool thread_start(pthread_t *thread, void *(*main)(void *), void *argument);

struct pool;

/* Embed it in the object that the job is about. */
struct pool_job {
    void (*work)(struct pool_job *job); /* called in a thread of the pool; may free the job */
    struct pool_job *next;              /* the pool's */
};

/* Threads are started when jobs need them, at most max_threads. NULL without memory. */
struct pool *pool_new(size_t max_threads);

/* From any thread. False if there is no thread and none can be started. */
bool pool_add(struct pool *pool, struct pool_job *job);

/*
 * Wait for the jobs in progress, and begin no other. Returns those that were not begun, linked by `next`.
 */
struct pool_job *pool_stop(struct pool *pool);
void pool_free(struct pool *pool); /* stops it first; NULL does nothing */

#endif
