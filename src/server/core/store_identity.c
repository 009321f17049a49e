#include "server/core/store_identity.h"

#include <stddef.h>
#include <stdio.h>

#include "server/core/server.h"

enum { AGAIN_MS = 1000 };

static struct store_identity *of_work(struct work *work)
{
    return CONTAINER_OF(work, struct store_identity, work);
}

static void try_later(struct store_identity *identity)
{
    struct loop *loop = identity->server->loop;

    (void)loop_timer_set(loop, &identity->timer, loop_now_ms(loop) + AGAIN_MS);
}

static void read_again(struct work *work)
{
    struct store_identity *identity = of_work(work);
    const char *id = NULL;

    if (belay_client_store_id(identity->server->client, &id, NULL) == BELAY_OK) {
        (void)snprintf(identity->found, sizeof identity->found, "%s", id);
    }
}

static void on_identity_read(struct work *work)
{
    struct store_identity *identity = of_work(work);

    if (work->is_cancelled) {
        return;
    }
    if (identity->found[0] == '\0') {
        try_later(identity);
        return;
    }
    (void)snprintf(identity->id, sizeof identity->id, "%s", identity->found);
    log_note(&identity->server->log, LOG_INFO, "store", "the store answers now");
}

static void on_retry_timer(struct timer *timer)
{
    struct store_identity *identity = CONTAINER_OF(timer, struct store_identity, timer);

    if (!work_queue(identity->server->workers, WORK_READ, &identity->work)) {
        try_later(identity);
    }
}

void store_identity_begin(struct server *server)
{
    struct store_identity *identity = &server->identity;
    struct belay_error err = BELAY_ERROR_INIT;
    const char *id = NULL;

    identity->server = server;
    identity->work.work = read_again;
    identity->work.done = on_identity_read;
    identity->timer.fire = on_retry_timer;
    if (belay_client_store_id(server->client, &id, &err) == BELAY_OK) {
        (void)snprintf(identity->id, sizeof identity->id, "%s", id);
    } else {
        log_note(&server->log, LOG_WARN, "store", "requests fail until the store can be used: %s", err.text);
        try_later(identity);
    }
    belay_error_release(&err);
}

void store_identity_end(struct server *server)
{
    if (server->identity.server != NULL) {
        loop_timer_cancel(server->loop, &server->identity.timer);
    }
}
