/* By key and lock id: what needs no struct belay_lock. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fnv.h"
#include "client/client.h"
#include "client/route.h"
#include "lock/info.h"

enum { STALE_NOTED_MAX = 64 };

/* ---- renew, release, force ---- */

static enum belay_code finish(struct belay_client *client, struct op *op, struct belay_info **out_info,
                              struct belay_error *err)
{
    enum belay_code code;
    struct belay_info *info = NULL;

    if (!client_grants(client, op)) {
        client_run(client, op, NULL);
        client_forgives(client, op);
    }
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
            info->valid_for_ms = op_valid_for_ms(op, clock_boot_ms());
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
    enum belay_code code = request_init_id(&request, client, OP_RENEW, key, lock_id, err);

    if (code == BELAY_OK) {
        code = request_set_ttl(&request, client, ttl_ms, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    op_start(&op, &request.op, clock_boot_ms());
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
    enum belay_code code = request_init_id(&request, client, OP_RELEASE, key, lock_id, err);

    if (code != BELAY_OK) {
        return code;
    }
    request.op.outcome = outcome == BELAY_OUTCOME_NONE ? BELAY_OUTCOME_COMPLETED : outcome;
    op_start(&op, &request.op, clock_boot_ms());
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
    enum belay_code code = request_init_id(&request, client, OP_FORCE, key, lock_id, err);

    if (code == BELAY_OK) {
        code = request_set_reason(&request, by, reason, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    op_start(&op, &request.op, clock_boot_ms());
    code = finish(client, &op, out_info, err);
    request_release(&request);
    return code;
}

/* ---- looking ---- */

/* Of a lock, its holder and its last heartbeat. */
static uint64_t stale_mark(const struct belay_record *record)
{
    return fnv_text(fnv_text(FNV_INIT ^ (uint64_t)record->last_heartbeat_ms, record->key), record->lock_id);
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
 * Count a stale lock once: who marks it first reports it (S4.7). Other programs'
 * layouts have no place for the mark; there each process reports it once.
 */
static void note_stale(struct belay_client *client, const struct belay_record *record)
{
    struct belay_write write = { .key = record->key,
                                 .condition = BELAY_IF_UNCHANGED,
                                 .revision = record->revision,
                                 .set = BELAY_SET_STALE_REPORTED,
                                 .values = record };
    struct belay_event event = { .level = BELAY_LEVEL_WARNING,
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
    uint64_t mark = stale_mark(record);

    if (was_told(client, mark)) {
        return;
    }
    if (client_count_commit(client, client->store->ops->commit(client->store, &batch, &result, NULL)) ==
        BELAY_OK) {
        remember_told(client, mark);
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
    if (info->is_stale && !record.stale_reported) {
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
    if (info->is_stale && !record->stale_reported && listing->n_stale < STALE_NOTED_MAX &&
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
