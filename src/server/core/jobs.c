#include "server/core/jobs.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

/* ---- from any thread ---- */

struct said {
    struct loop_task task;
    struct server *server;
    enum log_level level;
    char event[32];
    char text[];
};

static void say_now(struct loop_task *task)
{
    struct said *said = (struct said *)task;

    log_note(&said->server->log, said->level, said->event, "%s", said->text);
    free(said);
}

void server_say(struct server *server, enum log_level level, const char *event, const char *text)
{
    struct said *said = calloc(1, sizeof *said + strlen(text) + 1);

    if (said == NULL) {
        return; /* a line less */
    }
    said->task.run = say_now;
    said->server = server;
    said->level = level;
    (void)snprintf(said->event, sizeof said->event, "%s", event);
    memcpy(said->text, text, strlen(text) + 1);
    loop_post(server->loop, &said->task);
}

/* A copy of an event, with its texts. */
struct posted {
    struct loop_task task;
    struct server *server;
    struct belay_event event;
    char *texts[7];              /* owned */
    struct belay_meta *metadata; /* owned */
};

static void tell_now(struct loop_task *task)
{
    struct posted *posted = (struct posted *)task;

    server_on_event(posted->server, &posted->event);
    for (size_t i = 0; i < 7; i++) {
        free(posted->texts[i]);
    }
    meta_free(posted->metadata, posted->event.n_metadata);
    free(posted);
}

void server_post_event(struct server *server, const struct belay_event *event)
{
    struct posted *posted = calloc(1, sizeof *posted);
    struct belay_event *copy;

    if (posted == NULL) {
        return; /* it is in the store; a number less */
    }
    copy = &posted->event;
    *copy = *event;
    {
        const char **const texts[7] = { &copy->type,           &copy->key, &copy->lock_id, &copy->locked_by,
                                        &copy->locked_by_name, &copy->by,  &copy->reason };

        for (size_t i = 0; i < 7; i++) {
            posted->texts[i] = *texts[i] == NULL ? NULL : strdup(*texts[i]);
            *texts[i] = posted->texts[i];
        }
    }
    posted->metadata = meta_copy(event->metadata, event->n_metadata);
    copy->metadata = posted->metadata;
    copy->n_metadata = posted->metadata == NULL ? 0 : event->n_metadata;
    posted->task.run = tell_now;
    posted->server = server;
    if (copy->type == NULL || copy->key == NULL) {
        copy->type = copy->key = "";
    }
    loop_post(server->loop, &posted->task);
}

/* ---- jobs ---- */

static void job_free(struct job *job)
{
    belay_cancel_free(job->cancel);
    belay_error_release(&job->err);
    free(job->body);
    free(job->query);
    free(job->if_match);
    free(job->if_none_match);
    free(job->content_md5);
    free(job->answer);
    if (job->shared.release != NULL) {
        job->shared.release(job->shared.owner);
    }
    free(job);
}

static void forget(struct job *job)
{
    struct jobs *jobs = job->server->jobs;

    if (job->prev != NULL) {
        job->prev->next = job->next;
    } else {
        jobs->first = job->next;
    }
    if (job->next != NULL) {
        job->next->prev = job->prev;
    }
    jobs->n--;
    jobs->n_long -= job->is_long ? 1 : 0;
}

static void send_result(struct job *job)
{
    struct http_header headers[3] = { { "Content-Type", job->type != NULL ? job->type : "application/json" },
                                      { "Cache-Control", "no-store" } };
    size_t n = 2;

    if (job->etag[0] != '\0') {
        headers[n++] = (struct http_header){ "ETag", job->etag };
    }
    if (job->shared.data == NULL) {
        job->shared =
            (struct http_shared){ job->answer, job->answer_len == 0 ? strlen(job->answer) : job->answer_len,
                                  free, job->answer };
        job->answer = NULL;
    }
    reply_shared(job->exchange, job->status == 0 ? 200 : job->status, headers, n, &job->shared);
    job->shared = (struct http_shared){ 0 };
}

static int failure_of(const struct job *job)
{
    if (job->status != 0) {
        return job->status;
    }
    return job->err.code == BELAY_REFUSED ? 409 : status_of(job->err.code);
}

static void answer(struct loop_task *task)
{
    struct job *job = (struct job *)task;
    struct exchange *x = job->exchange;

    forget(job);
    if (job->answer != NULL || job->shared.data != NULL) {
        send_result(job);
    } else {
        if (job->err.code == BELAY_OK) {
            (void)error_no_memory(&job->err);
        }
        reply_error_with(x, failure_of(job), &job->err, NULL);
    }
    job_free(job);
}

static void run(struct pool_job *in_pool)
{
    struct job *job = (struct job *)(void *)((char *)in_pool - offsetof(struct job, in_pool));

    job->work(job);
    free(job->body); /* which takes its time if it is large: not in the loop's */
    job->body = NULL;
    loop_post(job->server->loop, &job->task);
}

static bool keep_header(const struct exchange *x, const char *name, char **out)
{
    const char *value = http_header(x->request, name);

    *out = value == NULL ? NULL : strdup(value);
    return value == NULL || *out != NULL;
}

static bool fill(struct job *job, struct exchange *x)
{
    job->server = x->server;
    job->exchange = x;
    job->task.run = answer;
    job->in_pool.work = run;
    memcpy(job->key, x->key, sizeof job->key);
    exchange_by(x, job->by, sizeof job->by);
    memcpy(job->more, x->more, sizeof job->more);
    memcpy(job->who, x->who, sizeof job->who);
    job->role = x->role;
    if (x->token != NULL) {
        memcpy(job->hash, x->token->hash, sizeof job->hash);
    }
    job->body = http_take_body(x->request, &job->body_len); /* it may have a '\0' in it */
    job->query = strdup(x->request->query);
    job->cancel = belay_cancel_new();
    if (job->body == NULL || job->query == NULL || job->cancel == NULL) {
        return false;
    }
    return keep_header(x, "If-Match", &job->if_match) &&
           keep_header(x, "If-None-Match", &job->if_none_match) &&
           keep_header(x, "Content-MD5", &job->content_md5);
}

enum belay_code job_name_by(struct job *job, const char *said, char *out, size_t size)
{
    if (said != NULL) {
        return mark_name(said, job->by, "by", out, size, &job->err);
    }
    (void)snprintf(out, size, "%s", job->by);
    return BELAY_OK;
}

bool job_query(const struct job *job, const char *name, char *out, size_t size)
{
    return http_query_get(job->query, name, out, size) == HTTP_FOUND;
}

static void link_in(struct job *job)
{
    struct jobs *jobs = job->server->jobs;

    job->next = jobs->first;
    if (jobs->first != NULL) {
        jobs->first->prev = job;
    }
    jobs->first = job;
    jobs->n++;
    jobs->n_long += job->is_long ? 1 : 0;
}

void job_start(struct exchange *x, void (*work)(struct job *job), bool is_long)
{
    struct jobs *jobs = x->server->jobs;
    struct job *job;

    if (jobs->n >= JOBS_MAX || (is_long && jobs->n_long >= JOBS_LONG_MAX) || x->server->is_draining) {
        reply_problem(x, 503, "busy", "too much is under way already: come back");
        return;
    }
    job = calloc(1, sizeof *job);
    if (job == NULL || !fill(job, x)) {
        if (job != NULL) {
            job_free(job);
        }
        reply_problem(x, 503, "no_memory", "no memory");
        return;
    }
    job->work = work;
    job->is_long = is_long;
    link_in(job);
    if (!pool_add(jobs->pool, &job->in_pool)) {
        forget(job);
        job_free(job);
        reply_problem(x, 503, "busy", "no thread can be started: come back");
    }
}

bool jobs_open(struct server *server)
{
    server->jobs = calloc(1, sizeof *server->jobs);
    if (server->jobs != NULL && (server->jobs->pool = pool_new(JOBS_MAX)) == NULL) {
        free(server->jobs);
        server->jobs = NULL;
    }
    return server->jobs != NULL;
}

void jobs_cancel(struct server *server)
{
    for (struct job *job = server->jobs->first; job != NULL; job = job->next) {
        belay_cancel_request(job->cancel);
    }
}

void jobs_revoke(struct server *server)
{
    for (struct job *job = server->jobs->first; job != NULL; job = job->next) {
        char key[sizeof DB_LOCK_PREFIX + BELAY_KEY_MAX];

        (void)snprintf(key, sizeof key, DB_LOCK_PREFIX "%s", job->key);
        if (job->is_long && !tokens_let_lock(server->tokens, job->who, key)) {
            atomic_store(&job->is_revoked, true);
        }
    }
}

void jobs_close(struct server *server)
{
    if (server->jobs == NULL) {
        return;
    }
    jobs_cancel(server);
    /* Each posts its answer, which the loop takes: nobody may be left who uses the client. */
    while (server->jobs->first != NULL && loop_turn(server->loop, 1000)) {
    }
    pool_free(server->jobs->pool);
    free(server->jobs);
    server->jobs = NULL;
}
