/* The store's one way to change: a batch of conditional writes, whole or not at all. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "support/memstore_internal.h"

static void replace(char **text, const char *with)
{
    char *old = *text;

    *text = mem_copy(with);
    free(old);
}

static bool same(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

static struct belay_record *create(struct memstore_data *data, const char *key)
{
    size_t at = 0;

    data->records = mem_grow(data->records, data->n_records + 1, sizeof *data->records);
    while (at < data->n_records && strcmp(data->records[at].key, key) < 0) {
        at++;
    }
    memmove(&data->records[at + 1], &data->records[at], (data->n_records - at) * sizeof *data->records);
    data->n_records++;
    mem_make_absent(&data->records[at], key);
    return &data->records[at];
}

/* ---- conditions --------------------------------------------------------- */

static bool is_holder(const struct belay_record *record, const char *lock_id)
{
    return record != NULL && record->held && same(record->lock_id, lock_id);
}

static bool is_free_for(const struct belay_record *record, const struct belay_write *write)
{
    if (record == NULL) {
        return true;
    }
    if (record->held || record->n_tickets > 0 || record->n_intents > 0) {
        return false;
    }
    return (write->set & BELAY_SET_IDENTITY) == 0 || !same(record->lock_id, write->values->lock_id);
}

static bool holds(const struct memstore_data *data, const struct belay_write *write, int64_t now)
{
    const struct belay_record *record = mem_find(data, write->key);

    switch (write->condition) {
    case BELAY_IF_ANY:
        return true;
    case BELAY_IF_ABSENT:
        return record == NULL;
    case BELAY_IF_FREE:
        return is_free_for(record, write);
    case BELAY_IF_FREE_FOR_INTENT:
        return record == NULL || (!record->held && record->n_tickets == 0);
    case BELAY_IF_UNCHANGED:
        return (record != NULL ? record->revision : 0) == write->revision;
    case BELAY_IF_HELD_BY:
        return is_holder(record, write->lock_id);
    case BELAY_IF_LIVE_BY:
        return is_holder(record, write->lock_id) && now < record->expires_ms;
    }
    abort();
}

static bool was_used(const struct memstore_data *data, const char *key, const char *lock_id)
{
    for (size_t i = 0; i < data->n_used; i++) {
        if (strcmp(data->used[i].key, key) == 0 && strcmp(data->used[i].lock_id, lock_id) == 0) {
            return true;
        }
    }
    return false;
}

static void note_used(struct memstore_data *data, const char *key, const char *lock_id)
{
    if (was_used(data, key, lock_id)) {
        return;
    }
    data->used = mem_grow(data->used, data->n_used + 1, sizeof *data->used);
    data->used[data->n_used].key = mem_copy(key);
    data->used[data->n_used].lock_id = mem_copy(lock_id);
    data->n_used++;
}

/* ---- writes ------------------------------------------------------------- */

/* The clocks and the token of one batch. */
struct moment {
    int64_t now_ms;
    int64_t unix_ms;
    uint64_t token;
    int64_t held_ms;            /* how long writes[0] had been held, by what people read */
    struct belay_record before; /* owned; writes[0]'s record before the batch, or empty */
    bool keeps_metadata;        /* the batch leaves that record's metadata as it is */
    const char *new_id;         /* borrowed; the lock id that writes[0] sets; or NULL */
};

static void set_metadata(struct belay_record *record, const struct belay_record *values)
{
    meta_free(record->metadata, record->n_metadata);
    record->metadata = meta_copy(values->metadata, values->n_metadata);
    record->n_metadata = record->metadata != NULL ? values->n_metadata : 0;
}

static void set_lease(struct belay_record *record, int64_t ttl_ms, const struct moment *moment)
{
    if (ttl_ms > 0) {
        record->ttl_ms = ttl_ms;
    }
    record->expires_ms = moment->now_ms + record->ttl_ms;
    record->expires_at_unix_ms = moment->unix_ms + record->ttl_ms;
    record->last_heartbeat_ms = moment->now_ms;
    record->last_heartbeat_unix_ms = moment->unix_ms;
    record->stale_reported = false;
}

static void set_freed(struct belay_record *record, const struct moment *moment)
{
    record->freed_ms = moment->now_ms;
    record->freed_at_unix_ms = moment->unix_ms;
}

static void set_fields(struct memstore_data *data, struct belay_record *record,
                       const struct belay_write *write, const struct moment *moment)
{
    const struct belay_record *values = write->values;

    if ((write->set & BELAY_SET_ACQUIRED) != 0) {
        record->held = true;
        record->outcome = BELAY_OUTCOME_NONE;
        record->locked_at_unix_ms = moment->unix_ms;
    }
    if ((write->set & BELAY_SET_IDENTITY) != 0) {
        replace(&record->lock_id, values->lock_id);
        replace(&record->acquired_by, values->acquired_by == NULL ? "" : values->acquired_by);
        record->token = moment->token;
        note_used(data, record->key, record->lock_id);
    }
    if ((write->set & BELAY_SET_OWNER) != 0) {
        replace(&record->owner, values->owner);
        replace(&record->owner_name, values->owner_name);
    }
    if ((write->set & BELAY_SET_METADATA) != 0) {
        set_metadata(record, values);
    }
    if ((write->set & BELAY_SET_LIVENESS) != 0) {
        record->durable = values->durable;
        record->heartbeat_ms = values->heartbeat_ms;
        record->stale_after_ms = values->stale_after_ms;
    }
    if ((write->set & BELAY_SET_LEASE) != 0) {
        set_lease(record, values->ttl_ms, moment);
    }
    if ((write->set & BELAY_SET_RELEASED) != 0) {
        record->held = false;
        record->outcome = values->outcome;
        set_freed(record, moment);
        if (values->outcome != BELAY_OUTCOME_FORCED && write->lock_id != NULL) {
            replace(&record->released_id, write->lock_id);
        }
    }
    if ((write->set & BELAY_SET_FREED) != 0) {
        set_freed(record, moment);
    }
    if ((write->set & BELAY_SET_STALE_REPORTED) != 0) {
        record->stale_reported = true;
    }
}

static void free_ticket(struct belay_ticket *ticket)
{
    free(ticket->lock_id);
    free(ticket->key);
    free(ticket->owner);
    free(ticket->owner_name);
    free(ticket->acquired_by);
}

static void drop_ticket(struct belay_record *record, const char *lock_id)
{
    for (size_t i = 0; i < record->n_tickets; i++) {
        if (strcmp(record->tickets[i].lock_id, lock_id) == 0) {
            free_ticket(&record->tickets[i]);
            record->n_tickets--;
            memmove(&record->tickets[i], &record->tickets[i + 1],
                    (record->n_tickets - i) * sizeof *record->tickets);
            return;
        }
    }
}

static void drop_intent(struct belay_record *record, const char *lock_id)
{
    for (size_t i = 0; i < record->n_intents; i++) {
        if (strcmp(record->intents[i].lock_id, lock_id) == 0) {
            free(record->intents[i].lock_id);
            free(record->intents[i].key);
            record->n_intents--;
            memmove(&record->intents[i], &record->intents[i + 1],
                    (record->n_intents - i) * sizeof *record->intents);
            return;
        }
    }
}

static void put_ticket(struct memstore_data *data, struct belay_record *record,
                       const struct belay_put_ticket *put, int64_t now)
{
    struct belay_ticket *ticket = NULL;

    for (size_t i = 0; i < record->n_tickets; i++) {
        if (strcmp(record->tickets[i].lock_id, put->lock_id) == 0) {
            ticket = &record->tickets[i];
        }
    }
    if (ticket == NULL) {
        record->tickets = mem_grow(record->tickets, record->n_tickets + 1, sizeof *record->tickets);
        ticket = &record->tickets[record->n_tickets++];
        memset(ticket, 0, sizeof *ticket);
        ticket->seq = ++data->last_seq;
    }
    replace(&ticket->lock_id, put->lock_id);
    replace(&ticket->key, put->key);
    replace(&ticket->owner, put->owner);
    replace(&ticket->owner_name, put->owner_name);
    replace(&ticket->acquired_by, put->acquired_by == NULL ? "" : put->acquired_by);
    ticket->since_unix_ms = put->since_unix_ms;
    ticket->expires_ms = now + put->ttl_ms;
}

static void put_intent(struct belay_record *record, const struct belay_put_intent *put, int64_t now)
{
    struct belay_intent *intent;

    drop_intent(record, put->lock_id);
    record->intents = mem_grow(record->intents, record->n_intents + 1, sizeof *record->intents);
    intent = &record->intents[record->n_intents++];
    intent->lock_id = mem_copy(put->lock_id);
    intent->key = mem_copy(put->key);
    intent->expires_ms = now + put->ttl_ms;
}

/* Whether a write creates a missing record: only acquiring and putting do. */
static bool creates(const struct belay_write *write)
{
    return (write->set & BELAY_SET_ACQUIRED) != 0 || write->put_ticket != NULL || write->put_intent != NULL;
}

static void apply(struct memstore_data *data, const struct belay_write *write, const struct moment *moment)
{
    struct belay_record *record = mem_find(data, write->key);

    if (record == NULL && !creates(write)) {
        return;
    }
    if (record == NULL) {
        record = create(data, write->key);
    }
    set_fields(data, record, write, moment);
    for (size_t i = 0; i < write->n_drop_tickets; i++) {
        drop_ticket(record, write->drop_tickets[i]);
    }
    for (size_t i = 0; i < write->n_drop_intents; i++) {
        drop_intent(record, write->drop_intents[i]);
    }
    if (write->put_ticket != NULL) {
        put_ticket(data, record, write->put_ticket, moment->now_ms);
    }
    if (write->put_intent != NULL) {
        put_intent(record, write->put_intent, moment->now_ms);
    }
    record->revision = ++data->last_revision;
}

/* ---- events ------------------------------------------------------------- */

static void keep_event(struct memstore_data *data, const struct belay_event *event,
                       const struct moment *moment)
{
    struct belay_event *kept;

    if (data->n_events == data->cap_events) {
        data->cap_events = data->cap_events == 0 ? 16 : 2 * data->cap_events;
        data->events = mem_grow(data->events, data->cap_events, sizeof *data->events);
    }
    kept = &data->events[data->n_events++];
    *kept = *event;
    kept->id = data->n_events;
    kept->at_unix_ms = moment->unix_ms;
    kept->token = event->token == BELAY_TOKEN_OF_BATCH ? moment->token : event->token;
    if (event->token == 0 && event->lock_id != NULL && moment->before.lock_id != NULL &&
        strcmp(event->lock_id, moment->before.lock_id) == 0) {
        kept->token = moment->before.token;
    }
    kept->duration_ms = event->duration_ms == BELAY_DURATION_HELD ? moment->held_ms : event->duration_ms;
    kept->type = mem_copy(event->type);
    kept->key = mem_copy(event->key);
    kept->lock_id = mem_copy(event->lock_id);
    kept->locked_by = mem_copy(event->locked_by != NULL ? event->locked_by : moment->before.owner);
    kept->locked_by_name =
        mem_copy(event->locked_by != NULL ? event->locked_by_name : moment->before.owner_name);
    kept->by = mem_copy_or_null(event->by);
    kept->reason = mem_copy_or_null(event->reason);
    if (event->metadata == NULL && event->lock_id != NULL && moment->keeps_metadata &&
        ((moment->before.lock_id != NULL && strcmp(event->lock_id, moment->before.lock_id) == 0) ||
         (moment->new_id != NULL && strcmp(event->lock_id, moment->new_id) == 0))) {
        kept->n_metadata = moment->before.n_metadata;
        kept->metadata = meta_copy(moment->before.metadata, kept->n_metadata);
    } else {
        kept->metadata = meta_copy(event->metadata, event->n_metadata);
    }
}

void mem_free_event(struct belay_event *event)
{
    free((char *)event->type);
    free((char *)event->key);
    free((char *)event->lock_id);
    free((char *)event->locked_by);
    free((char *)event->locked_by_name);
    free((char *)event->by);
    free((char *)event->reason);
    meta_free((struct belay_meta *)event->metadata, event->n_metadata);
}

/* ---- the batch ---------------------------------------------------------- */

static void answer(const struct memstore_data *data, const struct belay_write *writes, size_t n,
                   struct belay_commit *out)
{
    out->n_records = n;
    out->records = n > 0 ? mem_must(calloc(n, sizeof *out->records)) : NULL;
    for (size_t i = 0; i < n; i++) {
        mem_read(data, writes[i].key, &out->records[i]);
    }
}

static bool hands_out_token(const struct belay_batch *batch)
{
    for (size_t i = 0; i < batch->n_writes; i++) {
        if ((batch->writes[i].set & BELAY_SET_IDENTITY) != 0) {
            return true;
        }
    }
    return false;
}

/* All conditions hold: do it. */
static void perform(struct memstore_data *data, const struct belay_batch *batch, struct belay_commit *out)
{
    struct moment moment = { .now_ms = out->now_ms, .unix_ms = data->unix_ms(data->ctx) };
    const struct belay_record *first = batch->n_writes > 0 ? mem_find(data, batch->writes[0].key) : NULL;

    if (first != NULL && moment.unix_ms > first->locked_at_unix_ms) {
        moment.held_ms = moment.unix_ms - first->locked_at_unix_ms;
    }
    if (first != NULL) {
        (void)mem_must(belay_record_copy(first, &moment.before) ? data : NULL);
        moment.keeps_metadata = (batch->writes[0].set & BELAY_SET_METADATA) == 0;
        moment.new_id =
            (batch->writes[0].set & BELAY_SET_IDENTITY) != 0 ? batch->writes[0].values->lock_id : NULL;
    }
    if (hands_out_token(batch)) {
        moment.token = ++data->last_token;
    }
    for (size_t i = 0; i < batch->n_writes; i++) {
        apply(data, &batch->writes[i], &moment);
    }
    for (size_t i = 0; i < batch->n_events; i++) {
        keep_event(data, &batch->events[i], &moment);
    }
    if (batch->n_events > 0) {
        out->event_id = data->n_events - batch->n_events + 1;
        mem_wake(data, NULL);
    }
    belay_record_release(&moment.before);
    out->token = moment.token;
    answer(data, batch->writes, batch->n_writes, out);
}

/*
 * The conditions come before the memory of used ids: a repeated acquire whose
 * first answer was lost must be refused and find itself in the record (L5).
 */
enum belay_code mem_commit(struct memstore_data *data, const struct belay_batch *batch,
                           struct belay_commit *out, struct belay_error *err)
{
    out->now_ms = data->now_ms(data->ctx);
    for (size_t i = 0; i < batch->n_writes; i++) {
        if (!holds(data, &batch->writes[i], out->now_ms)) {
            out->refused = i;
            answer(data, &batch->writes[i], 1, out);
            return BELAY_REFUSED;
        }
    }
    if (data->knows_used_ids && batch->require_unused_id != NULL && batch->n_writes > 0 &&
        was_used(data, batch->writes[0].key, batch->require_unused_id)) {
        return error_set(err, BELAY_ID_USED, "lock id '%s' was used before", batch->require_unused_id);
    }
    perform(data, batch, out);
    return BELAY_OK;
}
