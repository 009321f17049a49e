/*
 * Deployment states over HTTP (S4): read, and write under the stack's lock.
 *
 * A write names its lock and the content that it was made from. Both are checked
 * here, and the content once more by the store, in the write itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "server/jobs.h"
#include "server/state_pool.h"
#include "wire/wire.h"

enum { TEXT_SIZE = 257, ANSWER_HISTORY = 1000 };

/* ---- one request ---- */

/* more[0] is the environment; more[1] becomes the key of the stack's lock, or the name of a snapshot. */
static void start(struct exchange *x, void (*work)(struct job *job), char key_out[BELAY_KEY_MAX + 1])
{
    struct belay_key_parts parts = { .stack = x->key, .environment = x->more[0] };
    struct belay_error err = BELAY_ERROR_INIT;
    char *key = NULL;

    if (belay_key_make(x->server->config, &parts, &key, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else if (exchange_may_touch(x, key)) {
        if (key_out != NULL) {
            (void)snprintf(key_out, BELAY_KEY_MAX + 1, "%s", key);
        }
        job_start(x, work, false);
    }
    free(key);
    belay_error_release(&err);
}

static struct belay_state_name name_of(const struct job *job)
{
    return (struct belay_state_name){ job->key, job->more[0] };
}

static void set_etag(struct job *job, const struct belay_blob_tag *tag)
{
    (void)snprintf(job->etag, sizeof job->etag, tag->text[0] == '"' ? "%s" : "\"%s\"", tag->text);
}

/* A tag has quotes on S3 only, an ETag always. */
static bool read_etag(const struct belay_states *states, const char *etag, struct belay_blob_tag *out)
{
    size_t n = strlen(etag);

    if (n < 3 || n > BELAY_BLOB_TAG_MAX || etag[0] != '"' || etag[n - 1] != '"') {
        return false;
    }
    if (text_has_prefix(belay_states_url(states), "s3:")) {
        (void)snprintf(out->text, sizeof out->text, "%s", etag);
    } else {
        (void)snprintf(out->text, sizeof out->text, "%.*s", (int)(n - 2), etag + 1);
    }
    return true;
}

/* ---- reading ---- */

static void take_text(struct job *job, struct belay_state *state)
{
    job->answer = state->text;
    job->answer_len = state->len;
    set_etag(job, &state->tag);
    state->text = NULL;
    belay_state_free(state);
}

static void get_state(struct job *job)
{
    struct belay_state_name name = name_of(job);
    struct belay_states *states = NULL;
    struct belay_state *state = NULL;

    if (state_pool_take(job->server->states, &states, &job->err) == BELAY_OK &&
        belay_state_load(states, &name, &state, &job->err) == BELAY_OK) {
        take_text(job, state);
    }
    state_pool_give(job->server->states, states);
}

static void get_snapshot(struct job *job)
{
    struct belay_state_name name = name_of(job);
    struct belay_states *states = NULL;
    struct belay_state *state = NULL;
    char *which = NULL;
    enum belay_code code = state_pool_take(job->server->states, &states, &job->err);

    if (code == BELAY_OK) {
        code = belay_state_find_snapshot(states, &name, job->more[1], &which, &job->err);
    }
    if (code == BELAY_OK) {
        code = belay_state_load_snapshot(states, &name, which, &state, &job->err);
    }
    if (code == BELAY_OK) {
        take_text(job, state);
    }
    free(which);
    state_pool_give(job->server->states, states);
}

static bool add_deployment(void *context, const char *line)
{
    return json_array_append_new(context, json_loads(line, 0, NULL)) == 0;
}

static bool add_snapshot(void *context, const struct belay_snapshot *snapshot)
{
    return json_array_append_new(context,
                                 json_pack("{s:I, s:s, s:s, s:I}", "index", (json_int_t)snapshot->index,
                                           "name", snapshot->name, "timestamp", snapshot->timestamp, "size",
                                           (json_int_t)snapshot->size)) == 0;
}

static void get_history(struct job *job)
{
    struct belay_state_name name = name_of(job);
    struct belay_states *states = NULL;
    json_t *deployments = json_array();
    json_t *snapshots = json_array();
    size_t limit = 0;
    char text[8];
    bool is_none = job_query(job, "limit", text, sizeof text) && strcmp(text, "0") == 0;
    enum belay_code code =
        is_none ? BELAY_OK : read_limit(job->query, ANSWER_HISTORY, ANSWER_HISTORY, &limit, &job->err);

    if (code == BELAY_OK) {
        code = state_pool_take(job->server->states, &states, &job->err);
    }
    if (code == BELAY_OK && !is_none) {
        code = belay_state_history(states, &name, limit, add_deployment, deployments, &job->err);
    }
    if (code == BELAY_OK) {
        code = belay_state_snapshots(states, &name, add_snapshot, snapshots, &job->err);
    }
    if (code == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:O, s:O}", "deployments", deployments, "versions", snapshots));
    }
    json_decref(deployments);
    json_decref(snapshots);
    state_pool_give(job->server->states, states);
}

static void add_finding(void *context, const struct belay_finding *finding)
{
    (void)json_array_append_new(context, json_pack("{s:s, s:s, s:o}", "part", finding->name, "level",
                                                   belay_finding_level_name(finding->level), "text",
                                                   wire_text(finding->text)));
}

static void verify_state(struct job *job)
{
    struct belay_state_name name = name_of(job);
    struct belay_states *states = NULL;
    json_t *findings = json_array();
    enum belay_code code = state_pool_take(job->server->states, &states, &job->err);

    if (code == BELAY_OK) {
        code = belay_state_verify(states, &name, NULL, add_finding, findings, &job->err);
    }
    /* That something is wrong with it is the answer. */
    if (code == BELAY_OK || code == BELAY_BAD_CONTENT) {
        job->answer = wire_line(json_pack("{s:b, s:O}", "is_sound", code == BELAY_OK, "findings", findings));
    }
    json_decref(findings);
    state_pool_give(job->server->states, states);
}

static bool add_state(void *context, const struct belay_state_name *name, uint64_t size,
                      int64_t modified_unix_ms)
{
    return json_array_append_new(context,
                                 json_pack("{s:o, s:o, s:I, s:o}", "stack", wire_text(name->stack),
                                           "environment", wire_text(name->environment), "size",
                                           (json_int_t)size, "modified", wire_time(modified_unix_ms))) == 0;
}

static void list_states(struct job *job)
{
    struct belay_states *states = NULL;
    json_t *list = json_array();

    if (state_pool_take(job->server->states, &states, &job->err) == BELAY_OK &&
        belay_state_list(states, add_state, list, &job->err) == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:O}", "states", list));
    }
    json_decref(list);
    state_pool_give(job->server->states, states);
}

/* ---- the lock of a write ---- */

struct writing {
    struct job *job;
    struct belay_states *states; /* from the pool */
    struct belay_info *info;     /* owned; the lock that they hold */
    struct belay_lock *own;      /* owned; or the one that we took */
    struct belay_stamp stamp;
    struct belay_blob_tag tag;
    struct belay_state_write write;
    struct belay_deployment deployment;
    char texts[6][TEXT_SIZE];
};

static void fill_stamp(struct writing *writing, const struct belay_info *info)
{
    writing->stamp = (struct belay_stamp){
        .token = info->token,
        .store = belay_client_store_url(writing->job->server->client),
        .lock_id = info->lock_id,
        .locked_by = *info->locked_by_name != '\0' ? info->locked_by_name : info->locked_by,
        .locked_at_unix_ms = info->locked_at_unix_ms,
        .expires_at_unix_ms = info->expires_at_unix_ms,
    };
    writing->write.stamp = &writing->stamp;
}

/* Theirs, if they still hold it. */
static enum belay_code use_lock(struct writing *writing, const char *key)
{
    struct job *job = writing->job;
    char id[BELAY_ID_MAX + 1];
    enum belay_code code;

    if (!job_query(job, "lock_id", id, sizeof id)) {
        return error_set(&job->err, BELAY_REFUSED,
                         "a state is written under its lock only: acquire '%.200s' and add ?lock_id=ID", key);
    }
    code = belay_renew(job->server->client, key, id, 0, &writing->info, &job->err);
    if (code == BELAY_OK) {
        fill_stamp(writing, writing->info);
    }
    return code;
}

/* Ours, where they say of none. */
static enum belay_code use_or_take_lock(struct writing *writing, const char *key)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct job *job = writing->job;
    char id[BELAY_ID_MAX + 1];
    enum belay_code code;

    if (job_query(job, "lock_id", id, sizeof id)) {
        return use_lock(writing, key);
    }
    options.owner_name = job->by;
    options.cancel = job->cancel;
    code = belay_lock_acquire(job->server->client, key, &options, &writing->own, &job->err);
    if (code == BELAY_OK) {
        fill_stamp(writing, belay_lock_info(writing->own));
    }
    return code;
}

static enum belay_code begin(struct writing *writing, struct job *job)
{
    *writing = (struct writing){ .job = job, .write = BELAY_STATE_WRITE_INIT };
    state_pool_enter(job->server->states, job->more[1]);
    return state_pool_take(job->server->states, &writing->states, &job->err);
}

static void end(struct writing *writing, enum belay_code code)
{
    struct job *job = writing->job;
    struct belay_error err = BELAY_ERROR_INIT;

    if (writing->own != NULL &&
        belay_lock_release(writing->own, code == BELAY_OK ? BELAY_OUTCOME_COMPLETED : BELAY_OUTCOME_FAILED,
                           &err) != BELAY_OK) {
        server_say(job->server, LOG_WARN, "state", err.text);
    }
    belay_error_release(&err);
    belay_lock_free(writing->own);
    belay_info_free(writing->info);
    state_pool_give(job->server->states, writing->states);
    state_pool_leave(job->server->states, job->more[1]);
}

/* ---- what is recorded of a write ---- */

static void read_deployment(struct writing *writing, const char *status)
{
    static const char *const names[] = { "deployment_id", "triggered_by", "git_commit",
                                         "git_branch",    "version",      "status" };
    struct belay_deployment *deployment = &writing->deployment;
    const char **const slots[] = { &deployment->deployment_id, &deployment->triggered_by,
                                   &deployment->git_commit,    &deployment->git_branch,
                                   &deployment->version,       &deployment->status };
    char id[UUID_TEXT_SIZE];

    deployment->triggered_by = deployment->user = writing->job->by;
    deployment->status = status;
    deployment->duration_ms = -1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (job_query(writing->job, names[i], writing->texts[i], TEXT_SIZE)) {
            *slots[i] = writing->texts[i];
        }
    }
    if (deployment->deployment_id == NULL && uuid_make(id)) {
        (void)snprintf(writing->texts[0], TEXT_SIZE, "dep-%.8s%.4s", id, id + 9);
        deployment->deployment_id = writing->texts[0];
    }
    writing->write.deployment = deployment;
}

static void answer_saved(struct job *job, const struct belay_state *state)
{
    set_etag(job, &state->tag);
    job->answer = wire_line(json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:s}", "stack", job->key, "environment",
                                      job->more[0], "serial", (json_int_t)state->serial, "token",
                                      (json_int_t)state->token, "snapshot", wire_text(state->snapshot),
                                      "deployment_id", wire_text(state->deployment_id), "etag", job->etag));
}

/* ---- writing ---- */

static enum belay_code refuse_base(struct job *job, const struct belay_state *state)
{
    job->status = 412;
    if (state == NULL) {
        return error_set(&job->err, BELAY_REFUSED, "there is no state of '%.128s' in '%.128s'", job->key,
                         job->more[0]);
    }
    if (job->if_match == NULL) {
        return error_set(&job->err, BELAY_REFUSED, "there is a state of '%.128s' in '%.128s' already",
                         job->key, job->more[0]);
    }
    return error_set(&job->err, BELAY_REFUSED,
                     "the state of '%.128s' in '%.128s' has changed since it was loaded; nothing was saved",
                     job->key, job->more[0]);
}

/*
 * If-Match, or If-None-Match: *, one of which it takes. The library lets one lock's
 * writes follow each other; who sends If-Match asks for more.
 */
static enum belay_code check_condition(struct writing *writing)
{
    struct job *job = writing->job;
    struct belay_state_name name = name_of(job);
    struct belay_state *state = NULL;
    enum belay_code code;

    if (job->if_match != NULL && strcmp(job->if_match, "*") == 0) {
        return BELAY_OK;
    }
    if (job->if_match != NULL && !read_etag(writing->states, job->if_match, &writing->tag)) {
        return error_set(&job->err, BELAY_INVALID, "If-Match must be one ETag, in its quotes, or *");
    }
    if (job->if_match == NULL && (job->if_none_match == NULL || strcmp(job->if_none_match, "*") != 0)) {
        job->status = 428;
        return error_set(
            &job->err, BELAY_REFUSED,
            "say what it was made from: If-Match with the ETag of the GET, or If-None-Match: * if "
            "there was none");
    }
    code = belay_state_load(writing->states, &name, &state, &job->err);
    if (code == BELAY_OK || code == BELAY_NOT_FOUND) {
        bool is_right = job->if_match == NULL
                            ? state == NULL
                            : state != NULL && strcmp(state->tag.text, writing->tag.text) == 0;

        code = is_right ? BELAY_OK : refuse_base(job, state);
        writing->write.loaded = job->if_match == NULL ? NULL : &writing->tag;
    }
    belay_state_free(state);
    return code;
}

/* Whether it is the new document that is wrong, or the one that is there. */
static void blame(struct writing *writing)
{
    struct belay_state_name name = name_of(writing->job);
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_state *state = NULL;
    enum belay_code code = belay_state_load(writing->states, &name, &state, &err);

    if (code == BELAY_OK || code == BELAY_NOT_FOUND) {
        writing->job->status = 400;
    }
    belay_state_free(state);
    belay_error_release(&err);
}

static void put_state(struct job *job)
{
    struct belay_state_name name = name_of(job);
    struct belay_state *state = NULL;
    struct writing writing;
    char keep[8];
    enum belay_code code = begin(&writing, job);

    if (code == BELAY_OK) {
        code = use_lock(&writing, job->more[1]);
    }
    if (code == BELAY_OK) {
        code = check_condition(&writing);
    }
    if (code == BELAY_OK) {
        read_deployment(&writing, "success");
        writing.write.keep_locked =
            job_query(job, "keep_locked", keep, sizeof keep) && strcmp(keep, "true") == 0;
        code = belay_state_save(writing.states, &name, job->body, job->body_len, &writing.write, &state,
                                &job->err);
        if (code == BELAY_NOT_HOLDER) {
            job->status = 412; /* the lock is theirs, so it is the content */
        } else if (code == BELAY_BAD_CONTENT) {
            blame(&writing);
        }
    }
    if (code == BELAY_OK) {
        answer_saved(job, state);
    }
    belay_state_free(state);
    end(&writing, code);
}

/* From now on nobody with an older lock can write, and nobody who loaded before. */
static void stamp_state(struct job *job)
{
    struct belay_state_name name = name_of(job);
    struct belay_state *state = NULL;
    struct writing writing;
    enum belay_code code = begin(&writing, job);

    if (code == BELAY_OK) {
        code = use_lock(&writing, job->more[1]);
    }
    if (code == BELAY_OK) {
        code = belay_state_stamp(writing.states, &name, &writing.stamp, &state, &job->err);
    }
    if (code == BELAY_OK) {
        take_text(job, state);
    }
    end(&writing, code);
}

static enum belay_code restore(struct writing *writing, const char *version, struct belay_state **out_state)
{
    struct job *job = writing->job;
    struct belay_state_name name = name_of(job);
    char *which = NULL;
    enum belay_code code = belay_state_find_snapshot(writing->states, &name, version, &which, &job->err);

    if (code == BELAY_OK) {
        code = use_or_take_lock(writing, job->more[1]);
    }
    if (code == BELAY_OK && job->if_match != NULL) {
        code = check_condition(writing); /* they were shown what would change, and from what */
    }
    if (code == BELAY_OK) {
        read_deployment(writing, "restored");
        code = belay_state_restore(writing->states, &name, which, &writing->write, out_state, &job->err);
    }
    free(which);
    return code;
}

static void restore_state(struct job *job)
{
    json_t *root = json_loadb(job->body, job->body_len, 0, NULL);
    const char *version = json_string_value(json_object_get(root, "version"));
    struct belay_state *state = NULL;
    struct writing writing;
    enum belay_code code;

    if (version == NULL) {
        (void)error_set(&job->err, BELAY_INVALID,
                        "the body must have 'version': a name, an index or a timestamp of the history, or "
                        "latest, as a text");
        json_decref(root);
        return;
    }
    code = begin(&writing, job);
    if (code == BELAY_OK) {
        code = restore(&writing, version, &state);
    }
    if (code == BELAY_OK) {
        answer_saved(job, state);
    }
    belay_state_free(state);
    end(&writing, code);
    json_decref(root);
}

/* ---- the routes ---- */

void handle_states(struct exchange *x)
{
    job_start(x, list_states, false);
}

void handle_state_get(struct exchange *x)
{
    start(x, get_state, NULL);
}

void handle_state_history(struct exchange *x)
{
    start(x, get_history, NULL);
}

void handle_state_snapshot(struct exchange *x)
{
    start(x, get_snapshot, NULL);
}

void handle_state_verify(struct exchange *x)
{
    start(x, verify_state, NULL);
}

void handle_state_put(struct exchange *x)
{
    start(x, put_state, x->more[1]);
}

void handle_state_stamp(struct exchange *x)
{
    start(x, stamp_state, x->more[1]);
}

void handle_state_restore(struct exchange *x)
{
    start(x, restore_state, x->more[1]);
}
