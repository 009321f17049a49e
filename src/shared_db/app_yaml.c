/*
 * Applications as YAML. An export imports unchanged: strings are quoted as in JSON,
 * which is valid YAML.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "config/yaml_tree.h"
#include "shared_db/shared_db_internal.h"
#include "json/json_write.h"

struct app_yaml_reader {
    const struct belay_config *config;
    const char *path;
    struct app_registry apps; /* owned */
    struct belay_error *err;
};

/* ---- reader ---- */

/* Put "FILE:LINE: " before the message of the registry's checks. */
static enum belay_code fail_inside(struct app_yaml_reader *reader, size_t line)
{
    reader->err->code = BELAY_BAD_CONTENT;
    return error_wrap(reader->err, "%.200s:%zu", reader->path, line);
}

static enum belay_code fail_line(struct app_yaml_reader *reader, size_t line, const char *text)
{
    (void)error_set(reader->err, BELAY_BAD_CONTENT, "%s", text);
    return fail_inside(reader, line);
}

typedef enum belay_code (*add_fn)(struct belay_app *app, const char *text, struct belay_error *err);

/* A list of strings, or one string. */
static enum belay_code read_yaml_texts(struct app_yaml_reader *reader, struct belay_app *app,
                                       const struct yaml_node *node, add_fn add)
{
    const struct yaml_node *items = node->kind == YAML_NODE_TEXT ? node : node->items;
    size_t n = node->kind == YAML_NODE_TEXT ? 1 : node->n;

    if (node->kind != YAML_NODE_TEXT && node->kind != YAML_NODE_LIST) {
        return fail_line(reader, node->line,
                         "must be a list, such as [https://shop.example/health] or [postgres=10.0.1.5:5432]");
    }
    for (size_t i = 0; i < n; i++) {
        if (items[i].kind != YAML_NODE_TEXT) {
            return fail_line(reader, items[i].line,
                             "must be one string, such as https://shop.example/health or "
                             "postgres=10.0.1.5:5432");
        }
        if (add(app, items[i].text, reader->err) != BELAY_OK) {
            return fail_inside(reader, items[i].line);
        }
    }
    return BELAY_OK;
}

static enum belay_code read_yaml_labels(struct app_yaml_reader *reader, struct belay_app *app,
                                        const struct yaml_node *node)
{
    if (node->kind == YAML_NODE_EMPTY) {
        return BELAY_OK;
    }
    if (node->kind != YAML_NODE_MAP) {
        return fail_line(reader, node->line, "labels must be names with values (NAME: VALUE)");
    }
    for (size_t i = 0; i < node->n; i++) {
        const struct yaml_node *item = &node->items[i];

        if (item->kind != YAML_NODE_TEXT) {
            return fail_line(reader, item->line, "the value of a label must be one string");
        }
        if (belay_app_add_label(app, item->name, item->text, reader->err) != BELAY_OK) {
            return fail_inside(reader, item->line);
        }
    }
    return BELAY_OK;
}

static enum belay_code read_yaml_state(struct app_yaml_reader *reader, struct belay_app *app,
                                       const struct yaml_node *node)
{
    if (node->kind != YAML_NODE_TEXT || !app_state_parse(node->text, &app->state)) {
        return fail_line(reader, node->line, "state must be running, stopped or stop_requested");
    }
    if (app->since_unix_ms == 0) { /* without 'since' the state is as of now */
        app->since_unix_ms = clock_unix_ms();
    }
    app->by = strdup("import");
    return app->by == NULL ? error_no_memory(reader->err) : BELAY_OK;
}

/* The record keeps its age: importing an old export does not renew it. */
static enum belay_code read_yaml_since(struct app_yaml_reader *reader, struct belay_app *app,
                                       const struct yaml_node *node)
{
    int64_t since_unix_ms = node->kind == YAML_NODE_TEXT ? clock_parse_utc(node->text) : 0;

    if (since_unix_ms == 0) {
        return fail_line(reader, node->line, "since must be a time, such as 2026-11-16T01:40:28Z");
    }
    app->since_unix_ms = since_unix_ms;
    return BELAY_OK;
}

static enum belay_code read_yaml_member(struct app_yaml_reader *reader, struct belay_app *app,
                                        const struct yaml_node *node)
{
    if (strcmp(node->name, "name") == 0) {
        if (node->kind != YAML_NODE_TEXT) {
            return fail_line(reader, node->line, "name must be one string");
        }
        app->name = strdup(node->text);
        return app->name == NULL ? error_no_memory(reader->err) : BELAY_OK;
    }
    if (strcmp(node->name, "urls") == 0 || strcmp(node->name, "url") == 0) {
        return read_yaml_texts(reader, app, node, belay_app_add_url);
    }
    if (strcmp(node->name, "databases") == 0 || strcmp(node->name, "database") == 0) {
        return node->kind == YAML_NODE_EMPTY ? BELAY_OK
                                             : read_yaml_texts(reader, app, node, belay_app_add_database);
    }
    if (strcmp(node->name, "labels") == 0) {
        return read_yaml_labels(reader, app, node);
    }
    if (strcmp(node->name, "state") == 0) {
        return read_yaml_state(reader, app, node);
    }
    if (strcmp(node->name, "since") == 0) {
        return read_yaml_since(reader, app, node);
    }
    (void)error_set(reader->err, BELAY_BAD_CONTENT,
                    "an application has no '%.60s'; it has name, urls, databases, labels, state, since",
                    node->name);
    return fail_inside(reader, node->line);
}

static enum belay_code check_unique(struct app_yaml_reader *reader, const struct belay_app *app, size_t line)
{
    if (registry_find_app(&reader->apps, app->name) == NULL) {
        return BELAY_OK;
    }
    (void)error_set(reader->err, BELAY_BAD_CONTENT,
                    "application '%.128s' is in the file twice; give each its own name", app->name);
    return fail_inside(reader, line);
}

static enum belay_code read_yaml_app(struct app_yaml_reader *reader, const struct yaml_node *node)
{
    struct belay_app *app;
    enum belay_code code = BELAY_OK;

    if (node->kind != YAML_NODE_MAP) {
        return fail_line(reader, node->line,
                         "an application must be names with values, the first of them name: NAME");
    }
    app = calloc(1, sizeof *app);
    if (app == NULL) {
        return error_no_memory(reader->err);
    }
    for (size_t i = 0; code == BELAY_OK && i < node->n; i++) {
        code = read_yaml_member(reader, app, &node->items[i]);
    }
    if (code == BELAY_OK && belay_app_check(reader->config, app, reader->err) != BELAY_OK) {
        code = fail_inside(reader, node->line);
    }
    if (code == BELAY_OK) {
        code = check_unique(reader, app, node->line);
    }
    if (code == BELAY_OK && !registry_add(&reader->apps, app)) {
        code = error_no_memory(reader->err);
    }
    if (code == BELAY_OK) {
        app = NULL; /* the registry's now */
    }
    belay_app_free(app);
    return code;
}

static enum belay_code read_root(struct app_yaml_reader *reader, const struct yaml_node *root)
{
    enum belay_code code = BELAY_OK;

    if (root->kind != YAML_NODE_MAP || root->n != 1 || strcmp(root->items[0].name, "apps") != 0 ||
        (root->items[0].kind != YAML_NODE_LIST && root->items[0].kind != YAML_NODE_EMPTY)) {
        return fail_line(
            reader, root->line,
            "must be a list under 'apps': each with name, urls, databases and perhaps labels and state");
    }
    for (size_t i = 0; code == BELAY_OK && i < root->items[0].n; i++) {
        code = read_yaml_app(reader, &root->items[0].items[i]);
    }
    return code;
}

enum belay_code belay_apps_from_yaml(const struct belay_config *config, const char *path, const char *text,
                                     size_t len, belay_app_fn fn, void *context, struct belay_error *err)
{
    struct belay_error own = BELAY_ERROR_INIT;
    struct app_yaml_reader reader = { .config = config, .path = path, .err = err == NULL ? &own : err };
    struct yaml_node root = { .kind = YAML_NODE_EMPTY };
    enum belay_code code = yaml_parse_large(path, text, len, &root, reader.err);

    if (code == BELAY_CONFIG) {
        code = reader.err->code = BELAY_BAD_CONTENT; /* not a configuration file */
    }
    if (code == BELAY_OK) {
        code = read_root(&reader, &root);
    }
    for (size_t i = 0; code == BELAY_OK && i < reader.apps.n; i++) {
        if (!fn(context, reader.apps.apps[i])) {
            break;
        }
    }
    registry_release(&reader.apps);
    yaml_node_release(&root);
    belay_error_release(&own);
    return code;
}

/* ---- writing ---- */

static void add_quoted(struct buf *out, const char *text)
{
    json_t *value = wire_text(text);
    char *quoted = json_dumps(value, JSON_ENCODE_ANY);

    json_decref(value);
    buf_adds(out, text_or_empty(quoted));
    out->failed = out->failed || quoted == NULL;
    free(quoted);
}

static void add_yaml_database(struct buf *out, const struct belay_app_database *database)
{
    char text[2 * BELAY_DATABASE_MAX + BELAY_KIND_MAX + 8];

    (void)snprintf(text, sizeof text, "%.64s=%.255s%s%.255s", database->kind, database->id,
                   database->host == NULL ? "" : "@", database->host == NULL ? "" : database->host);
    add_quoted(out, text);
}

char *belay_app_to_yaml(const struct belay_app *app)
{
    struct buf out = BUF_INIT(BELAY_APP_URL_MAX * 1024);
    char since[CLOCK_TEXT_SIZE];

    buf_adds(&out, "  - name: ");
    add_quoted(&out, app->name);
    buf_adds(&out, "\n    urls:\n");
    for (size_t i = 0; i < app->n_urls; i++) {
        buf_adds(&out, "      - ");
        add_quoted(&out, app->urls[i]);
        buf_adds(&out, "\n");
    }
    buf_adds(&out, app->n_databases == 0 ? "" : "    databases:\n");
    for (size_t i = 0; i < app->n_databases; i++) {
        buf_adds(&out, "      - ");
        add_yaml_database(&out, &app->databases[i]);
        buf_adds(&out, "\n");
    }
    buf_adds(&out, app->n_labels == 0 ? "" : "    labels:\n");
    for (size_t i = 0; i < app->n_labels; i++) {
        buf_adds(&out, "      ");
        add_quoted(&out, app->labels[i].name);
        buf_adds(&out, ": ");
        add_quoted(&out, app->labels[i].value);
        buf_adds(&out, "\n");
    }
    buf_addf(&out, "    state: %s\n", belay_app_state_name(app->state));
    if (app->state != BELAY_APP_RUNNING && app->since_unix_ms != 0) {
        buf_addf(&out, "    since: \"%s\"\n", clock_format_utc(since, app->since_unix_ms, true));
    }
    return buf_take(&out);
}
