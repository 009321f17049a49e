/*
 * Between the clients and the store: a network that can be slow, lose requests,
 * lose answers, deliver late, and deliver twice.
 */
#include <string.h>

#include "base/error.h"
#include "sim/sim.h"

static enum fate choose_fate(struct sim *sim, bool is_get)
{
    enum fate fates[4];
    int n = 0;

    if (sim->t >= sim->swarm.busy_until || !rng_percent(&sim->rng, sim->swarm.percent)) {
        return FATE_WELL;
    }
    if (sim->swarm.fail) {
        fates[n++] = FATE_FAIL;
    }
    if (sim->swarm.lose && !is_get) {
        fates[n++] = FATE_LOSE;
    }
    if (sim->swarm.late && !is_get) {
        fates[n++] = FATE_LATE;
    }
    if (sim->swarm.duplicate && !is_get) {
        fates[n++] = FATE_DUPLICATE;
    }
    return n == 0 ? FATE_WELL : fates[rng_range(&sim->rng, 0, n - 1)];
}

static int64_t latency(struct sim *sim)
{
    return rng_range(&sim->rng, 0, sim->swarm.latency_ms);
}

static void push_request(struct sim *sim, int64_t t, enum event_kind kind, struct request *request)
{
    struct event event = { .kind = kind,
                           .client = request->client,
                           .gen = request->gen,
                           .task = request->task,
                           .slot = request->slot,
                           .serial = request->serial,
                           .request = request };

    sim_push(sim, t, event);
}

/* The same request once more, later; its answer is dropped. */
static void push_again(struct sim *sim, const struct request *request, int64_t from_t)
{
    struct request *again = arena_alloc(&sim->arena, sizeof *again);

    *again = *request;
    again->again = true;
    memset(&again->commit, 0, sizeof again->commit);
    push_request(sim, from_t + rng_range(&sim->rng, 1, sim->swarm.late_ms), EVENT_ARRIVE, again);
}

static struct request *make_request(struct sim *sim, int number, int slot)
{
    struct task *task = &sim->tasks[number];
    struct op *op = &task->op[slot];
    struct request *request = arena_alloc(&sim->arena, sizeof *request);

    request->client = task->client;
    request->gen = task->gen;
    request->task = number;
    request->slot = slot;
    request->serial = task->op_serial[slot];
    request->act = task->act[slot];
    request->keeps_ttl = task->act[slot] == ACT_RENEW && task->request[slot].ttl_ms == 0;
    request->key = task->key;
    request->n_targets = task->n_keys;
    memcpy(request->targets, task->keys, sizeof request->targets);
    request->id = sim_id_number(op->request.lock_id);
    request->old_id = op->request.old_id != NULL ? sim_id_number(op->request.old_id) : -1;
    request->is_get = op->want == OP_GET;
    request->sent_ms = sim_boot_ms(sim, task->client);
    request->sent_t = sim->t;
    if (request->is_get) {
        request->n_keys = op->n_keys;
        for (size_t i = 0; i < op->n_keys; i++) {
            request->keys[i] = arena_copy(&sim->arena, op->keys[i]);
        }
    } else {
        batch_copy(&sim->arena, &op->batch, &request->batch);
    }
    return request;
}

void net_send(struct sim *sim, int number, int slot)
{
    struct task *task = &sim->tasks[number];
    struct request *request = make_request(sim, number, slot);
    int64_t timeout_t = sim->t + 1 + rng_range(&sim->rng, sim->swarm.latency_ms, sim->swarm.timeout_ms);

    request->fate = choose_fate(sim, request->is_get);
    sim_note(sim, request->is_get ? "sends a read" : "sends a batch", task->client, number, task->key,
             (int64_t)request->act, (int64_t)request->fate);
    /* Listen before looking. To ask for a holder's name is not to look: a wake-up before it still counts. */
    if (request->is_get
            ? task->op[slot].blocker_key == NULL
            : request->batch.n_writes > 0 && (request->batch.writes[0].put_ticket != NULL ||
                                              request->batch.writes[0].condition == BELAY_IF_NEXT)) {
        task->listened = task->wakes;
    }
    if (request->fate != FATE_WELL && request->fate != FATE_DUPLICATE) {
        task->op_faults[slot]++;
    }
    switch (request->fate) {
    case FATE_WELL:
    case FATE_DUPLICATE:
        push_request(sim, sim->t + latency(sim), EVENT_ARRIVE, request);
        return;
    case FATE_FAIL:
        request->code = error_set(&request->err, BELAY_UNREACHABLE, "no route");
        push_request(sim, sim->t + latency(sim), EVENT_ANSWER, request);
        return;
    case FATE_LOSE:
        push_request(sim, sim->t + latency(sim), EVENT_ARRIVE, request);
        break;
    case FATE_LATE:
        push_again(sim, request, timeout_t);
        break;
    }
    request->code = error_set(&request->err, BELAY_UNKNOWN, "timed out");
    push_request(sim, timeout_t, EVENT_ANSWER, request);
}

/*
 * DynamoDB says the time in coarse steps, so behind by up to one, which the
 * margin covers; and each client writes by its own idea of it.
 */
static int64_t date_ms(const struct sim *sim)
{
    int64_t now = SIM_STORE_EPOCH_MS + sim->t;

    return sim->swarm.dynamo ? now - now % sim->capabilities.margin_ms : now;
}

static void arrive_get(struct sim *sim, struct request *request)
{
    request->code = sim->store->ops->get(sim->store, request->keys, request->n_keys, request->records,
                                         &request->now_ms, &request->err);
    request->now_ms = date_ms(sim);
    push_request(sim, sim->t + latency(sim), EVENT_ANSWER, request);
}

static bool takes(const struct belay_batch *batch)
{
    for (size_t i = 0; i < batch->n_writes; i++) {
        if ((batch->writes[i].set & (BELAY_SET_ACQUIRED | BELAY_SET_IDENTITY)) != 0) {
            return true;
        }
    }
    return false;
}

/* Copies of all records, to know the queue of before; returns their number. */
static size_t copy_records(struct sim *sim, struct belay_record copies[SIM_KEYS])
{
    size_t n;
    const struct belay_record *records = memstore_records(sim->data, &n);

    for (size_t i = 0; i < n; i++) {
        (void)belay_record_copy(&records[i], &copies[i]);
    }
    return n;
}

/* What a store does with batch.check_freezes; BELAY_OK: no freeze stands in the way. */
static enum belay_code check_freezes(struct sim *sim, const struct request *request,
                                     struct belay_commit *result, struct belay_error *err)
{
    const struct belay_batch *batch = &request->batch;

    for (size_t i = 0; batch->check_freezes && i < batch->n_writes; i++) {
        int key = sim_key_index(batch->writes[i].key);

        if ((batch->writes[i].set & BELAY_SET_ACQUIRED) != 0 &&
            sim_is_frozen(sim, key, batch->freeze_grace_ms)) {
            result->frozen = strdup("frozen by the simulator");
            result->frozen_for_ms = sim->swarm.freezes[key].until_t + batch->freeze_grace_ms - sim->t;
            result->now_ms = date_ms(sim);
            sim->tasks[request->task].was_frozen = true;
            sim_saw(sim, SEEN_FROZEN);
            sim_note(sim, "is frozen", request->client, request->task, key, result->frozen_for_ms, 0);
            return error_set(err, BELAY_FROZEN, "frozen");
        }
    }
    return BELAY_OK;
}

static enum belay_code deliver(struct sim *sim, const struct request *request, struct belay_commit *result,
                               struct belay_error *err)
{
    struct glance before[SIM_KEYS];
    struct belay_record copies[SIM_KEYS];
    size_t n_copies = 0;
    enum belay_code code = check_freezes(sim, request, result, err);

    if (code != BELAY_OK) {
        return code;
    }
    check_begin(sim, before);
    if (takes(&request->batch)) {
        n_copies = copy_records(sim, copies);
    }
    sim->acting_client = request->client;
    code = sim->store->ops->commit(sim->store, &request->batch, result, err);
    result->now_ms = date_ms(sim);
    sim_note(sim, request->again ? "is done again or late" : "is done", request->client, request->task,
             request->key, (int64_t)request->act, (int64_t)code);
    check_delivery(sim, request, before, copies, n_copies);
    for (size_t i = 0; i < n_copies; i++) {
        belay_record_release(&copies[i]);
    }
    return code;
}

void net_arrive(struct sim *sim, struct request *request)
{
    struct belay_commit lost = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;

    if (request->is_get) {
        arrive_get(sim, request);
        return;
    }
    if (request->fate == FATE_LOSE || request->again) {
        enum belay_code code = deliver(sim, request, &lost, &err);

        if (request->again) {
            sim_saw(sim, code == BELAY_OK ? SEEN_LATE : SEEN_OUT_OF_DATE);
        }
        belay_commit_release(&lost);
        return;
    }
    request->code = deliver(sim, request, &request->commit, &request->err);
    push_request(sim, sim->t + latency(sim), EVENT_ANSWER, request);
    /* Where ids are remembered, only a completed request can be told from a first delivery. */
    if (request->fate == FATE_DUPLICATE && (request->code == BELAY_OK || sim->swarm.dynamo)) {
        push_again(sim, request, sim->t);
    }
}

static void discard(struct request *request)
{
    belay_commit_release(&request->commit);
    for (size_t i = 0; i < request->n_keys; i++) {
        belay_record_release(&request->records[i]);
    }
}

void net_discard_event(const struct event *event)
{
    if (event->request != NULL) {
        discard(event->request);
    }
}

void net_answer(struct sim *sim, struct request *request)
{
    struct task *task = &sim->tasks[request->task];
    struct op *op = &task->op[request->slot];
    int64_t now_ms = sim_boot_ms(sim, request->client);

    if (request->gen != sim->clients[request->client].gen || !task->op_runs[request->slot] ||
        request->serial != task->op_serial[request->slot]) {
        discard(request);
        return;
    }
    sim_note(sim, "is answered", request->client, request->task, request->key, (int64_t)request->act,
             (int64_t)request->code);
    if (request->is_get) {
        op_on_get(op, request->code, request->records, request->now_ms, &request->err, now_ms);
    } else {
        op_on_commit(op, request->code, &request->commit, &request->err, request->sent_ms, now_ms);
        for (size_t i = 0; i < op->n_wakes; i++) {
            net_wake(sim, op->wakes[i]);
        }
    }
    discard(request);
    client_drive(sim, request->task, request->slot);
}

void net_wake(struct sim *sim, const char *lock_id)
{
    int number = sim_id_number(lock_id);
    struct event event = { .kind = EVENT_WAKE, .task = number };

    if (number < 0 || sim->swarm.dynamo) {
        return;
    }
    if (sim->swarm.lose_wakes && sim->t < sim->swarm.busy_until && rng_percent(&sim->rng, 30)) {
        sim_saw(sim, SEEN_WAKE_LOST);
        sim_note(sim, "loses a wake-up", sim->tasks[number].client, number, sim->tasks[number].key, 0, 0);
        return;
    }
    event.client = sim->tasks[number].client;
    event.gen = sim->tasks[number].gen;
    sim_push(sim, sim->t, event);
}
