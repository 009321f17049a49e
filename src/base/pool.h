/* A few threads for what must not hold up the thread that asks for it. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct pool;

/* Part of whatever it is for. */
struct pool_job {
    void (*work)(struct pool_job *job); /* in one of the threads; may free the job */
    struct pool_job *next;              /* the pool's */
};

/* At most so many threads, each begun when there is work for it. NULL without memory. */
struct pool *pool_new(size_t max_threads);

/* From any thread. False if there is not one thread to do it, and none can be made. */
bool pool_add(struct pool *pool, struct pool_job *job);

/*
 * Wait for the jobs that are under way, and begin no further one. Returns those
 * that were not begun, linked by `next`. Then free it.
 */
struct pool_job *pool_stop(struct pool *pool);
void pool_free(struct pool *pool); /* NULL does nothing; stops it first if that was not done */

#endif
