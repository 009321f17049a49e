/*
 * Stopping and starting databases.
 *
 *     find the instance and all names of the target ----- failed --> error
 *      |
 *     lock each name ------------------------------------ held ----> skipped_lock
 *      |
 *     read the registry, check the other applications --- failed --> error
 *      |                   \--- one is UP or UNKNOWN ---------------> skipped_shared_active
 *     all DOWN                  (with wait_ms, or if one of these has requested
 *      |                         its stop since: unlock, and start over)
 *      |
 *     stopped already? --------------------------------------------> skipped
 *      |
 *     renew the lease ----------------------------------- lost ----> error
 *      |
 *     the action, until it has taken effect ------------- failed --> error
 *      |
 *     stopped
 *
 * The locks are held from the second step to the last, and released on every path.
 */
#include "shared_db/stop_start.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/saturate.h"

enum { RETRY_MS = 1000, LINE_SIZE = 2048, RELOCKS_MAX = 5, RECHECKS_MAX = 20 };

/* ---- reporting and deciding ---- */

void db_op_say(struct db_op *op, enum belay_level level, const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;

    if (op->options->on_step == NULL) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    op->options->on_step(op->options->context, level, line);
}

enum belay_code db_op_decide(struct db_op *op, enum belay_db_action action, enum belay_code code,
                             const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;

    assert(action != BELAY_DB_ERROR || code != BELAY_OK);
    assert((action != BELAY_DB_STOPPED && action != BELAY_DB_STARTED) || code == BELAY_OK);
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    free(op->result->reason);
    op->result->action = action;
    op->result->code = code;
    op->result->reason = strdup(line);
    op->result->at_unix_ms = clock_unix_ms();
    return code;
}

enum belay_code db_op_end_step(struct db_op *op, enum belay_code code, struct belay_error *err,
                               const char *what)
{
    if (code != BELAY_OK) {
        (void)db_op_decide(op, BELAY_DB_ERROR, code, "%s: %s", what, err->text);
    }
    belay_error_release(err);
    return code;
}

/* ---- one database ---- */

/* Why the action is safe, for the result and the log. */
static void report_reason(struct db_op *op, char *out, size_t size)
{
    const struct belay_db_result *result = op->result;

    if (op->is_start) {
        (void)snprintf(out, size, "started");
        db_op_say(op, BELAY_LEVEL_INFO, "Starting %s database...", op->target->kind);
    } else if (result->n_sharing == 0) {
        (void)snprintf(out, size, "no other application uses it");
        db_op_say(op, BELAY_LEVEL_INFO, "No other application uses it - stopping %s database...",
                  op->target->kind);
    } else {
        (void)snprintf(out, size, "all %zu sharing applications are DOWN", result->n_sharing);
        db_op_say(op, BELAY_LEVEL_INFO, "All sharing applications are DOWN - stopping %s database...",
                  op->target->kind);
    }
}

static void act(struct db_op *op)
{
    struct action_context context = { .database = op->target->id,
                                      .kind = op->target->kind,
                                      .store_url = belay_client_store_url(op->client),
                                      .lock = op->lock,
                                      .lost = &op->lost,
                                      .cancel = op->options->cancel,
                                      .settings = op->settings };
    const char *verb = op->is_start ? "start" : "stop";
    struct belay_error err = BELAY_ERROR_INIT;
    char why[128], failed[32];
    enum belay_code code;

    assert(op->options->dry_run || !op->settings->lock_enabled || op->n_held == op->names.n_ids);
    assert(op->action != NULL && op->target->id != NULL);
    report_reason(op, why, sizeof why);
    if (op->options->dry_run) {
        (void)db_op_decide(op, BELAY_DB_SKIPPED, BELAY_OK, "dry run: it would be %s: %s",
                           op->is_start ? "started" : "stopped", why);
        return;
    }
    (void)db_op_decide(op, BELAY_DB_ERROR, BELAY_UNKNOWN, "%s", why); /* recorded if this process dies */
    db_op_record(op, false);
    if (action_has_taken_effect(op->action, &context)) {
        (void)db_op_decide(op, BELAY_DB_SKIPPED, BELAY_OK, "it is %s already",
                           op->is_start ? "running" : "stopped");
        return;
    }
    if (db_op_check_lock(op) != BELAY_OK) {
        return;
    }
    code = action_run(op->action, &context, &err);
    if (code == BELAY_OK) {
        (void)db_op_decide(op, op->is_start ? BELAY_DB_STARTED : BELAY_DB_STOPPED, BELAY_OK, "%s", why);
    } else {
        db_op_say(op, BELAY_LEVEL_WARNING, "The %s of %s failed: %s", verb, op->target->id, err.text);
    }
    (void)snprintf(failed, sizeof failed, "the %s failed", verb);
    (void)db_op_end_step(op, code, &err, failed);
}

/* Recorded under the lock, where the next stop reads it. */
static enum belay_code mark_running(struct db_op *op)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code;
    char what[200];

    if (op->options->app == NULL || op->options->dry_run) {
        return BELAY_OK;
    }
    code = belay_app_set_state(op->client, op->options->app, BELAY_APP_RUNNING, op->options->by, NULL, &err);
    (void)snprintf(what, sizeof what, "cannot record that '%.128s' is running", op->options->app);
    return db_op_end_step(op, code, &err, what);
}

/* Collect the names from the registry as it is now; on the first try it was just read. */
static enum belay_code refresh_names(struct db_op *op)
{
    struct app_registry registry = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = op->registry != NULL ? BELAY_OK : registry_read(op->client, &registry, &err);

    if (db_op_end_step(op, code, &err, DB_NO_REGISTRY) == BELAY_OK) {
        code = db_op_find_names(op, op->registry != NULL ? op->registry : &registry);
    }
    op->registry = NULL;
    op->has_new_names = false;
    registry_release(&registry);
    return code;
}

/*
 * Two applications stop at the same time. The one that holds the lock may have
 * checked the other while that was still up; if the other gives up on the lock,
 * neither would stop the database:
 *
 *     the waiter gives up:   record the request     then try the lock once more
 *     the holder:            release the lock       then read the records
 *
 * Either the last try finds the lock free, or the holder finds the request and
 * checks again.
 */
static enum belay_code lock_or_record_request(struct db_op *op)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = db_op_lock(op);

    if (code == BELAY_HELD && *op->requested_unix_ms != 0 &&
        app_record_renew_request(op->client, op->options->app, op->options->by, op->requested_unix_ms,
                                 &err) == BELAY_OK) {
        op->is_last_try = true;
        code = db_op_lock(op);
        op->is_last_try = false;
    }
    belay_error_release(&err);
    return code;
}

/* True: decided. False: other applications use it, and there is time to check again. */
static bool try_database(struct db_op *op)
{
    enum belay_code code = refresh_names(op);

    assert(op->n_held == 0);
    op->retry_at_once = false;
    if (code == BELAY_OK) {
        code = lock_or_record_request(op);
    }
    if (code != BELAY_OK) {
        return true;
    }
    code = db_op_check_permitted(op); /* the wait for the lock may have been long */
    if (code == BELAY_OK) {
        code = op->is_start ? mark_running(op) : db_op_check_users(op);
    }
    if (code == BELAY_OK) {
        act(op);
    }
    db_op_unlock(op, op->result->action != BELAY_DB_ERROR);
    if (op->has_new_names) {
        op->retry_at_once = true;
        return ++op->relocks > RELOCKS_MAX;
    }
    if (op->result->action == BELAY_DB_SKIPPED_SHARED_ACTIVE && !op->options->dry_run &&
        op->rechecks < RECHECKS_MAX && db_op_has_new_request(op)) {
        op->rechecks++;
        op->retry_at_once = true;
        return false;
    }
    return op->result->action != BELAY_DB_SKIPPED_SHARED_ACTIVE || clock_boot_ms() >= op->wait_end_ms;
}

static bool op_is_cancelled(const struct db_op *op)
{
    return op->options->cancel != NULL && belay_cancel_requested(op->options->cancel);
}

static void db_op_run(struct db_op *op)
{
    bool is_decided;

    db_op_say(op, BELAY_LEVEL_INFO, "Processing %s database: %s", op->target->kind,
              op->target->host != NULL ? op->target->host : op->target->id);
    op->wait_end_ms = add_saturated(clock_boot_ms(), op->options->wait_ms);
    (void)db_op_decide(op, BELAY_DB_ERROR, BELAY_CANCELLED, "cancelled");
    is_decided = db_op_find_instance(op) != BELAY_OK;
    while (!is_decided && !op_is_cancelled(op)) {
        int64_t left_ms;

        is_decided = try_database(op);
        left_ms = op->wait_end_ms - clock_boot_ms();
        if (!is_decided && !op->retry_at_once && left_ms > 0) {
            client_sleep(left_ms < RETRY_MS ? left_ms : RETRY_MS, op->options->cancel);
        }
    }
    if (!op->options->dry_run && !op->is_forbidden) {
        db_op_record(op, true);
    }
}

/* ---- all databases of the request ---- */

struct batch {
    struct belay_client *client;
    const struct belay_db_options *options;
    struct shared_db_settings settings;
    struct app_registry registry;
    struct belay_app_database *targets; /* owned array, borrowed texts */
    struct db_action *actions;          /* owned */
    size_t n;
    bool is_start;
    int64_t requested_unix_ms; /* when the application's stop was recorded as requested; 0: it was not */
};

static void batch_release(struct batch *batch)
{
    for (size_t i = 0; batch->actions != NULL && i < batch->n; i++) {
        action_release(&batch->actions[i]);
    }
    free(batch->actions);
    free(batch->targets);
    registry_release(&batch->registry);
}

static enum belay_code find_by_app(struct batch *batch, struct belay_error *err)
{
    const struct belay_app *app = registry_find_app(&batch->registry, batch->options->app);

    if (app == NULL) {
        return app_say_unknown(batch->options->app, err);
    }
    for (size_t i = 0; i < app->n_databases; i++) {
        const struct belay_app_database *found = registry_find_database(&batch->registry, &app->databases[i]);

        if (found == NULL) {
            return error_no_memory(err);
        }
        batch->targets[batch->n++] = *found;
    }
    return BELAY_OK;
}

static enum belay_code find_by_id(struct batch *batch, struct belay_error *err)
{
    struct belay_app_database named = { .id = db_identifier(batch->options->database) };
    const struct belay_app_database *found;
    enum belay_code code = BELAY_OK;

    if (named.id == NULL) {
        return error_set(err, BELAY_INVALID,
                         "database '%.200s' is neither an EC2 instance id (such as i-0123456789abcdef0) nor "
                         "HOST:PORT (such as 10.0.1.5:5432)",
                         batch->options->database);
    }
    found = registry_find_database(&batch->registry, &named);
    if (found == NULL) {
        code = error_set(err, BELAY_NOT_FOUND,
                         "no application in the registry uses database '%.200s': belay touches only "
                         "registered databases",
                         named.id);
    } else if (batch->options->app != NULL &&
               registry_find_app(&batch->registry, batch->options->app) == NULL) {
        code = app_say_unknown(batch->options->app, err);
    } else {
        assert(batch->n == 0);
        batch->targets[batch->n++] = *found;
    }
    free(named.id);
    return code;
}

/* Every action is read before the first one runs. */
static enum belay_code batch_prepare(struct batch *batch, struct belay_error *err)
{
    const struct belay_db_options *options = batch->options;
    enum belay_code code;

    if (options->app == NULL && options->database == NULL) {
        return error_set(err, BELAY_INVALID, "name an application or a database");
    }
    code = registry_read(batch->client, &batch->registry, err);
    batch->targets = calloc(BELAY_APP_DATABASES_MAX + 1, sizeof *batch->targets);
    batch->actions = calloc(BELAY_APP_DATABASES_MAX + 1, sizeof *batch->actions);
    if (code == BELAY_OK && (batch->targets == NULL || batch->actions == NULL)) {
        code = error_no_memory(err);
    }
    if (code == BELAY_OK) {
        code = options->database == NULL ? find_by_app(batch, err) : find_by_id(batch, err);
    }
    for (size_t i = 0; code == BELAY_OK && i < batch->n; i++) {
        code = action_read(client_config(batch->client), batch->targets[i].kind,
                           batch->is_start ? "start" : "stop", &batch->actions[i], err);
    }
    if (code == BELAY_OK && options->app != NULL && !options->dry_run) {
        /* A start also records it under each database's lock, where a concurrent stop must see it. */
        code = batch->is_start ? belay_app_set_state(batch->client, options->app, BELAY_APP_RUNNING,
                                                     options->by, NULL, err)
                               : app_record_stop_requested(batch->client, options->app, options->by,
                                                           &batch->requested_unix_ms, err);
    }
    return code;
}

/* An application is recorded as stopped only if all of its databases are. */
static void record_outcome(const struct batch *batch, const struct belay_db_results *results)
{
    bool is_stopped = batch->requested_unix_ms != 0 && results->n > 0;
    struct belay_error err = BELAY_ERROR_INIT;

    for (size_t i = 0; is_stopped && i < results->n; i++) {
        is_stopped = results->results[i].action == BELAY_DB_STOPPED ||
                     results->results[i].action == BELAY_DB_SKIPPED; /* it was stopped already */
    }
    if (is_stopped &&
        app_record_stopped(batch->client, batch->options->app, batch->requested_unix_ms, &err) != BELAY_OK &&
        batch->options->on_step != NULL) {
        batch->options->on_step(batch->options->context, BELAY_LEVEL_WARNING,
                                "cannot record that the application is stopped");
    }
    belay_error_release(&err);
}

static bool result_begin(const struct batch *batch, size_t i, struct belay_db_result *result)
{
    const struct belay_app_database *target = &batch->targets[i];
    const char *by = batch->options->by != NULL ? batch->options->by : client_user_name(batch->client);

    assert(target->id != NULL && target->kind != NULL);
    result->database = strdup(target->id);
    result->kind = strdup(target->kind);
    result->host = target->host == NULL ? NULL : strdup(target->host);
    result->by = strdup(by);
    return result->database != NULL && result->kind != NULL && result->by != NULL;
}

static enum belay_code run_targets(struct batch *batch, struct belay_db_results *results,
                                   struct belay_error *err)
{
    results->results = calloc(batch->n + 1, sizeof *results->results);
    if (results->results == NULL) {
        return error_no_memory(err);
    }
    for (size_t i = 0; i < batch->n; i++) {
        struct belay_db_result *result = &results->results[results->n++];
        struct db_op op = { .client = batch->client,
                            .options = batch->options,
                            .settings = &batch->settings,
                            .action = &batch->actions[i],
                            .target = &batch->targets[i],
                            .is_start = batch->is_start,
                            .registry = &batch->registry,
                            .requested_unix_ms = &batch->requested_unix_ms,
                            .result = result };

        if (!result_begin(batch, i, result)) {
            return error_no_memory(err);
        }
        db_op_run(&op);
        db_names_release(&op.names);
        net_ec2_found_release(&op.ec2);
        free(op.active_since);
    }
    return BELAY_OK;
}

static enum belay_code run_batch(struct belay_client *client, const struct belay_db_options *options,
                                 bool is_start, struct belay_db_results **out_results,
                                 struct belay_error *err)
{
    struct batch batch = { .client = client, .options = options, .is_start = is_start };
    struct belay_db_results *results = calloc(1, sizeof *results);
    enum belay_code code;

    batch.settings = shared_db_settings(client_config(client));
    code = results == NULL ? error_no_memory(err) : batch_prepare(&batch, err);
    if (code == BELAY_OK) {
        code = run_targets(&batch, results, err);
    }
    if (code == BELAY_OK) {
        record_outcome(&batch, results);
        *out_results = results;
        results = NULL; /* the caller's now */
    }
    belay_db_results_free(results);
    batch_release(&batch);
    return code;
}

enum belay_code belay_db_stop(struct belay_client *client, const struct belay_db_options *options,
                              struct belay_db_results **out_results, struct belay_error *err)
{
    return run_batch(client, options, false, out_results, err);
}

enum belay_code belay_db_start(struct belay_client *client, const struct belay_db_options *options,
                               struct belay_db_results **out_results, struct belay_error *err)
{
    return run_batch(client, options, true, out_results, err);
}
