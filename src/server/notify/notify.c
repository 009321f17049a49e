/* The targets: opened at the start, replaced by a reload, fed with events. */
#include "server/notify/notify.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "server/core/sse.h"
#include "server/notify/notify_internal.h"

/* ---- targets ---- */

static struct notify_target *target_new(struct notify *notify, struct notify_settings *settings,
                                        uint64_t start)
{
    struct notify_target *target = calloc(1, sizeof *target);

    if (target != NULL) {
        target->notify = notify;
        target->settings = notify_settings_keep(settings);
        target->end = &target->first;
        target->start = start;
        target->since_unix_ms = clock_unix_ms();
    }
    return target;
}

static void target_free(struct notify_target *target)
{
    assert(!target->is_calling && !work_is_pending(&target->work));
    loop_timer_cancel(target->notify->server->loop, &target->timer);
    while (notice_drop_first(target)) {
    }
    outgoing_release(&target->out);
    notify_settings_drop(target->calling);
    notify_settings_drop(target->settings);
    free(target->said);
    free(target);
}

void notify_sweep(struct notify *notify)
{
    struct notify_target **at = &notify->first;

    while (*at != NULL) {
        struct notify_target *target = *at;

        if (target->is_removed && !target->is_calling && notify->scan == NULL) {
            *at = target->next;
            target_free(target);
        } else {
            at = &target->next;
        }
    }
}

static struct notify_target *find_target(struct notify *notify, const char *id)
{
    struct notify_target *target = notify->first;

    while (target != NULL && (target->is_removed || strcmp(target->settings->id, id) != 0)) {
        target = target->next;
    }
    return target;
}

/* A call in progress keeps the old settings. */
static void use_settings(struct notify_target *target, struct notify_settings *settings)
{
    if (settings->held_ms != target->settings->held_ms || settings->wait_ms != target->settings->wait_ms) {
        target->scanned_unix_ms = 0;
    }
    notify_settings_drop(target->settings);
    target->settings = notify_settings_keep(settings);
}

static void say_targets(const struct notify *notify)
{
    for (const struct notify_target *target = notify->first; target != NULL; target = target->next) {
        struct buf text = BUF_INIT(8192);

        notify_settings_describe(target->settings, &text);
        if (!target->is_removed && text.data != NULL) {
            log_note(&notify->server->log, LOG_INFO, "notify", "%s", text.data);
        }
        buf_release(&text);
    }
}

static bool is_among(const struct notify_targets *targets, const char *id)
{
    for (size_t i = 0; i < targets->n; i++) {
        if (strcmp(targets->items[i]->id, id) == 0) {
            return true;
        }
    }
    return false;
}

static void remove_others(struct notify *notify, const struct notify_targets *targets)
{
    for (struct notify_target *target = notify->first; target != NULL; target = target->next) {
        if (!target->is_removed && !is_among(targets, target->settings->id)) {
            target->is_removed = true;
            if (target->n_queued > 0) {
                log_note(&notify->server->log, LOG_WARN, "notify",
                         "%s: removed; %zu notifications are not sent", target->settings->name,
                         target->n_queued);
            }
        }
    }
    notify_sweep(notify);
}

/* In the order of the configuration. */
static void set_targets(struct notify *notify, const struct notify_targets *targets)
{
    struct notify_target **end = &notify->first;

    remove_others(notify, targets);
    while (*end != NULL) {
        end = &(*end)->next;
    }
    for (size_t i = 0; i < targets->n; i++) {
        struct notify_target *target = find_target(notify, targets->items[i]->id);

        if (target != NULL) {
            use_settings(target, targets->items[i]);
            continue;
        }
        *end = target_new(notify, targets->items[i], notify->newest);
        end = *end == NULL ? end : &(*end)->next;
    }
    say_targets(notify);
}

void notify_reload(struct notify *notify, struct notify_targets *targets)
{
    set_targets(notify, targets);
    notify_targets_free(targets);
    notify_file_save(notify);
    notify_scan_start(notify);
}

/* ---- events ---- */

void notify_event(struct notify *notify, const struct belay_event *event)
{
    if (notify == NULL) {
        return;
    }
    notify->newest = event->id > notify->newest ? event->id : notify->newest;
    for (struct notify_target *target = notify->first; target != NULL; target = target->next) {
        if (!target->is_removed && notify_wants(target->settings, event->type, event->key)) {
            notice_add(target, event->id, event->at_unix_ms == 0 ? clock_unix_ms() : event->at_unix_ms,
                       notice_text(event));
            notify_pump(target);
            notify_file_save(notify);
        }
    }
    if (notify->first != NULL && notify->newest > notify->newest_saved + NOTIFY_UNSAVED_MAX) {
        notify_file_save(notify); /* so that the next server has less to read */
    }
}

/* ---- opening and closing ---- */

enum belay_code notify_open(struct server *server, struct belay_error *err)
{
    struct notify_targets *targets = NULL;
    enum belay_code code = notify_targets_load(server, server->config, &targets, err);
    struct notify *notify;

    if (code != BELAY_OK) {
        return code;
    }
    notify = calloc(1, sizeof *notify);
    if (notify == NULL || (notify->cancel = belay_cancel_new()) == NULL) {
        notify_targets_free(targets);
        free(notify);
        return error_no_memory(err);
    }
    notify->server = server;
    notify->path = webhooks_path(server, "-notify");
    if (server->is_store_local || server->identity.id[0] != '\0') { /* else it would not answer now either */
        (void)stream_last_event(server->client, &notify->newest, NULL); /* 0: the store keeps no events */
    }
    notify->newest_saved = notify->newest;
    server->notify = notify;
    set_targets(notify, targets);
    notify_targets_free(targets);
    if (notify->first != NULL) {
        notify_file_load(notify, notify->first, notify->newest);
        notify_catch_up_start(notify, notify->newest);
        notify_file_write(notify); /* a kill from now on loses nothing */
        notify_scan_start(notify);
        for (struct notify_target *target = notify->first; target != NULL; target = target->next) {
            notify_pump(target);
        }
    }
    return BELAY_OK;
}

void notify_end(struct notify *notify)
{
    if (notify == NULL) {
        return;
    }
    notify->is_stopped = true;
    belay_cancel_request(notify->cancel);
    work_close(notify->server->workers, WORK_NOTIFY);
    loop_timer_cancel(notify->server->loop, &notify->save_timer);
    loop_timer_cancel(notify->server->loop, &notify->scan_timer);
    if (notify->first != NULL) {
        notify_file_write(notify);
    }
}

void notify_free(struct notify *notify)
{
    if (notify == NULL) {
        return;
    }
    for (struct notify_target *target = notify->first, *next; target != NULL; target = next) {
        next = target->next;
        target_free(target);
    }
    notify_catch_up_free(notify->catch_up);
    belay_cancel_free(notify->cancel);
    free(notify->path);
    free(notify);
}

bool notify_counts_at(const struct notify *notify, size_t i, struct notify_counts *out)
{
    const struct notify_target *target = notify == NULL ? NULL : notify->first;

    for (; target != NULL && (target->is_removed || i > 0); target = target->next) {
        i -= !target->is_removed;
    }
    if (target == NULL) {
        return false;
    }
    *out = target->counts;
    out->name = target->settings->name;
    out->queued = target->n_queued;
    return true;
}
