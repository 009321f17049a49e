/*
 * A row with both names links an instance to a HOST:PORT. When the last application
 * with such a row is removed, the applications that name only one of the two would
 * become users of two databases with two locks, and one could be stopped while the
 * other is in use. So the link is written into their rows first.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "client/items.h"
#include "shared_db/shared_db_internal.h"

static bool says(const struct belay_app *app, const struct belay_app_database *link)
{
    for (size_t i = 0; app != NULL && i < app->n_databases; i++) {
        const struct belay_app_database *row = &app->databases[i];

        if (row->host != NULL && strcmp(row->id, link->id) == 0 && strcmp(row->host, link->host) == 0) {
            return true;
        }
    }
    return false;
}

static bool names_a_side(const struct belay_app_database *row, const struct belay_app_database *link)
{
    return row->host == NULL && (strcmp(row->id, link->id) == 0 || strcmp(row->id, link->host) == 0);
}

static void drop_row(struct belay_app *app, size_t i)
{
    app_database_release(&app->databases[i]);
    memmove(&app->databases[i], &app->databases[i + 1], (app->n_databases - i - 1) * sizeof *app->databases);
    app->n_databases--;
}

/* *out_is_changed: the application must be written. */
static enum belay_code write_link(struct belay_app *app, const struct belay_app_database *link,
                                  bool *out_is_changed, struct belay_error *err)
{
    struct belay_app_database *linked = NULL;

    *out_is_changed = false;
    for (size_t i = 0; i < app->n_databases; i++) {
        struct belay_app_database *row = &app->databases[i];

        if (!names_a_side(row, link)) {
            continue;
        }
        if (linked != NULL && strcmp(linked->kind, row->kind) == 0) { /* it named both as two databases */
            drop_row(app, i--);
            continue;
        }
        linked = row;
        free(row->id);
        row->id = strdup(link->id);
        row->host = strdup(link->host);
        if (row->id == NULL || row->host == NULL) {
            return error_no_memory(err);
        }
        *out_is_changed = true;
    }
    return BELAY_OK;
}

static enum belay_code link_app(struct belay_client *client, const char *name,
                                const struct belay_app_database *link, struct belay_error *err)
{
    enum belay_code code = BELAY_REFUSED;

    for (int i = 0; code == BELAY_REFUSED && i < APP_TRIES; i++) {
        struct belay_app *app = NULL;
        bool is_changed = false;

        code = belay_app_get(client, name, &app, err);
        if (code == BELAY_NOT_FOUND) {
            return BELAY_OK;
        }
        if (code == BELAY_OK) {
            code = write_link(app, link, &is_changed, err);
        }
        if (code == BELAY_OK && is_changed) {
            code = app_put(client, app, NULL, err);
        }
        belay_app_free(app);
    }
    return code == BELAY_OK
               ? code
               : error_wrap(err, "cannot record in application '%.128s' that '%.60s' is '%.200s'", name,
                            link->host, link->id);
}

static bool app_names_a_side(const struct belay_app *app, const struct belay_app_database *link)
{
    for (size_t i = 0; i < app->n_databases; i++) {
        if (names_a_side(&app->databases[i], link)) {
            return true;
        }
    }
    return false;
}

static enum belay_code keep_link(struct belay_client *client, const struct app_registry *registry,
                                 const char *but_app, const struct belay_app_database *link,
                                 struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && i < registry->n; i++) {
        const struct belay_app *app = registry->apps[i];

        if (strcmp(app->name, but_app) != 0 && app_names_a_side(app, link)) {
            code = link_app(client, app->name, link, err);
        }
    }
    return code;
}

static bool loses_link(const struct belay_app *before, const struct belay_app *after, size_t i)
{
    return before->databases[i].host != NULL && !says(after, &before->databases[i]);
}

enum belay_code links_keep(struct belay_client *client, const struct belay_app *before,
                           const struct belay_app *after, struct belay_error *err)
{
    struct app_registry registry = { 0 };
    enum belay_code code = BELAY_OK;
    bool is_read = false;

    for (size_t i = 0; code == BELAY_OK && i < before->n_databases; i++) {
        if (!loses_link(before, after, i)) {
            continue;
        }
        if (!is_read) {
            code = registry_read(client, &registry, err);
            is_read = code == BELAY_OK;
        }
        if (code == BELAY_OK) {
            code = keep_link(client, &registry, before->name, &before->databases[i], err);
        }
    }
    registry_release(&registry);
    return code;
}
