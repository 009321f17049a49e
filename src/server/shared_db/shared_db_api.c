/* Applications and databases over HTTP (S3): each request is a job. */
#include "belay/shared_db.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "server/core/job.h"
#include "server/core/routes.h"

enum { ANSWER_MAX = 256 << 20, KEY_SIZE = sizeof DB_LOCK_PREFIX + BELAY_KEY_MAX };
#define APP_PREFIX "app:"

/* ---- what a token's keys say: of an application "app:NAME", of a database its lock's key ---- */

static const char *make_token_key(const char *prefix, const char *name, char out[KEY_SIZE])
{
    (void)snprintf(out, KEY_SIZE, "%s%s", prefix, name);
    return out;
}

static bool may_see_named(const struct job *job, const char *prefix, const char *name)
{
    char key[KEY_SIZE];

    return exchange_may_see(job->x, make_token_key(prefix, name, key));
}

/* For jobs whose body names the application. */
static enum belay_code check_app_key(struct job *job, const char *name)
{
    return strlen(name) > BELAY_KEY_MAX || may_see_named(job, APP_PREFIX, name)
               ? BELAY_OK /* the library refuses so long a name */
               : job_forbid(job, "'%s' may not touch the key '" APP_PREFIX "%.128s'", job->x->who, name);
}

/* Start the route's job on the application or database in the path, if the token's keys match it. */
static void start_job_on(struct exchange *x, const char *prefix, enum work_class class)
{
    char key[KEY_SIZE];

    if (exchange_may_touch(x, make_token_key(prefix, x->key, key))) {
        job_start(x, class, x->route->job);
    }
}

void handle_app(struct exchange *x)
{
    start_job_on(x, APP_PREFIX, WORK_JOB);
}

void handle_database(struct exchange *x)
{
    start_job_on(x, DB_LOCK_PREFIX, WORK_JOB);
}

void handle_database_change(struct exchange *x)
{
    start_job_on(x, DB_LOCK_PREFIX, WORK_LONG_JOB);
}

/* ---- lists ---- */

struct listed {
    const struct job *job;
    struct buf out;
    size_t n;
    bool is_partial; /* rows that the token may not see were left out */
};

/* Takes `line`, which is JSON; NULL: no memory. */
static bool add_listed_row(struct listed *listed, const char *prefix, const char *name, char *line)
{
    if (!may_see_named(listed->job, prefix, name)) {
        listed->is_partial = true;
        free(line);
        return true;
    }
    buf_addf(&listed->out, "%s%s", listed->n++ > 0 ? ",\n" : "", line == NULL ? "" : line);
    listed->out.failed = listed->out.failed || line == NULL;
    free(line);
    return !listed->out.failed;
}

static bool add_app(void *context, const struct belay_app *app)
{
    return add_listed_row(context, APP_PREFIX, app->name, belay_app_to_json(app));
}

static bool add_seen_database(void *context, const struct belay_database *database)
{
    return add_listed_row(context, DB_LOCK_PREFIX, database->id, belay_database_to_json(database));
}

static void finish_list(struct job *job, struct listed *listed, enum belay_code code)
{
    buf_addf(&listed->out, "],\"is_partial\":%s}", listed->is_partial ? "true" : "false");
    if (code == BELAY_OK) {
        job->answer = buf_take(&listed->out); /* NULL: no memory */
    }
    buf_release(&listed->out);
}

void job_apps(struct job *job)
{
    struct listed listed = { .job = job, .out = BUF_INIT(ANSWER_MAX) };

    buf_adds(&listed.out, "{\"apps\":[");
    finish_list(job, &listed, belay_app_list(job->server->client, add_app, &listed, &job->err));
}

void job_databases(struct job *job)
{
    struct listed listed = { .job = job, .out = BUF_INIT(ANSWER_MAX) };

    buf_adds(&listed.out, "{\"databases\":[");
    finish_list(job, &listed, belay_db_list(job->server->client, add_seen_database, &listed, &job->err));
}

/* ---- one database ---- */

struct wanted {
    const struct job *job;
    const char *id;
    char *answer; /* owned */
};

static bool pick_database(void *context, const struct belay_database *database)
{
    struct wanted *wanted = context;

    /* A database that was found by its host has another key, which the token must match too. */
    if ((strcmp(database->id, wanted->id) != 0 &&
         (database->host == NULL || strcmp(database->host, wanted->id) != 0)) ||
        !may_see_named(wanted->job, DB_LOCK_PREFIX, database->id)) {
        return true;
    }
    wanted->answer = belay_database_to_json(database);
    return false;
}

void job_database(struct job *job)
{
    struct wanted wanted = { .job = job, .id = job->x->key };

    if (belay_db_list(job->server->client, pick_database, &wanted, &job->err) == BELAY_OK) {
        job->answer = wanted.answer;
        if (wanted.answer == NULL) {
            (void)error_set(&job->err, BELAY_NOT_FOUND,
                            "no application in the registry uses database '%.200s'", job->x->key);
        }
    }
}

/* ---- one application ---- */

void job_app_get(struct job *job)
{
    struct belay_app *app = NULL;

    if (belay_app_get(job->server->client, job->x->key, &app, &job->err) == BELAY_OK) {
        job->answer = belay_app_to_json(app);
    }
    belay_app_free(app);
}

/* Read the body; the name is that of the path. */
static enum belay_code read_app_body(struct job *job, struct belay_app **out_app, bool *out_versioned)
{
    struct belay_app *app = NULL;
    json_t *root = json_loadb(job->body, job->body_len, 0, NULL);
    enum belay_code code = belay_app_from_json(job->body, job->body_len, &app, &job->err);

    *out_versioned = json_object_get(root, "version") != NULL;
    json_decref(root);
    if (code == BELAY_OK && app->name == NULL) {
        app->name = strdup(job->x->key);
        code = app->name == NULL ? error_no_memory(&job->err) : BELAY_OK;
    }
    if (code == BELAY_OK && job->x->key[0] != '\0' && strcmp(app->name, job->x->key) != 0) {
        code = error_set(&job->err, BELAY_INVALID, "the path names '%.128s', the body '%.128s'", job->x->key,
                         app->name);
    }
    if (code != BELAY_OK) {
        belay_app_free(app);
        return code;
    }
    *out_app = app;
    return BELAY_OK;
}

static bool has_row(const struct belay_app *app, const struct belay_app_database *row)
{
    for (size_t i = 0; app != NULL && i < app->n_databases; i++) {
        const struct belay_app_database *one = &app->databases[i];

        if (strcmp(one->id, row->id) == 0 && text_is_same(one->host, row->host)) {
            return true;
        }
    }
    return false;
}

/*
 * A row links an application and a database: the application is consulted before the database is stopped, and the
 * names of a row become one database. So the token must match both. Existing rows may stay.
 */
static enum belay_code check_rows(struct job *job, const struct belay_app *before,
                                  const struct belay_app *app)
{
    char key[KEY_SIZE];

    for (size_t i = 0; i < app->n_databases; i++) {
        const struct belay_app_database *row = &app->databases[i];
        const char *names[2] = { row->id, row->host };

        for (size_t k = 0; k < 2 && !has_row(before, row); k++) {
            if (names[k] != NULL && strlen(names[k]) <= BELAY_DATABASE_MAX &&
                !exchange_may_see(job->x, make_token_key(DB_LOCK_PREFIX, names[k], key))) {
                return job_forbid(job, "'%s' may not touch the key '%.300s'", job->x->who, key);
            }
        }
    }
    return BELAY_OK;
}

/*
 * Override what a client may not choose: where the URLs may lead, unless an admin registers them, and the name that
 * recorded the state, unless it is unchanged.
 */
static enum belay_code restrict_app(struct job *job, struct belay_app *app, bool is_versioned)
{
    struct belay_app *before = NULL;
    char by[BELAY_OWNER_MAX + 1];
    bool is_known = belay_app_get(job->server->client, app->name, &before, NULL) == BELAY_OK;
    bool is_kept = is_known && before->by != NULL && app->by != NULL && strcmp(before->by, app->by) == 0 &&
                   before->since_unix_ms == app->since_unix_ms;
    enum belay_code code = check_rows(job, before, app);

    if (job->x->role < ROLE_ADMIN) { /* keep the URLs as an admin registered them */
        app->public_only = !is_versioned || !is_known || before->public_only ||
                           !texts_are_same(before->urls, before->n_urls, app->urls, app->n_urls);
    }
    if (code == BELAY_OK && app->by != NULL && !is_kept) {
        code = mark_name(app->by, job->x->who, "by", by, sizeof by, &job->err);
        free(app->by);
        app->by = code == BELAY_OK ? strdup(by) : NULL;
        code = code == BELAY_OK && app->by == NULL ? error_no_memory(&job->err) : code;
    }
    belay_app_free(before);
    return code;
}

static void write_app(struct job *job, bool create)
{
    struct belay_client *client = job->server->client;
    struct belay_app *app = NULL;
    struct belay_app *kept = NULL;
    bool is_versioned = false;
    enum belay_code code = read_app_body(job, &app, &is_versioned);

    if (code == BELAY_OK) {
        code = check_app_key(job, app->name);
    }
    if (code == BELAY_OK) {
        code = restrict_app(job, app, is_versioned);
    }
    if (code == BELAY_OK && create) {
        app->version = 0;
        code = belay_app_put(client, app, NULL, &job->err);
    } else if (code == BELAY_OK) {
        code = is_versioned ? belay_app_put(client, app, NULL, &job->err)
                            : belay_app_register(client, app, true, NULL, &job->err);
    }
    if (code == BELAY_OK && belay_app_get(client, app->name, &kept, &job->err) == BELAY_OK) {
        job->answer = belay_app_to_json(kept);
    }
    belay_app_free(kept);
    belay_app_free(app);
}

void job_app_put(struct job *job)
{
    write_app(job, false);
}

void job_app_post(struct job *job)
{
    write_app(job, true);
}

void job_app_delete(struct job *job)
{
    char version[32] = "0";

    (void)job_query(job, "version", version, sizeof version);
    if (belay_app_remove(job->server->client, job->x->key, strtoull(version, NULL, 10), &job->err) ==
        BELAY_OK) {
        job->answer = strdup("{}");
    }
}

void job_app_mark(struct job *job)
{
    json_t *root = json_loadb(job->body, job->body_len, JSON_REJECT_DUPLICATES, NULL);
    const char *state = json_string_value(json_object_get(root, "state"));
    const char *by = json_string_value(json_object_get(root, "by"));
    struct belay_app *app = NULL;
    char who[BELAY_OWNER_MAX + 1];

    if (state == NULL || (strcmp(state, "running") != 0 && strcmp(state, "stopped") != 0)) {
        (void)error_set(&job->err, BELAY_INVALID, "'state' must be running or stopped");
        json_decref(root);
        return;
    }
    if (name_change(by, job->by, job->by, who, sizeof who, &job->err) == BELAY_OK &&
        belay_app_set_state(job->server->client, job->x->key,
                            strcmp(state, "stopped") == 0 ? BELAY_APP_STOPPED : BELAY_APP_RUNNING, who, &app,
                            &job->err) == BELAY_OK) {
        job->answer = belay_app_to_json(app);
    }
    belay_app_free(app);
    json_decref(root);
}

/* ---- quick status ---- */

void job_quick(struct job *job)
{
    struct belay_app_status *status = NULL;

    if (belay_app_check_health(job->server->client, job->x->key, &status, &job->err) == BELAY_OK) {
        job->answer = belay_app_status_to_json(status, false);
    }
    belay_app_status_free(status);
}

void handle_quick(struct exchange *x)
{
    if (http_query_get(x->request->query, "app", x->key, sizeof x->key) != HTTP_FOUND || x->key[0] == '\0') {
        reply_problem(x, 400, "invalid", "the application is missing: /status/quick?app=NAME");
        return;
    }
    handle_app(x);
}

/* ---- stop and start ---- */

struct asked {
    struct job *job;
    char refused[KEY_SIZE]; /* the key that the token may not touch; or "" */
};

static bool may_lock(void *context, const char *key)
{
    struct asked *asked = context;

    if (exchange_may_see(asked->job->x, key) && !atomic_load(&asked->job->is_revoked)) {
        return true;
    }
    (void)snprintf(asked->refused, sizeof asked->refused, "%s", key);
    return false;
}

static void on_step(void *context, enum belay_level level, const char *text)
{
    const struct asked *asked = context;

    server_log(asked->job->server, level == BELAY_LEVEL_WARNING ? LOG_WARN : LOG_INFO, "guard", text);
}

/* {"app", "dry_run", "wait_ms", "by"}, all optional. */
static enum belay_code read_db_options(struct job *job, json_t *root, struct belay_db_options *options)
{
    const char *name;
    json_t *value;

    if (job->body_len > 0 && !json_is_object(root)) {
        return error_set(&job->err, BELAY_INVALID, "the body must be a JSON object, or none");
    }
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "app") == 0 && json_is_string(value)) {
            options->app = json_string_value(value);
        } else if (strcmp(name, "by") == 0 && json_is_string(value)) {
            options->by = json_string_value(value);
        } else if (strcmp(name, "dry_run") == 0 && json_is_boolean(value)) {
            options->dry_run = json_is_true(value);
        } else if (strcmp(name, "wait_ms") == 0 && json_is_integer(value) && json_integer_value(value) >= 0 &&
                   json_integer_value(value) <= BELAY_TTL_MAX_MS) {
            options->wait_ms = json_integer_value(value);
        } else {
            return error_set(
                &job->err, BELAY_INVALID,
                "'%.60s' is invalid: the body can have app (a string), dry_run (true or false), wait_ms (a "
                "number) and by (a string)",
                name);
        }
    }
    return BELAY_OK;
}

static void run_database(struct job *job, bool is_start)
{
    struct belay_db_options options = BELAY_DB_OPTIONS_INIT;
    struct belay_db_results *results = NULL;
    struct asked asked = { .job = job };
    json_t *root = json_loadb(job->body, job->body_len, JSON_REJECT_DUPLICATES, NULL);
    char by[BELAY_OWNER_MAX + 1];
    enum belay_code code;

    options.database = job->x->key;
    options.acquired_by = job->x->who;
    options.on_step = on_step;
    options.may_lock = may_lock;
    options.context = &asked;
    options.cancel = job->cancel;
    code = read_db_options(job, root, &options);
    if (code == BELAY_OK && options.app != NULL) {
        code = check_app_key(job, options.app);
    }
    if (code == BELAY_OK) {
        code = name_change(options.by, job->by, job->by, by, sizeof by, &job->err);
        options.by = by;
    }
    if (code == BELAY_OK) {
        code = is_start ? belay_db_start(job->server->client, &options, &results, &job->err)
                        : belay_db_stop(job->server->client, &options, &results, &job->err);
    }
    if (code == BELAY_OK && asked.refused[0] != '\0') {
        code = job_forbid(job, "'%s' may not touch the key '%.300s'", job->x->who, asked.refused);
    }
    if (code == BELAY_OK) {
        job->answer = belay_db_results_to_json(results);
    }
    belay_db_results_free(results);
    json_decref(root);
}

void job_db_stop(struct job *job)
{
    run_database(job, false);
}

void job_db_start(struct job *job)
{
    run_database(job, true);
}

void job_db_record(struct job *job)
{
    json_t *root = json_loadb(job->body, job->body_len, JSON_REJECT_DUPLICATES, NULL);
    const char *said = json_string_value(json_object_get(root, "by"));
    char by[BELAY_OWNER_MAX + 1];
    char *text = NULL;

    if (said == NULL || mark_name(said, job->x->who, "by", by, sizeof by, &job->err) == BELAY_OK) {
        (void)(said == NULL ? 0 : json_object_set_new(root, "by", json_string(by)));
        text = root == NULL ? strdup(job->body) : json_dumps(root, JSON_COMPACT);
    }
    if (text != NULL &&
        belay_db_record_result(job->server->client, job->x->key, text, &job->err) == BELAY_OK) {
        job->answer = strdup("{}");
    }
    free(text);
    json_decref(root);
}
