/*
 * Writes of deployment states over HTTP, under the stack's lock.
 *
 * A write names its lock and the content that it was made from. The job renews the lock; the store compares the
 * content, in the write itself.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "server/state/state_job.h"
#include "json/json_write.h"

enum { TEXT_SIZE = 257 };

/* ---- the lock of a write ---- */

struct writing {
    struct job *job;
    const char *store_id;    /* of the lock store */
    struct belay_info *info; /* owned; the client's lock */
    struct belay_lock *own;  /* owned; or the lock that the server took */
    struct belay_state_lock stamp;
    struct belay_blob_tag tag;
    struct belay_state_write write;
    struct belay_deployment deployment;
    struct belay_deployment detected; /* used where neither the request nor the document has a value */
    char new_id[32];
    char texts[7][TEXT_SIZE];
    char detected_texts[4][TEXT_SIZE];
};

static void fill_stamp(struct writing *writing, const struct belay_info *info)
{
    if (!belay_client_locking_enabled(writing->job->server->client)) {
        return; /* no token to compare, as for a local write without a lock */
    }
    writing->stamp = (struct belay_state_lock){
        .token = info->token,
        .store = writing->store_id,
        .store_url = belay_client_store_url(writing->job->server->client),
        .lock_id = info->lock_id,
        .key = info->key,
        .locked_by = *info->locked_by_name != '\0' ? info->locked_by_name : info->locked_by,
        .locked_at_unix_ms = info->locked_at_unix_ms,
        .expires_at_unix_ms = info->expires_at_unix_ms,
    };
    writing->write.lock = &writing->stamp;
}

/* Use the client's lock, if it still holds it. */
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

/* Use the client's lock, or take one if it names none. */
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
    options.acquired_by = job->x->who;
    options.cancel = job->cancel;
    code = belay_lock_acquire(job->server->client, key, &options, &writing->own, &job->err);
    if (code == BELAY_OK) {
        fill_stamp(writing, belay_lock_info(writing->own));
    }
    return code;
}

static enum belay_code begin_writing(struct writing *writing, struct job *job)
{
    *writing = (struct writing){ .job = job, .write = BELAY_STATE_WRITE_INIT };
    return state_job_begin(job, job->x->more[1], &writing->store_id);
}

static void end_writing(struct writing *writing, enum belay_code code)
{
    belay_info_free(writing->info);
    state_job_end(writing->job, writing->job->x->more[1], writing->own, code, "state");
}

/* ---- what is recorded of a write ---- */

/* Parameters of the query. A client may have detected the first ones itself, as belay's does. */
static const struct {
    const char *name;
    size_t offset;
} deployment_fields[] = {
    { "deployment_id", offsetof(struct belay_deployment, deployment_id) },
    { "triggered_by", offsetof(struct belay_deployment, triggered_by) },
    { "git_commit", offsetof(struct belay_deployment, git_commit) },
    { "git_branch", offsetof(struct belay_deployment, git_branch) },
    { "version", offsetof(struct belay_deployment, version) },
    { "status", offsetof(struct belay_deployment, status) },
    { "user", offsetof(struct belay_deployment, user) },
};
enum { DETECTED_FIELDS = 4, FIELDS = sizeof deployment_fields / sizeof deployment_fields[0] };

static void read_deployment_fields(const struct job *job, const char *prefix, size_t n,
                                   struct belay_deployment *out, char texts[][TEXT_SIZE])
{
    char name[64];

    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "%s%s", prefix, deployment_fields[i].name);
        if (job_query(job, name, texts[i], TEXT_SIZE)) {
            *(const char **)((char *)out + deployment_fields[i].offset) = texts[i];
        }
    }
}

static void read_deployment(struct writing *writing, const char *status)
{
    const struct job *job = writing->job;
    struct belay_deployment *deployment = &writing->deployment;
    bool has_token = job->x->who[0] != '\0'; /* which tells the user */
    char id[UUID_TEXT_SIZE];
    char text[24];

    *deployment = (struct belay_deployment){ .user = job->by, .status = status, .duration_ms = -1 };
    writing->detected = (struct belay_deployment){ .triggered_by = job->by, .duration_ms = -1 };
    read_deployment_fields(job, "", FIELDS - (has_token ? 1 : 0), deployment, writing->texts);
    if (job_query(job, "duration_ms", text, sizeof text) && text[0] >= '0' && text[0] <= '9') {
        deployment->duration_ms = strtoll(text, NULL, 10);
    }
    if (uuid_make(id)) {
        (void)snprintf(writing->new_id, sizeof writing->new_id, "dep-%.8s%.4s", id, id + 9);
        writing->detected.deployment_id = writing->new_id;
    }
    read_deployment_fields(job, "detected_", DETECTED_FIELDS, &writing->detected, writing->detected_texts);
    writing->write.deployment = deployment;
    writing->write.detected = &writing->detected;
}

/* The record is the server's: the document that is saved describes another deployment. */
static void claim_deployment(struct writing *writing)
{
    struct belay_deployment *deployment = &writing->deployment;

    if (deployment->deployment_id == NULL) {
        deployment->deployment_id = writing->detected.deployment_id;
    }
    if (deployment->triggered_by == NULL) {
        deployment->triggered_by = writing->detected.triggered_by;
    }
    writing->write.detected = NULL;
}

static void answer_saved(struct job *job, const struct belay_state *state)
{
    state_job_etag(job, &state->tag);
    job->answer = wire_line(json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:o, s:s}", "stack", job->x->key, "environment", job->x->more[0], "serial",
        (json_int_t)state->serial, "token", (json_int_t)state->token, "snapshot", wire_text(state->snapshot),
        "deployment_id", wire_text(state->deployment_id), "etag", job->etag));
}

/* Takes `state`, which is set if the code is BELAY_OK. */
static void end_saved(struct writing *writing, struct belay_state *state, enum belay_code code)
{
    if (code == BELAY_OK) {
        answer_saved(writing->job, state);
        state_cache_drop(state_job_keep_state(writing->job, state));
    } else {
        belay_state_free(state);
    }
    end_writing(writing, code);
}

/* ---- writing ---- */

/* If-Match or If-None-Match: *; one is required. */
static enum belay_code read_condition(struct writing *writing)
{
    struct job *job = writing->job;

    if (job->if_match != NULL && strcmp(job->if_match, "*") == 0) {
        return BELAY_OK;
    }
    if (job->if_match != NULL && !state_job_read_etag(job, job->if_match, &writing->tag)) {
        return error_set(&job->err, BELAY_INVALID, "If-Match must be one ETag, in its quotes, or *");
    }
    if (job->if_match == NULL && (job->if_none_match == NULL || strcmp(job->if_none_match, "*") != 0)) {
        job->status = 428;
        return error_set(
            &job->err, BELAY_REFUSED,
            "name the version it was made from: If-Match with the ETag of the GET, or If-None-Match: * if "
            "there was none");
    }
    writing->write.loaded = job->if_match == NULL ? NULL : &writing->tag;
    writing->write.exact = job->if_match == NULL || !job_query_is_true(job, "own");
    return BELAY_OK;
}

void job_state_put(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    struct belay_state *state = NULL;
    struct writing writing;
    bool is_unchanged = job_query_is_true(job, "unchanged") && job->body_len == 0;
    enum belay_code code = begin_writing(&writing, job);

    if (code == BELAY_OK) {
        code = use_lock(&writing, job->x->more[1]);
    }
    if (code == BELAY_OK) {
        code = read_condition(&writing);
    }
    if (code == BELAY_OK) {
        read_deployment(&writing, "success");
        writing.write.keep_locked = job_query_is_true(job, "keep_locked");
        code = belay_state_save(job->states, &name, is_unchanged ? NULL : job->body, job->body_len,
                                &writing.write, &state, &job->err);
        if (code == BELAY_NOT_HOLDER) {
            job->status = 412;             /* the client holds the lock, so the content has changed */
            job->err.code = BELAY_REFUSED; /* not about the lock */
        } else if (code == BELAY_BAD_CONTENT && !is_unchanged &&
                   belay_state_check(&name, job->body, job->body_len, NULL) == BELAY_BAD_CONTENT) {
            job->status = 400;
        }
    }
    end_saved(&writing, state, code);
}

void job_state_stamp(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    struct belay_state *state = NULL;
    struct writing writing;
    enum belay_code code = begin_writing(&writing, job);

    if (code == BELAY_OK) {
        code = use_lock(&writing, job->x->more[1]);
    }
    if (code == BELAY_OK) {
        code = belay_state_begin(job->states, &name, &writing.stamp, &state, &job->err);
    }
    if (code == BELAY_OK) {
        struct kept *kept = state_job_keep_state(job, state);

        if (kept != NULL) {
            state_job_answer(job, kept);
        }
    }
    end_writing(&writing, code);
}

/* ---- restore and adopt: an old or foreign version becomes a new one ---- */

typedef enum belay_code (*state_again_fn)(struct belay_states *states, const struct belay_state_name *name,
                                          const char *snapshot, const struct belay_state_write *write,
                                          struct belay_state **out_state, struct belay_error *err);
struct again {
    state_again_fn work;
    const char *status;
    const char *version; /* NULL: none */
};

static enum belay_code save_again(struct writing *writing, const struct again *again,
                                  struct belay_state **out_state)
{
    struct job *job = writing->job;
    struct belay_state_name name = state_job_name(job);
    char *which = NULL;
    enum belay_code code =
        again->version == NULL
            ? BELAY_OK
            : belay_state_find_snapshot(job->states, &name, again->version, &which, &job->err);

    if (code == BELAY_OK) {
        code = use_or_take_lock(writing, job->x->more[1]);
    }
    if (code == BELAY_OK && job->if_match != NULL) {
        code = read_condition(writing); /* If-Match: the version that the user was shown */
    }
    if (code == BELAY_OK) {
        read_deployment(writing, again->status);
        claim_deployment(writing);
        writing->write.keep_locked = job_query_is_true(job, "keep_locked");
        code = again->work(job->states, &name, which, &writing->write, out_state, &job->err);
        if (code == BELAY_NOT_HOLDER && job->if_match != NULL) {
            job->status = 412; /* as of a PUT */
            job->err.code = BELAY_REFUSED;
        }
    }
    free(which);
    return code;
}

static void run_again(struct job *job, const struct again *again)
{
    struct belay_state *state = NULL;
    struct writing writing;
    enum belay_code code = begin_writing(&writing, job);

    if (code == BELAY_OK) {
        code = save_again(&writing, again, &state);
    }
    end_saved(&writing, state, code);
}

void job_state_restore(struct job *job)
{
    json_t *root = json_loadb(job->body, job->body_len, 0, NULL);
    struct again again = { belay_state_restore, "restored",
                           json_string_value(json_object_get(root, "version")) };

    if (again.version == NULL) {
        (void)error_set(&job->err, BELAY_INVALID,
                        "the body must have 'version': a name, an index or a timestamp of the history, or "
                        "latest, as a string");
    } else {
        run_again(job, &again);
    }
    json_decref(root);
}

void job_state_adopt(struct job *job)
{
    json_t *root = json_loadb(job->body, job->body_len, 0, NULL);
    json_t *version = json_object_get(root, "version");
    struct again again = { belay_state_adopt, "adopted", json_string_value(version) };

    if ((job->body_len > 0 && !json_is_object(root)) ||
        (version != NULL && !json_is_null(version) && again.version == NULL)) {
        (void)error_set(
            &job->err, BELAY_INVALID,
            "the body must be empty, or an object; 'version' in it a name, an index or a timestamp "
            "of the history, or latest, as a string");
    } else {
        run_again(job, &again);
    }
    json_decref(root);
}
