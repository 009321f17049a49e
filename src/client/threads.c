/*
 * Worker threads that ask the store for the calls of an event loop (async_table.h has a drawing). While a call is in
 * flight, the worker reads only op->batch and op->keys, and writes the answer to the call's step. The loop's thread
 * reports the answer to the operation.
 *
 * A store may answer most commits on the loop's thread, without blocking (struct belay_loop_ops): these wake no worker.
 * Reads, and commits that need more than one statement, go to the workers.
 */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"

enum { QUEUED_MAX_MS = 10000 }; /* as stores on the network have it for a request */

struct threads {
    struct pool *pool; /* owned */
    pthread_mutex_t mutex;
    struct belay_async *answered; /* answered, in order; under the mutex */
    struct belay_async **answered_end;
    void (*wake)(void *context);
    void *context;
    const struct belay_loop_ops *loop; /* borrowed; NULL: the threads do all */
    struct belay_async *unfinished;    /* of the poll thread: for the pool, in threads_flush() */
    struct belay_async **unfinished_end;
};

enum belay_code belay_client_use_threads(struct belay_client *client, size_t n, void (*wake)(void *context),
                                         void *context, struct belay_error *err)
{
    struct threads *threads = calloc(1, sizeof *threads);

    if (client->threads != NULL || n == 0) {
        free(threads);
        return error_set(err, BELAY_INVALID, "the threads of a client are chosen once, and are not 0");
    }
    if (threads == NULL || (threads->pool = pool_new(n)) == NULL) {
        free(threads);
        return error_no_memory(err);
    }
    (void)pthread_mutex_init(&threads->mutex, NULL);
    threads->answered_end = &threads->answered;
    threads->unfinished_end = &threads->unfinished;
    threads->wake = wake;
    threads->context = context;
    client->threads = threads;
    if (client->store != NULL && client->store->ops->subscribe != NULL) {
        client->store->ops->subscribe(client->store, async_on_store_wake, client);
    }
    return BELAY_OK;
}

int belay_client_poll_fd(struct belay_client *client)
{
    /* Without `wait`, threads poll the store for all waiters together. */
    bool wakes = client->store != NULL && client->store->ops->wait != NULL;
    const struct belay_loop_ops *loop = wakes ? client->store->ops->loop : NULL;
    int fd = client->threads == NULL || loop == NULL ? -1 : loop->fd(client->store);

    if (fd >= 0) {
        client->threads->loop = loop;
    }
    return fd;
}

static void add_answered(struct threads *threads, struct belay_async *call)
{
    assert(call->is_in_flight && call->step != NULL);
    (void)pthread_mutex_lock(&threads->mutex);
    call->next_answered = NULL;
    *threads->answered_end = call;
    threads->answered_end = &call->next_answered;
    (void)pthread_mutex_unlock(&threads->mutex);
}

/* A lease, or a place in a queue. */
static bool takes(const struct belay_batch *batch)
{
    bool found = false;

    for (size_t i = 0; i < batch->n_writes; i++) {
        found = found || batch->writes[i].put_ticket != NULL ||
                (batch->writes[i].set & (BELAY_SET_ACQUIRED | BELAY_SET_LEASE)) != 0;
    }
    return found;
}

/*
 * Whether it has waited for a thread for so long that its caller has no use for the answer. While a store hangs, all
 * threads wait for it. When it goes on, it must not be sent what clients have given up since: a lock would have a holder
 * that does not know of it. What a client gives back is still given back.
 */
static bool is_late(const struct belay_async *call)
{
    const struct belay_batch *batch = &call->op.batch;
    int64_t most_ms =
        batch->timeout_ms > 0 && batch->timeout_ms < QUEUED_MAX_MS ? batch->timeout_ms : QUEUED_MAX_MS;

    return call->op.want == OP_COMMIT && takes(batch) && clock_boot_ms() - call->queued_ms >= most_ms;
}

/* Ask from the beginning, or finish what the store's loop began, which has its own deadline. */
static void ask(struct belay_client *client, struct belay_async *call)
{
    struct store_step *step = call->step;

    client_wait_ends(client, &call->poller);
    assert(call->is_in_flight && step != NULL);
    if (step->pending.batch == NULL && is_late(call)) {
        store_step_refuse_late(client, step);
    } else if (step->pending.batch != NULL) {
        enum belay_code code;

        assert(step->pending.is_unfinished);
        code = client->threads->loop->finish(client->store, &step->pending);
        store_assert_commit(client->store, step->pending.batch, code, &step->result);
        store_step_answered(client, step, code);
    } else {
        store_step_ask(client, &call->op, &call->poller, step);
    }
}

static void ask_in_thread(struct pool_job *job)
{
    struct belay_async *call =
        (struct belay_async *)(void *)((char *)job - offsetof(struct belay_async, job));
    struct threads *threads = call->client->threads;

    ask(call->client, call);
    add_answered(threads, call);
    threads->wake(threads->context);
}

bool threads_ask(struct belay_client *client, struct belay_async *call)
{
    struct threads *threads = client->threads;

    if (call->step == NULL && (call->step = calloc(1, sizeof *call->step)) == NULL) {
        return false;
    }
    assert(!call->is_in_flight && !call->is_ready && call->heap_at == 0);
    call->step->pending.batch = NULL;
    call->job.work = ask_in_thread;
    call->is_in_flight = true;
    call->queued_ms = clock_boot_ms();
    if (threads->loop != NULL && store_step_begin(client, &call->op, call->step, call)) {
        return true;
    }
    if (!pool_add(threads->pool, &call->job)) {
        call->is_in_flight = false;
    }
    return call->is_in_flight;
}

void threads_take(struct belay_client *client)
{
    struct threads *threads = client->threads;
    struct belay_pending_commit *next;

    if (threads == NULL || threads->loop == NULL) {
        return;
    }
    for (struct belay_pending_commit *done = threads->loop->take(client->store); done != NULL; done = next) {
        struct belay_async *call = done->context;

        next = done->next;
        assert(call->is_in_flight && done == &call->step->pending && done->batch == &call->op.batch);
        if (done->is_unfinished) {
            call->next_answered = NULL;
            *threads->unfinished_end = call;
            threads->unfinished_end = &call->next_answered;
        } else {
            store_assert_commit(client->store, done->batch, done->code, done->out);
            store_step_answered(client, call->step, done->code);
            add_answered(threads, call);
        }
    }
}

/* Commits that others wait for are sent first, such as the claim of a waiter whose lock was released. */
int64_t threads_flush(struct belay_client *client)
{
    struct threads *threads = client->threads;
    struct belay_async *next;
    int64_t next_ms;

    if (threads == NULL || threads->loop == NULL) {
        return INT64_MAX;
    }
    next_ms = threads->loop->flush(client->store);
    for (struct belay_async *call = threads->unfinished; call != NULL; call = next) {
        next = call->next_answered; /* the thread changes it */
        if (!pool_add(threads->pool, &call->job)) {
            ask(client, call); /* there is no thread */
            add_answered(threads, call);
            next_ms = 0;
        }
    }
    threads->unfinished = NULL;
    threads->unfinished_end = &threads->unfinished;
    return next_ms;
}

void threads_poke(struct belay_client *client)
{
    if (client->threads != NULL) {
        client->threads->wake(client->threads->context);
    }
}

struct wake_job {
    struct pool_job job;
    struct belay_store *store; /* borrowed */
    char lock_id[BELAY_ID_MAX + 1];
};

static void wake_in_thread(struct pool_job *job)
{
    struct wake_job *wake = (struct wake_job *)job;

    wake->store->ops->wake(wake->store, wake->lock_id);
    free(wake);
}

void threads_wake(struct belay_client *client, const char *lock_id)
{
    struct belay_store *store = client->store;
    struct wake_job *wake = client->threads == NULL ? NULL : calloc(1, sizeof *wake);

    if (store->ops->wake == NULL) {
        free(wake);
        return;
    }
    if (wake != NULL) {
        wake->job.work = wake_in_thread;
        wake->store = store;
        (void)snprintf(wake->lock_id, sizeof wake->lock_id, "%s", lock_id);
    }
    if (wake == NULL || !pool_add(client->threads->pool, &wake->job)) {
        free(wake);
        store->ops->wake(store, lock_id);
    }
}

struct belay_async *threads_next(struct belay_client *client)
{
    struct threads *threads = client->threads;
    struct belay_async *call;

    (void)pthread_mutex_lock(&threads->mutex);
    call = threads->answered;
    if (call != NULL) {
        assert(call->is_in_flight);
        assert(call->step != NULL);
        threads->answered = call->next_answered;
        if (threads->answered == NULL) {
            threads->answered_end = &threads->answered;
        }
        call->is_in_flight = false;
    }
    (void)pthread_mutex_unlock(&threads->mutex);
    return call;
}

void threads_stop(struct belay_client *client)
{
    struct threads *threads = client->threads;

    if (threads == NULL) {
        return;
    }
    if (client->store != NULL && client->store->ops->subscribe != NULL) {
        client->store->ops->subscribe(client->store, NULL, NULL);
    }
    for (struct pool_job *job = pool_stop(threads->pool), *next; job != NULL; job = next) {
        next = job->next;
        if (job->work == wake_in_thread) {
            free(job); /* the waiter polls */
        }
    }
    pool_free(threads->pool);
    if (threads->loop != NULL) {
        threads->loop->stop(client->store);
    }
    (void)pthread_mutex_destroy(&threads->mutex);
    free(threads);
    client->threads = NULL;
}
