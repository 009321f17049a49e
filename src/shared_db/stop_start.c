/*
 * Stopping and starting databases.
 *
 *     find the instance, and all names of what would be ended --- an error --> error
 *      |
 *     lock each --- held by another ------------------------> skipped_lock
 *      |
 *     read the registry, ask the others --- an error -------> error
 *      |                   \--- one is UP or UNKNOWN -------> skipped_shared_active
 *     all DOWN                  (with wait_ms, or if one of these has requested
 *      |                         its stop meanwhile: unlock, and again)
 *      |
 *     stopped already? -------------------------------------> skipped
 *      |
 *     renew the lease --- lost ------------------------------> error
 *      |
 *     the action, until it has taken effect --- it failed ---> error
 *      |
 *     stopped
 *
 * The lock is held from the first step to the last, and released after any.
 */
#include "shared_db/stop_start.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

enum { ASK_AGAIN_MS = 1000, LINE_SIZE = 2048, RENAMES_MAX = 5, RETOLD_MAX = 20 };

/* ---- saying and deciding ---- */

void run_say(struct guard_run *run, enum belay_level level, const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;

    if (run->options->on_step == NULL) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    run->options->on_step(run->options->context, level, line);
}

void run_decide(struct guard_run *run, enum belay_db_action action, enum belay_code code, const char *format,
                ...)
{
    char line[LINE_SIZE];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    free(run->result->reason);
    run->result->action = action;
    run->result->code = code;
    run->result->reason = strdup(line);
    run->result->at_unix_ms = clock_unix_ms();
}

/* ---- one database ---- */

/* Why it may be done, for the reason and the log. */
static void tell_why(struct guard_run *run, char *out, size_t size)
{
    const struct belay_db_result *result = run->result;

    if (run->is_start) {
        (void)snprintf(out, size, "started");
        run_say(run, BELAY_LEVEL_INFO, "Starting %s database...", run->target->kind);
    } else if (result->n_sharing == 0) {
        (void)snprintf(out, size, "no other application uses it");
        run_say(run, BELAY_LEVEL_INFO, "No other application uses it - stopping %s database...",
                run->target->kind);
    } else {
        (void)snprintf(out, size, "all %zu sharing applications are DOWN", result->n_sharing);
        run_say(run, BELAY_LEVEL_INFO, "All sharing applications are DOWN - stopping %s database...",
                run->target->kind);
    }
}

static void act(struct guard_run *run)
{
    struct guard_place place = { .database = run->target->id,
                                 .kind = run->target->kind,
                                 .store_url = belay_client_store_url(run->client),
                                 .lock = run->lock,
                                 .lost = &run->lost,
                                 .cancel = run->options->cancel,
                                 .settings = run->settings };
    const char *verb = run->is_start ? "start" : "stop";
    struct belay_error err = BELAY_ERROR_INIT;
    char why[128];
    enum belay_code code;

    tell_why(run, why, sizeof why);
    if (run->options->dry_run) {
        run_decide(run, BELAY_DB_SKIPPED, BELAY_OK, "dry run: it would be %s: %s",
                   run->is_start ? "started" : "stopped", why);
        return;
    }
    run_decide(run, BELAY_DB_ERROR, BELAY_UNKNOWN, "%s", why); /* until it is done */
    run_record_begun(run);
    if (guard_action_holds(run->action, &place)) {
        run_decide(run, BELAY_DB_SKIPPED, BELAY_OK, "it is %s already",
                   run->is_start ? "running" : "stopped");
        return;
    }
    if (run_check_lock(run) != BELAY_OK) {
        return;
    }
    code = guard_action_do(run->action, &place, &err);
    if (code == BELAY_OK) {
        run_decide(run, run->is_start ? BELAY_DB_STARTED : BELAY_DB_STOPPED, BELAY_OK, "%s", why);
    } else {
        run_say(run, BELAY_LEVEL_WARNING, "The %s of %s failed: %s", verb, run->target->id, err.text);
        run_decide(run, BELAY_DB_ERROR, code, "the %s failed: %s", verb, err.text);
    }
    belay_error_release(&err);
}

/* Recorded under the lock: whoever stops the database next reads it there. */
static enum belay_code mark_running(struct guard_run *run)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code;

    if (run->options->app == NULL || run->options->dry_run) {
        return BELAY_OK;
    }
    code =
        belay_app_set_state(run->client, run->options->app, BELAY_APP_RUNNING, run->options->by, NULL, &err);
    if (code != BELAY_OK) {
        run_decide(run, BELAY_DB_ERROR, code, "it could not be recorded that '%.128s' is running: %s",
                   run->options->app, err.text);
    }
    belay_error_release(&err);
    return code;
}

/* Of the registry as it is now; the first time it has just been read. */
static enum belay_code refresh_names(struct guard_run *run)
{
    struct guard_registry registry = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code =
        run->registry != NULL ? BELAY_OK : guard_registry_read(run->client, &registry, &err);

    if (code != BELAY_OK) {
        run_decide(run, BELAY_DB_ERROR, code,
                   "the registry could not be read, so it is not known who uses it: %s", err.text);
    } else {
        code = run_find_names(run, run->registry != NULL ? run->registry : &registry);
    }
    run->registry = NULL;
    run->has_new_names = false;
    guard_registry_release(&registry);
    belay_error_release(&err);
    return code;
}

/*
 * Of two that stop at the same time, one holds the lock and may have asked the other
 * while that was still up; if the other gives up on the lock, neither stops it:
 *
 *     it gives up:   record the request     then try the lock once more
 *     the holder:    release the lock       then read the records
 *
 * Either the last try finds the lock free, or the holder finds the request, and asks again.
 */
static enum belay_code lock_or_tell(struct guard_run *run)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = run_lock(run);

    if (code == BELAY_HELD && *run->requested_unix_ms != 0 &&
        record_request_again(run->client, run->options->app, run->options->by, run->requested_unix_ms,
                             &err) == BELAY_OK) {
        run->is_last_try = true;
        code = run_lock(run);
        run->is_last_try = false;
    }
    belay_error_release(&err);
    return code;
}

/* True: it is decided. False: others use it, and there is time to ask again. */
static bool try_once(struct guard_run *run)
{
    enum belay_code code = refresh_names(run);

    run->asks_now = false;
    if (code == BELAY_OK) {
        code = lock_or_tell(run);
    }
    if (code != BELAY_OK) {
        return true;
    }
    code = run_check_permitted(run); /* the wait for the lock may have been long */
    if (code == BELAY_OK) {
        code = run->is_start ? mark_running(run) : run_check_users(run);
    }
    if (code == BELAY_OK) {
        act(run);
    }
    run_unlock(run, run->result->action != BELAY_DB_ERROR);
    if (run->has_new_names) {
        run->asks_now = true;
        return ++run->renames > RENAMES_MAX;
    }
    if (run->result->action == BELAY_DB_SKIPPED_SHARED_ACTIVE && !run->options->dry_run &&
        run->retold < RETOLD_MAX && run_was_told(run)) {
        run->retold++;
        run->asks_now = true;
        return false;
    }
    return run->result->action != BELAY_DB_SKIPPED_SHARED_ACTIVE || clock_boot_ms() >= run->wait_end_ms;
}

static bool is_cancelled(const struct guard_run *run)
{
    return run->options->cancel != NULL && belay_cancel_requested(run->options->cancel);
}

static void run_one(struct guard_run *run)
{
    bool is_decided;

    run_say(run, BELAY_LEVEL_INFO, "Processing %s database: %s", run->target->kind,
            run->target->host != NULL ? run->target->host : run->target->id);
    run->wait_end_ms = clock_boot_ms() + run->options->wait_ms;
    run_decide(run, BELAY_DB_ERROR, BELAY_CANCELLED, "cancelled");
    is_decided = run_find_instance(run) != BELAY_OK;
    while (!is_decided && !is_cancelled(run)) {
        int64_t left_ms;

        is_decided = try_once(run);
        left_ms = run->wait_end_ms - clock_boot_ms();
        if (!is_decided && !run->asks_now && left_ms > 0) {
            client_sleep(left_ms < ASK_AGAIN_MS ? left_ms : ASK_AGAIN_MS, run->options->cancel);
        }
    }
    if (!run->options->dry_run && !run->is_forbidden) {
        run_record(run);
    }
}

/* ---- all that were asked for ---- */

struct batch {
    struct belay_client *client;
    const struct belay_db_options *options;
    struct guard_settings settings;
    struct guard_registry registry;
    struct belay_app_database *targets; /* owned array, borrowed texts */
    struct guard_action *actions;       /* owned */
    size_t n;
    bool is_start;
    int64_t requested_unix_ms; /* when the application's stop was recorded as requested; 0: it was not */
};

static void batch_release(struct batch *batch)
{
    for (size_t i = 0; batch->actions != NULL && i < batch->n; i++) {
        guard_action_release(&batch->actions[i]);
    }
    free(batch->actions);
    free(batch->targets);
    guard_registry_release(&batch->registry);
}

static const struct belay_app *find_app(const struct guard_registry *registry, const char *name)
{
    for (size_t i = 0; i < registry->n; i++) {
        if (strcmp(registry->apps[i]->name, name) == 0) {
            return registry->apps[i];
        }
    }
    return NULL;
}

static enum belay_code find_by_app(struct batch *batch, struct belay_error *err)
{
    const struct belay_app *app = find_app(&batch->registry, batch->options->app);

    if (app == NULL) {
        return error_set(err, BELAY_NOT_FOUND, "there is no application '%.128s' in the registry",
                         batch->options->app);
    }
    for (size_t i = 0; i < app->n_databases; i++) {
        const struct belay_app_database *found = guard_registry_find(&batch->registry, &app->databases[i]);

        if (found == NULL) {
            return error_no_memory(err);
        }
        batch->targets[batch->n++] = *found;
    }
    return BELAY_OK;
}

static enum belay_code find_by_id(struct batch *batch, struct belay_error *err)
{
    struct belay_app_database named = { .id = guard_identifier(batch->options->database) };
    const struct belay_app_database *found;
    enum belay_code code = BELAY_OK;

    if (named.id == NULL) {
        return error_set(err, BELAY_INVALID,
                         "database '%.200s' is neither an EC2 instance id (such as i-0123456789abcdef0) nor "
                         "HOST:PORT (such as 10.0.1.5:5432)",
                         batch->options->database);
    }
    found = guard_registry_find(&batch->registry, &named);
    if (found == NULL) {
        code =
            error_set(err, BELAY_NOT_FOUND,
                      "no application in the registry uses database '%.200s': what nobody is known to use is "
                      "left alone",
                      named.id);
    } else if (batch->options->app != NULL && find_app(&batch->registry, batch->options->app) == NULL) {
        code = error_set(err, BELAY_NOT_FOUND, "there is no application '%.128s' in the registry",
                         batch->options->app);
    } else {
        batch->targets[batch->n++] = *found;
    }
    free(named.id);
    return code;
}

/* What is to be done must be known for all before anything is done to one. */
static enum belay_code prepare(struct batch *batch, struct belay_error *err)
{
    const struct belay_db_options *options = batch->options;
    enum belay_code code;

    if (options->app == NULL && options->database == NULL) {
        return error_set(err, BELAY_INVALID, "name an application or a database");
    }
    code = guard_registry_read(batch->client, &batch->registry, err);
    batch->targets = calloc(BELAY_APP_DATABASES_MAX + 1, sizeof *batch->targets);
    batch->actions = calloc(BELAY_APP_DATABASES_MAX + 1, sizeof *batch->actions);
    if (code == BELAY_OK && (batch->targets == NULL || batch->actions == NULL)) {
        code = error_no_memory(err);
    }
    if (code == BELAY_OK) {
        code = options->database == NULL ? find_by_app(batch, err) : find_by_id(batch, err);
    }
    for (size_t i = 0; code == BELAY_OK && i < batch->n; i++) {
        code = guard_action_read(client_config(batch->client), batch->targets[i].kind,
                                 batch->is_start ? "start" : "stop", &batch->actions[i], err);
    }
    if (code == BELAY_OK && options->app != NULL && !options->dry_run) {
        /* A start records it under each database's lock as well, where a stop that is under way must see it. */
        code = batch->is_start ? belay_app_set_state(batch->client, options->app, BELAY_APP_RUNNING,
                                                     options->by, NULL, err)
                               : record_stop_requested(batch->client, options->app, options->by,
                                                       &batch->requested_unix_ms, err);
    }
    return code;
}

/* Only an application all of whose databases are stopped is recorded as stopped itself. */
static void record_outcome(const struct batch *batch, const struct belay_db_results *results)
{
    bool is_stopped = batch->requested_unix_ms != 0 && results->n > 0;
    struct belay_error err = BELAY_ERROR_INIT;

    for (size_t i = 0; is_stopped && i < results->n; i++) {
        is_stopped = results->results[i].action == BELAY_DB_STOPPED ||
                     results->results[i].action == BELAY_DB_SKIPPED; /* it was stopped already */
    }
    if (is_stopped &&
        record_stopped(batch->client, batch->options->app, batch->requested_unix_ms, &err) != BELAY_OK &&
        batch->options->on_step != NULL) {
        batch->options->on_step(batch->options->context, BELAY_LEVEL_WARNING,
                                "it could not be recorded that the application is stopped");
    }
    belay_error_release(&err);
}

static bool result_begin(const struct batch *batch, size_t i, struct belay_db_result *result)
{
    const struct belay_app_database *target = &batch->targets[i];
    const char *by = batch->options->by != NULL ? batch->options->by : client_user_name(batch->client);

    if (target->id == NULL || target->kind == NULL) {
        return false; /* for who checks: a target has both */
    }
    result->database = strdup(target->id);
    result->kind = strdup(target->kind);
    result->host = target->host == NULL ? NULL : strdup(target->host);
    result->by = strdup(by);
    return result->database != NULL && result->kind != NULL && result->by != NULL;
}

static enum belay_code run_all(struct batch *batch, struct belay_db_results *results, struct belay_error *err)
{
    results->results = calloc(batch->n + 1, sizeof *results->results);
    if (results->results == NULL) {
        return error_no_memory(err);
    }
    for (size_t i = 0; i < batch->n; i++) {
        struct belay_db_result *result = &results->results[results->n++];
        struct guard_run run = { .client = batch->client,
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
        run_one(&run);
        names_release(&run.names);
        net_ec2_found_release(&run.ec2);
        free(run.active_since);
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

    batch.settings = guard_settings(client_config(client));
    code = results == NULL ? error_no_memory(err) : prepare(&batch, err);
    if (code == BELAY_OK) {
        code = run_all(&batch, results, err);
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
