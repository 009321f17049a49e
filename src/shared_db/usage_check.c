/* Whether other applications use a database. Any answer but a clear no counts as yes (S3.3). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "shared_db/stop_start.h"

struct users {
    struct belay_app **apps; /* owned array, borrowed applications: the other users */
    size_t n;
    struct belay_app_status **statuses; /* owned */
};

static void users_release(struct users *users)
{
    for (size_t i = 0; users->statuses != NULL && i < users->n; i++) {
        belay_app_status_free(users->statuses[i]);
    }
    free(users->statuses);
    free(users->apps);
}

static bool find_users(struct db_op *op, const struct app_registry *registry, struct users *users)
{
    users->apps = calloc(registry->n + 1, sizeof(struct belay_app *));
    users->statuses = calloc(registry->n + 1, sizeof(struct belay_app_status *));
    if (users->apps == NULL || users->statuses == NULL) {
        return false;
    }
    for (size_t i = 0; i < registry->n; i++) {
        struct belay_app *app = registry->apps[i];

        if (db_names_used_by(&op->names, app) &&
            (op->options->app == NULL || strcmp(op->options->app, app->name) != 0)) {
            users->apps[users->n++] = app;
        }
    }
    return true;
}

/* An empty list with room for n names; false: no memory. */
static bool clear_names(char ***names, size_t *n_names, size_t n)
{
    names_free(*names, *n_names);
    *n_names = 0;
    *names = calloc(n + 1, sizeof **names);
    return *names != NULL;
}

static bool report_users(struct db_op *op, const struct users *users)
{
    struct belay_db_result *result = op->result;
    struct buf list = BUF_INIT(1 << 20);
    bool ok = clear_names(&result->sharing_apps, &result->n_sharing, users->n) &&
              clear_names(&result->active_apps, &result->n_active, users->n);

    for (size_t i = 0; ok && i < users->n; i++) {
        result->sharing_apps[result->n_sharing] = text_copy(users->apps[i]->name, &ok);
        result->n_sharing += ok;
        buf_addf(&list, "%s%s", i == 0 ? "" : ", ", users->apps[i]->name);
    }
    result->shared = users->n > (op->options->app == NULL ? 1 : 0);
    if (users->n > 0) {
        db_op_say(op, BELAY_LEVEL_INFO, "%s shared with %zu application(s): %s", op->target->kind, users->n,
                  list.failed || list.data == NULL ? "?" : list.data);
    }
    buf_release(&list);
    return ok;
}

/* Reports each status; BELAY_HELD if one is not DOWN. */
static enum belay_code judge_statuses(struct db_op *op, const struct users *users)
{
    struct belay_db_result *result = op->result;
    struct buf active = BUF_INIT(1 << 20);
    struct buf names = BUF_INIT(1 << 20);
    enum belay_code code = BELAY_OK;
    bool ok;

    free(op->active_since);
    op->active_since = calloc(users->n + 1, sizeof *op->active_since);
    ok = op->active_since != NULL;
    for (size_t i = 0; ok && i < users->n; i++) {
        const struct belay_app_status *status = users->statuses[i];
        bool is_down = status->status == BELAY_HEALTH_DOWN;
        bool is_unknown = status->status == BELAY_HEALTH_UNKNOWN;

        db_op_say(op, is_down ? BELAY_LEVEL_INFO : BELAY_LEVEL_WARNING, "%s is %s%s%s", status->app,
                  belay_health_name(status->status), status->reason == NULL ? "" : ": ",
                  status->reason == NULL ? "" : status->reason);
        if (!is_down) {
            op->active_since[result->n_active] = users->apps[i]->since_unix_ms;
            result->active_apps[result->n_active] = text_copy(status->app, &ok);
            result->n_active += ok;
            buf_addf(&names, "%s%s", names.len == 0 ? "" : ", ", status->app);
            buf_addf(&active, "%s%s is %s%s%s%s", active.len == 0 ? "" : ", ", status->app,
                     belay_health_name(status->status), is_unknown && status->reason != NULL ? " (" : "",
                     is_unknown && status->reason != NULL ? status->reason : "",
                     is_unknown && status->reason != NULL ? ")" : "");
        }
    }
    if (!ok) {
        code = db_op_decide(op, BELAY_DB_ERROR, BELAY_NO_MEMORY, "out of memory");
    } else if (result->n_active > 0) {
        db_op_say(op, BELAY_LEVEL_WARNING, "%s shared with active apps: %s. Skipping stop.", op->target->kind,
                  names.failed ? "?" : names.data);
        code = db_op_decide(op, BELAY_DB_SKIPPED_SHARED_ACTIVE, BELAY_HELD, "%s",
                            active.failed ? "other applications use it" : active.data);
    }
    buf_release(&active);
    buf_release(&names);
    return code;
}

static enum belay_code check_health(struct db_op *op, struct users *users, struct belay_error *err)
{
    enum belay_code code;

    if (users->n == 0) {
        return BELAY_OK;
    }
    code = health_check_all(op->settings, users->apps, users->n, users->statuses, err);
    if (code != BELAY_OK) {
        memset(users->statuses, 0, users->n * sizeof(struct belay_app_status *));
        return code;
    }
    for (size_t i = 0; !op->options->dry_run && i < users->n; i++) {
        if (users->statuses[i]->status == BELAY_HEALTH_UP) {
            app_record_clear(op->client, users->apps[i]);
        }
    }
    return BELAY_OK;
}

enum belay_code db_op_check_users(struct db_op *op)
{
    struct app_registry registry = { 0 };
    struct users users = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code =
        db_op_end_step(op, registry_read(op->client, &registry, &err), &err, DB_NO_REGISTRY);

    assert(!op->is_start);
    if (code == BELAY_OK) {
        code = db_op_check_names(op, &registry);
    }
    if (code == BELAY_OK && (!find_users(op, &registry, &users) || !report_users(op, &users))) {
        code = db_op_decide(op, BELAY_DB_ERROR, BELAY_NO_MEMORY, "out of memory");
    }
    if (code == BELAY_OK) {
        code =
            db_op_end_step(op, check_health(op, &users, &err), &err, "cannot check the other applications");
    }
    if (code == BELAY_OK) {
        code = judge_statuses(op, &users);
    }
    users_release(&users);
    registry_release(&registry);
    return code;
}

static bool has_requested(const struct app_registry *registry, const char *name, int64_t seen_unix_ms)
{
    const struct belay_app *app = registry_find_app(registry, name);

    return app == NULL || /* it was removed */
           (app->state != BELAY_APP_RUNNING && app->since_unix_ms != seen_unix_ms);
}

bool db_op_has_new_request(struct db_op *op)
{
    struct app_registry registry = { 0 };
    bool has_new = false;

    if (registry_read(op->client, &registry, NULL) == BELAY_OK) {
        for (size_t i = 0; !has_new && i < op->result->n_active; i++) {
            has_new = has_requested(&registry, op->result->active_apps[i], op->active_since[i]);
        }
    }
    registry_release(&registry);
    return has_new;
}
