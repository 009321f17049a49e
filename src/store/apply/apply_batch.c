/* A batch of conditional writes, all or none: their check, the events that they complete, and the answer. */
#include "store/apply/apply_internal.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/saturate.h"
#include "base/text.h"

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

/* ---- the check ---- */

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

    assert(!work->batch->check_freezes || freezes != NULL);
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
        if (!write_may_happen(write, &work->rows[i].record, work->txn.now_ms)) {
            work->refused = i;
            return error_set(err, BELAY_REFUSED, "the condition on '%s' does not hold", write->key);
        }
    }
    return BELAY_OK;
}

/* Whether the record's present or last holder, or one of several, has that id. */
static bool record_names(const struct belay_record *record, const char *lock_id)
{
    return record->revision != 0 &&
           (strcmp(record->lock_id, lock_id) == 0 || holder_find(record, lock_id) != NULL);
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

    assert(index < work->batch->n_events);
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

bool event_takes(const struct belay_event *event)
{
    return strcmp(event->type, "lock.acquired") == 0 || strcmp(event->type, "lock.adopted") == 0;
}

/* ---- the change and its answer ---- */

/* The promises of the client about a write that it sends. Entries of a journal do not come here. */
static void assert_write(const struct belay_write *write)
{
    const unsigned ends = BELAY_SET_RELEASED;

    assert(write->key != NULL && (write->set == 0 || write->values != NULL));
    assert((write->set & BELAY_SET_ACQUIRED) == 0 || (write->set & ends) == 0);
    assert((write->set & BELAY_SET_IDENTITY) == 0 || write->values->lock_id != NULL);
    assert((write->set & BELAY_SET_LEASE) == 0 || write->values->ttl_ms >= 0);
    assert(write->n_put_intents <= BELAY_KEYS_MAX);
    assert(write->put_ticket == NULL ||
           (write->put_ticket->lock_id != NULL && write->put_ticket->ttl_ms >= 0));
}

/*
 * The promises of the store about the record that a write has changed, whatever it was before: that was
 * read from a file, and is not asserted.
 */
static void assert_written(const struct belay_write *write, const struct txn *txn, const struct row *row)
{
    const struct belay_record *record = &row->record;
    bool is_acquired = (write->set & BELAY_SET_ACQUIRED) != 0;
    bool is_alone = !write->co_holder && record->n_holders == 0; /* the sets are about the record itself */

    assert(record->revision == txn->next && txn->next > 0);
    assert(!is_acquired || (record->held && record->outcome == BELAY_OUTCOME_NONE));
    assert(!is_acquired || write->co_holder == (record->n_holders > 0));
    assert(!is_acquired || record->mode == (write->co_holder ? write->values->mode : BELAY_EXCLUSIVE));
    assert(record->n_holders == 0 || record->held);
    assert(!is_alone || (write->set & BELAY_SET_IDENTITY) == 0 || record->token == txn->next);
    assert(!is_alone || (write->set & BELAY_SET_LEASE) == 0 || record->last_heartbeat_ms == txn->now_ms);
    assert(!is_alone || (write->set & BELAY_SET_RELEASED) == 0 || !record->held);
    assert((write->set & BELAY_SET_FREED) == 0 || record->freed_ms == txn->now_ms);

    assert(write->put_ticket == NULL || record->n_tickets > 0);
    assert(write->n_put_intents == 0 || record->n_intents > 0);
    assert(record->n_tickets == 0 || row->has_liveness != NULL);
}

enum belay_code batch_apply(struct batch_work *work, const bool *has_liveness, struct belay_error *err)
{
    const struct belay_batch *batch = work->batch;
    unsigned asked_for = fields_asked_for(batch);
    enum belay_code code = BELAY_OK;

    assert(work->txn.next > 0 && work->refused == 0);
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
        assert_write(&batch->writes[i]);
        row->is_changed = !write_leaves_alone(&batch->writes[i], &row->record);
        if (row->is_changed) {
            code =
                write_apply(&batch->writes[i], &work->txn, has_liveness == NULL || has_liveness[i], row, err);
        }
        if (row->is_changed && code == BELAY_OK) {
            assert_written(&batch->writes[i], &work->txn, row);
        }
    }
    for (size_t i = 0; code == BELAY_OK && i < batch->n_events; i++) {
        work->events[i] = event_complete(work, i);
    }
    return code;
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
        assert(work->frozen.frozen != NULL);
        *out = work->frozen;
    }
    if (!done && code != BELAY_REFUSED) {
        return;
    }
    assert(done || work->refused < batch->n_writes);
    assert(work->records != NULL); /* it answers once */
    work->records = NULL;          /* the answer's now */
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
