/* The client's own store as a backend; local_run.c runs the operations. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fnv.h"
#include "client/audit_trail.h"
#include "client/client.h"
#include "client/report.h"
#include "lock/decide.h"
#include "lock/info.h"
#include "stats/estimate.h"

enum { STALE_NOTED_MAX = 64, WATCH_POLL_MS = 1000, HOLDS_EVENTS = 1000 };

/* ---- stale locks ---- */

/* Commit a batch outside of any operation, and report its events. */
static enum belay_code commit_outside(struct belay_client *client, const struct belay_batch *batch,
                                      struct belay_error *err)
{
    struct belay_commit result = { 0 };
    enum belay_code code = client_count(client, true, store_commit(client->store, batch, &result, err));

    if (code == BELAY_OK) {
        report_commit(client->on_event, client->context, batch, &result, -1, 0);
    }
    belay_commit_release(&result);
    return code;
}

/* The grant that is stale: that of an exclusive holder, or of one of several. */
static struct belay_holder grant_at(const struct belay_record *record, size_t i)
{
    assert(i < record->n_holders || (i == 0 && record->n_holders == 0));
    if (record->n_holders > 0) {
        return record->holders[i];
    }
    return (struct belay_holder){ .lock_id = record->lock_id,
                                  .owner = record->owner,
                                  .owner_name = record->owner_name,
                                  .token = record->token,
                                  .last_heartbeat_ms = record->last_heartbeat_ms };
}

/* The first stale grant of a lock that was not reported yet. False: there is none. */
static bool find_stale(const struct belay_record *record, const struct belay_info *info, size_t *out_i)
{
    if (record->n_holders == 0) {
        *out_i = 0;
        return info->is_stale && !record->stale_reported;
    }
    for (size_t i = 0; i < record->n_holders && i < info->n_holders; i++) {
        if (info->holders[i].is_stale && !record->holders[i].stale_reported) {
            *out_i = i;
            return true;
        }
    }
    return false;
}

/* Of a lock, its holder and its last heartbeat. */
static uint64_t stale_mark(const char *key, const struct belay_holder *grant)
{
    return fnv_text(fnv_text(FNV_INIT ^ (uint64_t)grant->last_heartbeat_ms, key), grant->lock_id);
}

static bool was_told(struct belay_client *client, uint64_t mark)
{
    bool found = false;

    (void)pthread_mutex_lock(&client->mutex);
    for (size_t i = 0; i < CLIENT_STALE_MAX && i < client->n_stale_told; i++) {
        found = found || client->stale_told[i] == mark;
    }
    (void)pthread_mutex_unlock(&client->mutex);
    return found;
}

static void remember_told(struct belay_client *client, uint64_t mark)
{
    (void)pthread_mutex_lock(&client->mutex);
    client->stale_told[client->n_stale_told++ % CLIENT_STALE_MAX] = mark;
    (void)pthread_mutex_unlock(&client->mutex);
}

/*
 * Report a stale lock once: the client that marks it first does (S4.7). Other programs'
 * layouts have no place for the mark; there each process reports it once. Of several
 * stale holders, one at each read.
 */
static void note_stale(struct belay_client *client, const struct belay_record *record, size_t i)
{
    struct belay_holder grant = grant_at(record, i);
    struct belay_write write = { .key = record->key,
                                 .condition = BELAY_IF_UNCHANGED,
                                 .revision = record->revision,
                                 .lock_id = grant.lock_id,
                                 .co_holder = record->mode != BELAY_EXCLUSIVE,
                                 .set = BELAY_SET_STALE_REPORTED,
                                 .values = record };
    struct belay_event event = { .level = BELAY_LEVEL_WARNING,
                                 .type = "lock.stale",
                                 .key = record->key,
                                 .lock_id = grant.lock_id,
                                 .token = grant.token,
                                 .locked_by = grant.owner,
                                 .locked_by_name = grant.owner_name,
                                 .reason = "no heartbeat",
                                 .duration_ms = -1 };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .events = &event, .n_events = 1 };
    uint64_t mark = stale_mark(record->key, &grant);

    if (!was_told(client, mark) && commit_outside(client, &batch, NULL) == BELAY_OK) {
        remember_told(client, mark);
    }
}

static bool was_ever_taken(const struct belay_record *record)
{
    return record->revision != 0 && record->lock_id != NULL && record->lock_id[0] != '\0';
}

/* There is no lock, but there may be waiters: of a key that others block. */
static enum belay_code say_not_found(const struct belay_record *record, int64_t now_ms,
                                     struct belay_error *err)
{
    if (record->n_intents > 0) {
        (void)error_set(err, BELAY_NOT_FOUND, "no such lock: '%s' (but '%s' below it is held)", record->key,
                        record->intents[0].key);
    } else {
        (void)error_set(err, BELAY_NOT_FOUND, "no such lock: '%s'", record->key);
    }
    if (record->n_tickets > 0) {
        error_set_holder(err, info_from_record(record, now_ms, true));
    }
    return BELAY_NOT_FOUND;
}

static enum belay_code local_get(struct backend *backend, const char *key, struct belay_info **out_info,
                                 struct belay_error *err)
{
    struct belay_client *client = local_client(backend);
    struct belay_record record = { 0 };
    struct belay_info *info;
    int64_t now_ms = 0;
    size_t stale;
    enum belay_code code =
        client_count(client, false, store_get(client->store, &key, 1, &record, &now_ms, err));

    if (code != BELAY_OK) {
        return code;
    }
    if (!was_ever_taken(&record)) {
        code = say_not_found(&record, now_ms, err);
        goto done;
    }
    info = info_from_record(&record, now_ms, true);
    if (info == NULL) {
        code = error_no_memory(err);
        goto done;
    }
    if (find_stale(&record, info, &stale)) {
        note_stale(client, &record, stale);
    }
    *out_info = info;

done:
    belay_record_release(&record);
    return code;
}

struct lock_listing {
    const struct belay_query *query;
    belay_info_fn fn;
    void *context;
    size_t n;
    bool more;
    bool no_memory;
    struct belay_record stale[STALE_NOTED_MAX]; /* owned; to be noted when the scan is over */
    size_t stale_at[STALE_NOTED_MAX];           /* which of the holders */
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

static bool list_record(void *context, const struct belay_record *record, int64_t now_ms)
{
    struct lock_listing *listing = context;
    struct belay_info *info;
    bool go_on = true;

    if (!was_ever_taken(record)) {
        return true;
    }
    info = info_from_record(record, now_ms, true);
    if (info == NULL) {
        listing->no_memory = true;
        return false;
    }
    if (listing->n_stale < STALE_NOTED_MAX &&
        find_stale(record, info, &listing->stale_at[listing->n_stale]) &&
        belay_record_copy(record, &listing->stale[listing->n_stale])) {
        listing->n_stale++;
    }
    if (is_asked_for(listing->query, info)) {
        assert(listing->query->limit == 0 || listing->n <= listing->query->limit);
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

static enum belay_code local_list(struct backend *backend, const struct belay_query *query, belay_info_fn fn,
                                  void *context, bool *out_more, struct belay_error *err)
{
    struct belay_client *client = local_client(backend);
    struct belay_scan scan = { 0 };
    struct lock_listing *listing = calloc(1, sizeof *listing);
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
    code = client_count(client, false, store_scan(client->store, &scan, list_record, listing, err));
    if (code == BELAY_OK && listing->no_memory) {
        code = error_no_memory(err);
    }
    if (code == BELAY_OK && out_more != NULL) {
        *out_more = listing->more;
    }
    for (size_t i = 0; i < listing->n_stale; i++) {
        note_stale(client, &listing->stale[i], listing->stale_at[i]);
        belay_record_release(&listing->stale[i]);
    }
    free(listing);
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

static enum belay_code local_events(struct backend *backend, const struct belay_events_query *query,
                                    belay_event_fn fn, void *context, struct belay_error *err)
{
    struct belay_client *client = local_client(backend);
    const char *audit = audit_trail_path(client->config);

    if (client->store->ops->events == NULL && query->key != NULL && audit != NULL) {
        return audit_trail_read(audit, query->key, query->last, fn, context, err);
    }
    if (client->store->ops->events == NULL) {
        return say_no_history(client, err);
    }
    return client_count(client, false, store_events(client->store, query, fn, context, err));
}

static bool add_hold(void *context, const struct belay_event *event)
{
    holds_add(context, event);
    return true;
}

static enum belay_code local_past_holds(struct backend *backend, const char *key,
                                        struct belay_holds *out_holds, struct belay_error *err)
{
    const struct belay_events_query query = { .key = key, .last = HOLDS_EVENTS };

    return local_events(backend, &query, add_hold, out_holds, err);
}

struct local_watching {
    belay_event_fn fn; /* NULL: only `after` is wanted */
    void *context;
    uint64_t *after;
    bool stopped;
};

static bool pass_new_event(void *context, const struct belay_event *event)
{
    struct local_watching *watching = context;

    assert(!watching->stopped);
    if (event->id <= *watching->after) {
        return true; /* the answer of a database out of order: each event once */
    }
    *watching->after = event->id;
    watching->stopped = watching->fn != NULL && !watching->fn(watching->context, event);
    return !watching->stopped;
}

static enum belay_code local_watch(struct backend *backend, const char *prefix, uint64_t *after,
                                   belay_event_fn fn, void *context, struct belay_cancel *cancel,
                                   struct belay_error *err)
{
    struct belay_client *client = local_client(backend);
    struct belay_store *store = client->store;
    struct local_watching watching = { .context = context, .after = after };
    struct belay_events_query query = { .last = 1 };
    struct belay_error failure = BELAY_ERROR_INIT;
    struct outage outage = { 0 };
    bool may_retry = false;
    enum belay_code code = BELAY_OK;

    if (*after == 0) {
        code = local_events(backend, &query, pass_new_event, &watching, err); /* the newest event so far */
    }
    watching.fn = fn;
    query = (struct belay_events_query){ .prefix = prefix };
    while (code == BELAY_OK && !watching.stopped && !belay_cancel_requested(cancel)) {
        uint32_t heard = store->ops->listen == NULL ? 0 : store->ops->listen(store, NULL);

        query.after = *after;
        code = local_events(backend, &query, pass_new_event, &watching, &failure);
        if (code == BELAY_UNREACHABLE && may_retry) {
            client_warn_outage(client, &outage, code, failure.text);
            client_sleep(WATCH_POLL_MS, cancel);
            code = BELAY_OK;
            continue;
        }
        if (code != BELAY_OK || watching.stopped) {
            break;
        }
        client_warn_answers(client, &outage);
        may_retry = !client_capabilities(client).is_local; /* a database restarts, and a file does not */
        if (store->ops->wait != NULL) {
            store->ops->wait(store, NULL, heard, WATCH_POLL_MS, cancel);
        } else {
            client_sleep(WATCH_POLL_MS, cancel);
        }
    }
    if (code != BELAY_OK && failure.code == code) {
        return error_move(err, code, &failure);
    }
    belay_error_release(&failure);
    return code;
}

/* ---- is it free? ---- */

static enum belay_code local_check_free(struct backend *backend, const struct op_request *request,
                                        struct poller *poller, int64_t *retry_ms, struct belay_cancel *cancel,
                                        struct belay_error *err)
{
    struct belay_client *client = local_client(backend);
    struct belay_store *store = client->store;
    const char *keys[OP_KEYS_MAX];
    struct belay_record below = { 0 };
    struct belay_info *info = NULL;
    struct decision decision;
    struct poll_result seen;
    enum belay_code code;

    (void)cancel; /* the store's own timeouts end a read */
    shared_poll_read(&client->shared_poll, store, poller, keys, op_request_keys(request, keys), &seen);
    code = seen.code;
    if (code != BELAY_OK) {
        return error_move(err, code, &seen.err);
    }
    decision = decide(request, seen.records, seen.store_now_ms);
    if (decision.verdict == VERDICT_OTHER_SLOTS) {
        code = decide_say_other_slots(err, request->key, request->slots, &seen.records[decision.blocker]);
    } else if (decision.verdict == VERDICT_BLOCKED || decision.verdict == VERDICT_FULL) {
        const struct belay_record *holder = &seen.records[decision.blocker];
        int64_t margin_ms = request->capabilities.margin_ms;
        int64_t now_ms = seen.store_now_ms;

        if (decision.below_key != NULL &&
            store_get(store, &decision.below_key, 1, &below, &now_ms, NULL) == BELAY_OK) {
            holder = &below;
        }
        *retry_ms = decision.may_try_ms - seen.store_now_ms - (clock_boot_ms() - seen.seen_ms);
        info = info_from_record(holder, now_ms, true);
        code = info == NULL ? error_no_memory(err)
                            : info_say_held(err, BELAY_HELD, request->key, info, margin_ms,
                                            holder->expires_ms + margin_ms - now_ms);
    }
    belay_record_release(&below);
    poll_result_release(&seen);
    return code;
}

static void local_close(struct backend *backend)
{
    struct belay_store *store = local_client(backend)->store;

    store->ops->close(store);
}

enum belay_code local_note(struct backend *backend, const struct belay_event *event, struct belay_error *err)
{
    struct belay_batch batch = { .events = event, .n_events = 1 };

    assert(event->type != NULL);
    return commit_outside(local_client(backend), &batch, err);
}

/* ---- items ---- */

static enum belay_code check_keeps_items(struct backend *backend, struct belay_error *err)
{
    const struct belay_client *client = local_client(backend);

    return client->store->ops->item_list != NULL
               ? BELAY_OK
               : error_set(
                     err, BELAY_CONFIG,
                     "the store '%.200s' keeps no applications: use sqlite:PATH, dynamodb:TABLE or a server",
                     client->url);
}

static enum belay_code local_item_get(struct backend *backend, const char *space, const char *name,
                                      struct belay_item *out_item, struct belay_error *err)
{
    struct belay_store *store = local_client(backend)->store;
    enum belay_code code = check_keeps_items(backend, err);

    return code == BELAY_OK ? store_item_get(store, space, name, out_item, err) : code;
}

static enum belay_code local_item_put(struct backend *backend, const struct belay_item_write *write,
                                      uint64_t *out_version, struct belay_error *err)
{
    struct belay_store *store = local_client(backend)->store;
    enum belay_code code = check_keeps_items(backend, err);

    return code == BELAY_OK ? store_item_put(store, write, out_version, err) : code;
}

static enum belay_code local_item_list(struct backend *backend, const char *space, belay_item_fn fn,
                                       void *context, bool *out_is_partial, struct belay_error *err)
{
    struct belay_store *store = local_client(backend)->store;
    enum belay_code code = check_keeps_items(backend, err);

    if (code == BELAY_OK) {
        code = store_item_list(store, space, fn, context, err);
    }
    if (code == BELAY_OK) {
        *out_is_partial = false;
    }
    return code;
}

/* The event first: if a server owns the file, it records both, and would mistake our item for its own. */
static enum belay_code local_decide(struct backend *backend, const struct client_decision *decision,
                                    struct belay_error *err)
{
    uint64_t version;
    enum belay_code code = check_keeps_items(backend, err);

    if (code == BELAY_OK) {
        code = local_note(backend, decision->event, err);
    }
    if (code == BELAY_OK && decision->is_done) {
        code = local_item_put(backend, &decision->write, &version, err);
    }
    return code;
}

/* ---- the store as a whole ---- */

static enum belay_code local_backup(struct backend *backend, const char *path, struct belay_cancel *cancel,
                                    struct belay_error *err)
{
    const struct belay_client *client = local_client(backend);
    struct belay_store *store = client->store;

    if (store->ops->backup == NULL) {
        return error_set(
            err, BELAY_INVALID,
            "the store '%.200s' is not a file that belay could copy; use PostgreSQL's own backups, or "
            "DynamoDB's point-in-time recovery",
            client->url);
    }
    return store->ops->backup(store, path, cancel, err);
}

static enum belay_code local_identity(struct backend *backend, char out_id[BELAY_STORE_ID_SIZE],
                                      struct belay_error *err)
{
    const struct belay_client *client = local_client(backend);
    struct belay_store *store = client->store;

    return store->ops->identity != NULL
               ? store->ops->identity(store, out_id, err)
               : error_set(err, BELAY_CONFIG, "the store '%.200s' has no id", client->url);
}

static enum belay_code local_credential(struct backend *backend, char out_name[BELAY_OWNER_MAX + 1],
                                        struct belay_error *err)
{
    (void)backend;
    (void)err;
    out_name[0] = '\0';
    return BELAY_OK;
}

const struct backend_ops local_ops = {
    .close = local_close,
    .run = local_run,
    .get = local_get,
    .check = local_check,
    .list = local_list,
    .events = local_events,
    .stats = local_stats,
    .past_holds = local_past_holds,
    .watch = local_watch,
    .note = local_note,
    .check_free = local_check_free,
    .item_get = local_item_get,
    .item_put = local_item_put,
    .item_list = local_item_list,
    .decide = local_decide,
    .freezes = local_freezes,
    .backup = local_backup,
    .identity = local_identity,
    .credential = local_credential,
};
