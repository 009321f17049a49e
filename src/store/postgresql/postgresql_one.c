/*
 * The batches that are sent most: one write that acquires, releases or renews an exclusive lock of a
 * key without ancestors or waiters of its own, and its event. Their values are parameters instead of
 * JSON, and functions.sql has functions for them that change the row without reading it first.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

/* The parameters of acquire() and change(): the same first ones, then their own, then the event's. */
enum { KEY, DEADLINE, ID, OWN };
enum {
    CREDENTIAL = OWN,
    OWNER,
    NAME,
    METADATA,
    DURABLE,
    HEARTBEAT,
    STALE_AFTER,
    TTL,
    FREEZES,
    MUST_BE_NEW,
    ACQUIRE_EVENT
};
static_assert((int)ACQUIRE_EVENT == (int)PG_HOLDER_END, "what follows the holder");
enum { CONDITION = OWN, OUTCOME_OR_TTL, CHANGE_EVENT };
enum { E_LEVEL, E_TYPE, E_TOKEN, E_OWNER, E_NAME, E_BY, E_REASON, E_DURATION, E_METADATA, E_VALUES };
enum { CHANNEL = CHANGE_EVENT + E_VALUES, HERE, CHANGE_VALUES };
enum { NOTES_REFUSAL = ACQUIRE_EVENT + E_VALUES, ACQUIRE_VALUES };
static_assert((int)ACQUIRE_VALUES == (int)PG_ONE_VALUES, "acquire() has the most");

static bool is_plain(const struct belay_write *write)
{
    return !write->co_holder && write->n_drop_tickets == 0 && write->n_drop_intents == 0 &&
           write->n_drop_holders == 0 && write->put_ticket == NULL && write->n_put_intents == 0;
}

static bool is_known(const struct belay_write *write)
{
    switch (write->condition) {
    case BELAY_IF_FREE:
        return write->set == BELAY_SET_HOLDER;
    case BELAY_IF_HELD_BY:
        return write->set == BELAY_SET_RELEASED && write->lock_id != NULL;
    case BELAY_IF_LIVE_BY:
        return write->set == BELAY_SET_LEASE && write->lock_id != NULL;
    default:
        return false;
    }
}

/* The id that acquires, or holds. */
static const char *id_of(const struct belay_write *write)
{
    return write->condition == BELAY_IF_FREE ? write->values->lock_id : write->lock_id;
}

bool pg_is_one(const struct belay_batch *batch)
{
    const struct belay_event *event = batch->events;

    return batch->n_writes == 1 && batch->n_events <= 1 && is_plain(&batch->writes[0]) &&
           is_known(&batch->writes[0]) &&
           (batch->require_unused_id == NULL ||
            (batch->writes[0].condition == BELAY_IF_FREE &&
             strcmp(batch->require_unused_id, id_of(batch->writes)) == 0)) &&
           (batch->n_events == 0 ||
            (strcmp(event->key, batch->writes[0].key) == 0 && event->lock_id != NULL &&
             strcmp(event->lock_id, id_of(&batch->writes[0])) == 0 &&
             (event->locked_by != NULL || batch->writes[0].condition != BELAY_IF_FREE)));
}

const char *pg_one_number(struct pg_one *one, size_t i, int64_t value)
{
    (void)snprintf(one->numbers[i], sizeof one->numbers[i], "%" PRId64, value);
    return one->numbers[i];
}

bool pg_one_fill_holder(struct pg_one *one, const struct belay_batch *batch)
{
    const struct belay_record *values = batch->writes[0].values;
    const char **to = one->values;

    to[ID] = values->lock_id;
    to[CREDENTIAL] = text_or_empty(values->acquired_by);
    to[OWNER] = text_or_empty(values->owner);
    to[NAME] = text_or_empty(values->owner_name);
    to[DURABLE] = values->durable ? "t" : "f";
    to[HEARTBEAT] = pg_one_number(one, 2, values->heartbeat_ms);
    to[STALE_AFTER] = pg_one_number(one, 3, values->stale_after_ms);
    to[TTL] = pg_one_number(one, 4, values->ttl_ms);
    to[FREEZES] = batch->check_freezes ? "t" : "f";
    to[MUST_BE_NEW] = batch->require_unused_id != NULL ? "t" : "f";
    if (values->n_metadata > 0) {
        to[METADATA] = one->texts[0] = pg_meta_text(values->metadata, values->n_metadata);
    }
    return values->n_metadata == 0 || one->texts[0] != NULL;
}

static bool fill_event(struct pg_one *one, const char **to, const struct belay_event *event)
{
    bool is_granted = event->token == BELAY_TOKEN_OF_BATCH;

    to[E_LEVEL] = pg_one_number(one, 5, event->level);
    to[E_TYPE] = event->type;
    to[E_TOKEN] = pg_one_number(one, 6, is_granted ? -1 : (int64_t)event->token);
    to[E_OWNER] = event->locked_by;
    to[E_NAME] = event->locked_by_name;
    to[E_BY] = event->by;
    to[E_REASON] = event->reason;
    to[E_DURATION] = pg_one_number(one, 7, event->duration_ms);
    if (event->metadata != NULL) {
        to[E_METADATA] = one->texts[1] = pg_meta_text(event->metadata, event->n_metadata);
    }
    return event->metadata == NULL || one->texts[1] != NULL;
}

enum belay_code pg_write_one(const struct pg_store *store, const struct belay_batch *batch,
                             int64_t deadline_ms, struct pg_one *out_one, struct belay_error *err)
{
    const struct belay_write *write = &batch->writes[0];
    const char **to = out_one->values;
    int event_at = write->condition == BELAY_IF_FREE ? (int)ACQUIRE_EVENT : (int)CHANGE_EVENT;
    bool ok = true;

    memset(out_one, 0, sizeof *out_one);
    to[KEY] = write->key;
    to[DEADLINE] = pg_one_number(out_one, 0, deadline_ms);
    to[ID] = id_of(write);
    if (write->condition == BELAY_IF_FREE) {
        out_one->statement = PG_ACQUIRE;
        out_one->n = ACQUIRE_VALUES;
        to[NOTES_REFUSAL] = batch->note_refusal && batch->n_events > 0 ? "t" : "f";
        ok = pg_one_fill_holder(out_one, batch);
    } else {
        out_one->statement = PG_CHANGE;
        out_one->n = CHANGE_VALUES;
        to[CHANNEL] = store->channel;
        to[HERE] = store->here;
        to[CONDITION] = pg_one_number(out_one, 2, write->condition);
        to[OUTCOME_OR_TTL] = pg_one_number(
            out_one, 1,
            write->condition == BELAY_IF_HELD_BY ? (int64_t)write->values->outcome : write->values->ttl_ms);
    }
    if (ok && batch->n_events > 0) {
        ok = fill_event(out_one, to + event_at, &batch->events[0]);
    }
    if (!ok) {
        pg_one_release(out_one);
        return error_set(err, BELAY_INVALID, "metadata must be valid UTF-8 (or there is no memory left)");
    }
    return BELAY_OK;
}

void pg_one_release(struct pg_one *one)
{
    free(one->texts[0]);
    free(one->texts[1]);
    memset(one, 0, sizeof *one);
}
