/* By key and lock id: what needs no struct belay_lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"
#include "lock/info.h"

/* ---- renew, release, force ---- */

/* Add further keys and run the request, unless the kill switch grants it. */
static enum belay_code run_request(struct belay_client *client, struct client_request *request,
                                   const char *const *more_keys, size_t n_more, struct belay_info **out_info,
                                   struct belay_error *err)
{
    struct op_request *op = &request->op;
    struct belay_error failure = BELAY_ERROR_INIT;
    struct op_result result = { 0 };
    enum belay_code code = request_add_keys(request, client, more_keys, n_more, err);
    bool is_granted = code == BELAY_OK && client_grants(client, op);

    if (code != BELAY_OK) {
        goto done;
    }
    if (!is_granted) {
        code = route_run(&client->route, op, NULL, &result, &failure);
        is_granted = client_forgives(client, op, code, failure.text);
    }
    if (is_granted) {
        struct belay_info granted = granted_info(op);

        result.info = info_copy(&granted);
        code = result.info == NULL ? BELAY_NO_MEMORY : BELAY_OK;
    } else if (code == BELAY_OK && op->kind == OP_RENEW) {
        int64_t left_ms = result.deadline_ms - clock_boot_ms();

        info_set_valid_for(result.info, left_ms > 0 ? left_ms : 0);
    }
    if (code == BELAY_OK && out_info != NULL) {
        *out_info = result.info;
        result.info = NULL; /* the caller's now */
    } else if (code != BELAY_OK) {
        (void)error_move(err, code, &failure);
    }

done:
    belay_info_free(result.info);
    belay_error_release(&failure);
    request_release(request);
    return code;
}

enum belay_code belay_renew_keys(struct belay_client *client, const char *const *keys, size_t n_keys,
                                 const char *lock_id, int64_t ttl_ms, struct belay_info **out_info,
                                 struct belay_error *err)
{
    struct client_request request;
    enum belay_code code =
        request_init_renew(&request, client, n_keys == 0 ? NULL : keys[0], lock_id, ttl_ms, err);

    return code == BELAY_OK ? run_request(client, &request, keys + 1, n_keys - 1, out_info, err) : code;
}

enum belay_code belay_renew(struct belay_client *client, const char *key, const char *lock_id, int64_t ttl_ms,
                            struct belay_info **out_info, struct belay_error *err)
{
    return belay_renew_keys(client, &key, 1, lock_id, ttl_ms, out_info, err);
}

enum belay_code client_release(struct belay_client *client, const struct op_request *held,
                               enum belay_outcome outcome, struct belay_info **out_info,
                               struct belay_error *err)
{
    const char *const *keys = held->joint == NULL ? &held->key : held->joint->keys;
    struct client_request request;
    enum belay_code code = request_init_release(&request, client, keys[0], held->lock_id, outcome, err);

    request.op.mode = held->mode;
    request.op.slots = held->slots;
    request.op.is_own = true;
    return code == BELAY_OK ? run_request(client, &request, keys + 1, op_n_targets(held) - 1, out_info, err)
                            : code;
}

enum belay_code belay_release_keys(struct belay_client *client, const char *const *keys, size_t n_keys,
                                   const char *lock_id, enum belay_outcome outcome,
                                   struct belay_info **out_info, struct belay_error *err)
{
    struct client_request request;
    enum belay_code code =
        request_init_release(&request, client, n_keys == 0 ? NULL : keys[0], lock_id, outcome, err);

    return code == BELAY_OK ? run_request(client, &request, keys + 1, n_keys - 1, out_info, err) : code;
}

enum belay_code belay_release(struct belay_client *client, const char *key, const char *lock_id,
                              enum belay_outcome outcome, struct belay_info **out_info,
                              struct belay_error *err)
{
    return belay_release_keys(client, &key, 1, lock_id, outcome, out_info, err);
}

enum belay_code belay_force_release(struct belay_client *client, const char *key, const char *lock_id,
                                    const char *by, const char *reason, struct belay_info **out_info,
                                    struct belay_error *err)
{
    struct client_request request;
    enum belay_code code = request_init_force(&request, client, key, lock_id, by, reason, err);

    return code == BELAY_OK ? run_request(client, &request, NULL, 0, out_info, err) : code;
}

/* ---- reading ---- */

enum belay_code belay_get(struct belay_client *client, const char *key, struct belay_info **out_info,
                          struct belay_error *err)
{
    enum belay_code code = belay_key_check(client->config, NULL, key, err);

    if (code == BELAY_OK) {
        ROUTE(&client->route, code, err, get, key, out_info);
    }
    return code;
}

static bool is_own_grant(const struct belay_info *info, const char *owner, const char *credential)
{
    return info->lock_id != NULL && strcmp(info->locked_by, owner) == 0 &&
           strcmp(info->acquired_by == NULL ? "" : info->acquired_by, credential) == 0;
}

/* Takes over `info`. The error names its holder, whose lock id is not for every caller. */
static enum belay_code fail_not_own(struct belay_info *info, const char *owner, struct belay_error *err)
{
    bool is_same_owner = strcmp(info->locked_by, owner) == 0;

    (void)error_set(err, BELAY_NOT_HOLDER,
                    is_same_owner ? "not the holder: another credential acquired lock '%s' for %s"
                                  : "not the holder: lock '%s' is %s's",
                    info->key, info->locked_by);
    free(info->lock_id);
    info->lock_id = NULL;
    for (size_t i = 0; i < info->n_holders; i++) {
        if (!info->has_packed_lists) {
            free(info->holders[i].lock_id);
        }
        info->holders[i].lock_id = NULL;
    }
    if (err != NULL) {
        error_set_holder(err, info);
    } else {
        belay_info_free(info);
    }
    return BELAY_NOT_HOLDER;
}

/* Takes over `info`. The owner's only live grant among the holders; without one, its only one that has expired. */
static enum belay_code find_among_holders(struct belay_info *info, const char *owner, const char *credential,
                                          struct belay_info **out_info, struct belay_error *err)
{
    const struct belay_info *own = NULL;
    struct belay_info *copy = NULL;
    enum belay_code code = BELAY_OK;
    size_t n = 0;

    for (int live = 1; live >= 0 && n == 0; live--) {
        for (size_t i = 0; i < info->n_holders; i++) {
            const struct belay_info *holder = &info->holders[i];

            if (is_own_grant(holder, owner, credential) &&
                (holder->status == BELAY_STATUS_ACTIVE) == (live == 1)) {
                own = holder;
                n++;
            }
        }
    }
    if (n == 0) {
        return fail_not_own(info, owner, err);
    }
    if (n > 1) {
        code = error_set(err, BELAY_INVALID, "%s holds lock '%s' %zu times: say which by its lock id", owner,
                         info->key, n);
    } else if ((copy = info_copy(own)) == NULL) {
        code = error_no_memory(err);
    } else {
        *out_info = copy;
    }
    belay_info_free(info);
    return code;
}

/* While locking is switched off, whatever is renewed or released need not exist. */
static enum belay_code grant_own(const char *key, const char *owner, struct belay_info **out_info,
                                 struct belay_error *err)
{
    const struct belay_info unowned = { .key = (char *)key,
                                        .lock_id = (char *)UNPROTECTED_PREFIX "by-owner",
                                        .locked_by = (char *)owner,
                                        .locked_by_name = (char *)"",
                                        .valid_for_ms = -1 };
    struct belay_info *info = info_copy(&unowned);

    if (info == NULL) {
        return error_no_memory(err);
    }
    *out_info = info;
    return BELAY_OK;
}

static enum belay_code find_own(struct belay_client *client, const char *key, const char *owner,
                                const char *acquired_by, struct belay_info **out_info,
                                struct belay_error *err)
{
    char credential[BELAY_OWNER_MAX + 1] = "";
    struct belay_info *info = NULL;
    enum belay_code code;

    code = belay_get(client, key, &info, err);
    if (code == BELAY_OK && (acquired_by == NULL || *acquired_by == '\0')) {
        ROUTE(&client->route, code, err, credential, credential);
        acquired_by = credential;
    }
    if (code != BELAY_OK) {
        belay_info_free(info);
        return code;
    }
    if (info->n_holders > 0) {
        return find_among_holders(info, owner, acquired_by, out_info, err);
    }
    if (!is_own_grant(info, owner, acquired_by)) {
        return fail_not_own(info, owner, err);
    }
    *out_info = info;
    return BELAY_OK;
}

enum belay_code belay_find_own(struct belay_client *client, const char *key, const char *owner,
                               const char *acquired_by, struct belay_info **out_info, struct belay_error *err)
{
    enum belay_code code;

    if (owner == NULL || out_info == NULL) {
        return error_set(err, BELAY_INVALID, "no owner given");
    }
    code = find_own(client, key, owner, acquired_by, out_info, err);
    return code == BELAY_OK || client->enabled ? code : grant_own(key, owner, out_info, err);
}

/* How far a list has come, in case another backend has to continue it. */
struct progress {
    belay_info_fn fn;
    void *context;
    struct belay_query rest;
    size_t n;
    char last[BELAY_KEY_MAX + 1];
};

static bool pass_listed(void *context, const struct belay_info *info)
{
    struct progress *progress = context;

    (void)snprintf(progress->last, sizeof progress->last, "%s", info->key);
    progress->rest.cursor = progress->last;
    progress->n++;
    return progress->fn(progress->context, info);
}

enum belay_code belay_list(struct belay_client *client, const struct belay_query *query, belay_info_fn fn,
                           void *context, bool *out_more, struct belay_error *err)
{
    static const struct belay_query everything = BELAY_QUERY_INIT;
    struct progress progress = { .fn = fn, .context = context, .rest = query == NULL ? everything : *query };
    size_t limit = progress.rest.limit;
    struct backend *used;
    enum belay_code code;

    do {
        struct belay_query rest = progress.rest;

        rest.limit = limit == 0 ? 0 : limit - progress.n;
        used = route_current(&client->route);
        code = used->ops->list(used, &rest, pass_listed, &progress, out_more, err);
    } while (route_is_redirected(&client->route, used, &code, err));
    return code;
}

enum belay_code belay_history(struct belay_client *client, const char *key, size_t limit, belay_event_fn fn,
                              void *context, struct belay_error *err)
{
    struct belay_events_query query = { .key = key, .last = limit };
    enum belay_code code = belay_key_check(client->config, NULL, key, err);

    if (code == BELAY_OK) {
        ROUTE(&client->route, code, err, events, &query, fn, context);
    }
    return code;
}

enum belay_code belay_past_holds(struct belay_client *client, const char *key, struct belay_holds *out_holds,
                                 struct belay_error *err)
{
    struct belay_holds holds = { 0 };
    enum belay_code code = belay_key_check(client->config, NULL, key, err);

    if (code == BELAY_OK) {
        ROUTE(&client->route, code, err, past_holds, key, &holds);
    }
    if (code == BELAY_OK) {
        *out_holds = holds;
    }
    return code;
}

enum belay_code belay_events(struct belay_client *client, const char *prefix, uint64_t after_id, size_t last,
                             belay_event_fn fn, void *context, struct belay_error *err)
{
    struct belay_events_query query = { .prefix = prefix, .after = after_id, .last = last };
    enum belay_code code;

    ROUTE(&client->route, code, err, events, &query, fn, context);
    return code;
}

enum belay_code belay_watch(struct belay_client *client, const char *prefix, uint64_t after_id,
                            belay_event_fn fn, void *context, struct belay_cancel *cancel,
                            struct belay_error *err)
{
    enum belay_code code;

    ROUTE(&client->route, code, err, watch, prefix, &after_id, fn, context, cancel);
    return code;
}

enum belay_code belay_report_lost(struct belay_client *client, const struct belay_event *event,
                                  struct belay_error *err)
{
    struct belay_event copy = *event;
    struct client_request request;
    enum belay_code code = request_init(&request, client, OP_RELEASE, event->key, event->lock_id, err);

    if (code == BELAY_OK) { /* the request was for the checks */
        code = metadata_check(event->metadata, event->n_metadata, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    copy.type = "lock.lost";
    copy.level = BELAY_LEVEL_WARNING;
    copy.duration_ms = -1;
    ROUTE(&client->route, code, err, note, &copy);
    return code;
}
