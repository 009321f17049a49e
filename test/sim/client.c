/*
 * Clients as src/client is one: they run operations, keep leases by struct
 * lease, and say that a lock is lost when it says so. But on virtual time, and
 * many at once.
 */
#include <string.h>

#include "sim/sim.h"

static struct event event_for(const struct sim *sim, int number, enum event_kind kind)
{
    return (struct event){
        .kind = kind, .client = sim->tasks[number].client, .gen = sim->tasks[number].gen, .task = number
    };
}

static void act_after(struct sim *sim, int number, int64_t delay_ms)
{
    struct event event = event_for(sim, number, EVENT_ACT);

    event.serial = ++sim->tasks[number].act_serial;
    sim_push(sim, sim->t + delay_ms, event);
}

static void plan_lease(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];
    struct event event = event_for(sim, number, EVENT_LEASE);
    int64_t next_ms = task->op_runs[SLOT_BEAT] ? task->lease.deadline_ms : lease_next_ms(&task->lease);

    if (!task->believes) {
        return;
    }
    event.serial = ++task->lease_serial;
    sim_push(sim, sim_true_at(sim, task->client, next_ms), event);
}

/* ---- operations ----------------------------------------------------------- */

/* Its keys and all that is above them, each once. */
static const struct op_joint *make_joint(struct task *task)
{
    struct op_joint *joint = &task->joint;

    memset(joint, 0, sizeof *joint);
    for (int t = 0; t < task->n_keys; t++) {
        const char *above[BELAY_ANCESTORS_MAX];
        size_t n_above = sim_ancestors(task->keys[t], above);

        joint->keys[joint->n_keys++] = sim_keys[task->keys[t]];
        for (size_t a = 0; a < n_above; a++) {
            size_t i = 0;

            while (i < joint->n_ancestors && joint->ancestors[i] != above[a]) {
                i++;
            }
            joint->n_ancestors += i == joint->n_ancestors;
            joint->ancestors[i] = above[a];
            joint->below[i] = (uint16_t)(joint->below[i] | 1U << t);
        }
    }
    return joint;
}

static void set_kind(struct task *task, struct op_request *request, enum act act)
{
    bool says_mode = act == ACT_ACQUIRE || task->says_mode;

    request->key = sim_keys[task->key];
    request->n_ancestors = task->n_keys > 1 ? 0 : sim_ancestors(task->key, request->ancestors);
    request->joint = task->n_keys > 1 ? make_joint(task) : NULL;
    request->mode = says_mode ? task->mode : BELAY_EXCLUSIVE;
    request->slots = says_mode ? task->slots : 0;
}

static void start_op(struct sim *sim, int number, int slot, enum act act, const char *lock_id)
{
    struct task *task = &sim->tasks[number];
    struct op_request *request = &task->request[slot];

    request->kind = (enum op_kind)act;
    set_kind(task, request, act);
    request->lock_id = lock_id;
    request->old_id = act == ACT_ADOPT ? task->target : NULL;
    request->owner = act == ACT_ADOPT && rng_percent(&sim->rng, 50) ? NULL : task->owner;
    request->owner_name = task->owner;
    request->ttl_ms = act == ACT_RENEW && rng_percent(&sim->rng, 50) ? 0 : task->ttl_ms;
    request->heartbeat_ms = task->heartbeat_ms;
    request->stale_after_ms = 4 * task->heartbeat_ms;
    request->outcome = BELAY_OUTCOME_COMPLETED;
    request->by = task->owner;
    request->reason = "it was time";
    request->capabilities = sim->capabilities;
    request->seed = rng_next(&sim->rng);
    task->act[slot] = act;
    task->op_runs[slot] = true;
    task->was_frozen = task->was_frozen && slot != SLOT_MAIN;
    task->op_serial[slot]++;
    task->op_steps[slot] = 0;
    task->op_faults[slot] = 0;
    task->op_began_t[slot] = sim->t;
    sim_note(sim, "begins", task->client, number, task->key, (int64_t)act, sim_id_number(lock_id));
    op_start(&task->op[slot], request, sim_boot_ms(sim, task->client));
    client_drive(sim, number, slot);
}

static void push_wait(struct sim *sim, int number, int slot)
{
    struct task *task = &sim->tasks[number];
    struct event event = event_for(sim, number, EVENT_TIMER);
    int64_t t = sim_true_at(sim, task->client, task->op[slot].wait_until_ms);
    bool missed = slot == SLOT_MAIN && task->op[slot].queued && task->wakes != task->listened;

    event.slot = slot;
    event.serial = task->op_serial[slot] * SIM_STEPS_PER_OP + (unsigned)task->op_steps[slot];
    sim_push(sim, missed || t < sim->t ? sim->t : t, event);
}

static void on_done(struct sim *sim, int number, int slot);

void client_drive(struct sim *sim, int number, int slot)
{
    struct task *task = &sim->tasks[number];
    struct op *op = &task->op[slot];

    if (++task->op_steps[slot] >= SIM_STEPS_PER_OP) {
        sim_fail(sim, "I7", "an operation goes on for ever");
        return;
    }
    switch (op->want) {
    case OP_COMMIT:
    case OP_GET:
        net_send(sim, number, slot);
        return;
    case OP_WAIT:
        sim_note(sim, "waits", task->client, number, task->key, op->wait_until_ms, op->queued);
        push_wait(sim, number, slot);
        return;
    case OP_DONE:
        break;
    }
    sim_note(sim, "ends", task->client, number, task->key, (int64_t)task->act[slot], (int64_t)op->code);
    check_op_end(sim, number, slot);
    task->op_runs[slot] = false;
    on_done(sim, number, slot);
    op_destroy(op);
}

/* ---- what follows from their ends ------------------------------------------ */

static void hold(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];
    const struct op *op = &task->op[SLOT_MAIN];

    lease_begin(&task->lease, op->sent_ms, op->deadline_ms, op->record.ttl_ms, task->heartbeat_ms);
    task->believes = true;
    task->phase = PHASE_HOLDING;
    check_lease(sim, number);
    plan_lease(sim, number);
    act_after(sim, number, task->hold_ms);
}

static void lose(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];

    sim_saw(sim, SEEN_LOST);
    sim_note(sim, "hears of its loss", task->client, number, task->key, 0, 0);
    lease_end(&task->lease);
    task->believes = false;
    task->phase = PHASE_ENDING;
    if (task->op_runs[SLOT_MAIN]) {
        return;
    }
    if (task->release_after_loss) {
        act_after(sim, number, rng_range(&sim->rng, 0, task->ttl_ms));
    } else {
        task->phase = PHASE_DONE;
    }
}

static void release(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];

    lease_end(&task->lease);
    task->believes = false;
    task->phase = PHASE_ENDING;
    start_op(sim, number, SLOT_MAIN, ACT_RELEASE, task->id);
}

/* The id goes to a job of another client, sometimes to two. */
static void hand_over(struct sim *sim, int number)
{
    int copies = rng_percent(&sim->rng, 30) ? 2 : 1;

    sim->tasks[number].believes = false;
    sim->tasks[number].phase = PHASE_DONE;
    for (int i = 0; i < SIM_KEYS; i++) {
        sim->ids[number].on[i].ended_by_other = true;
    }
    for (int i = 0; i < copies; i++) {
        int client = (int)rng_range(&sim->rng, 0, sim->swarm.n_clients - 1);
        int job = plan_adopt(sim, client, number);

        if (job >= 0) {
            act_after(sim, job, rng_range(&sim->rng, 0, sim->tasks[number].ttl_ms / 2));
        }
    }
}

static void on_acquired(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];
    const struct op *op = &task->op[SLOT_MAIN];

    if (op->code == BELAY_OK && !op->reentered) {
        hold(sim, number);
    } else if (op->code == BELAY_UNKNOWN && task->plan == PLAN_ACQUIRE && task->repeats > 0) {
        task->repeats--;
        task->phase = PHASE_ACQUIRING;
        act_after(sim, number, rng_range(&sim->rng, 0, 2000));
    } else if (op->code == BELAY_UNKNOWN && task->release_after_loss) {
        task->phase = PHASE_ENDING;
        act_after(sim, number, rng_range(&sim->rng, 0, 500));
    } else {
        task->phase = PHASE_DONE;
    }
}

static void on_released(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];

    if (task->end == END_RELEASE_TWICE) {
        task->end = END_RELEASE;
        act_after(sim, number, rng_range(&sim->rng, 0, 3000));
    } else if (task->repeats > 0 && task->op[SLOT_MAIN].code != BELAY_UNKNOWN) {
        /* Not after a release that may yet happen: that would end what is acquired now. */
        task->repeats--;
        task->phase = PHASE_ACQUIRING;
        act_after(sim, number, rng_range(&sim->rng, 0, 4000));
    } else {
        task->phase = PHASE_DONE;
    }
}

static void on_beaten(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];
    const struct op *op = &task->op[SLOT_BEAT];

    if (!task->believes) {
        return;
    }
    switch (op->code) {
    case BELAY_OK:
        lease_renewed(&task->lease, op->sent_ms, op->deadline_ms, op->record.ttl_ms);
        check_lease(sim, number);
        break;
    case BELAY_LOST:
    case BELAY_NOT_HOLDER:
    case BELAY_NOT_FOUND:
        lose(sim, number);
        return;
    default:
        lease_beat_failed(&task->lease, sim_boot_ms(sim, task->client));
    }
    plan_lease(sim, number);
}

static void on_done(struct sim *sim, int number, int slot)
{
    struct task *task = &sim->tasks[number];

    if (slot == SLOT_BEAT) {
        on_beaten(sim, number);
        return;
    }
    switch (task->act[slot]) {
    case ACT_ACQUIRE:
    case ACT_ADOPT:
        on_acquired(sim, number);
        return;
    case ACT_RELEASE:
        if (task->plan != PLAN_ROGUE) {
            on_released(sim, number);
            return;
        }
        break;
    default:
        break;
    }
    task->phase = PHASE_DONE;
}

/* ---- events ---------------------------------------------------------------- */

static void on_hold_over(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];

    if (task->renew_by_hand && !task->op_runs[SLOT_BEAT]) {
        task->renew_by_hand = false;
        act_after(sim, number, rng_range(&sim->rng, 0, task->ttl_ms));
        start_op(sim, number, SLOT_BEAT, ACT_RENEW, task->id);
    } else if (task->end == END_HAND_OVER) {
        hand_over(sim, number);
    } else if (task->end != END_LEAVE) {
        release(sim, number);
    }
}

static void begin(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];

    switch (task->plan) {
    case PLAN_ACQUIRE:
        start_op(sim, number, SLOT_MAIN, ACT_ACQUIRE, task->id);
        break;
    case PLAN_ADOPT:
        start_op(sim, number, SLOT_MAIN, ACT_ADOPT, task->id);
        break;
    case PLAN_ROGUE:
        start_op(sim, number, SLOT_MAIN, task->rogue_act,
                 task->rogue_act == ACT_ADOPT ? task->id : task->target);
        break;
    case PLAN_FORCE:
        start_op(sim, number, SLOT_MAIN, ACT_FORCE, task->target);
        break;
    }
}

static void on_act(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];

    if (task->op_runs[SLOT_MAIN]) {
        return;
    }
    if (task->phase == PHASE_HOLDING) {
        on_hold_over(sim, number);
    } else if (task->phase == PHASE_ENDING) {
        release(sim, number);
    } else if (task->phase == PHASE_ACQUIRING) {
        if (task->op_serial[SLOT_MAIN] > 0) {
            task->request[SLOT_MAIN].id_is_fresh = false;
        }
        begin(sim, number);
    }
}

static void on_lease(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];

    switch (lease_due(&task->lease, sim_boot_ms(sim, task->client))) {
    case LEASE_LOST:
        lose(sim, number);
        return;
    case LEASE_BEAT:
        if (!task->op_runs[SLOT_BEAT]) {
            start_op(sim, number, SLOT_BEAT, ACT_RENEW, task->id);
        }
        break;
    case LEASE_QUIET:
        break;
    }
    plan_lease(sim, number);
}

static void wake(struct sim *sim, int number, int slot)
{
    struct task *task = &sim->tasks[number];

    op_on_wake(&task->op[slot], sim_boot_ms(sim, task->client));
    client_drive(sim, number, slot);
}

static void on_cancel(struct sim *sim, int number)
{
    struct task *task = &sim->tasks[number];

    if (task->op_runs[SLOT_MAIN] && task->act[SLOT_MAIN] == ACT_ACQUIRE) {
        sim_note(sim, "is cancelled", task->client, number, task->key, 0, 0);
        op_cancel(&task->op[SLOT_MAIN]);
        if (task->op[SLOT_MAIN].want == OP_WAIT) {
            wake(sim, number, SLOT_MAIN);
        }
    }
}

void client_spawn(struct sim *sim, int client)
{
    struct event next = { .kind = EVENT_SPAWN, .client = client };
    int number;

    if (sim->t >= sim->swarm.busy_until || sim->n_tasks >= sim->swarm.n_tasks) {
        return;
    }
    number = plan_new(sim, client);
    if (number >= 0) {
        if (sim->tasks[number].cancel_ms >= 0) {
            sim_push(sim, sim->t + sim->tasks[number].cancel_ms, event_for(sim, number, EVENT_CANCEL));
        }
        begin(sim, number);
    }
    next.gen = sim->clients[client].gen;
    sim_push(sim, sim->t + rng_range(&sim->rng, 1, 3000), next);
}

void client_on_event(struct sim *sim, const struct event *event)
{
    struct task *task = &sim->tasks[event->task];

    switch (event->kind) {
    case EVENT_TIMER:
        if (task->op_runs[event->slot] && task->op[event->slot].want == OP_WAIT &&
            event->serial ==
                task->op_serial[event->slot] * SIM_STEPS_PER_OP + (unsigned)task->op_steps[event->slot]) {
            wake(sim, event->task, event->slot);
        }
        break;
    case EVENT_WAKE:
        task->wakes++;
        if (task->op_runs[SLOT_MAIN] && task->op[SLOT_MAIN].want == OP_WAIT && task->op[SLOT_MAIN].queued) {
            wake(sim, event->task, SLOT_MAIN);
        }
        break;
    case EVENT_LEASE:
        if (task->believes && event->serial == task->lease_serial) {
            on_lease(sim, event->task);
        }
        break;
    case EVENT_ACT:
        if (event->serial == task->act_serial) {
            on_act(sim, event->task);
        }
        break;
    case EVENT_CANCEL:
        on_cancel(sim, event->task);
        break;
    default:
        break;
    }
}

/* The process is gone, and with it all it knew. What it sent is still on its way. */
void client_crash(struct sim *sim, int client)
{
    sim_saw(sim, SEEN_CRASHED);
    sim_note(sim, "crashes", client, -1, -1, 0, 0);
    for (int i = 0; i < sim->n_tasks; i++) {
        struct task *task = &sim->tasks[i];

        if (task->client != client || task->gen != sim->clients[client].gen) {
            continue;
        }
        for (int slot = 0; slot < SLOTS; slot++) {
            if (task->op_runs[slot]) {
                sim->ids[i].left_unknown = true;
                op_destroy(&task->op[slot]);
                task->op_runs[slot] = false;
            }
        }
        task->believes = false;
        task->phase = PHASE_DONE;
        if (!sim->swarm.dynamo) {
            memstore_set_waiter_dead(sim->data, task->id, true);
        }
    }
    sim->clients[client].gen++;
}
