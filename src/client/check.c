/* belay_check(): is a lock still that of an id or a token, and for how long? Changes nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/saturate.h"
#include "client/client.h"
#include "lock/info.h"

/* ---- for how long ---- */

/*
 * For how long after `asked_ms` the lock may be relied on, if the store said then that its
 * lease lasts expires_in_ms. Never longer than the holder itself counts (L6): it stops a margin
 * and a lead before the end of its lease, and it counts from before its request, by a clock
 * that may be a margin behind the one that wrote the lease's end. The record does not say when
 * that request was sent, so all of this is taken off twice.
 */
static int64_t valid_for_ms(const struct belay_info *info,
                            const struct belay_store_capabilities *capabilities)
{
    /* A layout that keeps no ttl: the longest one has the longest lead. */
    int64_t ttl_ms = info->ttl_ms > 0 ? info->ttl_ms : BELAY_TTL_MAX_MS;
    int64_t early_ms = ttl_ms - lease_deadline_ms(0, ttl_ms, capabilities->margin_ms);
    int64_t left_ms = info->expires_in_ms - capabilities->read_clock_lag_ms - 2 * early_ms;

    return left_ms > 0 ? left_ms : 0;
}

static enum belay_code say_too_short(const struct belay_info *info, int64_t min_valid_ms,
                                     struct belay_error *err)
{
    char left[CLOCK_TEXT_SIZE];
    char wanted[CLOCK_TEXT_SIZE];

    if (info->valid_for_ms <= 0) {
        return error_set(err, BELAY_LOST, "lock '%s' cannot be relied on any more: its lease ends in %s",
                         info->key, clock_format_span(left, info->expires_in_ms));
    }
    return error_set(err, BELAY_LOST, "lock '%s' can be relied on for %s, which is less than %s", info->key,
                     clock_format_span(left, info->valid_for_ms), clock_format_span(wanted, min_valid_ms));
}

/* ---- whose it is ---- */

/* Both, if both are given. A layout without tokens leaves the decision to the id. */
static bool is_checked_grant(const struct lock_check *check, const struct belay_info *grant)
{
    bool has_id =
        check->lock_id == NULL || (grant->lock_id != NULL && strcmp(grant->lock_id, check->lock_id) == 0);
    bool has_token =
        check->token == 0 || check->token == grant->token || (grant->token == 0 && check->lock_id != NULL);

    return has_id && has_token;
}

/* The grant that is meant, in the lock or among its holders; NULL: none is. */
static const struct belay_info *find_grant(const struct lock_check *check, const struct belay_info *info)
{
    for (size_t i = 0; i < info->n_holders; i++) {
        if (is_checked_grant(check, &info->holders[i])) {
            return &info->holders[i];
        }
    }
    return is_checked_grant(check, info) ? info : NULL;
}

/* Takes over `info`, the lock of another holder. Without lock ids: they are not for everyone. */
static enum belay_code say_other_holder(const struct lock_check *check, struct belay_info *info,
                                        struct belay_error *err)
{
    char mine[64] = "not the holder";
    char theirs[48] = "";
    char until[CLOCK_TEXT_SIZE];
    char left[CLOCK_TEXT_SIZE];

    if (check->lock_id == NULL) {
        (void)snprintf(mine, sizeof mine, "token %" PRIu64 " is not the current one", check->token);
    }
    if (info->token != 0) {
        (void)snprintf(theirs, sizeof theirs, " with token %" PRIu64, info->token);
    }
    if (info->status == BELAY_STATUS_ACTIVE) {
        (void)error_set(err, BELAY_NOT_HOLDER, "%s: lock '%s' is held by %s%s until %s (%s left)", mine,
                        info->key, info->locked_by, theirs,
                        clock_format_utc(until, info->expires_at_unix_ms, false),
                        clock_format_span(left, info->expires_in_ms));
    } else {
        (void)error_set(err, BELAY_NOT_HOLDER, "%s: lock '%s' was last held by %s%s, and is %s", mine,
                        info->key, info->locked_by, theirs, belay_status_name(info->status));
    }
    error_set_holder(err, info);
    return BELAY_NOT_HOLDER;
}

static enum belay_code say_grant_ended(const struct belay_info *grant, struct belay_error *err)
{
    char at[CLOCK_TEXT_SIZE];

    if (grant->status == BELAY_STATUS_RELEASED) {
        return error_set(err, BELAY_LOST, "lock '%s' was released%s", grant->key,
                         grant->outcome == BELAY_OUTCOME_FORCED ? " by force" : "");
    }
    return error_set(err, BELAY_LOST, "lock '%s' is lost: its lease ended at %s", grant->key,
                     clock_format_utc(at, grant->expires_at_unix_ms, false));
}

enum belay_code local_check(struct backend *backend, const struct lock_check *check,
                            struct belay_info **out_info, struct belay_error *err)
{
    struct belay_store_capabilities capabilities = client_capabilities(local_client(backend));
    const struct belay_info *grant;
    struct belay_info *info = NULL;
    enum belay_code code;

    if (id_is_unprotected(check->lock_id)) {
        return error_set(err, BELAY_LOST,
                         "lock '%s' was granted while locking was switched off, and protects nothing",
                         check->key);
    }
    code = backend->ops->get(backend, check->key, &info, err);
    if (code != BELAY_OK) {
        return code;
    }
    if (check->lock_id == NULL && info->token == 0) {
        code = error_set(err, BELAY_INVALID, "lock '%s' has no token in this store: check its lock id",
                         check->key);
        goto done;
    }
    grant = find_grant(check, info);
    if (grant == NULL) {
        return say_other_holder(check, info, err);
    }
    if (grant->status != BELAY_STATUS_ACTIVE) {
        code = say_grant_ended(grant, err);
        goto done;
    }
    *out_info = info_copy(grant);
    if (*out_info == NULL) {
        code = error_no_memory(err);
        goto done;
    }
    (*out_info)->valid_for_ms = valid_for_ms(grant, &capabilities);

done:
    belay_info_free(info);
    return code;
}

/* ---- the call ---- */

static enum belay_code validate(struct belay_client *client, const struct lock_check *check,
                                struct belay_error *err)
{
    struct client_request request; /* for its checks */
    enum belay_code code = request_init(&request, client, OP_ACQUIRE, check->key, check->lock_id, err);

    if (code == BELAY_OK && check->lock_id == NULL && check->token == 0 && client->enabled) {
        return error_set(err, BELAY_INVALID, "no lock id and no token: say whose lock it should be");
    }
    if (code == BELAY_OK && (check->min_valid_ms < 0 || check->min_valid_ms > BELAY_TTL_MAX_MS)) {
        char wanted[CLOCK_TEXT_SIZE];

        return error_set(err, BELAY_INVALID, "no lock is valid for %s: it must be from 0s to 366 days",
                         clock_format_duration(wanted, check->min_valid_ms));
    }
    return code;
}

/* The rest of the lease, less the time that the answer took. */
static enum belay_code judge_time(const struct lock_check *check, struct belay_info *info, int64_t asked_ms,
                                  struct belay_error *err)
{
    int64_t needed_ms = check->min_valid_ms > 0 ? check->min_valid_ms : 1;

    if (info->status == BELAY_STATUS_NONE) { /* a server whose locking is switched off */
        info->valid_for_ms = -1;
        return BELAY_OK;
    }
    info->valid_for_ms = sub_saturated(add_saturated(asked_ms, info->valid_for_ms), clock_boot_ms());
    info->valid_for_ms = info->valid_for_ms > 0 ? info->valid_for_ms : 0;
    return info->valid_for_ms >= needed_ms ? BELAY_OK : say_too_short(info, check->min_valid_ms, err);
}

/* While locking is switched off every lock counts as held, whatever the store says. */
static bool is_forgiven(struct belay_client *client, const struct lock_check *check, enum belay_code code,
                        const char *why, struct belay_info **out_info)
{
    const struct belay_info unheld = { .key = (char *)check->key,
                                       .lock_id = (char *)check->lock_id,
                                       .locked_by = (char *)"",
                                       .locked_by_name = (char *)"",
                                       .status = BELAY_STATUS_NONE,
                                       .valid_for_ms = -1 };

    if (client->enabled || code == BELAY_NO_MEMORY) {
        return false;
    }
    client_warn(client, "locking is switched off, so this does not matter: %s", why);
    *out_info = info_copy(&unheld);
    return *out_info != NULL;
}

/* `check` is valid. */
static enum belay_code ask_backend(struct belay_client *client, const struct lock_check *check,
                                   struct belay_info **out_info, struct belay_error *err)
{
    int64_t asked_ms = clock_boot_ms(); /* before the first sending, wherever it has to be sent again */
    struct belay_info *info = NULL;
    enum belay_code code;

    if (check->lock_id == NULL && check->token == 0) {
        return error_set(err, BELAY_INVALID, "'%s' is not protected", check->key);
    }
    ROUTE(&client->route, code, err, check, check, &info);
    if (code == BELAY_OK) {
        code = judge_time(check, info, asked_ms, err);
    }
    if (code != BELAY_OK) {
        belay_info_free(info);
        return code;
    }
    *out_info = info;
    return BELAY_OK;
}

enum belay_code belay_check(struct belay_client *client, const char *key, const char *lock_id, uint64_t token,
                            int64_t min_valid_ms, struct belay_info **out_info, struct belay_error *err)
{
    const struct lock_check check = { key, lock_id, token, min_valid_ms };
    struct belay_error failure = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;
    enum belay_code code = validate(client, &check, err);

    if (code != BELAY_OK) {
        return code;
    }
    code = ask_backend(client, &check, &info, &failure);
    if (code != BELAY_OK && is_forgiven(client, &check, code, failure.text, &info)) {
        code = BELAY_OK;
    }
    if (code != BELAY_OK) {
        return error_move(err, code, &failure);
    }
    if (out_info != NULL) {
        *out_info = info;
    } else {
        belay_info_free(info);
    }
    belay_error_release(&failure);
    return BELAY_OK;
}
