/* Running the operations of src/lock over the client's store: a step at a time, or to the end. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"
#include "client/report.h"
#include "lock/info.h"

/* ---- counters ---- */

enum belay_code client_count(struct belay_client *client, bool is_commit, enum belay_code code)
{
    if (code == BELAY_OK && is_commit) {
        (void)atomic_fetch_add_explicit(&client->commits, 1, memory_order_relaxed);
    }
    /* That a condition did not hold is an answer, and no error of the store. */
    if (code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN || code == BELAY_BAD_CONTENT) {
        (void)atomic_fetch_add_explicit(&client->store_errors, 1, memory_order_relaxed);
    }
    return code;
}

void belay_client_store_counts(struct belay_client *client, struct belay_store_counts *out)
{
    struct belay_store_counts counts = { .errors = atomic_load(&client->store_errors) };

    if (client->store != NULL && client->store->ops->batches != NULL) {
        client->store->ops->batches(client->store, &counts);
    } else {
        counts.commits = atomic_load(&client->commits);
        counts.syncs = counts.commits;
        counts.batches[0] = counts.commits;
    }
    *out = counts;
}

/* ---- one step ---- */

/* A poll of a waiter, which others of this process may have done already. */
static bool shares_polls(const struct belay_client *client, const struct op *op)
{
    return op->polling && client->store->ops->wait == NULL;
}

static void begin_step(struct store_step *step)
{
    memset(step, 0, sizeof *step);
    step->sent_us = clock_boot_us();
    step->sent_ms = step->sent_us / 1000;
}

bool store_step_begin(struct belay_client *client, const struct op *op, struct store_step *step,
                      void *context)
{
    begin_step(step);
    step->pending = (struct belay_pending_commit){
        .batch = &op->batch, .out = &step->result, .err = &step->seen.err, .context = context
    };
    if (op->want != OP_COMMIT || !client->store->ops->loop->begin(client->store, &step->pending)) {
        step->pending.batch = NULL;
    }
    return step->pending.batch != NULL;
}

void store_step_answered(struct belay_client *client, struct store_step *step, enum belay_code code)
{
    int64_t answered_us = clock_boot_us();

    assert(answered_us >= step->sent_us); /* the boot clock does not go back */
    step->code = client_count(client, true, code);
    step->answered_ms = answered_us / 1000;
    step->took_us = answered_us - step->sent_us;
}

void store_step_refuse_late(struct belay_client *client, struct store_step *step)
{
    begin_step(step);
    store_step_answered(client, step,
                        error_set(&step->seen.err, BELAY_UNREACHABLE,
                                  "the store did not come to it in time: too many requests waited for it"));
}

void store_step_ask(struct belay_client *client, const struct op *op, struct poller *poller,
                    struct store_step *step)
{
    assert(op->want == OP_COMMIT || op->want == OP_GET);
    begin_step(step);
    if (op->want == OP_COMMIT) {
        store_step_answered(client, step,
                            store_commit(client->store, &op->batch, &step->result, &step->seen.err));
    } else if (shares_polls(client, op)) {
        shared_poll_read(&client->shared_poll, client->store, poller, op->keys, op->n_keys, &step->seen);
        assert(step->seen.code != BELAY_OK || step->seen.n == op->n_keys);
        step->code = client_count(client, false, step->seen.code);
        step->is_shared = true;
    } else {
        step->seen.records = calloc(op->n_keys, sizeof *step->seen.records);
        step->code = step->seen.records == NULL
                         ? error_no_memory(&step->seen.err)
                         : client_count(client, false,
                                        store_get(client->store, op->keys, op->n_keys, step->seen.records,
                                                  &step->seen.store_now_ms, &step->seen.err));
        step->seen.n = step->code == BELAY_OK ? op->n_keys : 0;
    }
}

/*
 * An answer was lost, and the record shows what it would have said. Its events came
 * with that answer; a store that keeps events has them.
 */
static void report_found(struct belay_client *client, const struct op *op)
{
    struct belay_info info = op->info;
    struct op_result result = { .info = &info, .reentered = op->reentered };

    if (client->on_event == NULL || client->store->ops->events != NULL || op->code != BELAY_OK) {
        return;
    }
    if (op->found_waited) {
        struct belay_event waited = { .at_unix_ms = clock_unix_ms(),
                                      .level = BELAY_LEVEL_INFO,
                                      .type = "wait.ended",
                                      .key = op->request.key,
                                      .lock_id = op->request.lock_id,
                                      .locked_by = op->request.owner,
                                      .locked_by_name = op->request.owner_name,
                                      .reason = "acquired",
                                      .duration_ms = clock_boot_ms() - op->waiting.since_ms };

        client->on_event(client->context, &waited);
    }
    if (op->found_done) {
        report_outcome(client->on_event, client->context, &op->request, BELAY_OK, &result, NULL);
    }
}

/* A refusal and its event were one call of the store: what is left is to call on_event. */
static void report_kept(struct belay_client *client, struct op *op, const struct store_step *step)
{
    struct belay_commit kept = { .now_ms = op->records_now_ms,
                                 .event_id = op->kept_event_id,
                                 .events_at_unix_ms = step->result.events_at_unix_ms };

    if (op->want == OP_COMMIT && op->kept_event_id != 0) {
        assert(op->batch.n_writes == 0 && op->batch.n_events == 1); /* nothing is left to write */
        report_commit(client->on_event, client->context, &op->batch, &kept,
                      step->answered_ms - op->request.began_ms, step->took_us);
        op_on_commit(op, BELAY_OK, &kept, NULL, step->sent_ms, step->answered_ms);
    }
}

void store_step_report(struct belay_client *client, struct op *op, struct store_step *step)
{
    struct poll_result *seen = &step->seen;
    struct belay_store *store = client->store;
    const struct op_request *request = &op->request;
    bool is_commit = step->code != BELAY_REDIRECTED && op->want == OP_COMMIT;
    bool is_ended; /* a lock, by another client */
    size_t first_wake = is_commit && step->code == BELAY_OK && step->result.woke_first ? 1 : 0;

    assert(op->want == OP_COMMIT || op->want == OP_GET);
    if (step->code == BELAY_REDIRECTED) {
        op_stop(op, BELAY_REDIRECTED, &seen->err);
    } else if (is_commit) {
        if (step->code == BELAY_OK) {
            report_commit(client->on_event, client->context, &op->batch, &step->result,
                          step->answered_ms - request->began_ms, step->took_us);
        }
        op_on_commit(op, step->code, &step->result, &seen->err, step->sent_ms, step->answered_ms);
        report_kept(client, op, step);
    } else if (step->is_shared) {
        op_on_look(op, step->code, seen->records, seen->store_now_ms, &seen->err, seen->asked_ms,
                   seen->seen_ms);
    } else {
        op_on_get(op, step->code, seen->records, seen->store_now_ms, &seen->err, clock_boot_ms());
    }
    for (size_t i = first_wake; is_commit && i < op->n_wakes; i++) {
        /* After a lock was taken, or a place given up, the next waiter has only to learn of it: that can wait. */
        bool is_here = async_wake(client, op->wakes[i], request->kind != OP_ACQUIRE);

        if (!is_here || request->capabilities.is_local) {
            threads_wake(client, op->wakes[i]);
        }
    }
    /*
     * The holder of a lock that another client ended may listen for its id. A holder that
     * releases its own lock does not, so a store that syncs many commits at once, or is not
     * on this machine, is spared the wake-up for every release, and so is a server, which has
     * many of them.
     */
    is_ended = request->kind == OP_FORCE || request->kind == OP_ADOPT ||
               (request->kind == OP_RELEASE && !(request->is_own && !request->capabilities.is_local) &&
                (request->by != NULL || (store->ops->sync == NULL && client->threads == NULL)));
    if (is_commit && is_ended && step->code == BELAY_OK) {
        threads_wake(client, request->kind == OP_ADOPT ? request->old_id : request->lock_id);
    }
    if (op->want == OP_DONE) {
        report_found(client, op);
    }
    store_step_release(step);
}

void store_step_release(struct store_step *step)
{
    poll_result_release(&step->seen);
    belay_commit_release(&step->result);
    free(step->pending.answer);
    step->pending.answer = NULL;
}

struct belay_wait_info client_wait_info(const struct op *op)
{
    int64_t now_ms = clock_boot_ms();

    return (struct belay_wait_info){ .holder = op->waiting.holder,
                                     .position = op->waiting.position,
                                     .waited_ms = now_ms - op->request.began_ms,
                                     .retry_ms = op->waiting.retry_ms - now_ms,
                                     .attempt = op->waiting.attempt,
                                     .frozen = op->is_frozen ? op->err.text : NULL,
                                     .since_unix_ms = op->waiting.since_unix_ms };
}

void client_wait_begins(struct belay_client *client, struct op *op, struct poller *poller)
{
    if (shares_polls(client, op)) {
        shared_poll_enter(&client->shared_poll, poller, op->keys, op_request_keys(&op->request, op->keys),
                          op->wait_until_ms);
    }
}

void client_wait_ends(struct belay_client *client, struct poller *poller)
{
    shared_poll_leave(&client->shared_poll, poller);
}

/* ---- to the end ---- */

static void wait_for_wake(struct belay_client *client, struct op *op, struct belay_cancel *cancel,
                          uint32_t heard, struct poller *poller)
{
    struct belay_store *store = client->store;
    int64_t timeout_ms = op->wait_until_ms - clock_boot_ms();

    assert(op->want == OP_WAIT && !poller->in);
    if (timeout_ms > 0 && !belay_cancel_requested(cancel)) {
        if (op->queued && store->ops->wait != NULL) {
            store->ops->wait(store, op->request.lock_id, heard, timeout_ms, cancel);
        } else {
            client_wait_begins(client, op, poller);
            client_sleep(timeout_ms, cancel);
            client_wait_ends(client, poller);
        }
    }
    if (belay_cancel_requested(cancel)) {
        op_cancel(op);
    }
    op_on_wake(op, clock_boot_ms());
}

/* Listen before reading the record, or a wake-up between the two would be missed. */
static bool must_listen(const struct belay_client *client, const struct op *op)
{
    return client->store->ops->listen != NULL &&
           ((op->want == OP_GET && op->blocker_key == NULL) ||
            (op->want == OP_COMMIT && op->batch.n_writes > 0 &&
             (op->batch.writes[0].put_ticket != NULL || op->batch.writes[0].condition == BELAY_IF_NEXT)));
}

enum belay_code local_run(struct backend *backend, struct op_request *request, const struct wait_hooks *hooks,
                          struct op_result *out_result, struct belay_error *err)
{
    struct belay_client *client = local_client(backend);
    struct belay_cancel *cancel = hooks == NULL ? NULL : hooks->cancel;
    struct wait_told told = { 0 };
    struct poller poller = { 0 };
    struct store_step step;
    struct belay_info *info = NULL;
    uint32_t heard = 0;
    struct op op;
    enum belay_code code;

    op_start(&op, request, clock_boot_ms());
    while (op.want != OP_DONE) {
        if (must_listen(client, &op)) {
            heard = client->store->ops->listen(client->store, request->lock_id);
        }
        if (op.want != OP_WAIT) {
            store_step_ask(client, &op, &poller, &step);
            store_step_report(client, &op, &step);
        } else {
            struct belay_wait_info waiting = client_wait_info(&op);

            report_waiting(hooks, &told, &waiting);
            wait_for_wake(client, &op, cancel, heard, &poller);
        }
    }
    assert(!poller.in);
    poller_release(&poller);
    /* An event loop syncs many commits at once; a blocking caller has no loop that would. */
    if (op.code == BELAY_OK && belay_client_sync(client, &op.err) != BELAY_OK) {
        op.code = BELAY_UNKNOWN;
    }
    request->attempt = op.waiting.attempt;
    code = op.code;
    if (code == BELAY_UNREACHABLE && belay_cancel_requested(cancel)) {
        /* Nothing was changed, and the caller wants nothing more. */
        code = error_set(err, BELAY_CANCELLED, "cancelled while the store did not answer for lock '%s'",
                         request->key);
    } else if (code != BELAY_OK) {
        (void)error_move(err, code, &op.err);
    } else if ((info = op_info(&op, info_from_record(&op.record, op.record_now_ms, true))) == NULL) {
        code = error_no_memory(err);
    } else {
        *out_result = (struct op_result){
            .info = info, .sent_ms = op.sent_ms, .deadline_ms = op.deadline_ms, .reentered = op.reentered
        };
    }
    op_destroy(&op);
    return code;
}
