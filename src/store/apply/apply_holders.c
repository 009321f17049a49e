/*
 * The holders of a lock that is shared or has slots. A write changes one of them as it
 * changes the record of an exclusive lock; then the record's own fields repeat the holder
 * whose lease ends last.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/apply/apply_internal.h"

struct belay_holder *holder_find(const struct belay_record *record, const char *lock_id)
{
    for (size_t i = 0; lock_id != NULL && i < record->n_holders; i++) {
        if (strcmp(record->holders[i].lock_id, lock_id) == 0) {
            return &record->holders[i];
        }
    }
    return NULL;
}

struct belay_record holder_as_record(const struct belay_holder *holder, const struct belay_record *record)
{
    return (struct belay_record){ .revision = record->revision,
                                  .held = true,
                                  .holder = *holder,
                                  .text = record->text,
                                  .text_size = record->text_size };
}

bool holders_must_last(const struct belay_write *write, const struct belay_record *record)
{
    bool ends_all = !write->co_holder && (write->set & BELAY_SET_ACQUIRED) != 0;

    for (size_t i = 0; i < write->n_drop_holders; i++) {
        const struct belay_holder *holder = holder_find(record, write->drop_holders[i]);

        if (holder != NULL && holder->durable) {
            return true;
        }
    }
    for (size_t i = 0; ends_all && i < record->n_holders; i++) {
        if (record->holders[i].durable) {
            return true;
        }
    }
    return false;
}

/* ---- the list ---- */

static void remove_holder(struct belay_record *record, struct belay_holder *holder)
{
    size_t after = (size_t)(record->holders + record->n_holders - holder) - 1;

    assert(holder >= record->holders && after < record->n_holders);
    free_record_text(record, holder->lock_id);
    free_record_text(record, holder->owner);
    free_record_text(record, holder->owner_name);
    free_record_text(record, holder->acquired_by);
    meta_free(holder->metadata, holder->n_metadata);
    memmove(holder, holder + 1, after * sizeof *holder);
    record->n_holders--;
}

/* Its token is the newest. */
static void move_to_end(struct belay_record *record, struct belay_holder *holder)
{
    struct belay_holder moved = *holder;
    size_t after = (size_t)(record->holders + record->n_holders - holder) - 1;

    assert(holder >= record->holders && after < record->n_holders);
    memmove(holder, holder + 1, after * sizeof *holder);
    record->holders[record->n_holders - 1] = moved;
}

/* The holder of that id, which is added if there is none; NULL: no memory. */
static struct belay_holder *find_or_add_holder(struct belay_record *record, const char *lock_id)
{
    struct belay_holder *found = holder_find(record, lock_id);
    struct belay_holder *holders;
    struct belay_holder added = {
        .lock_id = strdup(lock_id), .owner = strdup(""), .owner_name = strdup(""), .acquired_by = strdup("")
    };

    holders = found != NULL ? NULL : realloc(record->holders, (record->n_holders + 1) * sizeof *holders);
    record->holders = holders != NULL ? holders : record->holders;
    if (holders == NULL || added.lock_id == NULL || added.owner == NULL || added.owner_name == NULL ||
        added.acquired_by == NULL) {
        free(added.lock_id);
        free(added.owner);
        free(added.owner_name);
        free(added.acquired_by);
        return found;
    }
    holders[record->n_holders] = added;
    return &holders[record->n_holders++];
}

/* ---- the record's own fields ---- */

static const struct belay_holder *last_to_end(const struct belay_record *record)
{
    const struct belay_holder *last = &record->holders[0];

    assert(record->n_holders > 0);
    for (size_t i = 1; i < record->n_holders; i++) {
        if (record->holders[i].expires_ms > last->expires_ms) {
            last = &record->holders[i];
        }
    }
    return last;
}

/* False: no memory. */
static bool repeat_holder(struct belay_record *record, const struct belay_holder *holder)
{
    record->held = true;
    record->outcome = BELAY_OUTCOME_NONE;
    return belay_record_show(record, holder);
}

bool holders_repeat(struct belay_record *record)
{
    return record->n_holders == 0 || repeat_holder(record, last_to_end(record));
}

/* ---- a write ---- */

static bool set_holder_fields(const struct belay_write *write, const struct txn *txn,
                              struct belay_record *record, struct belay_holder *holder)
{
    struct belay_record one = holder_as_record(holder, record);
    bool done = set_fields(&one, write->set, write->values, txn);

    *holder = one.holder; /* done or not: what it owns may have moved */
    return done;
}

/* After the last release the record's own fields keep that holder. */
static bool release_co_holder(const struct belay_write *write, const struct txn *txn,
                              struct belay_record *record, struct belay_holder *holder)
{
    bool is_last = record->n_holders == 1;

    assert(write->co_holder && record->n_holders > 0);
    if (is_last && !repeat_holder(record, holder)) {
        return false;
    }
    if (write->values->outcome != BELAY_OUTCOME_FORCED &&
        !belay_record_note_released(record, holder->lock_id)) {
        return false;
    }
    remove_holder(record, holder);
    record->held = !is_last;
    record->outcome = is_last ? write->values->outcome : BELAY_OUTCOME_NONE;
    record->freed_ms = txn->now_ms;
    record->freed_at_unix_ms = txn->unix_ms;
    return true;
}

static bool change_holder(const struct belay_write *write, const struct txn *txn, struct belay_record *record)
{
    bool adds = (write->set & BELAY_SET_ACQUIRED) != 0;
    struct belay_holder *holder =
        adds ? find_or_add_holder(record, write->values->lock_id) : holder_find(record, write->lock_id);

    assert(write->co_holder);
    if ((write->set & BELAY_SET_FREED) != 0) {
        record->freed_ms = txn->now_ms;
        record->freed_at_unix_ms = txn->unix_ms;
    }
    if (holder == NULL) {
        return !adds;
    }
    if (adds) {
        record->mode = write->values->mode;
        record->slots = write->values->slots;
    }
    if (!set_holder_fields(write, txn, record, holder)) {
        return false;
    }
    if ((write->set & BELAY_SET_RELEASED) != 0) {
        return release_co_holder(write, txn, record, holder);
    }
    if ((write->set & BELAY_SET_IDENTITY) != 0) {
        move_to_end(record, holder);
    }
    return true;
}

static void drop_holders(const struct belay_write *write, struct belay_record *record)
{
    for (size_t i = 0; i < write->n_drop_holders; i++) {
        struct belay_holder *holder = holder_find(record, write->drop_holders[i]);

        if (holder != NULL) {
            remove_holder(record, holder);
            record->held = record->n_holders > 0;
        }
    }
}

bool holders_apply(const struct belay_write *write, const struct txn *txn, struct belay_record *record)
{
    bool done = true;

    drop_holders(write, record);
    if (write->co_holder) {
        done = change_holder(write, txn, record);
    } else if ((write->set & BELAY_SET_ACQUIRED) != 0) {
        while (record->n_holders > 0) {
            remove_holder(record, &record->holders[record->n_holders - 1]);
        }
        done = set_fields(record, write->set, write->values, txn);
    } else {
        /* No other set is about a lock that has several holders. */
        unsigned set = record->n_holders > 0 ? write->set & BELAY_SET_FREED : write->set;

        done = set_fields(record, set, write->values, txn);
    }
    return done && holders_repeat(record);
}
