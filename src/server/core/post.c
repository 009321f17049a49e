/* What other threads hand to the loop: lines of the log, and events. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "server/core/server.h"

struct posted_line {
    struct loop_task task;
    struct server *server;
    enum log_level level;
    char event[32];
    char text[];
};

static void log_posted(struct loop_task *task)
{
    struct posted_line *line = (struct posted_line *)task;

    log_note(&line->server->log, line->level, line->event, "%s", line->text);
    free(line);
}

void server_log(struct server *server, enum log_level level, const char *event, const char *text)
{
    struct posted_line *line = calloc(1, sizeof *line + strlen(text) + 1);

    if (line == NULL) {
        return; /* the log lacks a line */
    }
    line->task.run = log_posted;
    line->server = server;
    line->level = level;
    (void)snprintf(line->event, sizeof line->event, "%s", event);
    memcpy(line->text, text, strlen(text) + 1);
    loop_post(server->loop, &line->task);
}

struct posted_event {
    struct loop_task task;
    struct server *server;
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
    *copy = *event;
    {
        const char **const texts[7] = { &copy->type,           &copy->key, &copy->lock_id, &copy->locked_by,
                                        &copy->locked_by_name, &copy->by,  &copy->reason };

        for (size_t i = 0; i < 7; i++) {
            posted->texts[i] = *texts[i] == NULL ? NULL : strdup(*texts[i]);
            *texts[i] = posted->texts[i];
        }
    }
    posted->metadata = meta_copy(event->metadata, event->n_metadata);
    copy->metadata = posted->metadata;
    copy->n_metadata = posted->metadata == NULL ? 0 : event->n_metadata;
    posted->task.run = tell_posted;
    posted->server = server;
    if (copy->type == NULL || copy->key == NULL) {
        copy->type = copy->key = "";
    }
    loop_post(server->loop, &posted->task);
}
