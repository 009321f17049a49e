/* Conditional writes: whether the condition holds, and the record after the write. */
#include "store/apply/apply_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/saturate.h"
#include "base/text.h"

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

static bool condition_holds(const struct belay_write *write, const struct belay_record *record,
                            int64_t now_ms)
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

bool write_may_happen(const struct belay_write *write, const struct belay_record *record, int64_t now_ms)
{
    return condition_holds(write, record, now_ms) && has_its_holder(write, record);
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

bool write_must_last(const struct belay_write *write, const struct belay_record *record)
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

enum belay_code write_apply(const struct belay_write *write, const struct txn *txn, bool has_liveness,
                            struct row *row, struct belay_error *err)
{
    bool has_holders = write->co_holder || row->record.n_holders > 0;
    bool ok = has_holders ? holders_apply(write, txn, &row->record)
                          : set_fields(&row->record, write->set, write->values, txn);

    if (!ok || !queue_apply(write, txn, has_liveness, row)) {
        return error_no_memory(err);
    }
    row->record.revision = txn->next;
    return BELAY_OK;
}
