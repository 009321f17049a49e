/* Shared by the jobs on states (state_api.c, state_write.c) and on Terraform's states (terraform.c). */
#ifndef SERVER_STATE_STATE_JOB_H
#define SERVER_STATE_STATE_JOB_H

#include "server/core/job.h"
#include "server/state/state_pool.h"

/* job->x->more[0] is the environment; job->x->more[1] is the key of the stack's lock, or the name of a snapshot. */
struct belay_state_name state_job_name(const struct job *job);

/* Run the route's job with a handle of the pool, job->states. */
void state_job_read(struct job *job);

/* An ETag always has quotes, a tag has them on S3 only. */
void state_job_etag(struct job *job, const struct belay_blob_tag *tag);
bool state_job_read_etag(const struct job *job, const char *etag, struct belay_blob_tag *out);

/*
 * The present document of a folder (NULL: the state), from the cache if it is still current. The caller drops *out_kept
 * with state_cache_drop(), or replies with it. The cache knows a state by job->x->more[1], and a document by its folder.
 */
enum belay_code state_job_load(struct job *job, const char *folder, struct kept **out_kept);
/* Cache what has just been written. Takes the text. NULL, with job->err: no memory. */
struct kept *state_job_keep(struct job *job, const char *name, char *text, size_t len,
                            const struct belay_blob_tag *tag);
/* The same for a state. Takes it. */
struct kept *state_job_keep_state(struct job *job, struct belay_state *state);
/* Reply with `kept`, which it takes. */
void state_job_answer(struct job *job, struct kept *kept);

/*
 * Begin a write: no other job writes under this name until its end. Takes job->states. The state store must be fenced
 * by the server's lock store; if it is bound to another one, the reply is 409. *out_id (may be NULL) is the id of the
 * lock store; "" while locking is switched off.
 */
enum belay_code state_job_begin(struct job *job, const char *name, const char **out_id);
/*
 * The end of a write that ended with `code`: release and free the lock that the server took for it. NULL: it
 * took none. `part` is for the log.
 */
void state_job_end(struct job *job, const char *name, struct belay_lock *own, enum belay_code code,
                   const char *part);

/* For a list of states: `list` gets those that the token may see. */
struct listed_states {
    const struct job *job;
    json_t *list;
};

/* For belay_state_snapshots(): `context` is a JSON array. */
bool state_job_add_version(void *context, const struct belay_snapshot *snapshot);

#endif
