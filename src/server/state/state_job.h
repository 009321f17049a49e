/* What the jobs share that read and write states (state.c, state_write.c) and Terraform's (terraform.c). */
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
 * What is stored now, from memory if it is the same. The caller gives *out_kept back
 * with state_cache_drop(), or answers with it. A state's name in memory is
 * job->x->more[1], a document's is its folder.
 */
enum belay_code state_job_load(struct job *job, struct belay_states *states, struct kept **out_kept);
enum belay_code state_job_load_document(struct job *job, struct belay_states *states, const char *folder,
                                        struct kept **out_kept);
/* What has just been written, for who asks next. Takes the text. NULL, with job->err: no memory. */
struct kept *state_job_keep(struct job *job, const char *name, char *text, size_t len,
                            const struct belay_blob_tag *tag);
/* The same of a state. Takes it. */
struct kept *state_job_keep_state(struct job *job, struct belay_state *state);
/* Takes what was kept. */
void state_job_answer(struct job *job, struct kept *kept);

/*
 * Before anything is written: the store of states must be fenced by the server's
 * lock store. The answer to a stranger is 409. *out_id (may be NULL) is the lock
 * store's; "" while locking is switched off.
 */
enum belay_code state_job_bind(struct job *job, struct belay_states *states, const char **out_id);

/* For belay_state_snapshots(): `context` is a JSON array. */
bool state_job_add_version(void *context, const struct belay_snapshot *snapshot);

/* state_write.c */
void state_put(struct job *job);
/* From now on nobody with an older lock can write, and nobody who loaded before. */
void state_stamp(struct job *job);
void state_restore(struct job *job);
void state_adopt(struct job *job);

#endif
