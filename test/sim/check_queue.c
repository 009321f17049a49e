/* L4: waiters get the lock in order, without delay, whatever kind of lock they wait for. */
#include <inttypes.h>
#include <string.h>

#include "sim/sim.h"

static int64_t store_now(const struct sim *sim)
{
    return SIM_STORE_EPOCH_MS + sim->t;
}

static void later(int64_t *time, int64_t than)
{
    if (than > *time) {
        *time = than;
    }
}

static const struct task *task_of(const struct sim *sim, const struct belay_ticket *ticket)
{
    return &sim->tasks[sim_id_number(ticket->lock_id)];
}

/* ---- since when a lock can be had ------------------------------------------------------ */

/* How many of `slots` slots no holder has; and since when, or when the next one is free. */
static int free_slots(const struct sim *sim, const struct belay_record *record, int slots,
                      int64_t *out_since_ms)
{
    int64_t soonest_ms = INT64_MAX;
    int64_t last_ms = 0;
    struct belay_holder holder;

    for (size_t i = 0; check_holder_at(record, i, &holder); i++) {
        int64_t over_ms = holder.expires_ms + sim->capabilities.margin_ms;

        if (store_now(sim) >= over_ms) {
            later(&last_ms, over_ms);
        } else {
            slots--;
            soonest_ms = over_ms < soonest_ms ? over_ms : soonest_ms;
        }
    }
    *out_since_ms = slots > 0 ? last_ms : soonest_ms;
    return slots;
}

static int64_t last_over_ms(const struct sim *sim, const struct belay_record *record)
{
    struct belay_holder holder;
    int64_t over_ms = 0;

    for (size_t i = 0; check_holder_at(record, i, &holder); i++) {
        later(&over_ms, holder.expires_ms + sim->capabilities.margin_ms);
    }
    return over_ms;
}

/*
 * Since when a task could have `key`, by the store's clock; in the future while a lock is
 * held that excludes it.
 */
static int64_t free_since(const struct sim *sim, const struct belay_record *records, size_t n,
                          const struct task *task, int key)
{
    int64_t since = 0;
    int64_t slot_since;

    for (size_t i = 0; i < n; i++) {
        int other = sim_key_index(records[i].key);

        if (!sim_keys_conflict(key, other)) {
            continue;
        }
        later(&since, SIM_STORE_EPOCH_MS + sim->keys[other].freed_t);
        if (!records[i].held) {
            continue;
        }
        if (!check_get_along(key, task->mode, task->slots, other, records[i].mode, records[i].slots)) {
            later(&since, last_over_ms(sim, &records[i]));
        } else if (task->mode == BELAY_SLOTS) {
            (void)free_slots(sim, &records[i], task->slots, &slot_since);
            later(&since, slot_since);
        }
    }
    return since;
}

/* The same of all its keys. */
static int64_t all_free_since(const struct sim *sim, const struct belay_record *records, size_t n,
                              const struct task *task)
{
    int64_t since = 0;

    for (int i = 0; i < task->n_keys; i++) {
        later(&since, free_since(sim, records, n, task, task->keys[i]));
    }
    return since;
}

/* ---- the queue --------------------------------------------------------------------------- */

/* By the store or its clock this waiter is dead. */
static bool is_gone(const struct sim *sim, const struct belay_ticket *ticket)
{
    const struct task *task = task_of(sim, ticket);
    bool crashed = task->gen != sim->clients[task->client].gen;

    return (crashed && !sim->swarm.dynamo) || store_now(sim) >= ticket->expires_ms;
}

/* It waits, and can act. Any other ticket is a ghost, which the waiters cannot know. */
static bool is_waiting(const struct sim *sim, const struct task *task)
{
    return task->gen == sim->clients[task->client].gen && task->op_runs[SLOT_MAIN] &&
           task->act[SLOT_MAIN] == ACT_ACQUIRE && !task->op[SLOT_MAIN].cancelled &&
           sim_is_awake(sim, task->client);
}

/* The tickets before a task in the queue of one of its keys, as far as they do not get along with it. */
struct ahead {
    int turns;                           /* that come one after the other */
    int slots;                           /* that want a slot of the same lock */
    int free;                            /* slots */
    int waiting;                         /* of `turns`: alive */
    int slots_waiting;                   /* of `slots`: alive */
    bool has_lapsed;                     /* one that has expired is among those before it */
    const struct belay_ticket *one;      /* of `turns` */
    const struct belay_ticket *joint;    /* one that waits for several keys; or NULL */
    const struct belay_ticket *one_slot; /* of `slots` */
    const struct belay_ticket *slot_joint;
    int64_t since_ms; /* when the last of them could have had its lock */
};

static void add_ticket(const struct sim *sim, const struct belay_record *records, size_t n, bool is_slot,
                       const struct belay_ticket *ticket, struct ahead *ahead)
{
    const struct task *task = task_of(sim, ticket);
    bool waits = is_waiting(sim, task);

    if (is_slot) {
        ahead->slots++;
        ahead->slots_waiting += waits;
        ahead->one_slot = ticket;
        ahead->slot_joint = ticket->joint ? ticket : ahead->slot_joint;
        return;
    }
    ahead->turns++;
    ahead->waiting += waits;
    ahead->one = waits || ahead->one == NULL ? ticket : ahead->one;
    ahead->joint = ticket->joint ? ticket : ahead->joint;
    later(&ahead->since_ms, free_since(sim, records, n, task, sim_key_index(ticket->key)));
}

/* One record. A ticket that gets along with the task may yet be in the way of one behind it that does not. */
static void look_along(const struct sim *sim, const struct belay_record *records, size_t n,
                       const struct belay_record *record, const struct task *task, int key,
                       struct ahead *ahead)
{
    int of_record = sim_key_index(record->key);
    const struct belay_ticket *joint = NULL;
    const struct belay_ticket *unshared_joint = NULL;
    int64_t kept_until_ms = 0;
    int beside = 0;

    for (size_t t = 0; t < record->n_tickets; t++) {
        const struct belay_ticket *ticket = &record->tickets[t];
        int wanted = sim_key_index(ticket->key);

        if (strcmp(ticket->lock_id, task->id) == 0) {
            return;
        }
        if (is_gone(sim, ticket)) {
            ahead->has_lapsed = true;
            if (ticket->joint &&
                task_of(sim, ticket)->gen == sim->clients[task_of(sim, ticket)->client].gen) {
                later(&kept_until_ms, ticket->expires_ms); /* it kept its place until then */
            }
            continue;
        }
        if ((of_record == key || wanted == of_record) &&
            !check_get_along(key, task->mode, task->slots, wanted, ticket->mode, ticket->slots)) {
            const struct belay_ticket *before = ticket->mode == BELAY_SHARED ? unshared_joint : joint;

            add_ticket(sim, records, n, false, ticket, ahead);
            ahead->joint = before != NULL ? before : ahead->joint;
            ahead->turns += beside;
            later(&ahead->since_ms, kept_until_ms);
            beside = 0;
        } else {
            beside++;
            if (of_record == key && wanted == key && task->mode == BELAY_SLOTS) {
                add_ticket(sim, records, n, true, ticket, ahead);
            }
        }
        joint = ticket->joint ? ticket : joint;
        unshared_joint = ticket->joint && ticket->mode != BELAY_SHARED ? ticket : unshared_joint;
    }
}

/* The record of `key` and those above it, up to the task's own ticket in each. */
static struct ahead look_ahead(const struct sim *sim, const struct belay_record *records, size_t n,
                               const struct task *task, int key)
{
    struct ahead ahead = { .free = task->slots };
    int64_t since;

    for (size_t i = 0; i < n; i++) {
        int other = sim_key_index(records[i].key);
        bool own = other == key;

        if (!own && !(sim_keys_conflict(key, other) && strlen(sim_keys[other]) < strlen(sim_keys[key]))) {
            continue; /* neither the key's record nor one above it */
        }
        if (own && task->mode == BELAY_SLOTS && records[i].mode == BELAY_SLOTS) {
            ahead.free = free_slots(sim, &records[i], task->slots, &since);
        }
        look_along(sim, records, n, &records[i], task, key, &ahead);
    }
    return ahead;
}

/* ---- no waiter is overtaken ------------------------------------------------------------ */

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
static bool has_lapsed(const struct sim *sim, const struct belay_record *records, size_t n, int key)
{
    struct belay_holder holder;

    for (size_t i = 0; i < n; i++) {
        if (!sim_keys_conflict(key, sim_key_index(records[i].key))) {
            continue;
        }
        for (size_t h = 0; check_holder_at(&records[i], h, &holder); h++) {
            if (store_now(sim) >= holder.expires_ms) {
                return true;
            }
        }
    }
    return false;
}

/* Where no line of an ancestor matters too, which can open up for several at once. */
static bool is_alone_in_line(const struct task *task)
{
    const char *above[BELAY_ANCESTORS_MAX];

    return task->n_keys == 1 && sim_ancestors(task->key, above) == 0;
}

/* More waiters want a slot than there are: those that came first get them. */
static void check_slot_order(struct sim *sim, int key, int id, const struct ahead *ahead, int64_t since_ms,
                             int64_t window)
{
    if (ahead->slots == 0 || ahead->slots < ahead->free) {
        return;
    }
    if (ahead->slot_joint != NULL) {
        sim_fail(sim, "L4", "i%d took a slot of '%s' before %s, which waits for it and for other keys", id,
                 sim_keys[key], ahead->slot_joint->lock_id);
    } else if (store_now(sim) < since_ms + window) {
        sim_fail(sim, "L4", "i%d took a slot of '%s' before %s, which waits for it, had its turn", id,
                 sim_keys[key], ahead->one_slot->lock_id);
    }
}

/* Some key is frozen, or its waiters are still having their turns after that: nobody is due. */
static bool is_freeze_felt(const struct sim *sim)
{
    bool is_felt = false;

    for (int key = 0; key < SIM_KEYS; key++) {
        is_felt = is_felt || sim_is_frozen(sim, key, SIM_TASKS_MAX * sim->capabilities.claim_ms);
    }
    return is_felt;
}

void check_turn(struct sim *sim, int key, int id, const struct belay_record *records, size_t n)
{
    const struct task *task = &sim->tasks[id];
    struct ahead ahead = look_ahead(sim, records, n, task, key);
    int64_t window = sim->capabilities.claim_ms - (sim->swarm.dynamo ? 2 * sim->capabilities.margin_ms : 0);

    check_slot_order(sim, key, id, &ahead, free_since(sim, records, n, task, key), window);
    if (ahead.turns == 0) {
        return;
    }
    if (ahead.joint != NULL) {
        sim_fail(sim, "L4", "i%d took '%s' before %s, which waits for it and for other keys", id,
                 sim_keys[key], ahead.joint->lock_id);
    } else if (store_now(sim) < ahead.since_ms + window) {
        sim_fail(sim, "L4", "i%d took '%s' before %s, which waits for '%s', had its turn", id, sim_keys[key],
                 ahead.one->lock_id, ahead.one->key);
    } else if (is_orderly(sim) && ahead.waiting > 0 && is_alone_in_line(task) &&
               !has_lapsed(sim, records, n, key) && !is_freeze_felt(sim)) {
        sim_fail(sim, "L4", "i%d took '%s' out of turn: %s has waited longer", id, sim_keys[key],
                 ahead.one->lock_id);
    }
}

/* ---- no dead second ------------------------------------------------------------------ */

/* How long a waiter that is due may take to get its locks. */
static int64_t hand_over_bound(const struct sim *sim, const struct task *task, bool lapsed)
{
    const struct swarm *swarm = &sim->swarm;
    bool plain = swarm->plain;
    int64_t polls = (plain ? 8 : 20) * sim->capabilities.poll_ms;
    int64_t races = (plain ? 40 : 80) * swarm->latency_ms; /* a record that changed means another round */
    int64_t bound =
        50 + races + 8 * sim->capabilities.poll_ms / 30 + task->due_ghosts * sim->capabilities.claim_ms;

    if (!plain) {
        bound += 1000; /* several have their turn at once, and step back from each other */
    }
    if (lapsed || task->due_ghosts > 0 || swarm->dynamo || swarm->lose_wakes || swarm->pause ||
        swarm->crash) {
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

/* It can have that key now, but for tickets of waiters that are stopped: how many these are; -1: it cannot. */
static int ghosts_before(const struct sim *sim, const struct belay_record *records, size_t n,
                         const struct task *task, int key, bool *lapsed)
{
    struct ahead ahead = look_ahead(sim, records, n, task, key);
    int ghosts = ahead.turns;

    if (ahead.waiting > 0 || ahead.joint != NULL || (ahead.turns > 0 && store_now(sim) < ahead.since_ms)) {
        return -1;
    }
    if (ahead.slots > 0 && ahead.slots >= ahead.free) {
        if (ahead.slots_waiting >= ahead.free || ahead.slot_joint != NULL) {
            return -1;
        }
        ghosts += ahead.slots - ahead.free + 1;
    }
    *lapsed = *lapsed || ahead.has_lapsed || has_lapsed(sim, records, n, key);
    return ghosts;
}

static bool has_tickets(const struct belay_record *records, size_t n, const struct task *task)
{
    int found = 0;

    for (size_t i = 0; i < n; i++) {
        for (size_t t = 0; sim_has_key(task, sim_key_index(records[i].key)) && t < records[i].n_tickets;
             t++) {
            found += strcmp(records[i].tickets[t].lock_id, task->id) == 0;
        }
    }
    return found == task->n_keys;
}

static void check_due(struct sim *sim, const struct belay_record *records, size_t n, struct task *task)
{
    bool lapsed = false;
    int ghosts = 0;

    if (is_freeze_felt(sim) || !task->op[SLOT_MAIN].queued || !has_tickets(records, n, task) ||
        store_now(sim) < all_free_since(sim, records, n, task)) {
        task->due_since = -1;
        return;
    }
    for (int i = 0; i < task->n_keys; i++) {
        int before = ghosts_before(sim, records, n, task, task->keys[i], &lapsed);

        if (before < 0) {
            task->due_since = -1;
            return;
        }
        ghosts += before;
    }
    if (task->due_since < 0) {
        task->due_since = sim->t;
        task->due_ghosts = 0;
    }
    task->due_ghosts = ghosts > task->due_ghosts ? ghosts : task->due_ghosts;
    if (sim->t - task->due_since > hand_over_bound(sim, task, lapsed)) {
        sim_fail(sim, "L4", "%s could have '%s' for %" PRId64 " ms, and does not take it", task->id,
                 sim_keys[task->key], sim->t - task->due_since);
    }
}

/* A ticket must not run out while its waiter lives: it would lose its place. */
static void check_tickets(struct sim *sim, const struct belay_record *record)
{
    const struct swarm *swarm = &sim->swarm;

    for (size_t t = 0; t < record->n_tickets; t++) {
        const struct belay_ticket *ticket = &record->tickets[t];

        if (store_now(sim) >= ticket->expires_ms && is_waiting(sim, task_of(sim, ticket)) &&
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

    for (int i = 0; i < sim->n_tasks; i++) {
        if (is_waiting(sim, &sim->tasks[i])) {
            check_due(sim, records, n, &sim->tasks[i]);
        } else {
            sim->tasks[i].due_since = -1;
        }
    }
    for (size_t i = 0; i < n; i++) {
        check_tickets(sim, &records[i]);
    }
}

void check_changed_hands(struct sim *sim, int key)
{
    for (int i = 0; i < sim->n_tasks; i++) {
        for (int k = 0; k < sim->tasks[i].n_keys; k++) {
            if (sim_keys_conflict(key, sim->tasks[i].keys[k])) {
                sim->tasks[i].due_since = -1;
            }
        }
    }
}
