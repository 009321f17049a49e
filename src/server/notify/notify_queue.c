/* The queue of a target: bounded, ordered, and the oldest notice leaves it when it is full. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/notify/notify_internal.h"
#include "json/json_write.h"

enum { WARN_EVERY_MS = 60000 };

static void notice_free(struct notice *notice)
{
    if (notice != NULL) {
        free(notice->event);
        free(notice);
    }
}

static void unlink_notice(struct notify_target *target, struct notice **at)
{
    struct notice *notice = *at;
    uint64_t *told = &target->notify->told;

    assert(notice != NULL && target->n_queued > 0 && target->bytes >= notice->len);
    *told = notice->event_id > *told ? notice->event_id : *told;
    *at = notice->next;
    if (*at == NULL) {
        target->end = at;
    }
    target->n_queued--;
    target->bytes -= notice->len;
    notice_free(notice);
}

bool notice_drop_first(struct notify_target *target)
{
    if (target->first == NULL) {
        return false;
    }
    unlink_notice(target, &target->first);
    target->attempt = 0;
    return true;
}

static bool is_full(const struct notify_target *target)
{
    return target->n_queued > target->settings->max || target->bytes > NOTIFY_BYTES_MAX;
}

/* The one that is being sent stays. */
static void drop_oldest(struct notify_target *target)
{
    struct server *server = target->notify->server;
    int64_t now_ms = loop_now_ms(server->loop);

    while (is_full(target) && target->n_queued > 1) {
        unlink_notice(target, target->is_calling ? &target->first->next : &target->first);
        target->counts.dropped++;
        if (target->warned_ms == 0 || now_ms - target->warned_ms > WARN_EVERY_MS) {
            target->warned_ms = now_ms;
            log_note(&server->log, LOG_WARN, "notify",
                     "%s: more than %zu notifications are queued: the oldest "
                     "are dropped, %llu so far",
                     target->settings->name, target->settings->max, target->counts.dropped);
        }
    }
}

/* After those with a lower id: events that catch-up finds come before later ones. */
static struct notice **place_by_event(struct notify_target *target, uint64_t event_id)
{
    struct notice **at = &target->first;

    if (event_id == 0 || target->notify->catch_up == NULL) {
        return target->end;
    }
    while (*at != NULL && (*at)->event_id < event_id) {
        at = &(*at)->next;
    }
    return at;
}

void notice_add(struct notify_target *target, uint64_t event_id, int64_t at_unix_ms, char *event)
{
    struct notice *notice = event == NULL ? NULL : calloc(1, sizeof *notice);
    struct notice **at;

    if (notice == NULL) {
        free(event);
        target->counts.dropped++;
        return;
    }
    notice->event_id = event_id;
    notice->lsn = belay_client_committed_lsn(target->notify->server->client);
    notice->at_unix_ms = at_unix_ms;
    notice->event = event;
    notice->len = sizeof *notice + strlen(event);
    at = place_by_event(target, event_id);
    notice->next = *at;
    *at = notice;
    if (notice->next == NULL) {
        target->end = &notice->next;
    }
    assert(*target->end == NULL);
    target->n_queued++;
    target->bytes += notice->len;
    drop_oldest(target);
}

char *notice_text(const struct belay_event *event)
{
    struct belay_event copy = *event;

    copy.lock_id = NULL;
    return wire_line(wire_event(&copy));
}

uint64_t notify_target_done(const struct notify_target *target)
{
    uint64_t done = UINT64_MAX;

    for (const struct notice *notice = target->first; notice != NULL; notice = notice->next) {
        if (notice->event_id != 0 && notice->event_id - 1 < done) {
            done = notice->event_id - 1;
        }
    }
    return done;
}
