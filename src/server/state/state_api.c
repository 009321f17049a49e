/* Deployment states over HTTP (S4): handlers and reads. state_write.c has the writes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/core/routes.h"
#include "server/state/state_job.h"
#include "json/json_write.h"

enum { ANSWER_HISTORY = 1000 };

/* ---- the handlers ---- */

/* more[0] is the environment; more[1], unless it is the name of a snapshot, becomes the key of the stack's lock. */
static void start_state_job(struct exchange *x, job_fn *run)
{
    struct belay_key_parts parts = { .stack = x->key, .environment = x->more[0] };
    struct belay_error err = BELAY_ERROR_INIT;
    char *key = NULL;

    if (belay_key_make(x->server->config, &parts, &key, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else if (exchange_may_touch(x, key)) {
        if (x->more[1][0] == '\0') {
            (void)snprintf(x->more[1], sizeof x->more[1], "%s", key);
        }
        job_start(x, WORK_JOB, run);
    }
    free(key);
    belay_error_release(&err);
}

void handle_state_read(struct exchange *x)
{
    start_state_job(x, state_job_read);
}

void handle_state_write(struct exchange *x)
{
    start_state_job(x, x->route->job);
}

void handle_states(struct exchange *x)
{
    job_start(x, WORK_JOB, state_job_read);
}

/* ---- reading ---- */

/* Takes the state. */
static void answer_with(struct job *job, struct belay_state *state)
{
    state_job_etag(job, &state->tag);
    job->answer = state->text;
    job->answer_len = state->len;
    state->text = NULL;
    belay_state_free(state);
}

void job_state_get(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    struct belay_state *state = NULL;
    struct kept *kept = NULL;

    if (!job_query_is_true(job, "unverified")) {
        if (state_job_load(job, NULL, &kept) == BELAY_OK) {
            state_job_answer(job, kept);
        }
    } else if (belay_state_load_unverified(job->states, &name, NULL, &state, &job->err) == BELAY_OK) {
        answer_with(job, state);
    }
}

void job_state_snapshot(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    struct belay_state *state = NULL;
    char *which = NULL;
    enum belay_code code = belay_state_find_snapshot(job->states, &name, job->x->more[1], &which, &job->err);

    if (code == BELAY_OK) {
        code = job_query_is_true(job, "unverified")
                   ? belay_state_load_unverified(job->states, &name, which, &state, &job->err)
                   : belay_state_load_snapshot(job->states, &name, which, &state, &job->err);
    }
    if (code == BELAY_OK) {
        answer_with(job, state);
    }
    free(which);
}

void job_state_backup(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    char *snapshot = NULL;

    if (belay_state_backup(job->states, &name, &snapshot, &job->err) == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:s}", "snapshot", snapshot));
    } else if (job->err.code == BELAY_UNKNOWN) {
        job->err.code = BELAY_UNREACHABLE; /* a second copy is harmless: the client may retry */
    }
    free(snapshot);
}

static bool add_deployment_line(void *context, const char *line)
{
    return json_array_append_new(context, json_loads(line, 0, NULL)) == 0;
}

void job_state_history(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    json_t *deployments = json_array();
    json_t *snapshots = json_array();
    int64_t limit = ANSWER_HISTORY;
    char text[8];
    bool is_none = job_query(job, "limit", text, sizeof text) && strcmp(text, "0") == 0;
    enum belay_code code =
        is_none ? BELAY_OK : query_number(job->query, "limit", 1, ANSWER_HISTORY, &limit, &job->err);

    if (code == BELAY_OK && !is_none) {
        code = belay_state_history(job->states, &name, (size_t)limit, add_deployment_line, deployments,
                                   &job->err);
    }
    if (code == BELAY_OK) {
        code = belay_state_snapshots(job->states, &name, state_job_add_version, snapshots, &job->err);
    }
    if (code == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:O, s:O}", "deployments", deployments, "versions", snapshots));
    }
    json_decref(deployments);
    json_decref(snapshots);
}

static void add_finding(void *context, const struct belay_finding *finding)
{
    (void)json_array_append_new(context, json_pack("{s:s, s:s, s:o}", "part", finding->name, "level",
                                                   belay_finding_level_name(finding->level), "text",
                                                   wire_text(finding->text)));
}

void job_state_verify(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    json_t *findings = json_array();
    enum belay_code code = belay_state_verify(job->states, &name, NULL, add_finding, findings, &job->err);

    /* A state with errors is a valid answer. */
    if (code == BELAY_OK || code == BELAY_BAD_CONTENT) {
        job->answer = wire_line(json_pack("{s:b, s:O}", "is_sound", code == BELAY_OK, "findings", findings));
    }
    json_decref(findings);
}

/* Whether the token's keys match its lock. */
static bool may_list(const struct job *job, const struct belay_state_name *name)
{
    struct belay_key_parts parts = { .stack = name->stack, .environment = name->environment };
    char *key = NULL;
    bool may =
        belay_key_make(job->server->config, &parts, &key, NULL) == BELAY_OK && exchange_may_see(job->x, key);

    free(key);
    return may;
}

static bool add_state(void *context, const struct belay_state_name *name, uint64_t size,
                      int64_t modified_unix_ms)
{
    const struct listed_states *listing = context;

    if (!may_list(listing->job, name)) {
        return true;
    }
    return json_array_append_new(listing->list,
                                 json_pack("{s:o, s:o, s:I, s:o}", "stack", wire_text(name->stack),
                                           "environment", wire_text(name->environment), "size",
                                           (json_int_t)size, "modified", wire_time(modified_unix_ms))) == 0;
}

void job_states(struct job *job)
{
    json_t *list = json_array();
    struct listed_states listing = { job, list };

    if (belay_state_list(job->states, add_state, &listing, &job->err) == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:O}", "states", list));
    }
    json_decref(list);
}

void job_store(struct job *job)
{
    const char *id = NULL;

    if (belay_client_store_id(job->server->client, &id, &job->err) == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:s}", "id", id));
    }
}
