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

    memset(glances, 0, SIM_KEYS * sizeof *glances);
    for (int i = 0; i < SIM_KEYS; i++) {
        glances[i].id = -1;
    }
    for (size_t i = 0; i < n; i++) {
        struct glance *glance = &glances[sim_key_index(records[i].key)];

        glance->exists = true;
        glance->held = records[i].held;
        glance->id = sim_id_number(records[i].lock_id);
        glance->token = records[i].token;
        glance->revision = records[i].revision;
        glance->outcome = records[i].outcome;
        glance->expires_ms = records[i].expires_ms;
        glance->others = hash_others(&records[i]);
    }
}

static bool same_glance(const struct glance *a, const struct glance *b)
{
    return a->exists == b->exists && a->held == b->held && a->id == b->id && a->token == b->token &&
           a->outcome == b->outcome && a->expires_ms == b->expires_ms && a->others == b->others;
}

/* ---- what a delivery changed ---------------------------------------------------- */

/* L6: a former holder that this acquisition excludes was told before, if it could run. */
static void check_rivals(struct sim *sim, int key, int id)
{
    for (int i = 0; i < sim->n_tasks; i++) {
        const struct task *task = &sim->tasks[i];

        if (i != id && task->believes && sim_keys_conflict(task->key, key) &&
            sim_is_awake(sim, task->client) && !sim->ids[i].ended_by_other) {
            sim_fail(sim, "L6", "task %d was not told that it lost '%s' before i%d took '%s'", i,
                     sim_keys[task->key], id, sim_keys[key]);
        }
    }
}

/* L5: an id takes once. Without a memory of ids, a repeat after a third party is not seen. */
static void check_identity(struct sim *sim, const struct request *request, const struct glance *before,
                           int id)
{
    const struct identity *identity = &sim->ids[id];

    if (id != request->id) {
        sim_fail(sim, "L5", "i%d was taken by a request of i%d", id, request->id);
    }
    if (identity->taken && (!sim->swarm.dynamo || before->id == id)) {
        sim_fail(sim, "L5", "i%d took '%s' a second time", id, sim_keys[request->key]);
    }
    if (identity->said_no && !(sim->swarm.dynamo && request->again)) {
        sim_fail(sim, "L5", "i%d took '%s' after its acquire had ended without it", id,
                 sim_keys[request->key]);
    }
}

static void note_owner(const struct sim *sim, int key, struct identity *identity)
{
    size_t n;
    const struct belay_record *records = memstore_records(sim->data, &n);
    const struct belay_record *record = find_record(records, n, sim_keys[key]);

    (void)snprintf(identity->owner, sizeof identity->owner, "%s", record != NULL ? record->owner : "");
}

static void note_taken(struct sim *sim, const struct request *request, const struct glance *before)
{
    if (request->act == ACT_ADOPT) {
        sim_saw(sim, SEEN_ADOPTED);
    } else if (before->held) {
        sim_saw(sim, SEEN_TAKEN_OVER);
    } else {
        sim_saw(sim, sim->tasks[request->task].op[SLOT_MAIN].queued ? SEEN_HANDED_OVER : SEEN_TAKEN);
    }
    if (request->batch.n_writes > 1) {
        sim_saw(sim, SEEN_BELOW);
    }
}

static void on_taken(struct sim *sim, const struct request *request, int key, const struct glance *before,
                     const struct glance *after)
{
    struct identity *identity = &sim->ids[after->id];

    note_taken(sim, request, before);
    if (request->act == ACT_ADOPT) {
        if (!before->held || before->id != request->old_id ||
            working_now(sim, request) >= before->expires_ms) {
            sim_fail(sim, "L3", "i%d adopted '%s' from i%d, which did not hold it", after->id, sim_keys[key],
                     request->old_id);
        }
    } else if (request->act != ACT_ACQUIRE) {
        sim_fail(sim, "L3", "'%s' was taken by something else than an acquire", sim_keys[key]);
    } else if (before->held && store_now(sim) < before->expires_ms + sim->capabilities.margin_ms) {
        sim_fail(sim, "L1", "i%d took '%s' while i%d had %" PRId64 " ms left", after->id, sim_keys[key],
                 before->id, before->expires_ms + sim->capabilities.margin_ms - store_now(sim));
    }
    if (after->token <= sim->keys[key].max_token) {
        sim_fail(sim, "L2", "i%d got token %" PRIu64 " of '%s', after %" PRIu64, after->id, after->token,
                 sim_keys[key], sim->keys[key].max_token);
    }
    check_identity(sim, request, before, after->id);
    if (request->act == ACT_ADOPT && before->id >= 0) {
        sim->ids[before->id].ended_by_other = true;
    }
    check_rivals(sim, key, after->id);
    /* A second grant under one id, where it cannot be prevented, may be ended by late requests of the first. */
    identity->ended_by_other = identity->taken;
    identity->orphan = sim->swarm.dynamo && request->again;
    identity->taken = true;
    note_owner(sim, key, identity);
    identity->token = after->token;
    identity->taken_t = sim->t;
    identity->expires_ms = after->expires_ms;
    sim->keys[key].max_token = after->token;
    sim_note(sim, "HOLDS", sim->tasks[after->id].client, after->id, key, (int64_t)after->token, 0);
    check_changed_hands(sim, key);
}

static void on_ended(struct sim *sim, const struct request *request, int key, const struct glance *before)
{
    if ((request->act != ACT_RELEASE && request->act != ACT_FORCE) || request->id != before->id ||
        key != request->key) {
        sim_fail(sim, "L3", "the lock of i%d on '%s' was ended by i%d", before->id, sim_keys[key],
                 request->id);
    } else if (request->task != before->id) {
        sim->ids[before->id].ended_by_other = true;
    } else if (request->act == ACT_RELEASE) {
        sim->ids[before->id].gave_back = true;
    }
    if (request->act == ACT_FORCE) {
        sim_saw(sim, SEEN_FORCED);
    }
    sim->keys[key].freed_t = sim->t;
    sim_note(sim, "IS FREE", request->client, before->id, key, 0, 0);
    check_changed_hands(sim, key);
}

/* A lease was prolonged, and nothing else. */
static void on_prolonged(struct sim *sim, const struct request *request, int key, const struct glance *before,
                         const struct glance *after)
{
    const struct task *task = &sim->tasks[request->task];
    bool renewed = request->act == ACT_RENEW && request->id == before->id;
    bool reentered = request->act == ACT_ACQUIRE && request->id != before->id && before->id >= 0 &&
                     task->request[SLOT_MAIN].reentrant &&
                     strcmp(task->owner, sim->ids[before->id].owner) == 0;

    if (request->act == ACT_ACQUIRE && request->id == before->id) {
        sim_fail(sim, "L5", "a repeated acquire gave i%d a second lease of '%s'", before->id, sim_keys[key]);
    } else if (!renewed && !reentered) {
        sim_fail(sim, "L3", "the lease of i%d on '%s' was changed by i%d", before->id, sim_keys[key],
                 request->id);
    }
    if (working_now(sim, request) >= before->expires_ms) {
        sim_fail(sim, "L3", "the lease of i%d on '%s' was over and was renewed", before->id, sim_keys[key]);
    }
    sim_saw(sim, SEEN_RENEWED);
    /*
     * Who was given an id can change the ttl of its lease, and make it shorter
     * than its holder knows, at once or by a renewal that comes late.
     */
    if (request->act == ACT_RENEW && request->task != before->id) {
        sim->ids[before->id].ended_by_other = true;
    }
    sim->ids[before->id].expires_ms = after->expires_ms;
}

/* L3: a client that is not the holder changes nothing, and creates no record. */
static void check_outsider(struct sim *sim, const struct request *request, const struct glance *before,
                           const struct glance *after)
{
    const struct glance *own = &before[request->key];
    int named = request->act == ACT_ADOPT ? request->old_id : request->id;
    bool holds = own->held && named >= 0 && own->id == named;

    if (request->act == ACT_ACQUIRE) {
        return;
    }
    if (request->act == ACT_RENEW || request->act == ACT_ADOPT) {
        holds = holds && working_now(sim, request) < own->expires_ms;
    }
    for (int i = 0; i < SIM_KEYS; i++) {
        if (!before[i].exists && after[i].exists) {
            sim_fail(sim, "L3", "a record of '%s' came into being without an acquire", sim_keys[i]);
        }
        if (!holds && !same_glance(&before[i], &after[i])) {
            sim_fail(sim, "L3", "'%s' was changed by i%d, which did not hold '%s'", sim_keys[i], named,
                     sim_keys[request->key]);
        }
    }
}

static void check_change(struct sim *sim, const struct request *request, int key, const struct glance *before,
                         const struct glance *after)
{
    bool changed = true;

    if (after->held && (!before->held || before->id != after->id || before->token != after->token)) {
        if (after->id < 0) {
            sim_fail(sim, "L5", "'%s' is held by an id that nobody has", sim_keys[key]);
            return;
        }
        on_taken(sim, request, key, before, after);
    } else if (before->held && !after->held) {
        on_ended(sim, request, key, before);
    } else if (before->held && before->expires_ms != after->expires_ms) {
        on_prolonged(sim, request, key, before, after);
    } else {
        changed = false;
    }
    if (changed && request->batch.n_events == 0) {
        sim_fail(sim, "L9", "'%s' changed without an event", sim_keys[key]);
    }
}

void check_delivery(struct sim *sim, const struct request *request, const struct glance before[SIM_KEYS],
                    const struct belay_record *copies, size_t n_copies)
{
    struct glance after[SIM_KEYS];

    check_begin(sim, after);
    for (int i = 0; i < SIM_KEYS; i++) {
        if (request->act == ACT_ACQUIRE && after[i].held && after[i].token != before[i].token) {
            check_turn(sim, i, after[i].id, copies, n_copies);
        }
        check_change(sim, request, i, &before[i], &after[i]);
    }
    check_outsider(sim, request, before, after);
    check_state(sim);
}

/* ---- the state of the store -------------------------------------------------------- */

/* The id of an intent begins with the lock's; the rest is a hash of the key. */
static bool is_intent_of(const struct belay_intent *intent, const char *lock_id, const char *key)
{
    size_t len = strlen(lock_id);

    return strcmp(intent->key, key) == 0 && strncmp(intent->lock_id, lock_id, len) == 0 &&
           intent->lock_id[len] == '/';
}

static const struct belay_intent *find_intent(const struct belay_record *record, const char *lock_id,
                                              const char *key)
{
    for (size_t i = 0; record != NULL && i < record->n_intents; i++) {
        if (is_intent_of(&record->intents[i], lock_id, key)) {
            return &record->intents[i];
        }
    }
    return NULL;
}

static bool is_live(const struct sim *sim, const struct belay_record *record)
{
    return record->held && store_now(sim) < record->expires_ms;
}

/* An intent lasts as long as its lock: there for every live lock, with its end, */
static void check_has_intents(struct sim *sim, const struct belay_record *records, size_t n,
                              const struct belay_record *record)
{
    const char *above[BELAY_ANCESTORS_MAX];
    size_t n_above = sim_ancestors(sim_key_index(record->key), above);

    for (size_t i = 0; i < n_above && is_live(sim, record); i++) {
        const struct belay_intent *intent =
            find_intent(find_record(records, n, above[i]), record->lock_id, record->key);

        if (intent == NULL || intent->expires_ms != record->expires_ms) {
            sim_fail(sim, "L6", "%s holds '%s' and %s intent on '%s'", record->lock_id, record->key,
                     intent == NULL ? "has no" : "its lease ends at another time than its", above[i]);
        }
    }
}

/* and gone or over once the lock is. */
static void check_intents_are_meant(struct sim *sim, const struct belay_record *records, size_t n,
                                    const struct belay_record *record)
{
    for (size_t i = 0; i < record->n_intents; i++) {
        const struct belay_intent *intent = &record->intents[i];
        const struct belay_record *lock = find_record(records, n, intent->key);
        bool held = lock != NULL && lock->held && is_intent_of(intent, lock->lock_id, lock->key);

        if (!held && store_now(sim) < intent->expires_ms) {
            sim_fail(sim, "L6", "the intent of %s on '%s' has outlived its lock on '%s'", intent->lock_id,
                     record->key, intent->key);
        }
    }
}

void check_state(struct sim *sim)
{
    size_t n;
    const struct belay_record *records = memstore_records(sim->data, &n);

    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++) {
            if (is_live(sim, &records[i]) && is_live(sim, &records[k]) &&
                sim_keys_conflict(sim_key_index(records[i].key), sim_key_index(records[k].key))) {
                sim_fail(sim, "L1", "'%s' is held by %s and '%s' by %s (S4.5)", records[i].key,
                         records[i].lock_id, records[k].key, records[k].lock_id);
            }
        }
        check_has_intents(sim, records, n, &records[i]);
        check_intents_are_meant(sim, records, n, &records[i]);
    }
}
