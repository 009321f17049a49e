/* Call a webhook with its lock, from a worker thread; retry after a pause; release the lock if no call succeeds. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/core/server.h"
#include "server/webhooks/webhooks.h"
#include "json/json_write.h"

static struct webhook *webhook_of(struct work *work)
{
    return CONTAINER_OF(work, struct webhook, work);
}

/* ---- what is sent ---- */

/* A lock or a holder as it was granted, some time later. */
static void grow_older(json_t *lock, int64_t by_ms)
{
    json_int_t left_ms = json_integer_value(json_object_get(lock, "expires_in_ms")) - (json_int_t)by_ms;
    const json_t *holders = json_object_get(lock, "holders");

    (void)json_object_set_new(lock, "expires_in_ms", json_integer(left_ms < 0 ? 0 : left_ms));
    /* valid_for_ms counts from before a request was sent, and the receiver has sent none: its first renewal has it. */
    (void)json_object_set_new(lock, "valid_for_ms", json_null());
    for (size_t i = 0; i < json_array_size(holders); i++) {
        grow_older(json_array_get(holders, i), by_ms);
    }
}

/* The lock, or the locks of several keys, with the rest of the lease. */
static bool make_call_body(struct webhook *webhook)
{
    int64_t by_ms = loop_now_ms(webhook->server->loop) - webhook->granted_ms;
    json_t *body = json_deep_copy(webhook->lock);
    const json_t *locks = json_object_get(body, "locks");

    assert(by_ms >= 0 && !work_is_pending(&webhook->work));
    for (size_t i = 0; i < json_array_size(locks); i++) {
        grow_older(json_array_get(locks, i), by_ms);
    }
    if (body != NULL && !webhook->is_ended && locks == NULL) {
        grow_older(body, by_ms);
    }
    free(webhook->out.body);
    webhook->out.body = wire_line(body);
    return webhook->out.body != NULL;
}

/* The receiver must know by half of the lease: the other half is for its work, or for renewing. */
static int64_t left_to_tell_ms(const struct webhook *webhook)
{
    return webhook->granted_ms + webhook->ttl_ms / 2 - loop_now_ms(webhook->server->loop);
}

static bool prepare_call(struct webhook *webhook)
{
    struct webhooks *webhooks = webhook->server->webhooks;
    int64_t left_ms = left_to_tell_ms(webhook);
    const struct outgoing_call call = {
        .url = webhook->url,
        .secret = webhook->secret,
        .event = webhook->is_ended ? "wait.ended" : "lock.granted",
        .attempt = webhook->attempt,
        .timeout_ms = webhook->timeout_ms < left_ms ? webhook->timeout_ms : left_ms,
    };

    return make_call_body(webhook) &&
           outgoing_prepare(&webhook->out, &call, &webhooks->settings, webhooks->cancel);
}

/* ---- failed calls ---- */

/* The next waiter gets the lock; the history names the webhook. */
static void give_up_webhook(struct webhook *webhook, const char *why)
{
    struct server *server = webhook->server;
    char by[BELAY_OWNER_MAX + 1];

    if (webhook->is_ended) {
        log_note(&server->log, LOG_WARN, "webhook", "'%s' for %s: cannot tell %s that the wait is over: %s",
                 webhook->key, webhook->owner, webhook->host, why);
        webhook_forget(webhook);
        return;
    }
    (void)snprintf(by, sizeof by, "webhook %.120s: %.100s", webhook->host, why);
    log_note(&server->log, LOG_WARN, "webhook", "'%s' for %s: %s: %s, after %d tries; the lock is released",
             webhook->key, webhook->owner, webhook->host, why, webhook->attempt);
    server_release(server, webhook->key, webhook->keys, webhook->lock_id, by);
    webhook_forget(webhook);
}

static void try_again_or_give_up(struct webhook *webhook)
{
    struct loop *loop = webhook->server->loop;
    int64_t pause_ms = (int64_t)WEBHOOK_PAUSE_MS << (webhook->attempt - 1);
    char why[OUTGOING_WHY_SIZE];

    assert(webhook->attempt > 0 && webhook->attempt <= WEBHOOK_ATTEMPTS);
    (void)outgoing_why(&webhook->out, why);
    if (!outgoing_is_worth_another(&webhook->out) || webhook->attempt >= WEBHOOK_ATTEMPTS ||
        pause_ms >= left_to_tell_ms(webhook) ||
        !loop_timer_set(loop, &webhook->timer, loop_now_ms(loop) + pause_ms)) {
        give_up_webhook(webhook, why);
        return;
    }
    webhook_set_state(webhook, WEBHOOK_PAUSED);
    log_note(&webhook->server->log, LOG_INFO, "webhook", "'%s' for %s: %s: %s; again in %lld ms",
             webhook->key, webhook->owner, webhook->host, why, (long long)pause_ms);
}

/* ---- one call ---- */

static void delivered(struct webhook *webhook)
{
    struct server *server = webhook->server;
    struct webhooks *webhooks = server->webhooks;

    log_note(&server->log, LOG_INFO, "webhook", "'%s' for %s: %s answered %d", webhook->key, webhook->owner,
             webhook->host, webhook->out.status);
    if (webhook->is_ended) {
        webhook_forget(webhook); /* the id may be queued again */
        return;
    }
    webhook_file_end(&webhooks->file, webhook->lock_id);
    webhook_set_state(webhook, WEBHOOK_DELIVERED);
    assert(webhooks->n > 0);
    webhooks->n--;
    webhooks->n_delivered++;
    if (webhooks->n_delivered > webhooks->settings.max ||
        !loop_timer_set(server->loop, &webhook->timer, loop_now_ms(server->loop) + WEBHOOK_DELIVERED_MS)) {
        webhook_drop(webhook);
    }
}

static void on_receiver_called(struct work *work)
{
    struct webhook *webhook = webhook_of(work);

    assert(webhook->state == WEBHOOK_CALLING);
    if (webhook->is_abandoned) {
        webhook_forget(webhook); /* the client that left has ended the lock */
    } else if (!work->is_cancelled && outgoing_is_accepted(&webhook->out)) {
        delivered(webhook);
    } else if (!webhook->server->is_draining && !webhook->server->webhooks->is_stopped) {
        try_again_or_give_up(webhook);
    }
}

static void call_receiver(struct work *work)
{
    outgoing_send(&webhook_of(work)->out);
}

/* A grant that is not durable yet is not delivered: check again in a millisecond. */
static bool is_too_early(struct webhook *webhook)
{
    struct loop *loop = webhook->server->loop;

    return webhook->attempt == 0 && webhook->lsn > belay_client_durable_lsn(webhook->server->client) &&
           loop_timer_set(loop, &webhook->timer, loop_now_ms(loop) + 1);
}

void webhook_try(struct webhook *webhook)
{
    assert(webhook->state == WEBHOOK_PAUSED);
    if (webhook->server->webhooks->is_stopped || is_too_early(webhook)) {
        return;
    }
    webhook->attempt++;
    if (left_to_tell_ms(webhook) <= 0) {
        give_up_webhook(webhook, webhook->is_ended ? "no reply for too long" : "half of the lease is over");
        return;
    }
    webhook_set_state(webhook, WEBHOOK_CALLING);
    webhook->work = (struct work){ .work = call_receiver, .done = on_receiver_called };
    if (!prepare_call(webhook) || !work_queue(webhook->server->workers, WORK_WEBHOOK, &webhook->work)) {
        give_up_webhook(webhook, "no memory or no thread for the call");
    }
}

/* Needs webhook->lock, ttl_ms and is_ended. */
static void call_soon(struct webhook *webhook)
{
    assert(webhook->call == NULL && !work_is_pending(&webhook->work));
    webhook->granted_ms = loop_now_ms(webhook->server->loop);
    webhook->attempt = 0;
    webhook->lsn = belay_client_committed_lsn(webhook->server->client);
    webhook_set_state(webhook, WEBHOOK_PAUSED);
    if (!loop_timer_set(webhook->server->loop, &webhook->timer, webhook->granted_ms)) {
        give_up_webhook(webhook, "no memory for the call");
    }
}

void webhook_call(struct webhook *webhook, const struct belay_info *info)
{
    webhook->lock = webhook->keys != NULL ? wire_grants(info) : wire_grant(info);
    webhook->ttl_ms = info->ttl_ms;
    call_soon(webhook);
}

void webhook_call_ended(struct webhook *webhook, const char *reason)
{
    webhook->lock = json_pack("{s:s, s:o, s:o, s:s, s:o, s:o, s:o}", "event", "wait.ended", "key",
                              wire_text(webhook->key), "keys", webhook_keys(webhook), "lock_id",
                              webhook->lock_id, "locked_by", wire_text(webhook->owner), "locked_by_name",
                              wire_text(webhook->name), "reason", wire_text(reason));
    webhook->is_ended = true;
    webhook->ttl_ms = 2LL * WEBHOOK_END_MS; /* half of it is for calls */
    call_soon(webhook);
}
