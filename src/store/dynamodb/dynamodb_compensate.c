/* Reverts a batch that acquires, queues or renews, when the clock turned out to be wrong. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/dynamodb/dynamodb_plan.h"

/* The inverse of one write, and the data it refers to. */
struct inverse {
    struct belay_write write;
    struct belay_record values;
    struct belay_put_intent intents[BELAY_KEYS_MAX];
    const char *ids[BELAY_KEYS_MAX]; /* of the intents that are dropped */
};

static void drop_put_intents(const struct belay_write *write, struct inverse *back)
{
    assert(write->n_put_intents <= BELAY_KEYS_MAX);
    for (size_t i = 0; i < write->n_put_intents; i++) {
        back->ids[i] = write->put_intents[i].lock_id;
    }
    back->write.drop_intents = back->ids;
    back->write.n_drop_intents = write->n_put_intents;
}

/* The write acquired the lock: release it. */
static void invert_acquire(const struct belay_write *write, struct inverse *back)
{
    back->values.outcome = BELAY_OUTCOME_FAILED;
    if ((write->set & BELAY_SET_ACQUIRED) != 0) {
        back->write.condition = BELAY_IF_HELD_BY;
        back->write.lock_id = write->values->lock_id;
        back->write.co_holder = write->co_holder;
        back->write.set = BELAY_SET_RELEASED;
    }
    if (write->put_ticket != NULL) {
        back->write.drop_tickets = &write->put_ticket->lock_id;
        back->write.n_drop_tickets = 1;
    }
    drop_put_intents(write, back);
}

/*
 * The write renewed a lock that was held before and stays held: write its lease again by the
 * right clock, and restore an id that was exchanged.
 */
static void invert_renewal(const struct belay_batch *batch, const struct belay_write *write,
                           struct inverse *back)
{
    const struct belay_write *first = &batch->writes[0];
    bool exchanged = (first->set & BELAY_SET_IDENTITY) != 0;

    assert(write->n_put_intents <= BELAY_KEYS_MAX);
    if ((write->set & BELAY_SET_LEASE) != 0) {
        back->values.ttl_ms = write->values->ttl_ms;
        back->values.lock_id = (char *)write->lock_id;
        back->write.condition = BELAY_IF_HELD_BY;
        back->write.co_holder = write->co_holder;
        back->write.lock_id = exchanged ? write->values->lock_id : write->lock_id;
        back->write.set = exchanged ? BELAY_SET_LEASE | BELAY_SET_IDENTITY : BELAY_SET_LEASE;
    }
    for (size_t i = 0; i < write->n_put_intents; i++) {
        back->intents[i] = write->put_intents[i];
        if (exchanged && i < write->n_drop_intents) {
            back->intents[i].lock_id = write->drop_intents[i]; /* the one that it replaced */
        }
    }
    back->write.put_intents = back->intents;
    back->write.n_put_intents = write->n_put_intents;
    if (exchanged) {
        drop_put_intents(write, back);
    }
}

bool compensation_make(struct compensation *compensation, const struct belay_batch *batch)
{
    bool prolongs = (batch->writes[0].set & (BELAY_SET_ACQUIRED | BELAY_SET_LEASE)) == BELAY_SET_LEASE;
    struct belay_write *writes = calloc(batch->n_writes, sizeof *writes);
    struct inverse *back = calloc(batch->n_writes, sizeof *back);

    assert(batch->n_writes > 0);
    *compensation = (struct compensation){ { .writes = writes, .n_writes = batch->n_writes }, writes, back };
    if (writes == NULL || back == NULL) {
        return false;
    }
    for (size_t i = 0; i < batch->n_writes; i++) {
        back[i].write = (struct belay_write){ .key = batch->writes[i].key, .values = &back[i].values };
        if (prolongs) {
            invert_renewal(batch, &batch->writes[i], &back[i]);
        } else {
            invert_acquire(&batch->writes[i], &back[i]);
        }
        writes[i] = back[i].write;
    }
    return true;
}

void compensation_release(struct compensation *compensation)
{
    free(compensation->writes);
    free(compensation->inverses);
    memset(compensation, 0, sizeof *compensation);
}
