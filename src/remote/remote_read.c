/* Reads: one lock, lists, events, statistics, and who the client and the store are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/saturate.h"
#include "base/text.h"
#include "http_client/uri.h"
#include "lock/info.h"
#include "remote/remote_internal.h"
#include "json/json_read.h"
#include "json/stats_json.h"

enum { PAGE_MAX = 1000, HISTORY_MAX = 10000 };

/* ---- one lock ---- */

/*
 * The key was never held. The answer has the lock that blocks it, and the waiters for the key: they
 * become those of belay_error_holder(), as belay_get() promises.
 */
static enum belay_code say_blocked(const char *key, struct belay_info *blocker, struct belay_error *err)
{
    const struct belay_info none = { .key = (char *)key,
                                     .lock_id = (char *)"",
                                     .locked_by = (char *)"",
                                     .locked_by_name = (char *)"",
                                     .status = BELAY_STATUS_RELEASED,
                                     .valid_for_ms = -1 };
    struct belay_info *queue = blocker->n_waiters == 0 ? NULL : info_copy(&none);

    if (text_has_prefix(blocker->key, key)) {
        (void)error_set(err, BELAY_NOT_FOUND, "no such lock: '%s' (but '%s' below it is held)", key,
                        blocker->key);
    } else {
        (void)error_set(err, BELAY_NOT_FOUND, "no such lock: '%s'", key);
    }
    if (queue != NULL) {
        queue->waiters = blocker->waiters;
        queue->n_waiters = blocker->n_waiters;
        queue->has_queue = true;
        blocker->waiters = NULL;
        blocker->n_waiters = 0;
        error_set_holder(err, queue);
    }
    return BELAY_NOT_FOUND;
}

enum belay_code remote_get(struct backend *base, const char *key, struct belay_info **out_info,
                           struct belay_error *err)
{
    struct remote *remote = (struct remote *)base;
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    struct belay_info *info;
    json_t *answer = NULL;
    enum belay_code code;

    remote_add_path(&path, key, "/queue");
    code = remote_send_get(remote, &path, key, &answer, err);
    if (code == BELAY_OK) {
        info = json_read_lock(json_object_get(answer, "lock"));
        code = info == NULL || !json_read_waiters(json_object_get(answer, "waiting"), info)
                   ? remote_say_not_belay(remote, err)
               : strcmp(info->key, key) != 0 ? say_blocked(key, info, err)
                                             : BELAY_OK;
        if (code == BELAY_OK) {
            *out_info = info;
        } else {
            belay_info_free(info);
        }
    }
    json_decref(answer);
    return code;
}

/* The answer to a check. The server may not disclose the lock id, which the caller knows. */
static struct belay_info *read_checked(const json_t *answer, const struct lock_check *check)
{
    struct belay_info *info = json_read_lock(answer);
    bool is_known = info != NULL && (info->status == BELAY_STATUS_NONE || info->valid_for_ms >= 0);

    if (is_known && info->lock_id == NULL && check->lock_id != NULL) {
        info->lock_id = strdup(check->lock_id);
        is_known = info->lock_id != NULL;
    }
    if (!is_known) {
        belay_info_free(info);
        return NULL;
    }
    return info;
}

/*
 * By POST, so that the lock id is in no log of URLs. The server counts from the attempt that it answered, and the
 * caller from before the first.
 */
enum belay_code remote_check(struct backend *base, const struct lock_check *check,
                             struct belay_info **out_info, struct belay_error *err)
{
    struct remote *remote = (struct remote *)base;
    json_t *body = json_pack("{s:s, s:s*, s:I}", "key", check->key, "lock_id", check->lock_id, "for_ms",
                             (json_int_t)check->min_valid_ms);
    int64_t asked_ms = clock_boot_ms();
    int64_t sent_ms = asked_ms;
    struct remote_call call = { .method = "POST",
                                .path = "/v1/check",
                                .body = body,
                                .key = check->key,
                                .lock_id = check->lock_id,
                                .is_held = true,
                                .is_read = true,
                                .first_timeout_ms = REMOTE_CHECK_SEVERAL_MS,
                                .out_sent_ms = &sent_ms };
    json_t *answer = NULL;
    enum belay_code code;

    if (check->token != 0) {
        (void)json_object_set_new(body, "token", json_integer((json_int_t)check->token));
    }
    code = body == NULL ? error_no_memory(err) : remote_send_again(remote, &call, &answer, err);
    if (code == BELAY_OK) {
        *out_info = read_checked(answer, check);
        code = *out_info == NULL ? remote_say_not_belay(remote, err) : BELAY_OK;
    }
    if (code == BELAY_OK && (*out_info)->valid_for_ms >= 0) {
        (*out_info)->valid_for_ms = add_saturated((*out_info)->valid_for_ms, sent_ms - asked_ms);
    }
    json_decref(answer);
    json_decref(body);
    return code;
}

enum belay_code remote_check_free(struct backend *base, const struct op_request *request,
                                  struct poller *poller, int64_t *retry_ms, struct belay_cancel *cancel,
                                  struct belay_error *err)
{
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    json_t *answer = NULL;
    enum belay_code code;

    (void)poller;
    (void)retry_ms;
    remote_add_path(&path, request->key, "/free");
    if (request->mode == BELAY_SHARED) {
        buf_adds(&path, "?shared=true");
    } else if (request->mode == BELAY_SLOTS) {
        buf_addf(&path, "?slots=%d", request->slots);
    }
    code = remote_send_get_until((struct remote *)base, &path, request->key, cancel, &answer, err);
    if (code == BELAY_OK && !json_is_true(json_object_get(answer, "is_free"))) {
        code = remote_say_not_belay((struct remote *)base, err);
    }
    json_decref(answer);
    return code;
}

/* ---- lists ---- */

static void list_path(struct buf *path, const struct belay_query *query, const char *cursor, size_t page)
{
    buf_addf(path, "/v1/locks?limit=%zu", page);
    uri_add_parameter(path, "prefix", query->prefix);
    uri_add_parameter(path, "status",
                      query->all                           ? "all"
                      : query->status != BELAY_STATUS_NONE ? belay_status_name(query->status)
                                                           : NULL);
    uri_add_parameter(path, "stale", query->stale_only ? "true" : NULL);
    uri_add_parameter(path, "cursor", cursor);
}

/* A list has only the first waiters, and their number: add empty ones, so that n_waiters is right. */
static bool count_waiters(struct belay_info *info, json_int_t n)
{
    struct belay_waiter *all;

    if (n <= (json_int_t)info->n_waiters || n > BELAY_QUEUE_MAX) {
        return true;
    }
    all = realloc(info->waiters, (size_t)n * sizeof *all);
    if (all == NULL) {
        return false;
    }
    info->waiters = all;
    memset(all + info->n_waiters, 0, ((size_t)n - info->n_waiters) * sizeof *all);
    for (; info->n_waiters < (size_t)n; info->n_waiters++) {
        struct belay_waiter *waiter = &info->waiters[info->n_waiters];

        waiter->key = strdup(info->key);
        waiter->locked_by = strdup("");
        waiter->locked_by_name = strdup("");
        if (waiter->key == NULL || waiter->locked_by == NULL || waiter->locked_by_name == NULL) {
            info->n_waiters++; /* so that it is freed with the others */
            return false;
        }
    }
    return true;
}

/*
 * Call `fn` with each lock of a page. *out_go_on: `fn` wants more. A page without the list, or with an entry that is no
 * lock, is an error: a lock that is missing would look like a free one.
 */
static enum belay_code hand_on_locks(const struct remote *remote, const json_t *page, belay_info_fn fn,
                                     void *context, size_t *n, bool *out_go_on, struct belay_error *err)
{
    const json_t *locks = json_object_get(page, "locks");
    const json_t *waiting = json_object_get(page, "waiting");

    if (!json_is_array(locks)) {
        return remote_say_not_belay(remote, err);
    }
    *out_go_on = true;
    for (size_t i = 0; *out_go_on && i < json_array_size(locks); i++) {
        struct belay_info *info = json_read_lock(json_array_get(locks, i));

        if (info == NULL) {
            return remote_say_not_belay(remote, err);
        }
        if (!count_waiters(info, json_integer_value(json_object_get(waiting, info->key)))) {
            belay_info_free(info);
            return error_no_memory(err);
        }
        *out_go_on = fn(context, info);
        belay_info_free(info);
        (*n)++;
    }
    return BELAY_OK;
}

enum belay_code remote_list(struct backend *base, const struct belay_query *query, belay_info_fn fn,
                            void *context, bool *out_more, struct belay_error *err)
{
    struct remote *remote = (struct remote *)base;
    const char *cursor = query->cursor;
    json_t *answer = NULL;
    size_t n = 0;
    bool go_on = true;
    enum belay_code code = BELAY_OK;

    while (go_on) {
        struct buf path = BUF_INIT(REMOTE_URL_MAX);
        size_t left = query->limit == 0 ? PAGE_MAX : query->limit - n;
        json_t *page = NULL;

        list_path(&path, query, cursor, left < PAGE_MAX ? left : PAGE_MAX);
        code = remote_send_get(remote, &path, NULL, &page, err);
        json_decref(answer); /* not earlier: the cursor is a part of it */
        answer = page;
        if (code == BELAY_OK) {
            code = hand_on_locks(remote, page, fn, context, &n, &go_on, err);
        }
        if (code != BELAY_OK) {
            break;
        }
        cursor = json_string_value(json_object_get(page, "next_cursor"));
        go_on = go_on && cursor != NULL && (query->limit == 0 || n < query->limit);
    }
    if (code == BELAY_OK && out_more != NULL) {
        *out_more = query->limit != 0 && n >= query->limit && cursor != NULL;
    }
    json_decref(answer);
    return code;
}

enum belay_code remote_events(struct backend *base, const struct belay_events_query *query, belay_event_fn fn,
                              void *context, struct belay_error *err)
{
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    json_t *answer = NULL;
    const json_t *events;
    bool go_on = true;
    uint64_t id;
    enum belay_code code;

    if (query->key == NULL) {
        return error_set(err, BELAY_NOT_FOUND,
                         "a server tells the events of one lock, or those to come: use belay_history() or "
                         "belay_watch()");
    }
    remote_add_path(&path, query->key, "/history");
    buf_addf(&path, "?limit=%zu",
             query->last == 0 || query->last > HISTORY_MAX ? (size_t)HISTORY_MAX : query->last);
    code = remote_send_get((struct remote *)base, &path, query->key, &answer, err);
    events = json_object_get(answer, "events");
    if (code == BELAY_OK && !json_is_array(events)) {
        code = remote_say_not_belay((struct remote *)base, err);
    }
    for (size_t i = 0; code == BELAY_OK && go_on && i < json_array_size(events); i++) {
        if (!json_read_event(json_array_get(events, i), fn, context, &go_on, &id)) {
            code = remote_say_not_belay((struct remote *)base, err);
        }
    }
    json_decref(answer);
    return code;
}

enum belay_code remote_stats(struct backend *base, const struct belay_stats_query *query,
                             struct belay_stats **out_stats, struct belay_error *err)
{
    struct remote *remote = (struct remote *)base;
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    char since[CLOCK_TEXT_SIZE];
    struct belay_stats *stats = NULL;
    json_t *answer = NULL;
    enum belay_code code;

    buf_addf(&path, "/v1/stats?by=%s",
             query->by == BELAY_STATS_BY_NOTHING ? "" : belay_stats_by_name(query->by));
    uri_add_parameter(&path, "key", query->key);
    uri_add_parameter(&path, "prefix", query->prefix);
    uri_add_parameter(&path, "since",
                      query->since_unix_ms > 0 ? clock_format_utc(since, query->since_unix_ms, true) : NULL);
    code = remote_send_get(remote, &path, query->key, &answer, err);
    if (code == BELAY_OK) {
        stats = json_read_stats(answer);
        code = stats == NULL ? remote_say_not_belay(remote, err) : BELAY_OK;
    }
    if (code == BELAY_OK) {
        *out_stats = stats;
    }
    json_decref(answer);
    return code;
}

enum belay_code remote_past_holds(struct backend *base, const char *key, struct belay_holds *out_holds,
                                  struct belay_error *err)
{
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    json_t *answer = NULL;
    const json_t *holds;
    enum belay_code code;

    remote_add_path(&path, key, "/queue?estimate=true");
    code = remote_send_get((struct remote *)base, &path, key, &answer, err);
    holds = json_object_get(json_object_get(answer, "estimate"), "holds_ms"); /* older servers have none */
    for (size_t i = 0; code == BELAY_OK && i < json_array_size(holds) && i < BELAY_HOLDS_MAX; i++) {
        out_holds->ms[out_holds->n++] = json_integer_value(json_array_get(holds, i));
    }
    json_decref(answer);
    return code;
}

/* ---- the store and the credential ---- */

/* A member of an answer that is a string or null, which becomes "". */
static enum belay_code get_member(struct remote *remote, const char *where, const char *member,
                                  struct belay_cancel *cancel, char *out, size_t size,
                                  struct belay_error *err)
{
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    json_t *answer = NULL;
    const json_t *value;
    enum belay_code code;

    buf_adds(&path, where);
    code = remote_send_get_until(remote, &path, NULL, cancel, &answer, err);
    value = json_object_get(answer, member);
    if (code == BELAY_OK && !json_is_null(value) &&
        (!json_is_string(value) || json_string_length(value) >= size)) {
        code = remote_say_not_belay(remote, err);
    }
    if (code == BELAY_OK) {
        (void)snprintf(out, size, "%s", json_is_null(value) ? "" : json_string_value(value));
    }
    json_decref(answer);
    return code;
}

enum belay_code remote_identity(struct backend *base, char out_id[BELAY_STORE_ID_SIZE],
                                struct belay_error *err)
{
    return remote_identity_until((struct remote *)base, NULL, out_id, err);
}

enum belay_code remote_identity_until(struct remote *remote, struct belay_cancel *cancel,
                                      char out_id[BELAY_STORE_ID_SIZE], struct belay_error *err)
{
    char id[BELAY_STORE_ID_SIZE];
    enum belay_code code = get_member(remote, "/v1/store", "id", cancel, id, sizeof id, err);

    if (code == BELAY_OK && id[0] == '\0') {
        code = remote_say_not_belay(remote, err);
    }
    if (code == BELAY_OK) {
        memcpy(out_id, id, sizeof id);
    }
    return code;
}

/* The name of our token, as the server knows it. */
enum belay_code remote_credential(struct backend *base, char out_name[BELAY_OWNER_MAX + 1],
                                  struct belay_error *err)
{
    return get_member((struct remote *)base, "/v1/me", "name", NULL, out_name, BELAY_OWNER_MAX + 1, err);
}
