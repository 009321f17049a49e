/* The only way in which records change: one call of a function of functions.sql, of commit() if none is simpler. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/saturate.h"
#include "freeze/freeze_list.h"
#include "store/postgresql/postgresql_internal.h"

/* The code of an answer, as in functions.sql. */
enum { DONE, REFUSED, FROZEN, ID_USED, LATE };

/* Its columns. */
enum { CODE, NOW, INDEX, TOKEN, EVENT, DETAIL, RECORD };

enum { FORGET_MOST = 5000, HAND_ON_NS = 1000000 };

/* An acquisition has an event for each holder that it takes over from, and two for each key. */
static_assert(BELAY_KEYS_MAX * (BELAY_HOLDERS_MAX + 2) <= PG_EVENTS_MAX, "no lock can become unusable");

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

/* The functions in the database are not those of this belay: that is an answer of another program, not a bug here. */
static enum belay_code bad_commit(enum belay_code code, struct belay_error *err)
{
    return error_set(err, code, "the answer of PostgreSQL cannot be read");
}

static enum belay_code read_records(const PGresult *result, size_t n, struct belay_commit *out,
                                    struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    if ((size_t)PQntuples(result) < n) {
        return bad_commit(BELAY_BAD_CONTENT, err);
    }
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

    if (PQntuples(result) < 1) {
        return bad_commit(BELAY_UNKNOWN, err);
    }
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
        code = out->refused < batch->n_writes ? read_records(result, 1, out, err)
                                              : bad_commit(BELAY_BAD_CONTENT, err);
        return code != BELAY_OK ? code
                                : error_set(err, BELAY_REFUSED, "the condition on '%s' does not hold",
                                            out->records[0].key);
    case FROZEN:
        return frozen(result, batch, out, err);
    case ID_USED:
        if (batch->require_unused_id == NULL || (size_t)pg_number(result, 0, INDEX) >= batch->n_writes) {
            return bad_commit(BELAY_BAD_CONTENT, err);
        }
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
    enum belay_code code = pg_write_batch(batch, store->here, deadline_ms, &text, err);
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

/* One attempt, and for how long the caller has use for it. */
struct pg_attempt {
    int64_t deadline_ms; /* the server's clock */
    int64_t left_ms;
    struct belay_pending_commit
        *sent; /* the loop has made it, with this answer; NULL: it is still to be made */
};

static bool is_answered(const struct pg_attempt *attempt)
{
    return attempt->sent != NULL && attempt->sent->answer != NULL;
}

/* The answer is the caller's to free. */
static enum belay_code call_change(struct pg_store *store, const struct belay_batch *batch,
                                   const struct pg_attempt *attempt, char **out_answer,
                                   struct belay_error *err)
{
    struct belay_pending_commit *sent = attempt->sent;

    if (sent != NULL && sent->answer != NULL) {
        *out_answer = sent->answer;
        sent->answer = NULL;
        return BELAY_OK;
    }
    return sent != NULL
               ? pg_send_alone(store, batch, attempt->deadline_ms, attempt->left_ms, out_answer, err)
               : pg_group_call(store, batch, attempt->deadline_ms, attempt->left_ms, out_answer, err);
}

/* The waiter's commit comes meanwhile: its flush is then the release's, too, and not one behind another. */
static void await_waiter(void)
{
    (void)nanosleep(&(struct timespec){ 0, HAND_ON_NS }, NULL);
}

/*
 * A release that is handed on, see change() in functions.sql, is visible but not on disk yet when the server
 * answers. The waiter need not wait for that, since its own commit flushes both; the caller must.
 */
static enum belay_code commit_change(struct pg_store *store, const struct belay_batch *batch,
                                     const struct pg_attempt *attempt, struct belay_commit *out,
                                     struct belay_error *err)
{
    int64_t until_boot_ms = clock_boot_ms() + attempt->left_ms;
    bool was_answered = is_answered(attempt);
    char *answer = NULL;
    enum belay_code code = call_change(store, batch, attempt, &answer, err);
    enum belay_code settled = BELAY_OK;
    char waiter[BELAY_ID_MAX + 1];

    if (code == BELAY_OK && pg_is_handed_on(answer, waiter)) {
        int64_t left_ms;

        if (!was_answered) {
            pg_wake_here(store, waiter); /* before all else, as the loop did */
        }
        await_waiter();
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

static enum belay_code commit_queue_batch(struct pg_store *store, const struct belay_batch *batch,
                                          const struct pg_attempt *attempt, struct belay_commit *out,
                                          struct belay_error *err)
{
    struct pg_arguments args;
    PGresult *result = NULL;
    enum belay_code code;

    if (is_answered(attempt)) {
        return pg_read_answer(attempt->sent->answer, batch, out, err);
    }
    code = pg_write_queue_batch(store, batch, attempt->deadline_ms, &args, err);
    if (code == BELAY_OK) {
        struct pg_call call = { args.statement, args.values, args.n, false, attempt->left_ms };

        code = pg_call(store, &call, &result, err);
        pg_arguments_release(&args);
    }
    if (code == BELAY_OK) {
        code = pg_read_answer(PQgetvalue(result, 0, 0), batch, out, err);
    }
    PQclear(result);
    return code == BELAY_ID_USED ? BELAY_CANCELLED : code;
}

static bool is_id(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

static bool has_lock(const struct belay_record *record, const char *id)
{
    bool found = record->held && is_id(record->lock_id, id);

    for (size_t i = 0; i < record->n_holders; i++) {
        found = found || is_id(record->holders[i].lock_id, id);
    }
    return found;
}

static bool has_released(const struct belay_record *record, const char *id)
{
    bool found = !record->held && is_id(record->lock_id, id);

    for (size_t i = 0; i < record->n_released_ids; i++) {
        found = found || is_id(record->released_ids[i], id);
    }
    return found;
}

/*
 * Whether the record shows that what the write asks for was done before: the id has the lock, also if it only asks for
 * a place in the queue, or has released it.
 */
static bool is_done(const struct belay_record *record, const struct belay_write *write)
{
    return ((write->set & BELAY_SET_IDENTITY) != 0 && has_lock(record, write->values->lock_id)) ||
           (write->put_ticket != NULL && has_lock(record, write->put_ticket->lock_id)) ||
           ((write->set & BELAY_SET_RELEASED) != 0 && has_released(record, write->lock_id));
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

    assert(answer->n_records == 1 && answer->refused < batch->n_writes);
    if (answer->records == NULL || !is_done(&answer->records[0], write)) {
        return BELAY_REFUSED;
    }
    /* Still done afterwards: it was not lost by a crash between the answer and the settling. */
    is_settled = pg_settle(store, left_ms > 0 ? left_ms : 1, err) == BELAY_OK &&
                 pg_get(&store->base, &write->key, 1, &now, &now_ms, err) == BELAY_OK;
    /* An id that has released a lock never has it again. */
    is_settled = is_settled && ((write->set & BELAY_SET_RELEASED) != 0 ? !has_lock(&now, write->lock_id)
                                                                       : is_done(&now, write));
    belay_record_release(&now);
    return is_settled ? BELAY_REFUSED : BELAY_UNKNOWN;
}

/*
 * What the code of an attempt means after its answer told the server's time. If the clock jumped, it was refused by
 * a lease that seemed to have ended, perhaps its own, or it came late without being late: BELAY_CANCELLED, once all
 * leases have begun again. What was done is done.
 */
static enum belay_code judge_by_clock(struct pg_store *store, enum belay_code code, int64_t asked_boot_ms,
                                      int64_t until_boot_ms, struct belay_commit *out,
                                      struct belay_error *err)
{
    bool depends = code == BELAY_REFUSED || code == BELAY_CANCELLED;
    enum belay_code mended;

    if (out->now_ms != 0) {
        pg_saw_clock(store, out->now_ms, asked_boot_ms);
    }
    mended = pg_mend_clock(store, until_boot_ms, depends ? err : NULL);
    if (!depends || (mended == BELAY_OK && !pg_was_mended_since(store, asked_boot_ms))) {
        return code;
    }
    belay_commit_release(out);
    return mended == BELAY_OK ? BELAY_CANCELLED : mended;
}

/*
 * The server refuses what reaches it after the deadline, so that an outcome that is unknown is known to be
 * one or the other soon after. If its clock was set meanwhile, the batch is late without being late.
 */
static enum belay_code send_batch(struct pg_store *store, const struct belay_batch *batch,
                                  struct belay_pending_commit *sent, int64_t until_boot_ms,
                                  struct belay_commit *out, struct belay_error *err)
{
    bool is_change = pg_is_change(batch);
    bool is_queue_batch = !is_change && pg_is_queue_batch(batch);
    enum belay_code code = sent != NULL ? BELAY_OK : pg_reach(store, until_boot_ms - clock_boot_ms(), err);

    if (code == BELAY_OK && (sent == NULL || sent->answer == NULL)) {
        code = pg_mend_clock(store, until_boot_ms, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    code = BELAY_CANCELLED;
    for (int i = 0; code == BELAY_CANCELLED && i < 4; i++) {
        int64_t left_ms = until_boot_ms - clock_boot_ms();
        struct pg_attempt attempt = { pg_deadline_ms(store, left_ms), left_ms, i == 0 ? sent : NULL };
        int64_t asked_boot_ms = is_answered(&attempt) ? sent->asked_ms : clock_boot_ms();

        if (left_ms <= 0 && !is_answered(&attempt)) {
            break;
        }
        out->now_ms = 0;
        code = is_change        ? commit_change(store, batch, &attempt, out, err)
               : is_queue_batch ? commit_queue_batch(store, batch, &attempt, out, err)
                                : commit_batch(store, batch, attempt.deadline_ms, left_ms, out, err);
        is_change = is_queue_batch = false;
        code = judge_by_clock(store, code, asked_boot_ms, until_boot_ms, out, err);
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
static bool has_live_queue(const struct belay_record *record, int64_t now_ms)
{
    bool is_alive = record->n_behind == 0;

    for (size_t t = 0; t < record->n_tickets && !is_alive; t++) {
        is_alive = now_ms < record->tickets[t].expires_ms;
    }
    return is_alive;
}

static void complete_queues(struct pg_store *store, struct belay_commit *answer)
{
    for (size_t i = 0; i < answer->n_records; i++) {
        struct belay_record *record = &answer->records[i];
        const char *key = record->key;
        struct belay_record whole = { 0 };
        int64_t now_ms;

        if (!has_live_queue(record, answer->now_ms) &&
            pg_get(&store->base, &key, 1, &whole, &now_ms, NULL) == BELAY_OK) {
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
    due = ++store->commits % PG_FORGET_EVERY == 0;
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

static void wake_watchers(struct pg_store *store, const struct belay_batch *batch, enum belay_code code,
                          const struct belay_commit *answer)
{
    if ((code == BELAY_OK && batch->n_events > 0) || (code == BELAY_REFUSED && answer->event_id != 0)) {
        pg_wake_watchers(store);
    }
}

/* `sent`: see struct pg_attempt. */
static enum belay_code commit(struct pg_store *store, const struct belay_batch *batch,
                              struct belay_pending_commit *sent, int64_t until_boot_ms,
                              struct belay_commit *out, struct belay_error *err)
{
    struct belay_commit answer = { 0 };
    enum belay_code code = check_batch(batch, err);

    if (code == BELAY_OK) {
        code = send_batch(store, batch, sent, until_boot_ms, &answer, err);
    }
    if (code == BELAY_UNKNOWN) {
        atomic_fetch_add(&store->n_unknown, 1);
    }
    wake_watchers(store, batch, code, &answer);
    if (code == BELAY_OK) {
        complete_queues(store, &answer);
        forget_if_due(store, answer.now_ms);
        pg_keep_clock_if_due(store);
    }
    assert(code != BELAY_CANCELLED);
    if (code == BELAY_OK || code == BELAY_REFUSED || code == BELAY_FROZEN) {
        *out = answer;
    } else {
        belay_commit_release(&answer);
    }
    return code;
}

enum belay_code pg_commit(struct belay_store *base, const struct belay_batch *batch, struct belay_commit *out,
                          struct belay_error *err)
{
    struct pg_store *store = pg_of(base);

    return commit(store, batch, NULL, clock_boot_ms() + pg_timeout_ms(store, batch->timeout_ms), out, err);
}

/* ---- what the loop has sent ---- */

enum belay_code pg_commit_finish(struct belay_store *base, struct belay_pending_commit *sent)
{
    struct pg_store *store = pg_of(base);
    const struct belay_batch *batch = sent->batch;
    bool was_sent = sent->asked_ms != 0;
    /* What its client gives back is given back, however long it has waited for this thread. */
    bool gives_back = batch->n_writes == 1 && batch->writes[0].condition == BELAY_IF_HELD_BY;
    int64_t until_boot_ms =
        was_sent || !gives_back ? sent->until_ms : clock_boot_ms() + pg_timeout_ms(store, batch->timeout_ms);
    enum belay_code code = commit(store, batch, was_sent ? sent : NULL, until_boot_ms, sent->out, sent->err);

    free(sent->answer);
    sent->answer = NULL;
    return code;
}

/* Whether the next commit has to forget old events; if not, it is counted. */
static bool must_forget(struct pg_store *store)
{
    bool due;

    (void)pthread_mutex_lock(&store->mutex);
    due = (store->commits + 1) % PG_FORGET_EVERY == 0;
    store->commits += due ? 0 : 1;
    (void)pthread_mutex_unlock(&store->mutex);
    return due;
}

bool pg_conclude(struct pg_store *store, struct belay_pending_commit *sent, bool is_unsure)
{
    struct belay_commit answer = { 0 };
    char waiter[BELAY_ID_MAX + 1];
    bool is_over;

    if (sent->code == BELAY_UNKNOWN) {
        atomic_fetch_add(&store->n_unknown, 1);
        (void)error_set(sent->err, BELAY_UNKNOWN,
                        is_unsure ? PG_UNSURE
                                  : "the connection to PostgreSQL was lost, or it did not answer in time");
        return true;
    }
    if (sent->answer == NULL) {
        return false;
    }
    assert(sent->code == BELAY_OK && sent->batch->n_writes == 1);
    if (pg_is_handed_on(sent->answer, waiter)) {
        pg_wake_here(store, waiter);
        return false;
    }
    sent->code = pg_read_answer(sent->answer, sent->batch, &answer, sent->err);
    if (answer.now_ms != 0) {
        pg_saw_clock(store, answer.now_ms, sent->asked_ms);
    }
    is_over = !pg_clock_has_upkeep(store) &&
              (sent->code == BELAY_OK
                   ? has_live_queue(&answer.records[0], answer.now_ms) && !must_forget(store)
                   : sent->code == BELAY_REFUSED && !is_done(&answer.records[0], &sent->batch->writes[0]) &&
                         !pg_was_mended_since(store, sent->asked_ms)); /* see judge_by_clock() */
    if (!is_over) {
        belay_commit_release(&answer);
        belay_error_release(sent->err);
        return false;
    }
    wake_watchers(store, sent->batch, sent->code, &answer);
    *sent->out = answer;
    free(sent->answer);
    sent->answer = NULL;
    return true;
}
