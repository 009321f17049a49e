#include "lock/op.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fnv.h"
#include "lock/decide.h"
#include "lock/info.h"
#include "lock/lease.h"
#include "lock/step.h"

enum {
    FAULTS_MAX = 3,
    FAULTS_FOR_MS = 5000, /* no retry if the store took so long to fail */
    FAULT_BACKOFF_MS = 50,
    FAULT_BACKOFF_MAX_MS = 5000,
    TIMEOUT_MIN_MS = 1000
};

/* The arrays of an operation on several keys. */
struct op_room {
    const char *keys[OP_KEYS_MAX];
    struct belay_record records[OP_KEYS_MAX];
    struct belay_write writes[OP_KEYS_MAX];
    char intent_ids[BELAY_KEYS_MAX][OP_INTENT_ID_SIZE];
    struct belay_put_intent intents[OP_ANCESTORS_MAX]; /* a key has at most BELAY_ANCESTORS_MAX of them */
    struct belay_put_ticket tickets[BELAY_KEYS_MAX];
    struct belay_record ended[BELAY_KEYS_MAX];
};

size_t op_request_keys(const struct op_request *request, const char *out_keys[OP_KEYS_MAX])
{
    size_t n = op_n_records(request);

    for (size_t i = 0; i < n; i++) {
        out_keys[i] = op_record_key(request, i);
    }
    return n;
}

/* Set the arrays. One key needs no allocation. False: no memory. */
static bool op_make_room(struct op *op)
{
    op->events = op->few_events;
    op->events_room = OP_FEW_EVENTS;
    if (op->request.joint == NULL) {
        op->keys = op->few_keys;
        op->records = op->few_records;
        op->writes = op->few_writes;
        op->intent_ids = op->few_intent_ids;
        op->intents = op->few_intents;
        op->tickets = op->few_tickets;
        return true;
    }
    op->room = calloc(1, sizeof *op->room);
    if (op->room == NULL) {
        op->records = op->few_records;
        return false;
    }
    op->keys = op->room->keys;
    op->records = op->room->records;
    op->writes = op->room->writes;
    op->intent_ids = op->room->intent_ids;
    op->intents = op->room->intents;
    op->tickets = op->room->tickets;
    return true;
}

void op_start(struct op *op, const struct op_request *request, int64_t now_ms)
{
    assert(request->key != NULL && request->lock_id != NULL);
    assert(request->n_ancestors <= BELAY_ANCESTORS_MAX);
    assert(request->kind != OP_ADOPT || request->old_id != NULL);
    assert(request->joint == NULL ||
           (request->joint->n_keys > 1 && request->joint->n_keys <= BELAY_KEYS_MAX &&
            request->joint->n_ancestors <= OP_ANCESTORS_MAX));
    assert((request->mode == BELAY_SLOTS) == (request->slots > 0));
    memset(op, 0, offsetof(struct op, few_keys));
    op->request = *request;
    if (op->request.began_ms == 0) {
        op->request.began_ms = now_ms;
    }
    op->asked_ms = now_ms;
    op->first_unknown_ms = INT64_MAX;
    op->rng = request->seed;
    if (!op_make_room(op)) {
        op->request.joint = NULL;
        step_done_no_memory(op);
        return;
    }
    op->steps = request->kind == OP_ACQUIRE ? &acquire_steps : &change_steps;
    op->steps->start(op, now_ms);
}

int64_t step_random(uint64_t *rng, int64_t n)
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15U; /* splitmix64 */

    assert(n > 0);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (int64_t)((z ^ (z >> 31)) % (uint64_t)n);
}

/* ---- requests to the store ---- */

/* Every change of the state goes through here. */
static void op_enter(struct op *op, int state, enum op_want want, int64_t now_ms)
{
    assert(op->want != OP_DONE && want != OP_DONE);
    assert(state >= 0 && state < OP_STATES_MAX);
    assert((op->steps->from[state] & OP_FROM(op->state)) != 0);
    assert(now_ms >= 0);
    op->state = state;
    op->asked_ms = now_ms;
    op->want = want;
}

static void forget_records(struct op *op)
{
    size_t n = op_n_records(&op->request);

    for (size_t i = 0; i < n; i++) {
        belay_record_release(&op->records[i]);
    }
    op->n_wakes = 0; /* they pointed into the records */
}

void step_begin_batch(struct op *op)
{
    op->batch = (struct belay_batch){ .writes = op->writes,
                                      .n_writes = op_n_records(&op->request),
                                      .events = op->events };
    for (size_t i = 0; i < op->batch.n_writes; i++) {
        op->writes[i] = (struct belay_write){ .key = op_record_key(&op->request, i), .values = &op->values };
    }
}

/* LOCK_ID/HASH, with the hash of the key in 16 hexadecimal digits. */
static void write_intent_id(char out[OP_INTENT_ID_SIZE], const char *lock_id, const char *key)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t hash = fnv_text(FNV_INIT, key);
    size_t at = strlen(lock_id);

    assert(at > 0 && at + 18 <= OP_INTENT_ID_SIZE);
    memcpy(out, lock_id, at);
    out[at++] = '/';
    for (int shift = 60; shift >= 0; shift -= 4) {
        out[at++] = digits[hash >> shift & 15];
    }
    out[at] = '\0';
}

void step_put_intents(struct op *op, const char *lock_id, int64_t ttl_ms)
{
    size_t n_targets = op_n_targets(&op->request);
    struct belay_put_intent *at = op->intents;

    for (size_t t = 0; op_n_ancestors(&op->request) > 0 && t < n_targets; t++) {
        write_intent_id(op->intent_ids[t], lock_id, op_record_key(&op->request, t));
    }
    for (size_t i = n_targets; i < op->batch.n_writes; i++) {
        op->writes[i].put_intents = at;
        for (size_t t = 0; t < n_targets; t++) {
            if ((op_below(&op->request, i) >> t & 1) != 0) {
                *at++ = (struct belay_put_intent){ .lock_id = op->intent_ids[t],
                                                   .key = op_record_key(&op->request, t),
                                                   .ttl_ms = ttl_ms,
                                                   .shared = op->request.mode == BELAY_SHARED };
                op->writes[i].n_put_intents++;
            }
        }
        assert(op->writes[i].n_put_intents > 0 && op->writes[i].n_put_intents <= n_targets);
    }
    assert((size_t)(at - op->intents) <= n_targets * BELAY_ANCESTORS_MAX);
}

bool step_drop_intents(struct op *op, const char *lock_id)
{
    size_t n_targets = op_n_targets(&op->request);
    size_t n_drops = n_targets * BELAY_ANCESTORS_MAX;
    size_t id_room = (OP_INTENT_ID_SIZE + sizeof(char *) - 1) / sizeof(char *); /* as pointers */
    const char **at = step_drop_room(op, n_drops + n_targets * id_room);
    char(*ids)[OP_INTENT_ID_SIZE] = at == NULL ? NULL : (char(*)[OP_INTENT_ID_SIZE])(at + n_drops);

    for (size_t t = 0; at != NULL && t < n_targets; t++) {
        write_intent_id(ids[t], lock_id, op_record_key(&op->request, t));
    }
    for (size_t i = n_targets; at != NULL && i < op->batch.n_writes; i++) {
        op->writes[i].drop_intents = at;
        for (size_t t = 0; t < n_targets; t++) {
            /* A skipped lock keeps its intents: the id may have acquired it again since. */
            if ((op_below(&op->request, i) & ~(unsigned)op->skipped) >> t & 1) {
                *at++ = ids[t];
                op->writes[i].n_drop_intents++;
            }
        }
    }
    assert(at == NULL || (size_t)(at - op->drops) <= n_drops);
    return at != NULL;
}

const char **step_drop_room(struct op *op, size_t room)
{
    assert(room > 0);
    free(op->drops);
    op->drops = calloc(room, sizeof *op->drops);
    if (op->drops == NULL) {
        step_done_no_memory(op);
    }
    return op->drops;
}

void step_if_unchanged(struct op *op)
{
    for (size_t i = 0; i < op->batch.n_writes; i++) {
        op->writes[i].condition = op->records[i].revision == 0 ? BELAY_IF_ABSENT : BELAY_IF_UNCHANGED;
        op->writes[i].revision = op->records[i].revision;
    }
}

/* Without memory it returns the last event, to be overwritten: step_commit() does not send the batch. */
struct belay_event *step_event(struct op *op, size_t target, enum belay_level level, const char *type)
{
    struct belay_event *more;
    struct belay_event *event;

    assert(target < op_n_targets(&op->request) && type != NULL);
    assert(op->batch.events == op->events && op->batch.n_events <= op->events_room);
    if (op->batch.n_events == op->events_room &&
        (more = malloc(2 * op->events_room * sizeof *more)) != NULL) {
        memcpy(more, op->events, op->events_room * sizeof *more);
        if (op->events != op->few_events) {
            free(op->events);
        }
        op->events = more;
        op->batch.events = more;
        op->events_room *= 2;
    }
    op->no_memory = op->no_memory || op->batch.n_events == op->events_room;
    op->batch.n_events += op->no_memory ? 0 : 1;
    assert(op->batch.n_events > 0 && op->batch.n_events <= op->events_room);
    event = &op->events[op->batch.n_events - 1];
    *event = (struct belay_event){ .level = level,
                                   .type = type,
                                   .key = op->writes[target].key,
                                   .lock_id = op->request.lock_id,
                                   .locked_by = op->request.owner,
                                   .locked_by_name = op->request.owner_name,
                                   .metadata = op->request.metadata,
                                   .n_metadata = op->request.n_metadata,
                                   .duration_ms = -1 };
    if (event->n_metadata == 0) {
        event->metadata = NULL; /* the store uses the record's, if it is this lock's */
    }
    return event;
}

/*
 * The timeout is a quarter of the lease, which counts from before the write was sent: this leaves
 * time for another attempt. And it is not more than is left of wait_ms, but at least TIMEOUT_MIN_MS.
 */
void step_commit(struct op *op, int state, int64_t now_ms)
{
    int64_t timeout = op->request.ttl_ms > 0 ? op->request.ttl_ms / 4 : 0;

    assert(op->want != OP_DONE && op->blocker_key == NULL);
    assert(op->batch.writes == op->writes && op->batch.n_writes <= op_n_records(&op->request));
    assert(op->batch.n_writes > 0 || op->batch.n_events > 0 || op->request.kind == OP_ACQUIRE);
    if (op->no_memory) {
        step_done_no_memory(op);
        return;
    }
    if (op->request.wait_ms > 0) {
        int64_t left = op_give_up_ms(&op->request) - now_ms;

        timeout = timeout == 0 || left < timeout ? left : timeout;
        timeout = timeout == 0 ? 1 : timeout;
    }
    op->batch.timeout_ms = timeout != 0 && timeout < TIMEOUT_MIN_MS ? TIMEOUT_MIN_MS : timeout;
    op->polling = false;
    op_enter(op, state, OP_COMMIT, now_ms);
}

void step_look(struct op *op, int state, int64_t now_ms)
{
    op->blocker_key = NULL;
    op->n_keys = op_request_keys(&op->request, op->keys);
    assert(op->n_keys > 0 && op->n_keys <= OP_KEYS_MAX);
    op_enter(op, state, OP_GET, now_ms);
}

void step_read_blocker(struct op *op, int state, const char *key, int64_t now_ms)
{
    assert(key != NULL && op->blocker_key == NULL);
    op->polling = false;
    op->blocker_key = key;
    op->keys[0] = key;
    op->n_keys = 1;
    op_enter(op, state, OP_GET, now_ms);
}

/*
 * A waiter reads the records again before it acts, so it does not keep them: with a copy of a long
 * queue in each waiter, memory would grow with the square of its length.
 */
void step_wait(struct op *op, int state, int64_t until_ms)
{
    forget_records(op);
    op->blocker_key = NULL; /* it was borrowed from the records */
    op->wait_until_ms = until_ms;
    op->polling = false;
    op_enter(op, state, OP_WAIT, op->asked_ms);
}

/* ---- answers of the store ---- */

void step_adopt_records(struct op *op, struct belay_commit *result)
{
    assert(result->n_records <= op_n_records(&op->request));
    forget_records(op);
    for (size_t i = 0; i < result->n_records; i++) {
        op->records[i] = result->records[i];
        memset(&result->records[i], 0, sizeof result->records[i]);
    }
    op->records_now_ms = result->now_ms;
}

/* The waiter is dead, or its ticket has expired. */
static bool is_gone(const struct op *op, const struct belay_ticket *ticket)
{
    return ticket->dead || op->records_now_ms >= ticket->expires_ms;
}

static bool is_first_for_its_key(const struct op *op, const struct belay_record *record, size_t t)
{
    for (size_t i = 0; i < t; i++) {
        if (!is_gone(op, &record->tickets[i]) &&
            strcmp(record->tickets[i].key, record->tickets[t].key) == 0) {
            return false;
        }
    }
    return true;
}

/*
 * The waiters of one record to wake: the first one; those behind it that can hold the lock beside
 * it (shared after shared, or as many as there are free slots); and the first for each key below,
 * because these do not all exclude each other. The others could not acquire the lock yet. A waiter
 * that is woken too early reads the record and waits again.
 */
static void find_wakes_of(struct op *op, const struct belay_record *record, size_t most)
{
    bool is_first = true;
    bool all_shared = true;
    int room = 1;

    for (size_t t = 0; t < record->n_tickets; t++) {
        const struct belay_ticket *ticket = &record->tickets[t];
        bool is_own = ticket_is_of(ticket, record);

        if (is_gone(op, ticket)) {
            continue;
        }
        if (is_first && is_own && ticket->mode == BELAY_SLOTS) {
            room = decide_free_slots(record, ticket->slots, op->request.capabilities.margin_ms,
                                     op->records_now_ms);
            room = room < 1 ? 1 : room;
        }
        is_first = false;
        all_shared = all_shared && ticket->mode == BELAY_SHARED;
        if (room > 0 || all_shared || (!is_own && is_first_for_its_key(op, record, t))) {
            assert(op->n_wakes < most);
            op->wakes[op->n_wakes++] = ticket->lock_id;
        }
        room -= room > 0 ? 1 : 0;
    }
}

void step_find_wakes(struct op *op)
{
    size_t n = op_n_records(&op->request);
    size_t most = 0;

    op->n_wakes = 0;
    for (size_t i = 0; i < n; i++) {
        most += op->records[i].n_tickets;
    }
    if (most == 0) {
        return;
    }
    free(op->wakes);
    op->wakes = calloc(most, sizeof *op->wakes);
    for (size_t i = 0; op->wakes != NULL && i < n; i++) {
        find_wakes_of(op, &op->records[i], most);
    }
}

/*
 * Whether it says something about the write, or leads elsewhere. Any other failure, such as of the login to a database
 * that was started again, does not undo an earlier attempt that may have happened (L5).
 */
static bool is_answer(enum belay_code code)
{
    return code == BELAY_ID_USED || code == BELAY_REDIRECTED;
}

bool step_survives_fault(struct op *op, enum belay_code code, const struct belay_error *err,
                         int64_t give_up_ms, int64_t now_ms, int64_t *out_retry_ms)
{
    bool transient = code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN;
    const char *why = err == NULL || err->text[0] == '\0' ? NULL : err->text;
    int64_t backoff = FAULT_BACKOFF_MS;
    bool again;

    assert(code != BELAY_OK && code != BELAY_REFUSED && code != BELAY_FROZEN);
    if (op->faults++ == 0) {
        op->faults_since_ms = op->asked_ms;
    }
    again = op->faults < FAULTS_MAX && now_ms - op->faults_since_ms < FAULTS_FOR_MS;
    if (transient && !op->cancelled && (again || (op->answered && now_ms < give_up_ms))) {
        for (int i = 1; i < op->faults && backoff < FAULT_BACKOFF_MAX_MS; i++) {
            backoff *= 2;
        }
        *out_retry_ms = now_ms + backoff / 2 + step_random(&op->rng, backoff);
        return true;
    }
    if (op->was_unknown && !is_answer(code)) {
        code = BELAY_UNKNOWN;
    }
    if (code == BELAY_UNKNOWN && op->request.kind == OP_RENEW) {
        /* Without the id: 'belay run' warns with this text, in logs that many can read. */
        (void)error_set(
            &op->err, code, "lock '%s': the store's answer was lost, and it may have been renewed%s%s%s",
            op->request.key, why == NULL ? "" : " (", why == NULL ? "" : why, why == NULL ? "" : ")");
    } else if (code == BELAY_UNKNOWN) {
        (void)error_set(&op->err, code,
                        "lock '%s': the store's answer was lost, and it may have happened: "
                        "repeat with the same id, %s%s%s%s",
                        op->request.key, op->request.lock_id, why == NULL ? "" : " (", why == NULL ? "" : why,
                        why == NULL ? "" : ")");
    } else {
        (void)error_set(&op->err, code, "%s", err == NULL ? "" : err->text);
    }
    step_done(op, code);
    return false;
}

/* Every operation ends once. */
void step_done(struct op *op, enum belay_code code)
{
    assert(op->want != OP_DONE);
    assert(code == BELAY_OK || op->err.code != BELAY_OK); /* a failure is explained */
    op->code = code;
    op->want = OP_DONE;
}

void step_succeed(struct op *op, int64_t sent_ms)
{
    assert(op->n_wakes == 0 || op->wakes != NULL);
    for (size_t i = 0; i < op_n_targets(&op->request); i++) {
        if (op->records[i].n_holders > 0 && !record_show_holder(&op->records[i], op->request.lock_id)) {
            step_done_no_memory(op);
            return;
        }
    }
    belay_record_release(&op->record);
    op->record = op->records[0];
    memset(&op->records[0], 0, sizeof op->records[0]);
    op->more = op->records + 1;
    op->n_more = op_n_targets(&op->request) - 1;
    op->record_now_ms = op->records_now_ms;
    op->info = info_borrow(&op->record, op->record_now_ms);
    op->sent_ms = sent_ms;
    op->deadline_ms = lease_deadline_ms(sent_ms, op->record.ttl_ms, op->request.capabilities.margin_ms);
    step_done(op, BELAY_OK);
}

struct belay_record *step_ended(struct op *op)
{
    assert(op->request.joint != NULL && op->room != NULL);
    return op->room->ended;
}

int64_t step_found_sent_ms(const struct op *op)
{
    const struct belay_record *own = &op->records[0];
    int64_t left_ms = own->expires_ms - op->records_now_ms - op->request.capabilities.read_clock_lag_ms;
    int64_t sent_ms = op->asked_ms + left_ms - own->ttl_ms;

    return sent_ms < op->first_unknown_ms ? sent_ms : op->first_unknown_ms;
}

void step_done_no_memory(struct op *op)
{
    step_done(op, error_no_memory(&op->err));
}

/* ---- for the caller that runs the operation ---- */

void op_on_commit(struct op *op, enum belay_code code, struct belay_commit *result,
                  const struct belay_error *err, int64_t sent_ms, int64_t now_ms)
{
    assert(op->want == OP_COMMIT && sent_ms <= now_ms);
    assert(code != BELAY_OK || result->n_records == op->batch.n_writes);
    assert(code != BELAY_REFUSED || (result->n_records == 1 && result->refused < op->batch.n_writes));
    assert(code != BELAY_FROZEN || result->frozen != NULL);
    op->n_wakes = 0;
    if (code == BELAY_OK || code == BELAY_REFUSED || code == BELAY_FROZEN) {
        op->answered = true;
        op->faults = 0;
        op->commit_failed = false;
        op->steps->on_commit(op, code, result, sent_ms, now_ms);
        return;
    }
    op->was_unknown = op->was_unknown || code == BELAY_UNKNOWN;
    op->commit_failed = true;
    op->steps->on_fault(op, code, err, true, now_ms);
}

void op_on_get(struct op *op, enum belay_code code, struct belay_record *records, int64_t store_now_ms,
               const struct belay_error *err, int64_t now_ms)
{
    assert(op->want == OP_GET && (code != BELAY_OK || records != NULL));
    if (code != BELAY_OK) {
        op->steps->on_fault(op, code, err, false, now_ms);
        return;
    }
    op->answered = true;
    if (!op->commit_failed) {
        op->faults = 0; /* not after a failed commit: a full disk can be read, and we would retry for ever */
    }
    if (op->blocker_key != NULL) {
        belay_record_release(&op->blocker);
        op->blocker = records[0];
    } else {
        forget_records(op);
        memcpy(op->records, records, op->n_keys * sizeof *records);
        op->records_now_ms = store_now_ms;
    }
    memset(records, 0, op->n_keys * sizeof *records);
    op->steps->on_records(op, now_ms);
}

void op_on_look(struct op *op, enum belay_code code, struct belay_record *records, int64_t store_now_ms,
                const struct belay_error *err, int64_t asked_ms, int64_t seen_ms)
{
    assert(asked_ms <= seen_ms && op->polling);
    op->asked_ms = asked_ms; /* step_found_sent_ms() counts from here */
    op_on_get(op, code, records, store_now_ms, err, seen_ms);
}

void op_on_wake(struct op *op, int64_t now_ms)
{
    assert(op->want == OP_WAIT && op->blocker_key == NULL);
    op->steps->on_wake(op, now_ms);
}

int64_t op_valid_for_ms(const struct op *op, int64_t now_ms)
{
    bool is_holders =
        op->request.kind == OP_ACQUIRE || op->request.kind == OP_ADOPT || op->request.kind == OP_RENEW;

    assert(op->want == OP_DONE);
    if (op->code != BELAY_OK || !is_holders) {
        return -1;
    }
    return op->deadline_ms > now_ms ? op->deadline_ms - now_ms : 0;
}

struct belay_info *op_info(const struct op *op, struct belay_info *info)
{
    assert(op->want == OP_DONE && op->code == BELAY_OK);
    assert(op->n_more == op_n_targets(&op->request) - 1 || op->n_more == 0);
    if (info == NULL || op->n_more == 0) {
        return info;
    }
    info->joint = calloc(op->n_more, sizeof *info->joint);
    for (size_t i = 0; info->joint != NULL && i < op->n_more; i++) {
        struct belay_info *one = info_from_record(&op->more[i], op->record_now_ms, false);

        if (one == NULL) {
            break;
        }
        info->joint[info->n_joint++] = *one;
        free(one);
    }
    if (info->n_joint != op->n_more) {
        belay_info_free(info);
        return NULL;
    }
    return info;
}

void op_stop(struct op *op, enum belay_code code, struct belay_error *err)
{
    assert(code != BELAY_OK);
    (void)error_move(&op->err, code, err);
    step_done(op, code);
}

void op_cancel(struct op *op)
{
    op->cancelled = true;
}

void op_destroy(struct op *op)
{
    forget_records(op);
    belay_record_release(&op->blocker);
    belay_record_release(&op->record);
    belay_error_release(&op->err);
    free(op->wakes);
    free(op->drops);
    if (op->events != op->few_events) {
        free(op->events);
    }
    for (size_t i = 0; op->room != NULL && i < BELAY_KEYS_MAX; i++) {
        belay_record_release(&op->room->ended[i]);
    }
    free(op->room);
    op->wakes = NULL;
    op->drops = NULL;
    op->events = NULL;
    op->room = NULL;
    op->records = op->few_records; /* empty by now, or never used */
    op->request.joint = NULL;
}
