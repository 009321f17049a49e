/* For all parts of the server: log and events from any thread, and releases that no client asked for. */
#include "server/core/server.h"

#include <stdlib.h>

#include "server/core/event_log.h"

void server_log(struct server *server, enum log_level level, const char *event, const char *text)
{
    log_note(&server->log, level, event, "%s", text);
    loop_wake(server->loop); /* the end of a turn flushes the log */
}

static void on_released(void *context, enum belay_code code, const struct belay_info *info,
                        const struct belay_error *err)
{
    struct server *server = context;

    (void)info;
    server->n_releasing--;
    if (code != BELAY_OK) {
        log_note(&server->log, LOG_WARN, "release", "cannot release an unwanted lock: %s", err->text);
    }
}

void server_release(struct server *server, const char *key, const struct lock_keys *keys, const char *lock_id,
                    const char *by)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const char *const *all = keys == NULL ? &key : keys->keys;

    server->n_releasing++;
    if (belay_async_release_keys(server->client, all, keys == NULL ? 1 : keys->n, lock_id,
                                 BELAY_OUTCOME_FAILED, by, on_released, server, &err) != BELAY_OK) {
        on_released(server, err.code, NULL, &err);
    }
    belay_error_release(&err);
}

struct posted_event {
    struct loop_task task;
    struct server *server; /* borrowed */
    struct kept_event kept;
};

static void tell_posted(struct loop_task *task)
{
    struct posted_event *posted = (struct posted_event *)task;

    server_on_event(posted->server, &posted->kept.event);
    kept_event_release(&posted->kept);
    free(posted);
}

void server_post_event(struct server *server, const struct belay_event *event)
{
    struct posted_event *posted = calloc(1, sizeof *posted);

    if (posted == NULL) {
        return; /* the store has it; metrics and streams lack it */
    }
    posted->task.run = tell_posted;
    posted->server = server;
    kept_event_copy(event, &posted->kept);
    loop_post(server->loop, &posted->task);
}
