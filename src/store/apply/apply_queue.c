/* The entries in a record of clients that do not hold it: the tickets of its waiters, and intents. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/saturate.h"
#include "store/apply/apply_internal.h"

/* The analyzer does not follow array elements that move up: NOLINT, here and in record_drop_intent(). */
static void clear_ticket(struct belay_ticket *ticket)
{
    if (ticket->packed) {
        return;
    }
    free(ticket->lock_id);
    free(ticket->key); /* NOLINT(clang-analyzer-unix.Malloc) */
    free(ticket->owner);
    free(ticket->owner_name);
    free(ticket->acquired_by);
}

/* The place of an id in the queue; if it has none, the end. */
static size_t find_ticket(const struct belay_record *record, const char *lock_id)
{
    size_t at = 0;

    while (at < record->n_tickets && strcmp(record->tickets[at].lock_id, lock_id) != 0) {
        at++;
    }
    return at;
}

static void row_drop_ticket(struct row *row, const char *lock_id)
{
    struct belay_record *record = &row->record;
    size_t at = find_ticket(record, lock_id);
    size_t after;

    if (at == record->n_tickets) {
        return;
    }
    assert(row->has_liveness != NULL);
    after = record->n_tickets - at - 1;
    clear_ticket(&record->tickets[at]);
    memmove(&record->tickets[at], &record->tickets[at + 1], after * sizeof *record->tickets);
    memmove(&row->has_liveness[at], &row->has_liveness[at + 1], after * sizeof *row->has_liveness);
    record->n_tickets--;
}

static void record_drop_intent(struct belay_record *record, const char *lock_id)
{
    size_t kept = 0;

    for (size_t i = 0; i < record->n_intents; i++) {
        if (strcmp(record->intents[i].lock_id, lock_id) == 0) {
            free(record->intents[i].lock_id);
            free(record->intents[i].key); /* NOLINT(clang-analyzer-unix.Malloc) */
            continue;
        }
        record->intents[kept++] = record->intents[i];
    }
    record->n_intents = kept;
}

static bool row_put_ticket(struct row *row, const struct belay_put_ticket *put, bool has_liveness,
                           const struct txn *txn)
{
    struct belay_record *record = &row->record;
    struct belay_ticket ticket = { .seq = txn->next };
    struct belay_ticket *tickets;
    size_t at = find_ticket(record, put->lock_id);
    bool *liveness;

    assert(at <= record->n_tickets);
    tickets = realloc(record->tickets, (record->n_tickets + 1) * sizeof *tickets);
    record->tickets = tickets != NULL ? tickets : record->tickets;
    liveness = realloc(row->has_liveness, (record->n_tickets + 1) * sizeof *liveness);
    row->has_liveness = liveness != NULL ? liveness : row->has_liveness;
    if (tickets == NULL || liveness == NULL || !replace_text(record, &ticket.lock_id, put->lock_id) ||
        !replace_text(record, &ticket.key, put->key) || !replace_text(record, &ticket.owner, put->owner) ||
        !replace_text(record, &ticket.owner_name, put->owner_name) ||
        !replace_text(record, &ticket.acquired_by, put->acquired_by)) {
        clear_ticket(&ticket);
        return false;
    }
    ticket.since_unix_ms = put->since_unix_ms;
    ticket.expires_ms = add_saturated(txn->now_ms, put->ttl_ms);
    ticket.mode = put->mode;
    ticket.slots = put->slots;
    ticket.joint = put->joint;
    if (at < record->n_tickets) {
        ticket.seq = tickets[at].seq;
        clear_ticket(&tickets[at]);
    } else {
        record->n_tickets++;
    }
    tickets[at] = ticket;
    liveness[at] = has_liveness;
    return true;
}

static bool record_put_intent(struct belay_record *record, const struct belay_put_intent *put,
                              const struct txn *txn)
{
    struct belay_intent intent = { .expires_ms = add_saturated(txn->now_ms, put->ttl_ms),
                                   .shared = put->shared };
    struct belay_intent *intents;

    record_drop_intent(record, put->lock_id);
    intents = realloc(record->intents, (record->n_intents + 1) * sizeof *intents);
    if (intents == NULL) {
        return false;
    }
    record->intents = intents;
    if (!replace_text(record, &intent.lock_id, put->lock_id) ||
        !replace_text(record, &intent.key, put->key)) {
        free(intent.lock_id);
        free(intent.key);
        return false;
    }
    intents[record->n_intents++] = intent;
    return true;
}

bool queue_apply(const struct belay_write *write, const struct txn *txn, bool has_liveness, struct row *row)
{
    bool ok = true;

    for (size_t i = 0; i < write->n_drop_tickets; i++) {
        row_drop_ticket(row, write->drop_tickets[i]);
    }
    for (size_t i = 0; i < write->n_drop_intents; i++) {
        record_drop_intent(&row->record, write->drop_intents[i]);
    }
    if (write->put_ticket != NULL) {
        ok = row_put_ticket(row, write->put_ticket, has_liveness, txn);
    }
    for (size_t i = 0; ok && i < write->n_put_intents; i++) {
        ok = record_put_intent(&row->record, &write->put_intents[i], txn);
    }
    return ok;
}
