/*
 * Freezes: one item of the store, changed on condition of its version. The events come after
 * the item: a freeze that is on disk is in force, whatever happens to its event.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/saturate.h"
#include "base/text.h"
#include "client/client.h"
#include "client/items.h"
#include "freeze/freeze_list.h"

enum { TRIES_MAX = 50, EVENT_META = 3 };
#define UNIX_MS_MAX INT64_C(253402300799999) /* the end of the year 9999 */

/* A change in progress. */
struct freezing {
    struct belay_client *client;
    struct backend *backend;
    const struct freeze_request *request;
    int64_t now_unix_ms;
    struct freeze_list list;    /* owned; as it is, then as it will be */
    struct freeze_list changed; /* owned; what the request has begun or ended */
    struct freeze_list expired; /* owned; what has ended by itself and was not recorded yet */
    bool is_there;              /* an earlier call has done it */
};

static void freezing_release(struct freezing *work)
{
    freeze_list_release(&work->list);
    freeze_list_release(&work->changed);
    freeze_list_release(&work->expired);
}

static bool tell(const struct freezing *work, const struct frozen_keys *freeze, belay_freeze_fn fn,
                 void *context)
{
    struct freeze_now now = { work->now_unix_ms, work->now_unix_ms };
    struct belay_freeze told = { .id = freeze->id,
                                 .pattern = freeze->pattern,
                                 .reason = freeze->reason,
                                 .by = freeze->by,
                                 .created_unix_ms = freeze->made_unix_ms,
                                 .from_unix_ms = freeze->from_unix_ms,
                                 .until_unix_ms = freeze->until_unix_ms,
                                 .in_force = freeze_in_force(freeze, now, 0) };

    return fn == NULL || fn(context, &told);
}

/* ---- the changes ---- */

static enum belay_code check_times(const struct freezing *work, int64_t from_ms, int64_t until_ms,
                                   struct belay_error *err)
{
    char now[CLOCK_TEXT_SIZE];
    char from[CLOCK_TEXT_SIZE];
    char until[CLOCK_TEXT_SIZE];

    if (until_ms > UNIX_MS_MAX || from_ms > UNIX_MS_MAX) {
        return error_set(err, BELAY_INVALID, "a freeze must begin and end before the year 10000");
    }
    (void)clock_format_utc(until, until_ms, false);
    if (until_ms != 0 && until_ms <= work->now_unix_ms) {
        return error_set(err, BELAY_INVALID,
                         "the end of the freeze, %s, is in the past: it is %s; name a later time", until,
                         clock_format_utc(now, work->now_unix_ms, false));
    }
    if (until_ms != 0 && from_ms >= until_ms) {
        return error_set(err, BELAY_INVALID, "the freeze would begin, %s, no earlier than it ends, %s",
                         clock_format_utc(from, from_ms, false), until);
    }
    return BELAY_OK;
}

/*
 * An earlier request had this id. It is this one, repeated, if the pattern is the same. The id of a freeze that is over
 * is refused: the answer would look like success, and nothing would be frozen. The other pattern is not for everyone.
 */
static enum belay_code find_earlier(struct freezing *work, const struct frozen_keys *earlier,
                                    struct belay_error *err)
{
    if (strcmp(earlier->pattern, work->request->pattern) != 0) {
        return error_set(err, BELAY_ID_USED, "the id '%s' is that of another freeze: choose a new one",
                         earlier->id);
    }
    if (freeze_is_over(earlier, work->now_unix_ms)) {
        return error_set(err, BELAY_ID_USED, "the id '%s' is that of a freeze that is over: choose a new one",
                         earlier->id);
    }
    work->is_there = true;
    return freeze_list_add(&work->changed, earlier) ? BELAY_OK : error_no_memory(err);
}

static enum belay_code list_add_freeze(struct freezing *work, struct belay_error *err)
{
    const struct freeze_request *request = work->request;
    struct frozen_keys freeze = { .pattern = (char *)request->pattern,
                                  .reason = (char *)request->reason,
                                  .by = (char *)request->by,
                                  .made_unix_ms = work->now_unix_ms,
                                  .from_unix_ms = request->from_unix_ms,
                                  .until_unix_ms = request->until_unix_ms };
    enum belay_code code;

    (void)snprintf(freeze.id, sizeof freeze.id, "%s", request->id);
    if (request->for_ms != 0) {
        freeze.until_unix_ms = add_saturated(
            request->from_unix_ms != 0 ? request->from_unix_ms : work->now_unix_ms, request->for_ms);
    }
    for (size_t i = 0; i < work->list.n; i++) {
        if (strcmp(work->list.items[i].id, request->id) == 0) {
            return find_earlier(work, &work->list.items[i], err);
        }
    }
    code = check_times(work, freeze.from_unix_ms, freeze.until_unix_ms, err);
    if (code == BELAY_OK && work->list.n >= FREEZES_MAX) {
        code = error_set(err, BELAY_INVALID, "there are %d freezes already: end one first (belay freezes)",
                         FREEZES_MAX);
    }
    if (code == BELAY_OK &&
        (!freeze_list_add(&work->list, &freeze) || !freeze_list_add(&work->changed, &freeze))) {
        code = error_no_memory(err);
    }
    return code;
}

/* Those that an earlier request has ended, if this is the same, repeated. False: no memory. */
static bool find_ended(struct freezing *work)
{
    bool ok = true;

    for (size_t i = 0; ok && i < work->list.n; i++) {
        const struct frozen_keys *freeze = &work->list.items[i];

        if (freeze->ended_unix_ms != 0 &&
            (strcmp(freeze->id, work->request->id) == 0 || strcmp(freeze->pattern, work->request->id) == 0)) {
            work->is_there = true;
            ok = freeze_list_add(&work->changed, freeze);
        }
    }
    return ok;
}

static enum belay_code list_end_freezes(struct freezing *work, struct belay_error *err)
{
    const struct freeze_request *request = work->request;

    for (size_t i = 0; i < work->list.n; i++) {
        struct frozen_keys *freeze = &work->list.items[i];

        if (freeze_is_over(freeze, work->now_unix_ms) ||
            (strcmp(freeze->id, request->id) != 0 && strcmp(freeze->pattern, request->id) != 0)) {
            continue;
        }
        freeze->ended_unix_ms = work->now_unix_ms;
        freeze->reported = true;
        if (!freeze_list_add(&work->changed, freeze)) {
            return error_no_memory(err);
        }
    }
    if (work->changed.n == 0 && !find_ended(work)) {
        return error_no_memory(err);
    }
    return work->changed.n > 0 ? BELAY_OK
                               : error_set(err, BELAY_NOT_FOUND,
                                           "no freeze has the id or the pattern '%.200s': 'belay freezes' "
                                           "lists them",
                                           request->id);
}

/* Note those that have ended by themselves, and drop those that no waiter has to know of any more. */
static enum belay_code tidy(struct freezing *work, struct belay_error *err)
{
    for (size_t i = work->list.n; i-- > 0;) {
        struct frozen_keys *freeze = &work->list.items[i];
        int64_t over_ms = freeze->ended_unix_ms != 0 ? freeze->ended_unix_ms : freeze->until_unix_ms;

        if (!freeze_is_over(freeze, work->now_unix_ms)) {
            continue;
        }
        if (!freeze->reported) {
            freeze->reported = true;
            if (!freeze_list_add(&work->expired, freeze)) {
                return error_no_memory(err);
            }
        }
        if (work->now_unix_ms - over_ms > FREEZE_KEPT_MS || work->list.n > FREEZES_MAX / 2) {
            freeze_list_remove(&work->list, i);
        }
    }
    return BELAY_OK;
}

/* ---- the item ---- */

static enum belay_code read_freezes(struct freezing *work, struct belay_error *err)
{
    struct belay_item item = { 0 };
    enum belay_code code =
        work->backend->ops->item_get(work->backend, BELAY_SPACE_FREEZES, FREEZE_ITEM, &item, err);

    if (code == BELAY_OK) {
        code = freeze_list_read(&item, &work->list, err);
    }
    belay_item_release(&item);
    return code;
}

static enum belay_code write_freezes(struct freezing *work, struct belay_error *err)
{
    struct belay_item_write write = { .space = BELAY_SPACE_FREEZES,
                                      .name = FREEZE_ITEM,
                                      .version = work->list.version };
    char *value = freeze_list_write(&work->list);
    uint64_t version;
    enum belay_code code;

    write.value = value;
    if (value == NULL) {
        code = error_no_memory(err);
    } else if (strlen(value) > BELAY_ITEM_VALUE_MAX) {
        code = error_set(err, BELAY_INVALID,
                         "the freezes are too long in all: end one, or give shorter reasons");
    } else {
        code = work->backend->ops->item_put(work->backend, &write, &version, err);
    }
    free(value);
    return code;
}

static enum belay_code try_change(struct freezing *work, struct belay_error *err)
{
    enum belay_code code;

    freezing_release(work);
    work->is_there = false;
    work->now_unix_ms = clock_unix_ms();
    code = read_freezes(work, err);
    if (code == BELAY_OK) {
        code = tidy(work, err);
    }
    if (code == BELAY_OK) {
        code = work->request->kind == FREEZE_BEGIN ? list_add_freeze(work, err) : list_end_freezes(work, err);
    }
    return code == BELAY_OK && !work->is_there ? write_freezes(work, err) : code;
}

/* ---- events ---- */

static void record_freeze(struct freezing *work, const char *type, const struct frozen_keys *freeze,
                          const char *by, const char *reason)
{
    char from[CLOCK_TEXT_SIZE];
    char until[CLOCK_TEXT_SIZE];
    struct belay_meta metadata[EVENT_META] = { { "freeze_id", freeze->id } };
    struct belay_event event = { .level = BELAY_LEVEL_INFO,
                                 .type = type,
                                 .key = freeze->pattern,
                                 .by = by,
                                 .reason = reason,
                                 .duration_ms = -1,
                                 .metadata = metadata,
                                 .n_metadata = 1 };
    struct belay_error err = BELAY_ERROR_INIT;

    if (freeze->from_unix_ms != 0) {
        metadata[event.n_metadata++] =
            (struct belay_meta){ "from", clock_format_utc(from, freeze->from_unix_ms, true) };
    }
    if (freeze->until_unix_ms != 0) {
        metadata[event.n_metadata++] =
            (struct belay_meta){ "until", clock_format_utc(until, freeze->until_unix_ms, true) };
    }
    if (local_note(work->backend, &event, &err) != BELAY_OK) {
        client_warn(work->client, "the event '%s' of '%s' was not recorded: %s", type, freeze->pattern,
                    err.text);
    }
    belay_error_release(&err);
}

static void record_changes(struct freezing *work)
{
    const struct freeze_request *request = work->request;

    for (size_t i = 0; i < work->expired.n; i++) {
        record_freeze(work, "freeze.ended", &work->expired.items[i], NULL, "its time is over");
    }
    for (size_t i = 0; i < work->changed.n && !work->is_there; i++) {
        record_freeze(work, request->kind == FREEZE_BEGIN ? "freeze.begun" : "freeze.ended",
                      &work->changed.items[i], request->by, request->reason);
    }
}

/* ---- the store as a backend ---- */

static enum belay_code check_support(const struct belay_client *client, struct belay_error *err)
{
    struct belay_store_capabilities capabilities = client_capabilities(client);

    if (capabilities.has_freezes && client->store->ops->item_get != NULL) {
        return BELAY_OK;
    }
    return error_set(err, BELAY_INVALID, "the store '%.200s' has no freezes%s%s", client->url,
                     capabilities.freezes_advice == NULL ? "" : ": ",
                     capabilities.freezes_advice == NULL ? "" : capabilities.freezes_advice);
}

static enum belay_code list_current(struct freezing *work, belay_freeze_fn fn, void *context,
                                    struct belay_error *err)
{
    enum belay_code code = read_freezes(work, err);

    work->now_unix_ms = clock_unix_ms();
    for (size_t i = 0; code == BELAY_OK && i < work->list.n; i++) {
        const struct frozen_keys *freeze = &work->list.items[i];

        if (!freeze_is_over(freeze, work->now_unix_ms) && !tell(work, freeze, fn, context)) {
            break;
        }
    }
    return code;
}

enum belay_code local_freezes(struct backend *backend, const struct freeze_request *request,
                              belay_freeze_fn fn, void *context, struct belay_error *err)
{
    struct belay_client *client = local_client(backend);
    struct freezing work = { .client = client, .backend = backend, .request = request };
    enum belay_code code = check_support(client, err);

    if (code == BELAY_OK && request->kind == FREEZE_LIST) {
        code = list_current(&work, fn, context, err);
    } else if (code == BELAY_OK) {
        int tries = 0;

        do {
            code = try_change(&work, err);
        } while (code == BELAY_REFUSED && ++tries < TRIES_MAX);
        code = code == BELAY_REFUSED ? BELAY_UNREACHABLE : code;
    }
    if (code == BELAY_OK && request->kind != FREEZE_LIST) {
        record_changes(&work);
        atomic_store(&client->freeze_ended, true);
        for (size_t i = 0; i < work.changed.n; i++) {
            (void)tell(&work, &work.changed.items[i], fn, context);
        }
    }
    freezing_release(&work);
    return code;
}

/* ---- the API ---- */

static enum belay_code check_begin(const struct freeze_request *request, struct belay_error *err)
{
    enum belay_code code;

    if (request->pattern == NULL || request->pattern[0] == '\0') {
        return error_set(err, BELAY_INVALID,
                         "the pattern is empty: name the keys to freeze, such as 'deploy-*', or '*' for all");
    }
    if (request->reason == NULL || request->reason[0] == '\0') {
        return error_set(err, BELAY_INVALID, "a freeze needs a reason: everyone whom it stops is shown it");
    }
    if (request->until_unix_ms != 0 && request->for_ms != 0) {
        return error_set(err, BELAY_INVALID, "until and for both say when the freeze ends: give one of them");
    }
    if (request->for_ms < 0 || request->for_ms > UNIX_MS_MAX / 2) {
        return error_set(err, BELAY_INVALID, "a freeze for %lld ms: it must last longer than nothing",
                         (long long)request->for_ms);
    }
    code = client_check_text("pattern", request->pattern, BELAY_KEY_MAX, err);
    return code == BELAY_OK ? client_check_text("reason", request->reason, BELAY_REASON_MAX, err) : code;
}

static bool make_freeze_id(char out[BELAY_ID_MAX + 1])
{
    unsigned number;

    if (!random_bytes(&number, sizeof number)) {
        return false;
    }
    (void)snprintf(out, BELAY_ID_MAX + 1, "freeze-%08x", number);
    return true;
}

enum belay_code belay_freeze(struct belay_client *client, const char *pattern,
                             const struct belay_freeze_options *options, belay_freeze_fn fn, void *context,
                             struct belay_error *err)
{
    static const struct belay_freeze_options none = BELAY_FREEZE_OPTIONS_INIT;
    const struct belay_freeze_options *from = options == NULL ? &none : options;
    char id[BELAY_ID_MAX + 1];
    struct freeze_request request = { .kind = FREEZE_BEGIN,
                                      .id = from->id == NULL ? id : from->id,
                                      .pattern = pattern,
                                      .reason = from->reason,
                                      .by = from->by == NULL ? client_user_name(client) : from->by,
                                      .from_unix_ms = from->from_unix_ms,
                                      .until_unix_ms = from->until_unix_ms,
                                      .for_ms = from->for_ms };
    enum belay_code code = check_begin(&request, err);

    if (code == BELAY_OK) {
        code = client_check_text("name", request.by, BELAY_OWNER_MAX, err);
    }
    if (code == BELAY_OK && from->id == NULL && !make_freeze_id(id)) {
        code = error_set(err, BELAY_BUG, "the system gives no random bytes");
    }
    if (code == BELAY_OK) {
        code = lock_id_check(request.id, err);
    }
    if (code == BELAY_OK) {
        ROUTE(&client->route, code, err, freezes, &request, fn, context);
    }
    return code;
}

enum belay_code belay_unfreeze(struct belay_client *client, const char *id_or_pattern, const char *by,
                               const char *reason, belay_freeze_fn fn, void *context, struct belay_error *err)
{
    struct freeze_request request = { .kind = FREEZE_END,
                                      .id = id_or_pattern,
                                      .reason = reason,
                                      .by = by == NULL ? client_user_name(client) : by };
    enum belay_code code;

    if (id_or_pattern == NULL || id_or_pattern[0] == '\0') {
        return error_set(err, BELAY_INVALID,
                         "no freeze named: give its id or its pattern, as 'belay freezes' lists them");
    }
    code = client_check_text("pattern", id_or_pattern, BELAY_KEY_MAX, err);
    if (code == BELAY_OK && reason != NULL) {
        code = client_check_text("reason", reason, BELAY_REASON_MAX, err);
    }
    if (code == BELAY_OK) {
        code = client_check_text("name", request.by, BELAY_OWNER_MAX, err);
    }
    if (code == BELAY_OK) {
        ROUTE(&client->route, code, err, freezes, &request, fn, context);
    }
    return code;
}

enum belay_code belay_freezes(struct belay_client *client, belay_freeze_fn fn, void *context,
                              struct belay_error *err)
{
    struct freeze_request request = { .kind = FREEZE_LIST };
    enum belay_code code;

    ROUTE(&client->route, code, err, freezes, &request, fn, context);
    return code;
}
