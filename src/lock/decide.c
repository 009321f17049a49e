#include "lock/decide.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "lock/info.h"

static void later(int64_t *time, int64_t than)
{
    if (than > *time) {
        *time = than;
    }
}

/* The mode in which a request, a ticket or a holder has the lock or wants it. */
struct want {
    enum belay_mode mode;
    int slots;
};

static struct want want_of_request(const struct op_request *request)
{
    return (struct want){ request->mode, request->slots };
}

static bool are_shared(struct want a, struct want b)
{
    return a.mode == BELAY_SHARED && b.mode == BELAY_SHARED;
}

static bool want_same_slots(struct want a, struct want b)
{
    return a.mode == BELAY_SLOTS && b.mode == BELAY_SLOTS && a.slots == b.slots;
}

/* ---- holders ---- */

int decide_free_slots(const struct belay_record *record, int slots, int64_t margin_ms, int64_t now_ms)
{
    assert(margin_ms >= 0);
    for (size_t i = 0; i < record->n_holders; i++) {
        slots -= now_ms < record->holders[i].expires_ms + margin_ms;
    }
    return slots;
}

/* When the leases of all holders are over. */
static int64_t all_over_ms(const struct belay_record *record, int64_t margin_ms)
{
    int64_t over_ms = record->held ? record->expires_ms + margin_ms : 0;

    for (size_t i = 0; i < record->n_holders; i++) {
        later(&over_ms, record->holders[i].expires_ms + margin_ms);
    }
    return over_ms;
}

/* When a slot is next free, if all are taken; else when the last one became free by expiry. */
static int64_t slot_over_ms(const struct belay_record *record, int slots, int64_t margin_ms, int64_t now_ms)
{
    bool is_full = decide_free_slots(record, slots, margin_ms, now_ms) <= 0;
    int64_t soonest_ms = INT64_MAX;
    int64_t last_ms = 0;

    for (size_t i = 0; i < record->n_holders; i++) {
        int64_t over_ms = record->holders[i].expires_ms + margin_ms;

        if (over_ms <= now_ms) {
            later(&last_ms, over_ms);
        } else if (over_ms < soonest_ms) {
            soonest_ms = over_ms;
        }
    }
    return is_full ? soonest_ms : last_ms;
}

/* Until when the holders of a record block `want`; in the past: since when they do not; 0: they never did. */
static int64_t holders_over_ms(const struct belay_record *record, struct want want, bool is_target,
                               int64_t margin_ms, int64_t now_ms)
{
    struct want held = { record->mode, record->slots };

    if (!record->held || are_shared(want, held)) {
        return 0;
    }
    return is_target && want_same_slots(want, held) ? slot_over_ms(record, want.slots, margin_ms, now_ms)
                                                    : all_over_ms(record, margin_ms);
}

/* ---- intents ---- */

static bool intent_excludes(const struct belay_intent *intent, struct want want)
{
    return !(intent->shared && want.mode == BELAY_SHARED);
}

static void consider_intents(const struct op_request *request, const struct belay_record *record, size_t i,
                             int64_t now_ms, struct decision *decision, int64_t *free_since_ms)
{
    for (size_t n = 0; n < record->n_intents; n++) {
        const struct belay_intent *intent = &record->intents[n];
        int64_t over_ms = intent->expires_ms + request->capabilities.margin_ms;

        if (!intent_excludes(intent, want_of_request(request))) {
            continue;
        }
        later(free_since_ms, over_ms);
        if (now_ms < over_ms && decision->verdict != VERDICT_BLOCKED) {
            decision->verdict = VERDICT_BLOCKED;
            decision->blocker = i;
            decision->below_key = intent->key;
        }
    }
}

/* ---- the queue ---- */

enum clash decide_clash(const struct op_request *request, const struct belay_record *record, bool is_target,
                        const struct belay_ticket *ticket)
{
    struct want want = want_of_request(request);
    struct want theirs = { ticket->mode, ticket->slots };
    bool is_of_record = ticket_is_of(ticket, record);

    if ((!is_target && !is_of_record) || are_shared(want, theirs)) {
        return CLASH_NONE;
    }
    return is_target && is_of_record && want_same_slots(want, theirs) ? CLASH_SLOT : CLASH_TURN;
}

/* Record j is of a key above that of record i. Of two ancestors of the same keys, each counts as above the other. */
static bool is_above(const struct op_request *request, size_t j, size_t i)
{
    size_t n_targets = op_n_targets(request);
    unsigned below;

    if (j < n_targets || j == i) {
        return false;
    }
    if (request->joint == NULL) {
        return j > i; /* nearest first */
    }
    below = i < n_targets ? 1U << i : op_below(request, i);
    return (op_below(request, j) & below) == below;
}

/*
 * An incompatible waiter ahead of us may wait for holders that we are compatible with, on the same
 * key, above or below it. Its turn begins when the last of them is over. Before that we would
 * overtake it, and with enough clients like us it would never have its turn (L4).
 */
static void await_turn(const struct op_request *request, const struct belay_record *records, size_t at,
                       const struct belay_ticket *ticket, int64_t now_ms, int64_t *free_since_ms)
{
    const struct belay_record *record = &records[at];
    bool is_of_record = ticket_is_of(ticket, record);
    struct want theirs = { ticket->mode, ticket->slots };
    int64_t margin_ms = request->capabilities.margin_ms;

    later(free_since_ms, holders_over_ms(record, theirs, is_of_record, margin_ms, now_ms));
    for (size_t i = op_n_targets(request); i < op_n_records(request); i++) {
        if (is_above(request, i, at)) {
            later(free_since_ms, holders_over_ms(&records[i], theirs, false, margin_ms, now_ms));
        }
    }
    for (size_t i = 0; i < record->n_intents; i++) {
        if (intent_excludes(&record->intents[i], theirs)) {
            later(free_since_ms, record->intents[i].expires_ms + margin_ms);
        }
    }
    if (ticket->joint) {
        later(free_since_ms, ticket->expires_ms);
    }
}

/* The part of a record's queue that is ahead of the request. */
struct queue_ahead {
    size_t waiters; /* that are alive */
    size_t turns;   /* claim times to wait for, one after the other */
    bool queued;    /* the request has a ticket here */
};

/*
 * The turns of all tickets in the queue, compatible with the request or not: an incompatible
 * waiter ahead of us has its turn only after those that it is incompatible with. Shared waiters
 * that follow each other have one turn together.
 */
struct turns_ahead {
    size_t turns;             /* of all so far */
    size_t turns_to_unshared; /* up to the last that is not shared */
    int64_t joint_ms;         /* when the last ticket for several keys expires */
    int64_t joint_to_unshared_ms;
    bool after_shared;
};

static void count_turn(struct turns_ahead *queue, const struct belay_ticket *ticket)
{
    bool is_shared = ticket->mode == BELAY_SHARED;

    queue->turns += !(queue->after_shared && is_shared);
    queue->after_shared = is_shared;
    if (ticket->joint) {
        later(&queue->joint_ms, ticket->expires_ms);
    }
    if (!is_shared) {
        queue->turns_to_unshared = queue->turns;
        queue->joint_to_unshared_ms = queue->joint_ms;
    }
}

/* `own`: the index of the request's ticket in the queue of the record; n_tickets: it has none. */
static struct queue_ahead look_ahead(const struct op_request *request, const struct belay_record *records,
                                     size_t at, size_t own, int64_t now_ms, int64_t *free_since_ms)
{
    const struct belay_record *record = &records[at];
    bool is_target = at < op_n_targets(request);
    struct queue_ahead ahead = { .queued = own < record->n_tickets };
    struct turns_ahead queue = { 0 };
    int slot_waiters = 0;
    int slots;

    assert(at < op_n_records(request) && own <= record->n_tickets);
    for (size_t t = 0; t < own; t++) {
        const struct belay_ticket *ticket = &record->tickets[t];
        enum clash clash;

        if (ticket->dead || now_ms >= ticket->expires_ms) {
            if (ticket->joint && !ticket->dead) {
                later(&queue.joint_ms, ticket->expires_ms); /* the turns of those behind it began then */
                later(&queue.joint_to_unshared_ms, ticket->expires_ms);
            }
            continue;
        }
        ahead.waiters += is_target || ticket_is_of(ticket, record);
        clash = decide_clash(request, record, is_target, ticket);
        slot_waiters += clash == CLASH_SLOT;
        if (clash == CLASH_TURN) {
            bool is_shared = ticket->mode == BELAY_SHARED;

            ahead.turns = 1 + (is_shared ? queue.turns_to_unshared : queue.turns);
            later(free_since_ms, is_shared ? queue.joint_to_unshared_ms : queue.joint_ms);
        }
        if (clash == CLASH_TURN || (clash == CLASH_SLOT && ticket->joint)) {
            await_turn(request, records, at, ticket, now_ms, free_since_ms);
        }
        count_turn(&queue, ticket);
    }
    /* The tickets that the store left out are exclusive and for this key. */
    if (own == record->n_tickets || own + 1 == record->n_tickets) {
        size_t left_out = record->n_between + (own == record->n_tickets ? record->n_behind : 0);

        ahead.waiters += left_out;
        ahead.turns = left_out == 0 ? ahead.turns : queue.turns + left_out;
    }
    slots = slot_waiters == 0
                ? 0
                : decide_free_slots(record, request->slots, request->capabilities.margin_ms, now_ms);
    slots = slots < 1 ? 1 : slots; /* none is free: the next one that will be */
    if (slot_waiters >= slots) {
        ahead.turns += (size_t)(slot_waiters - slots + 1);
    }
    return ahead;
}

/* ---- what is ours ---- */

/* If the store does not keep the credential, a client that knows the lock id counts as its owner. */
static bool may_be_ours(const struct op_request *request, const char *acquired_by)
{
    return acquired_by == NULL || strcmp(acquired_by, text_or_empty(request->acquired_by)) == 0;
}

/* The index of the request's ticket in the queue; n_tickets: it has none. */
static size_t place_of(const struct op_request *request, const struct belay_record *record)
{
    size_t t = 0;

    while (t < record->n_tickets && strcmp(record->tickets[t].lock_id, request->lock_id) != 0) {
        t++;
    }
    return t;
}

/* Whether request.lock_id holds the lock of a record, or has held it before. */
enum past { PAST_NONE, PAST_HOLDS, PAST_HELD };

static enum past past_of(const struct op_request *request, const struct belay_record *record, int64_t now_ms)
{
    const struct belay_holder *holder = record_find_holder(record, request->lock_id);
    int64_t expires_ms = holder != NULL ? holder->expires_ms : record->expires_ms;
    const char *acquired_by = holder != NULL ? holder->acquired_by : record->acquired_by;
    bool is_live = record->held && now_ms < expires_ms;

    if (record->revision == 0 || record->lock_id == NULL ||
        (holder == NULL && strcmp(record->lock_id, request->lock_id) != 0)) {
        return PAST_NONE;
    }
    if (!is_live) {
        return PAST_HELD;
    }
    return may_be_ours(request, acquired_by) ? PAST_HOLDS : PAST_NONE;
}

/*
 * Re-entry discloses a lock id. A client chooses its owner's name itself, so the credential must
 * be the same as well. If the store does not keep the credential, only a client without one can
 * re-enter.
 */
static bool is_reentry(const struct op_request *request, const char *owner, const char *acquired_by)
{
    return strcmp(owner, request->owner) == 0 &&
           strcmp(text_or_empty(acquired_by), text_or_empty(request->acquired_by)) == 0;
}

/* The lock id under which our owner holds the lock in the same mode; NULL: it does not. */
static const char *reentered_id(const struct op_request *request, const struct belay_record *record,
                                int64_t now_ms)
{
    if (!request->reentrant || !record->held || record->mode != request->mode) {
        return NULL;
    }
    for (size_t i = 0; i < record->n_holders; i++) {
        const struct belay_holder *holder = &record->holders[i];

        if (now_ms < holder->expires_ms && is_reentry(request, holder->owner, holder->acquired_by)) {
            return holder->lock_id;
        }
    }
    return record->n_holders == 0 && record_is_live(record, now_ms) &&
                   is_reentry(request, record->owner, record->acquired_by)
               ? record->lock_id
               : NULL;
}

/*
 * False: the lock id decides, whatever the holders and the queue are, and the verdict is set. True:
 * out_places[i] is the request's place in the queue of target i.
 */
static bool is_undecided(const struct op_request *request, const struct belay_record *records, int64_t now_ms,
                         size_t out_places[BELAY_KEYS_MAX], struct decision *decision)
{
    size_t n = op_n_targets(request);
    size_t holds = 0;

    assert(n > 0);
    for (size_t i = 0; i < n; i++) {
        enum past past = past_of(request, &records[i], now_ms);

        holds += past == PAST_HOLDS;
        if (past == PAST_HELD) {
            decision->verdict = VERDICT_USED;
            return false;
        }
    }
    if (holds > 0) {
        decision->verdict = holds == n ? VERDICT_MINE : VERDICT_USED; /* on some keys it has ended */
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        out_places[i] = place_of(request, &records[i]);
        if (out_places[i] < records[i].n_tickets &&
            !may_be_ours(request, records[i].tickets[out_places[i]].acquired_by)) {
            decision->verdict = VERDICT_NOT_OURS;
            return false;
        }
    }
    if (out_places[0] < records[0].n_tickets) {
        decision->since_unix_ms = records[0].tickets[out_places[0]].since_unix_ms;
    }
    decision->holder_id = reentered_id(request, &records[0], now_ms);
    if (decision->holder_id != NULL) {
        decision->verdict = VERDICT_REENTER;
    }
    assert(decision->verdict == VERDICT_TAKE || decision->holder_id != NULL);
    return decision->holder_id == NULL;
}

/* The lock is held in a mode that this request can never join; sets the verdict. */
static bool refuses_mode(const struct op_request *request, const struct belay_record *record, int64_t now_ms,
                         enum verdict *verdict)
{
    bool is_held = record->held && now_ms < all_over_ms(record, request->capabilities.margin_ms);

    if (is_held && request->mode == BELAY_SLOTS && record->mode == BELAY_SLOTS &&
        record->slots != request->slots) {
        *verdict = VERDICT_OTHER_SLOTS;
        return true;
    }
    if (is_held && request->mode == BELAY_SHARED && record->mode == BELAY_SHARED &&
        decide_free_slots(record, BELAY_HOLDERS_MAX, request->capabilities.margin_ms, now_ms) <= 0) {
        *verdict = VERDICT_FULL;
        return true;
    }
    if (is_held && request->mode == record->mode && decide_is_heavy(request, record, now_ms)) {
        *verdict = VERDICT_HEAVY;
        return true;
    }
    return false;
}

bool decide_is_heavy(const struct op_request *request, const struct belay_record *record, int64_t now_ms)
{
    const char *replaced = request->kind == OP_ADOPT ? request->old_id : NULL;
    size_t size = meta_size(request->metadata, request->n_metadata);
    size_t others = 0;

    for (size_t i = 0; i < record->n_holders && request->n_metadata > 0; i++) {
        const struct belay_holder *holder = &record->holders[i];

        if (now_ms < holder->expires_ms + request->capabilities.margin_ms &&
            (replaced == NULL || strcmp(holder->lock_id, replaced) != 0)) {
            size += meta_size(holder->metadata, holder->n_metadata);
            others++;
        }
    }
    return others > 0 && size > BELAY_META_SUM_MAX;
}

enum belay_code decide_say_heavy(struct belay_error *err, const char *key)
{
    return error_set(
        err, BELAY_HELD,
        "lock '%s': its holders would have over %d KiB of metadata together: give less of it, or "
        "wait until some of them end",
        key, BELAY_META_SUM_MAX / 1024);
}

enum belay_code decide_say_other_slots(struct belay_error *err, const char *key, int slots,
                                       const struct belay_record *held)
{
    return error_set(err, BELAY_INVALID, "lock '%s' has %d slots as long as it is held, not %d: ask for %d",
                     key, held->slots, slots, held->slots);
}

struct decision decide(const struct op_request *request, const struct belay_record *records, int64_t now_ms)
{
    struct decision decision = { .verdict = VERDICT_TAKE, .queued = true };
    size_t n_targets = op_n_targets(request);
    size_t n = op_n_records(request);
    int64_t free_since_ms = 0;
    size_t turns = 0;
    size_t places[BELAY_KEYS_MAX];

    if (!is_undecided(request, records, now_ms, places, &decision)) {
        return decision;
    }
    for (size_t i = 0; i < n; i++) {
        bool is_target = i < n_targets;
        size_t own = is_target ? places[i] : place_of(request, &records[i]);
        struct queue_ahead ahead = look_ahead(request, records, i, own, now_ms, &free_since_ms);
        int64_t over_ms = holders_over_ms(&records[i], want_of_request(request), is_target,
                                          request->capabilities.margin_ms, now_ms);

        if (is_target && refuses_mode(request, &records[i], now_ms, &decision.verdict)) {
            decision.blocker = i;
            return decision;
        }
        /* Also if the lease of the record expired: a lock below may have been released since. */
        later(&free_since_ms, records[i].freed_ms);
        later(&free_since_ms, over_ms);
        if (now_ms < over_ms && decision.verdict != VERDICT_BLOCKED) {
            decision.verdict = VERDICT_BLOCKED;
            decision.blocker = i;
        }
        if (ahead.turns > 0 && decision.verdict != VERDICT_BLOCKED) {
            decision.blocker = i;
        }
        decision.ahead += ahead.waiters;
        decision.queued = decision.queued && ahead.queued;
        turns += ahead.turns;
    }
    for (size_t i = 0; i < n_targets; i++) {
        consider_intents(request, &records[i], i, now_ms, &decision, &free_since_ms);
    }
    decision.may_try_ms = free_since_ms + (int64_t)turns * request->capabilities.claim_ms;
    if (turns > 0 && now_ms < decision.may_try_ms) {
        decision.verdict = VERDICT_BLOCKED;
    }
    assert(decision.verdict == VERDICT_TAKE || decision.verdict == VERDICT_BLOCKED);
    assert(decision.blocker < n && (decision.below_key == NULL || decision.verdict == VERDICT_BLOCKED));
    return decision;
}
