/*
 * The batches of a waiter, for an exclusive lock of a key without ancestors: to put or renew its ticket,
 * and to take its turn. functions.sql has queue() and claim() for them.
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

/* The parameters of both, of queue() and of claim(). */
enum { KEY, DEADLINE, OWN };
enum { TICKET = OWN, QUEUE_MUST_BE_NEW, BEGAN_LEVEL, BEGAN_TYPE, BEGAN_REASON, BEGAN_METADATA, QUEUE_VALUES };
enum { LEVEL = PG_HOLDER_END, WAITED, REASON, CLAIM_VALUES };
static_assert((int)CLAIM_VALUES <= (int)PG_ARGUMENTS_MAX && (int)QUEUE_VALUES <= (int)PG_ARGUMENTS_MAX,
              "they fit");

static bool same(const char *a, const char *b)
{
    return strcmp(text_or_empty(a), text_or_empty(b)) == 0;
}

/* The event is the waiter's, and says what the parameters do. No name (NULL) is not an empty one. */
static bool is_own_event(const struct belay_event *event, const char *type, const char *key, const char *id,
                         const char *owner, const char *owner_name)
{
    return strcmp(event->type, type) == 0 && strcmp(event->key, key) == 0 && same(event->lock_id, id) &&
           event->locked_by != NULL && same(event->locked_by, owner) && event->locked_by_name != NULL &&
           same(event->locked_by_name, owner_name) && event->by == NULL;
}

static bool has_metadata(const struct belay_event *event, const struct belay_record *values)
{
    return event->n_metadata == values->n_metadata &&
           (event->n_metadata == 0 || event->metadata == values->metadata);
}

static bool drops_only(const struct belay_write *write, const char *id)
{
    return write->n_drop_tickets == 1 && strcmp(write->drop_tickets[0], id) == 0;
}

static bool is_queue(const struct belay_batch *batch)
{
    const struct belay_write *write = &batch->writes[0];
    const struct belay_put_ticket *put = write->put_ticket;

    return write->condition == BELAY_IF_OCCUPIED && write->set == 0 && write->n_drop_tickets == 0 &&
           put != NULL && !put->joint && put->mode == BELAY_EXCLUSIVE && strcmp(put->key, write->key) == 0 &&
           (batch->require_unused_id == NULL || strcmp(batch->require_unused_id, put->lock_id) == 0) &&
           (batch->n_events == 0 ||
            (batch->n_events == 1 && batch->events[0].token == 0 && batch->events[0].duration_ms == -1 &&
             is_own_event(&batch->events[0], "wait.began", write->key, put->lock_id, put->owner,
                          put->owner_name)));
}

static bool is_claim(const struct belay_batch *batch)
{
    const struct belay_write *write = &batch->writes[0];
    const struct belay_record *values = write->values;
    const struct belay_event *events = batch->events;

    return write->condition == BELAY_IF_NEXT && write->set == BELAY_SET_HOLDER && write->put_ticket == NULL &&
           !write->co_holder && strcmp(values->lock_id, write->lock_id) == 0 &&
           drops_only(write, write->lock_id) && batch->n_events == 2 &&
           (batch->require_unused_id == NULL || strcmp(batch->require_unused_id, write->lock_id) == 0) &&
           is_own_event(&events[0], "wait.ended", write->key, write->lock_id, values->owner,
                        values->owner_name) &&
           is_own_event(&events[1], "lock.acquired", write->key, write->lock_id, values->owner,
                        values->owner_name) &&
           same(events[0].reason, "acquired") && events[0].level == events[1].level &&
           events[1].token == BELAY_TOKEN_OF_BATCH && events[1].duration_ms == -1 &&
           has_metadata(&events[0], values) && has_metadata(&events[1], values);
}

bool pg_is_queue_batch(const struct belay_batch *batch)
{
    const struct belay_write *write = batch->writes;

    return batch->n_writes == 1 && write->n_drop_intents == 0 && write->n_drop_holders == 0 &&
           write->n_put_intents == 0 && (is_queue(batch) || is_claim(batch));
}

static bool fill_queue(struct pg_arguments *args, const struct pg_store *store,
                       const struct belay_batch *batch)
{
    const char **to = args->values;
    bool ok = true;

    args->statement = PG_QUEUE;
    args->n = QUEUE_VALUES;
    to[TICKET] = args->texts[0] = pg_ticket_text(batch->writes[0].put_ticket, store->here);
    to[QUEUE_MUST_BE_NEW] = batch->require_unused_id != NULL ? "t" : "f";
    if (batch->n_events > 0) {
        const struct belay_event *event = &batch->events[0];

        to[BEGAN_LEVEL] = pg_argument_number(args, 1, event->level);
        to[BEGAN_TYPE] = event->type;
        to[BEGAN_REASON] = event->reason;
        if (event->n_metadata > 0) {
            to[BEGAN_METADATA] = args->texts[1] = pg_meta_text(event->metadata, event->n_metadata);
            ok = args->texts[1] != NULL;
        }
    }
    return ok && args->texts[0] != NULL;
}

static bool fill_claim(struct pg_arguments *args, const struct belay_batch *batch)
{
    const char **to = args->values;

    args->statement = PG_CLAIM;
    args->n = CLAIM_VALUES;
    to[LEVEL] = pg_argument_number(args, 5, batch->events[0].level);
    to[WAITED] = pg_argument_number(args, 6, batch->events[0].duration_ms);
    to[REASON] = batch->events[1].reason;
    return pg_fill_holder(args, batch);
}

enum belay_code pg_write_queue_batch(const struct pg_store *store, const struct belay_batch *batch,
                                     int64_t deadline_ms, struct pg_arguments *out_args,
                                     struct belay_error *err)
{
    bool ok;

    memset(out_args, 0, sizeof *out_args);
    out_args->values[KEY] = batch->writes[0].key;
    out_args->values[DEADLINE] = pg_argument_number(out_args, 0, deadline_ms);
    ok = batch->writes[0].condition == BELAY_IF_NEXT ? fill_claim(out_args, batch)
                                                     : fill_queue(out_args, store, batch);
    if (!ok) {
        pg_arguments_release(out_args);
        return error_set(err, BELAY_INVALID,
                         "a lock's texts must be valid UTF-8 (or there is no memory left)");
    }
    return BELAY_OK;
}
