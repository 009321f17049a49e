/*
 * Handlers that ask the store and answer with what it says. On a store of this
 * machine they do so at once. One on the network takes as long as the network
 * does, which nobody else shall wait for: a thread of a pool runs the handler,
 * and what it replies is sent by the loop.
 *
 * While a thread has an exchange, the loop touches only x->request (the client
 * may go away), which the thread does not.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pool.h"
#include "server/errand.h"
#include "server/server.h"

enum { ASK_THREADS = 16, ASK_MAX = 1000 };

struct asks {
    struct server *server; /* borrowed */
    struct pool *pool;     /* owned; for exchanges. The client has threads of its own for its calls. */
    size_t n;              /* exchanges and errands that are out */
    struct loop_task turn; /* has the loop turn: the client has an answer */
    atomic_bool is_turn_due;
};

struct later {
    struct pool_job job;
    struct loop_task task;
    struct exchange *x; /* borrowed */
    ask_fn *ask;
    ask_fn *then; /* NULL: the answer is all */
    int status;   /* 0: no answer yet */
    json_t *body; /* owned */
};

/* ---- the client's own threads ---- */

static void on_turn(struct loop_task *task)
{
    struct asks *asks = (struct asks *)(void *)((char *)task - offsetof(struct asks, turn));

    atomic_store(&asks->is_turn_due, false); /* the client has its turn before the loop sleeps */
}

static void wake(void *context)
{
    struct asks *asks = context;

    if (!atomic_exchange(&asks->is_turn_due, true)) {
        loop_post(asks->server->loop, &asks->turn);
    }
}

enum belay_code asks_open(struct server *server, struct belay_error *err)
{
    struct asks *asks;

    if (belay_client_is_local(server->client)) {
        return BELAY_OK;
    }
    asks = calloc(1, sizeof *asks);
    if (asks == NULL || (asks->pool = pool_new(ASK_THREADS)) == NULL) {
        free(asks);
        return error_no_memory(err);
    }
    asks->server = server;
    asks->turn.run = on_turn;
    atomic_init(&asks->is_turn_due, false);
    server->asks = asks;
    return belay_client_use_threads(server->client, ASK_THREADS, wake, asks, err);
}

/* ---- exchanges ---- */

static void later_free(struct exchange *x)
{
    free(x->later);
    free(x->copy);
    x->later = NULL;
    x->copy = NULL;
    x->query = x->request == NULL ? "" : x->request->query;
}

static void on_asked(struct loop_task *task)
{
    struct later *later = (struct later *)(void *)((char *)task - offsetof(struct later, task));
    struct exchange *x = later->x;
    ask_fn *then = later->then;
    json_t *body = later->body;
    int status = later->status;

    x->server->asks->n--;
    later_free(x);
    if (status != 0) {
        reply(x, status, body);
    } else if (x->request == NULL) {
        exchange_end(x, 499);
    } else {
        then(x);
    }
}

static void ask(struct pool_job *job)
{
    struct later *later = (struct later *)(void *)((char *)job - offsetof(struct later, job));

    later->ask(later->x);
    loop_post(later->x->server->loop, &later->task);
}

bool ask_keeps_reply(struct exchange *x, int status, json_t *body)
{
    if (x->later == NULL) {
        return false;
    }
    x->later->status = status;
    x->later->body = body;
    return true;
}

static bool hand_out(struct exchange *x, ask_fn *fn, ask_fn *then)
{
    struct asks *asks = x->server->asks;

    x->later = asks->n < ASK_MAX ? calloc(1, sizeof *x->later) : NULL;
    x->copy = strdup(x->query);
    if (x->later == NULL || x->copy == NULL) {
        return false;
    }
    x->query = x->copy;
    x->later->x = x;
    x->later->ask = fn;
    x->later->then = then;
    x->later->job.work = ask;
    x->later->task.run = on_asked;
    asks->n++;
    if (!pool_add(asks->pool, &x->later->job)) {
        asks->n--;
        return false;
    }
    return true;
}

static void say_busy(struct exchange *x)
{
    later_free(x);
    reply_problem(x, 503, "busy", "too many requests wait for the store; come back later");
}

void exchange_ask(struct exchange *x, ask_fn *fn, ask_fn *then)
{
    struct later here = { .status = 0 };

    if (x->server->asks != NULL) {
        if (!hand_out(x, fn, then)) {
            say_busy(x);
        }
        return;
    }
    if (then == NULL) {
        fn(x);
        return;
    }
    x->later = &here; /* so that a reply can be told from none */
    fn(x);
    x->later = NULL;
    if (here.status != 0) {
        reply(x, here.status, here.body);
    } else {
        then(x);
    }
}

/* ---- errands ---- */

static void on_back(struct loop_task *task)
{
    struct errand *errand = (struct errand *)(void *)((char *)task - offsetof(struct errand, task));

    errand->server->asks->n--;
    errand->is_out = false;
    errand->done(errand);
}

static void run_errand(struct pool_job *job)
{
    struct errand *errand = (struct errand *)(void *)((char *)job - offsetof(struct errand, job));

    errand->work(errand);
    loop_post(errand->server->loop, &errand->task);
}

bool errand_send(struct server *server, struct errand *errand)
{
    if (errand->is_out) {
        return false;
    }
    if (server->asks == NULL) {
        errand->work(errand);
        errand->done(errand);
        return true;
    }
    errand->server = server;
    errand->job.work = run_errand;
    errand->task.run = on_back;
    errand->is_out = pool_add(server->asks->pool, &errand->job);
    server->asks->n += errand->is_out;
    return errand->is_out;
}

/* ---- the end ---- */

/* Their clients are gone with the HTTP front. */
static void drop(struct asks *asks, struct pool_job *jobs)
{
    while (jobs != NULL) {
        struct later *later = (struct later *)(void *)((char *)jobs - offsetof(struct later, job));
        struct pool_job *job = jobs;
        struct exchange *x;

        jobs = jobs->next;
        if (job->work == run_errand) {
            on_back(&((struct errand *)(void *)((char *)job - offsetof(struct errand, job)))->task);
            continue;
        }
        x = later->x;
        asks->n--;
        later_free(x);
        exchange_end(x, 499);
    }
}

void asks_end(struct server *server)
{
    struct asks *asks = server->asks;

    if (asks == NULL) {
        return;
    }
    drop(asks, pool_stop(asks->pool));
    while (asks->n > 0 && loop_turn(server->loop, 0)) {
        /* what the threads have posted ends here */
    }
}

void asks_close(struct server *server)
{
    if (server->asks != NULL) {
        pool_free(server->asks->pool);
        free(server->asks);
        server->asks = NULL;
    }
}
