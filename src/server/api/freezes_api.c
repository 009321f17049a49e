/*
 * Freezes over HTTP. Each request is a job: the change is on disk before the reply. A token with
 * `keys` may freeze a pattern if one of its own patterns matches that pattern, and so every key of
 * it. It sees the freezes that concern its keys.
 */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "server/core/job.h"
#include "server/core/json_body.h"
#include "json/json_write.h"

/* ---- the reply ---- */

struct freeze_answer {
    const struct job *job;
    json_t *list; /* owned; NULL: no memory */
};

static bool add_freeze(void *context, const struct belay_freeze *freeze)
{
    struct freeze_answer *answer = context;

    return !exchange_may_see_pattern(answer->job->x, freeze->pattern) ||
           json_array_append_new(answer->list, wire_freeze(freeze)) == 0;
}

static void answer_freezes(struct job *job, struct freeze_answer *answer, enum belay_code code)
{
    if (code == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:O}", "freezes", answer->list)); /* NULL: no memory */
    }
    json_decref(answer->list);
}

/* ---- list ---- */

static void list_freezes(struct job *job)
{
    struct freeze_answer answer = { .job = job, .list = json_array() };

    answer_freezes(job, &answer, belay_freezes(job->server->client, add_freeze, &answer, &job->err));
}

void handle_freezes(struct exchange *x)
{
    job_start(x, WORK_JOB, list_freezes);
}

/* ---- begin ---- */

static enum belay_code read_rfc3339(const char *name, const char *text, int64_t *out_unix_ms,
                                    struct belay_error *err)
{
    return text == NULL || clock_parse_rfc3339(text, out_unix_ms)
               ? BELAY_OK
               : error_set(err, BELAY_INVALID, "%s '%.60s' is not a time such as 2026-11-28T00:00:00Z", name,
                           text);
}

static enum belay_code check_pattern(struct job *job, const char *pattern)
{
    return exchange_may_see(job->x, pattern)
               ? BELAY_OK
               : job_forbid(
                     job,
                     "'%s' may not touch all keys that match '%.200s': its token is limited to some keys",
                     job->x->who, pattern);
}

static enum belay_code begin_as_asked(struct job *job, const struct body *body, struct freeze_answer *answer)
{
    struct belay_freeze_options options = BELAY_FREEZE_OPTIONS_INIT;
    char by[BELAY_OWNER_MAX + 1];
    enum belay_code code = check_pattern(job, body->pattern);

    if (code == BELAY_OK) {
        code = name_change(body->by, job->x->who, job->by, by, sizeof by, &job->err);
    }
    if (code == BELAY_OK) {
        code = read_rfc3339("from", body->from, &options.from_unix_ms, &job->err);
    }
    if (code == BELAY_OK) {
        code = read_rfc3339("until", body->until, &options.until_unix_ms, &job->err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    options.id = body->id;
    options.reason = body->reason;
    options.by = by;
    options.for_ms = body->for_ms;
    return belay_freeze(job->server->client, body->pattern, &options, add_freeze, answer, &job->err);
}

static void begin_freeze(struct job *job)
{
    struct freeze_answer answer = { .job = job, .list = json_array() };
    struct body body;
    enum belay_code code = body_read(&body, freeze_fields, job->body, job->body_len, &job->err);

    answer_freezes(job, &answer, code == BELAY_OK ? begin_as_asked(job, &body, &answer) : code);
    body_release(&body);
}

void handle_freeze(struct exchange *x)
{
    job_start(x, WORK_JOB, begin_freeze);
}

/* ---- end ---- */

struct freeze_search {
    struct job *job;
    enum belay_code code;
};

static bool check_wanted(void *context, const struct belay_freeze *freeze)
{
    struct freeze_search *search = context;
    const char *wanted = search->job->x->key;

    if (strcmp(freeze->id, wanted) != 0 && strcmp(freeze->pattern, wanted) != 0) {
        return true;
    }
    if (exchange_may_see_pattern(search->job->x, freeze->pattern)) {
        search->code = check_pattern(search->job, freeze->pattern);
    } else { /* in the words of belay_unfreeze(): a freeze of other keys is as if it were not there */
        search->code =
            error_set(&search->job->err, BELAY_NOT_FOUND,
                      "no freeze has the id or the pattern '%.200s': 'belay freezes' lists them", wanted);
    }
    return search->code == BELAY_OK;
}

static enum belay_code end_as_asked(struct job *job, const struct body *body, struct freeze_answer *answer)
{
    struct freeze_search search = { .job = job };
    char by[BELAY_OWNER_MAX + 1];
    enum belay_code code = name_change(body->by, job->x->who, job->by, by, sizeof by, &job->err);

    if (code == BELAY_OK) {
        code = belay_freezes(job->server->client, check_wanted, &search, &job->err);
    }
    code = code == BELAY_OK ? search.code : code;
    return code == BELAY_OK ? belay_unfreeze(job->server->client, job->x->key, by, body->reason, add_freeze,
                                             answer, &job->err)
                            : code;
}

static void end_freeze(struct job *job)
{
    struct freeze_answer answer = { .job = job, .list = json_array() };
    struct body body;
    bool has_body = job->body_len > 0;
    enum belay_code code = body_read(&body, unfreeze_fields, has_body ? job->body : "{}",
                                     has_body ? job->body_len : 2, &job->err);

    answer_freezes(job, &answer, code == BELAY_OK ? end_as_asked(job, &body, &answer) : code);
    body_release(&body);
}

void handle_unfreeze(struct exchange *x)
{
    job_start(x, WORK_JOB, end_freeze);
}
