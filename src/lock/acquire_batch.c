/* The batches of an acquisition: one for each of its steps, with their events. */
#include <assert.h>
#include <string.h>

#include "lock/acquire.h"
#include "lock/decide.h"
#include "lock/info.h"
#include "lock/step.h"

enum { JOINT_TICKET_MS = 10000 }; /* the ttl of a ticket for several keys */

static void fill_values(struct op *op)
{
    const struct op_request *request = &op->request;

    memset(&op->values, 0, sizeof op->values);
    op->values.lock_id = (char *)request->lock_id;
    op->values.owner = (char *)request->owner;
    op->values.owner_name = (char *)request->owner_name;
    op->values.acquired_by = (char *)request->acquired_by;
    op->values.metadata = (struct belay_meta *)request->metadata;
    op->values.n_metadata = request->n_metadata;
    op->values.ttl_ms = request->ttl_ms;
    op->values.heartbeat_ms = request->heartbeat_ms;
    op->values.stale_after_ms = request->stale_after_ms;
    op->values.durable = request->durable;
    op->values.mode = request->mode;
    op->values.slots = request->slots;
}

/* For batch.require_unused_id. A fresh id needs no check, unless an earlier write may have used it (L5). */
static const char *unused_id(const struct op *op)
{
    return op->request.id_is_fresh && !op->was_unknown ? NULL : op->request.lock_id;
}

/* Make the request's lock id the holder of the keys, and put its intents on the ancestors. */
static void write_take(struct op *op)
{
    const struct op_request *request = &op->request;

    assert(request->ttl_ms > 0 && request->owner != NULL);
    fill_values(op);
    op->batch.check_freezes = !request->ignore_freeze;
    for (size_t i = 0; i < op_n_targets(request); i++) {
        op->writes[i].set = BELAY_SET_HOLDER;
        op->writes[i].co_holder = request->mode != BELAY_EXCLUSIVE;
    }
    step_put_intents(op, request->lock_id, request->ttl_ms);
    op->batch.durable = request->durable;
    op->batch.require_unused_id = unused_id(op);
}

static void drop_own_ticket(struct op *op)
{
    for (size_t i = 0; i < op->batch.n_writes; i++) {
        op->writes[i].drop_tickets = &op->request.lock_id;
        op->writes[i].n_drop_tickets = 1;
    }
}

static void add_wait_ended(struct op *op, const char *why, int64_t now_ms)
{
    for (size_t i = 0; i < op_n_targets(&op->request); i++) {
        struct belay_event *event = step_event(op, i, BELAY_LEVEL_INFO, "wait.ended");

        event->reason = why;
        event->duration_ms = now_ms - op->waiting.since_ms;
    }
}

/* The lease of the old holder expired (S2.4): the new holder records that. */
static void add_taken_over(struct op *op, size_t target, const struct belay_holder *old)
{
    struct belay_event *event = step_event(op, target, BELAY_LEVEL_WARNING, "lock.taken_over");

    event->by = op->request.owner;
    event->reason = "its lease had ended";
    event->lock_id = old->lock_id;
    event->locked_by = old->owner;
    event->locked_by_name = old->owner_name;
    event->token = old->token;
    event->metadata = old->metadata;
    event->n_metadata = old->n_metadata;
}

/* The holder's lease has expired, and the margin for clocks has passed. */
static bool holder_is_over(const struct op *op, const struct belay_holder *holder)
{
    return op->records_now_ms >= holder->expires_ms + op->request.capabilities.margin_ms;
}

static void add_taken_over_events(struct op *op, size_t target)
{
    const struct belay_record *own = &op->records[target];

    for (size_t i = 0; i < own->n_holders; i++) {
        if (holder_is_over(op, &own->holders[i])) {
            add_taken_over(op, target, &own->holders[i]);
        }
    }
    if (own->held && own->n_holders == 0) {
        add_taken_over(op, target, &own->holder);
    }
}

static void add_acquired_events(struct op *op, int64_t now_ms)
{
    size_t n = op_n_targets(&op->request);

    if (op->queued) {
        add_wait_ended(op, "acquired", now_ms);
    }
    for (size_t i = 0; i < n; i++) {
        struct belay_event *event = step_event(op, i, BELAY_LEVEL_INFO, "lock.acquired");

        event->token = BELAY_TOKEN_OF_BATCH;
        event->reason = op->request.reason;
    }
}

void acquire_try_free(struct op *op, int64_t now_ms)
{
    assert(!op->queued);
    step_begin_batch(op);
    write_take(op);
    for (size_t i = 0; i < op->batch.n_writes; i++) {
        op->writes[i].condition = i < op_n_targets(&op->request) ? BELAY_IF_FREE : BELAY_IF_FREE_FOR_INTENT;
    }
    /* Only if a held lock ends the operation: then the store can record the refusal at once. */
    op->batch.note_refusal = !op_may_wait(&op->request) && !op->request.reentrant &&
                             op->request.mode == BELAY_EXCLUSIVE && op->batch.n_writes == 1;
    add_acquired_events(op, now_ms);
    step_commit(op, TRYING, now_ms);
}

/*
 * Not after an answer was lost, nor if another process may use the same id: only the records show
 * what has happened then.
 */
bool acquire_takes_turns(const struct op *op)
{
    return op->request.capabilities.takes_turns && op_n_records(&op->request) == 1 &&
           op->request.mode == BELAY_EXCLUSIVE && !op->was_unknown && !op->request.is_restart &&
           !op->must_look;
}

void acquire_claim(struct op *op, int64_t now_ms)
{
    assert(op->queued && acquire_takes_turns(op));
    step_begin_batch(op);
    write_take(op);
    drop_own_ticket(op);
    op->writes[0].condition = BELAY_IF_NEXT;
    op->writes[0].lock_id = op->request.lock_id;
    add_acquired_events(op, now_ms);
    step_commit(op, CLAIMING, now_ms);
}

/* How many of the waiters for a slot ahead of us had their turn and did not use it. */
static int slots_passed(const struct op *op, const struct belay_record *record)
{
    int free =
        decide_free_slots(record, op->request.slots, op->request.capabilities.margin_ms, op->records_now_ms);
    int waiters = 0;

    assert(op->request.mode == BELAY_SLOTS && op->request.slots > 0);
    for (size_t t = 0; t < record->n_tickets; t++) {
        const struct belay_ticket *ticket = &record->tickets[t];

        if (strcmp(ticket->lock_id, op->request.lock_id) == 0) {
            break;
        }
        waiters += !ticket->dead && op->records_now_ms < ticket->expires_ms &&
                   decide_clash(&op->request, record, true, ticket) == CLASH_SLOT;
    }
    return waiters < free ? 0 : waiters - free + 1;
}

/* Drop our own ticket, those of waiters that are gone, and those ahead of us whose turn has passed. */
static const char **drop_tickets(struct op *op, size_t i, const char **at)
{
    const struct belay_record *record = &op->records[i];
    struct belay_write *write = &op->writes[i];
    bool is_target = i < op_n_targets(&op->request);
    int slots = is_target && op->request.mode == BELAY_SLOTS ? slots_passed(op, record) : 0;
    bool before_us = true;

    write->drop_tickets = at;
    for (size_t t = 0; t < record->n_tickets; t++) {
        const struct belay_ticket *ticket = &record->tickets[t];
        bool ours = before_us && strcmp(ticket->lock_id, op->request.lock_id) == 0;
        bool gone = ticket->dead || op->records_now_ms >= ticket->expires_ms;
        enum clash clash =
            before_us && !gone ? decide_clash(&op->request, record, is_target, ticket) : CLASH_NONE;
        bool passed = clash == CLASH_TURN || (clash == CLASH_SLOT && slots-- > 0);

        if (ours || gone || passed) {
            *at++ = ticket->lock_id;
            write->n_drop_tickets++;
        }
        before_us = before_us && !ours;
    }
    return at;
}

/* Drop expired intents and holders. */
static const char **drop_expired(struct op *op, size_t i, const char **at)
{
    const struct belay_record *record = &op->records[i];
    struct belay_write *write = &op->writes[i];

    write->drop_intents = at;
    for (size_t t = 0; t < record->n_intents; t++) {
        if (op->records_now_ms >= record->intents[t].expires_ms + op->request.capabilities.margin_ms) {
            *at++ = record->intents[t].lock_id;
            write->n_drop_intents++;
        }
    }
    write->drop_holders = at;
    for (size_t t = 0; i < op_n_targets(&op->request) && t < record->n_holders; t++) {
        if (holder_is_over(op, &record->holders[t])) {
            *at++ = record->holders[t].lock_id;
            write->n_drop_holders++;
        }
    }
    return at;
}

/*
 * The turns of waiters that are compatible with us began when the leases ended that this write
 * drops. Their end is then no longer in the record, and our own lease does not block these waiters.
 * So their turns begin again now (L4).
 */
static void restart_turns(struct op *op, size_t i)
{
    const struct belay_record *record = &op->records[i];
    struct belay_write *write = &op->writes[i];
    bool replaces = i < op_n_targets(&op->request) && record->held && record->n_holders == 0;

    if (op->request.mode != BELAY_EXCLUSIVE &&
        (replaces || write->n_drop_intents > 0 || write->n_drop_holders > 0)) {
        write->set |= BELAY_SET_FREED;
    }
}

void acquire_take(struct op *op, int64_t now_ms)
{
    size_t n = op_n_records(&op->request);
    size_t room = 1;
    const char **at;

    for (size_t i = 0; i < n; i++) {
        room += op->records[i].n_tickets + op->records[i].n_intents + op->records[i].n_holders;
    }
    at = step_drop_room(op, room);
    if (at == NULL) {
        return;
    }
    step_begin_batch(op);
    step_if_unchanged(op);
    write_take(op);
    for (size_t i = 0; i < n; i++) {
        at = drop_expired(op, i, drop_tickets(op, i, at));
        restart_turns(op, i);
    }
    assert(at < op->drops + room);
    for (size_t i = 0; i < op_n_targets(&op->request); i++) {
        add_taken_over_events(op, i);
    }
    add_acquired_events(op, now_ms);
    step_commit(op, TAKING, now_ms);
}

/* The lock's own ttl. If the store does not keep it, ours, but not less than is left: the holder relies on that. */
static int64_t reentry_ttl_ms(const struct op *op)
{
    const struct belay_record *own = &op->records[0];
    int64_t left_ms = own->expires_ms - op->records_now_ms;

    if (!own->ttl_is_estimate) {
        return own->ttl_ms;
    }
    return op->request.ttl_ms > left_ms ? op->request.ttl_ms : left_ms;
}

void acquire_reenter(struct op *op, const char *holder_id, int64_t now_ms)
{
    const struct belay_record *own = &op->records[0];
    struct belay_event *event;
    int64_t ttl_ms;

    assert(op->request.reentrant && op->request.joint == NULL && holder_id != NULL);
    if (!record_show_holder(&op->records[0], holder_id)) {
        step_done_no_memory(op);
        return;
    }
    ttl_ms = reentry_ttl_ms(op);
    step_begin_batch(op);
    memset(&op->values, 0, sizeof op->values);
    op->writes[0].condition = BELAY_IF_LIVE_BY;
    op->writes[0].lock_id = own->lock_id;
    op->writes[0].co_holder = op->request.mode != BELAY_EXCLUSIVE;
    op->writes[0].set = BELAY_SET_LEASE;
    op->values.ttl_ms = ttl_ms; /* not 0, so that lease and intents have the same */
    step_put_intents(op, own->lock_id, ttl_ms);
    if (op->queued) {
        drop_own_ticket(op);
        add_wait_ended(op, "reentered", now_ms);
    }
    event = step_event(op, 0, BELAY_LEVEL_INFO, "lock.reentered");
    event->lock_id = own->lock_id;
    event->token = own->token;
    event->metadata = own->metadata; /* the lock keeps its own */
    event->n_metadata = own->n_metadata;
    step_commit(op, REENTERING, now_ms);
}

/*
 * How long a ticket is valid; 0: it does not expire. A ticket for several keys keeps its place
 * even if it does not claim a key that is free, so it expires soon unless its waiter puts it again.
 */
static int64_t ticket_ttl_ms(const struct op *op)
{
    int64_t ttl_ms = op->request.capabilities.ticket_ttl_ms;

    return op->request.joint != NULL && (ttl_ms == 0 || ttl_ms > JOINT_TICKET_MS) ? JOINT_TICKET_MS : ttl_ms;
}

int64_t acquire_renew_ticket_ms(const struct op *op, int64_t now_ms)
{
    return ticket_ttl_ms(op) > 0 ? now_ms + ticket_ttl_ms(op) / 2 : INT64_MAX;
}

size_t acquire_first_below(const struct op_request *request, size_t i)
{
    size_t target = 0;

    assert(i >= op_n_targets(request) && i < op_n_records(request));
    assert(op_below(request, i) != 0);
    while ((op_below(request, i) >> target & 1) == 0) {
        target++;
    }
    return target;
}

/*
 * An event of key i that it is not free. The history of one key tells nothing of another one, which its readers may not
 * be permitted to see.
 */
static void add_blocked_event(struct op *op, size_t i, const char *type)
{
    step_event(op, i, BELAY_LEVEL_INFO, type)->reason =
        i == op->blocked ? op->err.text : "another key of the request is not free";
}

void acquire_queue(struct op *op, bool again, bool is_broken, int64_t now_ms)
{
    const struct op_request *request = &op->request;

    assert(op_may_wait(request) && (!is_broken || again));
    step_begin_batch(op);
    if (acquire_takes_turns(op) && !op->is_frozen) { /* a frozen key may be free */
        op->writes[0].condition = BELAY_IF_OCCUPIED;
    } else {
        step_if_unchanged(op);
    }
    for (size_t i = 0; i < op->batch.n_writes; i++) {
        size_t target = i < op_n_targets(request) ? i : acquire_first_below(request, i);

        op->tickets[target] = (struct belay_put_ticket){ .lock_id = request->lock_id,
                                                         .key = op_record_key(request, target),
                                                         .owner = request->owner,
                                                         .owner_name = request->owner_name,
                                                         .since_unix_ms = op->waiting.since_unix_ms,
                                                         .ttl_ms = ticket_ttl_ms(op),
                                                         .acquired_by = request->acquired_by,
                                                         .mode = request->mode,
                                                         .slots = request->slots,
                                                         .joint = request->joint != NULL,
                                                         .is_again = op->ticket_until_ms > 0 };
        op->writes[i].put_ticket = &op->tickets[target];
    }
    /*
     * If the ticket is missing on one key, it was dropped there while we were suspended. Two joint
     * waiters of which each is ahead of the other on one key would wait for ever: so we queue
     * again on all keys, in one commit.
     */
    if (request->joint != NULL && is_broken) {
        drop_own_ticket(op);
    }
    op->batch.require_unused_id = unused_id(op); /* refused now, not only when its turn comes */
    for (size_t i = 0; !again && i < op_n_targets(request); i++) {
        add_blocked_event(op, i, "wait.began");
    }
    step_commit(op, QUEUEING, now_ms);
}

void acquire_leave(struct op *op, const char *why, int64_t now_ms)
{
    bool is_refused = op->code == BELAY_HELD || op->code == BELAY_FROZEN;

    assert(op->code != BELAY_OK && op->err.code != BELAY_OK);
    step_begin_batch(op);
    if (op->queued) {
        drop_own_ticket(op);
        if (op->code != BELAY_ID_USED) { /* else another process has used it, and has ended the wait then */
            add_wait_ended(op, why, now_ms);
            op->batch.require_unused_id = unused_id(op);
        }
        op->writes[0].unless_elsewhere = true; /* it keeps its place if it waits through another server now */
        for (size_t i = 0; op->request.joint != NULL && i < op->batch.n_writes; i++) {
            op->writes[i].set = BELAY_SET_FREED; /* the turns of the waiters behind us begin now (L4) */
        }
    } else {
        op->batch.n_writes = 0;
    }
    for (size_t i = 0; is_refused && i < op_n_targets(&op->request); i++) {
        add_blocked_event(op, i, "lock.refused");
    }
    if (op->code != BELAY_HELD || op->queued) {
        op->kept_event_id = 0; /* it was refused, but there is more to do or to say */
    }
    assert(op->kept_event_id == 0 || op->batch.n_events == 1);
    step_commit(op, LEAVING, now_ms);
}
