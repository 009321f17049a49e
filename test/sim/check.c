/* The promises of docs/safety.md about holders, checked after every delivery and every end of an operation. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fnv.h"
#include "sim/sim.h"

static int64_t store_now(const struct sim *sim)
{
    return SIM_STORE_EPOCH_MS + sim->t;
}

/* The clock by which the store worked on that request: on DynamoDB the writer's idea of it. */
static int64_t working_now(const struct sim *sim, const struct request *request)
{
    return store_now(sim) + (sim->swarm.dynamo ? sim->clients[request->client].skew_ms : 0);
}

static const struct belay_record *find_record(const struct belay_record *records, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(records[i].key, key) == 0) {
            return &records[i];
        }
    }
    return NULL;
}

/* ---- records in short ------------------------------------------------------------ */

bool check_holder_at(const struct belay_record *record, size_t i, struct belay_holder *out_holder)
{
    if (record->mode != BELAY_EXCLUSIVE) {
        if (i < record->n_holders) {
            *out_holder = record->holders[i];
        }
        return i < record->n_holders;
    }
    *out_holder = (struct belay_holder){ .lock_id = record->lock_id,
                                         .owner = record->owner,
                                         .token = record->token,
                                         .ttl_ms = record->ttl_ms,
                                         .expires_ms = record->expires_ms };
    return record->held && i == 0;
}

static uint64_t hash_others(const struct belay_record *record)
{
    uint64_t hash = FNV_INIT;

    for (size_t i = 0; i < record->n_tickets; i++) {
        hash = fnv_text(hash, record->tickets[i].lock_id) + (uint64_t)record->tickets[i].expires_ms;
    }
    for (size_t i = 0; i < record->n_intents; i++) {
        hash = fnv_text(hash, record->intents[i].lock_id) + (uint64_t)record->intents[i].expires_ms;
    }
    return hash;
}

void check_begin(const struct sim *sim, struct glance glances[SIM_KEYS])
{
    size_t n;
    const struct belay_record *records = memstore_records(sim->data, &n);

    for (int i = 0; i < SIM_KEYS; i++) {
        glances[i].exists = false;
        glances[i].mode = BELAY_EXCLUSIVE;
        glances[i].slots = 0;
        glances[i].last_id = -1;
        glances[i].outcome = BELAY_OUTCOME_NONE;
        glances[i].others = 0;
        glances[i].n_holders = 0;
    }
    for (size_t i = 0; i < n; i++) {
        struct glance *glance = &glances[sim_key_index(records[i].key)];
        struct belay_holder holder;

        glance->exists = true;
        glance->mode = records[i].mode;
        glance->slots = records[i].slots;
        glance->last_id = sim_id_number(records[i].lock_id);
        glance->outcome = records[i].outcome;
        glance->others = hash_others(&records[i]);
        for (size_t h = 0; h < SIM_TASKS_MAX && check_holder_at(&records[i], h, &holder); h++) {
            glance->holders[glance->n_holders++] =
                (struct glance_holder){ .id = sim_id_number(holder.lock_id),
                                        .token = holder.token,
                                        .expires_ms = holder.expires_ms,
                                        .ttl_ms = holder.ttl_ms };
        }
    }
}

const struct glance_holder *check_find_holder(const struct glance *glance, int id)
{
    for (int i = 0; i < glance->n_holders; i++) {
        if (glance->holders[i].id == id) {
            return &glance->holders[i];
        }
    }
    return NULL;
}

static bool same_glance(const struct glance *a, const struct glance *b)
{
    bool same = a->exists == b->exists && a->n_holders == b->n_holders && a->last_id == b->last_id &&
                a->mode == b->mode && a->slots == b->slots && a->outcome == b->outcome &&
                a->others == b->others;

    for (int i = 0; same && i < a->n_holders; i++) {
        same = a->holders[i].id == b->holders[i].id && a->holders[i].token == b->holders[i].token &&
               a->holders[i].expires_ms == b->holders[i].expires_ms;
    }
    return same;
}

/* Its lease has ended, and nobody can take it for live, however the clocks differ. */
static bool is_over(const struct sim *sim, const struct glance_holder *holder)
{
    return store_now(sim) >= holder->expires_ms + sim->capabilities.margin_ms;
}

static bool is_target(const struct request *request, int key)
{
    for (int i = 0; i < request->n_targets; i++) {
        if (request->targets[i] == key) {
            return true;
        }
    }
    return false;
}

bool check_get_along(int key, enum belay_mode mode, int slots, int other_key, enum belay_mode other_mode,
                     int other_slots)
{
    return (mode == BELAY_SHARED && other_mode == BELAY_SHARED) ||
           (key == other_key && mode == BELAY_SLOTS && other_mode == BELAY_SLOTS && slots == other_slots);
}

/* ---- what a delivery changed ---------------------------------------------------- */

/* One key of a delivery. */
struct change {
    const struct request *request;
    int key;
    const struct glance *before;
    const struct glance *after;
};

/* It thinks that it has `key`, it could run, and no client that knows its id has ended that. */
static bool is_believer(const struct sim *sim, int number, int key)
{
    const struct task *task = &sim->tasks[number];

    return task->believes && sim_has_key(task, key) && sim_is_awake(sim, task->client) &&
           !sim->ids[number].on[key].ended_by_other;
}

/* L6: a former holder that this acquisition excludes was told before, if it could run. */
static void check_rivals(struct sim *sim, const struct change *change, int id)
{
    const struct glance *after = change->after;
    int believers = 0;

    for (int i = 0; i < sim->n_tasks; i++) {
        const struct task *task = &sim->tasks[i];

        for (int k = 0; k < task->n_keys; k++) {
            int key = task->keys[k];

            if (i == id || !sim_keys_conflict(key, change->key) || !is_believer(sim, i, key)) {
                continue;
            }
            believers += key == change->key;
            if (!check_get_along(key, task->mode, task->slots, change->key, after->mode, after->slots)) {
                sim_fail(sim, "L6", "task %d was not told that it lost '%s' before i%d took '%s'", i,
                         sim_keys[key], id, sim_keys[change->key]);
            }
        }
    }
    if (after->mode == BELAY_SLOTS && believers >= after->slots) {
        sim_fail(sim, "L6", "%d tasks believe to hold '%s' when i%d takes it, which has %d slots", believers,
                 sim_keys[change->key], id, after->slots);
    }
}

/* L5: an id takes once. Without a memory of ids, a repeat after a third party is not seen. */
static void check_identity(struct sim *sim, const struct change *change, int id)
{
    const struct request *request = change->request;
    const struct identity *identity = &sim->ids[id];
    bool is_shown = change->before->last_id == id || check_find_holder(change->before, id) != NULL;

    if (id != request->id) {
        sim_fail(sim, "L5", "i%d was taken by a request of i%d", id, request->id);
    }
    /* And there an id that was adopted may take again, and be adopted again by a repeated request. */
    if (identity->on[change->key].taken && (!sim->swarm.dynamo || (is_shown && request->act != ACT_ADOPT))) {
        sim_fail(sim, "L5", "i%d took '%s' a second time", id, sim_keys[change->key]);
    }
    if (identity->said_no && !(sim->swarm.dynamo && request->again)) {
        sim_fail(sim, "L5", "i%d took '%s' after its acquire had ended without it", id,
                 sim_keys[change->key]);
    }
}

static void note_owner(const struct sim *sim, int key, int id, struct holding *holding)
{
    size_t n;
    const struct belay_record *records = memstore_records(sim->data, &n);
    const struct belay_record *record = find_record(records, n, sim_keys[key]);
    struct belay_holder holder;

    for (size_t i = 0; record != NULL && check_holder_at(record, i, &holder); i++) {
        if (sim_id_number(holder.lock_id) == id) {
            (void)snprintf(holding->owner, sizeof holding->owner, "%s", holder.owner);
        }
    }
}

static void note_beside(struct sim *sim, const struct change *change)
{
    const struct glance *after = change->after;

    if (after->n_holders > 1) {
        sim_saw(sim, after->mode == BELAY_SHARED ? SEEN_SHARED_TOGETHER : SEEN_SLOT_BESIDE);
        if (sim->tasks[change->request->task].op[SLOT_MAIN].queued) {
            sim_saw(sim, SEEN_CO_HANDED_OVER);
        }
    }
    if (after->mode == BELAY_SLOTS && after->n_holders == after->slots) {
        sim_saw(sim, SEEN_LAST_SLOT);
    }
}

static void note_taken(struct sim *sim, const struct change *change)
{
    const struct request *request = change->request;
    bool queued = sim->tasks[request->task].op[SLOT_MAIN].queued;

    if (request->act == ACT_ADOPT) {
        sim_saw(sim, SEEN_ADOPTED);
        if (change->after->n_holders > 1) {
            sim_saw(sim, SEEN_CO_ADOPTED);
        }
        if (request->n_targets > 1) {
            sim_saw(sim, SEEN_JOINT_ADOPTED);
        }
        return;
    }
    note_beside(sim, change);
    if (request->n_targets > 1) {
        sim_saw(sim, queued ? SEEN_JOINT_HANDED_OVER : SEEN_JOINT_TAKEN);
    }
    if (change->before->n_holders > 0 && change->after->n_holders == 1) {
        sim_saw(sim, SEEN_TAKEN_OVER);
    } else {
        sim_saw(sim, queued ? SEEN_HANDED_OVER : SEEN_TAKEN);
    }
    if (request->batch.n_writes > (size_t)request->n_targets) {
        sim_saw(sim, SEEN_BELOW);
    }
}

/* L1: beside whom the new holder holds it. Those that are gone are looked at by on_ended(). */
static void check_beside(struct sim *sim, const struct change *change, int id)
{
    const struct glance *after = change->after;
    int live = 0;

    for (int i = 0; i < after->n_holders; i++) {
        const struct glance_holder *holder = &after->holders[i];

        if (is_over(sim, holder)) {
            continue;
        }
        live++;
        if (holder->id != id && holder->id >= 0 &&
            !check_get_along(change->key, after->mode, after->slots, change->key, sim->tasks[holder->id].mode,
                             sim->tasks[holder->id].slots)) {
            sim_fail(sim, "L1", "i%d holds '%s' beside i%d, and they do not get along", id,
                     sim_keys[change->key], holder->id);
        }
    }
    if (after->mode == BELAY_SLOTS && live <= after->slots && after->n_holders > after->slots) {
        sim_fail(sim, "L1", "'%s' has %d slots, and keeps %d holders", sim_keys[change->key], after->slots,
                 after->n_holders);
    }
    if (after->mode == BELAY_SLOTS && live > after->slots) {
        sim_fail(sim, "L1", "'%s' has %d slots, and i%d is holder number %d", sim_keys[change->key],
                 after->slots, id, live);
    }
    if (after->mode != sim->tasks[id].mode || after->slots != sim->tasks[id].slots) {
        sim_fail(sim, "L1", "i%d took '%s' in another way than it asked for", id, sim_keys[change->key]);
    }
}

static void on_adopted(struct sim *sim, const struct change *change, int id)
{
    int old_id = change->request->old_id;
    const struct glance_holder *old = old_id < 0 ? NULL : check_find_holder(change->before, old_id);

    if (old == NULL || working_now(sim, change->request) >= old->expires_ms ||
        check_find_holder(change->after, old_id) != NULL) {
        sim_fail(sim, "L3", "i%d adopted '%s' from i%d, which did not hold it", id, sim_keys[change->key],
                 old_id);
        return;
    }
    if (change->after->mode != change->before->mode || change->after->slots != change->before->slots) {
        sim_fail(sim, "L3", "i%d adopted '%s', which has another mode now", id, sim_keys[change->key]);
    }
    sim->ids[old_id].on[change->key].ended_by_other = true;
    sim->tasks[id].mode = change->after->mode; /* an adopter may not know it */
    sim->tasks[id].slots = change->after->slots;
}

static void on_taken(struct sim *sim, const struct change *change, const struct glance_holder *holder)
{
    const struct request *request = change->request;
    int key = change->key;
    int id = holder->id;
    struct holding *holding = &sim->ids[id].on[key];

    note_taken(sim, change);
    if (request->act == ACT_ADOPT) {
        on_adopted(sim, change, id);
    } else if (request->act != ACT_ACQUIRE) {
        sim_fail(sim, "L3", "'%s' was taken by something else than an acquire", sim_keys[key]);
    }
    if (request->act == ACT_ACQUIRE && sim_is_frozen(sim, key, 0) &&
        request->sent_t >= sim->swarm.freezes[key].from_t) {
        sim_fail(sim, "freeze", "i%d took '%s', which was frozen before it asked", id, sim_keys[key]);
    }
    if (request->act == ACT_ACQUIRE && sim->tasks[id].was_frozen) {
        sim_saw(sim, SEEN_THAWED);
    }
    if (!is_target(request, key)) {
        sim_fail(sim, "L3", "i%d took '%s', for which it did not ask", id, sim_keys[key]);
    }
    if (holder->token <= sim->keys[key].max_token) {
        sim_fail(sim, "L2", "i%d got token %" PRIu64 " of '%s', after %" PRIu64, id, holder->token,
                 sim_keys[key], sim->keys[key].max_token);
    }
    check_beside(sim, change, id);
    check_identity(sim, change, id);
    check_rivals(sim, change, id);
    /* A second grant under one id, where it cannot be prevented, may be ended by late requests of the first. */
    holding->ended_by_other = holding->taken;
    holding->orphan = sim->swarm.dynamo && request->again;
    holding->taken = true;
    holding->gave_back = false;
    note_owner(sim, key, id, holding);
    holding->token = holder->token;
    holding->taken_t = sim->t;
    holding->expires_ms = holder->expires_ms;
    sim->keys[key].max_token = holder->token;
    if (change->after->mode == BELAY_EXCLUSIVE) {
        sim->keys[key].exclusive_t = sim->t;
    }
    sim_note(sim, "HOLDS", sim->tasks[id].client, id, key, (int64_t)holder->token, 0);
    check_changed_hands(sim, key);
}

/* Released or forced, by its own id. */
static void on_given_back(struct sim *sim, const struct change *change, const struct glance_holder *holder)
{
    const struct request *request = change->request;
    struct holding *holding = &sim->ids[holder->id].on[change->key];
    bool is_co = change->after->n_holders > 0;

    sim->keys[change->key].n_released += request->act == ACT_RELEASE;
    if (request->task != holder->id) {
        holding->ended_by_other = true;
    } else if (request->act == ACT_RELEASE) {
        holding->gave_back = true;
        holding->gave_back_t = sim->t;
        holding->gave_back_n = sim->keys[change->key].n_released;
    }
    if (request->act == ACT_FORCE) {
        sim_saw(sim, is_co ? SEEN_CO_FORCED : SEEN_FORCED);
    } else if (is_co) {
        sim_saw(sim, SEEN_CO_RELEASED);
    }
    if (request->n_targets > 1 && request->batch.n_events < (size_t)request->n_targets) {
        sim_saw(sim, SEEN_JOINT_PART_ENDED);
    }
    sim->keys[change->key].freed_t = sim->t;
    sim_note(sim, "IS FREE", request->client, holder->id, change->key, 0, 0);
    check_changed_hands(sim, change->key);
}

/* Since then others may have had their turn, and the record no longer says so. */
static void note_expired(struct sim *sim, int key, const struct glance_holder *holder)
{
    int64_t over_t = holder->expires_ms + sim->capabilities.margin_ms - SIM_STORE_EPOCH_MS;

    if (over_t > sim->keys[key].freed_t) {
        sim->keys[key].freed_t = over_t;
    }
}

/* A holder is gone from the record. */
static void on_ended(struct sim *sim, const struct change *change, const struct glance_holder *holder)
{
    const struct request *request = change->request;
    bool is_named = holder->id >= 0 && request->id == holder->id && is_target(request, change->key);

    if (request->act == ACT_ACQUIRE && request->id >= 0 && is_target(request, change->key) &&
        check_find_holder(change->after, request->id) != NULL) {
        if (!is_over(sim, holder)) {
            sim_fail(sim, "L1", "i%d took '%s' while i%d had %" PRId64 " ms left", request->id,
                     sim_keys[change->key], holder->id,
                     holder->expires_ms + sim->capabilities.margin_ms - store_now(sim));
        } else if (change->after->n_holders > 1) {
            sim_saw(sim, SEEN_CO_EXPIRED);
        }
        note_expired(sim, change->key, holder);
        if (is_believer(sim, holder->id, change->key)) {
            sim_fail(sim, "L6", "task %d was not told that it lost '%s' before i%d took its place",
                     holder->id, sim_keys[change->key], request->id);
        }
    } else if ((request->act == ACT_RELEASE || request->act == ACT_FORCE) && is_named) {
        on_given_back(sim, change, holder);
    } else if (request->act != ACT_ADOPT ||
               (request->old_id != holder->id && !(sim->swarm.dynamo && request->id == holder->id))) {
        sim_fail(sim, "L3", "the lock of i%d on '%s' was ended by i%d", holder->id, sim_keys[change->key],
                 request->id);
    }
}

/* A lease was prolonged, and nothing else. */
static void on_prolonged(struct sim *sim, const struct change *change, const struct glance_holder *before,
                         const struct glance_holder *after)
{
    const struct request *request = change->request;
    const struct task *task = &sim->tasks[request->task];
    struct holding *holding = &sim->ids[before->id].on[change->key];
    bool renewed = request->act == ACT_RENEW && request->id == before->id;
    bool reentered = request->act == ACT_ACQUIRE && request->id != before->id &&
                     task->request[SLOT_MAIN].reentrant && strcmp(task->owner, holding->owner) == 0;

    if (request->act == ACT_ACQUIRE && request->id == before->id) {
        sim_fail(sim, "L5", "a repeated acquire gave i%d a second lease of '%s'", before->id,
                 sim_keys[change->key]);
    } else if ((!renewed && !reentered) || !is_target(request, change->key)) {
        sim_fail(sim, "L3", "the lease of i%d on '%s' was changed by i%d", before->id, sim_keys[change->key],
                 request->id);
    }
    if (working_now(sim, request) >= before->expires_ms) {
        sim_fail(sim, "L3", "the lease of i%d on '%s' was over and was renewed", before->id,
                 sim_keys[change->key]);
    }
    if (request->keeps_ttl && request->n_targets == 1 && !holding->ended_by_other &&
        before->ttl_ms != after->ttl_ms) {
        sim_fail(sim, "L6", "the lease of i%d on '%s' was renewed for another time than its own", before->id,
                 sim_keys[change->key]);
    }
    sim_saw(sim, change->after->n_holders > 1 ? SEEN_CO_RENEWED : SEEN_RENEWED);
    /*
     * Who was given an id can change the ttl of its lease, and make it shorter
     * than its holder knows, at once or by a renewal that comes late.
     */
    if (request->act == ACT_RENEW && request->task != before->id) {
        holding->ended_by_other = true;
    }
    holding->expires_ms = after->expires_ms;
}

/* The keys of the request that its id, or the one it replaces, holds; of renew and adopt: with a live lease. */
static int count_held(const struct sim *sim, const struct request *request, const struct glance *before)
{
    int named = request->act == ACT_ADOPT ? request->old_id : request->id;
    bool needs_lease = request->act == ACT_RENEW || request->act == ACT_ADOPT;
    int held = 0;

    for (int i = 0; i < request->n_targets && named >= 0; i++) {
        const struct glance_holder *holder = check_find_holder(&before[request->targets[i]], named);

        held += holder != NULL && !(needs_lease && working_now(sim, request) >= holder->expires_ms);
    }
    return held;
}

/* L3: a client that is not the holder changes nothing, and creates no record. */
static void check_outsider(struct sim *sim, const struct request *request, const struct glance *before,
                           const struct glance *after)
{
    int held = count_held(sim, request, before);
    bool is_ending = request->act == ACT_RELEASE || request->act == ACT_FORCE;
    bool holds = is_ending ? held > 0 : held == request->n_targets;

    for (int i = 0; i < SIM_KEYS && request->act != ACT_ACQUIRE; i++) {
        if (!before[i].exists && after[i].exists) {
            sim_fail(sim, "L3", "a record of '%s' came into being without an acquire", sim_keys[i]);
        }
        if (!holds && !same_glance(&before[i], &after[i])) {
            sim_fail(sim, "L3", "'%s' was changed by i%d, which did not hold '%s'", sim_keys[i],
                     request->act == ACT_ADOPT ? request->old_id : request->id, sim_keys[request->key]);
        }
    }
}

static bool has_event(const struct request *request, int key)
{
    for (size_t i = 0; i < request->batch.n_events; i++) {
        if (strcmp(request->batch.events[i].key, sim_keys[key]) == 0) {
            return true;
        }
    }
    return false;
}

/* True: the request's id, or that which it adopts, got or prolonged the lock. */
static bool check_change(struct sim *sim, const struct change *change)
{
    bool granted = false;
    bool changed = false;

    for (int i = 0; i < change->after->n_holders; i++) {
        const struct glance_holder *now = &change->after->holders[i];
        const struct glance_holder *old = check_find_holder(change->before, now->id);

        if (now->id < 0) {
            sim_fail(sim, "L5", "'%s' is held by an id that nobody has", sim_keys[change->key]);
            return false;
        }
        if (old == NULL || old->token != now->token) {
            on_taken(sim, change, now);
            granted = true;
        } else if (old->expires_ms != now->expires_ms) {
            on_prolonged(sim, change, old, now);
            granted = true;
        }
    }
    for (int i = 0; i < change->before->n_holders; i++) {
        const struct glance_holder *old = &change->before->holders[i];
        const struct glance_holder *now = check_find_holder(change->after, old->id);

        if (now == NULL || old->token != now->token) {
            on_ended(sim, change, old);
            changed = true;
        }
    }
    if ((granted || changed) && !has_event(change->request, change->key)) {
        sim_fail(sim, "L9", "'%s' changed without an event", sim_keys[change->key]);
    }
    return granted;
}

void check_note_slots(struct sim *sim, const struct glance glances[SIM_KEYS])
{
    for (int i = 0; i < SIM_KEYS; i++) {
        if (glances[i].n_holders > 0 && glances[i].mode == BELAY_SLOTS) {
            sim->keys[i].slots_t[glances[i].slots] = sim->t;
        }
    }
}

/* A joint waiter leaves the queue. The turns of those that it kept from a free key begin now. */
static void note_leaving(struct sim *sim, const struct request *request)
{
    const struct belay_batch *batch = &request->batch;
    bool leaves = request->act == ACT_ACQUIRE && request->n_targets > 1 && batch->n_writes > 0 &&
                  batch->writes[0].n_drop_tickets == 1 && batch->writes[0].put_ticket == NULL &&
                  (batch->writes[0].set & BELAY_SET_ACQUIRED) == 0;

    for (size_t i = 0; leaves && i < batch->n_writes; i++) {
        sim->keys[sim_key_index(batch->writes[i].key)].freed_t = sim->t;
    }
}

void check_delivery(struct sim *sim, const struct request *request, const struct glance before[SIM_KEYS],
                    const struct belay_record *copies, size_t n_copies)
{
    static struct glance after[SIM_KEYS];
    int granted = 0;

    check_begin(sim, after);
    check_note_slots(sim, before);
    check_note_slots(sim, after);
    for (int i = 0; i < SIM_KEYS; i++) {
        struct change change = { request, i, &before[i], &after[i] };

        if (request->act == ACT_ACQUIRE && request->id >= 0 && is_target(request, i) &&
            check_find_holder(&after[i], request->id) != NULL &&
            check_find_holder(&before[i], request->id) == NULL) {
            check_turn(sim, i, request->id, copies, n_copies);
        }
        granted += check_change(sim, &change);
    }
    if (granted != 0 && granted != request->n_targets) {
        sim_fail(sim, "L1", "i%d asked for %d keys at once, and got %d of them", request->id,
                 request->n_targets, granted);
    }
    note_leaving(sim, request);
    check_outsider(sim, request, before, after);
    check_state(sim);
}
