#include "server/core/job.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/core/routes.h"

static void job_free(struct job *job)
{
    if (job == NULL) {
        return;
    }
    assert(!work_is_pending(&job->work));
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

static void send_result(struct job *job)
{
    struct http_header headers[3] = { { "Content-Type", job->type != NULL ? job->type : "application/json" },
                                      { "Cache-Control", "no-store" } };
    size_t n = 2;

    assert(job->answer != NULL || job->shared.data != NULL);
    if (job->etag[0] != '\0') {
        headers[n++] = (struct http_header){ "ETag", job->etag };
    }
    if (job->shared.data == NULL) {
        job->shared =
            (struct http_shared){ job->answer, job->answer_len == 0 ? strlen(job->answer) : job->answer_len,
                                  free, job->answer, true };
        job->answer = NULL;
    }
    reply_shared(job->x, job->status == 0 ? 200 : job->status, headers, n, &job->shared);
    job->shared = (struct http_shared){ 0 };
}

static int failure_of(const struct job *job)
{
    if (job->status != 0) {
        return job->status;
    }
    return job->err.code == BELAY_REFUSED ? 409 : status_of(job->err.code);
}

enum belay_code job_forbid(struct job *job, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    job->status = 403;
    return error_set(&job->err, BELAY_NOT_PERMITTED, "%s", text);
}

static struct job *job_of(struct work *work)
{
    return CONTAINER_OF(work, struct job, work);
}

static void on_job_done(struct work *work)
{
    struct job *job = job_of(work);

    if (work->is_cancelled) {
        (void)error_set(&job->err, BELAY_UNREACHABLE, "the server is stopping");
    }
    if (job->answer != NULL || job->shared.data != NULL) {
        send_result(job);
    } else {
        if (job->err.code == BELAY_OK) {
            (void)error_no_memory(&job->err);
        }
        if (job->status != 403) {
            job->err.code = code_of_server(job->err.code);
        }
        reply_error_with(job->x, failure_of(job), &job->err, NULL);
    }
    job_free(job);
}

static void job_work(struct work *work)
{
    struct job *job = job_of(work);

    assert(job->run != NULL && job->answer == NULL);
    job->run(job);
    free(job->body); /* here and not on the loop: a large one takes its time */
    job->body = NULL;
}

static void on_cancel(struct work *work)
{
    belay_cancel_request(job_of(work)->cancel);
}

static bool keep_header(const struct exchange *x, const char *name, char **out)
{
    const char *value = http_header(x->request, name);

    *out = value == NULL ? NULL : strdup(value);
    return value == NULL || *out != NULL;
}

static bool init_job(struct job *job, struct exchange *x)
{
    job->work = (struct work){ .work = job_work, .done = on_job_done, .cancel = on_cancel };
    job->server = x->server;
    job->x = x;
    exchange_by(x, job->by, sizeof job->by);
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

bool job_query(const struct job *job, const char *name, char *out, size_t size)
{
    return http_query_get(job->query, name, out, size) == HTTP_FOUND;
}

bool job_query_is_true(const struct job *job, const char *name)
{
    char text[8];

    return job_query(job, name, text, sizeof text) && strcmp(text, "true") == 0;
}

/* A job may take as long as the server that it asks: one token must not keep out the others. */
static bool is_within_share(const struct exchange *x, enum work_class class)
{
    const struct workers *workers = x->server->workers;
    size_t n = 0;

    for (struct work *work = work_first(workers, class); work != NULL; work = work->next) {
        n += strcmp(job_of(work)->x->who, x->who) == 0;
    }
    return exchange_has_share(x, n, work_most(workers, class));
}

void job_start(struct exchange *x, enum work_class class, job_fn *run_job)
{
    struct job *job;

    assert(class == WORK_JOB || class == WORK_LONG_JOB);
    if (x->server->is_draining) {
        reply_problem(x, 503, "busy", "the server is stopping");
        return;
    }
    job = calloc(1, sizeof *job);
    if (job == NULL || !init_job(job, x)) {
        job_free(job);
        reply_problem(x, 503, "no_memory", "no memory");
        return;
    }
    job->run = run_job;
    if (!is_within_share(x, class) || !work_queue(x->server->workers, class, &job->work)) {
        job_free(job);
        reply_problem(x, 503, "busy", "too many requests are in progress; retry later");
    }
}

void handle_job(struct exchange *x)
{
    assert(x->route->job != NULL);
    job_start(x, WORK_JOB, x->route->job);
}

void jobs_revoke(struct server *server)
{
    for (struct work *work = work_first(server->workers, WORK_LONG_JOB); work != NULL; work = work->next) {
        struct job *job = job_of(work);
        char key[sizeof DB_LOCK_PREFIX + BELAY_KEY_MAX];

        (void)snprintf(key, sizeof key, DB_LOCK_PREFIX "%s", job->x->key);
        if (!tokens_let_lock(server->tokens, job->x->who, key)) {
            atomic_store(&job->is_revoked, true);
        }
    }
}
