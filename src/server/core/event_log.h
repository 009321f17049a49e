/*
 * Reading a piece of the store's event log as work (work.h). The events are copied, and belong to the loop once done()
 * is called.
 */
#ifndef SERVER_CORE_EVENT_LOG_H
#define SERVER_CORE_EVENT_LOG_H

#include "belay.h"
#include "server/core/work.h"

/* An event with all that it points to. */
struct kept_event {
    struct belay_event event;
    char *texts[7];              /* owned */
    struct belay_meta *metadata; /* owned */
};
void kept_event_copy(const struct belay_event *event, struct kept_event *out_kept);
void kept_event_release(struct kept_event *kept);

/* All zero before event_log_init(). */
struct event_log {
    struct work work;
    struct belay_client *client; /* borrowed */
    uint64_t after;
    size_t last;
    size_t most;
    /* The answer, for done(). */
    enum belay_code code;
    struct kept_event *events; /* owned */
    size_t n;                  /* `most`: there may be more */
    size_t room;
};

void event_log_init(struct event_log *log, struct belay_client *client, work_fn *done);
/*
 * Read up to `most` events after the id `after`; with `last`, of that many of the newest only. `class` is WORK_READ, by
 * which done() is called before this returns if the store is on this machine, or WORK_SCAN. False: the server is too
 * busy, and done() is not called.
 */
bool event_log_read(struct event_log *log, struct workers *workers, enum work_class class, uint64_t after,
                    size_t last, size_t most);
void event_log_release(struct event_log *log); /* the events */

#endif
