/* The registry: applications as items of the store; each write is conditional on the version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "client/items.h"
#include "shared_db/shared_db_internal.h"

/* An unreadable row is an error and never skipped: it might be an application that is up. */
static enum belay_code read_item(const struct belay_item *item, struct belay_app **out_app,
                                 struct belay_error *err)
{
    struct belay_app *app = NULL;
    enum belay_code code = belay_app_from_json(item->value, strlen(item->value), &app, err);

    if (code == BELAY_OK && app->name == NULL) {
        app->name = strdup(item->name);
        code = app->name == NULL ? error_no_memory(err) : BELAY_OK;
    }
    if (code == BELAY_INVALID) {
        char text[300];

        (void)snprintf(text, sizeof text, "%.290s", err == NULL ? "" : err->text);
        code = error_set(err, BELAY_BAD_CONTENT, "cannot read application '%.128s' from the registry: %s",
                         item->name, text);
    }
    if (code == BELAY_OK) {
        app->version = item->version;
        *out_app = app;
        app = NULL; /* the caller's now */
    }
    belay_app_free(app);
    return code;
}

enum belay_code app_say_unknown(const char *name, struct belay_error *err)
{
    return error_set(err, BELAY_NOT_FOUND, "there is no application '%.128s' in the registry", name);
}

enum belay_code belay_app_get(struct belay_client *client, const char *name, struct belay_app **out_app,
                              struct belay_error *err)
{
    struct belay_item item = { 0 };
    enum belay_code code = app_name_check(name, err);

    if (code == BELAY_OK) {
        code = client_item_get(client, BELAY_SPACE_APPS, name, &item, err);
    }
    if (code == BELAY_OK) {
        code = item.version == 0 ? app_say_unknown(name, err) : read_item(&item, out_app, err);
    }
    belay_item_release(&item);
    return code;
}

/* ---- the whole registry ---- */

struct registry_listing {
    struct app_registry *registry;
    enum belay_code code;
    struct belay_error *err;
};

bool registry_add(struct app_registry *registry, struct belay_app *app)
{
    struct belay_app **grown =
        array_grow(registry->apps, sizeof(struct belay_app *), registry->n + 1, &registry->cap);

    if (grown == NULL) {
        return false;
    }
    registry->apps = grown;
    registry->apps[registry->n++] = app;
    return true;
}

static bool on_item(void *context, const struct belay_item *item)
{
    struct registry_listing *listing = context;
    struct belay_app *app = NULL;

    listing->code = read_item(item, &app, listing->err);
    if (listing->code == BELAY_OK && !registry_add(listing->registry, app)) {
        belay_app_free(app);
        listing->code = error_no_memory(listing->err);
    }
    return listing->code == BELAY_OK;
}

/* The applications that the token may see. */
static enum belay_code read_visible(struct belay_client *client, struct app_registry *registry,
                                    struct belay_error *err)
{
    struct registry_listing listing = { registry, BELAY_OK, err };
    enum belay_code code =
        client_item_list(client, BELAY_SPACE_APPS, on_item, &listing, &registry->is_partial, err);

    return code == BELAY_OK ? listing.code : code;
}

enum belay_code registry_read(struct belay_client *client, struct app_registry *registry,
                              struct belay_error *err)
{
    enum belay_code code = read_visible(client, registry, err);

    if (code == BELAY_OK && registry->is_partial) {
        code = error_set(err, BELAY_NOT_PERMITTED,
                         "the 'keys' of this token hide some applications, so the users of a database are "
                         "unknown: use a token without 'keys', or let the server do it (POST "
                         "/v1/databases/ID/stop or /start)");
    }
    return code;
}

const struct belay_app *registry_find_app(const struct app_registry *registry, const char *name)
{
    for (size_t i = 0; i < registry->n; i++) {
        if (strcmp(registry->apps[i]->name, name) == 0) {
            return registry->apps[i];
        }
    }
    return NULL;
}

void registry_release(struct app_registry *registry)
{
    for (size_t i = 0; i < registry->n; i++) {
        belay_app_free(registry->apps[i]);
    }
    free(registry->apps);
    memset(registry, 0, sizeof *registry);
}

enum belay_code belay_app_list(struct belay_client *client, belay_app_fn fn, void *context,
                               struct belay_error *err)
{
    struct app_registry registry = { 0 };
    enum belay_code code = read_visible(client, &registry, err);

    for (size_t i = 0; code == BELAY_OK && i < registry.n; i++) {
        if (!fn(context, registry.apps[i])) {
            break;
        }
    }
    registry_release(&registry);
    return code;
}

/* ---- changes ---- */

enum belay_code app_put(struct belay_client *client, const struct belay_app *app, uint64_t *out_version,
                        struct belay_error *err)
{
    struct belay_item_write write = { .space = BELAY_SPACE_APPS, .name = app->name, .version = app->version };
    /* With a server, its configuration says which kinds exist. */
    enum belay_code code = belay_app_check(client_is_remote(client) ? NULL : client_config(client), app, err);
    char *value = NULL;

    if (code != BELAY_OK) {
        return code;
    }
    value = belay_app_to_json(app);
    if (value == NULL) {
        return error_no_memory(err);
    }
    write.value = value;
    code = client_item_put(client, &write, out_version, err);
    if (code == BELAY_REFUSED) {
        code = error_set(err, BELAY_REFUSED,
                         app->version == 0 ? "application '%.128s' is in the registry already"
                                           : "application '%.128s' has changed since it was read",
                         app->name);
    }
    free(value);
    return code;
}

/* `by` NULL keeps the name. */
static enum belay_code put_state(struct belay_client *client, struct belay_app *app,
                                 enum belay_app_state state, const char *by, struct belay_error *err)
{
    if (by != NULL) {
        free(app->by);
        app->by = strdup(by);
        if (app->by == NULL) {
            return error_no_memory(err);
        }
    }
    app->state = state;
    app->since_unix_ms = clock_unix_ms();
    return app_put(client, app, &app->version, err);
}

enum belay_code app_mark(struct belay_client *client, const struct app_mark *mark, struct belay_app **out_app,
                         struct belay_error *err)
{
    enum belay_code code = BELAY_REFUSED;

    for (int i = 0; code == BELAY_REFUSED && i < APP_TRIES; i++) {
        struct belay_app *app = NULL;

        code = belay_app_get(client, mark->name, &app, err);
        if (code == BELAY_OK && mark->applies != NULL && !mark->applies(app, mark->context)) {
            belay_app_free(app);
            return BELAY_OK;
        }
        if (code == BELAY_OK) {
            code = put_state(client, app, mark->state, mark->by, err);
        }
        if (code == BELAY_OK && out_app != NULL) {
            *out_app = app;
            app = NULL; /* the caller's now */
        }
        belay_app_free(app);
    }
    return code;
}

enum belay_code belay_app_put(struct belay_client *client, const struct belay_app *app, uint64_t *out_version,
                              struct belay_error *err)
{
    struct belay_app *before = NULL;
    enum belay_code code = BELAY_OK;

    if (app->version != 0 && !client_is_remote(client)) { /* a server does it itself */
        code = belay_app_get(client, app->name, &before, err);
        if (code == BELAY_OK && before->version == app->version) {
            code = links_keep(client, before, app, err);
        }
        belay_app_free(before);
    }
    return code == BELAY_OK || code == BELAY_NOT_FOUND ? app_put(client, app, out_version, err) : code;
}

/* A record is about the application at these URLs: at others an application may run that was never stopped. */
static bool have_same_urls(const struct belay_app *a, const struct belay_app *b)
{
    return texts_are_same(a->urls, a->n_urls, b->urls, b->n_urls);
}

/* Replace the current version; BELAY_REFUSED: another client changed it first. */
static enum belay_code replace_once(struct belay_client *client, const struct belay_app *app,
                                    bool *out_is_new, struct belay_error *err)
{
    struct belay_app *before = NULL;
    struct belay_app next = *app;
    enum belay_code code = belay_app_get(client, app->name, &before, err);

    if (code == BELAY_NOT_FOUND) {
        next.version = 0;
        *out_is_new = true;
    } else if (code != BELAY_OK) {
        return code;
    } else {
        next.version = before->version;
        *out_is_new = false;
        if (app->since_unix_ms == 0 && have_same_urls(app, before)) { /* no state given: keep the record */
            next.state = before->state;
            next.since_unix_ms = before->since_unix_ms;
            next.by = before->by;
        }
    }
    code = belay_app_put(client, &next, NULL, err);
    belay_app_free(before);
    return code;
}

enum belay_code belay_app_register(struct belay_client *client, const struct belay_app *app, bool replace,
                                   bool *out_is_new, struct belay_error *err)
{
    struct belay_app fresh = *app;
    bool is_new = true;
    enum belay_code code;

    fresh.version = 0;
    code = belay_app_put(client, &fresh, NULL, err);
    if (code == BELAY_REFUSED && !replace) {
        return error_set(err, BELAY_INVALID,
                         "application '%.128s' is in the registry already: take another name, or replace it "
                         "(--replace)",
                         app->name);
    }
    for (int i = 0; code == BELAY_REFUSED && i < APP_TRIES; i++) {
        code = replace_once(client, app, &is_new, err);
    }
    if (code == BELAY_OK && out_is_new != NULL) {
        *out_is_new = is_new;
    }
    return code;
}

/* An unreadable application has no links to keep, and can be removed. */
static enum belay_code keep_links_of(struct belay_client *client, const struct belay_item *item,
                                     struct belay_error *err)
{
    struct belay_app *app = NULL;
    enum belay_code code = read_item(item, &app, err);

    if (code == BELAY_OK) {
        code = links_keep(client, app, NULL, err);
    } else if (code == BELAY_BAD_CONTENT) {
        code = BELAY_OK;
    }
    belay_app_free(app);
    return code;
}

enum belay_code belay_app_remove(struct belay_client *client, const char *name, uint64_t version,
                                 struct belay_error *err)
{
    struct belay_item_write write = { .space = BELAY_SPACE_APPS, .name = name, .version = version };
    enum belay_code code = app_name_check(name, err);

    for (int i = 0; code == BELAY_OK && i < APP_TRIES; i++) {
        struct belay_item item = { 0 };

        code = client_item_get(client, BELAY_SPACE_APPS, name, &item, err);
        if (code == BELAY_OK && item.version == 0) {
            code = app_say_unknown(name, err);
        }
        write.version = version != 0 ? version : item.version;
        if (code == BELAY_OK && write.version == item.version && !client_is_remote(client)) {
            code = keep_links_of(client, &item, err);
        }
        belay_item_release(&item);
        if (code == BELAY_OK) {
            code = client_item_put(client, &write, NULL, err);
            if (code != BELAY_REFUSED || version != 0) {
                return code;
            }
            code = BELAY_OK;
        }
    }
    return code;
}

enum belay_code belay_app_set_state(struct belay_client *client, const char *name, enum belay_app_state state,
                                    const char *by, struct belay_app **out_app, struct belay_error *err)
{
    const struct app_mark mark = { .name = name,
                                   .state = state,
                                   .by = by != NULL ? by : client_user_name(client) };

    return app_mark(client, &mark, out_app, err);
}
