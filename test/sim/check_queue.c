/* L4: waiters get the lock in order, without delay. */
#include <inttypes.h>
#include <string.h>

#include "sim/sim.h"

static int64_t store_now(const struct sim *sim)
{
    return SIM_STORE_EPOCH_MS + sim->t;
}

/*
 * Since when `key` and the locks that exclude it are free, by the store's clock; in
 * the future while one is held.
 */
static int64_t free_since(const struct sim *sim, const struct belay_record *records, size_t n, int key)
{
    int64_t since = 0;

    for (size_t i = 0; i < n; i++) {
        int other = sim_key_index(records[i].key);
        int64_t end = records[i].held ? records[i].expires_ms + sim->capabilities.margin_ms
                                      : SIM_STORE_EPOCH_MS + sim->keys[other].freed_t;

        if (sim_keys_conflict(key, other) && end > since) {
            since = end;
        }
    }
    return since;
}

/* By the store or its clock this waiter is dead. */
static bool is_gone(const struct sim *sim, const struct belay_ticket *ticket)
{
    const struct task *task = &sim->tasks[sim_id_number(ticket->lock_id)];
    bool crashed = task->gen != sim->clients[task->client].gen;

    return (crashed && !sim->swarm.dynamo) || store_now(sim) >= ticket->expires_ms;
}

/* It waits, and can act. Any other ticket is a ghost, which the waiters cannot know. */
static bool is_waiting(const struct sim *sim, const struct belay_ticket *ticket)
{
    const struct task *task = &sim->tasks[sim_id_number(ticket->lock_id)];

    return task->gen == sim->clients[task->client].gen && task->op_runs[SLOT_MAIN] &&
           task->act[SLOT_MAIN] == ACT_ACQUIRE && !task->op[SLOT_MAIN].cancelled &&
           sim_is_awake(sim, task->client);
}

/* Calls `fn` for each ticket in the way of `lock_id` on `key` that came before it. */
typedef void (*ticket_fn)(struct sim *sim, const struct belay_ticket *ticket, void *context);

static void each_ahead(struct sim *sim, const struct belay_record *records, size_t n, int key,
                       const char *lock_id, ticket_fn fn, void *context)
{
    for (size_t i = 0; i < n; i++) {
        int other = sim_key_index(records[i].key);
        bool own = other == key;

        if (!own && !(sim_keys_conflict(key, other) && strlen(sim_keys[other]) < strlen(sim_keys[key]))) {
            continue; /* neither the key's record nor one above it */
        }
        for (size_t t = 0; t < records[i].n_tickets; t++) {
            const struct belay_ticket *ticket = &records[i].tickets[t];

            if (strcmp(ticket->lock_id, lock_id) == 0) {
                break;
            }
            if (!is_gone(sim, ticket) && (own || strcmp(ticket->key, records[i].key) == 0)) {
                fn(sim, ticket, context);
            }
        }
    }
}

/* ---- no waiter is overtaken ------------------------------------------------------------ */

struct turn {
    const struct belay_record *records;
    size_t n;
    int key;
    int id;
};

static bool is_orderly(const struct sim *sim)
{
    const struct swarm *swarm = &sim->swarm;

    return !swarm->dynamo && !swarm->fail && !swarm->lose && !swarm->late && !swarm->duplicate &&
           !swarm->pause && !swarm->crash && !swarm->lose_wakes &&
           10 * swarm->latency_ms + 100 < sim->capabilities.claim_ms;
}

/*
 * A lease expired. That wakes no waiter, and a waiter that has not polled since that
 * holder acquired does not know when.
 */
static bool has_lapsed(const struct belay_record *records, size_t n, int key)
{
    for (size_t i = 0; i < n; i++) {
        if (records[i].held && sim_keys_conflict(key, sim_key_index(records[i].key))) {
            return true;
        }
    }
    return false;
}

/* Where no line of an ancestor matters too, which can open up for several at once. */
static bool is_alone_in_line(int key)
{
    const char *above[BELAY_ANCESTORS_MAX];

    return sim_ancestors(key, above) == 0;
}

static void check_overtaken(struct sim *sim, const struct belay_ticket *ticket, void *context)
{
    const struct turn *turn = context;
    int64_t free_ms = free_since(sim, turn->records, turn->n, sim_key_index(ticket->key));
    int64_t window = sim->capabilities.claim_ms - (sim->swarm.dynamo ? 2 * sim->capabilities.margin_ms : 0);

    if (store_now(sim) < free_ms + window) {
        sim_fail(sim, "L4", "i%d took '%s' before %s, which waits for '%s', had its turn", turn->id,
                 sim_keys[turn->key], ticket->lock_id, ticket->key);
    } else if (is_orderly(sim) && is_waiting(sim, ticket) && is_alone_in_line(turn->key) &&
               !has_lapsed(turn->records, turn->n, turn->key)) {
        sim_fail(sim, "L4", "i%d took '%s' out of turn: %s has waited longer", turn->id, sim_keys[turn->key],
                 ticket->lock_id);
    }
}

void check_turn(struct sim *sim, int key, int id, const struct belay_record *records, size_t n)
{
    struct turn turn = { records, n, key, id };

    each_ahead(sim, records, n, key, sim->tasks[id].id, check_overtaken, &turn);
}

/* ---- no dead second ------------------------------------------------------------------ */

struct queue {
    const struct belay_record *records;
    size_t n;
    int waiting;
    int ghosts;
    bool blocked_ghost;
};

static void count_ahead(struct sim *sim, const struct belay_ticket *ticket, void *context)
{
    struct queue *queue = context;
    int key = sim_key_index(ticket->key);

    if (is_waiting(sim, ticket)) {
        queue->waiting++;
        return;
    }
    queue->ghosts++;
    if (store_now(sim) < free_since(sim, queue->records, queue->n, key)) {
        queue->blocked_ghost = true;
    }
}

/* How long the first live waiter may take to get the lock. */
static int64_t hand_over_bound(const struct sim *sim, int ghosts, bool lapsed)
{
    const struct swarm *swarm = &sim->swarm;
    int64_t polls = 8 * sim->capabilities.poll_ms;
    int64_t races = 40 * swarm->latency_ms; /* a record that changed on the way means another round */
    int64_t bound = 50 + races + polls / 30 + ghosts * sim->capabilities.claim_ms;

    if (lapsed || ghosts > 0 || swarm->dynamo || swarm->lose_wakes || swarm->pause || swarm->crash) {
        bound += polls; /* not woken: it polls */
    }
    if (swarm->dynamo) {
        bound += 2 * sim->capabilities.margin_ms + 1000;
    }
    if (swarm->fail || swarm->lose || swarm->late) {
        bound += polls + 30000 + 6 * swarm->timeout_ms;
    }
    return bound;
}

/* The ghosts before the first waiter of `key` that is due, or -1 if none is. */
static int ghosts_before_due(struct sim *sim, const struct belay_record *records, size_t n,
                             const struct belay_record *record, int key)
{
    for (size_t t = 0; t < record->n_tickets; t++) {
        const struct belay_ticket *ticket = &record->tickets[t];
        struct queue queue = { records, n, 0, 0, false };

        if (strcmp(ticket->key, record->key) != 0 || is_gone(sim, ticket) || !is_waiting(sim, ticket) ||
            !sim->tasks[sim_id_number(ticket->lock_id)].op[SLOT_MAIN].queued) {
            continue;
        }
        each_ahead(sim, records, n, key, ticket->lock_id, count_ahead, &queue);
        if (queue.waiting == 0 && !queue.blocked_ghost) {
            return queue.ghosts;
        }
    }
    return -1;
}

static void check_key(struct sim *sim, const struct belay_record *records, size_t n,
                      const struct belay_record *record)
{
    int key = sim_key_index(record->key);
    struct key_info *info = &sim->keys[key];
    int64_t bound;
    int ghosts;

    if (record->n_tickets == 0 || store_now(sim) < free_since(sim, records, n, key)) {
        info->takeable_since = -1;
        return;
    }
    ghosts = ghosts_before_due(sim, records, n, record, key);
    if (ghosts < 0) {
        info->takeable_since = -1;
        return;
    }
    if (info->takeable_since < 0) {
        info->takeable_since = sim->t;
        info->takeable_ghosts = 0;
    }
    info->takeable_ghosts = ghosts > info->takeable_ghosts ? ghosts : info->takeable_ghosts;
    bound = hand_over_bound(sim, info->takeable_ghosts, has_lapsed(records, n, key));
    if (sim->t - info->takeable_since > bound) {
        sim_fail(sim, "L4", "'%s' is free for %" PRId64 " ms, and nobody in line takes it", record->key,
                 sim->t - info->takeable_since);
    }
}

/* A ticket must not run out while its waiter lives: it would lose its place. */
static void check_tickets(struct sim *sim, const struct belay_record *record)
{
    const struct swarm *swarm = &sim->swarm;

    for (size_t t = 0; t < record->n_tickets; t++) {
        const struct belay_ticket *ticket = &record->tickets[t];

        if (store_now(sim) >= ticket->expires_ms && is_waiting(sim, ticket) &&
            !(swarm->fail || swarm->lose || swarm->late || swarm->pause || swarm->dynamo) &&
            swarm->latency_ms < 100 &&
            sim->tasks[sim_id_number(ticket->lock_id)].op[SLOT_MAIN].want == OP_WAIT) {
            sim_fail(sim, "L4", "the ticket of %s on '%s' ran out, and it still waits", ticket->lock_id,
                     record->key);
        }
    }
}

void check_hand_over(struct sim *sim)
{
    size_t n;
    const struct belay_record *records = memstore_records(sim->data, &n);

    for (size_t i = 0; i < n; i++) {
        check_key(sim, records, n, &records[i]);
        check_tickets(sim, &records[i]);
    }
}

void check_changed_hands(struct sim *sim, int key)
{
    for (int i = 0; i < SIM_KEYS; i++) {
        if (sim_keys_conflict(key, i)) {
            sim->keys[i].takeable_since = -1;
        }
    }
}
