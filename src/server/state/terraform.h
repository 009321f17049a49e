/*
 * The http backend of Terraform and OpenTofu: one document per name, and an
 * ordinary lock beside it, whose id is made of the ID that Terraform made up and of
 * the token (terraform_lock.c).
 *
 * What a job does to the document of a name, and every LOCK that comes through
 * this server, happens one after the other (state_pool_enter). So nobody can take
 * the lock between the look at it and the write.
 */
#ifndef SERVER_STATE_TERRAFORM_H
#define SERVER_STATE_TERRAFORM_H

#include "server/state/state_job.h"

enum { TF_NAME_MAX = 128, TF_KEY_SIZE = TF_NAME_MAX + 16, TF_ID_MAX = 44 };
#define TF_LOCK_META "terraform_lock"

/* A job for a request whose name is sound, and whose token may touch its lock. */
void tf_start(struct exchange *x, job_fn *run);
/* The lock's key and, as it happens, the document's folder: "terraform/NAME". */
const char *tf_key(const struct job *job, char out[TF_KEY_SIZE]);
/* Letters, digits, '-' and '_': what is behind a '.' in a lock's id is ours. */
bool tf_id_is_sound(const char *id);

/*
 * Make sure that `id` has the lock, and start its lease again. One whose lease has
 * ended gets it anew if nobody has had the lock since. BELAY_NOT_HOLDER, or
 * BELAY_HELD, with the holder.
 */
enum belay_code tf_claim(struct job *job, const char *id);
/* Take the lock for what we do ourselves. End it with belay_lock_release(). */
enum belay_code tf_take_own(struct job *job, const char *why, struct belay_lock **out_lock);
/* The answer to who cannot have the lock: 423, and the holder's own description of itself. */
void tf_answer_held(struct job *job);

/* ---- terraform_serial.c ---- */

/*
 * Whether `text` may follow `before`: of another lineage, or with a greater serial.
 * What has no serial can be followed by anything. If not, *out_serial is that of `before`.
 */
bool tf_is_later(const char *before, const char *text, unsigned long long *out_serial);
/* An old version with a serial above that of `now` (NULL: there is none). The caller frees it; NULL: no memory. */
char *tf_with_serial(const char *old, const char *now);

#endif
