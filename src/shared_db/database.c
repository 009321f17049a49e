/* Databases as the registry implies them, and what was last decided about each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "shared_db/stop_start.h"

/* ---- recording ---- */

static void add_names(struct buf *out, char *const *names, size_t n)
{
    buf_adds(out, "");
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "%s%s", i == 0 ? "" : ",", names[i]);
    }
}

/* What a server is told, and what is kept as the last decision. NULL: no memory. */
static char *value_of(const struct belay_db_result *result, bool is_start, bool is_done)
{
    json_t *object = guard_result_json(result, true);
    char *value;

    (void)json_object_set_new(object, "verb", json_string(is_start ? "start" : "stop"));
    if (!is_done) {
        (void)json_object_set_new(object, "is_done", json_false());
    }
    value = json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(object);
    return value;
}

/*
 * "db.stop.skipped_lock"; a start's are "db.start.…"; before it is done, "….decided".
 * The metrics of S3.9 are made of these: what, of which database, how many tries for the lock, how long.
 */
static enum belay_code keep(struct belay_client *client, const struct belay_db_result *result, bool is_start,
                            bool is_done, struct belay_error *err)
{
    struct buf sharing = BUF_INIT(BELAY_META_VALUE_MAX), active = BUF_INIT(BELAY_META_VALUE_MAX);
    char attempts[24], lock_ms[24], reason[BELAY_REASON_MAX + 1], type[64];
    char *key = guard_lock_key(result->database);
    char *value = value_of(result, is_start, is_done);
    enum belay_code code = BELAY_OK;
    bool is_error = is_done && result->action == BELAY_DB_ERROR;
    struct belay_event event = { .level = is_error ? BELAY_LEVEL_WARNING : BELAY_LEVEL_INFO,
                                 .type = type,
                                 .key = key,
                                 .by = result->by,
                                 .reason = reason,
                                 .duration_ms = -1 };

    (void)snprintf(type, sizeof type, "db.%s.%s", is_start ? "start" : "stop",
                   is_done ? belay_db_action_name(result->action) : "decided");
    (void)snprintf(reason, sizeof reason, "%s", result->reason == NULL ? "" : result->reason);
    (void)snprintf(attempts, sizeof attempts, "%d", result->lock_attempts);
    (void)snprintf(lock_ms, sizeof lock_ms, "%lld", (long long)result->lock_ms);
    add_names(&sharing, result->sharing_apps, result->n_sharing);
    add_names(&active, result->active_apps, result->n_active);
    {
        const struct belay_meta metadata[] = { { "db_identifier", result->database },
                                               { "kind", result->kind },
                                               { "lock_acquire_attempts", attempts },
                                               { "lock_acquire_ms", lock_ms },
                                               { "sharing_apps", sharing.data == NULL ? "" : sharing.data },
                                               { "active_apps", active.data == NULL ? "" : active.data } };

        const struct client_decision decision = {
            .write = { .space = BELAY_SPACE_DATABASES,
                       .name = result->database,
                       .value = value,
                       .any_version = true },
            .is_done = is_done,
            .event = &event,
        };

        event.metadata = metadata;
        event.n_metadata = sizeof metadata / sizeof metadata[0];
        code = key == NULL || value == NULL ? error_no_memory(err) : client_decide(client, &decision, err);
    }
    free(key);
    free(value);
    buf_release(&sharing);
    buf_release(&active);
    return code;
}

static void record(struct guard_run *run, bool is_done)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (keep(run->client, run->result, run->is_start, is_done, &err) != BELAY_OK) {
        run_say(run, BELAY_LEVEL_WARNING, "the decision could not be recorded: %s", err.text);
    }
    belay_error_release(&err);
}

void run_record_begun(struct guard_run *run)
{
    record(run, false);
}

void run_record(struct guard_run *run)
{
    record(run, true);
}

/* After an answer that was lost it is told again, and is one decision. */
static bool is_kept_already(struct belay_client *client, const struct belay_db_result *result, bool is_start)
{
    struct belay_item item = { 0 };
    char *value = value_of(result, is_start, true);
    bool is_same = false;

    if (value != NULL && result->at_unix_ms != 0 &&
        client_item_get(client, BELAY_SPACE_DATABASES, result->database, &item, NULL) == BELAY_OK) {
        is_same = item.value != NULL && strcmp(item.value, value) == 0;
    }
    belay_item_release(&item);
    free(value);
    return is_same;
}

enum belay_code belay_db_record_result(struct belay_client *client, const char *database,
                                       const char *result_json, struct belay_error *err)
{
    struct belay_db_result result = { 0 };
    enum belay_code code = guard_result_read(result_json, &result, err);
    json_t *root = json_loads(result_json, 0, NULL);
    const char *verb = json_string_value(json_object_get(root, "verb"));
    bool is_start = verb != NULL && strcmp(verb, "start") == 0;
    bool is_done = !json_is_false(json_object_get(root, "is_done"));
    char *form = guard_identifier(database);

    json_decref(root);
    if (code == BELAY_OK && (form == NULL || strcmp(form, database) != 0)) {
        code = error_set(
            err, BELAY_INVALID,
            "'%.200s' is not the identifier of a database: an EC2 instance id, else HOST:PORT, in lower "
            "case",
            database);
    }
    free(form);
    if (code == BELAY_OK && strcmp(result.database, database) != 0) {
        code = error_set(err, BELAY_INVALID, "the decision is about '%.200s', not about '%.200s'",
                         result.database, database);
    }
    if (code == BELAY_OK && !(is_done && is_kept_already(client, &result, is_start))) {
        code = keep(client, &result, is_start, is_done, err);
    }
    belay_db_result_release(&result);
    return code;
}

/* ---- listing ---- */

struct lasts {
    struct belay_db_result *list; /* owned */
    size_t n;
    size_t cap;
    bool failed;
};

static bool on_last(void *context, const struct belay_item *item)
{
    struct lasts *lasts = context;

    if (lasts->n == lasts->cap) {
        size_t cap = lasts->cap == 0 ? 16 : 2 * lasts->cap;
        struct belay_db_result *grown = realloc(lasts->list, cap * sizeof *grown);

        if (grown == NULL) {
            lasts->failed = true;
            return false;
        }
        lasts->list = grown;
        lasts->cap = cap;
    }
    /* One that cannot be read is history, and keeps nobody from anything. */
    if (guard_result_read(item->value, &lasts->list[lasts->n], NULL) == BELAY_OK) {
        lasts->n++;
    }
    return true;
}

static void lasts_release(struct lasts *lasts)
{
    for (size_t i = 0; i < lasts->n; i++) {
        belay_db_result_release(&lasts->list[i]);
    }
    free(lasts->list);
}

/* The latest under any of its names: which of them it was decided under depends on who knew what then. */
static struct belay_db_result *last_of(struct lasts *lasts, const char *id)
{
    struct belay_db_result *last = NULL;

    for (size_t i = 0; i < lasts->n; i++) {
        struct belay_db_result *one = &lasts->list[i];

        if ((strcmp(one->database, id) == 0 || (one->host != NULL && strcmp(one->host, id) == 0)) &&
            (last == NULL || one->at_unix_ms > last->at_unix_ms)) {
            last = one;
        }
    }
    return last;
}

struct databases {
    struct belay_app_database *list; /* owned array, borrowed texts */
    size_t n;
    size_t cap;
};

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct belay_app_database *)a)->id, ((const struct belay_app_database *)b)->id);
}

/* Each once, under the name that counts. */
static bool collect(const struct guard_registry *registry, struct databases *all)
{
    size_t kept = 0;

    for (size_t i = 0; i < registry->n; i++) {
        for (size_t k = 0; k < registry->apps[i]->n_databases; k++) {
            const struct belay_app_database *one = &registry->apps[i]->databases[k];

            if (all->n == all->cap) {
                size_t cap = all->cap == 0 ? 64 : 2 * all->cap;
                struct belay_app_database *grown = realloc(all->list, cap * sizeof *grown);

                if (grown == NULL) {
                    return false;
                }
                all->list = grown;
                all->cap = cap;
            }
            all->list[all->n++] = *one;
        }
    }
    if (all->n > 0) {
        qsort(all->list, all->n, sizeof *all->list, by_id);
    }
    for (size_t i = 0; i < all->n; i++) {
        if (i == 0 || strcmp(all->list[i].id, all->list[kept - 1].id) != 0) {
            all->list[kept++] = all->list[i];
        } else if (all->list[kept - 1].host == NULL) {
            all->list[kept - 1].host = all->list[i].host;
        }
    }
    all->n = kept;
    return true;
}

/* Another entry is this database under a name that counts more. */
static bool is_alias(const struct guard_names *names, const struct belay_app_database *database)
{
    for (size_t i = 0; !guard_is_instance(database->id) && i < names->n_ids; i++) {
        if (guard_is_instance(names->ids[i])) {
            return true;
        }
    }
    return false;
}

struct telling {
    const struct guard_registry *registry;
    struct lasts *lasts;
    belay_database_fn fn;
    void *context;
    bool go_on;
};

static bool tell_one(struct telling *telling, const struct belay_app_database *one,
                     const struct guard_names *names)
{
    const struct guard_registry *registry = telling->registry;
    struct belay_database database = {
        .id = one->id, .kind = one->kind, .host = one->host, .last = last_of(telling->lasts, one->id)
    };

    database.users = calloc(registry->n + 1, sizeof *database.users);
    if (database.users == NULL) {
        return false;
    }
    for (size_t i = 0; i < registry->n; i++) {
        const struct belay_app *app = registry->apps[i];

        if (names_used_by(names, app)) {
            database.users[database.n_users++] =
                (struct belay_db_user){ app->name, app->state, app->since_unix_ms };
        }
    }
    telling->go_on = telling->fn(telling->context, &database);
    free(database.users);
    return true;
}

enum belay_code belay_db_list(struct belay_client *client, belay_database_fn fn, void *context,
                              struct belay_error *err)
{
    struct guard_registry registry = { 0 };
    struct databases all = { 0 };
    struct lasts lasts = { 0 };
    struct telling telling = { &registry, &lasts, fn, context, true };
    bool is_partial; /* a decision less is no harm */
    enum belay_code code = guard_registry_read(client, &registry, err);

    if (code == BELAY_OK) {
        code = client_item_list(client, BELAY_SPACE_DATABASES, on_last, &lasts, &is_partial, err);
    }
    if (code == BELAY_OK && (lasts.failed || !collect(&registry, &all))) {
        code = error_no_memory(err);
    }
    for (size_t i = 0; code == BELAY_OK && telling.go_on && i < all.n; i++) {
        struct guard_names names = { 0 };

        if (!names_collect(&registry, &all.list[i], false, NULL, 0, &names) ||
            (!is_alias(&names, &all.list[i]) && !tell_one(&telling, &all.list[i], &names))) {
            code = error_no_memory(err);
        }
        names_release(&names);
    }
    free(all.list);
    lasts_release(&lasts);
    guard_registry_release(&registry);
    return code;
}
