#include "server/core/work.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { NETWORK_THREADS = 16, SCAN_THREADS = 2, READS_MAX = 1000 };

struct class_queue {
    size_t max_running; /* 0: runs at once, on the loop */
    size_t max_pending; /* beyond that work is refused */
    size_t n_running;
    size_t n_pending;   /* not IDLE */
    struct work *first; /* RUNNING, and behind them QUEUED, each in the order in which they were queued */
    struct work **end;
    struct work *queued; /* the first of those that have not begun */
    bool is_closed;
};

struct workers {
    struct loop *loop;     /* borrowed */
    struct pool *pool;     /* owned */
    pthread_t loop_thread; /* which also made this */
    struct class_queue classes[WORK_CLASSES];
};

static bool is_on_loop(const struct workers *workers)
{
    return pthread_equal(pthread_self(), workers->loop_thread) != 0;
}

/* The transitions of the drawing in work.h, and a step back where no thread can be started. */
static void work_set_state(struct work *work, enum work_state next)
{
#define TO(state) (1U << WORK_##state)
    static const unsigned may_become[] = {
        [WORK_IDLE] = TO(QUEUED) | TO(RUNNING),
        [WORK_QUEUED] = TO(RUNNING) | TO(CANCELLED) | TO(IDLE),
        [WORK_RUNNING] = TO(IDLE) | TO(QUEUED),
        [WORK_CANCELLED] = TO(IDLE),
    };
#undef TO

    assert((may_become[work->state] & 1U << next) != 0);
    work->state = next;
}

/* ---- the list of a class ---- */

static void link_last(struct class_queue *class, struct work *work)
{
    work->next = NULL;
    work->link = class->end;
    *class->end = work;
    class->end = &work->next;
}

static void unlink_work(struct class_queue *class, struct work *work)
{
    assert(*work->link == work);
    *work->link = work->next;
    if (work->next != NULL) {
        work->next->link = work->link;
    } else {
        class->end = work->link;
    }
}

/* ---- running ---- */

static void start_queued(struct class_queue *class)
{
    struct work *work;

    while ((work = class->queued) != NULL && class->n_running < class->max_running) {
        work_set_state(work, WORK_RUNNING);
        if (!pool_add(work->workers->pool, &work->job)) {
            work_set_state(work, WORK_QUEUED);
            return;
        }
        class->queued = work->next;
        class->n_running++;
    }
}

static void run_work(struct pool_job *job)
{
    struct work *work = CONTAINER_OF(job, struct work, job);

    assert(work->state == WORK_RUNNING && !is_on_loop(work->workers));
    work->work(work);
    loop_post(work->workers->loop, &work->task);
}

static void finish_work(struct loop_task *task)
{
    struct work *work = CONTAINER_OF(task, struct work, task);
    struct class_queue *class = &work->workers->classes[work->class];

    assert(is_on_loop(work->workers));
    assert(work->state == WORK_RUNNING || work->state == WORK_CANCELLED);
    work->is_cancelled = work->state == WORK_CANCELLED;
    assert(class->n_pending > 0 && class->n_running <= class->n_pending);
    if (!work->is_cancelled) {
        assert(class->n_running > 0);
        unlink_work(class, work);
        class->n_running--;
    }
    class->n_pending--;
    work_set_state(work, WORK_IDLE);
    start_queued(class);
    work->done(work);
}

bool work_queue(struct workers *workers, enum work_class class, struct work *work)
{
    struct class_queue *queue = &workers->classes[class];

    assert(class < WORK_CLASSES && work->work != NULL && work->done != NULL);
    assert(is_on_loop(workers) && work->state == WORK_IDLE);
    work->is_cancelled = false;
    if (queue->max_running == 0) {
        work_set_state(work, WORK_RUNNING);
        work->work(work);
        work_set_state(work, WORK_IDLE);
        work->done(work);
        return true;
    }
    if (queue->n_pending >= queue->max_pending || queue->is_closed) {
        return false;
    }
    work->workers = workers;
    work->class = class;
    work->job.work = run_work;
    work->task.run = finish_work;
    work_set_state(work, WORK_QUEUED);
    link_last(queue, work);
    if (queue->queued == NULL) {
        queue->queued = work;
    }
    start_queued(queue);
    if (work->state == WORK_QUEUED && queue->n_running == 0) {
        queue->queued = NULL; /* no thread could be started: nothing would begin it later */
        unlink_work(queue, work);
        work_set_state(work, WORK_IDLE);
        return false;
    }
    queue->n_pending++;
    assert(queue->n_pending <= queue->max_pending && queue->n_running <= queue->max_running);
    return true;
}

/* ---- cancelling ---- */

void work_cancel(struct work *work)
{
    struct workers *workers = work->workers;

    if (work->state == WORK_QUEUED) {
        struct class_queue *class = &workers->classes[work->class];

        assert(is_on_loop(workers));
        class->queued = class->queued == work ? work->next : class->queued;
        unlink_work(class, work);
        work_set_state(work, WORK_CANCELLED);
        loop_later(workers->loop, &work->task);
    } else if (work->state == WORK_RUNNING && work->cancel != NULL) {
        work->cancel(work);
    }
}

bool work_is_pending(const struct work *work)
{
    return work->state != WORK_IDLE;
}

size_t work_most(const struct workers *workers, enum work_class class)
{
    return workers->classes[class].max_pending;
}

struct work *work_first(const struct workers *workers, enum work_class class)
{
    return workers->classes[class].first;
}

void work_cancel_all(struct workers *workers, enum work_class class)
{
    struct work *next;

    for (struct work *work = work_first(workers, class); work != NULL; work = next) {
        next = work->next;
        work_cancel(work);
    }
}

/* ---- the pool ---- */

struct workers *workers_new(struct loop *loop, bool is_store_local)
{
    const size_t limits[WORK_CLASSES][2] = {
        [WORK_READ] = { is_store_local ? 0 : NETWORK_THREADS, READS_MAX },
        [WORK_SCAN] = { is_store_local ? SCAN_THREADS : NETWORK_THREADS, READS_MAX },
        [WORK_STATS] = { 1, 16 },
        [WORK_JOB] = { 64, 64 },
        [WORK_LONG_JOB] = { 16, 16 },
        [WORK_WEBHOOK] = { 8, SIZE_MAX }, /* server.webhooks.max limits them */
        [WORK_NOTIFY] = { 8, SIZE_MAX },  /* one for each target */
    };
    struct workers *workers = calloc(1, sizeof *workers);
    size_t n_threads = 0;

    if (workers == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < WORK_CLASSES; i++) {
        workers->classes[i].max_running = limits[i][0];
        workers->classes[i].max_pending = limits[i][1];
        workers->classes[i].end = &workers->classes[i].first;
        n_threads += limits[i][0];
    }
    workers->loop = loop;
    workers->loop_thread = pthread_self();
    workers->pool = pool_new(n_threads);
    if (workers->pool == NULL) {
        free(workers);
        workers = NULL;
    }
    return workers;
}

void work_close(struct workers *workers, enum work_class class)
{
    struct class_queue *queue = &workers->classes[class];

    assert(is_on_loop(workers));
    queue->is_closed = true;
    work_cancel_all(workers, class);
    while (queue->n_pending > 0 && loop_turn(workers->loop, 1000)) {
    }
}

void workers_free(struct workers *workers)
{
    if (workers == NULL) {
        return;
    }
    for (size_t i = 0; i < WORK_CLASSES; i++) {
        assert(workers->classes[i].n_pending == 0 && workers->classes[i].n_running == 0);
        assert(workers->classes[i].first == NULL);
    }
    pool_free(workers->pool);
    free(workers);
}
