/* Applications, statuses and decisions as JSON, for the store, the commands and HTTP. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "shared_db/shared_db_internal.h"
#include "json/json_write.h"

/* One line of ASCII, safe for a terminal. Takes the reference. */
static char *dump_line(json_t *value)
{
    char *line = value == NULL ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);

    json_decref(value);
    return line;
}

static json_t *names_json(char *const *names, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        (void)json_array_append_new(list, wire_text(names[i]));
    }
    return list;
}

static json_t *http_code_json(int http_code)
{
    return http_code == 0 ? json_null() : json_integer(http_code);
}

/* ---- applications ---- */

static json_t *databases_json(const struct belay_app *app)
{
    json_t *list = json_array();

    for (size_t i = 0; i < app->n_databases; i++) {
        (void)json_array_append_new(
            list, json_pack("{s:o,s:o,s:o}", "kind", wire_text(app->databases[i].kind), "id",
                            wire_text(app->databases[i].id), "host", wire_text(app->databases[i].host)));
    }
    return list;
}

char *belay_app_to_json(const struct belay_app *app)
{
    json_t *labels = json_object();

    for (size_t i = 0; i < app->n_labels; i++) {
        (void)json_object_set_new(labels, app->labels[i].name, wire_text(app->labels[i].value));
    }
    return dump_line(json_pack("{s:o,s:o,s:o,s:o,s:s,s:o,s:o,s:b,s:I}", "name", wire_text(app->name), "urls",
                               names_json(app->urls, app->n_urls), "databases", databases_json(app), "labels",
                               labels, "state", belay_app_state_name(app->state), "since",
                               wire_time(app->since_unix_ms), "by", wire_text(app->by), "public_only",
                               app->public_only ? 1 : 0, "version", (json_int_t)app->version));
}

static enum belay_code fail_member(const char *name, const char *right, struct belay_error *err)
{
    return error_set(err, BELAY_INVALID, "'%s' must be %s", name, right);
}

static enum belay_code read_url_member(struct belay_app *app, const json_t *value, struct belay_error *err)
{
    return json_is_string(value) ? belay_app_add_url(app, json_string_value(value), err)
                                 : fail_member("urls", "a list of URLs", err);
}

/* "postgres=10.0.1.5:5432", or {"kind", "id", "host"}. */
static enum belay_code read_database_member(struct belay_app *app, const json_t *value,
                                            struct belay_error *err)
{
    const char *kind = json_string_value(json_object_get(value, "kind"));
    const char *id = json_string_value(json_object_get(value, "id"));
    const char *host = json_string_value(json_object_get(value, "host"));
    char text[2 * BELAY_DATABASE_MAX + BELAY_KIND_MAX + 8];

    if (json_is_string(value)) {
        return belay_app_add_database(app, json_string_value(value), err);
    }
    if (kind == NULL || id == NULL || strlen(kind) > BELAY_KIND_MAX || strlen(id) > BELAY_DATABASE_MAX ||
        (host != NULL && strlen(host) > BELAY_DATABASE_MAX)) {
        return fail_member("databases", "a list of {\"kind\", \"id\"} or of \"KIND=ID\"", err);
    }
    (void)snprintf(text, sizeof text, "%s=%s%s%s", kind, id, host == NULL ? "" : "@",
                   host == NULL ? "" : host);
    return belay_app_add_database(app, text, err);
}

typedef enum belay_code add_member_fn(struct belay_app *app, const json_t *value, struct belay_error *err);

static enum belay_code read_list(struct belay_app *app, const char *name, const char *right,
                                 const json_t *list, add_member_fn *add, struct belay_error *err)
{
    enum belay_code code = json_is_array(list) ? BELAY_OK : fail_member(name, right, err);

    for (size_t i = 0; code == BELAY_OK && i < json_array_size(list); i++) {
        code = add(app, json_array_get(list, i), err);
    }
    return code;
}

static enum belay_code read_labels(struct belay_app *app, json_t *labels, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    const char *name;
    json_t *value;

    if (!json_is_object(labels)) {
        return fail_member("labels", "an object of strings", err);
    }
    json_object_foreach(labels, name, value)
    {
        if (code == BELAY_OK) {
            code = json_is_string(value) ? belay_app_add_label(app, name, json_string_value(value), err)
                                         : fail_member("labels", "an object of strings", err);
        }
    }
    return code;
}

static enum belay_code read_copy(const char *name, const json_t *value, char **out, struct belay_error *err)
{
    const char *text = json_string_value(value);

    if (json_is_null(value)) {
        return BELAY_OK;
    }
    if (text == NULL) {
        return fail_member(name, "a string", err);
    }
    free(*out);
    *out = strdup(text);
    return *out == NULL ? error_no_memory(err) : BELAY_OK;
}

static enum belay_code read_member(struct belay_app *app, const char *name, json_t *value,
                                   struct belay_error *err)
{
    if (strcmp(name, "name") == 0) {
        return read_copy(name, value, &app->name, err);
    }
    if (strcmp(name, "urls") == 0) {
        return read_list(app, name, "a list of URLs", value, read_url_member, err);
    }
    if (strcmp(name, "databases") == 0) {
        return read_list(app, name, "a list", value, read_database_member, err);
    }
    if (strcmp(name, "labels") == 0) {
        return read_labels(app, value, err);
    }
    if (strcmp(name, "state") == 0) {
        return app_state_parse(json_string_value(value), &app->state)
                   ? BELAY_OK
                   : fail_member(name, "running, stopped or stop_requested", err);
    }
    if (strcmp(name, "by") == 0) {
        return read_copy(name, value, &app->by, err);
    }
    if (strcmp(name, "since") == 0) {
        app->since_unix_ms = clock_parse_utc(json_string_value(value));
        return BELAY_OK;
    }
    if (strcmp(name, "public_only") == 0 && json_is_boolean(value)) {
        app->public_only = json_is_true(value);
        return BELAY_OK;
    }
    if (strcmp(name, "version") == 0 && json_is_integer(value)) {
        app->version = (uint64_t)json_integer_value(value);
        return BELAY_OK;
    }
    return error_set(err, BELAY_INVALID,
                     "an application has no '%.60s'; it has name, urls, databases, labels, state", name);
}

enum belay_code belay_app_from_json(const char *text, size_t len, struct belay_app **out_app,
                                    struct belay_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    struct belay_app *app = calloc(1, sizeof *app);
    enum belay_code code = app == NULL ? error_no_memory(err) : BELAY_OK;
    const char *name;
    json_t *value;

    if (code == BELAY_OK && !json_is_object(root)) {
        code = error_set(err, BELAY_INVALID, "an application must be a JSON object: %.160s",
                         root == NULL ? where.text : "this is another value");
    }
    json_object_foreach(root, name, value)
    {
        if (code == BELAY_OK) {
            code = read_member(app, name, value, err);
        }
    }
    if (code == BELAY_OK) {
        *out_app = app;
        app = NULL; /* the caller's now */
    }
    json_decref(root);
    belay_app_free(app);
    return code;
}

/* ---- statuses ---- */

char *belay_app_status_to_json(const struct belay_app_status *status, bool urls)
{
    json_t *object = json_pack("{s:o,s:s,s:o,s:o,s:o,s:b}", "app", wire_text(status->app), "status",
                               belay_health_name(status->status), "http_code",
                               http_code_json(status->http_code), "timestamp", wire_time(status->at_unix_ms),
                               "reason", wire_text(status->reason), "connected", status->connected ? 1 : 0);
    json_t *list = json_array();

    for (size_t i = 0; i < status->n_urls; i++) {
        const struct belay_url_status *one = &status->urls[i];

        (void)json_array_append_new(
            list, json_pack("{s:o,s:s,s:o,s:I,s:o,s:b}", "url", wire_text(one->url), "status",
                            belay_health_name(one->status), "http_code", http_code_json(one->http_code),
                            "took_ms", (json_int_t)one->took_ms, "reason", wire_text(one->reason),
                            "connected", one->connected ? 1 : 0));
    }
    if (urls) {
        (void)json_object_set(object, "urls", list);
    }
    json_decref(list);
    return dump_line(object);
}

/* ---- decisions ---- */

json_t *db_result_json(const struct belay_db_result *result, bool whole)
{
    json_t *object =
        json_pack("{s:o,s:o,s:o,s:s,s:o,s:b,s:o,s:o}", "database", wire_text(result->database), "kind",
                  wire_text(result->kind), "host", wire_text(result->host), "action",
                  belay_db_action_name(result->action), "reason", wire_text(result->reason), "shared",
                  result->shared ? 1 : 0, "sharing_apps", names_json(result->sharing_apps, result->n_sharing),
                  "active_apps", names_json(result->active_apps, result->n_active));

    if (whole && object != NULL) {
        (void)json_object_set_new(object, "lock_attempts", json_integer(result->lock_attempts));
        (void)json_object_set_new(object, "lock_ms", json_integer(result->lock_ms));
        (void)json_object_set_new(object, "at", wire_time(result->at_unix_ms));
        (void)json_object_set_new(object, "by", wire_text(result->by));
    }
    return object;
}

char *belay_db_results_to_json(const struct belay_db_results *results)
{
    json_t *list = json_array();

    for (size_t i = 0; i < results->n; i++) {
        (void)json_array_append_new(list, db_result_json(&results->results[i], false));
    }
    return dump_line(json_pack("{s:o}", "results", list));
}

static bool read_names(const json_t *list, char ***out_names, size_t *out_n)
{
    size_t n = json_array_size(list);
    char **names = n == 0 ? NULL : calloc(n, sizeof *names);

    if (n > 0 && names == NULL) {
        return false;
    }
    *out_names = names;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));

        names[i] = strdup(name == NULL ? "?" : name);
        *out_n = i + 1;
        if (names[i] == NULL) {
            return false;
        }
    }
    return true;
}

static char *copy_member(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text == NULL ? NULL : strdup(text);
}

enum belay_code db_result_read(const char *text, struct belay_db_result *out_result, struct belay_error *err)
{
    struct belay_db_result result = { 0 };
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    bool ok = db_action_parse(json_string_value(json_object_get(root, "action")), &result.action);

    result.database = copy_member(root, "database");
    result.kind = copy_member(root, "kind");
    result.host = copy_member(root, "host");
    result.reason = copy_member(root, "reason");
    result.by = copy_member(root, "by");
    result.shared = json_is_true(json_object_get(root, "shared"));
    result.lock_attempts = (int)json_integer_value(json_object_get(root, "lock_attempts"));
    result.lock_ms = json_integer_value(json_object_get(root, "lock_ms"));
    result.at_unix_ms = clock_parse_utc(json_string_value(json_object_get(root, "at")));
    ok = ok && result.database != NULL && result.kind != NULL &&
         read_names(json_object_get(root, "sharing_apps"), &result.sharing_apps, &result.n_sharing) &&
         read_names(json_object_get(root, "active_apps"), &result.active_apps, &result.n_active);
    json_decref(root);
    if (!ok) {
        belay_db_result_release(&result);
        return error_set(err, BELAY_INVALID,
                         "a decision must have database, kind, action, reason, shared, sharing_apps and "
                         "active_apps");
    }
    *out_result = result;
    return BELAY_OK;
}

char *belay_database_to_json(const struct belay_database *database)
{
    json_t *users = json_array();

    for (size_t i = 0; i < database->n_users; i++) {
        const struct belay_db_user *user = &database->users[i];

        (void)json_array_append_new(users, json_pack("{s:o,s:s,s:o}", "app", wire_text(user->app), "state",
                                                     belay_app_state_name(user->state), "since",
                                                     wire_time(user->since_unix_ms)));
    }
    return dump_line(json_pack("{s:o,s:o,s:o,s:b,s:o,s:o}", "database", wire_text(database->id), "kind",
                               wire_text(database->kind), "host", wire_text(database->host), "shared",
                               database->n_users > 1 ? 1 : 0, "apps", users, "last",
                               database->last == NULL ? json_null() : db_result_json(database->last, true)));
}
