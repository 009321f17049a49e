/* The only way in which records change: one call of a function of functions.sql, of commit() if none is simpler. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/saturate.h"
#include "freeze/freeze_list.h"
#include "store/postgresql/postgresql_internal.h"

/* The code of an answer, as in functions.sql. */
enum { DONE, REFUSED, FROZEN, ID_USED, LATE };

/* Its columns. */
enum { CODE, NOW, INDEX, TOKEN, EVENT, DETAIL, RECORD };

enum { FORGET_EVERY = 1000, FORGET_MOST = 5000 };

static enum belay_code check_batch(const struct belay_batch *batch, struct belay_error *err)
{
    for (size_t i = 0; i < batch->n_writes; i++) {
        const struct belay_write *write = &batch->writes[i];

        if (write->co_holder && (write->set & BELAY_SET_ACQUIRED) != 0 &&
            (write->values->mode == BELAY_EXCLUSIVE || (write->set & BELAY_SET_IDENTITY) == 0)) {
            return error_set(err, BELAY_INVALID, "one of several holders of '%s' needs a mode and an id",
                             write->key);
        }
    }
    return batch->n_events <= PG_EVENTS_MAX
               ? BELAY_OK
               : error_set(err, BELAY_INVALID, "a batch has at most %d events", PG_EVENTS_MAX);
}

/* ---- the answer ---- */

static enum belay_code read_records(const PGresult *result, size_t n, struct belay_commit *out,
                                    struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    out->records = n == 0 ? NULL : calloc(n, sizeof *out->records);
    if (n > 0 && out->records == NULL) {
        return error_no_memory(err);
    }
    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        code = pg_read_record(result, (int)i, RECORD, &out->records[i], err);
        out->n_records += code == BELAY_OK ? 1 : 0;
    }
    return code;
}

static bool grants(const struct belay_batch *batch)
{
    for (size_t i = 0; i < batch->n_writes; i++) {
        if ((batch->writes[i].set & BELAY_SET_IDENTITY) != 0) {
            return true;
        }
    }
    return false;
}

static enum belay_code frozen(const PGresult *result, const struct belay_batch *batch,
                              struct belay_commit *out, struct belay_error *err)
{
    struct belay_item item = { .value = PQgetvalue(result, 0, DETAIL), .version = 1 };
    struct freeze_now now = { out->now_ms, out->now_ms };
    struct freeze_list list = { 0 };
    enum belay_code code = freeze_list_read(&item, &list, err);

    if (code == BELAY_OK) {
        code = freeze_check(&list, batch, now, out, err);
    }
    freeze_list_release(&list);
    return code != BELAY_OK ? code : error_set(err, BELAY_BUG, "the freezes of the database mean two things");
}

static enum belay_code read_answer(const PGresult *result, const struct belay_batch *batch,
                                   struct belay_commit *out, struct belay_error *err)
{
    enum belay_code code;

    assert(PQntuples(result) > 0);
    out->now_ms = pg_number(result, 0, NOW);
    switch (pg_number(result, 0, CODE)) {
    case DONE:
        out->token = grants(batch) ? (uint64_t)pg_number(result, 0, TOKEN) : 0;
        out->event_id = (uint64_t)pg_number(result, 0, EVENT);
        out->events_at_unix_ms = out->now_ms;
        /* It has happened, whatever can be read of it. */
        code = read_records(result, batch->n_writes, out, err);
        return code == BELAY_OK ? BELAY_OK : BELAY_UNKNOWN;
    case REFUSED:
        out->refused = (size_t)pg_number(result, 0, INDEX);
        code = read_records(result, 1, out, err);
        return code != BELAY_OK ? code
                                : error_set(err, BELAY_REFUSED, "the condition on '%s' does not hold",
                                            out->records[0].key);
    case FROZEN:
        return frozen(result, batch, out, err);
    case ID_USED:
        return error_set(err, BELAY_ID_USED, "lock id '%s' has already had '%s'; take a new one",
                         batch->require_unused_id, batch->writes[pg_number(result, 0, INDEX)].key);
    default:
        return BELAY_CANCELLED; /* late by the server's clock; see send_batch() */
    }
}

/* ---- sending ---- */

static enum belay_code call_commit(struct pg_store *store, const struct belay_batch *batch,
                                   int64_t deadline_ms, int64_t left_ms, PGresult **out_result,
                                   struct belay_error *err)
{
    char *text = NULL;
    enum belay_code code = pg_write_batch(batch, deadline_ms, &text, err);
    const char *values[] = { text };
    struct pg_call call = { PG_COMMIT, values, 1, false, left_ms };

    if (code == BELAY_OK) {
        code = pg_call(store, &call, out_result, err);
    }
    free(text);
    return code;
}

/* BELAY_CANCELLED: it is for commit(), or late. */
static enum belay_code commit_batch(struct pg_store *store, const struct belay_batch *batch,
                                    int64_t deadline_ms, int64_t left_ms, struct belay_commit *out,
                                    struct belay_error *err)
{
    PGresult *result = NULL;
    enum belay_code code = call_commit(store, batch, deadline_ms, left_ms, &result, err);

    if (code == BELAY_OK) {
        code = read_answer(result, batch, out, err);
    }
    PQclear(result);
    return code;
}

/*
 * A release that is handed on, see change() in functions.sql, is visible but not on disk yet when the server
 * answers. The waiter need not wait for that, since its own commit flushes both; the caller must.
 */
static enum belay_code commit_one(struct pg_store *store, const struct belay_batch *batch,
                                  int64_t deadline_ms, int64_t left_ms, struct belay_commit *out,
                                  struct belay_error *err)
{
    int64_t until_boot_ms = clock_boot_ms() + left_ms;
    char *answer = NULL;
    enum belay_code code = pg_group_call(store, batch, deadline_ms, left_ms, &answer, err);
    enum belay_code settled = BELAY_OK;
    char waiter[BELAY_ID_MAX + 1];

    if (code == BELAY_OK && pg_is_handed_on(answer, waiter)) {
        pg_wake_here(store, waiter); /* before all else */
        left_ms = until_boot_ms - clock_boot_ms();
        settled = pg_settle_release(store, batch->writes[0].key, batch->writes[0].lock_id,
                                    left_ms > 0 ? left_ms : 1, err);
        settled = settled == BELAY_OK ? BELAY_OK : BELAY_UNKNOWN;
    }
    if (code == BELAY_OK) {
        code = pg_read_answer(answer, batch, out, err);
    }
    free(answer);
    return code == BELAY_OK ? settled : code;
}

static enum belay_code commit_turn(struct pg_store *store, const struct belay_batch *batch,
                                   int64_t deadline_ms, int64_t left_ms, struct belay_commit *out,
                                   struct belay_error *err)
{
    struct pg_one turn;
    PGresult *result = NULL;
    enum belay_code code = pg_write_turn(store, batch, deadline_ms, &turn, err);

    if (code == BELAY_OK) {
        struct pg_call call = { turn.statement, turn.values, turn.n, false, left_ms };

        code = pg_call(store, &call, &result, err);
        pg_one_release(&turn);
    }
    if (code == BELAY_OK) {
        code = pg_read_answer(PQgetvalue(result, 0, 0), batch, out, err);
    }
    PQclear(result);
    return code;
}

static bool is_id(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

/* Whether the record shows that what the write asks for was done before: the id has the lock, or has released it. */
static bool is_done(const struct belay_record *record, const struct belay_write *write)
{
    const char *id = (write->set & BELAY_SET_IDENTITY) != 0 ? write->values->lock_id : NULL;
    bool found = record->held && is_id(record->lock_id, id);

    for (size_t i = 0; i < record->n_holders; i++) {
        found = found || is_id(record->holders[i].lock_id, id);
    }
    return found || ((write->set & BELAY_SET_RELEASED) != 0 && !record->held &&
                     is_id(record->lock_id, write->lock_id));
}

/*
 * Refused because an earlier attempt did the same, perhaps one whose wait for the disk or for a synchronous
 * standby was cut off. The caller takes this for success, so it must be there first.
 */
static enum belay_code settle(struct pg_store *store, const struct belay_batch *batch,
                              const struct belay_commit *answer, int64_t until_boot_ms,
                              struct belay_error *err)
{
    const struct belay_write *write = &batch->writes[answer->refused];
    int64_t left_ms = until_boot_ms - clock_boot_ms();
    struct belay_record now = { 0 };
    int64_t now_ms;
    bool is_settled;

    assert(answer->n_records == 1);
    if (answer->records == NULL || !is_done(&answer->records[0], write)) {
        return BELAY_REFUSED;
    }
    /* Still done afterwards: it was not lost by a crash between the answer and the settling. */
    is_settled = pg_settle(store, left_ms > 0 ? left_ms : 1, err) == BELAY_OK &&
                 pg_get(&store->base, &write->key, 1, &now, &now_ms, err) == BELAY_OK;
    /* An id that has released a lock never has it again. */
    is_settled = is_settled &&
                 ((write->set & BELAY_SET_RELEASED) != 0 ? !(now.held && is_id(now.lock_id, write->lock_id))
                                                         : is_done(&now, write));
    belay_record_release(&now);
    return is_settled ? BELAY_REFUSED : BELAY_UNKNOWN;
}

/*
 * The server refuses what reaches it after the deadline, so that an outcome that is unknown is known to be
 * one or the other soon after. If its clock was set meanwhile, the batch is late without being late.
 */
static enum belay_code send_batch(struct pg_store *store, const struct belay_batch *batch,
                                  struct belay_commit *out, struct belay_error *err)
{
    int64_t until_boot_ms = clock_boot_ms() + pg_timeout_ms(store, batch->timeout_ms);
    bool is_one = pg_is_one(batch);
    bool is_turn = !is_one && pg_is_turn(batch);
    enum belay_code code = pg_reach(store, until_boot_ms - clock_boot_ms(), err);

    if (code != BELAY_OK) {
        return code;
    }
    code = BELAY_CANCELLED;
    for (int i = 0; code == BELAY_CANCELLED && i < 4; i++) {
        int64_t left_ms = until_boot_ms - clock_boot_ms();
        int64_t deadline_ms = pg_deadline_ms(store, left_ms);
        int64_t asked_boot_ms;

        if (left_ms <= 0) {
            break;
        }
        asked_boot_ms = clock_boot_ms();
        out->now_ms = 0;
        code = is_one    ? commit_one(store, batch, deadline_ms, left_ms, out, err)
               : is_turn ? commit_turn(store, batch, deadline_ms, left_ms, out, err)
                         : commit_batch(store, batch, deadline_ms, left_ms, out, err);
        if (out->now_ms != 0) {
            pg_saw_clock(store, out->now_ms, asked_boot_ms);
        }
        is_one = is_turn = false;
        if (pg_mend_clock(store) && code == BELAY_REFUSED) {
            belay_commit_release(out); /* refused by a lease that seemed to have ended, perhaps its own */
            code = BELAY_CANCELLED;
        }
    }
    if (code == BELAY_REFUSED) {
        code = settle(store, batch, out, until_boot_ms, err);
    }
    return code == BELAY_CANCELLED
               ? error_set(err, BELAY_UNREACHABLE, "PostgreSQL did not come to it in time")
               : code;
}

/*
 * Of a long queue the answer has the first only. If all of these have expired, the caller would wake
 * no waiter: then it gets the whole queue.
 */
static void complete_queues(struct pg_store *store, struct belay_commit *answer)
{
    for (size_t i = 0; i < answer->n_records; i++) {
        struct belay_record *record = &answer->records[i];
        const char *key = record->key;
        bool is_alive = record->n_behind == 0;
        struct belay_record whole = { 0 };
        int64_t now_ms;

        for (size_t t = 0; t < record->n_tickets && !is_alive; t++) {
            is_alive = answer->now_ms < record->tickets[t].expires_ms;
        }
        if (!is_alive && pg_get(&store->base, &key, 1, &whole, &now_ms, NULL) == BELAY_OK) {
            struct belay_record old = *record;

            record->tickets = whole.tickets;
            record->n_tickets = whole.n_tickets;
            record->n_behind = record->n_between = 0;
            whole.tickets = old.tickets;
            whole.n_tickets = old.n_tickets;
            belay_record_release(&whole);
        }
    }
}

/* Old events and records are deleted by whoever commits, a few at a time. */
static void forget_if_due(struct pg_store *store, int64_t now_ms)
{
    char events[24], records[24], most[24];
    const char *values[] = { events, records, most };
    struct pg_call call = { PG_FORGET, values, 3, false, 0 };
    PGresult *result = NULL;
    bool due;

    (void)pthread_mutex_lock(&store->mutex);
    due = ++store->commits % FORGET_EVERY == 0;
    (void)pthread_mutex_unlock(&store->mutex);
    if (due) {
        (void)snprintf(events, sizeof events, "%" PRId64,
                       sub_saturated(now_ms, store->params.retain_events_ms));
        (void)snprintf(records, sizeof records, "%" PRId64,
                       sub_saturated(now_ms, store->params.retain_records_ms));
        (void)snprintf(most, sizeof most, "%d", (int)FORGET_MOST);
        (void)pg_call(store, &call, &result, NULL); /* the next one tries again */
        PQclear(result);
    }
}

enum belay_code pg_commit(struct belay_store *base, const struct belay_batch *batch, struct belay_commit *out,
                          struct belay_error *err)
{
    struct pg_store *store = pg_of(base);
    struct belay_commit answer = { 0 };
    enum belay_code code = check_batch(batch, err);

    if (code == BELAY_OK) {
        code = send_batch(store, batch, &answer, err);
    }
    if (code == BELAY_UNKNOWN) {
        atomic_store(&store->is_unsettled, true);
    }
    if ((code == BELAY_OK && batch->n_events > 0) || (code == BELAY_REFUSED && answer.event_id != 0)) {
        pg_wake_watchers(store);
    }
    if (code == BELAY_OK) {
        complete_queues(store, &answer);
        forget_if_due(store, answer.now_ms);
        pg_keep_clock_if_due(store);
    }
    if (code == BELAY_OK || code == BELAY_REFUSED || code == BELAY_FROZEN) {
        *out = answer;
    } else {
        belay_commit_release(&answer);
    }
    return code;
}
