/* By key and lock id: what needs no struct belay_lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "client/audit_trail.h"
#include "client/client.h"
#include "client/via.h"
#include "lock/decide.h"
#include "lock/info.h"

enum { STALE_NOTED_MAX = 64, WATCH_LOOK_MS = 1000 };

/* ---- renew, release, force ---- */

static enum belay_code finish(struct belay_client *client, struct op *op, struct belay_info **out_info,
                              struct belay_error *err)
{
    enum belay_code code;
    struct belay_info *info = NULL;

    client_run(client, op, NULL);
    code = op->code;
    if (code != BELAY_OK) {
        (void)error_set(err, code, "%s", op->err.text);
        error_set_holder(err, op->err.holder);
        op->err.holder = NULL;
    } else if (out_info != NULL) {
        info = info_from_record(&op->record, op->record_now_ms);
        if (info == NULL) {
            code = error_no_memory(err);
        } else {
            *out_info = info;
        }
    }
    op_destroy(op);
    return code;
}

enum belay_code belay_renew(struct belay_client *client, const char *key, const char *lock_id, int64_t ttl_ms,
                            struct belay_info **out_info, struct belay_error *err)
{
    struct request request;
    struct op op;
    enum belay_code code = request_init_id(&request, client, key, lock_id, err);

    if (code == BELAY_OK) {
        code = request_set_ttl(&request, ttl_ms, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    op_renew(&op, &request.op, clock_boot_ms());
    code = finish(client, &op, out_info, err);
    request_release(&request);
    return code;
}

enum belay_code belay_release(struct belay_client *client, const char *key, const char *lock_id,
                              enum belay_outcome outcome, struct belay_info **out_info,
                              struct belay_error *err)
{
    struct request request;
    struct op op;
    enum belay_code code = request_init_id(&request, client, key, lock_id, err);

    if (code != BELAY_OK) {
        return code;
    }
    request.op.outcome = outcome == BELAY_OUTCOME_NONE ? BELAY_OUTCOME_COMPLETED : outcome;
    op_release(&op, &request.op, clock_boot_ms());
    code = finish(client, &op, out_info, err);
    request_release(&request);
    return code;
}

enum belay_code belay_force_release(struct belay_client *client, const char *key, const char *lock_id,
                                    const char *by, const char *reason, struct belay_info **out_info,
                                    struct belay_error *err)
{
    struct request request;
    struct op op;
    enum belay_code code = request_init_id(&request, client, key, lock_id, err);

    if (code == BELAY_OK) {
        code = request_set_reason(&request, by, reason, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    op_force(&op, &request.op, clock_boot_ms());
    code = finish(client, &op, out_info, err);
    request_release(&request);
    return code;
}

/* ---- looking ---- */

/* Count a stale lock once: who marks it first reports it (S4.7). */
static void note_stale(struct belay_client *client, const struct belay_record *record)
{
    struct belay_write write = { .key = record->key,
                                 .condition = BELAY_IF_UNCHANGED,
                                 .revision = record->revision,
                                 .set = BELAY_SET_STALE_NOTED,
                                 .values = record };
    struct belay_event event = { .level = BELAY_WARN_LEVEL,
                                 .type = "lock.stale",
                                 .key = record->key,
                                 .lock_id = record->lock_id,
                                 .token = record->token,
                                 .locked_by = record->owner,
                                 .locked_by_name = record->owner_name,
                                 .reason = "no heartbeat",
                                 .duration_ms = -1 };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .events = &event, .n_events = 1 };
    struct belay_commit result = { 0 };

    if (client_count_commit(client, client->store->ops->commit(client->store, &batch, &result, NULL)) ==
        BELAY_OK) {
        client_emit(client, &batch, &result, &(struct emit_times){ .took_ms = -1 });
    }
    belay_commit_release(&result);
}

static bool was_ever_taken(const struct belay_record *record)
{
    return record->revision != 0 && record->lock_id != NULL && record->lock_id[0] != '\0';
}

static enum belay_code say_not_found(const struct belay_record *record, struct belay_error *err)
{
    if (record->n_intents > 0) {
        return error_set(err, BELAY_NOT_FOUND, "no such lock: '%s' (but '%s' below it is held)", record->key,
                         record->intents[0].key);
    }
    return error_set(err, BELAY_NOT_FOUND, "no such lock: '%s'", record->key);
}

static enum belay_code get_here(struct belay_client *client, const char *key, struct belay_info **out_info,
                                struct belay_error *err)
{
    struct belay_record record = { 0 };
    struct belay_info *info;
    int64_t now_ms = 0;
    enum belay_code code =
        client_count_read(client, client->store->ops->get(client->store, &key, 1, &record, &now_ms, err));

    if (code != BELAY_OK) {
        return code;
    }
    if (!was_ever_taken(&record)) {
        code = say_not_found(&record, err);
        goto done;
    }
    info = info_from_record(&record, now_ms);
    if (info == NULL) {
        code = error_no_memory(err);
        goto done;
    }
    if (info->is_stale && !record.stale_noted) {
        note_stale(client, &record);
    }
    *out_info = info;

done:
    belay_record_release(&record);
    return code;
}

enum belay_code belay_get(struct belay_client *client, const char *key, struct belay_info **out_info,
                          struct belay_error *err)
{
    enum belay_code code = belay_key_check(client->config, NULL, key, err);
    struct client_remote *remote;

    if (code != BELAY_OK) {
        return code;
    }
    do {
        remote = client_via(client);
        code = remote != NULL ? remote->ops->get(remote, key, out_info, err)
                              : get_here(client, key, out_info, err);
    } while (client_moved(client, remote, &code, err));
    return code;
}

struct listing {
    const struct belay_query *query;
    belay_info_fn fn;
    void *context;
    size_t n;
    bool more;
    bool no_memory;
    struct belay_record stale[STALE_NOTED_MAX]; /* owned; to be noted when the scan is over */
    size_t n_stale;
};

static bool is_asked_for(const struct belay_query *query, const struct belay_info *info)
{
    if (query->stale_only && !info->is_stale) {
        return false;
    }
    if (query->all) {
        return true;
    }
    return query->status == BELAY_STATUS_NONE ? info->status != BELAY_STATUS_RELEASED
                                              : info->status == query->status;
}

static bool list_one(void *context, const struct belay_record *record, int64_t now_ms)
{
    struct listing *listing = context;
    struct belay_info *info;
    bool go_on = true;

    if (!was_ever_taken(record)) {
        return true;
    }
    info = info_from_record(record, now_ms);
    if (info == NULL) {
        listing->no_memory = true;
        return false;
    }
    if (info->is_stale && !record->stale_noted && listing->n_stale < STALE_NOTED_MAX &&
        belay_record_copy(record, &listing->stale[listing->n_stale])) {
        listing->n_stale++;
    }
    if (is_asked_for(listing->query, info)) {
        if (listing->query->limit != 0 && listing->n == listing->query->limit) {
            listing->more = true;
            go_on = false;
        } else {
            listing->n++;
            go_on = listing->fn(listing->context, info);
        }
    }
    belay_info_free(info);
    return go_on;
}

static enum belay_code list_here(struct belay_client *client, const struct belay_query *query,
                                 belay_info_fn fn, void *context, bool *out_more, struct belay_error *err)
{
    struct belay_scan scan = { 0 };
    struct listing *listing = calloc(1, sizeof *listing);
    enum belay_code code;

    if (listing == NULL) {
        return error_no_memory(err);
    }
    listing->query = query;
    listing->fn = fn;
    listing->context = context;
    scan.prefix = listing->query->prefix;
    scan.after = listing->query->cursor;
    scan.held_only = !listing->query->all && listing->query->status != BELAY_STATUS_RELEASED;
    code = client_count_read(client, client->store->ops->scan(client->store, &scan, list_one, listing, err));
    if (code == BELAY_OK && listing->no_memory) {
        code = error_no_memory(err);
    }
    if (code == BELAY_OK && out_more != NULL) {
        *out_more = listing->more;
    }
    for (size_t i = 0; i < listing->n_stale; i++) {
        note_stale(client, &listing->stale[i]);
        belay_record_release(&listing->stale[i]);
    }
    free(listing);
    return code;
}

/* How far a list has come, should it have to go on in another place. */
struct progress {
    belay_info_fn fn;
    void *context;
    size_t n;
    char last[BELAY_KEY_MAX + 1];
};

static bool count_one(void *context, const struct belay_info *info)
{
    struct progress *progress = context;

    progress->n++;
    (void)snprintf(progress->last, sizeof progress->last, "%s", info->key);
    return progress->fn(progress->context, info);
}

enum belay_code belay_list(struct belay_client *client, const struct belay_query *query, belay_info_fn fn,
                           void *context, bool *out_more, struct belay_error *err)
{
    static const struct belay_query everything = BELAY_QUERY_INIT;
    struct belay_query rest = query == NULL ? everything : *query;
    struct progress progress = { .fn = fn, .context = context };
    size_t limit = rest.limit;
    struct client_remote *remote;
    enum belay_code code;

    do {
        rest.cursor = progress.n > 0 ? progress.last : rest.cursor;
        rest.limit = limit == 0 ? 0 : limit - progress.n;
        remote = client_via(client);
        code = remote != NULL ? remote->ops->list(remote, &rest, count_one, &progress, out_more, err)
                              : list_here(client, &rest, count_one, &progress, out_more, err);
    } while (client_moved(client, remote, &code, err));
    return code;
}

/* ---- events ---- */

/* L9: where events are not kept they go to the configured sinks. */
static enum belay_code say_no_history(const struct belay_client *client, struct belay_error *err)
{
    const char *file = client->config == NULL ? NULL : belay_config_get(client->config, "audit.file");

    if (file != NULL) {
        return error_set(err, BELAY_NOT_FOUND,
                         "%.200s keeps no history: its events are in the audit file, %.300s, of each machine",
                         client->url, file);
    }
    return error_set(
        err, BELAY_NOT_FOUND,
        "%.200s keeps no history: to have one, set 'audit: {file: PATH}' in the configuration of "
        "everyone who uses it",
        client->url);
}

static enum belay_code query_events(struct belay_client *client, const struct belay_events_query *query,
                                    belay_event_fn fn, void *context, struct belay_error *err)
{
    const char *audit = audit_trail_path(client->config);

    if (client_via(client) != NULL) {
        return error_set(err, BELAY_NOT_FOUND,
                         "a server tells the events of one lock, or those to come: use belay_history() or "
                         "belay_watch()");
    }
    if (client->store->ops->events == NULL && query->key != NULL && audit != NULL) {
        return audit_trail_read(audit, query->key, query->last, fn, context, err);
    }
    if (client->store->ops->events == NULL) {
        return say_no_history(client, err);
    }
    return client_count_read(client, client->store->ops->events(client->store, query, fn, context, err));
}

enum belay_code belay_history(struct belay_client *client, const char *key, size_t limit, belay_event_fn fn,
                              void *context, struct belay_error *err)
{
    struct belay_events_query query = { .key = key, .last = limit };
    enum belay_code code = belay_key_check(client->config, NULL, key, err);
    struct client_remote *remote;

    if (code != BELAY_OK) {
        return code;
    }
    do {
        remote = client_via(client);
        code = remote != NULL ? remote->ops->history(remote, key, limit, fn, context, err)
                              : query_events(client, &query, fn, context, err);
    } while (client_moved(client, remote, &code, err));
    return code;
}

enum belay_code belay_note_lost(struct belay_client *client, const struct belay_event *event,
                                struct belay_error *err)
{
    struct belay_event copy = *event;
    struct request request;
    enum belay_code code = request_init_id(&request, client, event->key, event->lock_id, err);

    if (code != BELAY_OK) {
        return code;
    }
    request_release(&request); /* it was for the checks */
    copy.type = "lock.lost";
    copy.level = BELAY_WARN_LEVEL;
    copy.duration_ms = -1;
    return client_note(client, &copy, err);
}

enum belay_code belay_events(struct belay_client *client, const char *prefix, uint64_t after_id, size_t last,
                             belay_event_fn fn, void *context, struct belay_error *err)
{
    struct belay_events_query query = { .prefix = prefix, .after = after_id, .last = last };
    struct client_remote *remote;
    enum belay_code code;

    do {
        remote = client_via(client);
        code = query_events(client, &query, fn, context, err);
    } while (client_moved(client, remote, &code, err));
    return code;
}

struct watching {
    belay_event_fn fn;
    void *context;
    uint64_t after;
    bool stopped;
};

static bool watch_one(void *context, const struct belay_event *event)
{
    struct watching *watching = context;

    watching->after = event->id;
    watching->stopped = watching->fn != NULL && !watching->fn(watching->context, event);
    return !watching->stopped;
}

/* The store's events after watching->after (0: from now on), until it is elsewhere. */
static enum belay_code watch_here(struct belay_client *client, const char *prefix, struct watching *watching,
                                  struct belay_cancel *cancel, struct belay_error *err)
{
    struct belay_store *store = client->store;
    struct belay_events_query query = { .last = 1 };
    belay_event_fn fn = watching->fn;
    enum belay_code code = BELAY_OK;

    if (watching->after == 0) {
        watching->fn = NULL;
        code = query_events(client, &query, watch_one, watching, err); /* where we are now */
        watching->fn = fn;
    }
    query.last = 0;
    query.prefix = prefix;
    while (code == BELAY_OK && !watching->stopped && !belay_cancel_requested(cancel)) {
        uint32_t heard = store->ops->listen == NULL ? 0 : store->ops->listen(store, NULL);

        query.after = watching->after;
        code = query_events(client, &query, watch_one, watching, err);
        if (code != BELAY_OK || watching->stopped) {
            break;
        }
        if (store->ops->wait != NULL) {
            store->ops->wait(store, NULL, heard, WATCH_LOOK_MS, cancel);
        } else {
            client_sleep(WATCH_LOOK_MS, cancel);
        }
    }
    return code;
}

enum belay_code belay_watch(struct belay_client *client, const char *prefix, uint64_t after_id,
                            belay_event_fn fn, void *context, struct belay_cancel *cancel,
                            struct belay_error *err)
{
    struct watching watching = { .fn = fn, .context = context, .after = after_id };
    struct client_remote *remote;
    enum belay_code code;

    do {
        remote = client_via(client);
        code = remote != NULL
                   ? remote->ops->watch(remote, prefix, watching.after, watch_one, &watching, cancel, err)
                   : watch_here(client, prefix, &watching, cancel, err);
    } while (client_moved(client, remote, &code, err) && !watching.stopped);
    return code;
}

/* ---- waiting without taking ---- */

struct free_wait {
    struct belay_client *client;
    const struct belay_lock_options *options;
    struct request request;
    const char *keys[OP_KEYS_MAX]; /* borrowed from `request` */
    size_t n_keys;
    struct looker looker;
    int64_t began_ms;
    char told[BELAY_ID_MAX + 1];
};

/* How long to sleep without being woken: as seldom as the store wants, and not all at the same time. */
static int64_t look_span_ms(struct belay_client *client)
{
    int64_t poll_ms = client->store->ops->terms(client->store).poll_ms;
    uint64_t chance = atomic_fetch_add(&client->seed, 0x9e3779b97f4a7c15U) >> 33;

    if (client->remote != NULL || client->store->ops->wait != NULL || poll_ms <= 0) {
        return WATCH_LOOK_MS;
    }
    return poll_ms - (int64_t)(chance % (uint64_t)(poll_ms / 4 + 1));
}

/* on_waiting hears who is in the way if that is news. */
static void tell_in_the_way(struct free_wait *wait, const struct belay_info *info)
{
    struct belay_waiting waiting = { .holder = info, .attempt = 1 };
    const char *id = info == NULL || info->lock_id == NULL ? "?" : info->lock_id;

    if (wait->options->on_waiting != NULL && info != NULL && strcmp(wait->told, id) != 0) {
        waiting.waited_ms = clock_boot_ms() - wait->began_ms;
        waiting.retry_ms = look_span_ms(wait->client);
        wait->options->on_waiting(wait->options->context, &waiting);
        memcpy(wait->told, id, strnlen(id, BELAY_ID_MAX) + 1);
    }
}

static enum belay_code say_in_the_way(struct free_wait *wait, const struct belay_record *record,
                                      int64_t now_ms, struct belay_error *err)
{
    struct belay_info *info = info_from_record(record, now_ms);

    if (info == NULL) {
        return error_no_memory(err);
    }
    tell_in_the_way(wait, info);
    return info_say_held(err, BELAY_HELD, wait->request.op.key, info);
}

static enum belay_code ask_if_free(struct free_wait *wait, struct client_remote *remote,
                                   struct belay_error *err)
{
    struct belay_error unheard = BELAY_ERROR_INIT; /* for a caller that wants no text */
    enum belay_code code;

    err = err == NULL ? &unheard : err;
    code = remote->ops->look_free(remote, wait->request.op.key, err);
    if (code == BELAY_HELD) {
        tell_in_the_way(wait, err->holder);
    }
    belay_error_release(&unheard);
    return code;
}

/* BELAY_OK: it is free. BELAY_HELD: *out_wait_ms is how long it makes sense to sleep. */
static enum belay_code look_if_free(struct free_wait *wait, int64_t *out_wait_ms, struct belay_error *err)
{
    struct belay_store *store = wait->client->store;
    struct belay_record named = { 0 };
    struct decision decision;
    struct look seen;
    enum belay_code code;

    lookout_look(&wait->client->lookout, store, &wait->looker, wait->keys, wait->n_keys, &seen);
    code = seen.code;
    if (code != BELAY_OK) {
        (void)error_set(err, code, "%s", seen.err.text);
        look_release(&seen);
        return code;
    }
    decision = decide(&wait->request.op, seen.records, seen.store_now_ms);
    if (decision.verdict == VERDICT_BLOCKED) {
        const struct belay_record *holder = &seen.records[decision.blocker];
        int64_t now_ms = seen.store_now_ms;

        if (decision.below_key != NULL &&
            store->ops->get(store, &decision.below_key, 1, &named, &now_ms, NULL) == BELAY_OK) {
            holder = &named;
        }
        *out_wait_ms = decision.may_try_ms - seen.store_now_ms - (clock_boot_ms() - seen.seen_ms);
        code = say_in_the_way(wait, holder, now_ms, err);
    }
    belay_record_release(&named);
    look_release(&seen);
    return code;
}

enum belay_code belay_wait_free(struct belay_client *client, const char *key,
                                const struct belay_lock_options *options, struct belay_error *err)
{
    struct free_wait wait = { .client = client, .options = options, .began_ms = clock_boot_ms() };
    struct belay_store *store = client->store;
    struct client_remote *remote;
    enum belay_code code = request_init(&wait.request, client, key, "-", err);

    if (code != BELAY_OK) {
        return code;
    }
    wait.keys[wait.n_keys++] = wait.request.op.key;
    for (size_t i = 0; i < wait.request.op.n_ancestors; i++) {
        wait.keys[wait.n_keys++] = wait.request.op.ancestors[i];
    }
    for (;;) {
        uint32_t heard = store->ops->listen == NULL ? 0 : store->ops->listen(store, NULL);
        int64_t left_ms =
            options->wait_ms < 0 ? INT64_MAX : wait.began_ms + options->wait_ms - clock_boot_ms();
        int64_t span_ms = look_span_ms(client);
        int64_t sleep_ms = span_ms;

        remote = client_via(client);
        code = remote != NULL ? ask_if_free(&wait, remote, err) : look_if_free(&wait, &sleep_ms, err);
        if (client_moved(client, remote, &code, err)) {
            continue;
        }
        if (code != BELAY_HELD || left_ms <= 0) {
            break;
        }
        if (belay_cancel_requested(options->cancel)) {
            code = error_set(err, BELAY_CANCELLED, "cancelled while waiting for lock '%s'", key);
            break;
        }
        sleep_ms = sleep_ms < 1 ? 1 : sleep_ms > span_ms ? span_ms : sleep_ms;
        sleep_ms = sleep_ms < left_ms ? sleep_ms : left_ms;
        if (store->ops->wait != NULL) {
            store->ops->wait(store, NULL, heard, sleep_ms, options->cancel);
        } else {
            lookout_enter(&client->lookout, &wait.looker, wait.keys, wait.n_keys, clock_boot_ms() + sleep_ms);
            client_sleep(sleep_ms, options->cancel);
            lookout_leave(&client->lookout, &wait.looker);
        }
    }
    look_release(&wait.looker.news);
    request_release(&wait.request);
    return code;
}
