#include "server/core/event_log.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"

void kept_event_copy(const struct belay_event *event, struct kept_event *out_kept)
{
    struct belay_event *copy = &out_kept->event;

    *out_kept = (struct kept_event){ .event = *event };
    const char **const texts[7] = { &copy->type,           &copy->key, &copy->lock_id, &copy->locked_by,
                                    &copy->locked_by_name, &copy->by,  &copy->reason };
    for (size_t i = 0; i < 7; i++) {
        *texts[i] = out_kept->texts[i] = *texts[i] == NULL ? NULL : strdup(*texts[i]);
    }
    copy->metadata = out_kept->metadata = meta_copy(event->metadata, event->n_metadata);
    copy->n_metadata = out_kept->metadata == NULL ? 0 : event->n_metadata;
    if (copy->type == NULL || copy->key == NULL) {
        copy->type = copy->key = "";
    }
}

void kept_event_release(struct kept_event *kept)
{
    for (size_t i = 0; i < 7; i++) {
        free(kept->texts[i]);
    }
    meta_free(kept->metadata, kept->event.n_metadata);
}

static bool keep_event(void *context, const struct belay_event *event)
{
    struct event_log *log = context;

    struct kept_event *events = array_grow(log->events, sizeof *events, log->n + 1, &log->room);

    assert(log->n < log->most && log->n <= log->room);
    if (events == NULL) {
        log->code = BELAY_NO_MEMORY;
        return false;
    }
    log->events = events;
    kept_event_copy(event, &log->events[log->n++]);
    return log->n < log->most;
}

static void read_log_piece(struct work *work)
{
    struct event_log *log = CONTAINER_OF(work, struct event_log, work);
    enum belay_code code = belay_events(log->client, NULL, log->after, log->last, keep_event, log, NULL);

    log->code = log->code == BELAY_OK ? code : log->code;
}

void event_log_init(struct event_log *log, struct belay_client *client, work_fn *done)
{
    *log = (struct event_log){ .work = { .work = read_log_piece, .done = done }, .client = client };
}

bool event_log_read(struct event_log *log, struct workers *workers, enum work_class class, uint64_t after,
                    size_t last, size_t most)
{
    assert(!work_is_pending(&log->work) && most > 0);
    event_log_release(log);
    log->after = after;
    log->last = last;
    log->most = most;
    log->code = BELAY_OK;
    return work_queue(workers, class, &log->work);
}

void event_log_release(struct event_log *log)
{
    while (log->n > 0) {
        kept_event_release(&log->events[--log->n]);
    }
    free(log->events);
    log->events = NULL;
    log->room = 0;
}
