/*
 * The events between the end of the last server, as the file has it, and the start of this one. They are read in
 * pieces by a worker. Events that happen meanwhile are queued behind them, and nothing is sent until the end.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "server/core/event_log.h"
#include "server/notify/notify_internal.h"

struct notify_catch_up {
    struct event_log log;
    struct notify *notify; /* borrowed */
    uint64_t after;        /* read up to here */
    uint64_t tail;         /* the last event before the start */
};

static bool read_next_piece(struct notify_catch_up *all)
{
    return event_log_read(&all->log, all->notify->server->workers, WORK_SCAN, all->after, 0, NOTIFY_PIECE);
}

/* Those that are too old are passed over, so that a server that comes back after a month does not send all of it. */
static void queue_event(struct notify *notify, const struct belay_event *event)
{
    bool is_old = clock_unix_ms() - event->at_unix_ms > NOTIFY_AGE_MAX_MS;

    for (struct notify_target *target = notify->first; target != NULL; target = target->next) {
        if (event->id <= target->start || !notify_wants(target->settings, event->type, event->key)) {
            continue;
        }
        if (is_old) {
            target->counts.dropped++;
        } else {
            notice_add(target, event->id, event->at_unix_ms, notice_text(event));
        }
    }
}

void notify_catch_up_free(struct notify_catch_up *all)
{
    if (all != NULL) {
        event_log_release(&all->log);
        free(all);
    }
}

static void end_catch_up(struct notify_catch_up *all)
{
    struct notify *notify = all->notify;

    assert(notify->catch_up == all && !work_is_pending(&all->log.work));
    notify->catch_up = NULL;
    notify_catch_up_free(all);
    for (struct notify_target *target = notify->first; target != NULL; target = target->next) {
        notify_pump(target);
    }
    notify_file_save(notify);
}

static void on_piece_read(struct work *work)
{
    struct notify_catch_up *all = CONTAINER_OF(work, struct notify_catch_up, log.work);
    struct notify *notify = all->notify;
    bool is_last = all->log.n < NOTIFY_PIECE || all->log.code != BELAY_OK; /* also if it was cancelled */

    for (size_t i = 0; i < all->log.n; i++) {
        const struct belay_event *event = &all->log.events[i].event;

        is_last = is_last || event->id >= all->tail;
        if (event->id > all->after && event->id <= all->tail) {
            queue_event(notify, event);
            all->after = event->id;
        }
    }
    if (all->log.code != BELAY_OK) {
        log_note(&notify->server->log, LOG_WARN, "notify",
                 "cannot read the events since the last server; those are not sent");
    }
    if (notify->is_stopped) {
        return; /* notify_free() frees it; the file stays as it was */
    }
    if (is_last || !read_next_piece(all)) {
        end_catch_up(all);
    }
}

void notify_catch_up_start(struct notify *notify, uint64_t tail)
{
    uint64_t after = tail;
    struct notify_catch_up *all;

    assert(notify->catch_up == NULL);
    for (struct notify_target *target = notify->first; target != NULL; target = target->next) {
        after = target->start < after ? target->start : after;
    }
    if (after >= tail) {
        return;
    }
    all = calloc(1, sizeof *all);
    if (all == NULL) {
        return;
    }
    event_log_init(&all->log, notify->server->client, on_piece_read);
    all->notify = notify;
    all->after = after;
    all->tail = tail;
    notify->catch_up = all;
    if (!read_next_piece(all)) {
        notify->catch_up = NULL;
        notify_catch_up_free(all);
    }
}
