/* Calling a webhook with its lock: in a worker thread, again after a pause, and what follows if nobody answers. */
#include <assert.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/core/server.h"
#include "server/webhooks/webhooks.h"
#include "json/json_write.h"

static struct hook *hook_of(struct work *work)
{
    return (struct hook *)(void *)((char *)work - offsetof(struct hook, work));
}

/* ---- what is sent ---- */

/* "t=UNIX_SECONDS,v1=HMAC": the time is signed along, so that an old call cannot be sent again. */
static bool sign(struct hook *hook)
{
    struct buf text = BUF_INIT(16 << 20);
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned mac_len = 0;
    long long now_s = (long long)(clock_unix_ms() / 1000);
    int at;

    buf_addf(&text, "%lld.%s", now_s, hook->body);
    if (text.failed || HMAC(EVP_sha256(), hook->secret, (int)strlen(hook->secret),
                            (const unsigned char *)text.data, text.len, mac, &mac_len) == NULL) {
        buf_release(&text);
        return false;
    }
    buf_release(&text);
    at = snprintf(hook->signature, sizeof hook->signature, "t=%lld,v1=", now_s);
    for (unsigned i = 0; i < mac_len; i++) {
        at += snprintf(hook->signature + at, sizeof hook->signature - (size_t)at, "%02x", mac[i]);
    }
    return true;
}

/* The lock, with as much of its lease as is left now. */
static bool make_body(struct hook *hook)
{
    int64_t left_ms = hook->expires_in_ms - (loop_now_ms(hook->server->loop) - hook->granted_ms);

    if (!hook->is_ended) {
        (void)json_object_set_new(hook->lock, "expires_in_ms", json_integer(left_ms < 0 ? 0 : left_ms));
        /* That counts from before a request was sent, and who is called has sent none: its first renewal says it. */
        (void)json_object_set_new(hook->lock, "valid_for_ms", json_null());
    }
    free(hook->body);
    hook->body = wire_line(json_incref(hook->lock));
    return hook->body != NULL;
}

/* When it must have been told: the other half of the lease is for the work, or for renewing it. */
static int64_t left_to_tell_ms(const struct hook *hook)
{
    return hook->granted_ms + hook->ttl_ms / 2 - loop_now_ms(hook->server->loop);
}

static bool prepare(struct hook *hook)
{
    const struct hook_settings *settings = &hook->server->hooks->settings;
    int64_t left_ms = left_to_tell_ms(hook);
    size_t n = 0;

    if (!make_body(hook) || (*hook->secret != '\0' && !sign(hook))) {
        return false;
    }
    (void)snprintf(hook->attempt_text, sizeof hook->attempt_text, "%d", hook->attempt);
    hook->headers[n++] = (struct belay_meta){ "Content-Type", "application/json" };
    hook->headers[n++] = (struct belay_meta){ "Belay-Event", hook->is_ended ? "wait.ended" : "lock.granted" };
    hook->headers[n++] = (struct belay_meta){ "Belay-Attempt", hook->attempt_text };
    if (*hook->secret != '\0') {
        hook->headers[n++] = (struct belay_meta){ "Belay-Signature", hook->signature };
    }
    hook->post = (struct belay_http_post)BELAY_HTTP_POST_INIT;
    hook->post.url = hook->url;
    hook->post.headers = hook->headers;
    hook->post.n_headers = n;
    hook->post.body = hook->body;
    hook->post.body_len = strlen(hook->body);
    hook->post.timeout_ms = hook->timeout_ms < left_ms ? hook->timeout_ms : left_ms;
    hook->post.allow = settings->allow_texts;
    hook->post.n_allow = settings->n_allow;
    hook->post.ca_file = settings->ca_file;
    hook->post.cancel = hook->server->hooks->cancel;
    return true;
}

/* ---- nobody answers as they should ---- */

static void on_released(void *context, enum belay_code code, const struct belay_info *info,
                        const struct belay_error *err)
{
    struct server *server = context;

    (void)info;
    if (code != BELAY_OK) {
        log_note(&server->log, LOG_WARN, "webhook", "a lock whose webhook failed was not released: %s",
                 err->text);
    }
}

/* The lock goes to the next in line; the history says through whom. */
static void give_up(struct hook *hook, const char *why)
{
    struct server *server = hook->server;
    struct belay_error err = BELAY_ERROR_INIT;
    char by[BELAY_OWNER_MAX + 1];

    if (hook->is_ended) {
        log_note(&server->log, LOG_WARN, "webhook", "'%s' for %s: %s was not told that the wait is over: %s",
                 hook->key, hook->owner, hook->host, why);
        hook_forget(hook);
        return;
    }
    (void)snprintf(by, sizeof by, "webhook %.120s: %.100s", hook->host, why);
    log_note(&server->log, LOG_WARN, "webhook", "'%s' for %s: %s: %s, after %d tries; the lock is released",
             hook->key, hook->owner, hook->host, why, hook->attempt);
    if (belay_async_release_by(server->client, hook->key, hook->lock_id, BELAY_OUTCOME_FAILED, by,
                               on_released, server, &err) != BELAY_OK) {
        on_released(server, err.code, NULL, &err);
    }
    belay_error_release(&err);
    hook_forget(hook);
}

/* Would it help to ask again? Not with what was understood and refused, and not where we must not go. */
static bool is_worth_another(const struct hook *hook)
{
    if (hook->code == BELAY_OK) {
        return hook->status >= 500 || hook->status == 408 || hook->status == 425 || hook->status == 429;
    }
    return hook->code != BELAY_NOT_PERMITTED && hook->code != BELAY_CONFIG && hook->code != BELAY_INVALID;
}

static void try_again_or_give_up(struct hook *hook)
{
    struct loop *loop = hook->server->loop;
    int64_t pause_ms = (int64_t)HOOK_PAUSE_MS << (hook->attempt - 1);
    char why[128];

    if (hook->code == BELAY_OK) {
        (void)snprintf(why, sizeof why, "answered %d", hook->status);
    } else {
        (void)snprintf(why, sizeof why, "%.120s", hook->err.text);
    }
    if (!is_worth_another(hook) || hook->attempt >= HOOK_ATTEMPTS || pause_ms >= left_to_tell_ms(hook) ||
        !loop_timer_set(loop, &hook->timer, loop_now_ms(loop) + pause_ms)) {
        give_up(hook, why);
        return;
    }
    hook->state = HOOK_PAUSED;
    log_note(&hook->server->log, LOG_INFO, "webhook", "'%s' for %s: %s: %s; again in %lld ms", hook->key,
             hook->owner, hook->host, why, (long long)pause_ms);
}

/* ---- one call ---- */

static void delivered(struct hook *hook)
{
    struct server *server = hook->server;
    struct hooks *hooks = server->hooks;

    log_note(&server->log, LOG_INFO, "webhook", "'%s' for %s: %s answered %d", hook->key, hook->owner,
             hook->host, hook->status);
    if (hook->is_ended) {
        hook_forget(hook); /* the id may wait again */
        return;
    }
    hook_file_end(&hooks->file, hook->lock_id);
    hook->state = HOOK_DONE;
    hooks->n--;
    hooks->n_done++;
    if (hooks->n_done > hooks->settings.max ||
        !loop_timer_set(server->loop, &hook->timer, loop_now_ms(server->loop) + HOOK_DONE_MS)) {
        hook_drop(hook);
    }
}

static void on_called(struct work *work)
{
    struct hook *hook = hook_of(work);

    assert(hook->state == HOOK_CALLING);
    if (hook->is_abandoned) {
        hook_forget(hook); /* the client that left has ended the lock */
    } else if (!work->is_cancelled && hook->code == BELAY_OK && hook->status >= 200 && hook->status < 300) {
        delivered(hook);
    } else if (!hook->server->is_draining && !hook->server->hooks->is_stopped) {
        try_again_or_give_up(hook);
    }
}

static void call(struct work *work)
{
    struct hook *hook = hook_of(work);

    hook->status = 0;
    hook->code = belay_http_post(&hook->post, &hook->status, &hook->err);
}

/* A grant that is not on disk yet is not told: look again in a moment. */
static bool is_too_early(struct hook *hook)
{
    struct loop *loop = hook->server->loop;

    return hook->attempt == 0 && hook->lsn > belay_client_durable_lsn(hook->server->client) &&
           loop_timer_set(loop, &hook->timer, loop_now_ms(loop) + 1);
}

void hook_try(struct hook *hook)
{
    assert(hook->state == HOOK_PAUSED);
    if (hook->server->hooks->is_stopped || is_too_early(hook)) {
        return;
    }
    hook->attempt++;
    if (left_to_tell_ms(hook) <= 0) {
        give_up(hook, hook->is_ended ? "no answer for too long" : "half of the lease is over");
        return;
    }
    hook->state = HOOK_CALLING;
    hook->work = (struct work){ .work = call, .done = on_called };
    if (!prepare(hook) || !work_queue(hook->server->workers, WORK_WEBHOOK, &hook->work)) {
        give_up(hook, "no memory or no thread to call it with");
    }
}

/* hook->lock, ttl_ms and is_ended are set. */
static void call_soon(struct hook *hook)
{
    hook->granted_ms = loop_now_ms(hook->server->loop);
    hook->attempt = 0;
    hook->lsn = belay_client_committed_lsn(hook->server->client);
    hook->state = HOOK_PAUSED;
    if (!loop_timer_set(hook->server->loop, &hook->timer, hook->granted_ms)) {
        give_up(hook, "no memory to call it with");
    }
}

void hook_call(struct hook *hook, const struct belay_info *info)
{
    hook->lock = wire_lock(info);
    hook->ttl_ms = info->ttl_ms;
    hook->expires_in_ms = info->expires_in_ms;
    call_soon(hook);
}

void hook_call_ended(struct hook *hook, const char *reason)
{
    hook->lock =
        json_pack("{s:s, s:o, s:s, s:o, s:o, s:o}", "event", "wait.ended", "key", wire_text(hook->key),
                  "lock_id", hook->lock_id, "locked_by", wire_text(hook->owner), "locked_by_name",
                  wire_text(hook->name), "reason", wire_text(reason));
    hook->is_ended = true;
    hook->ttl_ms = 2LL * HOOK_END_MS; /* half of it is for the calls */
    call_soon(hook);
}
