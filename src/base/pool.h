/* Threads, timed waits on conditions, and a pool of threads with one queue. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Start a thread that blocks all signals: those are for the program's own threads. */
bool thread_start(pthread_t *thread, void *(*main)(void *), void *argument);
/* The same for a thread that is not joined. */
bool thread_start_detached(void *(*main)(void *), void *argument);

/* A condition whose timed waits use the monotonic clock: a step of the wall clock does not change them. */
void cond_init(pthread_cond_t *cond);
/* `ms` from now, for pthread_cond_timedwait(). */
struct timespec cond_deadline(int64_t ms);
/* Waits with the mutex held, for at most `ms`; may return sooner. */
void cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ms);

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

/* Wait for the jobs in progress, and begin no other. Returns those that were not begun, linked by `next`. */
struct pool_job *pool_stop(struct pool *pool);
void pool_free(struct pool *pool); /* stops it first; NULL does nothing */

#endif
