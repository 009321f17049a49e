/*
 * There is no event when a lease ends or a lock is held for long, so the server has to look for these. A worker lists
 * the locks every second (less often if that takes long, or costs money) and finds for each target
 *
 *   lock.expired   a lease that has ended, and no client has taken the lock over
 *   held.long      a lock held for longer than the target's held_longer_than
 *   wait.long      a client that waits for longer than its waited_longer_than
 *
 * Each of these has a time at which it became due, and is sent once. Those that became due long before the last scan
 * were sent then. For those of the last ten minutes the target remembers which it has sent, because clocks may be
 * adjusted, and a store may count a lease as over a little later. So a target remembers little.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "server/notify/notify_internal.h"

struct scan_notice {
    uint64_t mark;
    int64_t due_unix_ms;
    char *event; /* owned; JSON */
};

/* One target, as it was when the scan began. */
struct view {
    struct notify_target *target;     /* borrowed: it is not freed during a scan */
    struct notify_settings *settings; /* a reference */
    int64_t since_unix_ms;            /* as in the target */
    int64_t scanned_unix_ms;
    struct scan_notice *found; /* owned; the worker's */
    size_t n;
    size_t n_lost; /* more than fit */
};

struct notify_scan {
    struct work work;
    struct notify *notify; /* borrowed */
    struct view views[NOTIFY_TARGETS_MAX];
    size_t n;
    int64_t now_unix_ms;
    int64_t took_ms;
    bool is_whole;
};

static struct notify_scan *scan_of(struct work *work)
{
    return CONTAINER_OF(work, struct notify_scan, work);
}

/* ---- in the worker ---- */

static uint64_t mark_of(const char *type, const char *key, const char *id, int64_t at_ms)
{
    struct buf text = BUF_INIT(1 << 16);
    unsigned char hash[AUTH_HASH_BYTES] = { 0 };
    uint64_t mark;

    buf_addf(&text, "%s\n%s\n%s\n%lld", type, key, id == NULL ? "" : id, (long long)at_ms);
    if (!text.failed) {
        token_hash(text.data, text.len, hash);
    }
    buf_release(&text);
    memcpy(&mark, hash, sizeof mark);
    return mark;
}

static bool was_said(const struct view *view, uint64_t mark)
{
    for (size_t i = 0; i < view->target->n_said; i++) {
        if (view->target->said[i].mark == mark) {
            return true;
        }
    }
    for (size_t i = 0; i < view->n; i++) {
        if (view->found[i].mark == mark) {
            return true;
        }
    }
    return false;
}

static void add_scan_notice(struct view *view, uint64_t mark, int64_t due_unix_ms,
                            const struct belay_event *event)
{
    struct scan_notice *grown;

    if (was_said(view, mark)) {
        return;
    }
    if (view->n >= view->settings->max || view->n >= NOTIFY_SAID_MAX) {
        view->n_lost++;
        return;
    }
    grown = realloc(view->found, (view->n + 1) * sizeof *grown);
    if (grown == NULL) {
        view->n_lost++;
        return;
    }
    view->found = grown;
    view->found[view->n++] = (struct scan_notice){ mark, due_unix_ms, notice_text(event) };
}

/* Whether something that became due then may not have been told yet. */
static bool is_new(int64_t scanned_unix_ms, int64_t due_unix_ms)
{
    return scanned_unix_ms == 0 || due_unix_ms > scanned_unix_ms - NOTIFY_SLACK_MS;
}

static struct belay_event make_scan_event(const struct notify_scan *scan, const char *type,
                                          const struct belay_info *info)
{
    return (struct belay_event){ .at_unix_ms = scan->now_unix_ms,
                                 .level = BELAY_LEVEL_WARNING,
                                 .type = type,
                                 .key = info->key,
                                 .token = info->token,
                                 .locked_by = info->locked_by,
                                 .locked_by_name = info->locked_by_name,
                                 .duration_ms = scan->now_unix_ms - info->locked_at_unix_ms,
                                 .metadata = info->metadata,
                                 .n_metadata = info->n_metadata };
}

static void look_at_holder(const struct notify_scan *scan, struct view *view, const struct belay_info *info)
{
    const struct notify_settings *settings = view->settings;
    int64_t ended_ms = info->expires_at_unix_ms;
    int64_t long_ms = info->locked_at_unix_ms + settings->held_ms;
    char span[CLOCK_TEXT_SIZE], reason[96];
    struct belay_event event;

    if (info->status == BELAY_STATUS_EXPIRED && notify_wants_event(settings, "lock.expired") &&
        ended_ms > view->since_unix_ms && is_new(view->scanned_unix_ms, ended_ms)) {
        event = make_scan_event(scan, "lock.expired", info);
        event.reason = "the lease ended without a release";
        add_scan_notice(view, mark_of(event.type, info->key, info->lock_id, ended_ms), ended_ms, &event);
    }
    if (info->status == BELAY_STATUS_ACTIVE && settings->held_ms > 0 && long_ms <= scan->now_unix_ms &&
        is_new(view->scanned_unix_ms, long_ms)) {
        event = make_scan_event(scan, "held.long", info);
        (void)snprintf(reason, sizeof reason, "held for longer than %s",
                       clock_format_duration(span, settings->held_ms));
        event.reason = reason;
        add_scan_notice(view, mark_of(event.type, info->key, info->lock_id, info->locked_at_unix_ms), long_ms,
                        &event);
    }
}

static void look_at_waiter(const struct notify_scan *scan, struct view *view, const struct belay_info *info,
                           const struct belay_waiter *waiter)
{
    int64_t due_ms = waiter->since_unix_ms + view->settings->wait_ms;
    char reason[BELAY_OWNER_MAX + 128];
    struct belay_event event = { .at_unix_ms = scan->now_unix_ms,
                                 .level = BELAY_LEVEL_WARNING,
                                 .type = "wait.long",
                                 .key = waiter->key,
                                 .locked_by = waiter->locked_by,
                                 .locked_by_name = waiter->locked_by_name,
                                 .reason = reason,
                                 .duration_ms = scan->now_unix_ms - waiter->since_unix_ms };

    if (due_ms > scan->now_unix_ms || !is_new(view->scanned_unix_ms, due_ms) ||
        !notify_wants_key(view->settings, waiter->key)) {
        return;
    }
    (void)snprintf(reason, sizeof reason,
                   info->status == BELAY_STATUS_ACTIVE
                       ? "'%.120s' is held by %.200s"
                       : "'%.120s' was last held by %.200s", /* it is frozen */
                   info->key, info->locked_by);
    add_scan_notice(view, mark_of(event.type, waiter->key, waiter->locked_by, waiter->since_unix_ms), due_ms,
                    &event);
}

static bool look_at_lock(void *context, const struct belay_info *info)
{
    struct notify_scan *scan = context;

    for (size_t v = 0; v < scan->n; v++) {
        struct view *view = &scan->views[v];

        if (notify_wants_key(view->settings, info->key)) {
            if (info->n_holders == 0) {
                look_at_holder(scan, view, info);
            }
            for (size_t i = 0; i < info->n_holders; i++) {
                look_at_holder(scan, view, &info->holders[i]);
            }
        }
        for (size_t i = 0; i < info->n_waiters && view->settings->wait_ms > 0; i++) {
            look_at_waiter(scan, view, info, &info->waiters[i]);
        }
    }
    return true;
}

static void scan_locks(struct work *work)
{
    struct notify_scan *scan = scan_of(work);
    struct belay_query query = BELAY_QUERY_INIT;
    int64_t began_ms = clock_boot_ms();

    scan->now_unix_ms = clock_unix_ms();
    scan->is_whole =
        belay_list(scan->notify->server->client, &query, look_at_lock, scan, NULL, NULL) == BELAY_OK;
    scan->took_ms = clock_boot_ms() - began_ms;
}

/* ---- on the loop ---- */

/* Keep the marks of this scan, and drop those that the next scan does not need. */
static void remember_said(struct notify_target *target, const struct view *view)
{
    struct notify_said *said;
    size_t n = 0;

    for (size_t i = 0; i < target->n_said; i++) {
        if (is_new(target->scanned_unix_ms, target->said[i].due_unix_ms)) {
            target->said[n++] = target->said[i];
        }
    }
    target->n_said = n;
    said = realloc(target->said, (n + view->n + 1) * sizeof *said);
    if (said == NULL) {
        return;
    }
    target->said = said;
    for (size_t i = 0; i < view->n; i++) {
        said[target->n_said++] = (struct notify_said){ view->found[i].mark, view->found[i].due_unix_ms };
    }
    if (target->n_said > NOTIFY_SAID_MAX) { /* the oldest */
        size_t n_gone = target->n_said - NOTIFY_SAID_MAX;

        memmove(said, said + n_gone, NOTIFY_SAID_MAX * sizeof *said);
        target->n_said = NOTIFY_SAID_MAX;
    }
}

/* A clock that was set back starts anew: rather told twice than never. */
static void move_on(struct notify_target *target, int64_t now_unix_ms)
{
    target->scanned_unix_ms = now_unix_ms;
    if (target->since_unix_ms > now_unix_ms) {
        target->since_unix_ms = now_unix_ms;
    }
}

static void tell_view(const struct notify_scan *scan, struct view *view)
{
    struct notify_target *target = view->target;

    /* Settings that were reloaded meanwhile have a scan of their own. */
    if (scan->is_whole && !target->is_removed && target->settings == view->settings) {
        for (size_t i = 0; i < view->n; i++) {
            notice_add(target, 0, scan->now_unix_ms, view->found[i].event);
            view->found[i].event = NULL;
        }
        target->counts.dropped += view->n_lost;
        move_on(target, scan->now_unix_ms);
        remember_said(target, view);
        if (view->n > 0) {
            notify_file_save(scan->notify);
            notify_pump(target);
        }
    }
    for (size_t i = 0; i < view->n; i++) {
        free(view->found[i].event);
    }
    free(view->found);
    notify_settings_drop(view->settings);
}

static void on_scan_timer(struct timer *timer)
{
    notify_scan_start(CONTAINER_OF(timer, struct notify, scan_timer));
}

static void scan_again_in(struct notify *notify, int64_t ms)
{
    notify->scan_timer.fire = on_scan_timer;
    (void)loop_timer_set(notify->server->loop, &notify->scan_timer, loop_now_ms(notify->server->loop) + ms);
}

static void on_scanned(struct work *work)
{
    struct notify_scan *scan = scan_of(work);
    struct notify *notify = scan->notify;
    int64_t pause_ms = notify->server->is_store_local ? NOTIFY_SCAN_MS : NOTIFY_SCAN_NETWORK_MS;

    scan->is_whole = scan->is_whole && !work->is_cancelled && !notify->is_stopped;
    pause_ms = scan->took_ms * NOTIFY_SCAN_SHARE > pause_ms ? scan->took_ms * NOTIFY_SCAN_SHARE : pause_ms;
    for (size_t i = 0; i < scan->n; i++) {
        tell_view(scan, &scan->views[i]);
    }
    notify->scan = NULL;
    free(scan);
    if (!notify->is_stopped) {
        scan_again_in(notify, pause_ms);
    }
    notify_sweep(notify);
}

void notify_scan_start(struct notify *notify)
{
    struct notify_scan *scan;

    if (notify->scan != NULL || notify->is_stopped || (scan = calloc(1, sizeof *scan)) == NULL) {
        return;
    }
    for (struct notify_target *target = notify->first; target != NULL; target = target->next) {
        if (!target->is_removed && notify_wants_scan(target->settings) && scan->n < NOTIFY_TARGETS_MAX) {
            scan->views[scan->n++] = (struct view){ .target = target,
                                                    .settings = notify_settings_keep(target->settings),
                                                    .since_unix_ms = target->since_unix_ms,
                                                    .scanned_unix_ms = target->scanned_unix_ms };
        }
    }
    scan->work = (struct work){ .work = scan_locks, .done = on_scanned };
    scan->notify = notify;
    notify->scan = scan;
    if (scan->n > 0 && work_queue(notify->server->workers, WORK_SCAN, &scan->work)) {
        return;
    }
    notify->scan = NULL;
    for (size_t i = 0; i < scan->n; i++) {
        notify_settings_drop(scan->views[i].settings);
    }
    if (scan->n > 0) {
        scan_again_in(notify, NOTIFY_SCAN_MS);
    }
    free(scan);
}
