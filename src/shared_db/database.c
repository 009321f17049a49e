/* The databases in the registry, and the last decision about each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "shared_db/stop_start.h"

enum { NAMES_SIZE_MAX = 64 << 10, DECISION_REASON_MAX = 16 << 10 };

/* ---- recording ---- */

static const char *join_names(struct buf *out, char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "%s%s", i == 0 ? "" : ",", names[i]);
    }
    return text_or_empty(out->data);
}

/* The decision as it is sent to a server and stored. NULL: no memory. */
static char *value_of(const struct belay_db_result *result, bool is_start, bool is_done)
{
    json_t *object = db_result_json(result, true);
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
 * The event is "db.stop.ACTION" or "db.start.ACTION"; before the action, "….decided".
 * The metrics of S3.9 are computed from these events.
 */
static enum belay_code write_decision(struct belay_client *client, const struct belay_db_result *result,
                                      bool is_start, bool is_done, struct belay_error *err)
{
    struct buf sharing = BUF_INIT(BELAY_META_VALUE_MAX), active = BUF_INIT(BELAY_META_VALUE_MAX);
    char attempts[24], lock_ms[24], reason[BELAY_REASON_MAX + 1], type[64];
    char *key = db_lock_key(result->database);
    char *value = value_of(result, is_start, is_done);
    bool is_error = is_done && result->action == BELAY_DB_ERROR;
    struct belay_meta metadata[] = { { "db_identifier", result->database },
                                     { "kind", result->kind },
                                     { "lock_acquire_attempts", attempts },
                                     { "lock_acquire_ms", lock_ms },
                                     { "sharing_apps", "" },
                                     { "active_apps", "" } };
    const struct belay_event event = { .level = is_error ? BELAY_LEVEL_WARNING : BELAY_LEVEL_INFO,
                                       .type = type,
                                       .key = key,
                                       .by = result->by,
                                       .reason = reason,
                                       .duration_ms = -1,
                                       .metadata = metadata,
                                       .n_metadata = sizeof metadata / sizeof metadata[0] };
    const struct client_decision decision = { .write = { .space = BELAY_SPACE_DATABASES,
                                                         .name = result->database,
                                                         .value = value,
                                                         .any_version = true },
                                              .is_done = is_done,
                                              .event = &event };
    enum belay_code code;

    (void)snprintf(type, sizeof type, "db.%s.%s", is_start ? "start" : "stop",
                   is_done ? belay_db_action_name(result->action) : "decided");
    (void)snprintf(reason, sizeof reason, "%s", text_or_empty(result->reason));
    (void)snprintf(attempts, sizeof attempts, "%d", result->lock_attempts);
    (void)snprintf(lock_ms, sizeof lock_ms, "%lld", (long long)result->lock_ms);
    metadata[4].value = join_names(&sharing, result->sharing_apps, result->n_sharing);
    metadata[5].value = join_names(&active, result->active_apps, result->n_active);
    code = key == NULL || value == NULL ? error_no_memory(err) : client_decide(client, &decision, err);
    free(key);
    free(value);
    buf_release(&sharing);
    buf_release(&active);
    return code;
}

void db_op_record(struct db_op *op, bool is_done)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (write_decision(op->client, op->result, op->is_start, is_done, &err) != BELAY_OK) {
        db_op_say(op, BELAY_LEVEL_WARNING, "cannot record the decision: %s", err.text);
    }
    belay_error_release(&err);
}

/* A client whose answer was lost sends the decision again: it counts once. */
static bool is_recorded_decision(struct belay_client *client, const struct belay_db_result *result,
                                 bool is_start)
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

/* A client of a server sends the decision, and every list of databases repeats it. */
static enum belay_code check_names(const char *member, char *const *names, size_t n, struct belay_error *err)
{
    size_t size = 0;

    for (size_t i = 0; i < n; i++) {
        if (!text_is_clean(names[i], BELAY_OWNER_MAX) || (size += strlen(names[i])) > NAMES_SIZE_MAX) {
            return error_set(
                err, BELAY_INVALID,
                "%s has a name that is not 1 to %d bytes of UTF-8 without control characters, or "
                "over %d KiB of names",
                member, BELAY_OWNER_MAX, NAMES_SIZE_MAX / 1024);
        }
    }
    return BELAY_OK;
}

static enum belay_code check_decision(const struct belay_db_result *result, struct belay_error *err)
{
    enum belay_code code = check_names("sharing_apps", result->sharing_apps, result->n_sharing, err);

    if (code == BELAY_OK) {
        code = check_names("active_apps", result->active_apps, result->n_active, err);
    }
    if (code == BELAY_OK && !text_is_clean(result->kind, BELAY_KIND_MAX)) {
        code = error_set(err, BELAY_INVALID, "kind must be 1 to %d bytes without control characters",
                         BELAY_KIND_MAX);
    }
    if (code == BELAY_OK && result->host != NULL && !text_is_clean(result->host, BELAY_DATABASE_MAX)) {
        code = error_set(err, BELAY_INVALID, "host must be 1 to %d bytes without control characters",
                         BELAY_DATABASE_MAX);
    }
    if (code == BELAY_OK && strlen(text_or_empty(result->reason)) > DECISION_REASON_MAX) {
        code = error_set(err, BELAY_INVALID, "reason has over %d bytes", DECISION_REASON_MAX);
    }
    return code;
}

enum belay_code belay_db_record_result(struct belay_client *client, const char *database,
                                       const char *result_json, struct belay_error *err)
{
    struct belay_db_result result = { 0 };
    enum belay_code code = db_result_read(result_json, &result, err);
    json_t *root = json_loads(result_json, 0, NULL);
    const char *verb = json_string_value(json_object_get(root, "verb"));
    bool is_start = verb != NULL && strcmp(verb, "start") == 0;
    bool is_done = !json_is_false(json_object_get(root, "is_done"));
    char *form = db_identifier(database);

    json_decref(root);
    if (code == BELAY_OK && (form == NULL || strcmp(form, database) != 0)) {
        code = error_set(
            err, BELAY_INVALID,
            "'%.200s' is not the identifier of a database: write an EC2 instance id or HOST:PORT, in "
            "lower case",
            database);
    }
    free(form);
    if (code == BELAY_OK) {
        code = check_decision(&result, err);
    }
    if (code == BELAY_OK && strcmp(result.database, database) != 0) {
        code = error_set(err, BELAY_INVALID, "the decision is about '%.200s', not about '%.200s'",
                         result.database, database);
    }
    if (code == BELAY_OK && !(is_done && is_recorded_decision(client, &result, is_start))) {
        code = write_decision(client, &result, is_start, is_done, err);
    }
    belay_db_result_release(&result);
    return code;
}

/* ---- listing ---- */

struct decisions {
    struct belay_db_result *list; /* owned */
    size_t n;
    size_t cap;
    bool failed;
};

static bool add_decision(void *context, const struct belay_item *item)
{
    struct decisions *decisions = context;
    struct belay_db_result *grown =
        array_grow(decisions->list, sizeof *grown, decisions->n + 1, &decisions->cap);

    if (grown == NULL) {
        decisions->failed = true;
        return false;
    }
    decisions->list = grown;
    /* An unreadable decision is only history: skip it. */
    if (db_result_read(item->value, &decisions->list[decisions->n], NULL) == BELAY_OK) {
        decisions->n++;
    }
    return true;
}

static void decisions_release(struct decisions *decisions)
{
    for (size_t i = 0; i < decisions->n; i++) {
        belay_db_result_release(&decisions->list[i]);
    }
    free(decisions->list);
}

/* The latest under either name: the name depends on what the registry knew at the time. */
static struct belay_db_result *latest_of(struct decisions *decisions, const char *id)
{
    struct belay_db_result *last = NULL;

    for (size_t i = 0; i < decisions->n; i++) {
        struct belay_db_result *one = &decisions->list[i];

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

/* Each identifier once. */
static bool collect_databases(const struct app_registry *registry, struct databases *all)
{
    size_t kept = 0;

    for (size_t i = 0; i < registry->n; i++) {
        for (size_t k = 0; k < registry->apps[i]->n_databases; k++) {
            struct belay_app_database *grown = array_grow(all->list, sizeof *grown, all->n + 1, &all->cap);

            if (grown == NULL) {
                return false;
            }
            all->list = grown;
            all->list[all->n++] = registry->apps[i]->databases[k];
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

/* Another entry is this database under its instance id. */
static bool is_alias(const struct db_names *names, const struct belay_app_database *database)
{
    for (size_t i = 0; !db_is_instance(database->id) && i < names->n_ids; i++) {
        if (db_is_instance(names->ids[i])) {
            return true;
        }
    }
    return false;
}

struct db_listing {
    const struct app_registry *registry;
    struct decisions *decisions;
    belay_database_fn fn;
    void *context;
    bool go_on;
};

static bool report_database(struct db_listing *listing, const struct belay_app_database *one,
                            const struct db_names *names)
{
    const struct app_registry *registry = listing->registry;
    struct belay_database database = {
        .id = one->id, .kind = one->kind, .host = one->host, .last = latest_of(listing->decisions, one->id)
    };

    database.users = calloc(registry->n + 1, sizeof *database.users);
    if (database.users == NULL) {
        return false;
    }
    for (size_t i = 0; i < registry->n; i++) {
        const struct belay_app *app = registry->apps[i];

        if (db_names_used_by(names, app)) {
            database.users[database.n_users++] =
                (struct belay_db_user){ app->name, app->state, app->since_unix_ms };
        }
    }
    listing->go_on = listing->fn(listing->context, &database);
    free(database.users);
    return true;
}

enum belay_code belay_db_list(struct belay_client *client, belay_database_fn fn, void *context,
                              struct belay_error *err)
{
    struct app_registry registry = { 0 };
    struct databases all = { 0 };
    struct decisions decisions = { 0 };
    struct db_listing listing = { &registry, &decisions, fn, context, true };
    bool is_partial; /* a hidden decision does no harm */
    enum belay_code code = registry_read(client, &registry, err);

    if (code == BELAY_OK) {
        code = client_item_list(client, BELAY_SPACE_DATABASES, add_decision, &decisions, &is_partial, err);
    }
    if (code == BELAY_OK && (decisions.failed || !collect_databases(&registry, &all))) {
        code = error_no_memory(err);
    }
    for (size_t i = 0; code == BELAY_OK && listing.go_on && i < all.n; i++) {
        struct db_names names = { 0 };

        if (!db_names_collect(&registry, &all.list[i], false, NULL, 0, &names) ||
            (!is_alias(&names, &all.list[i]) && !report_database(&listing, &all.list[i], &names))) {
            code = error_no_memory(err);
        }
        db_names_release(&names);
    }
    free(all.list);
    decisions_release(&decisions);
    registry_release(&registry);
    return code;
}
