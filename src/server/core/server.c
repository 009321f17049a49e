/* For all parts of the server: log and events from any thread, and releases that no client asked for. */
#include "server/core/server.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

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
    struct belay_event event;
    char *texts[7];              /* owned */
    struct belay_meta *metadata; /* owned */
};

static void tell_posted(struct loop_task *task)
{
    struct posted_event *posted = (struct posted_event *)task;

    server_on_event(posted->server, &posted->event);
    for (size_t i = 0; i < 7; i++) {
        free(posted->texts[i]);
    }
    meta_free(posted->metadata, posted->event.n_metadata);
    free(posted);
}

void server_post_event(struct server *server, const struct belay_event *event)
{
    struct posted_event *posted = calloc(1, sizeof *posted);
    struct belay_event *copy;

    if (posted == NULL) {
        return; /* the store has it; metrics and streams lack it */
    }
    copy = &posted->event;
    *posted = (struct posted_event){ .task.run = tell_posted, .server = server, .event = *event };
    const char **const texts[7] = { &copy->type,           &copy->key, &copy->lock_id, &copy->locked_by,
                                    &copy->locked_by_name, &copy->by,  &copy->reason };
    for (size_t i = 0; i < 7; i++) {
        *texts[i] = posted->texts[i] = *texts[i] == NULL ? NULL : strdup(*texts[i]);
    }
    copy->metadata = posted->metadata = meta_copy(event->metadata, event->n_metadata);
    copy->n_metadata = posted->metadata == NULL ? 0 : event->n_metadata;
    if (copy->type == NULL || copy->key == NULL) {
        copy->type = copy->key = "";
    }
    loop_post(server->loop, &posted->task);
}
