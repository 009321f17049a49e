/*
 * Handlers that ask the store and answer with what it says. On a store of this
 * machine they do so at once, unless they may look at very much of it (a list, a
 * history). One on the network takes as long as the network does. Nobody else
 * shall wait for either: a thread of a pool runs the handler, and what it replies is
 * sent by the loop.
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
#include "server/core/errand.h"
#include "server/core/server.h"
#include "json/json_write.h"

enum { ASK_THREADS = 16, LONG_THREADS = 2, ASK_MAX = 1000 };

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
    struct asks *asks;  /* borrowed; whose thread has it */
    struct exchange *x; /* borrowed */
    ask_fn *ask;
    ask_fn *then; /* NULL: the answer is all */
    int status;   /* 0: no answer yet */
    char *line;   /* owned; the answer. NULL: there was no memory for it */
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
    bool is_local = belay_client_is_local(server->client);
    struct asks *asks = calloc(1, sizeof *asks);

    if (asks == NULL || (asks->pool = pool_new(is_local ? LONG_THREADS : ASK_THREADS)) == NULL) {
        free(asks);
        return error_no_memory(err);
    }
    asks->server = server;
    asks->turn.run = on_turn;
    atomic_init(&asks->is_turn_due, false);
    server->aside = asks;
    if (is_local) {
        return BELAY_OK;
    }
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
    char *line = later->line;
    int status = later->status;

    later->asks->n--;
    later_free(x);
    if (status != 0) {
        reply_line(x, status, line);
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
    x->later->line = wire_line(body); /* which takes as long again: not in the loop's */
    return true;
}

static bool hand_out(struct exchange *x, struct asks *asks, ask_fn *fn, ask_fn *then)
{
    x->later = asks->n < ASK_MAX ? calloc(1, sizeof *x->later) : NULL;
    x->copy = strdup(x->query);
    if (x->later == NULL || x->copy == NULL) {
        return false;
    }
    x->query = x->copy;
    x->later->asks = asks;
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
        if (!hand_out(x, x->server->asks, fn, then)) {
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
        reply_line(x, here.status, here.line);
    } else {
        then(x);
    }
}

void exchange_ask_long(struct exchange *x, ask_fn *fn)
{
    struct asks *asks = x->server->aside;

    if (asks == NULL) {
        exchange_ask(x, fn, NULL);
        return;
    }
    http_read_no_more(x->request); /* one at a time: of those behind it each would be as long */
    if (!hand_out(x, asks, fn, NULL)) {
        say_busy(x);
    }
}

/* ---- errands ---- */

static void on_back(struct loop_task *task)
{
    struct errand *errand = (struct errand *)(void *)((char *)task - offsetof(struct errand, task));

    errand->server->aside->n--;
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
    struct asks *asks = errand->is_long ? server->aside : server->asks;

    if (errand->is_out) {
        return false;
    }
    if (asks == NULL) {
        errand->work(errand);
        errand->done(errand);
        return true;
    }
    errand->server = server;
    errand->job.work = run_errand;
    errand->task.run = on_back;
    errand->is_out = pool_add(asks->pool, &errand->job);
    asks->n += errand->is_out;
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
    struct asks *asks = server->aside;

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
    if (server->aside != NULL) {
        pool_free(server->aside->pool);
        free(server->aside);
        server->aside = server->asks = NULL;
    }
}
