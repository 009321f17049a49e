/* An application of the registry: building, checking, freeing. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "shared_db/shared_db_internal.h"

const char *belay_app_state_name(enum belay_app_state state)
{
    return state == BELAY_APP_STOPPED          ? "stopped"
           : state == BELAY_APP_STOP_REQUESTED ? "stop_requested"
                                               : "running";
}

bool app_state_parse(const char *text, enum belay_app_state *out_state)
{
    for (int i = BELAY_APP_RUNNING; text != NULL && i <= BELAY_APP_STOP_REQUESTED; i++) {
        if (strcmp(text, belay_app_state_name((enum belay_app_state)i)) == 0) {
            *out_state = (enum belay_app_state)i;
            return true;
        }
    }
    return false;
}

enum belay_code app_name_check(const char *name, struct belay_error *err)
{
    return name != NULL && app_name_is_valid(name)
               ? BELAY_OK
               : error_set(err, BELAY_INVALID,
                           "'%.140s' is not the name of an application: write 1 to %d letters, digits, '.', "
                           "'_', '-', '@', ':' and '+', a letter or digit first",
                           name == NULL ? "" : name, BELAY_APP_NAME_MAX);
}

void app_database_release(struct belay_app_database *database)
{
    free(database->kind);
    free(database->id);
    free(database->host);
}

void belay_app_free(struct belay_app *app)
{
    if (app == NULL) {
        return;
    }
    for (size_t i = 0; i < app->n_urls; i++) {
        free(app->urls[i]);
    }
    for (size_t i = 0; i < app->n_databases; i++) {
        app_database_release(&app->databases[i]);
    }
    meta_free(app->labels, app->n_labels);
    free(app->urls);
    free(app->databases);
    free(app->name);
    free(app->by);
    free(app);
}

/* ---- adding ---- */

enum belay_code belay_app_add_url(struct belay_app *app, const char *url, struct belay_error *err)
{
    char **grown;

    if (app->n_urls >= BELAY_APP_URLS_MAX) {
        return error_set(err, BELAY_INVALID, "an application has at most %d URLs", BELAY_APP_URLS_MAX);
    }
    grown = realloc(app->urls, (app->n_urls + 1) * sizeof *grown);
    if (grown == NULL) {
        return error_no_memory(err);
    }
    app->urls = grown;
    app->urls[app->n_urls] = strdup(url);
    if (app->urls[app->n_urls] == NULL) {
        return error_no_memory(err);
    }
    app->n_urls++;
    return BELAY_OK;
}

enum belay_code belay_app_add_label(struct belay_app *app, const char *name, const char *value,
                                    struct belay_error *err)
{
    struct belay_meta *grown;

    if (app->n_labels >= BELAY_APP_LABELS_MAX) {
        return error_set(err, BELAY_INVALID, "an application has at most %d labels", BELAY_APP_LABELS_MAX);
    }
    grown = realloc(app->labels, (app->n_labels + 1) * sizeof *grown);
    if (grown == NULL) {
        return error_no_memory(err);
    }
    app->labels = grown;
    app->labels[app->n_labels] = (struct belay_meta){ strdup(name), strdup(value) };
    app->n_labels++;
    return app->labels[app->n_labels - 1].name == NULL || app->labels[app->n_labels - 1].value == NULL
               ? error_no_memory(err)
               : BELAY_OK;
}

/* The canonical identifier; an invalid one is kept for belay_app_check() to report. */
static char *known_form(const char *text)
{
    char *form = db_identifier(text);

    return form != NULL ? form : strdup(text);
}

/* Takes ownership of the strings. */
static enum belay_code append_database(struct belay_app *app, struct belay_app_database database,
                                       struct belay_error *err)
{
    struct belay_app_database *grown = realloc(app->databases, (app->n_databases + 1) * sizeof *grown);

    if (grown == NULL) {
        app_database_release(&database);
        return error_no_memory(err);
    }
    app->databases = grown;
    app->databases[app->n_databases++] = database;
    return database.kind == NULL || database.id == NULL ? error_no_memory(err) : BELAY_OK;
}

enum belay_code belay_app_add_database(struct belay_app *app, const char *text, struct belay_error *err)
{
    const char *equals = strchr(text, '=');
    const char *at = equals == NULL ? NULL : strchr(equals, '@');
    char *id;
    enum belay_code code;

    if (equals == NULL || equals == text || equals[1] == '\0') {
        return error_set(err, BELAY_INVALID,
                         "database '%.200s': write KIND=ID, such as postgres=10.0.1.5:5432 or "
                         "neo4j=i-0123456789abcdef0",
                         text);
    }
    if (app->n_databases >= BELAY_APP_DATABASES_MAX) {
        return error_set(err, BELAY_INVALID, "an application has at most %d databases",
                         BELAY_APP_DATABASES_MAX);
    }
    id = at == NULL ? strdup(equals + 1) : strndup(equals + 1, (size_t)(at - equals - 1));
    if (id == NULL) {
        return error_no_memory(err);
    }
    code = append_database(app,
                           (struct belay_app_database){ .kind = strndup(text, (size_t)(equals - text)),
                                                        .id = known_form(id),
                                                        .host = at == NULL ? NULL : known_form(at + 1) },
                           err);
    free(id);
    return code;
}

/* ---- checking ---- */

static bool is_kind(const char *kind)
{
    size_t n = strspn(kind, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

    return n > 0 && n <= BELAY_KIND_MAX && kind[n] == '\0' && kind[0] != '-';
}

/* The configuration has a setting under databases.KIND. */
static bool is_configured(const struct belay_config *config, const char *kind)
{
    char prefix[BELAY_KIND_MAX + 16];

    (void)snprintf(prefix, sizeof prefix, "databases.%s.", kind);
    for (size_t i = 0; i < belay_config_count(config); i++) {
        if (text_has_prefix(belay_config_setting(config, i).name, prefix)) {
            return true;
        }
    }
    return false;
}

static enum belay_code check_database_kind(const struct belay_config *config, const struct belay_app *app,
                                           const char *kind, struct belay_error *err)
{
    bool is_known = strcmp(kind, "postgres") == 0 || strcmp(kind, "neo4j") == 0;

    if (!is_kind(kind)) {
        return error_set(
            err, BELAY_INVALID,
            "application '%.128s': '%.80s' is not a kind of database: write postgres, neo4j, or "
            "a name of letters, digits, '_' and '-' that the configuration has under 'databases'",
            app->name, kind);
    }
    if (config != NULL && !is_known && !is_configured(config, kind)) {
        return error_set(
            err, BELAY_INVALID,
            "application '%.128s': kind '%.64s' is not known: use postgres or neo4j, or say under "
            "'databases' in the configuration how a '%.64s' is stopped and started",
            app->name, kind, kind);
    }
    return BELAY_OK;
}

static enum belay_code check_identifier(const struct belay_app *app, const char *id, struct belay_error *err)
{
    char *form = strlen(id) > BELAY_DATABASE_MAX ? NULL : db_identifier(id);

    free(form);
    if (form == NULL) {
        return error_set(err, BELAY_INVALID,
                         "application '%.128s': database '%.200s' is neither an EC2 instance id (such as "
                         "i-0123456789abcdef0) nor HOST:PORT (such as 10.0.1.5:5432)",
                         app->name, id);
    }
    return BELAY_OK;
}

static enum belay_code check_app_database(const struct belay_config *config, const struct belay_app *app,
                                          size_t i, struct belay_error *err)
{
    const struct belay_app_database *database = &app->databases[i];
    enum belay_code code = check_database_kind(config, app, database->kind, err);

    if (code == BELAY_OK) {
        code = check_identifier(app, database->id, err);
    }
    if (code == BELAY_OK && database->host != NULL) {
        code = check_identifier(app, database->host, err);
    }
    if (code == BELAY_OK && database->host != NULL &&
        (!db_is_instance(database->id) || db_is_instance(database->host))) {
        code =
            error_set(err, BELAY_INVALID,
                      "application '%.128s': database '%.100s@%.100s': write an instance id before the '@' "
                      "and HOST:PORT after it",
                      app->name, database->id, database->host);
    }
    for (size_t k = 0; code == BELAY_OK && k < i; k++) {
        if (db_is_same(database, &app->databases[k])) {
            code = error_set(err, BELAY_INVALID, "application '%.128s': database '%.200s' is named twice",
                             app->name, database->id);
        }
    }
    return code;
}

static enum belay_code check_urls(const struct belay_app *app, struct belay_error *err)
{
    if (app->n_urls == 0) {
        return error_set(err, BELAY_INVALID,
                         "application '%.128s' has no URL for its health check: give one, such as "
                         "https://shop.example/health",
                         app->name);
    }
    for (size_t i = 0; i < app->n_urls; i++) {
        if (!app_url_is_valid(app->urls[i])) {
            return error_set(
                err, BELAY_INVALID,
                "application '%.128s': '%.200s' is not a valid health URL: write http://HOST[:PORT]/PATH "
                "or https://..., without a password",
                app->name, app->urls[i]);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(app->urls[i], app->urls[k]) == 0) {
                return error_set(err, BELAY_INVALID, "application '%.128s': URL '%.200s' is named twice",
                                 app->name, app->urls[i]);
            }
        }
    }
    return BELAY_OK;
}

static enum belay_code check_labels(const struct belay_app *app, struct belay_error *err)
{
    for (size_t i = 0; i < app->n_labels; i++) {
        if (!text_is_clean(app->labels[i].name, BELAY_META_NAME_MAX) ||
            (app->labels[i].value[0] != '\0' && !text_is_clean(app->labels[i].value, BELAY_META_VALUE_MAX))) {
            return error_set(err, BELAY_INVALID,
                             "application '%.128s': label '%.80s': write NAME=VALUE, one line each",
                             app->name, app->labels[i].name);
        }
    }
    return BELAY_OK;
}

enum belay_code belay_app_check(const struct belay_config *config, const struct belay_app *app,
                                struct belay_error *err)
{
    enum belay_code code;

    if (app->name == NULL || app->name[0] == '\0') {
        return error_set(err, BELAY_INVALID, "the application has no name: give it one, such as shop");
    }
    code = app_name_check(app->name, err);
    if (code == BELAY_OK) {
        code = check_urls(app, err);
    }
    for (size_t i = 0; code == BELAY_OK && i < app->n_databases; i++) {
        code = check_app_database(config, app, i, err);
    }
    return code == BELAY_OK ? check_labels(app, err) : code;
}
