/*
 * The batches that are sent most: one write that acquires, releases or renews an exclusive lock of a
 * key without ancestors or waiters of its own, and the event that the core makes of it. Their values are parameters instead of
 * JSON, and functions.sql has functions for them that change the row without reading it first.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

/* The parameters of acquire() and change(): the same first ones, then their own. */
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
    NOTES_REFUSAL,
    ACQUIRE_REASON,
    ACQUIRE_VALUES
};
enum { CONDITION = OWN, OUTCOME_OR_TTL, LEVEL, TYPE, BY, REASON, DURATION, CHANNEL, HERE, CHANGE_VALUES };
static_assert((int)NOTES_REFUSAL == (int)PG_HOLDER_END, "what follows the holder");
static_assert((int)ACQUIRE_VALUES <= (int)PG_ARGUMENTS_MAX && (int)CHANGE_VALUES <= (int)PG_ARGUMENTS_MAX,
              "they fit");

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

/* The event says no more than the record does, or than the parameters. No name (NULL) is not an empty one. */
static bool has_own_event(const struct belay_batch *batch)
{
    const struct belay_write *write = &batch->writes[0];
    const struct belay_event *event = &batch->events[0];
    const struct belay_record *values = write->values;

    if (strcmp(event->key, write->key) != 0 || !text_is_same(event->lock_id, id_of(write))) {
        return false;
    }
    if (write->condition != BELAY_IF_FREE) {
        return event->metadata == NULL && event->locked_by == NULL && event->token == 0;
    }
    return strcmp(event->type, "lock.acquired") == 0 && event->level == BELAY_LEVEL_INFO &&
           event->by == NULL && event->token == BELAY_TOKEN_OF_BATCH && event->duration_ms == -1 &&
           event->locked_by != NULL && event->locked_by_name != NULL &&
           text_is_same(event->locked_by, values->owner) &&
           text_is_same(event->locked_by_name, values->owner_name) &&
           event->n_metadata == values->n_metadata &&
           (event->metadata == values->metadata || event->n_metadata == 0);
}

bool pg_is_change(const struct belay_batch *batch)
{
    return batch->n_writes == 1 && batch->n_events == 1 && is_plain(&batch->writes[0]) &&
           is_known(&batch->writes[0]) && has_own_event(batch) &&
           (batch->require_unused_id == NULL ||
            (batch->writes[0].condition == BELAY_IF_FREE &&
             strcmp(batch->require_unused_id, id_of(batch->writes)) == 0));
}

const char *pg_argument_number(struct pg_arguments *args, size_t i, int64_t value)
{
    return signed_number_text(args->numbers[i], value);
}

bool pg_fill_holder(struct pg_arguments *args, const struct belay_batch *batch)
{
    const struct belay_record *values = batch->writes[0].values;
    const char **to = args->values;

    to[ID] = values->lock_id;
    to[CREDENTIAL] = text_or_empty(values->acquired_by);
    to[OWNER] = text_or_empty(values->owner);
    to[NAME] = text_or_empty(values->owner_name);
    to[DURABLE] = values->durable ? "t" : "f";
    to[HEARTBEAT] = pg_argument_number(args, 2, values->heartbeat_ms);
    to[STALE_AFTER] = pg_argument_number(args, 3, values->stale_after_ms);
    to[TTL] = pg_argument_number(args, 4, values->ttl_ms);
    to[FREEZES] = batch->check_freezes ? "t" : "f";
    to[MUST_BE_NEW] = batch->require_unused_id != NULL ? "t" : "f";
    if (values->n_metadata > 0) {
        to[METADATA] = args->texts[0] = pg_meta_text(values->metadata, values->n_metadata);
    }
    return values->n_metadata == 0 || args->texts[0] != NULL;
}

static void write_change_values(struct pg_arguments *args, const struct pg_store *store,
                                const struct belay_batch *batch)
{
    const struct belay_write *write = &batch->writes[0];
    const struct belay_event *event = &batch->events[0];
    bool is_release = write->condition == BELAY_IF_HELD_BY;
    const char **to = args->values;

    to[ID] = write->lock_id;
    to[CONDITION] = pg_argument_number(args, 1, write->condition);
    to[OUTCOME_OR_TTL] =
        pg_argument_number(args, 2, is_release ? (int64_t)write->values->outcome : write->values->ttl_ms);
    to[LEVEL] = pg_argument_number(args, 3, event->level);
    to[TYPE] = event->type;
    to[BY] = event->by;
    to[REASON] = event->reason;
    to[DURATION] = pg_argument_number(args, 4, event->duration_ms);
    to[CHANNEL] = store->channel;
    to[HERE] = store->here;
}

enum belay_code pg_write_change(const struct pg_store *store, const struct belay_batch *batch,
                                int64_t deadline_ms, struct pg_arguments *out_args, struct belay_error *err)
{
    bool acquires = batch->writes[0].condition == BELAY_IF_FREE;
    const char **to = out_args->values;
    bool ok = true;

    assert(pg_is_change(batch));
    memset(out_args, 0, sizeof *out_args);
    out_args->statement = acquires ? PG_ACQUIRE : PG_CHANGE;
    out_args->n = acquires ? (int)ACQUIRE_VALUES : (int)CHANGE_VALUES;
    to[KEY] = batch->writes[0].key;
    to[DEADLINE] = pg_argument_number(out_args, 0, deadline_ms);
    if (acquires) {
        ok = pg_fill_holder(out_args, batch);
        to[NOTES_REFUSAL] = batch->note_refusal ? "t" : "f";
        to[ACQUIRE_REASON] = batch->events[0].reason;
    } else {
        write_change_values(out_args, store, batch);
    }
    if (!ok) {
        pg_arguments_release(out_args);
        return error_set(err, BELAY_INVALID, "metadata must be valid UTF-8 (or there is no memory left)");
    }
    return BELAY_OK;
}

void pg_arguments_release(struct pg_arguments *args)
{
    free(args->texts[0]);
    free(args->texts[1]);
    memset(args, 0, sizeof *args);
}
