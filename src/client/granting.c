/*
 * The kill switch. While it is on, every lock is granted at once and protects
 * nothing. Renewals and releases are still tried, since the lock may be one from
 * before; that it fails does not matter to their caller.
 */
#include "base/clock.h"
#include "client/client.h"

void client_say_unprotected(struct belay_client *client, const struct op_request *request)
{
    struct belay_event event = { .at_unix_ms = clock_unix_ms(),
                                 .level = BELAY_LEVEL_WARNING,
                                 .type = "lock.unprotected",
                                 .key = request->key,
                                 .lock_id = request->lock_id,
                                 .locked_by = request->owner == NULL ? "" : request->owner,
                                 .locked_by_name = request->owner_name == NULL ? "" : request->owner_name,
                                 .reason = "locking is switched off",
                                 .duration_ms = -1,
                                 .metadata = request->metadata,
                                 .n_metadata = request->n_metadata };

    if (client->on_event != NULL) {
        client->on_event(client->context, &event);
    }
    client_warn(client, "locking is switched off: '%s' is not protected", request->key);
}

bool client_grants(struct belay_client *client, struct op *op)
{
    if (!client->enabled && (op->request.kind == OP_ACQUIRE || op->request.kind == OP_ADOPT)) {
        client_say_unprotected(client, &op->request);
    } else if (op->request.kind != OP_RELEASE || !op_id_is_unprotected(op->request.lock_id)) {
        /* An unprotected one can be released, and not renewed, when locking is on again. */
        return false;
    }
    op_grant(op, clock_boot_ms(), clock_unix_ms());
    return true;
}

void client_forgives(struct belay_client *client, struct op *op)
{
    if (client->enabled || op->code == BELAY_OK || op->code == BELAY_NO_MEMORY ||
        (op->request.kind != OP_RENEW && op->request.kind != OP_RELEASE)) {
        return;
    }
    if (!op_id_is_unprotected(op->request.lock_id)) {
        client_warn(client, "locking is switched off, so this does not matter: %s", op->err.text);
    }
    op_grant(op, clock_boot_ms(), clock_unix_ms());
}
