/*
 * A job is one request to the store that a key starts. Each has a thread, so that a store that hangs blocks neither the
 * keyboard nor the next job. A job whose result is no longer needed is abandoned: its thread runs until the store
 * answers, and then frees it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "cli/commands/commands.h"
#include "cli/top/top.h"

enum {
    RUNNING_MAX = 8, /* threads that hang in the store */
    CLOSE_MS = 300   /* wait at the end for what is in progress */
};

void top_job_free(struct top_job *job)
{
    if (job == NULL) {
        return;
    }
    free(job->key);
    free(job->lock_id);
    belay_info_free(job->info);
    belay_error_release(&job->err);
    top_lines_free(&job->lines);
    free(job);
}

static void do_task(struct top_job *job)
{
    struct belay_client *client = job->jobs->client;
    char by[256];

    switch (job->task) {
    case TOP_READ_DETAIL:
        top_read_detail(client, job->key, job->columns, &job->lines);
        break;
    case TOP_FIND_HOLDER:
        job->code = unlock_find_held(client, job->key, &job->info, &job->err);
        break;
    case TOP_UNLOCK:
        unlock_actor(by, sizeof by);
        job->code = belay_force_release(client, job->key, job->lock_id, by,
                                        job->reason[0] == '\0' ? NULL : job->reason, NULL, &job->err);
        break;
    }
}

static void *job_thread(void *context)
{
    struct top_job *job = context;
    struct top_jobs *jobs = job->jobs;

    do_task(job);
    (void)pthread_mutex_lock(&jobs->mutex);
    assert(!job->is_done && jobs->n_running > 0);
    job->is_done = true;
    if (job->is_abandoned) {
        top_job_free(job);
    } else {
        (void)!write(jobs->wake_fd, &(char){ TOP_WAKE_JOB }, 1);
    }
    jobs->n_running--;
    (void)pthread_cond_broadcast(&jobs->changed);
    (void)pthread_mutex_unlock(&jobs->mutex);
    return NULL;
}

bool top_job_start(struct top_jobs *jobs, enum top_task task, const char *key, const char *lock_id,
                   const char *reason, size_t columns)
{
    struct top_job *job = calloc(1, sizeof *job);
    bool is_started;

    top_job_abandon(jobs);
    if (job == NULL) {
        return false;
    }
    assert(jobs->current == NULL);
    job->task = task;
    job->jobs = jobs;
    job->columns = columns;
    job->err = (struct belay_error)BELAY_ERROR_INIT;
    job->key = strdup(key);
    job->lock_id = lock_id == NULL ? NULL : strdup(lock_id);
    (void)snprintf(job->reason, sizeof job->reason, "%s", reason == NULL ? "" : reason);
    (void)pthread_mutex_lock(&jobs->mutex);
    is_started = job->key != NULL && (lock_id == NULL || job->lock_id != NULL) &&
                 jobs->n_running < RUNNING_MAX && thread_start_detached(job_thread, job);
    assert(jobs->n_running <= RUNNING_MAX);
    jobs->n_running += is_started;
    (void)pthread_mutex_unlock(&jobs->mutex);
    if (is_started) {
        jobs->current = job;
    } else {
        top_job_free(job);
    }
    return is_started;
}

bool top_job_is(const struct top_jobs *jobs, enum top_task task)
{
    return jobs->current != NULL && jobs->current->task == task;
}

struct top_job *top_job_collect(struct top_jobs *jobs)
{
    struct top_job *job = jobs->current;
    bool is_done;

    if (job == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&jobs->mutex);
    is_done = job->is_done;
    (void)pthread_mutex_unlock(&jobs->mutex);
    if (!is_done) {
        return NULL;
    }
    assert(!job->is_abandoned);
    jobs->current = NULL;
    return job;
}

void top_job_abandon(struct top_jobs *jobs)
{
    struct top_job *job = jobs->current;

    if (job == NULL) {
        return;
    }
    jobs->current = NULL;
    (void)pthread_mutex_lock(&jobs->mutex);
    if (job->is_done) {
        top_job_free(job);
    } else {
        job->is_abandoned = true;
    }
    (void)pthread_mutex_unlock(&jobs->mutex);
}

void top_jobs_open(struct top_jobs *jobs, struct belay_client *client, int wake_fd)
{
    jobs->client = client;
    jobs->wake_fd = wake_fd;
    (void)pthread_mutex_init(&jobs->mutex, NULL);
    cond_init(&jobs->changed);
}

bool top_jobs_close(struct top_jobs *jobs)
{
    struct timespec until = cond_deadline(CLOSE_MS);
    bool is_idle;

    top_job_abandon(jobs);
    (void)pthread_mutex_lock(&jobs->mutex);
    while (jobs->n_running > 0 && pthread_cond_timedwait(&jobs->changed, &jobs->mutex, &until) == 0) {
    }
    is_idle = jobs->n_running == 0;
    (void)pthread_mutex_unlock(&jobs->mutex);
    if (is_idle) {
        (void)pthread_cond_destroy(&jobs->changed);
        (void)pthread_mutex_destroy(&jobs->mutex);
    }
    return is_idle;
}
