#include "lock/decide.h"

#include <string.h>

#include "lock/info.h"

static void later(int64_t *time, int64_t than)
{
    if (than > *time) {
        *time = than;
    }
}

/* A holder of records[i]. Until when it stands in the way, and since when the lock is free. */
static void consider_holder(const struct op_request *request, const struct belay_record *record, size_t i,
                            int64_t now_ms, struct decision *decision, int64_t *free_since_ms)
{
    int64_t over_ms = record->expires_ms + request->capabilities.margin_ms;

    /* Also of a record whose lease expired: a child may have been released since. */
    later(free_since_ms, record->freed_ms);
    if (!record->held) {
        return;
    }
    later(free_since_ms, over_ms);
    if (now_ms < over_ms && decision->verdict != VERDICT_BLOCKED) {
        decision->verdict = VERDICT_BLOCKED;
        decision->blocker = i;
    }
}

static void consider_intents(const struct op_request *request, const struct belay_record *record,
                             int64_t now_ms, struct decision *decision, int64_t *free_since_ms)
{
    for (size_t i = 0; i < record->n_intents; i++) {
        const struct belay_intent *intent = &record->intents[i];
        int64_t over_ms = intent->expires_ms + request->capabilities.margin_ms;

        later(free_since_ms, over_ms);
        if (now_ms < over_ms && decision->verdict != VERDICT_BLOCKED) {
            decision->verdict = VERDICT_BLOCKED;
            decision->blocker = 0;
            decision->below_key = intent->key;
        }
    }
}

/*
 * A waiter ahead of us waits for that ancestor, and for all that is held below it.
 * Its turn begins when the last of those is over; until then we would overtake
 * it, and with enough of us it would never have its turn (L4).
 */
static void await_below(const struct op_request *request, const struct belay_record *record,
                        int64_t *free_since_ms)
{
    for (size_t i = 0; i < record->n_intents; i++) {
        later(free_since_ms, record->intents[i].expires_ms + request->capabilities.margin_ms);
    }
}

/* How many live waiters on records[i] come before us. */
static size_t count_ahead(const struct op_request *request, const struct belay_record *record, size_t i,
                          int64_t now_ms, bool *queued)
{
    size_t ahead = 0;

    for (size_t t = 0; t < record->n_tickets; t++) {
        const struct belay_ticket *ticket = &record->tickets[t];

        if (strcmp(ticket->lock_id, request->lock_id) == 0) {
            return ahead;
        }
        if (ticket->dead || now_ms >= ticket->expires_ms) {
            continue;
        }
        if (i == 0 || strcmp(ticket->key, record->key) == 0) {
            ahead++;
        }
    }
    *queued = false;
    return ahead;
}

static const char *or_none(const char *credential)
{
    return credential == NULL ? "" : credential;
}

/* Where the store does not keep it, whoever names the id is taken for the one it was given to. */
static bool may_be_ours(const struct op_request *request, const char *acquired_by)
{
    return acquired_by == NULL || strcmp(acquired_by, or_none(request->acquired_by)) == 0;
}

/*
 * Re-entry gives away an id. The owner's name is what the client says it is, so
 * the credential must be the same as well; where the store does not keep it, no
 * credential gets in this way, only those that need none.
 */
static bool is_reentry(const struct op_request *request, const struct belay_record *record)
{
    return request->reentrant && strcmp(record->owner, request->owner) == 0 &&
           strcmp(or_none(record->acquired_by), or_none(request->acquired_by)) == 0;
}

static bool is_anothers_ticket(const struct op_request *request, const struct belay_record *record)
{
    for (size_t i = 0; i < record->n_tickets; i++) {
        const struct belay_ticket *ticket = &record->tickets[i];

        if (strcmp(ticket->lock_id, request->lock_id) == 0) {
            return !may_be_ours(request, ticket->acquired_by);
        }
    }
    return false;
}

struct decision decide(const struct op_request *request, const struct belay_record *records, int64_t now_ms)
{
    const struct belay_record *own = &records[0];
    struct decision decision = { .verdict = VERDICT_TAKE, .queued = true };
    int64_t free_since_ms = 0;

    if (own->revision != 0 && own->lock_id != NULL && strcmp(own->lock_id, request->lock_id) == 0 &&
        (!record_is_live(own, now_ms) || may_be_ours(request, own->acquired_by))) {
        decision.verdict = record_is_live(own, now_ms) ? VERDICT_MINE : VERDICT_USED;
        return decision;
    }
    if (is_anothers_ticket(request, own)) {
        decision.verdict = VERDICT_NOT_OURS;
        return decision;
    }
    if (record_is_live(own, now_ms) && is_reentry(request, own)) {
        decision.verdict = VERDICT_REENTER;
        return decision;
    }
    for (size_t i = 0; i <= request->n_ancestors; i++) {
        size_t before = decision.ahead;

        consider_holder(request, &records[i], i, now_ms, &decision, &free_since_ms);
        decision.ahead += count_ahead(request, &records[i], i, now_ms, &decision.queued);
        if (decision.ahead > before && decision.verdict != VERDICT_BLOCKED) {
            decision.blocker = i;
        }
        if (decision.ahead > before && i > 0) {
            await_below(request, &records[i], &free_since_ms);
        }
    }
    consider_intents(request, own, now_ms, &decision, &free_since_ms);
    decision.may_try_ms = free_since_ms + (int64_t)decision.ahead * request->capabilities.claim_ms;
    if (decision.ahead > 0 && now_ms < decision.may_try_ms) {
        decision.verdict = VERDICT_BLOCKED;
    }
    return decision;
}
