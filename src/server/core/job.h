/*
 * A request that a worker answers: a job. A handler starts it on the loop; job->run() works in a worker thread and
 * leaves an answer or an error, which the loop sends.
 *
 * run() touches nothing of the server but the client, which any thread may use, the pool of states, and the functions
 * of server.c. Of job->x it reads only what does not change until the reply: server, token, role, who, key, more,
 * route.
 */
#ifndef SERVER_CORE_JOB_H
#define SERVER_CORE_JOB_H

#include <stdatomic.h>

#include "server/core/server.h"
#include "server/core/work.h"

/* The key of a database's lock is this and its identifier. */
#define DB_LOCK_PREFIX "LOCK#DB#"

struct belay_states;

enum { JOB_BY_SIZE = 512, JOB_TAG_SIZE = 256 };

struct job {
    struct work work;
    job_fn *run;
    struct server *server;       /* borrowed */
    struct exchange *x;          /* borrowed */
    struct belay_cancel *cancel; /* owned; requested when the server stops */
    atomic_bool is_revoked;      /* its token has lost its rights: run() takes no further step */
    char by[JOB_BY_SIZE];        /* the token's name, else the client's address */
    char *body;                  /* owned; of the request */
    size_t body_len;
    char *query;                                  /* owned; still encoded */
    char *if_match, *if_none_match, *content_md5; /* owned; headers; NULL: absent */
    struct belay_states *states;                  /* of src/server/state: a handle of the pool; NULL: none */
    /* The result: an answer, or an error. */
    char *answer;              /* owned; JSON */
    size_t answer_len;         /* 0: strlen(answer) */
    struct http_shared shared; /* or this; data NULL: none */
    const char *type;          /* of either; NULL: JSON */
    int status;                /* of either; 0: 200, or what the error says */
    char etag[JOB_TAG_SIZE];   /* "": none */
    struct belay_error err;
};

/* Replies later, or at once with 503 if the class is full. */
void job_start(struct exchange *x, enum work_class class, job_fn *run);
/* A value of the query, decoded; false if it is absent or too long. */
bool job_query(const struct job *job, const char *name, char *out, size_t size);
/* The job's token does not permit this: 403. Sets the job's error and returns its code. */
enum belay_code job_forbid(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether a parameter of the query is "true". */
bool job_query_is_true(const struct job *job, const char *name);
/* Revoke stops and starts of databases whose token has lost its rights: the tokens were read again. */
void jobs_revoke(struct server *server);

/* ---- the jobs of the routes; handle_job() and others start x->route->job ---- */

/* shared_db_api.c */
job_fn job_apps, job_app_get, job_app_put, job_app_post, job_app_delete, job_app_mark, job_quick,
    job_databases, job_database, job_db_stop, job_db_start, job_db_record;
/* state_api.c, state_write.c */
job_fn job_store, job_states, job_state_get, job_state_snapshot, job_state_backup, job_state_history,
    job_state_verify, job_state_put, job_state_stamp, job_state_restore, job_state_adopt;
/* terraform.c, terraform_lock.c */
job_fn job_tf_list, job_tf_get, job_tf_versions, job_tf_version, job_tf_put, job_tf_delete, job_tf_restore,
    job_tf_lock, job_tf_unlock;

#endif
