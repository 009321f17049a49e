#include "base/pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t work;
    struct pool_job *first;
    struct pool_job **end;
    size_t max_threads;
    size_t n_idle;
    size_t n_queued;
    size_t n_threads;
    bool is_stopping;
    pthread_t threads[]; /* n_threads of them */
};

static void *pool_thread(void *context)
{
    struct pool *pool = context;

    (void)pthread_mutex_lock(&pool->mutex);
    for (;;) {
        struct pool_job *job;

        while (pool->first == NULL && !pool->is_stopping) {
            pool->n_idle++;
            (void)pthread_cond_wait(&pool->work, &pool->mutex);
            pool->n_idle--;
        }
        if (pool->is_stopping) {
            break;
        }
        job = pool->first;
        assert(pool->n_queued > 0);
        pool->first = job->next;
        pool->n_queued--;
        if (pool->first == NULL) {
            pool->end = &pool->first;
        }
        (void)pthread_mutex_unlock(&pool->mutex);
        job->work(job);
        (void)pthread_mutex_lock(&pool->mutex);
    }
    (void)pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

struct pool *pool_new(size_t max_threads)
{
    struct pool *pool = calloc(1, sizeof *pool + max_threads * sizeof pool->threads[0]);

    assert(max_threads > 0);
    if (pool != NULL) {
        (void)pthread_mutex_init(&pool->mutex, NULL);
        (void)pthread_cond_init(&pool->work, NULL);
        pool->end = &pool->first;
        pool->max_threads = max_threads;
    }
    return pool;
}

bool thread_start(pthread_t *thread, void *(*main)(void *), void *argument)
{
    sigset_t all;
    sigset_t before;
    bool ok;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    ok = pthread_create(thread, NULL, main, argument) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

bool thread_start_detached(void *(*main)(void *), void *argument)
{
    pthread_t thread;
    bool ok = thread_start(&thread, main, argument);

    if (ok) {
        (void)pthread_detach(thread);
    }
    return ok;
}

void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;

    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

struct timespec cond_deadline(int64_t ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(ms % 1000 * 1000000);
    until.tv_sec += (time_t)(ms / 1000) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

void cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ms)
{
    struct timespec until = cond_deadline(ms);

    (void)pthread_cond_timedwait(cond, mutex, &until);
}

bool pool_add(struct pool *pool, struct pool_job *job)
{
    bool ok;

    assert(job->work != NULL);
    job->next = NULL;
    (void)pthread_mutex_lock(&pool->mutex);
    assert(*pool->end == NULL && (pool->first == NULL) == (pool->n_queued == 0));
    assert(pool->n_threads <= pool->max_threads && pool->n_idle <= pool->n_threads);
    if (!pool->is_stopping && pool->n_queued >= pool->n_idle && pool->n_threads < pool->max_threads) {
        pool->n_threads += thread_start(&pool->threads[pool->n_threads], pool_thread, pool);
    }
    ok = pool->n_threads > 0 && !pool->is_stopping;
    if (ok) {
        *pool->end = job;
        pool->end = &job->next;
        pool->n_queued++;
    }
    (void)pthread_mutex_unlock(&pool->mutex);
    if (ok) {
        /* After the unlock, because the thread that wakes up needs the mutex. */
        (void)pthread_cond_signal(&pool->work);
    }
    return ok;
}

struct pool_job *pool_stop(struct pool *pool)
{
    struct pool_job *left;

    (void)pthread_mutex_lock(&pool->mutex);
    pool->is_stopping = true;
    (void)pthread_cond_broadcast(&pool->work);
    (void)pthread_mutex_unlock(&pool->mutex);
    for (size_t i = 0; i < pool->n_threads; i++) {
        (void)pthread_join(pool->threads[i], NULL);
    }
    left = pool->first;
    pool->first = NULL;
    pool->end = &pool->first;
    pool->n_queued = 0;
    pool->n_threads = 0;
    return left;
}

void pool_free(struct pool *pool)
{
    if (pool == NULL) {
        return;
    }
    (void)pool_stop(pool);
    (void)pthread_cond_destroy(&pool->work);
    (void)pthread_mutex_destroy(&pool->mutex);
    free(pool);
}
