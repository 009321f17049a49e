/* Deployment states over HTTP (S4): routes and reads. state_write.c has the writes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/state/state_job.h"
#include "json/json_write.h"

enum { ANSWER_HISTORY = 1000 };

/* ---- one request ---- */

/* more[0] is the environment; more[1] becomes the key of the stack's lock, or the name of a snapshot. */
static void start_state_job(struct exchange *x, job_fn *run, char key_out[BELAY_KEY_MAX + 1])
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
        job_start(x, WORK_JOB, run);
    }
    free(key);
    belay_error_release(&err);
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

static void peek_state(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    struct belay_states *states = NULL;
    struct belay_state *state = NULL;

    if (state_pool_take(job->server->states, &states, &job->err) == BELAY_OK &&
        belay_state_load_unverified(states, &name, NULL, &state, &job->err) == BELAY_OK) {
        answer_with(job, state);
    }
    state_pool_give(job->server->states, states);
}

static void get_state(struct job *job)
{
    struct belay_states *states = NULL;
    struct kept *kept = NULL;

    if (job_query_is_true(job, "unverified")) {
        peek_state(job);
        return;
    }

    if (state_pool_take(job->server->states, &states, &job->err) == BELAY_OK &&
        state_job_load(job, states, &kept) == BELAY_OK) {
        state_job_answer(job, kept);
    }
    state_pool_give(job->server->states, states);
}

static void get_snapshot(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    struct belay_states *states = NULL;
    struct belay_state *state = NULL;
    char *which = NULL;
    enum belay_code code = state_pool_take(job->server->states, &states, &job->err);

    if (code == BELAY_OK) {
        code = belay_state_find_snapshot(states, &name, job->x->more[1], &which, &job->err);
    }
    if (code == BELAY_OK) {
        code = job_query_is_true(job, "unverified")
                   ? belay_state_load_unverified(states, &name, which, &state, &job->err)
                   : belay_state_load_snapshot(states, &name, which, &state, &job->err);
    }
    if (code == BELAY_OK) {
        answer_with(job, state);
    }
    free(which);
    state_pool_give(job->server->states, states);
}

static void back_up(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    struct belay_states *states = NULL;
    char *snapshot = NULL;

    if (state_pool_take(job->server->states, &states, &job->err) == BELAY_OK &&
        belay_state_backup(states, &name, &snapshot, &job->err) == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:s}", "snapshot", snapshot));
    } else if (job->err.code == BELAY_UNKNOWN) {
        job->err.code = BELAY_UNREACHABLE; /* a second copy is harmless: the client may retry */
    }
    free(snapshot);
    state_pool_give(job->server->states, states);
}

static bool add_deployment_line(void *context, const char *line)
{
    return json_array_append_new(context, json_loads(line, 0, NULL)) == 0;
}

static void get_history(struct job *job)
{
    struct belay_state_name name = state_job_name(job);
    struct belay_states *states = NULL;
    json_t *deployments = json_array();
    json_t *snapshots = json_array();
    int64_t limit = ANSWER_HISTORY;
    char text[8];
    bool is_none = job_query(job, "limit", text, sizeof text) && strcmp(text, "0") == 0;
    enum belay_code code =
        is_none ? BELAY_OK : query_number(job->query, "limit", 1, ANSWER_HISTORY, &limit, &job->err);

    if (code == BELAY_OK) {
        code = state_pool_take(job->server->states, &states, &job->err);
    }
    if (code == BELAY_OK && !is_none) {
        code = belay_state_history(states, &name, (size_t)limit, add_deployment_line, deployments, &job->err);
    }
    if (code == BELAY_OK) {
        code = belay_state_snapshots(states, &name, state_job_add_version, snapshots, &job->err);
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
    struct belay_state_name name = state_job_name(job);
    struct belay_states *states = NULL;
    json_t *findings = json_array();
    enum belay_code code = state_pool_take(job->server->states, &states, &job->err);

    if (code == BELAY_OK) {
        code = belay_state_verify(states, &name, NULL, add_finding, findings, &job->err);
    }
    /* A state with errors is a valid answer. */
    if (code == BELAY_OK || code == BELAY_BAD_CONTENT) {
        job->answer = wire_line(json_pack("{s:b, s:O}", "is_sound", code == BELAY_OK, "findings", findings));
    }
    json_decref(findings);
    state_pool_give(job->server->states, states);
}

struct state_list_reply {
    const struct job *job;
    json_t *list;
};

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
    const struct state_list_reply *listing = context;

    if (!may_list(listing->job, name)) {
        return true;
    }
    return json_array_append_new(listing->list,
                                 json_pack("{s:o, s:o, s:I, s:o}", "stack", wire_text(name->stack),
                                           "environment", wire_text(name->environment), "size",
                                           (json_int_t)size, "modified", wire_time(modified_unix_ms))) == 0;
}

static void answer_states(struct job *job)
{
    struct belay_states *states = NULL;
    json_t *list = json_array();
    struct state_list_reply listing = { job, list };

    if (state_pool_take(job->server->states, &states, &job->err) == BELAY_OK &&
        belay_state_list(states, add_state, &listing, &job->err) == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:O}", "states", list));
    }
    json_decref(list);
    state_pool_give(job->server->states, states);
}

static void get_store(struct job *job)
{
    const char *id = NULL;

    if (belay_client_store_id(job->server->client, &id, &job->err) == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:s}", "id", id));
    }
}

/* ---- the routes ---- */

void handle_store(struct exchange *x)
{
    job_start(x, WORK_JOB, get_store);
}

void handle_states(struct exchange *x)
{
    job_start(x, WORK_JOB, answer_states);
}

void handle_state_get(struct exchange *x)
{
    start_state_job(x, get_state, x->more[1]);
}

void handle_state_history(struct exchange *x)
{
    start_state_job(x, get_history, NULL);
}

void handle_state_snapshot(struct exchange *x)
{
    start_state_job(x, get_snapshot, NULL);
}

void handle_state_verify(struct exchange *x)
{
    start_state_job(x, verify_state, NULL);
}

void handle_state_put(struct exchange *x)
{
    start_state_job(x, state_put, x->more[1]);
}

void handle_state_stamp(struct exchange *x)
{
    start_state_job(x, state_stamp, x->more[1]);
}

void handle_state_restore(struct exchange *x)
{
    start_state_job(x, state_restore, x->more[1]);
}

void handle_state_backup(struct exchange *x)
{
    start_state_job(x, back_up, NULL);
}

void handle_state_adopt(struct exchange *x)
{
    start_state_job(x, state_adopt, x->more[1]);
}
