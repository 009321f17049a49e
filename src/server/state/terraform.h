/*
 * The http backend of Terraform and OpenTofu: one document per name, and an ordinary lock beside it, whose id is made
 * of Terraform's ID and the token (terraform_lock.c).
 *
 * Jobs on the document of a name, and every LOCK through this server, run one after the other (state_pool_enter). So
 * no client of this server can take the lock between the check of the lock and the write. If the state is in the
 * database that has the locks, no client at all can: the write checks the lock in its own transaction.
 */
#ifndef SERVER_STATE_TERRAFORM_H
#define SERVER_STATE_TERRAFORM_H

#include "server/state/state_job.h"

enum { TF_NAME_MAX = 128, TF_KEY_SIZE = TF_NAME_MAX + 16, TF_ID_MAX = 44 };
#define TF_LOCK_META "terraform_lock"

/* The key of the lock of a name, which is also the document's folder: "terraform/NAME". */
const char *tf_key(const char *name, char out[TF_KEY_SIZE]);
/* Letters, digits, '-' and '_': the server adds a '.' and a suffix to some lock ids. */
bool tf_id_is_sound(const char *id);

/*
 * Make sure that `id` holds the lock, and renew its lease. An expired one is acquired again if no other client has
 * held the lock since. BELAY_NOT_HOLDER, or BELAY_HELD, with the holder. The caller frees *out_info, which stays NULL
 * while locking is switched off.
 */
enum belay_code tf_claim(struct job *job, const char *id, struct belay_info **out_info);
/* Acquire the lock for the server itself. End it with belay_lock_release(). */
enum belay_code tf_take_own(struct job *job, const char *why, struct belay_lock **out_lock);
/* Reply 423 with the holder's own description of itself. */
void tf_answer_held(struct job *job);

/* ---- terraform_serial.c ---- */

/*
 * Whether `text` may replace `before`: it is of another lineage or has a greater serial, or `before` has no serial.
 * If not, *out_serial is the serial of `before`.
 */
bool tf_is_later(const char *before, const char *text, unsigned long long *out_serial);
/* An old version with a serial above that of `now` (NULL: none). The caller frees it; NULL: no memory. */
char *tf_with_serial(const char *old, const char *now);

#endif
