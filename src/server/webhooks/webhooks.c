#include "server/webhooks/webhooks.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/store_url.h"
#include "base/text.h"
#include "server/core/server.h"
#include "json/json_write.h"

/* ---- the table ---- */

void webhook_set_state(struct webhook *webhook, enum webhook_state state)
{
#define TO(state) (1U << WEBHOOK_##state)
    static const unsigned next[] = {
        [WEBHOOK_BEGUN] = TO(BEGUN) | TO(WAITING) | TO(RETRYING) | TO(PAUSED),
        [WEBHOOK_WAITING] = TO(RETRYING) | TO(PAUSED),
        [WEBHOOK_RETRYING] = TO(BEGUN),
        [WEBHOOK_PAUSED] = TO(CALLING),
        [WEBHOOK_CALLING] = TO(PAUSED) | TO(DELIVERED),
        [WEBHOOK_DELIVERED] = 0,
    };
#undef TO

    assert((size_t)webhook->state < sizeof next / sizeof next[0]);
    assert(next[webhook->state] & 1U << state);
    assert(state != WEBHOOK_CALLING || webhook->call == NULL); /* it has the lock, or has left the queue */
    webhook->state = state;
}

static struct webhook **webhook_bucket(struct webhooks *webhooks, const char *lock_id)
{
    return &webhooks->buckets[text_hash(lock_id) % WEBHOOK_BUCKETS];
}

struct webhook *webhook_find(struct webhooks *webhooks, const char *lock_id)
{
    bool has_any = webhooks->n > 0 || webhooks->n_delivered > 0; /* most servers have none */
    struct webhook *webhook = has_any ? *webhook_bucket(webhooks, lock_id) : NULL;

    while (webhook != NULL && strcmp(webhook->lock_id, lock_id) != 0) {
        webhook = webhook->next;
    }
    return webhook;
}

void webhook_add(struct webhooks *webhooks, struct webhook *webhook)
{
    struct webhook **bucket = webhook_bucket(webhooks, webhook->lock_id);

    assert(webhook->state == WEBHOOK_BEGUN && webhook->next == NULL && webhook->call == NULL);
    webhook->next = *bucket;
    *bucket = webhook;
    webhooks->n++;
    webhook->next_unanswered = webhooks->unanswered;
    webhooks->unanswered = webhook;
}

void webhook_free(struct webhook *webhook)
{
    assert(!work_is_pending(&webhook->work));
    free(webhook->keys);
    json_decref(webhook->record);
    json_decref(webhook->lock);
    outgoing_release(&webhook->out);
    free(webhook);
}

static void unlist(struct webhooks *webhooks, const struct webhook *webhook)
{
    for (struct webhook **at = &webhooks->unanswered; *at != NULL; at = &(*at)->next_unanswered) {
        if (*at == webhook) {
            *at = webhook->next_unanswered;
            return;
        }
    }
}

void webhook_drop(struct webhook *webhook)
{
    struct webhooks *webhooks = webhook->server->webhooks;
    struct webhook **at = webhook_bucket(webhooks, webhook->lock_id);

    while (*at != webhook) {
        at = &(*at)->next;
    }
    *at = webhook->next;
    assert(!work_is_pending(&webhook->work));
    assert(webhook->state == WEBHOOK_DELIVERED ? webhooks->n_delivered > 0 : webhooks->n > 0);
    if (webhook->state == WEBHOOK_DELIVERED) {
        webhooks->n_delivered--;
    } else {
        webhooks->n--;
    }
    unlist(webhooks, webhook);
    if (webhook->x != NULL) {
        reply_problem(webhook->x, 503, "unreachable", "the request could not be queued");
    }
    loop_timer_cancel(webhook->server->loop, &webhook->timer);
    webhook_free(webhook);
}

void webhook_forget(struct webhook *webhook)
{
    webhook_file_end(&webhook->server->webhooks->file, webhook->lock_id);
    webhook_drop(webhook);
}

/* ---- all of them ---- */

/* Requests that the file cannot keep were not answered yet: they leave the queue. */
static void refuse_unkept(struct webhooks *webhooks, const char *why)
{
    struct webhook *next;

    for (struct webhook *webhook = webhooks->unanswered; webhook != NULL; webhook = next) {
        struct exchange *x = webhook->x;

        next = webhook->next_unanswered;
        if (x != NULL) {
            webhook->x = NULL;
            log_note(&webhook->server->log, LOG_ERROR, "webhook", "cannot keep a request in %s: %s",
                     webhooks->file.path, why);
            reply_problem(x, 503, "unreachable", "cannot keep the request: %s", why);
            (void)webhook_abandon(webhook);
        }
    }
}

bool webhooks_are_idle(const struct webhooks *webhooks)
{
    return webhooks->n == 0 && webhooks->file.out.len == 0 && !webhooks->file.out.failed;
}

void webhooks_pump(struct server *server)
{
    struct webhooks *webhooks = server->webhooks;
    struct webhook **at = &webhooks->unanswered;
    struct belay_wait_info waiting;

    if (!webhook_file_flush(&webhooks->file)) {
        refuse_unkept(webhooks, strerror(errno));
    }
    while (*at != NULL) {
        struct webhook *webhook = *at;

        if (webhook->state == WEBHOOK_BEGUN && webhook->call != NULL &&
            !belay_async_is_waiting(webhook->call, &waiting)) {
            at = &webhook->next_unanswered; /* not queued yet */
            continue;
        }
        if (webhook->state == WEBHOOK_BEGUN) {
            webhook_set_state(webhook, WEBHOOK_WAITING);
        }
        *at = webhook->next_unanswered;
        webhook_answer(webhook);
    }
}

/* Whether its token may still take the lock. Logs if not. */
static bool webhook_is_allowed(const struct webhook *webhook)
{
    const struct tokens *tokens = webhook->server->tokens;
    bool is_so = tokens_let_lock(tokens, webhook->who, webhook->key);

    for (size_t i = 0; is_so && webhook->keys != NULL && i < webhook->keys->n; i++) {
        is_so = tokens_let_lock(tokens, webhook->who, webhook->keys->keys[i]);
    }
    if (!is_so) {
        log_note(&webhook->server->log, LOG_WARN, "webhook",
                 "'%s' for %s leaves the queue: the token '%s' may no longer take it", webhook->key,
                 webhook->owner, webhook->who);
    }
    return is_so;
}

static void restore(void *context, json_t *record)
{
    struct server *server = context;
    struct webhook *webhook = webhook_new(server, record);

    if (webhook == NULL) {
        return;
    }
    webhook_add(server->webhooks, webhook);
    if (webhook_is_allowed(webhook)) {
        webhook_start(webhook);
    } else {
        webhook_forget(webhook);
    }
}

void webhooks_revoke(struct server *server)
{
    for (size_t i = 0; i < WEBHOOK_BUCKETS; i++) {
        struct webhook *next;

        for (struct webhook *webhook = server->webhooks->buckets[i]; webhook != NULL; webhook = next) {
            next = webhook->next;
            if (webhook_is_queued(webhook) && !webhook->is_abandoned && !webhook_is_allowed(webhook)) {
                (void)webhook_abandon(webhook);
            }
        }
    }
}

char *webhooks_path(const struct server *server, const char *suffix)
{
    const char *configured = belay_config_get(server->config, "server.webhooks.file");
    char *database =
        configured == NULL ? store_url_place(belay_client_store_url(server->client), "sqlite:") : NULL;
    struct buf path = BUF_INIT(4096);

    if (configured == NULL && database == NULL) {
        return NULL;
    }
    buf_adds(&path, configured != NULL ? configured : database);
    buf_adds(&path, configured == NULL && *suffix == '\0' ? "-webhooks" : suffix);
    free(database);
    return buf_take(&path);
}

enum belay_code webhooks_open(struct server *server, struct belay_error *err)
{
    struct webhooks *webhooks = server->webhooks;
    enum belay_code code = webhook_settings_load(server->config, &webhooks->settings, err);
    char *path;

    webhooks->file.fd = -1;
    if (code != BELAY_OK) {
        return code;
    }
    webhooks->cancel = belay_cancel_new();
    if (webhooks->cancel == NULL) {
        return error_no_memory(err);
    }
    path = webhooks_path(server, "");
    code = webhook_file_open(&webhooks->file, path, restore, server, err);
    free(path);
    if (code == BELAY_HELD) {
        log_note(&server->log, LOG_WARN, "webhook", "%s; those of this one do not survive it", err->text);
        code = BELAY_OK;
    } else if (code == BELAY_OK && webhooks->n > 0) {
        log_note(&server->log, LOG_INFO, "webhook", "%zu are still queued", webhooks->n);
        /* Nothing else may cause a turn of the loop. */
        (void)loop_timer_set(server->loop, &server->group_commit.timer, 0);
    }
    return code;
}

void webhooks_stop(struct server *server)
{
    struct webhooks *webhooks = server->webhooks;
    struct webhook *next;

    for (size_t i = 0; i < WEBHOOK_BUCKETS; i++) {
        for (struct webhook *webhook = webhooks->buckets[i]; webhook != NULL; webhook = next) {
            struct exchange *x = webhook->x;

            next = webhook->next;
            if (x != NULL) {
                webhook->x = NULL;
                reply_problem(x, 503, "shutting_down", "the server is stopping; retry with the same lock_id");
            }
            if (x != NULL || (webhook_is_queued(webhook) && !webhook_file_is_open(&webhooks->file))) {
                (void)webhook_abandon(webhook);
            }
        }
    }
    belay_cancel_request(webhooks->cancel);
}

void webhooks_end(struct server *server)
{
    struct webhooks *webhooks = server->webhooks;
    int64_t until_ms = clock_boot_ms() + WEBHOOK_RELEASE_MS;

    webhooks->is_stopped = true;
    if (webhooks->cancel != NULL) {
        belay_cancel_request(webhooks->cancel);
    }
    work_close(server->workers, WORK_WEBHOOK);
    /* A call that was cut short may have arrived: with a file, the next server repeats it. Without one, release the lock. */
    for (size_t i = 0; i < WEBHOOK_BUCKETS && !webhook_file_is_open(&webhooks->file); i++) {
        for (struct webhook *webhook = webhooks->buckets[i]; webhook != NULL; webhook = webhook->next) {
            if (webhook->lock != NULL && !webhook->is_ended && webhook->state != WEBHOOK_DELIVERED) {
                server_release(server, webhook->key, webhook->keys, webhook->lock_id, WEBHOOK_CANCELLED_BY);
            }
        }
    }
    while (server->n_releasing > 0 && clock_boot_ms() < until_ms && loop_turn(server->loop, 100)) {
        /* a store on the network takes several turns */
    }
}

void webhooks_close(struct server *server)
{
    struct webhooks *webhooks = server->webhooks;

    for (size_t i = 0; i < WEBHOOK_BUCKETS; i++) {
        struct webhook *next;

        for (struct webhook *webhook = webhooks->buckets[i]; webhook != NULL; webhook = next) {
            next = webhook->next;
            if (webhook->x != NULL) {
                exchange_end(webhook->x, 499);
                webhook->x = NULL;
            }
            webhook_drop(webhook);
        }
    }
    if (webhook_file_is_open(&webhooks->file)) {
        webhook_file_close(&webhooks->file);
    }
    belay_cancel_free(webhooks->cancel);
    webhooks->cancel = NULL;
}
