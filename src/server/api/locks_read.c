/* Reads: one lock, lists, history, the queue. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "server/core/routes.h"
#include "server/core/server.h"
#include "json/json_write.h"

enum {
    LIST_DEFAULT = 100,
    LIST_MAX = 1000,
    HISTORY_DEFAULT = 100,
    HISTORY_MAX = 10000,
    ANSWER_MAX =
        8 << 20, /* about how many bytes of metadata and holders one reply has; a lock may have 256 KiB */
    HOLDER_SIZE = 500, /* of one holder, about, without its metadata */
    TURNS_MAX = 1000   /* estimates in one reply */
};

/* A parameter that is absent is false. */
static enum belay_code read_flag(const char *query, const char *name, bool *out, struct belay_error *err)
{
    char text[16];
    enum http_found found = http_query_get(query, name, text, sizeof text);
    bool is_true = found == HTTP_FOUND && strcmp(text, "true") == 0;

    if (found != HTTP_ABSENT && !is_true && (found != HTTP_FOUND || strcmp(text, "false") != 0)) {
        return error_set(err, BELAY_INVALID, "%s must be true or false", name);
    }
    *out = is_true;
    return BELAY_OK;
}

static void ask_get(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;

    if (belay_get(x->server->client, x->key, &info, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else {
        reply(x, 200, lock_for(x, info));
    }
    belay_info_free(info);
    belay_error_release(&err);
}

/* ---- the queue ---- */

/* The lock beside its whole queue, which it need not repeat. */
static json_t *lock_without_queue(const struct exchange *x, const struct belay_info *info)
{
    struct belay_info shown = *info;

    shown.has_queue = false;
    return lock_for(x, &shown);
}

static json_t *turn(int64_t ms)
{
    return ms < 0 ? json_null() : json_integer((json_int_t)ms);
}

/* From how long the lock was held before. null: not asked for, or there is no history. */
static json_t *estimate_for(const struct exchange *x, const struct belay_info *info)
{
    struct belay_holds holds;
    int64_t turns_ms[TURNS_MAX];
    size_t n = info->n_waiters < TURNS_MAX ? info->n_waiters + 1 : TURNS_MAX;
    json_t *past;
    json_t *turns;
    bool is_wanted = false;

    if (read_flag(x->query, "estimate", &is_wanted, NULL) != BELAY_OK || !is_wanted ||
        belay_past_holds(x->server->client, info->key, &holds, NULL) != BELAY_OK) {
        return json_null();
    }
    belay_estimate_turns(&holds, info, clock_unix_ms(), turns_ms, n);
    past = json_array();
    turns = json_array();
    for (size_t i = 0; i < holds.n; i++) {
        (void)json_array_append_new(past, json_integer((json_int_t)holds.ms[i]));
    }
    for (size_t i = 0; i < n; i++) {
        (void)json_array_append_new(turns, turn(turns_ms[i]));
    }
    return json_pack("{s:o, s:o, s:b}", "holds_ms", past, "turns_ms", turns, "is_overdue",
                     turns_ms[0] == BELAY_TURN_OVERDUE ? 1 : 0);
}

/*
 * A key that was never held has no lock, but a key above or below may block it. Its waiters are in its own queue, or
 * in that of the key above that blocks it. False: nothing does.
 */
static bool reply_blocked(struct exchange *x, const struct belay_info *own)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT; /* wait_ms 0: only check */
    struct belay_error err = BELAY_ERROR_INIT;
    bool is_blocked =
        belay_wait_until_free(x->server->client, x->key, &options, &err) == BELAY_HELD && err.holder != NULL;

    if (is_blocked) {
        reply(x, 200,
              json_pack("{s:o, s:o, s:o, s:n}", "key", wire_text(x->key), "lock",
                        lock_without_queue(x, err.holder), "waiting",
                        own == NULL ? waiting_for(x, err.holder, x->key) : waiting_for(x, own, NULL),
                        "estimate"));
    }
    belay_error_release(&err);
    return is_blocked;
}

static void ask_queue(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;
    enum belay_code code = belay_get(x->server->client, x->key, &info, &err);

    if (code == BELAY_OK) {
        reply(x, 200,
              json_pack("{s:o, s:o, s:o, s:o}", "key", wire_text(info->key), "lock",
                        lock_without_queue(x, info), "waiting", waiting_for(x, info, NULL), "estimate",
                        estimate_for(x, info)));
    } else if (code != BELAY_NOT_FOUND || !reply_blocked(x, err.holder)) {
        reply_error(x, &err);
    }
    belay_info_free(info);
    belay_error_release(&err);
}

/* ---- whether it is free ---- */

static enum belay_code read_mode(const char *query, struct belay_lock_options *options,
                                 struct belay_error *err)
{
    int64_t slots = 0;
    enum belay_code code = read_flag(query, "shared", &options->shared, err);

    if (code == BELAY_OK) {
        code = query_number(query, "slots", 1, BELAY_HOLDERS_MAX, &slots, err);
    }
    options->slots = (int)slots;
    return code;
}

static void ask_free(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT; /* wait_ms 0: only check */

    if (read_mode(x->query, &options, &err) != BELAY_OK ||
        belay_wait_until_free(x->server->client, x->key, &options, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else {
        reply(x, 200, json_pack("{s:o, s:b}", "key", wire_text(x->key), "is_free", 1));
    }
    belay_error_release(&err);
}

/* ---- parameters ---- */

static enum belay_code read_status_filter(const struct exchange *x, struct belay_query *query,
                                          struct belay_error *err)
{
    char text[16];
    enum http_found found = http_query_get(x->query, "status", text, sizeof text);

    if (found == HTTP_ABSENT || (found == HTTP_FOUND && *text == '\0')) {
        return BELAY_OK;
    }
    if (found == HTTP_FOUND && strcmp(text, "all") == 0) {
        query->all = true;
        return BELAY_OK;
    }
    for (int status = BELAY_STATUS_ACTIVE; found == HTTP_FOUND && status <= BELAY_STATUS_RELEASED; status++) {
        if (strcmp(text, belay_status_name((enum belay_status)status)) == 0) {
            query->status = (enum belay_status)status;
            return BELAY_OK;
        }
    }
    return error_set(err, BELAY_INVALID, "status must be active, expired, released or all");
}

static enum belay_code read_stale(const struct exchange *x, struct belay_query *query,
                                  struct belay_error *err)
{
    char text[8];
    enum http_found found = http_query_get(x->query, "stale", text, sizeof text);

    if (found == HTTP_ABSENT) {
        return BELAY_OK;
    }
    query->stale_only = found == HTTP_FOUND && (strcmp(text, "true") == 0 || strcmp(text, "1") == 0);
    if (query->stale_only ||
        (found == HTTP_FOUND && (strcmp(text, "false") == 0 || strcmp(text, "0") == 0 || *text == '\0'))) {
        return BELAY_OK;
    }
    return error_set(err, BELAY_INVALID, "stale must be true or false");
}

/* ---- lists ---- */

struct list_reply {
    const struct exchange *x;
    json_t *items;
    json_t *waiting; /* the number of waiters by key, without zeros */
    bool failed;
    size_t bytes;
    bool is_full;                 /* by ANSWER_MAX or `limit` */
    size_t limit;                 /* 0: the library counts */
    char last[BELAY_KEY_MAX + 1]; /* the cursor: only ever a key that the client may see */
};

/* Without holders and metadata a lock is small, and the limit on their number suffices. */
static size_t lock_size(const struct belay_info *info)
{
    size_t size = meta_size(info->metadata, info->n_metadata);

    for (size_t i = 0; i < info->n_holders; i++) {
        size += HOLDER_SIZE + meta_size(info->holders[i].metadata, info->holders[i].n_metadata);
    }
    return size;
}

static bool fits_reply(struct list_reply *listing, size_t size)
{
    listing->bytes += size;
    listing->is_full = listing->bytes > ANSWER_MAX;
    return !listing->is_full;
}

static bool add_listed_lock(void *context, const struct belay_info *info)
{
    struct list_reply *listing = context;

    if (!exchange_may_see(listing->x, info->key)) {
        return !atomic_load(&listing->x->read.is_unwanted); /* there may be many before the next */
    }
    if (listing->limit > 0 && json_array_size(listing->items) == listing->limit) {
        listing->is_full = true;
        return false;
    }
    if (!fits_reply(listing, lock_size(info)) && json_array_size(listing->items) > 0) {
        return false; /* it begins the next page */
    }
    listing->failed = json_array_append_new(listing->items, lock_for(listing->x, info)) != 0;
    if (info->n_waiters > 0) {
        (void)json_object_set_new(listing->waiting, info->key, json_integer((json_int_t)info->n_waiters));
    }
    (void)strncpy(listing->last, info->key, BELAY_KEY_MAX);
    return !listing->failed;
}

/*
 * For a token with `keys` the limit counts only what it may see, so this file counts. A single pattern narrows the
 * range of keys to its prefix, which is written to `space`.
 */
static void limit_to_keys(struct list_reply *listing, struct belay_query *query,
                          char space[BELAY_KEY_MAX + 1])
{
    const struct token *token = listing->x->token;
    size_t n;

    if (token == NULL || token->n_keys == 0) {
        return;
    }
    listing->limit = query->limit;
    query->limit = 0;
    n = strcspn(token->keys[0], "*");
    if (token->n_keys == 1 && n > 0 && n <= BELAY_KEY_MAX &&
        (query->prefix == NULL || (strlen(query->prefix) <= n &&
                                   strncmp(token->keys[0], query->prefix, strlen(query->prefix)) == 0))) {
        memcpy(space, token->keys[0], n);
        space[n] = '\0';
        query->prefix = space;
    }
}

static void ask_list(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_query query = BELAY_QUERY_INIT;
    struct list_reply listing = { .x = x };
    char prefix[BELAY_KEY_MAX + 1];
    char narrow[BELAY_KEY_MAX + 1];
    char cursor[BELAY_KEY_MAX + 1];
    int64_t limit = LIST_DEFAULT;
    bool more = false;

    if (query_number(x->query, "limit", 1, LIST_MAX, &limit, &err) != BELAY_OK ||
        query_key(x->query, "prefix", prefix, &query.prefix, &err) != BELAY_OK ||
        query_key(x->query, "cursor", cursor, &query.cursor, &err) != BELAY_OK ||
        read_status_filter(x, &query, &err) != BELAY_OK || read_stale(x, &query, &err) != BELAY_OK) {
        reply_error(x, &err);
        belay_error_release(&err);
        return;
    }
    query.limit = (size_t)limit;
    limit_to_keys(&listing, &query, narrow);
    listing.items = json_array();
    listing.waiting = json_object();
    if (belay_list(x->server->client, &query, add_listed_lock, &listing, &more, &err) != BELAY_OK) {
        json_decref(listing.items);
        json_decref(listing.waiting);
        reply_error(x, &err);
    } else {
        reply(x, 200,
              json_pack("{s:o, s:o, s:o}", "locks", listing.items, "waiting", listing.waiting, "next_cursor",
                        more || listing.is_full ? wire_text(listing.last) : json_null()));
    }
    belay_error_release(&err);
}

static bool add_event(void *context, const struct belay_event *event)
{
    struct list_reply *listing = context;

    if (!fits_reply(listing, meta_size(event->metadata, event->n_metadata))) {
        return false;
    }
    listing->failed = json_array_append_new(listing->items, event_for(listing->x, event)) != 0;
    return !listing->failed;
}

static void ask_history(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct list_reply listing = { .x = x };
    int64_t limit = HISTORY_DEFAULT;

    if (query_number(x->query, "limit", 1, HISTORY_MAX, &limit, &err) != BELAY_OK) {
        reply_error(x, &err);
        belay_error_release(&err);
        return;
    }
    listing.items = json_array();
    if (belay_history(x->server->client, x->key, (size_t)limit, add_event, &listing, &err) != BELAY_OK) {
        json_decref(listing.items);
        reply_error(x, &err);
    } else if (listing.is_full) {
        json_decref(listing.items);
        reply_problem(x, 400, "invalid", "the last %d events are over %d MiB; ask for fewer with limit",
                      (int)limit, ANSWER_MAX >> 20);
    } else {
        reply(x, 200, json_pack("{s:o}", "events", listing.items));
    }
    belay_error_release(&err);
}

/* ---- the handlers ---- */

void handle_get(struct exchange *x)
{
    if (exchange_may_touch(x, x->key)) {
        exchange_read(x, WORK_READ, ask_get, NULL);
    }
}

void handle_queue(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    bool has_estimate = false;

    if (!exchange_may_touch(x, x->key)) {
        return; /* answered */
    }
    if (read_flag(x->query, "estimate", &has_estimate, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else {
        /* An estimate reads the history, too. */
        exchange_read(x, has_estimate ? WORK_SCAN : WORK_READ, ask_queue, NULL);
    }
    belay_error_release(&err);
}

void handle_free(struct exchange *x)
{
    if (exchange_may_touch(x, x->key)) {
        exchange_read(x, WORK_READ, ask_free, NULL);
    }
}

void handle_list(struct exchange *x)
{
    exchange_read(x, WORK_SCAN, ask_list, NULL);
}

void handle_history(struct exchange *x)
{
    if (exchange_may_touch(x, x->key)) {
        exchange_read(x, WORK_SCAN, ask_history, NULL);
    }
}
