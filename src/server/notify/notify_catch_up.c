/*
 * The events between the end of the last server, as the file has it, and the start of this one. They are read in
 * pieces by a worker. Events that happen meanwhile are queued behind them, and nothing is sent until the end.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/notify/notify_internal.h"

struct notify_catch_up {
    struct work work;
    struct notify *notify; /* borrowed */
    uint64_t after;        /* read up to here */
    uint64_t tail;         /* the last event before the start */
    /* The worker's while the work is pending. */
    struct {
        uint64_t id;
        int64_t at_unix_ms;
        char *type; /* owned, as the next two */
        char *key;
        char *event; /* JSON */
    } found[NOTIFY_PIECE];
    size_t n;
    bool failed;
};

static struct notify_catch_up *catch_up_of(struct work *work)
{
    return CONTAINER_OF(work, struct notify_catch_up, work);
}

static bool keep_found(void *context, const struct belay_event *event)
{
    struct notify_catch_up *all = context;

    if (event->id > all->tail) {
        return false;
    }
    all->found[all->n].id = event->id;
    all->found[all->n].at_unix_ms = event->at_unix_ms;
    all->found[all->n].type = strdup(event->type);
    all->found[all->n].key = strdup(event->key);
    all->found[all->n].event = notice_text(event);
    return ++all->n < NOTIFY_PIECE;
}

static void read_piece(struct work *work)
{
    struct notify_catch_up *all = catch_up_of(work);

    all->n = 0;
    all->failed =
        belay_events(all->notify->server->client, NULL, all->after, 0, keep_found, all, NULL) != BELAY_OK;
}

/* Those that are too old are passed over, so that a server that comes back after a month does not send all of it. */
static void queue_one(struct notify_catch_up *all, size_t i)
{
    bool is_old = clock_unix_ms() - all->found[i].at_unix_ms > NOTIFY_AGE_MAX_MS;

    for (struct notify_target *target = all->notify->first; target != NULL; target = target->next) {
        if (all->found[i].id <= target->start || all->found[i].type == NULL || all->found[i].key == NULL ||
            !notify_wants(target->settings, all->found[i].type, all->found[i].key)) {
            continue;
        }
        if (is_old) {
            target->counts.dropped++;
        } else {
            char *copy = all->found[i].event == NULL ? NULL : strdup(all->found[i].event);

            notice_add(target, all->found[i].id, all->found[i].at_unix_ms, copy);
        }
    }
}

static void finish(struct notify_catch_up *all)
{
    struct notify *notify = all->notify;

    notify->catch_up = NULL;
    free(all);
    for (struct notify_target *target = notify->first; target != NULL; target = target->next) {
        notify_pump(target);
    }
    notify_file_save(notify);
}

static void on_read(struct work *work)
{
    struct notify_catch_up *all = catch_up_of(work);
    struct notify *notify = all->notify;
    size_t n = work->is_cancelled ? 0 : all->n;

    for (size_t i = 0; i < n; i++) {
        queue_one(all, i);
        all->after = all->found[i].id;
        free(all->found[i].type);
        free(all->found[i].key);
        free(all->found[i].event);
    }
    if (all->failed) {
        log_note(&notify->server->log, LOG_WARN, "notify",
                 "cannot read the events since the last server; those are not sent");
    }
    if (notify->is_stopped) {
        return; /* notify_free() frees it; the file stays as it was */
    }
    if (n < NOTIFY_PIECE || all->failed || all->after >= all->tail ||
        !work_queue(notify->server->workers, WORK_SCAN, &all->work)) {
        finish(all);
    }
}

void notify_catch_up_start(struct notify *notify, uint64_t tail)
{
    uint64_t after = tail;
    struct notify_catch_up *all;

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
    all->work = (struct work){ .work = read_piece, .done = on_read };
    all->notify = notify;
    all->after = after;
    all->tail = tail;
    notify->catch_up = all;
    if (!work_queue(notify->server->workers, WORK_SCAN, &all->work)) {
        notify->catch_up = NULL;
        free(all);
    }
}
