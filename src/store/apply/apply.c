/* Conditional writes: whether the condition holds, and the record after the write. */
#include "store/apply/apply_internal.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/saturate.h"
#include "base/text.h"
#include "store/apply/pack.h"

void row_release(struct row *row)
{
    belay_record_release(&row->record);
    free(row->has_liveness);
    free(row->packed);
    row->has_liveness = NULL;
    row->packed = NULL;
}

struct belay_record row_take_record(struct row *row)
{
    struct belay_record record = row->record;

    memset(&row->record, 0, sizeof row->record);
    row_release(row);
    return record;
}

void records_release(struct belay_record *records, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        belay_record_release(&records[i]);
    }
}

enum belay_code row_absent(const char *key, struct row *out_row, struct belay_error *err)
{
    struct row row = { 0 };

    row.record.key = strdup(key);
    row.record.lock_id = strdup("");
    row.record.owner = strdup("");
    row.record.owner_name = strdup("");
    row.record.acquired_by = strdup("");
    if (row.record.key == NULL || row.record.lock_id == NULL || row.record.owner == NULL ||
        row.record.owner_name == NULL || row.record.acquired_by == NULL) {
        row_release(&row);
        return error_no_memory(err);
    }
    *out_row = row;
    return BELAY_OK;
}

static bool sets_same_id(const struct belay_write *write, const struct belay_record *record)
{
    return (write->set & BELAY_SET_IDENTITY) != 0 && strcmp(record->lock_id, write->values->lock_id) == 0;
}

static bool has_named_holder(const struct belay_record *record, const struct belay_write *write,
                             int64_t *out_expires_ms)
{
    const struct belay_holder *holder = write->co_holder ? holder_find(record, write->lock_id) : NULL;

    *out_expires_ms = holder != NULL ? holder->expires_ms : record->expires_ms;
    return holder != NULL ||
           (!write->co_holder && record->mode == BELAY_EXCLUSIVE && record->revision != 0 && record->held &&
            write->lock_id != NULL && strcmp(record->lock_id, write->lock_id) == 0);
}

static bool may_happen(const struct belay_write *write, const struct belay_record *record, int64_t now_ms)
{
    bool absent = record->revision == 0;
    bool open = absent || (!record->held && record->n_tickets == 0);
    int64_t expires_ms = 0;

    switch (write->condition) {
    case BELAY_IF_ANY:
        return true;
    case BELAY_IF_ABSENT:
        return absent;
    case BELAY_IF_FREE:
        return absent || (open && record->n_intents == 0 && !sets_same_id(write, record));
    case BELAY_IF_FREE_FOR_INTENT:
        return open;
    case BELAY_IF_UNCHANGED:
        return record->revision == write->revision;
    case BELAY_IF_HELD_BY:
        return has_named_holder(record, write, &expires_ms);
    case BELAY_IF_LIVE_BY:
        return has_named_holder(record, write, &expires_ms) && now_ms < expires_ms;
    case BELAY_IF_OCCUPIED: /* stores without takes_turns */
    case BELAY_IF_NEXT:
        break;
    }
    return false;
}

/* One of several holders is changed only if it is there. */
static bool has_its_holder(const struct belay_write *write, const struct belay_record *record)
{
    return !write->co_holder || (write->set & BELAY_SET_ACQUIRED) != 0 ||
           holder_find(record, write->lock_id) != NULL;
}

/* Set co_holder in the writes that leave it to the store. False: no memory. */
static bool find_modes(struct batch_work *work)
{
    size_t n = work->asked->n_writes;

    work->batch = work->asked;
    for (size_t i = 0; i < n; i++) {
        if (!work->asked->writes[i].any_mode || work->rows[i].record.mode == BELAY_EXCLUSIVE) {
            continue;
        }
        if (work->batch == work->asked) {
            free(work->found_writes);
            work->found_writes = malloc(n * sizeof *work->found_writes);
            if (work->found_writes == NULL) {
                return false;
            }
            memcpy(work->found_writes, work->asked->writes, n * sizeof *work->found_writes);
            work->found = *work->asked;
            work->found.writes = work->found_writes;
            work->batch = &work->found;
        }
        work->found_writes[i].co_holder = true;
    }
    return true;
}

enum belay_code batch_check(struct batch_work *work, const struct freeze_list *freezes,
                            struct belay_error *err)
{
    struct freeze_now now = { work->txn.unix_ms, work->txn.unix_ms };

    if (work->batch->check_freezes && freezes->n > 0) {
        enum belay_code code = freeze_check(freezes, work->batch, now, &work->frozen, err);

        if (code != BELAY_OK) {
            return code;
        }
    }
    if (!find_modes(work)) {
        return error_no_memory(err);
    }
    for (size_t i = 0; i < work->batch->n_writes; i++) {
        const struct belay_write *write = &work->batch->writes[i];

        if (write->co_holder && (write->set & BELAY_SET_ACQUIRED) != 0 &&
            (write->values->mode == BELAY_EXCLUSIVE || (write->set & BELAY_SET_IDENTITY) == 0)) {
            return error_set(err, BELAY_INVALID, "one of several holders of '%s' needs a mode and an id",
                             write->key);
        }
        if (!may_happen(write, &work->rows[i].record, work->txn.now_ms) ||
            !has_its_holder(write, &work->rows[i].record)) {
            work->refused = i;
            return error_set(err, BELAY_REFUSED, "the condition on '%s' does not hold", write->key);
        }
    }
    return BELAY_OK;
}

bool write_leaves_alone(const struct belay_write *write, const struct belay_record *record)
{
    bool puts = write->put_ticket != NULL || write->n_put_intents > 0;
    bool drops = write->n_drop_tickets > 0 || write->n_drop_intents > 0 || write->n_drop_holders > 0;

    if (record->revision == 0) {
        return !puts && (write->set & BELAY_SET_ACQUIRED) == 0;
    }
    return !puts && !drops && write->set == 0;
}

static bool write_must_last(const struct belay_write *write, const struct belay_record *record)
{
    const unsigned passing = BELAY_SET_LEASE | BELAY_SET_STALE_REPORTED | BELAY_SET_FREED;
    bool before = record->revision != 0 && record->held && record->durable;
    int64_t ttl_ms = record->ttl_ms;

    if ((write->set & BELAY_SET_LIVENESS) != 0 && write->values->durable) {
        return true;
    }
    if (record->n_holders > 0) {
        const struct belay_holder *holder = write->co_holder ? holder_find(record, write->lock_id) : NULL;

        if (holders_must_last(write, record)) {
            return true;
        }
        before = holder != NULL && holder->durable;
        ttl_ms = holder != NULL ? holder->ttl_ms : 0;
    }
    if (!before) {
        return false;
    }
    /* After a restart the lease begins again with its ttl, so only a changed ttl must be on disk. */
    return (write->set & ~passing) != 0 || ((write->set & BELAY_SET_LEASE) != 0 &&
                                            write->values->ttl_ms != 0 && write->values->ttl_ms != ttl_ms);
}

void free_record_text(const struct belay_record *record, char *text)
{
    if (!belay_record_has_text(record, text)) {
        free(text);
    }
}

bool replace_text(const struct belay_record *record, char **text, const char *with)
{
    char *copy = strdup(with == NULL ? "" : with);

    if (copy == NULL) {
        return false;
    }
    free_record_text(record, *text);
    *text = copy;
    return true;
}

static bool set_metadata(struct belay_record *record, const struct belay_record *values)
{
    struct belay_meta *copy = meta_copy(values->metadata, values->n_metadata);

    if (copy == NULL && values->n_metadata > 0) {
        return false;
    }
    meta_free(record->metadata, record->n_metadata);
    record->metadata = copy;
    record->n_metadata = values->n_metadata;
    return true;
}

static void set_lease(struct belay_record *record, int64_t ttl_ms, const struct txn *txn)
{
    record->ttl_ms = ttl_ms == 0 ? record->ttl_ms : ttl_ms;
    record->expires_ms = add_saturated(txn->now_ms, record->ttl_ms);
    record->expires_at_unix_ms = add_saturated(txn->unix_ms, record->ttl_ms);
    record->last_heartbeat_ms = txn->now_ms;
    record->last_heartbeat_unix_ms = txn->unix_ms;
    record->stale_reported = false;
}

bool set_fields(struct belay_record *record, unsigned set, const struct belay_record *values,
                const struct txn *txn)
{
    if ((set & BELAY_SET_ACQUIRED) != 0) {
        if (record->n_released_ids > 0) {
            belay_record_forget_released(record); /* they are kept of several holders only */
        }
        record->mode = BELAY_EXCLUSIVE;
        record->slots = 0;
        record->held = true;
        record->outcome = BELAY_OUTCOME_NONE;
        record->locked_at_unix_ms = txn->unix_ms;
    }
    if ((set & BELAY_SET_IDENTITY) != 0) {
        if (!replace_text(record, &record->lock_id, values->lock_id) ||
            !replace_text(record, &record->acquired_by, values->acquired_by)) {
            return false;
        }
        record->token = txn->next;
    }
    if ((set & BELAY_SET_OWNER) != 0 && (!replace_text(record, &record->owner, values->owner) ||
                                         !replace_text(record, &record->owner_name, values->owner_name))) {
        return false;
    }
    if ((set & BELAY_SET_METADATA) != 0 && !set_metadata(record, values)) {
        return false;
    }
    if ((set & BELAY_SET_LIVENESS) != 0) {
        record->durable = values->durable;
        record->heartbeat_ms = values->heartbeat_ms;
        record->stale_after_ms = values->stale_after_ms;
    }
    if ((set & BELAY_SET_LEASE) != 0) {
        set_lease(record, values->ttl_ms, txn);
    }
    if ((set & BELAY_SET_RELEASED) != 0) {
        record->held = false;
        record->outcome = values->outcome;
    }
    if ((set & (BELAY_SET_RELEASED | BELAY_SET_FREED)) != 0) {
        record->freed_ms = txn->now_ms;
        record->freed_at_unix_ms = txn->unix_ms;
    }
    if ((set & BELAY_SET_STALE_REPORTED) != 0) {
        record->stale_reported = true;
    }
    return true;
}

/* The analyzer does not follow array elements that move up: NOLINT, here and in record_drop_intent(). */
static void clear_ticket(struct belay_ticket *ticket)
{
    if (ticket->packed) {
        return;
    }
    free(ticket->lock_id);
    free(ticket->key); /* NOLINT(clang-analyzer-unix.Malloc) */
    free(ticket->owner);
    free(ticket->owner_name);
    free(ticket->acquired_by);
}

/* The place of an id in the queue; if it has none, the end. */
static size_t find_ticket(const struct belay_record *record, const char *lock_id)
{
    size_t at = 0;

    while (at < record->n_tickets && strcmp(record->tickets[at].lock_id, lock_id) != 0) {
        at++;
    }
    return at;
}

static void row_drop_ticket(struct row *row, const char *lock_id)
{
    struct belay_record *record = &row->record;
    size_t at = find_ticket(record, lock_id);
    size_t after;

    if (at == record->n_tickets) {
        return;
    }
    after = record->n_tickets - at - 1;
    clear_ticket(&record->tickets[at]);
    memmove(&record->tickets[at], &record->tickets[at + 1], after * sizeof *record->tickets);
    memmove(&row->has_liveness[at], &row->has_liveness[at + 1], after * sizeof *row->has_liveness);
    record->n_tickets--;
}

static void record_drop_intent(struct belay_record *record, const char *lock_id)
{
    size_t kept = 0;

    for (size_t i = 0; i < record->n_intents; i++) {
        if (strcmp(record->intents[i].lock_id, lock_id) == 0) {
            free(record->intents[i].lock_id);
            free(record->intents[i].key); /* NOLINT(clang-analyzer-unix.Malloc) */
            continue;
        }
        record->intents[kept++] = record->intents[i];
    }
    record->n_intents = kept;
}

static bool row_put_ticket(struct row *row, const struct belay_put_ticket *put, bool has_liveness,
                           const struct txn *txn)
{
    struct belay_record *record = &row->record;
    struct belay_ticket ticket = { .seq = txn->next };
    struct belay_ticket *tickets;
    size_t at = find_ticket(record, put->lock_id);
    bool *liveness;

    tickets = realloc(record->tickets, (record->n_tickets + 1) * sizeof *tickets);
    record->tickets = tickets != NULL ? tickets : record->tickets;
    liveness = realloc(row->has_liveness, (record->n_tickets + 1) * sizeof *liveness);
    row->has_liveness = liveness != NULL ? liveness : row->has_liveness;
    if (tickets == NULL || liveness == NULL || !replace_text(record, &ticket.lock_id, put->lock_id) ||
        !replace_text(record, &ticket.key, put->key) || !replace_text(record, &ticket.owner, put->owner) ||
        !replace_text(record, &ticket.owner_name, put->owner_name) ||
        !replace_text(record, &ticket.acquired_by, put->acquired_by)) {
        clear_ticket(&ticket);
        return false;
    }
    ticket.since_unix_ms = put->since_unix_ms;
    ticket.expires_ms = add_saturated(txn->now_ms, put->ttl_ms);
    ticket.mode = put->mode;
    ticket.slots = put->slots;
    ticket.joint = put->joint;
    if (at < record->n_tickets) {
        ticket.seq = tickets[at].seq;
        clear_ticket(&tickets[at]);
    } else {
        record->n_tickets++;
    }
    tickets[at] = ticket;
    liveness[at] = has_liveness;
    return true;
}

static bool record_put_intent(struct belay_record *record, const struct belay_put_intent *put,
                              const struct txn *txn)
{
    struct belay_intent intent = { .expires_ms = add_saturated(txn->now_ms, put->ttl_ms),
                                   .shared = put->shared };
    struct belay_intent *intents;

    record_drop_intent(record, put->lock_id);
    intents = realloc(record->intents, (record->n_intents + 1) * sizeof *intents);
    if (intents == NULL) {
        return false;
    }
    record->intents = intents;
    if (!replace_text(record, &intent.lock_id, put->lock_id) ||
        !replace_text(record, &intent.key, put->key)) {
        free(intent.lock_id);
        free(intent.key);
        return false;
    }
    intents[record->n_intents++] = intent;
    return true;
}

enum belay_code write_apply(const struct belay_write *write, const struct txn *txn, bool has_liveness,
                            struct row *row, struct belay_error *err)
{
    bool has_holders = write->co_holder || row->record.n_holders > 0;

    if (has_holders ? !holders_apply(write, txn, &row->record)
                    : !set_fields(&row->record, write->set, write->values, txn)) {
        return error_no_memory(err);
    }
    for (size_t i = 0; i < write->n_drop_tickets; i++) {
        row_drop_ticket(row, write->drop_tickets[i]);
    }
    for (size_t i = 0; i < write->n_drop_intents; i++) {
        record_drop_intent(&row->record, write->drop_intents[i]);
    }
    if (write->put_ticket != NULL && !row_put_ticket(row, write->put_ticket, has_liveness, txn)) {
        return error_no_memory(err);
    }
    for (size_t i = 0; i < write->n_put_intents; i++) {
        if (!record_put_intent(&row->record, &write->put_intents[i], txn)) {
            return error_no_memory(err);
        }
    }
    row->record.revision = txn->next;
    return BELAY_OK;
}

/* ---- events ---- */

/* The fields that the events take from the record as it was before the batch. */
static unsigned fields_asked_for(const struct belay_batch *batch)
{
    unsigned fields = 0;

    for (size_t i = 0; i < batch->n_events; i++) {
        fields |= batch->events[i].locked_by == NULL ? BELAY_SET_OWNER : 0;
        fields |= batch->events[i].token == 0 || batch->events[i].metadata == NULL ? BELAY_SET_IDENTITY : 0;
    }
    return fields;
}

/* The write whose record completes the event. */
static size_t write_of_event(const struct belay_batch *batch, const struct belay_event *event)
{
    for (size_t i = 0; i < batch->n_writes; i++) {
        if (strcmp(batch->writes[i].key, event->key) == 0) {
            return i;
        }
    }
    return 0;
}

/* Remember a string; copy it if the batch replaces it. */
static bool keep_before(const char *text, bool is_replaced, const char **out_text, char **out_kept)
{
    if (is_replaced) {
        *out_kept = strdup(text);
        text = *out_kept;
    }
    *out_text = text;
    return text != NULL;
}

/* The write does not change the metadata, but may free the memory that it is in. */
static bool keep_metadata(struct before *before)
{
    before->kept_metadata = meta_copy(before->metadata, before->n_metadata);
    before->metadata = before->kept_metadata;
    return before->metadata != NULL || before->n_metadata == 0;
}

/* Keeps the fields of the write's record that events need, before the write changes them. False: no memory. */
static bool remember_before(struct batch_work *work, size_t at, unsigned asked_for)
{
    const struct belay_write *write = &work->batch->writes[at];
    const struct belay_record *record = &work->rows[at].record;
    const struct belay_holder *holder = write->co_holder ? holder_find(record, write->lock_id) : NULL;
    struct before *before = &work->before[at];
    struct belay_record one;
    /* One of several holders can leave the list, or the record's own fields. */
    bool can_move = write->co_holder || write->n_drop_holders > 0;
    bool ok = true;

    before->is_known = true;
    before->held_ms = -1;
    if (write->co_holder ? holder == NULL : record->revision == 0) {
        return true;
    }
    if (holder != NULL) {
        one = holder_as_record(holder, record);
        record = &one;
    }
    before->token = record->token;
    before->held_ms = sub_saturated(work->txn.unix_ms, record->locked_at_unix_ms);
    if ((write->set & BELAY_SET_METADATA) == 0) {
        before->metadata = record->metadata;
        before->n_metadata = record->n_metadata;
        before->new_id = (write->set & BELAY_SET_IDENTITY) != 0 ? write->values->lock_id : NULL;
        ok = !can_move || keep_metadata(before);
    }
    if (ok && (asked_for & BELAY_SET_IDENTITY) != 0) {
        ok = keep_before(record->lock_id, can_move || (write->set & BELAY_SET_IDENTITY) != 0,
                         &before->lock_id, &before->kept[0]);
    }
    if (ok && (asked_for & BELAY_SET_OWNER) != 0) {
        bool is_replaced = can_move || (write->set & BELAY_SET_OWNER) != 0;

        ok = keep_before(record->owner, is_replaced, &before->owner, &before->kept[1]) &&
             keep_before(record->owner_name, is_replaced, &before->owner_name, &before->kept[2]);
    }
    return ok;
}

static bool is_of_before(const struct belay_event *event, const struct before *before)
{
    return event->lock_id != NULL && before->lock_id != NULL && strcmp(event->lock_id, before->lock_id) == 0;
}

static bool keeps_metadata_of_before(const struct belay_event *event, const struct before *before)
{
    return is_of_before(event, before) ||
           (event->lock_id != NULL && before->new_id != NULL && strcmp(event->lock_id, before->new_id) == 0);
}

/* The event as it is stored, completed from the transaction and the record before. */
static struct belay_event event_complete(const struct batch_work *work, size_t index)
{
    const struct txn *txn = &work->txn;
    struct belay_event event = work->batch->events[index];
    const struct before *before = &work->before[write_of_event(work->batch, &event)];

    event.id = txn->next + index;
    event.at_unix_ms = txn->unix_ms;
    if (event.token == BELAY_TOKEN_OF_BATCH) {
        event.token = txn->next;
    } else if (event.token == 0 && is_of_before(&event, before)) {
        event.token = before->token;
    }
    if (event.locked_by == NULL) {
        event.locked_by = before->owner;
        event.locked_by_name = before->owner_name;
    }
    if (event.metadata == NULL && keeps_metadata_of_before(&event, before)) {
        event.metadata = before->metadata;
        event.n_metadata = before->n_metadata;
    }
    if (event.duration_ms == BELAY_DURATION_HELD) {
        event.duration_ms = before->held_ms;
    }
    return event;
}

/* Whether the record's present or last holder, or one of several, has that id. */
static bool record_names(const struct belay_record *record, const char *lock_id)
{
    return record->revision != 0 &&
           (strcmp(record->lock_id, lock_id) == 0 || holder_find(record, lock_id) != NULL);
}

bool event_takes(const struct belay_event *event)
{
    return strcmp(event->type, "lock.acquired") == 0 || strcmp(event->type, "lock.adopted") == 0;
}

/* ---- a batch ---- */

enum belay_code batch_begin(struct batch_work *work, const struct belay_batch *batch, struct belay_error *err)
{
    size_t n = batch->n_writes == 0 ? 1 : batch->n_writes;
    size_t n_events = batch->n_events;

    memset(work, 0, offsetof(struct batch_work, few_rows));
    work->batch = work->asked = batch;
    work->rows = n <= BATCH_FEW ? work->few_rows : calloc(n, sizeof *work->rows);
    work->before = n <= BATCH_FEW ? work->few_before : calloc(n, sizeof *work->before);
    work->events = n_events <= BATCH_FEW ? work->few_events : calloc(n_events, sizeof *work->events);
    work->records = malloc(n * sizeof *work->records); /* batch_answer() fills them */
    if (n <= BATCH_FEW) {
        memset(work->rows, 0, n * sizeof *work->rows);
        memset(work->before, 0, n * sizeof *work->before);
    }
    if (work->rows == NULL || work->before == NULL || work->events == NULL || work->records == NULL) {
        batch_release(work);
        return error_no_memory(err);
    }
    return BELAY_OK;
}

void batch_release(struct batch_work *work)
{
    for (size_t i = 0; work->rows != NULL && i < work->batch->n_writes; i++) {
        row_release(&work->rows[i]);
    }
    for (size_t i = 0; work->before != NULL && i < work->batch->n_writes; i++) {
        struct before *before = &work->before[i];

        for (size_t k = 0; before->is_known && k < sizeof before->kept / sizeof before->kept[0]; k++) {
            free(before->kept[k]);
        }
        meta_free(before->kept_metadata, before->n_metadata);
    }
    if (work->rows != work->few_rows) {
        free(work->rows);
    }
    if (work->before != work->few_before) {
        free(work->before);
    }
    if (work->events != work->few_events) {
        free(work->events);
    }
    free(work->records);
    free(work->found_writes);
}

enum belay_code batch_check_unused(const struct batch_work *work, id_used_fn is_used, void *context,
                                   struct belay_error *err)
{
    const char *id = work->batch->require_unused_id;

    for (size_t i = 0; id != NULL && i < work->batch->n_writes; i++) {
        const struct belay_write *write = &work->batch->writes[i];
        bool used;

        if (i > 0 && (write->set & BELAY_SET_ACQUIRED) == 0) {
            continue; /* it is about an ancestor */
        }
        used = record_names(&work->rows[i].record, id);
        if (!used) {
            enum belay_code code = is_used(context, write->key, id, &used, err);

            if (code != BELAY_OK) {
                return code;
            }
        }
        if (used) {
            return error_set(err, BELAY_ID_USED, "lock id '%s' has already had '%s'; take a new one", id,
                             write->key);
        }
    }
    return BELAY_OK;
}

bool batch_must_last(const struct batch_work *work)
{
    bool must = false;

    for (size_t i = 0; !must && i < work->batch->n_writes; i++) {
        must = write_must_last(&work->batch->writes[i], &work->rows[i].record);
    }
    return must;
}

enum belay_code batch_apply(struct batch_work *work, const bool *has_liveness, struct belay_error *err)
{
    const struct belay_batch *batch = work->batch;
    unsigned asked_for = fields_asked_for(batch);
    enum belay_code code = BELAY_OK;

    work->before[0].held_ms = -1;
    for (size_t i = 0; code == BELAY_OK && batch->n_writes > 0 && i < batch->n_events; i++) {
        size_t at = write_of_event(batch, &batch->events[i]);

        if (!work->before[at].is_known && !remember_before(work, at, asked_for)) {
            code = error_no_memory(err);
        }
    }
    for (size_t i = 0; code == BELAY_OK && i < batch->n_writes; i++) {
        struct row *row = &work->rows[i];

        assert(row->record.key != NULL); /* the store has loaded it */
        row->is_changed = !write_leaves_alone(&batch->writes[i], &row->record);
        if (row->is_changed) {
            code =
                write_apply(&batch->writes[i], &work->txn, has_liveness == NULL || has_liveness[i], row, err);
        }
    }
    for (size_t i = 0; code == BELAY_OK && i < batch->n_events; i++) {
        work->events[i] = event_complete(work, i);
    }
    return code;
}

enum belay_code batch_pack(struct batch_work *work, struct buf *scratch, struct belay_error *err)
{
    for (size_t i = 0; i < work->batch->n_writes; i++) {
        struct row *row = &work->rows[i];

        if (!row->is_changed) {
            continue;
        }
        assert(row->packed == NULL);
        scratch->len = 0;
        scratch->failed = false;
        record_pack(scratch, &row->record);
        row->packed = scratch->failed ? NULL : malloc(scratch->len);
        if (row->packed == NULL) {
            return error_no_memory(err);
        }
        memcpy(row->packed, scratch->data, scratch->len);
        row->packed_len = scratch->len;
    }
    return BELAY_OK;
}

void batch_answer(struct batch_work *work, enum belay_code code, struct belay_commit *out)
{
    const struct belay_batch *batch = work->batch;
    bool done = code == BELAY_OK;
    size_t first = done ? 0 : work->refused;
    struct belay_commit answer = {
        .now_ms = work->txn.now_ms,
        .refused = first,
        .records = work->records,
        .n_records = done ? batch->n_writes : 1,
        .event_id = done && batch->n_events > 0 ? work->txn.next : 0,
        .events_at_unix_ms = done && batch->n_events > 0 ? work->txn.unix_ms : 0,
    };

    if (code == BELAY_FROZEN) {
        *out = work->frozen;
    }
    if (!done && code != BELAY_REFUSED) {
        return;
    }
    assert(done || work->refused < batch->n_writes);
    work->records = NULL; /* the answer's now */
    for (size_t i = 0; i < answer.n_records; i++) {
        answer.records[i] = work->rows[first + i].record;
        memset(&work->rows[first + i].record, 0, sizeof answer.records[i]);
    }
    for (size_t i = 0; done && i < batch->n_writes; i++) {
        if ((batch->writes[i].set & BELAY_SET_IDENTITY) != 0) {
            answer.token = work->txn.next;
        }
    }
    *out = answer;
}
