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

/* One of several holders; NULL: the record has no such holder. */
static struct belay_holder *find_holder(const struct belay_record *record, const char *lock_id)
{
    for (size_t i = 0; record != NULL && i < record->n_holders; i++) {
        if (same(record->holders[i].lock_id, lock_id)) {
            return &record->holders[i];
        }
    }
    return NULL;
}

/* Whether the write's holder holds the lock, and until when. */
static bool is_holder(const struct belay_record *record, const struct belay_write *write,
                      int64_t *out_ends_ms)
{
    const struct belay_holder *holder = find_holder(record, write->lock_id);

    if (write->co_holder) {
        *out_ends_ms = holder != NULL ? holder->expires_ms : 0;
        return holder != NULL;
    }
    *out_ends_ms = record != NULL ? record->expires_ms : 0;
    return record != NULL && record->held && record->mode == BELAY_EXCLUSIVE &&
           same(record->lock_id, write->lock_id);
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

/* The place of an id in the queue; NULL: it has none. */
static const struct belay_ticket *find_ticket(const struct belay_record *record, const char *lock_id)
{
    for (size_t i = 0; record != NULL && i < record->n_tickets; i++) {
        if (same(record->tickets[i].lock_id, lock_id)) {
            return &record->tickets[i];
        }
    }
    return NULL;
}

static bool is_occupied(const struct belay_record *record, const struct belay_write *write)
{
    const struct belay_put_ticket *put = write->put_ticket;
    const struct belay_ticket *ticket = find_ticket(record, put->lock_id);

    return record != NULL && (record->held || record->n_tickets > 0 || record->n_intents > 0) &&
           (ticket == NULL || same(ticket->acquired_by, put->acquired_by == NULL ? "" : put->acquired_by));
}

static bool is_next(const struct belay_record *record, const struct belay_write *write, int64_t now)
{
    const struct belay_ticket *own = find_ticket(record, write->lock_id);
    bool is_first = own != NULL;

    for (const struct belay_ticket *other = own == NULL ? NULL : record->tickets; other != own; other++) {
        is_first = is_first && (other->dead || now >= other->expires_ms);
    }
    return is_first && !record->held && record->n_intents == 0 && !same(record->lock_id, write->lock_id);
}

static bool holds(const struct memstore_data *data, const struct belay_write *write, int64_t now)
{
    const struct belay_record *record = mem_find(data, write->key);
    int64_t ends_ms;

    if (write->co_holder && (write->set & BELAY_SET_ACQUIRED) == 0 &&
        find_holder(record, write->lock_id) == NULL) {
        return false;
    }
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
        return is_holder(record, write, &ends_ms);
    case BELAY_IF_LIVE_BY:
        return is_holder(record, write, &ends_ms) && now < ends_ms;
    case BELAY_IF_OCCUPIED:
        return is_occupied(record, write);
    case BELAY_IF_NEXT:
        return is_next(record, write, now);
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

/* The clocks of one batch, and the token of one write. */
struct moment {
    int64_t now_ms;
    int64_t unix_ms;
    uint64_t token;
};

/* One write of a batch, for the events of its key: what was there before. */
struct past {
    uint64_t token;             /* that the write grants; 0: none */
    int64_t held_ms;            /* how long the lock had been held, by what people read */
    struct belay_record before; /* owned; the record, or one holder's fields; or empty */
    bool keeps_metadata;        /* the write leaves the metadata as it is */
    const char *new_id;         /* borrowed; the lock id that the write sets; or NULL */
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
        record->mode = BELAY_EXCLUSIVE;
        record->slots = 0;
        record->outcome = BELAY_OUTCOME_NONE;
        record->locked_at_unix_ms = moment->unix_ms;
    }
    if ((write->set & BELAY_SET_IDENTITY) != 0) {
        replace(&record->lock_id, values->lock_id);
        replace(&record->acquired_by, values->acquired_by == NULL ? "" : values->acquired_by);
        record->token = moment->token;
        note_used(data, write->key, record->lock_id);
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
            (void)mem_must(belay_record_note_released(record, write->lock_id) ? record : NULL);
        }
    }
    if ((write->set & BELAY_SET_FREED) != 0) {
        set_freed(record, moment);
    }
    if ((write->set & BELAY_SET_STALE_REPORTED) != 0) {
        record->stale_reported = true;
    }
}

/* ---- several holders ---------------------------------------------------- */

static void remove_holder(struct belay_record *record, const char *lock_id)
{
    struct belay_holder *holder = find_holder(record, lock_id);

    if (holder != NULL) {
        free(holder->lock_id);
        free(holder->owner);
        free(holder->owner_name);
        free(holder->acquired_by);
        meta_free(holder->metadata, holder->n_metadata);
        record->n_holders--;
        memmove(holder, holder + 1, (size_t)(record->holders + record->n_holders - holder) * sizeof *holder);
        record->held = record->n_holders > 0;
    }
}

static void show_holder(struct belay_record *record, const struct belay_holder *holder)
{
    record->held = true;
    record->outcome = BELAY_OUTCOME_NONE;
    (void)mem_must(belay_record_show(record, holder) ? record : NULL);
}

static int by_token(const void *a, const void *b)
{
    const struct belay_holder *x = a;
    const struct belay_holder *y = b;

    return x->token < y->token ? -1 : x->token > y->token;
}

/* Sort the holders, and show the one whose lease ends last. */
static void show_last(struct belay_record *record)
{
    const struct belay_holder *last = record->holders;

    if (record->n_holders == 0) {
        return;
    }
    qsort(record->holders, record->n_holders, sizeof *record->holders, by_token);
    for (size_t i = 1; i < record->n_holders; i++) {
        if (record->holders[i].expires_ms > last->expires_ms) {
            last = &record->holders[i];
        }
    }
    show_holder(record, last);
}

static void add_holder(struct belay_record *record, const struct belay_record *values)
{
    record->mode = values->mode;
    record->slots = values->slots;
    if (find_holder(record, values->lock_id) == NULL) {
        record->holders = mem_grow(record->holders, record->n_holders + 1, sizeof *record->holders);
        record->holders[record->n_holders++] = (struct belay_holder){ .lock_id = mem_copy(values->lock_id),
                                                                      .owner = mem_copy(""),
                                                                      .owner_name = mem_copy(""),
                                                                      .acquired_by = mem_copy("") };
    }
}

static void set_holder(struct memstore_data *data, struct belay_record *record,
                       const struct belay_write *write, const struct moment *moment)
{
    const char *lock_id = (write->set & BELAY_SET_ACQUIRED) != 0 ? write->values->lock_id : write->lock_id;
    struct belay_holder *holder;
    struct belay_record fields;

    if ((write->set & BELAY_SET_ACQUIRED) != 0) {
        add_holder(record, write->values);
    }
    if ((write->set & BELAY_SET_FREED) != 0) {
        set_freed(record, moment);
    }
    /* A store without memory of ids may have the adopter among the holders: an id is there once. */
    if ((write->set & BELAY_SET_IDENTITY) != 0 && !same(lock_id, write->values->lock_id)) {
        remove_holder(record, write->values->lock_id);
    }
    holder = find_holder(record, lock_id);
    if (holder == NULL) {
        return;
    }
    fields = (struct belay_record){ .held = true, .holder = *holder };
    set_fields(data, &fields, write, moment);
    *holder = fields.holder;
    if ((write->set & BELAY_SET_RELEASED) != 0) {
        show_holder(record, holder);
        remove_holder(record, holder->lock_id);
        record->outcome = record->held ? BELAY_OUTCOME_NONE : write->values->outcome;
        set_freed(record, moment);
        if (fields.n_released_ids > 0) {
            (void)mem_must(belay_record_note_released(record, fields.released_ids[0]) ? record : NULL);
        }
        belay_record_forget_released(&fields);
        free(fields.released_ids);
    }
}

static void set_record(struct memstore_data *data, struct belay_record *record,
                       const struct belay_write *write, const struct moment *moment)
{
    for (size_t i = 0; i < write->n_drop_holders; i++) {
        remove_holder(record, write->drop_holders[i]);
    }
    if (write->co_holder) {
        set_holder(data, record, write, moment);
    } else if (record->n_holders == 0 || (write->set & BELAY_SET_ACQUIRED) != 0) {
        while (record->n_holders > 0) {
            remove_holder(record, record->holders[0].lock_id);
        }
        set_fields(data, record, write, moment);
    } else if ((write->set & BELAY_SET_FREED) != 0) {
        set_freed(record, moment);
    }
    show_last(record);
}

/* ---- tickets and intents ------------------------------------------------ */

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
    ticket->mode = put->mode;
    ticket->slots = put->slots;
    ticket->joint = put->joint;
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
    intent->shared = put->shared;
}

/* Whether a write creates a missing record: only acquiring and putting do. */
static bool creates(const struct belay_write *write)
{
    return (write->set & BELAY_SET_ACQUIRED) != 0 || write->put_ticket != NULL || write->n_put_intents > 0;
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
    set_record(data, record, write, moment);
    while (write->condition == BELAY_IF_NEXT && record->n_tickets > 0 &&
           !same(record->tickets[0].lock_id, write->lock_id)) {
        drop_ticket(record, record->tickets[0].lock_id);
    }
    for (size_t i = 0; i < write->n_drop_tickets; i++) {
        drop_ticket(record, write->drop_tickets[i]);
    }
    for (size_t i = 0; i < write->n_drop_intents; i++) {
        drop_intent(record, write->drop_intents[i]);
    }
    if (write->put_ticket != NULL) {
        put_ticket(data, record, write->put_ticket, moment->now_ms);
    }
    for (size_t i = 0; i < write->n_put_intents; i++) {
        put_intent(record, &write->put_intents[i], moment->now_ms);
    }
    record->revision = ++data->last_revision;
}

/* ---- events ------------------------------------------------------------- */

/* What a write finds: the record, or one of its holders, and what the write leaves of it. */
static void look_back(const struct memstore_data *data, const struct belay_write *write, int64_t unix_ms,
                      struct past *out)
{
    const struct belay_record *record = mem_find(data, write->key);
    const struct belay_holder *holder = find_holder(record, write->lock_id);
    struct belay_record fields;

    if (write->co_holder && holder != NULL) {
        fields = (struct belay_record){ .held = true, .holder = *holder };
        record = &fields;
    } else if (write->co_holder) {
        record = NULL;
    }
    if (record == NULL) {
        return;
    }
    if (unix_ms > record->locked_at_unix_ms) {
        out->held_ms = unix_ms - record->locked_at_unix_ms;
    }
    (void)mem_must(belay_record_copy(record, &out->before) ? out : NULL);
    out->keeps_metadata = (write->set & BELAY_SET_METADATA) == 0;
    out->new_id = (write->set & BELAY_SET_IDENTITY) != 0 ? write->values->lock_id : NULL;
}

/* That of the write with the event's key, else of the first. */
static const struct past *past_of(const struct belay_batch *batch, const struct past *pasts,
                                  const struct belay_event *event)
{
    for (size_t i = 0; i < batch->n_writes; i++) {
        if (same(batch->writes[i].key, event->key)) {
            return &pasts[i];
        }
    }
    return pasts;
}

static void keep_event(struct memstore_data *data, const struct belay_event *event, const struct past *past,
                       int64_t unix_ms)
{
    const struct belay_record *before = &past->before;
    struct belay_event *kept;

    if (data->n_events == data->cap_events) {
        data->cap_events = data->cap_events == 0 ? 16 : 2 * data->cap_events;
        data->events = mem_grow(data->events, data->cap_events, sizeof *data->events);
    }
    kept = &data->events[data->n_events++];
    *kept = *event;
    kept->id = data->n_events;
    kept->at_unix_ms = unix_ms;
    kept->token = event->token == BELAY_TOKEN_OF_BATCH ? past->token : event->token;
    if (event->token == 0 && same(event->lock_id, before->lock_id)) {
        kept->token = before->token;
    }
    kept->duration_ms = event->duration_ms == BELAY_DURATION_HELD ? past->held_ms : event->duration_ms;
    kept->type = mem_copy(event->type);
    kept->key = mem_copy(event->key);
    kept->lock_id = mem_copy(event->lock_id);
    kept->locked_by = mem_copy(event->locked_by != NULL ? event->locked_by : before->owner);
    kept->locked_by_name = mem_copy(event->locked_by != NULL ? event->locked_by_name : before->owner_name);
    kept->by = mem_copy_or_null(event->by);
    kept->reason = mem_copy_or_null(event->reason);
    if (event->metadata == NULL && past->keeps_metadata &&
        (same(event->lock_id, before->lock_id) || same(event->lock_id, past->new_id))) {
        kept->n_metadata = before->n_metadata;
        kept->metadata = meta_copy(before->metadata, kept->n_metadata);
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

/* All conditions hold: do it. Every key has a token of its own. */
static void perform(struct memstore_data *data, const struct belay_batch *batch, struct belay_commit *out)
{
    struct moment moment = { .now_ms = out->now_ms, .unix_ms = data->unix_ms(data->ctx) };
    struct past *pasts = mem_must(calloc(batch->n_writes + 1, sizeof *pasts));

    for (size_t i = 0; i < batch->n_writes; i++) {
        look_back(data, &batch->writes[i], moment.unix_ms, &pasts[i]);
        if ((batch->writes[i].set & BELAY_SET_IDENTITY) != 0) {
            pasts[i].token = ++data->last_token;
            out->token = out->token == 0 ? pasts[i].token : out->token;
        }
    }
    for (size_t i = 0; i < batch->n_writes; i++) {
        moment.token = pasts[i].token;
        apply(data, &batch->writes[i], &moment);
    }
    for (size_t i = 0; i < batch->n_events; i++) {
        keep_event(data, &batch->events[i], past_of(batch, pasts, &batch->events[i]), moment.unix_ms);
    }
    if (batch->n_events > 0) {
        out->event_id = data->n_events - batch->n_events + 1;
        mem_wake(data, NULL);
    }
    for (size_t i = 0; i < batch->n_writes; i++) {
        belay_record_release(&pasts[i].before);
    }
    free(pasts);
    answer(data, batch->writes, batch->n_writes, out);
}

static bool uses_id_again(const struct memstore_data *data, const struct belay_batch *batch)
{
    for (size_t i = 0; i < batch->n_writes; i++) {
        if ((i == 0 || (batch->writes[i].set & BELAY_SET_ACQUIRED) != 0) &&
            was_used(data, batch->writes[i].key, batch->require_unused_id)) {
            return true;
        }
    }
    return false;
}

/*
 * The conditions come before the memory of used ids: a repeated acquire whose
 * first answer was lost must be refused and find itself in the record (L5).
 */
enum belay_code mem_commit(struct memstore_data *data, const struct belay_batch *batch,
                           struct belay_commit *out, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    out->now_ms = data->now_ms(data->ctx);
    if (batch->check_freezes && data->check_freezes != NULL) {
        code = data->check_freezes(data, batch, out, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    for (size_t i = 0; i < batch->n_writes; i++) {
        if (!holds(data, &batch->writes[i], out->now_ms)) {
            out->refused = i;
            answer(data, &batch->writes[i], 1, out);
            return BELAY_REFUSED;
        }
    }
    if (data->knows_used_ids && batch->require_unused_id != NULL && uses_id_again(data, batch)) {
        return error_set(err, BELAY_ID_USED, "lock id '%s' was used before", batch->require_unused_id);
    }
    perform(data, batch, out);
    return BELAY_OK;
}
