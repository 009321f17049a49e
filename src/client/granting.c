/*
 * The kill switch. While locking is switched off, every lock is granted at once and
 * protects nothing. Renewals and releases are still sent to the backend, since the lock
 * may be older than the switch; that they fail does not matter to their caller.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "client/client.h"

enum { UNKNOWN_TTL_MS = 600000 }; /* of a renewal that keeps the ttl, which only a store would know */

void client_warn(struct belay_client *client, const char *format, ...)
{
    char text[512];
    va_list args;

    if (client->on_warning == NULL) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    client->on_warning(client->context, text);
}

void client_warn_outage(struct belay_client *client, struct outage *outage, enum belay_code code,
                        const char *why)
{
    if (outage_note(outage, code, clock_boot_ms())) {
        client_warn(client, "the store does not answer, trying again: %s", why);
    }
}

void client_warn_answers(struct belay_client *client, struct outage *outage)
{
    char span[CLOCK_TEXT_SIZE];
    int64_t lasted_ms;

    if (outage_end(outage, clock_boot_ms(), &lasted_ms)) {
        client_warn(client, "the store answers again, after %s", clock_format_span(span, lasted_ms));
    }
}

bool id_is_unprotected(const char *lock_id)
{
    return lock_id != NULL && text_has_prefix(lock_id, UNPROTECTED_PREFIX);
}

void client_say_unprotected(struct belay_client *client, const struct op_request *request)
{
    struct belay_event event = { .at_unix_ms = clock_unix_ms(),
                                 .level = BELAY_LEVEL_WARNING,
                                 .type = "lock.unprotected",
                                 .key = request->key,
                                 .lock_id = request->lock_id,
                                 .locked_by = text_or_empty(request->owner),
                                 .locked_by_name = text_or_empty(request->owner_name),
                                 .reason = "locking is switched off",
                                 .duration_ms = -1,
                                 .metadata = request->metadata,
                                 .n_metadata = request->n_metadata };

    assert(request->key != NULL && request->lock_id != NULL);
    if (client->on_event != NULL) {
        client->on_event(client->context, &event);
    }
    client_warn(client, "locking is switched off: '%s' is not protected", request->key);
}

bool client_grants(struct belay_client *client, const struct op_request *request)
{
    if (!client->enabled && (request->kind == OP_ACQUIRE || request->kind == OP_ADOPT)) {
        client_say_unprotected(client, request);
        return true;
    }
    /* An unprotected lock can be released, and not renewed, when locking is on again. */
    return request->kind == OP_RELEASE && id_is_unprotected(request->lock_id);
}

bool client_forgives(struct belay_client *client, const struct op_request *request, enum belay_code code,
                     const char *why)
{
    if (client->enabled || code == BELAY_OK || code == BELAY_NO_MEMORY ||
        (request->kind != OP_RENEW && request->kind != OP_RELEASE)) {
        return false;
    }
    if (!id_is_unprotected(request->lock_id)) {
        client_warn(client, "locking is switched off, so this does not matter: %s", why);
    }
    return true;
}

struct belay_info granted_info(const struct op_request *request)
{
    bool is_held = request->kind != OP_RELEASE && request->kind != OP_FORCE;
    int64_t ttl_ms = request->ttl_ms > 0 ? request->ttl_ms : UNKNOWN_TTL_MS;
    int64_t now_unix_ms = clock_unix_ms();

    return (struct belay_info){
        .key = (char *)request->key,
        .lock_id = (char *)request->lock_id,
        .locked_by = (char *)text_or_empty(request->owner),
        .locked_by_name = (char *)text_or_empty(request->owner_name),
        .acquired_by = (char *)request->acquired_by,
        .status = is_held ? BELAY_STATUS_ACTIVE : BELAY_STATUS_RELEASED,
        .outcome = is_held                       ? BELAY_OUTCOME_NONE
                   : request->kind == OP_RELEASE ? request->outcome
                                                 : BELAY_OUTCOME_FORCED,
        .locked_at_unix_ms = now_unix_ms,
        .expires_at_unix_ms = now_unix_ms + ttl_ms,
        .released_at_unix_ms = is_held ? 0 : now_unix_ms,
        .last_heartbeat_unix_ms = request->heartbeat_ms > 0 ? now_unix_ms : 0,
        .ttl_ms = ttl_ms,
        .expires_in_ms = is_held ? ttl_ms : 0,
        .valid_for_ms = is_held ? ttl_ms : -1,
        .metadata = (struct belay_meta *)request->metadata,
        .n_metadata = request->n_metadata,
    };
}
