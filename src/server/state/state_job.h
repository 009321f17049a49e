/* What the jobs on states (state_api.c, state_write.c) and on Terraform's states (terraform.c) share. */
#ifndef SERVER_STATE_STATE_JOB_H
#define SERVER_STATE_STATE_JOB_H

#include "server/core/job.h"
#include "server/state/state_pool.h"

/* job->x->more[0] is the environment; job->x->more[1] is the key of the stack's lock, or the name of a snapshot. */
struct belay_state_name state_job_name(const struct job *job);

/* An ETag always has quotes, a tag has them on S3 only. */
void state_job_etag(struct job *job, const struct belay_blob_tag *tag);
bool state_job_read_etag(const struct belay_states *states, const char *etag, struct belay_blob_tag *out);

/*
 * The present document, from the cache if it is still current. The caller drops *out_kept with state_cache_drop(), or
 * replies with it. The cache knows a state by job->x->more[1], and a document by its folder.
 */
enum belay_code state_job_load(struct job *job, struct belay_states *states, struct kept **out_kept);
enum belay_code state_job_load_document(struct job *job, struct belay_states *states, const char *folder,
                                        struct kept **out_kept);
/* Cache what has just been written. Takes the text. NULL, with job->err: no memory. */
struct kept *state_job_keep(struct job *job, const char *name, char *text, size_t len,
                            const struct belay_blob_tag *tag);
/* The same for a state. Takes it. */
struct kept *state_job_keep_state(struct job *job, struct belay_state *state);
/* Reply with `kept`, which it takes. */
void state_job_answer(struct job *job, struct kept *kept);

/*
 * Before a write: the state store must be fenced by the server's lock store; if it is bound to another one, the reply
 * is 409. *out_id (may be NULL) is the id of the lock store; "" while locking is switched off.
 */
enum belay_code state_job_bind(struct job *job, struct belay_states *states, const char **out_id);

/*
 * After a write that ended with `code`: release and free the lock that the server took for it. NULL: it
 * took none. `part` is for the log.
 */
void state_job_end_lock(struct job *job, struct belay_lock *own, enum belay_code code, const char *part);

/* For belay_state_snapshots(): `context` is a JSON array. */
bool state_job_add_version(void *context, const struct belay_snapshot *snapshot);

/* state_write.c */
void state_put(struct job *job);
/* From now on refuse writes under an older lock, and those made from an earlier load. */
void state_stamp(struct job *job);
void state_restore(struct job *job);
void state_adopt(struct job *job);

#endif
