#include "server/state/state_job.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "server/core/routes.h"
#include "json/json_write.h"

struct belay_state_name state_job_name(const struct job *job)
{
    return (struct belay_state_name){ job->x->key, job->x->more[0] };
}

void state_job_read(struct job *job)
{
    if (state_pool_take(job->server->states, &job->states, &job->err) == BELAY_OK) {
        job->x->route->job(job);
        state_pool_give(job->server->states, job->states);
    }
}

void state_job_etag(struct job *job, const struct belay_blob_tag *tag)
{
    (void)snprintf(job->etag, sizeof job->etag, tag->text[0] == '"' ? "%s" : "\"%s\"", tag->text);
}

bool state_job_read_etag(const struct job *job, const char *etag, struct belay_blob_tag *out)
{
    size_t n = strlen(etag);

    if (n < 3 || n > BELAY_BLOB_TAG_MAX || etag[0] != '"' || etag[n - 1] != '"') {
        return false;
    }
    if (text_has_prefix(belay_states_url(job->states), "s3:")) {
        (void)snprintf(out->text, sizeof out->text, "%s", etag);
    } else {
        (void)snprintf(out->text, sizeof out->text, "%.*s", (int)(n - 2), etag + 1);
    }
    return true;
}

struct kept *state_job_keep(struct job *job, const char *name, char *text, size_t len,
                            const struct belay_blob_tag *tag)
{
    struct kept *kept = state_cache_add(state_pool_cache(job->server->states), name, text, len, tag);

    if (kept == NULL) {
        (void)error_no_memory(&job->err);
    }
    return kept;
}

struct kept *state_job_keep_state(struct job *job, struct belay_state *state)
{
    struct kept *kept = state_job_keep(job, job->x->more[1], state->text, state->len, &state->tag);

    state->text = NULL;
    belay_state_free(state);
    return kept;
}

enum belay_code state_job_load(struct job *job, const char *folder, struct kept **out_kept)
{
    const char *name = folder != NULL ? folder : job->x->more[1];
    struct belay_state_name state_name = state_job_name(job);
    struct kept *kept = state_cache_find(state_pool_cache(job->server->states), name);
    const struct belay_blob_tag *tag = kept == NULL ? NULL : &kept->tag;
    struct belay_blob document = { 0 };
    struct belay_state *state = NULL;
    enum belay_code code = folder != NULL
                               ? belay_document_reload(job->states, folder, tag, &document, &job->err)
                               : belay_state_reload(job->states, &state_name, tag, &state, &job->err);

    if (code != BELAY_OK || state != NULL || document.data != NULL) {
        state_cache_drop(kept);
        kept = code != BELAY_OK ? NULL
               : state != NULL  ? state_job_keep_state(job, state)
                                : state_job_keep(job, name, document.data, document.len, &document.tag);
    }
    if (kept == NULL) {
        assert(job->err.code != BELAY_OK);
        return job->err.code;
    }
    *out_kept = kept;
    return BELAY_OK;
}

void state_job_answer(struct job *job, struct kept *kept)
{
    assert(job->shared.data == NULL && job->answer == NULL);
    state_job_etag(job, &kept->tag);
    job->shared = state_cache_share(kept);
}

static enum belay_code bind_to_lock_store(struct job *job, const char **out_id)
{
    struct belay_client *client = job->server->client;
    const char *id = "";
    enum belay_code code = BELAY_OK;

    if (belay_client_locking_enabled(client)) {
        code = belay_client_store_id(client, &id, &job->err);
        if (code == BELAY_OK) {
            code = belay_states_bind(job->states, id, belay_client_store_url(client), &job->err);
            if (code == BELAY_CONFIG) {
                job->status = 409;
                job->err.code = BELAY_REFUSED;
            }
        }
    }
    if (code == BELAY_OK && out_id != NULL) {
        *out_id = id;
    }
    return code;
}

enum belay_code state_job_begin(struct job *job, const char *name, const char **out_id)
{
    enum belay_code code;

    state_pool_enter(job->server->states, name);
    code = state_pool_take(job->server->states, &job->states, &job->err);
    return code == BELAY_OK ? bind_to_lock_store(job, out_id) : code;
}

void state_job_end(struct job *job, const char *name, struct belay_lock *own, enum belay_code code,
                   const char *part)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (own != NULL &&
        belay_lock_release(own, code == BELAY_OK ? BELAY_OUTCOME_COMPLETED : BELAY_OUTCOME_FAILED, &err) !=
            BELAY_OK) {
        server_log(job->server, LOG_WARN, part, err.text);
    }
    belay_error_release(&err);
    belay_lock_free(own);
    state_pool_give(job->server->states, job->states);
    state_pool_leave(job->server->states, name);
}

bool state_job_add_version(void *context, const struct belay_snapshot *snapshot)
{
    return json_array_append_new(context,
                                 json_pack("{s:I, s:s, s:s, s:I}", "index", (json_int_t)snapshot->index,
                                           "name", snapshot->name, "timestamp", snapshot->timestamp, "size",
                                           (json_int_t)snapshot->size)) == 0;
}
