#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"
#include "client/route.h"

/* What on_waiting was last told, so that it is told only of changes. */
struct told {
    bool anything;
    size_t position;
    int attempt;
    char holder[BELAY_ID_MAX + 1];
};

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

/* What only the store knew when the batch was sent. */
static void complete(struct belay_event *event, const struct belay_commit *result)
{
    const struct belay_record *record = result->n_records > 0 ? &result->records[0] : NULL;

    if (event->token == BELAY_TOKEN_OF_BATCH) {
        event->token = result->token;
    }
    if (event->duration_ms == BELAY_DURATION_HELD) {
        event->duration_ms = record == NULL ? -1 : record->freed_at_unix_ms - record->locked_at_unix_ms;
    }
    if (record != NULL && event->locked_by == NULL) {
        event->locked_by = record->owner;
        event->locked_by_name = record->owner_name;
    }
    if (record == NULL || event->lock_id == NULL || strcmp(event->lock_id, record->lock_id) != 0) {
        return;
    }
    if (event->token == 0) {
        event->token = record->token;
    }
    if (event->metadata == NULL) {
        event->metadata = record->metadata;
        event->n_metadata = record->n_metadata;
    }
}

/* So that a lock that is held for too long can be told of while it is held. */
static int64_t held_so_far_ms(const struct belay_record *record, const struct belay_event *event)
{
    bool is_known =
        record != NULL && record->locked_at_unix_ms > 0 && record->locked_at_unix_ms <= event->at_unix_ms;

    return is_known ? event->at_unix_ms - record->locked_at_unix_ms : -1;
}

void client_emit(struct belay_client *client, const struct belay_batch *batch,
                 const struct belay_commit *result, const struct emit_times *times)
{
    if (client->on_event == NULL) {
        return;
    }
    for (size_t i = 0; i < batch->n_events; i++) {
        struct belay_event event = batch->events[i];

        event.id = result->event_id == 0 ? 0 : result->event_id + i;
        event.at_unix_ms = clock_unix_ms();
        event.commit_us = times->commit_us;
        complete(&event, result);
        if (strcmp(event.type, "lock.acquired") == 0) {
            event.duration_ms = times->took_ms;
        } else if (strcmp(event.type, "lock.renewed") == 0) {
            event.duration_ms = held_so_far_ms(result->n_records > 0 ? &result->records[0] : NULL, &event);
        }
        client->on_event(client->context, &event);
    }
}

enum belay_code client_note_here(struct belay_client *client, const struct belay_event *event,
                                 struct belay_error *err)
{
    struct belay_batch batch = { .events = event, .n_events = 1 };
    struct belay_commit result = { 0 };
    enum belay_code code =
        client_count_commit(client, client->store->ops->commit(client->store, &batch, &result, err));

    if (code == BELAY_OK) {
        client_emit(client, &batch, &result, &(struct emit_times){ .took_ms = -1 });
    }
    belay_commit_release(&result);
    return code;
}

enum belay_code client_note(struct belay_client *client, const struct belay_event *event,
                            struct belay_error *err)
{
    struct client_remote *remote;
    enum belay_code code;

    do {
        remote = client_via(client);
        code = remote != NULL ? remote->ops->note_lost(remote, event, err)
                              : client_note_here(client, event, err);
    } while (client_moved(client, remote, &code, err));
    return code;
}

/* It goes on, or begins again, in another place. */
static void stop_here(struct op *op, struct belay_error *err)
{
    belay_error_release(&op->err);
    op->err = *err;
    op->code = BELAY_REDIRECTED;
    op->want = OP_DONE;
}

/* A look of somebody in line, which others of this process may have taken already. */
static bool shares_looks(const struct belay_client *client, const struct op *op)
{
    return op->polling && client->store->ops->wait == NULL;
}

void step_ask(struct belay_client *client, const struct op *op, struct looker *looker,
              struct client_step *step)
{
    const struct belay_store_ops *ops = client->store->ops;

    memset(step, 0, offsetof(struct client_step, seen.records));
    step->sent_ms = clock_boot_ms();
    if (op->want == OP_COMMIT) {
        int64_t sent_us = client->on_event == NULL ? 0 : clock_boot_us();

        step->code = client_count_commit(
            client, ops->commit(client->store, &op->batch, &step->result, &step->seen.err));
        step->took_us = client->on_event == NULL ? 0 : clock_boot_us() - sent_us;
    } else if (shares_looks(client, op)) {
        lookout_look(&client->lookout, client->store, looker, op->keys, op->n_keys, &step->seen);
        step->code = client_count_read(client, step->seen.code);
        step->is_shared = true;
    } else {
        memset(step->seen.records, 0, sizeof step->seen.records);
        step->code =
            client_count_read(client, ops->get(client->store, op->keys, op->n_keys, step->seen.records,
                                               &step->seen.store_now_ms, &step->seen.err));
        step->seen.n = step->code == BELAY_OK ? op->n_keys : 0;
    }
}

/*
 * The id of a lock that was ended in its holder's stead: the holder may listen. One
 * that releases its own does not, so a store that has many commits with one sync is
 * spared that for every release.
 */
static void wake_holder(struct belay_store *store, const struct op *op, enum belay_code code)
{
    const struct op_request *request = &op->request;
    bool ended = op->request.kind == OP_FORCE ||
                 (op->request.kind == OP_RELEASE && (request->by != NULL || store->ops->sync == NULL));

    if (code != BELAY_OK || store->ops->wake == NULL) {
        return;
    }
    if (ended || op->request.kind == OP_ADOPT) {
        store->ops->wake(store, op->request.kind == OP_ADOPT ? request->old_id : request->lock_id);
    }
}

static void tell_commit(struct belay_client *client, struct op *op, struct client_step *step)
{
    struct belay_store *store = client->store;
    int64_t now_ms = clock_boot_ms();

    if (step->code == BELAY_OK && client->on_event != NULL) {
        struct emit_times times = { .took_ms = now_ms - op->request.began_ms, .commit_us = step->took_us };

        client_emit(client, &op->batch, &step->result, &times);
    }
    op_on_commit(op, step->code, &step->result, &step->seen.err, step->sent_ms, now_ms);
    for (size_t i = 0; i < op->n_wakes; i++) {
        /* After a lock was taken, or a place given up, who is next has only to learn of it: that can wait for a turn. */
        calls_wake(client, op->wakes[i], op->request.kind != OP_ACQUIRE);
        if (store->ops->wake != NULL) {
            store->ops->wake(store, op->wakes[i]);
        }
    }
    wake_holder(store, op, step->code);
}

/* What was done for us, with an answer that does not bring the event of it. */
static void emit_done(struct belay_client *client, const struct op *op)
{
    static const char *const types[] = { [OP_ACQUIRE] = "lock.acquired",
                                         [OP_ADOPT] = "lock.adopted",
                                         [OP_RENEW] = "lock.renewed",
                                         [OP_RELEASE] = "lock.released",
                                         [OP_FORCE] = "lock.forced" };
    const struct belay_record *record = &op->record;
    bool is_refused = op->request.kind == OP_ACQUIRE && op->code == BELAY_HELD;
    struct belay_event event = { .at_unix_ms = clock_unix_ms(),
                                 .level =
                                     op->request.kind == OP_FORCE ? BELAY_LEVEL_WARNING : BELAY_LEVEL_INFO,
                                 .type = op->reentered ? "lock.reentered" : types[op->request.kind],
                                 .key = op->request.key,
                                 .lock_id = record->lock_id,
                                 .token = record->token,
                                 .locked_by = record->owner,
                                 .locked_by_name = record->owner_name,
                                 .by = op->request.by,
                                 .reason = op->request.reason,
                                 .duration_ms = -1 };

    if (client->on_event == NULL || (op->code != BELAY_OK && !is_refused)) {
        return;
    }
    if (op->request.kind == OP_RENEW) {
        event.duration_ms = held_so_far_ms(record, &event);
    }
    if (is_refused) {
        event.type = "lock.refused";
        event.lock_id = op->request.lock_id;
        event.locked_by = op->request.owner;
        event.locked_by_name = op->request.owner_name;
        event.reason = op->err.text;
    } else if (op->request.kind == OP_RELEASE) {
        event.reason = belay_outcome_name(record->outcome);
    } else if (op->request.kind == OP_ACQUIRE || op->request.kind == OP_ADOPT) {
        event.metadata = record->metadata;
        event.n_metadata = record->n_metadata;
    }
    if (op->request.kind == OP_ACQUIRE && !op->reentered) {
        event.duration_ms = clock_boot_ms() - op->request.began_ms;
    }
    client->on_event(client->context, &event);
}

/*
 * An answer was lost, and what it would have said is found in the record. The
 * event came with that answer; a store that keeps events has it.
 */
static void emit_found(struct belay_client *client, const struct op *op)
{
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
        emit_done(client, op);
    }
}

void step_tell(struct belay_client *client, struct op *op, struct client_step *step)
{
    struct look *seen = &step->seen;

    if (step->code == BELAY_REDIRECTED) {
        stop_here(op, &seen->err);
        seen->err = (struct belay_error)BELAY_ERROR_INIT; /* the operation's now */
    } else if (op->want == OP_COMMIT) {
        tell_commit(client, op, step);
    } else if (step->is_shared) {
        op_on_look(op, step->code, seen->records, seen->store_now_ms, &seen->err, seen->asked_ms,
                   seen->seen_ms);
    } else {
        op_on_get(op, step->code, seen->records, seen->store_now_ms, &seen->err, clock_boot_ms());
    }
    if (op->want == OP_DONE) {
        emit_found(client, op);
    }
    step_release(step);
}

void step_release(struct client_step *step)
{
    look_release(&step->seen);
    belay_commit_release(&step->result);
}

void client_step(struct belay_client *client, struct op *op, struct looker *looker)
{
    struct client_step step;

    step_ask(client, op, looker, &step);
    step_tell(client, op, &step);
}

void client_wait_begins(struct belay_client *client, const struct op *op, struct looker *looker)
{
    const char *keys[OP_KEYS_MAX] = { op->request.key };

    if (!shares_looks(client, op)) {
        return;
    }
    for (size_t i = 0; i < op->request.n_ancestors; i++) {
        keys[1 + i] = op->request.ancestors[i];
    }
    lookout_enter(&client->lookout, looker, keys, 1 + op->request.n_ancestors, op->wait_until_ms);
}

void client_wait_ends(struct belay_client *client, struct looker *looker)
{
    lookout_leave(&client->lookout, looker);
}

static void tell_waiting(const struct op *op, const struct run_hooks *hooks, struct told *told)
{
    const struct belay_info *holder = op->waiting.holder;
    const char *id = holder == NULL || holder->lock_id == NULL ? "" : holder->lock_id;
    int64_t now_ms = clock_boot_ms();
    struct belay_wait_info waiting = { .holder = holder,
                                       .position = op->waiting.position,
                                       .waited_ms = now_ms - op->request.began_ms,
                                       .retry_ms = op->waiting.retry_ms - now_ms,
                                       .attempt = op->waiting.attempt };

    if (hooks == NULL || hooks->on_waiting == NULL || holder == NULL) {
        return;
    }
    if (told->anything && told->position == waiting.position && told->attempt == waiting.attempt &&
        strcmp(told->holder, id) == 0) {
        return;
    }
    told->anything = true;
    told->position = waiting.position;
    told->attempt = waiting.attempt;
    (void)snprintf(told->holder, sizeof told->holder, "%s", id);
    hooks->on_waiting(hooks->context, &waiting);
}

static void run_wait(struct belay_client *client, struct op *op, const struct run_hooks *hooks,
                     uint32_t heard, struct looker *looker)
{
    struct belay_store *store = client->store;
    struct belay_cancel *cancel = hooks == NULL ? NULL : hooks->cancel;
    int64_t timeout_ms = op->wait_until_ms - clock_boot_ms();

    if (timeout_ms > 0 && !belay_cancel_requested(cancel)) {
        if (op->queued && store->ops->wait != NULL) {
            store->ops->wait(store, op->request.lock_id, heard, timeout_ms, cancel);
        } else {
            client_wait_begins(client, op, looker);
            client_sleep(timeout_ms, cancel);
            client_wait_ends(client, looker);
        }
    }
    if (belay_cancel_requested(cancel)) {
        op_cancel(op);
    }
    op_on_wake(op, clock_boot_ms());
}

static void run_here(struct belay_client *client, struct op *op, const struct run_hooks *hooks)
{
    const struct belay_store_ops *ops = client->store->ops;
    struct told told = { 0 };
    struct looker looker = { 0 };
    uint32_t heard = 0;

    while (op->want != OP_DONE) {
        /* Listen before looking, or the wake-up between the two would be missed. */
        if (ops->listen != NULL &&
            ((op->want == OP_GET && op->named_key == NULL) ||
             (op->want == OP_COMMIT && op->batch.n_writes > 0 && op->batch.writes[0].put_ticket != NULL))) {
            heard = ops->listen(client->store, op->request.lock_id);
        }
        if (op->want != OP_WAIT) {
            client_step(client, op, &looker);
        } else {
            tell_waiting(op, hooks, &told);
            run_wait(client, op, hooks, heard, &looker);
        }
    }
    looker_release(&looker);
    /* A store that syncs many commits at once does so when a loop's turn is over: here nobody else would. */
    if (ops->sync != NULL && op->code == BELAY_OK && ops->sync(client->store, &op->err) != BELAY_OK) {
        op->code = BELAY_UNKNOWN;
    }
}

/*
 * Start again at another backend, where the id may have been used already. The operation
 * still gives up when it would have, and keeps its count of attempts.
 */
static void restart(struct op *op)
{
    struct op_request request = op->request;

    request.id_is_fresh = false;
    request.attempt = op->waiting.attempt;
    request.is_restart = true;
    op_destroy(op);
    op_start(op, &request, clock_boot_ms());
}

void client_run(struct belay_client *client, struct op *op, const struct run_hooks *hooks)
{
    struct client_remote *remote = client_via(client);

    for (;;) {
        if (remote != NULL) {
            remote->ops->run(remote, op, hooks);
            emit_done(client, op);
        } else {
            run_here(client, op, hooks);
        }
        if (!client_moved(client, remote, &op->code, &op->err)) {
            return;
        }
        remote = client_via(client);
        restart(op);
    }
}
