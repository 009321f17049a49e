/* The plans of the clients: mostly correct, sometimes careless, rarely malicious. */
#include <stdio.h>
#include <string.h>

#include "sim/sim.h"

static int begin_task(struct sim *sim, int client)
{
    struct task *task = &sim->tasks[sim->n_tasks];

    if (sim->n_tasks == SIM_TASKS_MAX) {
        return -1;
    }
    memset(task, 0, sizeof *task);
    memset(&sim->ids[sim->n_tasks], 0, sizeof sim->ids[0]);
    task->client = client;
    task->gen = sim->clients[client].gen;
    task->cancel_ms = -1;
    task->due_since = -1;
    (void)snprintf(task->id, sizeof task->id, "i%d", sim->n_tasks);
    (void)snprintf(task->owner, sizeof task->owner, "o%d", sim->n_tasks);
    return sim->n_tasks++;
}

static void set_key(struct task *task, int key)
{
    task->key = key;
    task->keys[0] = key;
    task->n_keys = 1;
}

/* Further keys, none of them above or below another. In any order, so that two tasks want them in different ones. */
static void plan_keys(struct sim *sim, struct task *task)
{
    int more = (int)rng_range(&sim->rng, 1, SIM_JOINT_MAX - 1);

    for (int tries = 0; tries < 8 && more > 0; tries++) {
        int key = (int)rng_range(&sim->rng, 0, sim->swarm.n_keys - 1);
        bool fits = true;

        for (int i = 0; i < task->n_keys; i++) {
            fits = fits && !sim_keys_conflict(task->keys[i], key);
        }
        if (fits) {
            task->keys[task->n_keys++] = key;
            more--;
        }
    }
}

/* In which way it wants the lock, and of how many keys. */
static void plan_kind(struct sim *sim, struct task *task)
{
    int64_t dice = rng_range(&sim->rng, 0, 99);

    if (sim->swarm.plain) {
        return;
    }
    if (rng_percent(&sim->rng, sim->swarm.joint_percent)) {
        plan_keys(sim, task);
    }
    if (dice < 35) {
        task->mode = BELAY_SHARED;
    } else if (dice < 65) {
        task->mode = BELAY_SLOTS;
        task->slots = sim->swarm.slots[task->key];
        if (rng_percent(&sim->rng, 8)) {
            task->slots++;
        }
    }
    task->says_mode = rng_percent(&sim->rng, 70);
}

static void copy_kind(const struct task *from, struct task *task)
{
    task->key = from->key;
    task->n_keys = from->n_keys;
    memcpy(task->keys, from->keys, sizeof task->keys);
    task->mode = from->mode;
    task->slots = from->slots;
}

static void plan_terms(struct sim *sim, struct task *task)
{
    int64_t least = sim->swarm.dynamo ? 4 * sim->capabilities.margin_ms + 1500 : 500;

    task->ttl_ms = rng_range(&sim->rng, least, least + 6000);
    if (rng_percent(&sim->rng, 65)) {
        task->heartbeat_ms = task->ttl_ms / rng_range(&sim->rng, 3, 6);
        task->hold_ms = rng_range(&sim->rng, 0, 3 * task->ttl_ms);
    } else {
        task->hold_ms = rng_range(&sim->rng, 0, task->ttl_ms * 5 / 4);
    }
    if (rng_percent(&sim->rng, 40)) {
        task->hold_ms = rng_range(&sim->rng, 0, 200);
    }
}

static void plan_patience(struct sim *sim, struct task *task, struct op_request *request)
{
    int64_t kind = rng_range(&sim->rng, 0, 9);
    bool is_crowded = sim->swarm.joint_percent > 50; /* where a deadlock would show */

    if (kind >= 4) {
        request->wait_ms = rng_range(&sim->rng, 100, 15000);
    }
    if (kind == 9 || (is_crowded && kind >= 6)) {
        request->wait_ms = BELAY_WAIT_FOREVER;
    }
    if (kind == 2 || kind == 3 || kind == 4) {
        request->attempts = (int)rng_range(&sim->rng, 1, 4);
        request->stepped_backoff = rng_percent(&sim->rng, 10);
    }
    if (request->wait_ms != 0 && rng_percent(&sim->rng, 15)) {
        task->cancel_ms = rng_range(&sim->rng, 0, 5000);
    }
}

static void plan_acquire(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];
    struct op_request *request = &task->request[SLOT_MAIN];
    int64_t end = rng_range(&sim->rng, 0, 99);

    task->plan = PLAN_ACQUIRE;
    plan_kind(sim, task);
    plan_terms(sim, task);
    plan_patience(sim, task, request);
    if (rng_percent(&sim->rng, 20) && task->n_keys == 1) {
        request->reentrant = true;
        (void)snprintf(task->owner, sizeof task->owner, "same%d", task->client);
    }
    task->end = end < 65 ? END_RELEASE : end < 77 ? END_RELEASE_TWICE : end < 87 ? END_LEAVE : END_HAND_OVER;
    if (task->end == END_HAND_OVER || task->end == END_LEAVE) {
        task->heartbeat_ms = 0;
        request->durable = true;
    }
    task->release_after_loss = rng_percent(&sim->rng, 50);
    task->renew_by_hand = rng_percent(&sim->rng, 20);
    task->repeats = rng_percent(&sim->rng, 30) ? (int)rng_range(&sim->rng, 1, 2) : 0;
    /*
     * An id that was made for this acquire is not looked up among the used ones:
     * that is for stores to which nothing can come late (docs/safety.md).
     */
    request->id_is_fresh =
        (sim->swarm.dynamo || !(sim->swarm.late || sim->swarm.duplicate)) && rng_percent(&sim->rng, 70);
}

/* The lock id of one of the holders, or of the last one. */
static const char *some_holder(struct sim *sim, const struct belay_record *record)
{
    if (record->n_holders == 0) {
        return record->lock_id;
    }
    return record->holders[rng_range(&sim->rng, 0, (int64_t)record->n_holders - 1)].lock_id;
}

/* The id that an intruder uses: an old one, a current one, or an invented one. */
static void choose_target(struct sim *sim, struct task *task, bool holder)
{
    size_t n;
    const struct belay_record *records = memstore_records(sim->data, &n);

    for (size_t i = 0; i < n; i++) {
        if (strcmp(records[i].key, sim_keys[task->key]) == 0 && records[i].lock_id[0] != '\0' &&
            (holder || rng_percent(&sim->rng, 50))) {
            (void)snprintf(task->target, sizeof task->target, "%s", some_holder(sim, &records[i]));
            return;
        }
    }
    (void)snprintf(task->target, sizeof task->target, "i%d", (int)rng_range(&sim->rng, 0, sim->n_tasks - 1));
    if (rng_percent(&sim->rng, 20)) {
        (void)snprintf(task->target, sizeof task->target, "nobody");
    }
}

/* Sometimes the intruder knows of the other keys, and of the mode. */
static void spy_out(struct sim *sim, struct task *task)
{
    int target = sim_id_number(task->target);

    if (target >= 0 && &sim->tasks[target] != task && sim_has_key(&sim->tasks[target], task->key) &&
        rng_percent(&sim->rng, 50)) {
        copy_kind(&sim->tasks[target], task);
        task->says_mode = rng_percent(&sim->rng, 50);
    }
}

int plan_new(struct sim *sim, int client)
{
    int number = begin_task(sim, client);
    int64_t dice = rng_range(&sim->rng, 0, 99);
    struct task *task;

    if (number < 0) {
        return -1;
    }
    task = &sim->tasks[number];
    set_key(task, (int)rng_range(&sim->rng, 0, sim->swarm.n_keys - 1));
    task->ttl_ms = 2000 + 4 * sim->capabilities.margin_ms;
    if (dice < 85) {
        plan_acquire(sim, number);
    } else if (dice < 94) {
        static const enum act acts[] = { ACT_RENEW, ACT_RELEASE, ACT_ADOPT };

        task->plan = PLAN_ROGUE;
        task->rogue_act = acts[rng_range(&sim->rng, 0, 2)];
        choose_target(sim, task, false);
        spy_out(sim, task);
    } else {
        task->plan = PLAN_FORCE;
        choose_target(sim, task, true);
        spy_out(sim, task);
    }
    return number;
}

/* A job that was given the id of task `from`. */
int plan_adopt(struct sim *sim, int client, int from)
{
    int number = begin_task(sim, client);

    if (number >= 0) {
        struct task *task = &sim->tasks[number];

        task->plan = PLAN_ADOPT;
        copy_kind(&sim->tasks[from], task);
        task->says_mode = rng_percent(&sim->rng, 50);
        plan_terms(sim, task);
        task->end = END_RELEASE;
        task->release_after_loss = rng_percent(&sim->rng, 50);
        (void)snprintf(task->target, sizeof task->target, "i%d", from);
    }
    return number;
}
