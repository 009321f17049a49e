#include "server/webhooks/webhooks.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fnv.h"
#include "base/store_url.h"
#include "base/text.h"
#include "server/core/server.h"
#include "json/json_write.h"

/* ---- the table ---- */

static struct hook **bucket_of(struct hooks *hooks, const char *lock_id)
{
    return &hooks->buckets[fnv_text(FNV_INIT, lock_id) % HOOK_BUCKETS];
}

static struct hook *find(struct hooks *hooks, const char *lock_id)
{
    struct hook *hook = *bucket_of(hooks, lock_id);

    while (hook != NULL && strcmp(hook->lock_id, lock_id) != 0) {
        hook = hook->next;
    }
    return hook;
}

static void add(struct hooks *hooks, struct hook *hook)
{
    struct hook **bucket = bucket_of(hooks, hook->lock_id);

    hook->next = *bucket;
    *bucket = hook;
    hooks->n++;
    hook->next_unanswered = hooks->unanswered;
    hooks->unanswered = hook;
}

static void hook_free(struct hook *hook)
{
    assert(!work_is_pending(&hook->work));
    json_decref(hook->record);
    json_decref(hook->lock);
    belay_error_release(&hook->err);
    free(hook->body);
    free(hook);
}

static void unlist(struct hooks *hooks, const struct hook *hook)
{
    for (struct hook **at = &hooks->unanswered; *at != NULL; at = &(*at)->next_unanswered) {
        if (*at == hook) {
            *at = hook->next_unanswered;
            return;
        }
    }
}

void hook_drop(struct hook *hook)
{
    struct hooks *hooks = hook->server->hooks;
    struct hook **at = bucket_of(hooks, hook->lock_id);

    while (*at != hook) {
        at = &(*at)->next;
    }
    *at = hook->next;
    if (hook->state == HOOK_DONE) {
        hooks->n_done--;
    } else {
        hooks->n--;
    }
    unlist(hooks, hook);
    if (hook->x != NULL) {
        reply_problem(hook->x, 503, "unreachable", "the request could not be queued");
    }
    loop_timer_cancel(hook->server->loop, &hook->timer);
    hook_free(hook);
}

void hook_forget(struct hook *hook)
{
    hook_file_end(&hook->server->hooks->file, hook->lock_id);
    hook_drop(hook);
}

/* ---- what is told ---- */

/* {"key","lock_id","locked_by","status","position","wait_until"} */
static json_t *hook_status(const struct hook *hook, const char *status)
{
    struct belay_wait_info waiting;
    bool is_waiting = hook->call != NULL && belay_async_is_waiting(hook->call, &waiting);

    return json_pack("{s:o, s:s, s:o, s:s, s:o, s:o}", "key", wire_text(hook->key), "lock_id", hook->lock_id,
                     "locked_by", wire_text(hook->owner), "status", status, "position",
                     is_waiting ? json_integer((json_int_t)waiting.position) : json_null(), "wait_until",
                     wire_time(hook->until_unix_ms));
}

static const char *status_name(const struct hook *hook)
{
    switch (hook->state) {
    case HOOK_CALLING:
    case HOOK_PAUSED:
        return "calling";
    case HOOK_DONE:
        return "delivered";
    case HOOK_BEGUN:
    case HOOK_WAITING:
    case HOOK_TROUBLED:
        break;
    }
    return "queued";
}

static void answer(struct hook *hook)
{
    struct exchange *x = hook->x;

    hook->x = NULL;
    if (x != NULL) {
        reply(x, 202, hook_status(hook, status_name(hook)));
    }
}

/* ---- waiting ---- */

static void start(struct hook *hook);

static void on_released(void *context, enum belay_code code, const struct belay_info *info,
                        const struct belay_error *err)
{
    struct server *server = context;

    (void)info;
    server->hooks->n_releasing--;
    if (code != BELAY_OK) {
        log_note(&server->log, LOG_WARN, "webhook", "a lock nobody wants any more was not released: %s",
                 err->text);
    }
}

/* It was cancelled, and granted at the same moment. */
static void give_back(struct hook *hook)
{
    struct server *server = hook->server;
    struct belay_error err = BELAY_ERROR_INIT;

    server->hooks->n_releasing++;
    if (belay_async_release_by(server->client, hook->key, hook->lock_id, BELAY_OUTCOME_FAILED,
                               "webhook cancelled", on_released, server, &err) != BELAY_OK) {
        on_released(server, err.code, NULL, &err);
    }
    belay_error_release(&err);
}

static bool is_trouble(enum belay_code code)
{
    return code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN || code == BELAY_NO_MEMORY;
}

static void fail(struct hook *hook, const struct belay_error *err)
{
    struct server *server = hook->server;
    struct exchange *x = hook->x;

    if (x != NULL) {
        hook->x = NULL;
        reply_error(x, err);
        hook_forget(hook);
        return;
    }
    if (err->code == BELAY_CANCELLED) {
        log_note(&server->log, LOG_INFO, "webhook", "'%s' for %s: the wait is over", hook->key, hook->owner);
    } else {
        log_note(&server->log, LOG_WARN, "webhook", "'%s' for %s: %s", hook->key, hook->owner, err->text);
    }
    if (hook->is_abandoned) {
        hook_forget(hook);
    } else if (!server->hooks->is_stopped) { /* else the server has stopped: the next one tells */
        hook_call_ended(hook, err->code == BELAY_CANCELLED ? "timed out" : err->text);
    }
}

static void on_acquired(void *context, enum belay_code code, const struct belay_info *info,
                        const struct belay_error *err)
{
    struct hook *hook = context;
    struct loop *loop = hook->server->loop;
    bool is_over = hook->is_abandoned || clock_unix_ms() >= hook->until_unix_ms;

    hook->call = NULL;
    loop_timer_cancel(loop, &hook->timer);
    if (code == BELAY_OK && hook->is_abandoned) {
        give_back(hook);
        answer(hook);
        hook_forget(hook);
    } else if (code == BELAY_OK && hook->server->hooks->is_stopped) {
        return; /* the server has stopped: the next one finds it in the file, and the lock by its id */
    } else if (code == BELAY_OK) {
        hook_call(hook, info);
    } else if (hook->x == NULL && is_trouble(code) && !is_over &&
               loop_timer_set(loop, &hook->timer, loop_now_ms(loop) + HOOK_TROUBLE_MS)) {
        hook->state = HOOK_TROUBLED;
        log_note(&hook->server->log, LOG_WARN, "webhook", "'%s' for %s: %s; asking again", hook->key,
                 hook->owner, err->text);
    } else {
        fail(hook, err);
    }
}

static void on_timer(struct timer *timer)
{
    struct hook *hook = (struct hook *)(void *)((char *)timer - offsetof(struct hook, timer));

    switch (hook->state) {
    case HOOK_BEGUN:
    case HOOK_WAITING:
        if (hook->call != NULL) {
            belay_async_cancel(hook->call);
        }
        break;
    case HOOK_TROUBLED:
        start(hook);
        break;
    case HOOK_PAUSED:
        hook_try(hook);
        break;
    case HOOK_DONE:
        hook_drop(hook);
        break;
    case HOOK_CALLING:
        break;
    }
}

/* Ask for the lock: the first time, after a restart, and after the store has failed. */
static enum belay_code ask(struct hook *hook, struct belay_error *err)
{
    struct server *server = hook->server;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct body body;
    enum belay_code code =
        body_read_json(&body, acquire_fields + 1, json_incref(json_object_get(hook->record, "body")), err);

    if (code == BELAY_OK) {
        code = fill_options(server, hook->key, &body, &options, err);
    }
    if (code == BELAY_OK) {
        options.owner_name = hook->name;
        options.acquired_by = hook->who;
        options.lock_id = hook->lock_id;
        options.wait_ms = BELAY_WAIT_FOREVER; /* until our own timer ends it */
        code = belay_async_acquire(server->client, hook->key, &options, on_acquired, hook, &hook->call, err);
    }
    body_release(&body);
    return code;
}

static void start(struct hook *hook)
{
    struct loop *loop = hook->server->loop;
    struct belay_error err = BELAY_ERROR_INIT;
    int64_t left_ms = hook->until_unix_ms - clock_unix_ms();

    hook->state = HOOK_BEGUN;
    if (ask(hook, &err) != BELAY_OK) {
        fail(hook, &err);
    } else if (!loop_timer_set(loop, &hook->timer, loop_now_ms(loop) + (left_ms < 0 ? 0 : left_ms))) {
        belay_async_cancel(hook->call);
    }
    belay_error_release(&err);
}

/* ---- the beginning ---- */

static const char *text_in(const json_t *record, const char *name)
{
    const char *text = json_string_value(json_object_get(record, name));

    return text == NULL ? "" : text;
}

/* Takes the record. NULL if it is not one. */
static struct hook *hook_new(struct server *server, json_t *record)
{
    struct hook *hook = calloc(1, sizeof *hook);
    struct belay_error err = BELAY_ERROR_INIT;

    if (hook == NULL) {
        json_decref(record);
        return NULL;
    }
    hook->server = server;
    hook->record = record;
    hook->timer.fire = on_timer;
    hook->lock_id = text_in(record, "lock_id");
    hook->key = text_in(record, "key");
    hook->name = text_in(record, "name");
    hook->who = text_in(record, "acquired_by");
    hook->url = text_in(record, "url");
    hook->secret = text_in(record, "secret");
    hook->timeout_ms = json_integer_value(json_object_get(record, "timeout_ms"));
    hook->until_unix_ms = json_integer_value(json_object_get(record, "until_unix_ms"));
    hook->owner = text_in(json_object_get(record, "body"), "locked_by");
    if (*hook->lock_id == '\0' || *hook->key == '\0' ||
        hook_check_url(&server->hooks->settings, hook->url, hook->host, &err) != BELAY_OK) {
        log_note(&server->log, LOG_WARN, "webhook",
                 "one that was in line is given up: '%.100s' for '%.100s'%s%s", hook->key, hook->owner,
                 err.code == BELAY_OK ? "" : ": ", err.text);
        hook_free(hook);
        hook = NULL;
    }
    belay_error_release(&err);
    return hook;
}

/* What is kept of a request: its body without what is only for us. */
static json_t *record_of(const struct exchange *x, const struct body *body, int64_t wait_ms, const char *name)
{
    const struct hook_settings *settings = &x->server->hooks->settings;
    const char *secret = body->webhook_secret != NULL                            ? body->webhook_secret
                         : x->token != NULL && *x->token->webhook_secret != '\0' ? x->token->webhook_secret
                                                                                 : settings->secret;
    json_t *rest = json_copy(body->root);
    char id[UUID_TEXT_SIZE];

    (void)json_object_del(rest, "webhook");
    (void)json_object_del(rest, "wait_ms");
    (void)json_object_del(rest, "key");
    if (body->lock_id == NULL && !uuid_make(id)) {
        json_decref(rest);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:o}", "lock_id",
                     body->lock_id == NULL ? id : body->lock_id, "key", x->key, "name", name, "acquired_by",
                     x->who, "url", body->webhook_url, "secret", secret, "timeout_ms",
                     (json_int_t)(body->webhook_timeout_ms == 0 ? HOOK_TIMEOUT_MS : body->webhook_timeout_ms),
                     "until_unix_ms", (json_int_t)clock_unix_ms() + (json_int_t)wait_ms, "body", rest);
}

static enum belay_code check(const struct server *server, const struct body *body, int64_t wait_ms,
                             struct belay_error *err)
{
    char host[HOOK_HOST_SIZE];

    if (wait_ms <= 0 || wait_ms > HOOK_WAIT_MAX_MS) {
        return error_set(err, BELAY_INVALID,
                         "with a webhook, wait_ms must be from 1 to %lld: how long the request stays in line",
                         HOOK_WAIT_MAX_MS);
    }
    if (body->webhook_secret != NULL && !text_is_clean(body->webhook_secret, HOOK_SECRET_MAX)) {
        return error_set(err, BELAY_INVALID,
                         "webhook.secret must be 1 to %d bytes of UTF-8 without control characters",
                         HOOK_SECRET_MAX);
    }
    return hook_check_url(&server->hooks->settings, body->webhook_url, host, err);
}

/* True, and answered, if the id is in line already. */
static bool is_repeated(struct exchange *x, const char *lock_id)
{
    struct hook *hook = lock_id == NULL ? NULL : find(x->server->hooks, lock_id);

    if (hook == NULL || hook->is_abandoned) {
        return false;
    }
    if (strcmp(hook->who, x->who) != 0) {
        reply_not_yours(x, lock_id);
    } else if (hook->is_ended) {
        reply_problem(x, 503, "busy",
                      "the wait of lock_id '%s' is over, and its webhook is being told: repeat in a moment",
                      lock_id);
    } else if (strcmp(hook->key, x->key) != 0) {
        reply_problem(x, 400, "invalid", "lock_id '%s' waits for another key, '%.200s'", lock_id, hook->key);
    } else {
        reply(x, 202, hook_status(hook, status_name(hook)));
    }
    return true;
}

void hook_begin(struct exchange *x, const struct body *body, const struct belay_lock_options *options,
                const char *name)
{
    struct server *server = x->server;
    struct hooks *hooks = server->hooks;
    struct belay_error err = BELAY_ERROR_INIT;
    struct hook *hook;

    if (check(server, body, options->wait_ms, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else if (!is_repeated(x, body->lock_id)) {
        if (hooks->n >= hooks->settings.max) {
            reply_problem(x, 503, "busy", "%zu webhooks are in line, which is the most; come back later",
                          hooks->n);
        } else if ((hook = hook_new(server, record_of(x, body, options->wait_ms, name))) == NULL) {
            reply_problem(x, 503, "no_memory", "no memory");
        } else {
            hook->x = x;
            add(hooks, hook);
            hook_file_add(&hooks->file, hook->record);
            start(hook);
        }
    }
    belay_error_release(&err);
}

/* ---- leaving ---- */

/* True if it was in line. */
static bool abandon(struct hook *hook)
{
    if (hook->is_abandoned) {
        return false;
    }
    switch (hook->state) {
    case HOOK_BEGUN:
    case HOOK_WAITING:
        hook->is_abandoned = true;
        belay_async_cancel(hook->call);
        return true;
    case HOOK_CALLING:
        hook->is_abandoned = true; /* forgotten when the call is done */
        work_cancel(&hook->work);
        return false;
    case HOOK_TROUBLED:
        hook_forget(hook);
        return true;
    case HOOK_PAUSED:
        hook_forget(hook);
        return false;
    case HOOK_DONE:
        hook_drop(hook);
        break;
    }
    return false;
}

static bool is_in_line(const struct hook *hook)
{
    return hook->state == HOOK_BEGUN || hook->state == HOOK_WAITING || hook->state == HOOK_TROUBLED;
}

bool hook_leave(struct exchange *x, const char *lock_id)
{
    struct hook *hook = find(x->server->hooks, lock_id);

    return hook != NULL && strcmp(hook->key, x->key) == 0 &&
           (!is_in_line(hook) || exchange_acts_for(x, hook->who)) && abandon(hook);
}

void handle_leave(struct exchange *x)
{
    struct server *server = x->server;
    char lock_id[BELAY_ID_MAX + 1];
    const struct hook *hook;
    json_t *body;

    if (!exchange_may_touch(x, x->key)) {
        return;
    }
    if (http_query_get(x->request->query, "lock_id", lock_id, sizeof lock_id) != HTTP_FOUND ||
        *lock_id == '\0') {
        reply_problem(x, 400, "invalid",
                      "lock_id is missing: that of the request which is to leave the line");
        return;
    }
    hook = find(server->hooks, lock_id);
    body = hook == NULL ? NULL : hook_status(hook, "cancelled");
    if (hook_leave(x, lock_id)) {
        reply(x, 200, body);
        return;
    }
    json_decref(body);
    reply_problem(x, 404, "not_found",
                  "no request with a webhook waits for '%.200s' under this lock_id; a lock that "
                  "is held is released",
                  x->key);
}

/* ---- with the loop ---- */

/* What cannot be kept over a restart was not promised yet: it leaves the line again. */
static void refuse_unkept(struct hooks *hooks, const char *why)
{
    struct hook *next;

    for (struct hook *hook = hooks->unanswered; hook != NULL; hook = next) {
        struct exchange *x = hook->x;

        next = hook->next_unanswered;
        if (x != NULL) {
            hook->x = NULL;
            log_note(&hook->server->log, LOG_ERROR, "webhook", "a request cannot be kept in %s: %s",
                     hooks->file.path, why);
            reply_problem(x, 503, "unreachable", "the request cannot be kept: %s", why);
            (void)abandon(hook);
        }
    }
}

bool hooks_are_idle(const struct hooks *hooks)
{
    return hooks->n == 0 && hooks->file.out.len == 0;
}

void hooks_pump(struct server *server)
{
    struct hooks *hooks = server->hooks;
    struct hook **at = &hooks->unanswered;
    struct belay_wait_info waiting;

    if (!hook_file_flush(&hooks->file)) {
        refuse_unkept(hooks, strerror(errno));
    }
    while (*at != NULL) {
        struct hook *hook = *at;

        if (hook->state == HOOK_BEGUN && hook->call != NULL &&
            !belay_async_is_waiting(hook->call, &waiting)) {
            at = &hook->next_unanswered; /* the store is still being asked */
            continue;
        }
        if (hook->state == HOOK_BEGUN) {
            hook->state = HOOK_WAITING;
        }
        *at = hook->next_unanswered;
        answer(hook);
    }
}

/* Whether its token may still take the lock; else that is logged. */
static bool is_allowed(const struct hook *hook)
{
    bool is_so = tokens_let_lock(hook->server->tokens, hook->who, hook->key);

    if (!is_so) {
        log_note(&hook->server->log, LOG_WARN, "webhook",
                 "'%s' for %s leaves the line: the token '%s' may not take it any more", hook->key,
                 hook->owner, hook->who);
    }
    return is_so;
}

static void restore(void *context, json_t *record)
{
    struct server *server = context;
    struct hook *hook = hook_new(server, record);

    if (hook == NULL) {
        return;
    }
    add(server->hooks, hook);
    if (is_allowed(hook)) {
        start(hook);
    } else {
        hook_forget(hook);
    }
}

void hooks_revoke(struct server *server)
{
    for (size_t i = 0; i < HOOK_BUCKETS; i++) {
        struct hook *next;

        for (struct hook *hook = server->hooks->buckets[i]; hook != NULL; hook = next) {
            next = hook->next;
            if (is_in_line(hook) && !hook->is_abandoned && !is_allowed(hook)) {
                (void)abandon(hook);
            }
        }
    }
}

/* Beside the database, unless the configuration says where; elsewhere there is no such place. */
static char *file_path(const struct server *server)
{
    const char *configured = belay_config_get(server->config, "server.webhooks.file");
    const char *url = belay_client_store_url(server->client);
    struct buf path = BUF_INIT(4096);
    char *database;

    if (configured != NULL) {
        return strdup(configured);
    }
    database = store_url_place(url, "sqlite:");
    if (database == NULL) {
        return NULL;
    }
    buf_adds(&path, database);
    free(database);
    buf_adds(&path, "-webhooks");
    return buf_take(&path);
}

enum belay_code hooks_open(struct server *server, struct belay_error *err)
{
    struct hooks *hooks = server->hooks;
    enum belay_code code = hook_settings_load(server->config, &hooks->settings, err);
    char *path;

    hooks->file.fd = -1;
    if (code != BELAY_OK) {
        return code;
    }
    hooks->cancel = belay_cancel_new();
    if (hooks->cancel == NULL) {
        return error_no_memory(err);
    }
    path = file_path(server);
    code = hook_file_open(&hooks->file, path, restore, server, err);
    free(path);
    if (code == BELAY_HELD) {
        log_note(&server->log, LOG_WARN, "webhook", "%s; those of this one do not survive it", err->text);
        code = BELAY_OK;
    } else if (code == BELAY_OK && hooks->n > 0) {
        log_note(&server->log, LOG_INFO, "webhook", "%zu are still in line", hooks->n);
        (void)loop_timer_set(server->loop, &server->group_commit.timer,
                             0); /* nobody else may ask for a turn */
    }
    return code;
}

void hooks_stop(struct server *server)
{
    struct hooks *hooks = server->hooks;
    struct hook *next;

    for (size_t i = 0; i < HOOK_BUCKETS; i++) {
        for (struct hook *hook = hooks->buckets[i]; hook != NULL; hook = next) {
            struct exchange *x = hook->x;

            next = hook->next;
            if (x != NULL) {
                hook->x = NULL;
                reply_problem(x, 503, "shutting_down",
                              "the server is stopping; ask again with the same lock_id in a moment");
            }
            if (x != NULL || (is_in_line(hook) && !hook_file_is_open(&hooks->file))) {
                (void)abandon(hook);
            }
        }
    }
    belay_cancel_request(hooks->cancel);
}

void hooks_end(struct server *server)
{
    struct hooks *hooks = server->hooks;
    int64_t until_ms = clock_boot_ms() + HOOK_RELEASE_MS;

    hooks->is_stopped = true;
    if (hooks->cancel != NULL) {
        belay_cancel_request(hooks->cancel);
    }
    work_close(server->workers, WORK_WEBHOOK);
    /* The next server makes a call that was cut short, which may have come through, again; if there is a file. */
    for (size_t i = 0; i < HOOK_BUCKETS && !hook_file_is_open(&hooks->file); i++) {
        for (struct hook *hook = hooks->buckets[i]; hook != NULL; hook = hook->next) {
            if (hook->lock != NULL && !hook->is_ended && hook->state != HOOK_DONE) {
                give_back(hook);
            }
        }
    }
    while (hooks->n_releasing > 0 && clock_boot_ms() < until_ms && loop_turn(server->loop, 100)) {
        /* a store on the network takes several turns */
    }
}

void hooks_close(struct server *server)
{
    struct hooks *hooks = server->hooks;

    for (size_t i = 0; i < HOOK_BUCKETS; i++) {
        struct hook *next;

        for (struct hook *hook = hooks->buckets[i]; hook != NULL; hook = next) {
            next = hook->next;
            if (hook->x != NULL) {
                exchange_end(hook->x, 499);
                hook->x = NULL;
            }
            hook_drop(hook);
        }
    }
    if (hook_file_is_open(&hooks->file)) {
        hook_file_close(&hooks->file);
    }
    belay_cancel_free(hooks->cancel);
    hooks->cancel = NULL;
}
