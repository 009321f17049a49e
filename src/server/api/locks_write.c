/* Changes: acquire, renew, release, force. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "server/api/pending_acquire.h"
#include "server/core/json_body.h"
#include "server/core/server.h"
#include "server/webhooks/webhooks.h"
#include "telemetry/telemetry.h"

/* ---- acquire ---- */

/*
 * The holder's display name ends in the token's: "ci", or "Alice (ci)". It is for people: decisions use acquired_by.
 */
static enum belay_code make_name(const struct exchange *x, const struct body *body,
                                 char space[BELAY_OWNER_MAX + 1], const char **out_name,
                                 struct belay_error *err)
{
    const char *name = body->locked_by_name;

    if (!text_is_clean(body->locked_by, BELAY_OWNER_MAX)) {
        return error_set(err, BELAY_INVALID,
                         "locked_by must be 1 to %d bytes of UTF-8 without control characters",
                         BELAY_OWNER_MAX);
    }
    if (name == NULL || *name == '\0') {
        /* The library's default would name the server's user. */
        *out_name = x->who[0] != '\0' ? x->who : body->locked_by;
        return BELAY_OK;
    }
    *out_name = space;
    return mark_name(name, x->who, "locked_by_name", space, BELAY_OWNER_MAX + 1, err);
}

/* A profile that is named must fit every key. */
static enum belay_code check_profile_of_keys(const struct server *server, const char *name,
                                             const struct lock_keys *keys, struct belay_error *err)
{
    struct belay_profile profile;
    enum belay_code code = BELAY_OK;

    for (size_t i = 1; code == BELAY_OK && name != NULL && keys != NULL && i < keys->n; i++) {
        code = belay_key_profile(server->config, name, keys->keys[i], &profile, err);
    }
    return code;
}

enum belay_code fill_options(const struct server *server, const char *key, const struct lock_keys *keys,
                             const struct body *body, struct belay_lock_options *options,
                             struct belay_error *err)
{
    struct belay_profile profile;
    enum belay_code code = BELAY_OK;

    if (body->has_webhook) { /* answered with 202 before the library sees the key */
        code = belay_key_check(server->config, NULL, key, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    options->ttl_ms = body->ttl_ms;
    options->wait_ms = body->wait_ms;
    options->heartbeat_ms = body->heartbeat_ms;
    options->stale_after_ms = body->stale_after_ms;
    options->reentrant = body->reentrant;
    options->owner = body->locked_by;
    options->correlation_id = body->correlation_id;
    options->lock_id = body->lock_id;
    options->metadata = body->metadata;
    options->n_metadata = body->n_metadata;
    options->shared = body->shared;
    options->slots = (int)body->slots;
    if (keys != NULL) {
        lock_keys_fill(keys, options);
    }
    options->ignore_freeze = body->ignore_freeze;
    options->ignore_reason = body->reason;
    options->durable = true;     /* the holder is another process: on disk before the reply */
    if (body->profile != NULL) { /* a queued webhook may name one that is gone */
        code = lock_key_profile(server, body->profile, &profile, err);
    }
    if (body->profile == NULL && options->ttl_ms != 0 && !body->has_webhook) {
        return code; /* the library looks the profile up, and nothing here needs it */
    }
    if (code == BELAY_OK) {
        code = belay_key_profile(server->config, body->profile, key, &profile, err);
    }
    if (code == BELAY_OK) {
        code = check_profile_of_keys(server, body->profile, keys, err);
    }
    if (code == BELAY_OK && body->profile != NULL) {
        belay_profile_apply(&profile, options);
        options->attempts = 0; /* the client retries */
    } else if (code == BELAY_OK) {
        options->ttl_ms = profile.ttl_ms; /* of the profile that the form of the key selects; 0: none */
    }
    return code;
}

/* L6: a slice of a wait is at most a third of the ttl. A request that is handled again has a part of it behind it. */
static int64_t slice_of(const struct exchange *x, const struct belay_lock_options *options)
{
    enum { DEFAULT_TTL_MS = 600000 };
    int64_t most_ms = (options->ttl_ms == 0 ? DEFAULT_TTL_MS : options->ttl_ms) / PENDING_SLICES;
    int64_t slice_ms = options->wait_ms < most_ms ? options->wait_ms : most_ms;
    int64_t left_ms = slice_ms - (clock_boot_us() - x->began_us) / 1000;

    if (slice_ms == 0) {
        return 0;
    }
    return left_ms > 0 ? left_ms : 1;
}

/* False, and answered, if the request may not ignore freezes as it wants to. */
static bool check_ignore_freeze(struct exchange *x, const struct body *body)
{
    const char *problem = NULL;

    if (body->ignore_freeze && x->role < ROLE_ADMIN) {
        reply_problem(x, 403, "not_permitted", "only an admin may ignore a freeze, and '%s' is not one",
                      x->who);
        return false;
    }
    if (body->ignore_freeze && body->reason == NULL) {
        problem = "ignore_freeze needs a reason: the history records it";
    } else if (body->ignore_freeze && body->has_webhook) {
        problem = "ignore_freeze and webhook exclude each other";
    } else if (!body->ignore_freeze && body->reason != NULL) {
        problem = "reason is for ignore_freeze: add that, or leave it out";
    }
    if (problem != NULL) {
        reply_problem(x, 400, "invalid", "%s", problem);
    }
    return problem == NULL;
}

void handle_acquire(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    const struct body *body = x->body;
    char name[BELAY_OWNER_MAX + 1];

    options.acquired_by = x->who;
    if (!check_ignore_freeze(x, body)) {
        return;
    }
    if (make_name(x, body, name, &options.owner_name, &err) != BELAY_OK ||
        fill_options(x->server, x->key, x->keys, body, &options, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else if (x->server->is_draining) {
        reply_problem(x, 503, "shutting_down", "the server is stopping; retry with the same lock_id");
    } else if (body->has_webhook) {
        webhook_begin(x, body, &options, options.owner_name);
    } else if (body->lock_id == NULL || !pending_acquire_resume(x, body->lock_id, slice_of(x, &options))) {
        pending_acquire_begin(x, &options, slice_of(x, &options));
    }
    belay_error_release(&err);
}

/* ---- the others ---- */

static void on_changed(void *context, enum belay_code code, const struct belay_info *info,
                       const struct belay_error *err)
{
    struct exchange *x = context;

    if (code == BELAY_OK) {
        reply_lock(x, info);
    } else {
        reply_error(x, err);
    }
}

/* Count a failed heartbeat, as the holder itself does (S4.11). */
static void on_renewed(void *context, enum belay_code code, const struct belay_info *info,
                       const struct belay_error *err)
{
    struct exchange *x = context;
    const char *keys[BELAY_KEYS_MAX];
    size_t n = exchange_keys(x, keys);
    struct belay_event event = { .at_unix_ms = clock_unix_ms(),
                                 .level = BELAY_LEVEL_WARNING,
                                 .type = "heartbeat.failed",
                                 .lock_id = x->found_id,
                                 .reason = err == NULL ? NULL : err->text,
                                 .duration_ms = -1 };

    for (size_t i = 0; i < n && code != BELAY_OK && code != BELAY_INVALID; i++) {
        event.key = keys[i];
        server_on_event(x->server, &event);
    }
    on_changed(context, code, info, err);
}

/* A belay client that holds the lock has a span for it: spans of its requests become children of that one. */
static void follow_holder(const struct exchange *x, const char *lock_id)
{
    const char *state = x->server->telemetry == NULL ? NULL : http_header(x->request, "tracestate");
    const char *traceparent = state == NULL ? NULL : http_header(x->request, "traceparent");

    if (lock_id != NULL && traceparent != NULL && strcmp(state, "belay=hold") == 0) {
        telemetry_set_hold_span(x->server->telemetry, lock_id, traceparent);
    }
}

static void follow_adopter(const struct exchange *x, const char *new_id)
{
    const char *traceparent = http_header(x->request, "traceparent");

    if (new_id != NULL && traceparent != NULL) {
        telemetry_set_parent(x->server->telemetry, new_id, traceparent);
    }
}

/*
 * The lock keeps its ttl, and the heartbeat is a promise of the client: it makes it by a number, or by naming a profile
 * that has one.
 */
static void fill_adopt_times(const struct server *server, const struct body *body,
                             struct belay_lock_options *options)
{
    struct belay_profile profile;

    options->ttl_ms = body->ttl_ms;
    options->heartbeat_ms = body->heartbeat_ms;
    options->stale_after_ms = body->stale_after_ms;
    if (body->profile != NULL &&
        belay_config_profile(server->config, body->profile, &profile, NULL) == BELAY_OK) {
        struct belay_lock_options filled = *options;

        belay_profile_apply(&profile, &filled);
        options->heartbeat_ms = filled.heartbeat_ms;
        options->stale_after_ms = filled.stale_after_ms;
    }
}

void handle_adopt(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    const struct body *body = x->body;
    char name[BELAY_OWNER_MAX + 1];

    fill_adopt_times(x->server, body, &options);
    options.owner = body->locked_by;
    options.lock_id = body->new_lock_id;
    options.acquired_by = x->who;
    options.metadata = body->metadata;
    options.n_metadata = body->n_metadata;
    options.durable = true;
    lock_keys_fill(x->keys, &options);
    follow_adopter(x, options.lock_id);
    if ((body->locked_by != NULL && make_name(x, body, name, &options.owner_name, &err) != BELAY_OK) ||
        belay_async_adopt(x->server->client, x->key, body->lock_id, &options, on_changed, x, &err) !=
            BELAY_OK) {
        reply_error(x, &err);
    }
    belay_error_release(&err);
}

void handle_renew(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const struct body *body = x->body;
    const char *keys[BELAY_KEYS_MAX];

    if (!lock_key_find_id(x)) {
        return;
    }
    follow_holder(x, body->lock_id);
    if (body->lock_id != x->found_id) {
        (void)snprintf(x->found_id, sizeof x->found_id, "%s", body->lock_id);
    }
    if (belay_async_renew_keys(x->server->client, keys, exchange_keys(x, keys), body->lock_id, body->ttl_ms,
                               on_renewed, x, &err) != BELAY_OK) {
        reply_error(x, &err);
    }
    belay_error_release(&err);
}

void handle_release(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_outcome outcome = BELAY_OUTCOME_COMPLETED;
    const struct body *body = x->body;
    const char *keys[BELAY_KEYS_MAX];

    if (!lock_key_find_id(x)) {
        return;
    }
    if (body->outcome != NULL && strcmp(body->outcome, "failed") == 0) {
        outcome = BELAY_OUTCOME_FAILED;
    }
    /* A request that waits with this id, or whose place is kept, is given up. */
    pending_acquire_abandon(x, body->lock_id);
    (void)webhook_leave(x, body->lock_id);
    follow_holder(x, body->lock_id);
    if (belay_async_release_keys(x->server->client, keys, exchange_keys(x, keys), body->lock_id, outcome,
                                 NULL, on_changed, x, &err) != BELAY_OK) {
        reply_error(x, &err);
    }
    belay_error_release(&err);
}

/* Write the id of the present lock to x->found_id, or reply that there is none, or that there are several. */
static void ask_present_id(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;
    enum belay_code code = belay_get(x->server->client, x->key, &info, &err);

    if (code == BELAY_OK && (info->status != BELAY_STATUS_ACTIVE || info->lock_id == NULL)) {
        code = error_set(&err, BELAY_NOT_FOUND, "lock '%s' is not held", x->key);
    }
    if (code == BELAY_OK && count_active(info) > 1) {
        code = error_set(&err, BELAY_HELD, "lock '%s' has %zu holders: say which one to end, by its lock_id",
                         x->key, count_active(info));
        error_set_holder(&err, info);
        info = NULL;
    }
    if (code == BELAY_OK) {
        (void)snprintf(x->found_id, sizeof x->found_id, "%s", info->lock_id);
    } else {
        reply_error(x, &err);
    }
    belay_info_free(info);
    belay_error_release(&err);
}

/* From the query, for clients that cannot send a body with DELETE. */
static bool from_query(const struct exchange *x, const char *name, const char **value, char *space,
                       size_t size)
{
    enum http_found found = http_query_get(x->request->query, name, space, size);

    if (found == HTTP_FOUND && *value == NULL) {
        *value = space;
    }
    return found != HTTP_MALFORMED;
}

void handle_force(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct body *body = x->body;
    char id[BELAY_ID_MAX + 1];
    char reason[BELAY_REASON_MAX + 1];
    char own[BELAY_OWNER_MAX + 1];
    char by[BELAY_OWNER_MAX + 1];
    enum belay_code code;

    exchange_by(x, own, sizeof own);
    code = name_change(body->by, x->who, own, by, sizeof by, &err);
    if (code == BELAY_OK && (!from_query(x, "reason", &body->reason, reason, sizeof reason) ||
                             !from_query(x, "lock_id", &body->lock_id, id, sizeof id))) {
        code = error_set(&err, BELAY_INVALID, "reason or lock_id in the query is too long or not encoded");
    }
    if (code == BELAY_OK && body->lock_id == NULL && x->found_id[0] == '\0') {
        exchange_read(x, WORK_READ, ask_present_id, exchange_run_handler);
        return;
    }
    if (code == BELAY_OK) {
        body->lock_id = body->lock_id == NULL ? x->found_id : body->lock_id;
        code = belay_async_force_release(x->server->client, x->key, body->lock_id, by, body->reason,
                                         on_changed, x, &err);
    }
    if (code != BELAY_OK) {
        reply_error(x, &err);
    }
    belay_error_release(&err);
}

/* ---- what a holder tells ---- */

/* The name of the holder that lost it is marked as in an acquire, so that it cannot be another credential's. */
static enum belay_code name_loser(const struct exchange *x, const struct body *body,
                                  char name[BELAY_OWNER_MAX + 1], struct belay_error *err)
{
    if (body->locked_by_name == NULL) {
        (void)snprintf(name, BELAY_OWNER_MAX + 1, "%s", x->who);
        return BELAY_OK;
    }
    return mark_name(body->locked_by_name, x->who, "locked_by_name", name, BELAY_OWNER_MAX + 1, err);
}

static enum belay_code check_texts(const struct body *body, struct belay_error *err)
{
    const struct {
        const char *name;
        const char *value;
        size_t max;
    } texts[] = { { "locked_by", body->locked_by, BELAY_OWNER_MAX },
                  { "reason", body->reason, BELAY_REASON_MAX } };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].value != NULL && !text_is_clean(texts[i].value, texts[i].max)) {
            return error_set(err, BELAY_INVALID,
                             "%s must be 1 to %zu bytes of UTF-8 without control characters", texts[i].name,
                             texts[i].max);
        }
    }
    return BELAY_OK;
}

static enum belay_code report_lost(const struct exchange *x, struct belay_event *event,
                                   struct belay_error *err)
{
    const char *keys[BELAY_KEYS_MAX];
    size_t n = exchange_keys(x, keys);
    enum belay_code code = BELAY_OK;

    if (n > 1 && event->token != 0) {
        return error_set(err, BELAY_INVALID, "token is of one key: leave it out with several keys");
    }
    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        event->key = keys[i];
        code = belay_report_lost(x->server->client, event, err);
    }
    return code;
}

/* L9: the server records a loss that only the holder knows of. */
void handle_lost(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const struct body *body = x->body;
    struct belay_event event = { 0 };
    char by[BELAY_OWNER_MAX + 1];
    char name[BELAY_OWNER_MAX + 1];

    exchange_by(x, by, sizeof by);
    event.lock_id = body->lock_id;
    event.token = (uint64_t)body->token;
    event.locked_by = body->locked_by == NULL ? "" : body->locked_by;
    event.locked_by_name = name;
    event.by = by;
    event.reason = body->reason;
    event.metadata = body->metadata;
    event.n_metadata = body->n_metadata;
    if (check_texts(body, &err) != BELAY_OK || name_loser(x, body, name, &err) != BELAY_OK ||
        report_lost(x, &event, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else {
        reply(x, 200, json_pack("{s:s, s:b}", "key", x->key, "is_noted", 1));
    }
    belay_error_release(&err);
}
