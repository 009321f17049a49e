/* One call after another to a target, with pauses after failures. */
#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fnv.h"
#include "base/text.h"
#include "server/notify/notify_internal.h"

static struct notify_target *target_of_work(struct work *work)
{
    return CONTAINER_OF(work, struct notify_target, work);
}

static struct log *log_of(const struct notify_target *target)
{
    return &target->notify->server->log;
}

/* Doubles with each attempt, give or take a quarter: many targets must not come back at once. */
static int64_t retry_pause_ms(int attempt)
{
    int64_t ms = (int64_t)NOTIFY_PAUSE_MS << (attempt < 16 ? attempt - 1 : 15);
    uint64_t random = 0;

    assert(attempt > 0);
    ms = ms > NOTIFY_PAUSE_MAX_MS ? NOTIFY_PAUSE_MAX_MS : ms;
    (void)random_bytes(&random, sizeof random);
    return ms - ms / 4 + (int64_t)(random % (uint64_t)(ms / 2));
}

static void drop_notice(struct notify_target *target, const char *why)
{
    log_note(log_of(target), LOG_WARN, "notify", "%s: %s: a notification of '%s' is dropped after %d calls",
             target->settings->name, why, target->event_type, target->attempt);
    target->counts.dropped++;
    (void)notice_drop_first(target);
    notify_file_save(target->notify);
}

static void on_pause_over(struct timer *timer)
{
    struct notify_target *target = CONTAINER_OF(timer, struct notify_target, timer);

    target->is_paused = false;
    notify_pump(target);
}

/* False: no timer. */
static bool pause_target(struct notify_target *target, int64_t ms)
{
    struct loop *loop = target->notify->server->loop;

    assert(!target->is_calling && !target->is_paused && ms > 0);
    target->timer.fire = on_pause_over;
    target->is_paused = loop_timer_set(loop, &target->timer, loop_now_ms(loop) + ms);
    return target->is_paused;
}

static void retry_or_drop(struct notify_target *target)
{
    char why[OUTGOING_WHY_SIZE];
    int64_t ms = retry_pause_ms(target->attempt);

    target->counts.failed++;
    (void)outgoing_why(&target->out, why);
    if (!outgoing_is_worth_another(&target->out) || target->attempt >= NOTIFY_ATTEMPTS ||
        clock_unix_ms() - target->first->at_unix_ms > NOTIFY_AGE_MAX_MS || !pause_target(target, ms)) {
        drop_notice(target, why);
    } else if (target->attempt == 1) { /* once for each notice */
        log_note(log_of(target), LOG_INFO, "notify", "%s: %s; trying again", target->settings->name, why);
    }
}

static void on_target_called(struct work *work)
{
    struct notify_target *target = target_of_work(work);
    struct notify *notify = target->notify;
    bool is_sent = !work->is_cancelled && outgoing_is_accepted(&target->out);

    assert(target->is_calling && target->first != NULL && target->calling != NULL);
    assert(!target->is_paused);
    target->is_calling = false;
    notify_settings_drop(target->calling);
    target->calling = NULL;
    if (is_sent) {
        target->counts.sent++;
        (void)notice_drop_first(target);
        notify_file_save(notify);
    } else if (!notify->is_stopped && !target->is_removed) {
        retry_or_drop(target);
    }
    outgoing_release(&target->out);
    if (target->is_removed) {
        notify_sweep(notify);
    } else {
        notify_pump(target);
    }
}

static void call_target(struct work *work)
{
    outgoing_send(&target_of_work(work)->out);
}

/* The same for each attempt, also after a restart. */
static void identify_notice(struct notify_target *target, const struct notice *notice)
{
    json_t *event = json_loads(notice->event, 0, NULL);
    const char *type = json_string_value(json_object_get(event, "event"));

    (void)snprintf(target->event_type, sizeof target->event_type, "%s", type == NULL ? "" : type);
    json_decref(event);
    if (notice->event_id != 0) {
        (void)snprintf(target->delivery_id, sizeof target->delivery_id, "%" PRIu64, notice->event_id);
    } else {
        (void)snprintf(target->delivery_id, sizeof target->delivery_id, "x%016" PRIx64,
                       fnv_text(FNV_INIT, notice->event));
    }
}

static bool start_call(struct notify_target *target)
{
    struct notify *notify = target->notify;
    const struct notify_settings *settings = target->settings;
    const struct outgoing_call request = { .url = settings->url,
                                           .secret = settings->secret,
                                           .event = target->event_type,
                                           .delivery_id = target->delivery_id,
                                           .attempt = ++target->attempt,
                                           .timeout_ms = NOTIFY_TIMEOUT_MS };

    assert(target->first != NULL && !target->is_calling && target->calling == NULL);
    assert(target->first->lsn <= belay_client_durable_lsn(notify->server->client));
    identify_notice(target, target->first);
    target->out.body = notify_message(settings, target->first->event);
    target->work = (struct work){ .work = call_target, .done = on_target_called };
    if (!outgoing_prepare(&target->out, &request, &notify->server->webhooks->settings, notify->cancel)) {
        return false;
    }
    target->calling = notify_settings_keep(target->settings);
    target->is_calling = true;
    if (!work_queue(notify->server->workers, WORK_NOTIFY, &target->work)) {
        target->is_calling = false;
        notify_settings_drop(target->calling);
        target->calling = NULL;
        return false;
    }
    return true;
}

void notify_pump(struct notify_target *target)
{
    struct notify *notify = target->notify;

    if (target->first == NULL || target->is_calling || target->is_paused || target->is_removed ||
        notify->is_stopped || notify->catch_up != NULL) {
        return;
    }
    if (target->first->lsn > belay_client_durable_lsn(notify->server->client)) {
        (void)pause_target(target, 1); /* what a crash could undo is not told */
    } else if (!start_call(target)) {
        outgoing_release(&target->out);
        (void)pause_target(target, NOTIFY_PAUSE_MS);
    }
}
