/* The kill switch: an operation that ends well without a store, and protects nothing. */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "lock/step.h"

enum { UNKNOWN_TTL_MS = 600000 }; /* of a renewal that keeps a ttl which nobody knows */

/* The record that the operation would have left, with nothing owned in it. */
static struct belay_record describe(const struct op *op, int64_t now_ms, int64_t now_unix_ms)
{
    const struct op_request *request = &op->request;
    bool is_held = op->request.kind != OP_RELEASE && op->request.kind != OP_FORCE;
    int64_t ttl_ms = request->ttl_ms > 0 ? request->ttl_ms : UNKNOWN_TTL_MS;

    return (struct belay_record){
        .key = (char *)request->key,
        .held = is_held,
        .lock_id = (char *)request->lock_id,
        .owner = (char *)(request->owner == NULL ? "" : request->owner),
        .owner_name = (char *)(request->owner_name == NULL ? "" : request->owner_name),
        .acquired_by = (char *)request->acquired_by,
        .outcome = is_held                          ? BELAY_OUTCOME_NONE
                   : op->request.kind == OP_RELEASE ? request->outcome
                                                    : BELAY_OUTCOME_FORCED,
        .ttl_ms = ttl_ms,
        .heartbeat_ms = request->heartbeat_ms,
        .stale_after_ms = request->stale_after_ms,
        .expires_ms = now_ms + ttl_ms,
        .last_heartbeat_ms = now_ms,
        .locked_at_unix_ms = now_unix_ms,
        .expires_at_unix_ms = now_unix_ms + ttl_ms,
        .last_heartbeat_unix_ms = now_unix_ms,
        .freed_at_unix_ms = is_held ? 0 : now_unix_ms,
        .metadata = (struct belay_meta *)request->metadata,
        .n_metadata = request->n_metadata,
    };
}

void op_grant(struct op *op, int64_t now_ms, int64_t now_unix_ms)
{
    struct belay_record granted = describe(op, now_ms, now_unix_ms);
    struct belay_record record = { 0 };

    if (!belay_record_copy(&granted, &record)) {
        step_done_no_memory(op);
        return;
    }
    belay_error_release(&op->err);
    belay_record_release(&op->record);
    op->record = record;
    op->record_now_ms = now_ms;
    op->sent_ms = now_ms;
    op->deadline_ms = now_ms + record.ttl_ms;
    op->reentered = false;
    step_done(op, BELAY_OK);
}

bool op_id_is_unprotected(const char *lock_id)
{
    return lock_id != NULL && text_has_prefix(lock_id, OP_UNPROTECTED);
}
