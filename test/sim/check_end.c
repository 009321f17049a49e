/* The promises of docs/safety.md about answers, checked when an operation ends and when a world ends. */
#include <inttypes.h>
#include <string.h>

#include "sim/sim.h"

static bool is_live_holder(const struct sim *sim, int key, int id)
{
    static struct glance glances[SIM_KEYS];
    const struct glance_holder *holder;

    check_begin(sim, glances);
    holder = id < 0 ? NULL : check_find_holder(&glances[key], id);
    return holder != NULL && SIM_STORE_EPOCH_MS + sim->t < holder->expires_ms;
}

/* The lock that it was given on one of its keys. */
static void check_grant(struct sim *sim, int number, const struct op *op, int key,
                        const struct belay_record *record)
{
    int id = sim_id_number(record->lock_id);
    const struct holding *holding = id < 0 ? NULL : &sim->ids[id].on[key];

    if (!op->reentered && id != number) {
        sim_fail(sim, "L5", "i%d acquired and was given the lock of i%d", number, id);
    } else if (holding == NULL || !holding->taken) {
        sim_fail(sim, "L5", "i%d was told that it has a lock that it never had", number);
    } else if (record->token != holding->token) {
        sim_fail(sim, "L5", "i%d was told token %" PRIu64 " of '%s', but it is %" PRIu64, number,
                 record->token, sim_keys[key], holding->token);
    } else if (op->reentered && strcmp(holding->owner, sim->tasks[number].owner) != 0) {
        sim_fail(sim, "L3", "i%d re-entered the lock of another owner", number);
    } else if (record->mode != sim->tasks[number].mode) {
        sim_fail(sim, "L1", "i%d was given '%s' in another mode than it asked for", number, sim_keys[key]);
    }
}

static void check_acquired(struct sim *sim, int number, const struct op *op)
{
    const struct task *task = &sim->tasks[number];

    if (op->n_more != (size_t)task->n_keys - 1) {
        sim_fail(sim, "L5", "i%d asked for %d keys, and was given %zu", number, task->n_keys, op->n_more + 1);
        return;
    }
    check_grant(sim, number, op, task->key, &op->record);
    for (int i = 1; i < task->n_keys; i++) {
        check_grant(sim, number, op, task->keys[i], &op->more[i - 1]);
    }
}

/* The keys of the task that `id` has taken. */
static int count_taken(const struct sim *sim, const struct task *task, int id)
{
    int taken = 0;

    for (int i = 0; i < task->n_keys && id >= 0; i++) {
        taken += sim->ids[id].on[task->keys[i]].taken;
    }
    return taken;
}

/* An acquire or an adopt has ended without the lock. */
static void check_not_acquired(struct sim *sim, int number, const struct op *op)
{
    const struct task *task = &sim->tasks[number];
    int old_id = op->request.old_id != NULL ? sim_id_number(op->request.old_id) : -1;
    int held = 0;

    /* An id that is adopted before it has the lock may get it yet, and a late request with it. */
    if (op->code == BELAY_UNKNOWN || (old_id >= 0 && count_taken(sim, task, old_id) < task->n_keys)) {
        sim->ids[number].left_unknown = true;
        return;
    }
    for (int i = 0; i < task->n_keys; i++) {
        const struct holding *holding = &sim->ids[number].on[task->keys[i]];

        /* Unreachable means that this op did nothing; it says nothing about an earlier one with the same id. */
        if (op->code == BELAY_UNREACHABLE && holding->taken &&
            holding->taken_t < task->op_began_t[SLOT_MAIN]) {
            return;
        }
        held += is_live_holder(sim, task->keys[i], number) && !holding->orphan;
    }
    /* An acquisition of which a part has ended is over. That it was not granted in parts is checked before. */
    if (held == task->n_keys && !sim->ids[number].left_unknown) {
        sim_fail(sim, "L5", "i%d was told %s, but it holds '%s'", number, belay_code_name(op->code),
                 sim_keys[task->key]);
    }
    if (!sim->ids[number].left_unknown) {
        sim->ids[number].said_no = true;
    }
}

/* L5: a release whose answer was lost is not reported as a loss, nor one that did not happen as done. */
static void check_given_back(struct sim *sim, int number, const struct op *op)
{
    const struct task *task = &sim->tasks[number];
    int given_back = 0;
    int kept = 0;

    if (op->request.kind != OP_RELEASE || sim_id_number(op->request.lock_id) != number || !op->was_unknown) {
        return;
    }
    for (int i = 0; i < task->n_keys; i++) {
        const struct holding *holding = &sim->ids[number].on[task->keys[i]];

        given_back += holding->gave_back && holding->gave_back_t >= task->op_began_t[SLOT_MAIN];
        kept += holding->taken && !holding->gave_back && !holding->ended_by_other;
    }
    if (op->code == BELAY_OK && op->found_done) {
        sim_saw(sim, SEEN_GIVEN_BACK);
    }
    if (given_back == task->n_keys && (op->code == BELAY_LOST || op->code == BELAY_NOT_HOLDER)) {
        sim_fail(sim, "L5", "i%d gave its lock back, and was told %s", number, belay_code_name(op->code));
    }
    /* Without a record a client that never held the lock has none to release. */
    if (op->code == BELAY_OK && op->found_done && kept > 0) {
        sim_fail(sim, "L5", "i%d was told that it gave its lock back, and had not", number);
    }
}

/* The store still knows that the task has released its lock on that key, although others may hold it. */
static bool is_release_known(const struct sim *sim, int number, int key)
{
    const struct holding *holding = &sim->ids[number].on[key];
    const struct key_info *info = &sim->keys[key];

    return holding->gave_back && info->n_released - holding->gave_back_n < BELAY_RELEASED_MAX &&
           info->exclusive_t < holding->gave_back_t;
}

/* L3: a second release succeeds like the first, and both speak of every key. */
static void check_release_answer(struct sim *sim, int number, const struct op *op, bool is_no)
{
    const struct task *task = &sim->tasks[number];
    static struct glance glances[SIM_KEYS];
    int known = 0;

    if (op->request.kind != OP_RELEASE || sim_id_number(op->request.lock_id) != number) {
        return;
    }
    for (int i = 0; i < task->n_keys && task->mode != BELAY_EXCLUSIVE; i++) {
        known += is_release_known(sim, number, task->keys[i]);
    }
    if (known == task->n_keys && is_no) {
        sim_fail(sim, "L3", "i%d has released its lock, and was told %s", number, belay_code_name(op->code));
    }
    check_begin(sim, glances);
    if (known == task->n_keys && op->code == BELAY_OK && glances[task->key].n_holders > 0) {
        sim_saw(sim, SEEN_CO_RELEASED_TWICE);
    }
    for (int i = 1; i < task->n_keys && op->code == BELAY_OK; i++) {
        if (op->n_more != (size_t)task->n_keys - 1 ||
            strcmp(op->more[i - 1].key, sim_keys[task->keys[i]]) != 0 ||
            strcmp(op->record.key, sim_keys[task->key]) != 0) {
            sim_fail(sim, "L3", "i%d released %d keys, and was not told so of each", number, task->n_keys);
        }
    }
}

/* A renew, release or force has ended: does the answer fit what is in the store? */
static void check_changed(struct sim *sim, int number, int slot, const struct op *op)
{
    const struct task *task = &sim->tasks[number];
    int id = sim_id_number(op->request.lock_id);
    bool ends = task->act[slot] == ACT_RELEASE || task->act[slot] == ACT_FORCE;
    bool is_no = op->code == BELAY_LOST || op->code == BELAY_NOT_HOLDER || op->code == BELAY_NOT_FOUND;
    int held = 0;

    check_release_answer(sim, number, op, is_no);
    for (int i = 0; i < task->n_keys; i++) {
        /* A lock acquired during this operation could not be ended by it. */
        held += is_live_holder(sim, task->keys[i], id) &&
                sim->ids[id].on[task->keys[i]].taken_t < task->op_began_t[slot];
    }
    if (held == 0 || sim->swarm.dynamo) {
        return;
    }
    if (ends && (op->code == BELAY_OK || (is_no && held < task->n_keys))) {
        sim_fail(sim, "L3", "i%d was released, and still holds %d of %d keys", id, held, task->n_keys);
    }
    if (is_no && held == task->n_keys) {
        sim_fail(sim, "L3", "i%d was told %s, but it holds '%s'", id, belay_code_name(op->code),
                 sim_keys[task->key]);
    }
}

/* A wait ends when it was to end, unless its client was stopped. */
static void check_timeliness(struct sim *sim, int number)
{
    const struct task *task = &sim->tasks[number];
    const struct client *client = &sim->clients[task->client];
    int64_t wait_ms = task->op[SLOT_MAIN].request.wait_ms;
    int64_t took_ms = sim->t - task->op_began_t[SLOT_MAIN];
    int64_t slack_ms = 500 + 40 * sim->swarm.latency_ms;

    if (task->op[SLOT_MAIN].request.attempts > 0 && wait_ms == 0) {
        return;
    }
    if (task->op_faults[SLOT_MAIN] > 0) {
        slack_ms += 20000 + 4 * sim->swarm.timeout_ms;
    }
    if (wait_ms >= 0 && client->resumed_t < task->op_began_t[SLOT_MAIN] &&
        took_ms > wait_ms + wait_ms / 40 + slack_ms) {
        sim_fail(sim, "I7", "task %d was to wait for %" PRId64 " ms, and took %" PRId64, number, wait_ms,
                 took_ms);
    }
}

/* L4: a client that no longer waits leaves the queue; on a working network, at once. */
static void check_left_the_line(struct sim *sim, int number)
{
    const struct swarm *swarm = &sim->swarm;
    size_t n;
    const struct belay_record *records = memstore_records(sim->data, &n);

    for (size_t i = 0; i < n && !(swarm->fail || swarm->lose || swarm->late || swarm->duplicate); i++) {
        for (size_t t = 0; t < records[i].n_tickets; t++) {
            if (sim_id_number(records[i].tickets[t].lock_id) == number) {
                sim_fail(sim, "L4", "task %d has ended, and its ticket still stands in the line of '%s'",
                         number, records[i].key);
            }
        }
    }
}

static void note_end(struct sim *sim, const struct task *task, int slot)
{
    const struct op *op = &task->op[slot];

    switch (op->code) {
    case BELAY_OK:
        if (task->act[slot] == ACT_ACQUIRE && op->reentered) {
            sim_saw(sim, SEEN_REENTERED);
        } else if (task->act[slot] == ACT_ACQUIRE && op->was_unknown) {
            sim_saw(sim, SEEN_FOUND_AGAIN);
            if (task->n_keys > 1) {
                sim_saw(sim, SEEN_JOINT_FOUND_AGAIN);
            }
            if (op->record.n_holders > 1) {
                sim_saw(sim, SEEN_CO_FOUND_AGAIN);
            }
        }
        return;
    case BELAY_HELD:
        sim_saw(sim, SEEN_HELD);
        return;
    case BELAY_ID_USED:
        sim_saw(sim, SEEN_USED);
        return;
    case BELAY_UNKNOWN:
        sim_saw(sim, SEEN_UNKNOWN);
        return;
    case BELAY_CANCELLED:
        sim_saw(sim, SEEN_CANCELLED);
        return;
    case BELAY_NOT_HOLDER:
        sim_saw(sim, SEEN_NOT_HOLDER);
        return;
    default:
        return;
    }
}

/* Another number of slots is refused while the lock is held with one, and only then. */
static void check_refused_mode(struct sim *sim, int number, int slot)
{
    const struct task *task = &sim->tasks[number];
    static struct glance glances[SIM_KEYS];
    bool had_other = false;

    check_begin(sim, glances);
    check_note_slots(sim, glances);
    for (int i = 0; i < task->n_keys; i++) {
        for (int slots = 1; slots <= SIM_SLOTS_MAX; slots++) {
            had_other = had_other || (slots != task->slots &&
                                      sim->keys[task->keys[i]].slots_t[slots] >= task->op_began_t[slot]);
        }
    }
    if (task->act[slot] != ACT_ACQUIRE || task->mode != BELAY_SLOTS || !had_other) {
        sim_fail(sim, "L8", "task %d ended with '%s': %s", number, belay_code_name(task->op[slot].code),
                 task->op[slot].err.text);
    }
    sim_saw(sim, SEEN_OTHER_SLOTS);
}

void check_op_end(struct sim *sim, int number, int slot)
{
    struct task *task = &sim->tasks[number];
    const struct op *op = &task->op[slot];

    note_end(sim, task, slot);
    if (op->code == BELAY_FROZEN && task->act[slot] != ACT_ACQUIRE) {
        sim_fail(sim, "freeze", "task %d ended with '%s', but a freeze concerns new holders only", number,
                 op->err.text);
    }
    if (op->code == BELAY_OK && task->act[slot] == ACT_RENEW && sim_is_frozen(sim, task->key, 0)) {
        sim_saw(sim, SEEN_KEPT_FROZEN);
    }
    if (op->code == BELAY_INVALID) {
        check_refused_mode(sim, number, slot);
    }
    if (op->code == BELAY_BUG || op->code == BELAY_REFUSED) {
        sim_fail(sim, "L9", "task %d ended with '%s': %s", number, belay_code_name(op->code), op->err.text);
    }
    if ((op->code == BELAY_UNKNOWN || op->code == BELAY_UNREACHABLE) && task->op_faults[slot] == 0) {
        sim_fail(sim, "L5", "task %d ended with '%s', but nothing had failed", number,
                 belay_code_name(op->code));
    }
    if (op->code != BELAY_OK && op->err.text[0] == '\0') {
        sim_fail(sim, "L9", "task %d ended with '%s' and no text", number, belay_code_name(op->code));
    }
    if (task->act[slot] != ACT_ACQUIRE && task->act[slot] != ACT_ADOPT) {
        check_given_back(sim, number, op);
        check_changed(sim, number, slot, op);
        return;
    }
    if (op->code == BELAY_OK) {
        check_acquired(sim, number, op);
    } else {
        check_not_acquired(sim, number, op);
    }
    if (task->act[slot] == ACT_ACQUIRE) {
        check_timeliness(sim, number);
        check_left_the_line(sim, number);
    }
}

/* L6: a holder's own view of its lease ends before another client can take over, however the clocks differ. */
void check_lease(struct sim *sim, int number)
{
    const struct task *task = &sim->tasks[number];
    int64_t deadline_ms = SIM_STORE_EPOCH_MS + sim_true_at(sim, task->client, task->lease.deadline_ms);

    for (int i = 0; i < task->n_keys && task->believes; i++) {
        const struct holding *holding = &sim->ids[number].on[task->keys[i]];
        int64_t take_over_ms = holding->expires_ms + sim->capabilities.margin_ms;

        if (!holding->ended_by_other && deadline_ms >= take_over_ms) {
            sim_fail(sim, "L6",
                     "task %d relies on its lease of '%s' for %" PRId64 " ms after it can be taken over",
                     number, sim_keys[task->keys[i]], deadline_ms - take_over_ms);
        }
    }
}

/* All clients have ended. */
void check_liveness(struct sim *sim)
{
    for (int i = 0; i < sim->n_tasks; i++) {
        const struct task *task = &sim->tasks[i];

        if (task->op_runs[SLOT_MAIN] || task->op_runs[SLOT_BEAT] || task->phase != PHASE_DONE) {
            sim_fail(sim, "I7", "task %d has not ended", i);
        }
    }
}
