/* One request with a webhook: queue for the lock, answer 202, leave the queue. */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "server/core/server.h"
#include "server/webhooks/webhooks.h"
#include "json/json_write.h"

/* ---- replies ---- */

json_t *webhook_keys(const struct webhook *webhook)
{
    json_t *keys = webhook->keys == NULL ? json_null() : json_array();

    for (size_t i = 0; webhook->keys != NULL && i < webhook->keys->n; i++) {
        (void)json_array_append_new(keys, wire_text(webhook->keys->keys[i]));
    }
    return keys;
}

/* {"key","keys","lock_id","locked_by","status","position","wait_until"} */
static json_t *webhook_status(const struct webhook *webhook, const char *status)
{
    struct belay_wait_info waiting;
    bool is_waiting = webhook->call != NULL && belay_async_is_waiting(webhook->call, &waiting);

    return json_pack("{s:o, s:o, s:s, s:o, s:s, s:o, s:o}", "key", wire_text(webhook->key), "keys",
                     webhook_keys(webhook), "lock_id", webhook->lock_id, "locked_by",
                     wire_text(webhook->owner), "status", status, "position",
                     is_waiting ? json_integer((json_int_t)waiting.position) : json_null(), "wait_until",
                     wire_time(webhook->until_unix_ms));
}

static const char *status_name(const struct webhook *webhook)
{
    switch (webhook->state) {
    case WEBHOOK_CALLING:
    case WEBHOOK_PAUSED:
        return "calling";
    case WEBHOOK_DELIVERED:
        return "delivered";
    case WEBHOOK_BEGUN:
    case WEBHOOK_WAITING:
    case WEBHOOK_RETRYING:
        break;
    }
    return "queued";
}

void webhook_answer(struct webhook *webhook)
{
    struct exchange *x = webhook->x;

    webhook->x = NULL;
    if (x != NULL) {
        reply(x, 202, webhook_status(webhook, status_name(webhook)));
    }
}

/* ---- in the queue ---- */

static bool is_temporary(enum belay_code code)
{
    return code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN || code == BELAY_NO_MEMORY;
}

static void fail_webhook(struct webhook *webhook, const struct belay_error *err)
{
    struct server *server = webhook->server;
    struct exchange *x = webhook->x;

    assert(webhook->call == NULL && err->code != BELAY_OK);
    if (x != NULL) {
        webhook->x = NULL;
        reply_error(x, err);
        webhook_forget(webhook);
        return;
    }
    if (err->code == BELAY_CANCELLED) {
        log_note(&server->log, LOG_INFO, "webhook", "'%s' for %s: the wait is over", webhook->key,
                 webhook->owner);
    } else {
        log_note(&server->log, LOG_WARN, "webhook", "'%s' for %s: %s", webhook->key, webhook->owner,
                 err->text);
    }
    if (webhook->is_abandoned) {
        webhook_forget(webhook);
    } else if (!server->webhooks->is_stopped) { /* else the next server calls */
        webhook_call_ended(webhook, err->code == BELAY_CANCELLED ? "timed out" : err->text);
    }
}

static void on_webhook_acquired(void *context, enum belay_code code, const struct belay_info *info,
                                const struct belay_error *err)
{
    struct webhook *webhook = context;
    struct loop *loop = webhook->server->loop;
    bool is_over = webhook->is_abandoned || clock_unix_ms() >= webhook->until_unix_ms;

    assert(webhook->state == WEBHOOK_BEGUN || webhook->state == WEBHOOK_WAITING);
    assert(code == BELAY_OK ? info != NULL : err->code == code);
    webhook->call = NULL;
    loop_timer_cancel(loop, &webhook->timer);
    if (code == BELAY_OK && webhook->is_abandoned) {
        server_release(webhook->server, webhook->key, webhook->keys, webhook->lock_id, WEBHOOK_CANCELLED_BY);
        webhook_answer(webhook);
        webhook_forget(webhook);
    } else if (code == BELAY_OK && webhook->server->webhooks->is_stopped) {
        return; /* the next server finds it in the file, and the lock by its id */
    } else if (code == BELAY_OK) {
        webhook_call(webhook, info);
    } else if (webhook->x == NULL && is_temporary(code) && !is_over &&
               loop_timer_set(loop, &webhook->timer, loop_now_ms(loop) + WEBHOOK_RETRY_MS)) {
        webhook_set_state(webhook, WEBHOOK_RETRYING);
        log_note(&webhook->server->log, LOG_WARN, "webhook", "'%s' for %s: %s; asking again", webhook->key,
                 webhook->owner, err->text);
    } else {
        fail_webhook(webhook, err);
    }
}

static void on_webhook_timer(struct timer *timer)
{
    struct webhook *webhook = CONTAINER_OF(timer, struct webhook, timer);

    switch (webhook->state) {
    case WEBHOOK_BEGUN:
    case WEBHOOK_WAITING:
        if (webhook->call != NULL) {
            belay_async_cancel(webhook->call);
        }
        break;
    case WEBHOOK_RETRYING:
        webhook_start(webhook);
        break;
    case WEBHOOK_PAUSED:
        webhook_try(webhook);
        break;
    case WEBHOOK_DELIVERED:
        webhook_drop(webhook);
        break;
    case WEBHOOK_CALLING:
        break;
    }
}

static enum belay_code start_acquire(struct webhook *webhook, struct belay_error *err)
{
    struct server *server = webhook->server;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct body body;
    enum belay_code code = body_read_json(&body, acquire_fields + BODY_KEY_FIELDS,
                                          json_incref(json_object_get(webhook->record, "body")), err);

    if (code == BELAY_OK) {
        code = fill_options(server, webhook->key, webhook->keys, &body, &options, err);
    }
    if (code == BELAY_OK) {
        options.owner_name = webhook->name;
        options.acquired_by = webhook->who;
        options.lock_id = webhook->lock_id;
        options.wait_ms = BELAY_WAIT_FOREVER; /* webhook->timer ends it */
        code = belay_async_acquire(server->client, webhook->key, &options, on_webhook_acquired, webhook,
                                   &webhook->call, err);
    }
    body_release(&body);
    return code;
}

void webhook_start(struct webhook *webhook)
{
    struct loop *loop = webhook->server->loop;
    struct belay_error err = BELAY_ERROR_INIT;
    int64_t left_ms = webhook->until_unix_ms - clock_unix_ms();

    assert(webhook->call == NULL);
    webhook_set_state(webhook, WEBHOOK_BEGUN);
    if (start_acquire(webhook, &err) != BELAY_OK) {
        fail_webhook(webhook, &err);
    } else if (!loop_timer_set(loop, &webhook->timer, loop_now_ms(loop) + (left_ms < 0 ? 0 : left_ms))) {
        belay_async_cancel(webhook->call);
    }
    belay_error_release(&err);
}

/* ---- new requests ---- */

static const char *text_in(const json_t *record, const char *name)
{
    const char *text = json_string_value(json_object_get(record, name));

    return text == NULL ? "" : text;
}

/* The keys of a record for several. False: they are not keys, or there is no memory. */
static bool read_record_keys(const json_t *array, struct lock_keys **out_keys)
{
    const char *keys[BELAY_KEYS_MAX];
    size_t n = json_array_size(array);

    if (array == NULL) {
        return true;
    }
    for (size_t i = 0; i < n && n <= BELAY_KEYS_MAX; i++) {
        keys[i] = json_string_value(json_array_get(array, i));
        if (keys[i] == NULL) {
            return false;
        }
    }
    *out_keys = n == 0 || n > BELAY_KEYS_MAX ? NULL : lock_keys_new(keys, n);
    return *out_keys != NULL;
}

struct webhook *webhook_new(struct server *server, json_t *record)
{
    struct webhook *webhook = calloc(1, sizeof *webhook);
    struct belay_error err = BELAY_ERROR_INIT;

    if (webhook == NULL) {
        json_decref(record);
        return NULL;
    }
    webhook->server = server;
    webhook->record = record;
    webhook->timer.fire = on_webhook_timer;
    webhook->lock_id = text_in(record, "lock_id");
    webhook->key = text_in(record, "key");
    webhook->name = text_in(record, "name");
    webhook->who = text_in(record, "acquired_by");
    webhook->url = text_in(record, "url");
    webhook->secret = text_in(record, "secret");
    webhook->timeout_ms = json_integer_value(json_object_get(record, "timeout_ms"));
    webhook->until_unix_ms = json_integer_value(json_object_get(record, "until_unix_ms"));
    webhook->owner = text_in(json_object_get(record, "body"), "locked_by");
    if (*webhook->lock_id == '\0' || *webhook->key == '\0' ||
        !read_record_keys(json_object_get(record, "keys"), &webhook->keys) ||
        webhook_check_url(&server->webhooks->settings, webhook->url, webhook->host, &err) != BELAY_OK) {
        log_note(&server->log, LOG_WARN, "webhook", "a queued webhook is dropped: '%.100s' for '%.100s'%s%s",
                 webhook->key, webhook->owner, err.code == BELAY_OK ? "" : ": ", err.text);
        webhook_free(webhook);
        webhook = NULL;
    }
    belay_error_release(&err);
    return webhook;
}

/* The part of a request that the file keeps: its body without the fields that only this server uses. */
static json_t *make_record(const struct exchange *x, const struct body *body, int64_t wait_ms,
                           const char *name)
{
    const struct webhook_settings *settings = &x->server->webhooks->settings;
    const char *secret = body->webhook_secret != NULL                            ? body->webhook_secret
                         : x->token != NULL && *x->token->webhook_secret != '\0' ? x->token->webhook_secret
                                                                                 : settings->secret;
    json_t *keys = json_incref(json_object_get(body->root, "keys")); /* NULL: one */
    json_t *rest = json_copy(body->root);
    char id[UUID_TEXT_SIZE];

    (void)json_object_del(rest, "webhook");
    (void)json_object_del(rest, "wait_ms");
    for (size_t i = 0; i < BODY_KEY_FIELDS; i++) {
        (void)json_object_del(rest, acquire_fields[i].name);
    }
    if (body->lock_id == NULL && !uuid_make(id)) {
        json_decref(rest);
        json_decref(keys);
        return NULL;
    }
    return json_pack(
        "{s:s, s:s, s:o*, s:s, s:s, s:s, s:s, s:I, s:I, s:o}", "lock_id",
        body->lock_id == NULL ? id : body->lock_id, "key", x->key, "keys", keys, "name", name, "acquired_by",
        x->who, "url", body->webhook_url, "secret", secret, "timeout_ms",
        (json_int_t)(body->webhook_timeout_ms == 0 ? WEBHOOK_TIMEOUT_MS : body->webhook_timeout_ms),
        "until_unix_ms", (json_int_t)clock_unix_ms() + (json_int_t)wait_ms, "body", rest);
}

static enum belay_code check_webhook(const struct server *server, const struct body *body, int64_t wait_ms,
                                     struct belay_error *err)
{
    char host[WEBHOOK_HOST_SIZE];

    if (wait_ms <= 0 || wait_ms > WEBHOOK_WAIT_MAX_MS) {
        return error_set(err, BELAY_INVALID,
                         "with a webhook, wait_ms must be from 1 to %lld: how long the request stays queued",
                         WEBHOOK_WAIT_MAX_MS);
    }
    if (body->webhook_secret != NULL && !text_is_clean(body->webhook_secret, WEBHOOK_SECRET_MAX)) {
        return error_set(err, BELAY_INVALID,
                         "webhook.secret must be 1 to %d bytes of UTF-8 without control characters",
                         WEBHOOK_SECRET_MAX);
    }
    return webhook_check_url(&server->webhooks->settings, body->webhook_url, host, err);
}

/* True, and answered, if the id is queued already. */
static bool answer_repeated(struct exchange *x, const char *lock_id)
{
    struct webhook *webhook = lock_id == NULL ? NULL : webhook_find(x->server->webhooks, lock_id);

    if (webhook == NULL || webhook->is_abandoned) {
        return false;
    }
    if (strcmp(webhook->who, x->who) != 0) {
        reply_not_yours(x, lock_id);
    } else if (webhook->is_ended) {
        reply_problem(x, 503, "busy",
                      "the wait of lock_id '%s' is over, and its webhook is being called: retry later",
                      lock_id);
    } else if (strcmp(webhook->key, x->key) != 0 || !lock_keys_are_same(webhook->keys, x->keys)) {
        reply_problem(x, 400, "invalid", "lock_id '%s' waits for %s, '%.200s'%s", lock_id,
                      webhook->keys == NULL ? "another key" : "other keys", webhook->key,
                      webhook->keys == NULL ? "" : " and more");
    } else {
        reply(x, 202, webhook_status(webhook, status_name(webhook)));
    }
    return true;
}

static bool has_room(const struct exchange *x)
{
    const struct webhooks *webhooks = x->server->webhooks;
    size_t n = 0;

    for (size_t i = 0; i < WEBHOOK_BUCKETS; i++) {
        for (const struct webhook *webhook = webhooks->buckets[i]; webhook != NULL; webhook = webhook->next) {
            n += webhook->state != WEBHOOK_DELIVERED && strcmp(webhook->who, x->who) == 0;
        }
    }
    return webhooks->n < webhooks->settings.max && exchange_has_share(x, n, webhooks->settings.max);
}

void webhook_begin(struct exchange *x, const struct body *body, const struct belay_lock_options *options,
                   const char *name)
{
    struct server *server = x->server;
    struct webhooks *webhooks = server->webhooks;
    struct belay_error err = BELAY_ERROR_INIT;
    struct webhook *webhook;

    if (check_webhook(server, body, options->wait_ms, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else if (!answer_repeated(x, body->lock_id)) {
        if (!has_room(x)) {
            reply_problem(x, 503, "busy", "%zu webhooks are queued, of %zu at most; retry later", webhooks->n,
                          webhooks->settings.max);
        } else if ((webhook = webhook_new(server, make_record(x, body, options->wait_ms, name))) == NULL) {
            reply_problem(x, 503, "no_memory", "no memory");
        } else {
            webhook->x = x;
            webhook_add(webhooks, webhook);
            webhook_file_add(&webhooks->file, webhook->record);
            webhook_start(webhook);
        }
    }
    belay_error_release(&err);
}

/* ---- leaving ---- */

bool webhook_abandon(struct webhook *webhook)
{
    if (webhook->is_abandoned) {
        return false;
    }
    switch (webhook->state) {
    case WEBHOOK_BEGUN:
    case WEBHOOK_WAITING:
        webhook->is_abandoned = true;
        belay_async_cancel(webhook->call);
        return true;
    case WEBHOOK_CALLING:
        webhook->is_abandoned = true; /* on_called() forgets it */
        work_cancel(&webhook->work);
        return false;
    case WEBHOOK_RETRYING:
        webhook_forget(webhook);
        return true;
    case WEBHOOK_PAUSED:
        webhook_forget(webhook);
        return false;
    case WEBHOOK_DELIVERED:
        webhook_drop(webhook);
        break;
    }
    return false;
}

bool webhook_is_queued(const struct webhook *webhook)
{
    return webhook->state == WEBHOOK_BEGUN || webhook->state == WEBHOOK_WAITING ||
           webhook->state == WEBHOOK_RETRYING;
}

bool webhook_leave(struct exchange *x, const char *lock_id)
{
    struct webhook *webhook = webhook_find(x->server->webhooks, lock_id);

    return webhook != NULL && (strcmp(webhook->key, x->key) == 0 || lock_keys_have(webhook->keys, x->key)) &&
           (!webhook_is_queued(webhook) || exchange_acts_for(x, webhook->who)) && webhook_abandon(webhook);
}

void handle_leave(struct exchange *x)
{
    struct server *server = x->server;
    char lock_id[BELAY_ID_MAX + 1];
    const struct webhook *webhook;
    json_t *body;

    if (!exchange_may_touch(x, x->key)) {
        return;
    }
    if (http_query_get(x->request->query, "lock_id", lock_id, sizeof lock_id) != HTTP_FOUND ||
        *lock_id == '\0') {
        reply_problem(x, 400, "invalid", "lock_id is missing: that of the request to remove from the queue");
        return;
    }
    webhook = webhook_find(server->webhooks, lock_id);
    body = webhook == NULL ? NULL : webhook_status(webhook, "cancelled");
    if (webhook_leave(x, lock_id)) {
        reply(x, 200, body);
        return;
    }
    json_decref(body);
    reply_problem(x, 404, "not_found",
                  "no request with a webhook waits for '%.200s' under this lock_id; a lock that "
                  "is held is released",
                  x->key);
}
