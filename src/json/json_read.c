#include "json/json_read.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/saturate.h"
#include "base/text.h"

static const char *member_text(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static int64_t member_integer(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name)); /* 0 for null */
}

/* A span in ms. It is added to clocks, so it is limited to a century, whatever the server sent. */
static int64_t member_span(const json_t *object, const char *name)
{
    const int64_t most = 100LL * 366 * 24 * 3600 * 1000;
    int64_t ms = member_integer(object, name);

    return ms > most ? most : ms < -most ? -most : ms;
}

int64_t json_read_time(const json_t *object, const char *name)
{
    return clock_parse_utc(member_text(object, name));
}

static enum belay_status status_of(const char *name)
{
    for (int i = BELAY_STATUS_ACTIVE; name != NULL && i <= BELAY_STATUS_RELEASED; i++) {
        if (strcmp(name, belay_status_name((enum belay_status)i)) == 0) {
            return (enum belay_status)i;
        }
    }
    return BELAY_STATUS_NONE;
}

static enum belay_outcome outcome_of(const char *name)
{
    for (int i = BELAY_OUTCOME_COMPLETED; name != NULL && i <= BELAY_OUTCOME_FORCED; i++) {
        if (strcmp(name, belay_outcome_name((enum belay_outcome)i)) == 0) {
            return (enum belay_outcome)i;
        }
    }
    return BELAY_OUTCOME_NONE;
}

/* Borrowed names and values; returns their number. */
static size_t member_metadata(const json_t *object, struct belay_meta metadata[BELAY_META_MAX])
{
    json_t *all = json_object_get(object, "metadata");
    const char *name;
    json_t *value;
    size_t n = 0;

    json_object_foreach(all, name, value)
    {
        if (n < BELAY_META_MAX && json_is_string(value)) {
            metadata[n++] = (struct belay_meta){ name, json_string_value(value) };
        }
    }
    return n;
}

static bool copy_member(const char *text, char **out)
{
    *out = strdup(text == NULL ? "" : text);
    return *out != NULL;
}

static enum belay_mode member_mode(const json_t *object)
{
    const char *name = member_text(object, "mode");

    for (int i = BELAY_EXCLUSIVE; name != NULL && i <= BELAY_SLOTS; i++) {
        if (strcmp(name, belay_mode_name((enum belay_mode)i)) == 0) {
            return (enum belay_mode)i;
        }
    }
    return BELAY_EXCLUSIVE;
}

static struct belay_info *read_holder_fields(const json_t *lock, const char *key)
{
    struct belay_meta metadata[BELAY_META_MAX];
    struct belay_info *info;
    const char *id = member_text(lock, "lock_id");
    const char *credential = member_text(lock, "acquired_by");
    size_t n;

    if (key == NULL || (info = calloc(1, sizeof *info)) == NULL) {
        return NULL;
    }
    n = member_metadata(lock, metadata);
    info->lock_id = id == NULL ? NULL : strdup(id);
    info->acquired_by = credential == NULL ? NULL : strdup(credential);
    info->metadata = meta_copy(metadata, n);
    info->n_metadata = info->metadata == NULL ? 0 : n;
    if (!copy_member(key, &info->key) || !copy_member(member_text(lock, "locked_by"), &info->locked_by) ||
        !copy_member(member_text(lock, "locked_by_name"), &info->locked_by_name) ||
        (id != NULL && info->lock_id == NULL) || (credential != NULL && info->acquired_by == NULL) ||
        info->n_metadata != n) {
        belay_info_free(info);
        return NULL;
    }
    info->token = (uint64_t)member_integer(lock, "token");
    info->status = status_of(member_text(lock, "status"));
    info->outcome = outcome_of(member_text(lock, "outcome"));
    info->locked_at_unix_ms = json_read_time(lock, "locked_at");
    info->expires_at_unix_ms = json_read_time(lock, "expires_at");
    info->released_at_unix_ms = json_read_time(lock, "released_at");
    info->last_heartbeat_unix_ms = json_read_time(lock, "last_heartbeat");
    info->ttl_ms = member_span(lock, "ttl_ms");
    info->expires_in_ms = member_span(lock, "expires_in_ms");
    info->valid_for_ms =
        json_is_integer(json_object_get(lock, "valid_for_ms")) ? member_span(lock, "valid_for_ms") : -1;
    info->is_stale = json_is_true(json_object_get(lock, "is_stale"));
    return info;
}

/* Moves `one`, which may be NULL, to the end of a list with room for it. */
static bool append_info(struct belay_info *list, size_t *n, struct belay_info *one)
{
    if (one != NULL) {
        list[(*n)++] = *one;
        free(one);
    }
    return one != NULL;
}

/* The holders of a lock that may have several. */
static bool read_holder_list(const json_t *holders, struct belay_info *info)
{
    size_t n = json_array_size(holders);

    if (info->mode == BELAY_EXCLUSIVE || n == 0) {
        return true;
    }
    info->holders = n > BELAY_HOLDERS_MAX ? NULL : calloc(n, sizeof *info->holders);
    for (size_t i = 0; info->holders != NULL && i < n; i++) {
        if (!append_info(info->holders, &info->n_holders,
                         read_holder_fields(json_array_get(holders, i), info->key))) {
            return false;
        }
        info->holders[i].mode = info->mode;
        info->holders[i].slots = info->slots;
    }
    return info->n_holders == n;
}

struct belay_info *json_read_lock(const json_t *lock)
{
    struct belay_info *info = read_holder_fields(lock, member_text(lock, "key"));
    const json_t *waiting = json_object_get(lock, "waiting");
    int64_t slots = member_integer(lock, "slots");

    if (info == NULL) {
        return NULL;
    }
    info->mode = member_mode(lock);
    info->slots = info->mode == BELAY_SLOTS && slots > 0 && slots <= BELAY_HOLDERS_MAX ? (int)slots : 0;
    if (!read_holder_list(json_object_get(lock, "holders"), info) ||
        (json_is_array(waiting) && !json_read_waiters(waiting, info))) {
        belay_info_free(info);
        return NULL;
    }
    return info;
}

struct belay_info *json_read_locks(const json_t *locks)
{
    size_t n = json_array_size(locks);
    struct belay_info *info = n == 0 || n > BELAY_KEYS_MAX ? NULL : json_read_lock(json_array_get(locks, 0));

    if (info == NULL || n == 1) {
        return info;
    }
    info->joint = calloc(n - 1, sizeof *info->joint);
    for (size_t i = 1; info->joint != NULL && i < n; i++) {
        if (!append_info(info->joint, &info->n_joint, json_read_lock(json_array_get(locks, i)))) {
            break;
        }
    }
    if (info->n_joint != n - 1) {
        belay_info_free(info);
        return NULL;
    }
    return info;
}

bool json_read_waiters(const json_t *waiting, struct belay_info *info)
{
    size_t n = json_array_size(waiting);

    if (info->waiters != NULL) {
        return true; /* the lock itself had them */
    }
    info->has_queue = true;
    info->waiters = n == 0 ? NULL : calloc(n, sizeof *info->waiters);
    if (n > 0 && info->waiters == NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *from = json_array_get(waiting, i);
        struct belay_waiter *waiter = &info->waiters[info->n_waiters++];

        if (member_text(from, "key") == NULL || !copy_member(member_text(from, "key"), &waiter->key) ||
            !copy_member(member_text(from, "locked_by"), &waiter->locked_by) ||
            !copy_member(member_text(from, "locked_by_name"), &waiter->locked_by_name)) {
            return false;
        }
        waiter->since_unix_ms = json_read_time(from, "since");
        waiter->mode = member_mode(from);
    }
    return true;
}

bool json_read_freeze(const json_t *freeze, belay_freeze_fn fn, void *context, bool *out_go_on)
{
    struct belay_freeze read = { .id = member_text(freeze, "id"),
                                 .pattern = member_text(freeze, "pattern"),
                                 .reason = member_text(freeze, "reason"),
                                 .by = member_text(freeze, "by"),
                                 .created_unix_ms = json_read_time(freeze, "created_at"),
                                 .from_unix_ms = json_read_time(freeze, "from"),
                                 .until_unix_ms = json_read_time(freeze, "until"),
                                 .in_force = json_is_true(json_object_get(freeze, "in_force")) };

    if (read.id == NULL || read.pattern == NULL || read.reason == NULL || read.by == NULL) {
        return false;
    }
    *out_go_on = fn == NULL || fn(context, &read);
    return true;
}

bool json_read_event(const json_t *object, belay_event_fn fn, void *context, bool *out_go_on,
                     uint64_t *out_id)
{
    struct belay_meta metadata[BELAY_META_MAX];
    const char *level = member_text(object, "level");
    const json_t *seconds = json_object_get(object, "duration_seconds");
    struct belay_event event = {
        .id = (uint64_t)member_integer(object, "id"),
        .at_unix_ms = json_read_time(object, "timestamp"),
        .level = level != NULL && strcmp(level, "WARN") == 0 ? BELAY_LEVEL_WARNING : BELAY_LEVEL_INFO,
        .type = member_text(object, "event"),
        .key = member_text(object, "lock_key"),
        .lock_id = member_text(object, "lock_id"),
        .token = (uint64_t)member_integer(object, "token"),
        .locked_by = member_text(object, "locked_by"),
        .locked_by_name = member_text(object, "locked_by_name"),
        .by = member_text(object, "by"),
        .reason = member_text(object, "reason"),
        .duration_ms = json_is_number(seconds) ? saturate(json_number_value(seconds) * 1000.0 + 0.5) : -1,
        .metadata = metadata
    };

    if (event.type == NULL || event.key == NULL) {
        return false;
    }
    event.n_metadata = member_metadata(object, metadata);
    *out_id = event.id;
    *out_go_on = fn(context, &event);
    return true;
}
