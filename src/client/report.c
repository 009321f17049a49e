#include "client/report.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "lock/info.h"

/* Complete an event of a batch with the values that only the store knew when the batch was sent. */
static void complete_event(struct belay_event *event, const struct belay_record *record,
                           const struct belay_commit *result)
{
    const struct belay_holder *holder =
        record == NULL || event->lock_id == NULL ? NULL : record_find_holder(record, event->lock_id);

    if (event->token == BELAY_TOKEN_OF_BATCH) {
        event->token = holder != NULL ? holder->token : record != NULL ? record->token : result->token;
    }
    if (event->duration_ms == BELAY_DURATION_HELD) {
        event->duration_ms = record == NULL ? -1 : record->freed_at_unix_ms - record->locked_at_unix_ms;
    }
    if (record != NULL && event->locked_by == NULL) {
        event->locked_by = record->owner;
        event->locked_by_name = record->owner_name;
    }
    if (holder != NULL) {
        event->token = event->token == 0 ? holder->token : event->token;
        event->n_metadata = event->metadata == NULL ? holder->n_metadata : event->n_metadata;
        event->metadata = event->metadata == NULL ? holder->metadata : event->metadata;
        return;
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

/* So that an alert on a lock that is held for too long can come while it is held. */
static int64_t held_so_far_ms(int64_t locked_at_unix_ms, const struct belay_event *event)
{
    bool is_known = locked_at_unix_ms > 0 && locked_at_unix_ms <= event->at_unix_ms;

    return is_known ? event->at_unix_ms - locked_at_unix_ms : -1;
}

/* The record of the event's key after the batch. */
static const struct belay_record *record_of_event(const struct belay_event *event,
                                                  const struct belay_commit *result)
{
    for (size_t i = 0; i < result->n_records; i++) {
        if (event->key != NULL && result->records[i].key != NULL &&
            strcmp(result->records[i].key, event->key) == 0) {
            return &result->records[i];
        }
    }
    return result->n_records > 0 ? &result->records[0] : NULL;
}

void report_commit(report_event_fn on_event, void *context, const struct belay_batch *batch,
                   const struct belay_commit *result, int64_t took_ms, int64_t commit_us)
{
    for (size_t i = 0; on_event != NULL && i < batch->n_events; i++) {
        struct belay_event event = batch->events[i];
        const struct belay_record *record = record_of_event(&event, result);

        event.id = result->event_id == 0 ? 0 : result->event_id + i;
        event.at_unix_ms = result->events_at_unix_ms != 0 ? result->events_at_unix_ms : clock_unix_ms();
        event.commit_us = commit_us;
        complete_event(&event, record, result);
        if (strcmp(event.type, "lock.acquired") == 0) {
            event.duration_ms = took_ms;
        } else if (strcmp(event.type, "lock.renewed") == 0) {
            event.duration_ms = record == NULL ? -1 : held_so_far_ms(record->locked_at_unix_ms, &event);
        }
        on_event(context, &event);
    }
}

static struct belay_event event_refused(const struct op_request *request, const struct belay_error *err)
{
    return (struct belay_event){ .type = "lock.refused",
                                 .lock_id = request->lock_id,
                                 .locked_by = request->owner,
                                 .locked_by_name = request->owner_name,
                                 .reason = err->text,
                                 .duration_ms = clock_boot_ms() - request->began_ms };
}

static struct belay_event event_done(const struct op_request *request, const struct op_result *result,
                                     int64_t at_unix_ms)
{
    static const char *const types[] = { [OP_ACQUIRE] = "lock.acquired",
                                         [OP_ADOPT] = "lock.adopted",
                                         [OP_RENEW] = "lock.renewed",
                                         [OP_RELEASE] = "lock.released",
                                         [OP_FORCE] = "lock.forced" };
    const struct belay_info *info = result->info;
    struct belay_event event = { .at_unix_ms = at_unix_ms,
                                 .level = request->kind == OP_FORCE ? BELAY_LEVEL_WARNING : BELAY_LEVEL_INFO,
                                 .type = result->reentered ? "lock.reentered" : types[request->kind],
                                 .lock_id = info->lock_id,
                                 .token = info->token,
                                 .locked_by = info->locked_by,
                                 .locked_by_name = info->locked_by_name,
                                 .by = request->by,
                                 .reason = request->reason,
                                 .duration_ms = -1 };

    if (request->kind == OP_RENEW) {
        event.duration_ms = held_so_far_ms(info->locked_at_unix_ms, &event);
    } else if (request->kind == OP_RELEASE) {
        event.reason = belay_outcome_name(info->outcome);
    } else if (request->kind == OP_ACQUIRE || request->kind == OP_ADOPT) {
        event.metadata = info->metadata;
        event.n_metadata = info->n_metadata;
    }
    if (request->kind == OP_ACQUIRE && !result->reentered) {
        event.duration_ms = clock_boot_ms() - request->began_ms;
    }
    return event;
}

void report_outcome(report_event_fn on_event, void *context, const struct op_request *request,
                    enum belay_code code, const struct op_result *result, const struct belay_error *err)
{
    int64_t now_unix_ms = clock_unix_ms();
    struct belay_event event;

    if (on_event == NULL) {
        return;
    }
    if (code == BELAY_OK) {
        event = event_done(request, result, now_unix_ms);
    } else if ((code == BELAY_HELD || code == BELAY_FROZEN) && request->kind == OP_ACQUIRE) {
        event = event_refused(request, err);
    } else {
        return;
    }
    event.at_unix_ms = now_unix_ms;
    event.key = request->key;
    on_event(context, &event);
}

void report_waiting(const struct wait_hooks *hooks, struct wait_told *told,
                    const struct belay_wait_info *waiting)
{
    const struct belay_info *holder = waiting->holder;
    const char *id = holder == NULL || holder->lock_id == NULL ? "" : holder->lock_id;

    if (hooks == NULL || hooks->on_waiting == NULL || (holder == NULL && waiting->frozen == NULL)) {
        return;
    }
    if (told->anything && told->position == waiting->position && told->attempt == waiting->attempt &&
        strcmp(told->holder, id) == 0 && told->is_frozen == (waiting->frozen != NULL)) {
        return;
    }
    told->anything = true;
    told->position = waiting->position;
    told->attempt = waiting->attempt;
    told->is_frozen = waiting->frozen != NULL;
    (void)snprintf(told->holder, sizeof told->holder, "%s", id);
    hooks->on_waiting(hooks->context, waiting);
}
