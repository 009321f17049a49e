/*
 * Handlers that read the store and reply with what it says. A worker runs them, unless the store is on this machine
 * and the read is short; the reply is kept, and the loop sends it.
 *
 * While the work is pending, the loop touches only x->request (the client may go away), which the worker does not.
 */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/server.h"
#include "json/json_write.h"

static struct exchange *exchange_of(struct work *work)
{
    return CONTAINER_OF(work, struct exchange, read.work);
}

static void run_read(struct work *work)
{
    struct exchange *x = exchange_of(work);

    assert(x->read.fn != NULL && x->read.status == 0);
    x->read.fn(x);
}

static void cancel_read(struct work *work)
{
    atomic_store(&exchange_of(work)->read.is_unwanted, true);
}

static void release_query(struct exchange *x)
{
    free(x->read.query);
    x->read.query = NULL;
    x->query = x->request == NULL ? "" : x->request->query;
}

static void on_read_done(struct work *work)
{
    struct exchange *x = exchange_of(work);

    assert(x->pending == NULL && x->holder == NULL && x->stream == NULL);
    release_query(x);
    if (x->read.status != 0) {
        reply_line(x, x->read.status, x->read.line);
    } else if (x->request == NULL) {
        exchange_end(x, 499);
    } else {
        assert(x->read.then != NULL && !work->is_cancelled);
        x->read.then(x);
    }
}

bool exchange_keeps_reply(struct exchange *x, int status, json_t *body)
{
    if (!work_is_pending(&x->read.work)) {
        return false;
    }
    assert(x->read.status == 0 && status >= 200 && status < 600);
    x->read.status = status;
    x->read.line = wire_line(body); /* here and not on the loop: it takes as long as the read */
    return true;
}

void exchange_read(struct exchange *x, enum work_class class, exchange_fn *fn, exchange_fn *then)
{
    assert(x->request != NULL && !work_is_pending(&x->read.work));
    if (class != WORK_READ) {
        http_read_no_more(x->request); /* a connection scans once at a time */
    }
    x->read.work = (struct work){ .work = run_read, .done = on_read_done, .cancel = cancel_read };
    atomic_store(&x->read.is_unwanted, false);
    x->read.fn = fn;
    x->read.then = then;
    x->read.status = 0;
    if (*x->query == '\0') {
        x->query = "";
    } else {
        x->query = x->read.query = strdup(x->query); /* the request may go away with its client */
    }
    if (x->query == NULL || !work_queue(x->server->workers, class, &x->read.work)) {
        release_query(x);
        reply_problem(x, 503, "busy", "too many requests wait for the store; retry later");
    }
}
