/*
 * Threads that ask the store for the calls of an event loop. A call is out while
 * one of them asks: only op->batch and op->keys are read then, and the answer is
 * written beside the operation. The loop's thread reports it to the operation.
 */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "client/client.h"

struct threads {
    struct pool *pool; /* owned */
    pthread_mutex_t mutex;
    struct belay_async *back; /* answered, in order; under the mutex */
    struct belay_async **back_end;
    void (*wake)(void *context);
    void *context;
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
    threads->back_end = &threads->back;
    threads->wake = wake;
    threads->context = context;
    client->threads = threads;
    if (client->store != NULL && client->store->ops->subscribe != NULL) {
        client->store->ops->subscribe(client->store, async_on_store_wake, client);
    }
    return BELAY_OK;
}

static void ask_in_thread(struct pool_job *job)
{
    struct belay_async *call =
        (struct belay_async *)(void *)((char *)job - offsetof(struct belay_async, job));
    struct belay_client *client = call->client;
    struct threads *threads = client->threads;

    client_wait_ends(client, &call->poller);
    store_step_ask(client, &call->op, &call->poller, call->step);
    (void)pthread_mutex_lock(&threads->mutex);
    call->next_back = NULL;
    *threads->back_end = call;
    threads->back_end = &call->next_back;
    (void)pthread_mutex_unlock(&threads->mutex);
    threads->wake(threads->context);
}

bool threads_ask(struct belay_client *client, struct belay_async *call)
{
    if (call->step == NULL && (call->step = calloc(1, sizeof *call->step)) == NULL) {
        return false;
    }
    call->job.work = ask_in_thread;
    call->is_out = true;
    if (!pool_add(client->threads->pool, &call->job)) {
        call->is_out = false;
    }
    return call->is_out;
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
    call = threads->back;
    if (call != NULL) {
        assert(call->is_out);
        threads->back = call->next_back;
        if (threads->back == NULL) {
            threads->back_end = &threads->back;
        }
        call->is_out = false;
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
    if (client->store->ops->subscribe != NULL) {
        client->store->ops->subscribe(client->store, NULL, NULL);
    }
    for (struct pool_job *job = pool_stop(threads->pool), *next; job != NULL; job = next) {
        next = job->next;
        if (job->work == wake_in_thread) {
            free(job); /* the waiter polls */
        }
    }
    pool_free(threads->pool);
    (void)pthread_mutex_destroy(&threads->mutex);
    free(threads);
    client->threads = NULL;
}
