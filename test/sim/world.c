/* One seed, one world: clocks, keys, crashes, pauses, and the loop. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

enum { LIVENESS_BOUND_MS = 3600 * 1000, WALL_STEP_EVERY_MS = 3000 };

/* ---- keys: a stack, two services, a component of the first, and one alone (S4.5) ---- */

const char *const sim_keys[SIM_KEYS] = { "stack", "stack:a", "stack:a:x", "stack:b", "alone" };

static const int parents[SIM_KEYS] = { -1, 0, 1, 0, -1 };

size_t sim_ancestors(int key, const char *out[BELAY_ANCESTORS_MAX])
{
    size_t n = 0;

    for (int above = parents[key]; above >= 0; above = parents[above]) {
        out[n++] = sim_keys[above];
    }
    return n;
}

int sim_key_index(const char *key)
{
    for (int i = 0; i < SIM_KEYS; i++) {
        if (strcmp(sim_keys[i], key) == 0) {
            return i;
        }
    }
    abort();
}

static bool is_above(int a, int b)
{
    while (b >= 0 && b != a) {
        b = parents[b];
    }
    return b == a;
}

bool sim_keys_conflict(int a, int b)
{
    return is_above(a, b) || is_above(b, a);
}

bool sim_has_key(const struct task *task, int key)
{
    for (int i = 0; i < task->n_keys; i++) {
        if (task->keys[i] == key) {
            return true;
        }
    }
    return false;
}

/* ---- clocks ---------------------------------------------------------------- */

int64_t sim_boot_ms(const struct sim *sim, int client)
{
    const struct client *c = &sim->clients[client];

    return c->boot_offset + sim->t + sim->t * c->drift_ppm / 1000000;
}

/* The first true time at which that client's boot clock shows at least `boot_ms`. */
int64_t sim_true_at(const struct sim *sim, int client, int64_t boot_ms)
{
    const struct client *c = &sim->clients[client];
    int64_t t = (boot_ms - c->boot_offset) * 1000000 / (1000000 + c->drift_ppm) - 2;

    if (boot_ms - c->boot_offset > INT64_C(1) << 40) {
        return INT64_C(1) << 40; /* never, as far as this world is concerned */
    }
    while (c->boot_offset + t + t * c->drift_ppm / 1000000 < boot_ms) {
        t++;
    }
    return t;
}

/* A wall clock that is set now and then by hours. It draws nothing from the seed's chances (L7). */
int64_t sim_wall_ms(const struct sim *sim, int client)
{
    struct rng steps = { sim->seed ^ ((uint64_t)client << 32) ^ (uint64_t)(sim->t / WALL_STEP_EVERY_MS) };
    int64_t wall = INT64_C(1700000000000) + sim->t;

    return sim->wall_steps ? wall + rng_range(&steps, -7200000, 7200000) : wall;
}

static int64_t store_now_ms(void *ctx)
{
    const struct sim *sim = ctx;

    return SIM_STORE_EPOCH_MS + sim->t + (sim->swarm.dynamo ? sim->clients[sim->acting_client].skew_ms : 0);
}

static int64_t store_unix_ms(void *ctx)
{
    const struct sim *sim = ctx;

    return sim_wall_ms(sim, sim->acting_client);
}

bool sim_is_awake(const struct sim *sim, int client)
{
    const struct client *c = &sim->clients[client];

    return !c->paused && sim->t > c->resumed_t;
}

int sim_id_number(const char *id)
{
    return id != NULL && id[0] == 'i' ? atoi(id + 1) : -1;
}

/* ---- the trace --------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3) + (hash >> 29);
}

static void print_entry(const struct trace_entry *entry)
{
    printf("%8" PRId64 "  client %d  task %2d  %-9s  %s", entry->t, entry->client, entry->task,
           entry->key >= 0 ? sim_keys[entry->key] : "", entry->what);
    printf("  %" PRId64 " %" PRId64 "\n", entry->a, entry->b);
}

void sim_note(struct sim *sim, const char *what, int client, int task, int key, int64_t a, int64_t b)
{
    struct trace_entry entry = { sim->t, what, client, task, key, a, b };

    sim->trace[sim->n_trace++ % SIM_TRACE_KEPT] = entry;
    sim->hash = mix(sim->hash, (uint64_t)entry.t);
    sim->hash = mix(sim->hash, (uint64_t)client * 1000 + (uint64_t)task * 10 + (uint64_t)key);
    sim->hash = mix(mix(sim->hash, (uint64_t)a), (uint64_t)b);
    for (const char *c = what; *c != '\0'; c += 3) {
        sim->hash = mix(sim->hash, (uint64_t)*c);
        if (c[1] == '\0' || c[2] == '\0') {
            break;
        }
    }
    if (sim->verbose) {
        print_entry(&entry);
    }
}

void sim_print_trace(const struct sim *sim)
{
    uint64_t from = sim->n_trace > SIM_TRACE_KEPT ? sim->n_trace - SIM_TRACE_KEPT : 0;

    for (uint64_t i = from; i < sim->n_trace; i++) {
        print_entry(&sim->trace[i % SIM_TRACE_KEPT]);
    }
}

static void print_record(const struct belay_record *record)
{
    struct belay_holder holder;

    printf("record '%s', mode %d, slots %d, freed %" PRId64 "\n", record->key, (int)record->mode,
           record->slots, record->freed_ms - SIM_STORE_EPOCH_MS);
    for (size_t i = 0; check_holder_at(record, i, &holder); i++) {
        printf("    %s holds it until %" PRId64 "\n", holder.lock_id, holder.expires_ms - SIM_STORE_EPOCH_MS);
    }
    for (size_t i = 0; i < record->n_tickets; i++) {
        const struct belay_ticket *ticket = &record->tickets[i];

        printf("    %s waits for '%s' until %" PRId64 ", mode %d, slots %d%s\n", ticket->lock_id, ticket->key,
               ticket->expires_ms - SIM_STORE_EPOCH_MS, (int)ticket->mode, ticket->slots,
               ticket->joint ? ", with other keys" : "");
    }
    for (size_t i = 0; i < record->n_intents; i++) {
        printf("    %s has '%s' below it until %" PRId64 "%s\n", record->intents[i].lock_id,
               record->intents[i].key, record->intents[i].expires_ms - SIM_STORE_EPOCH_MS,
               record->intents[i].shared ? ", shared" : "");
    }
}

/* What the store keeps, and what the tasks want. */
static void print_state(const struct sim *sim)
{
    size_t n;
    const struct belay_record *records = memstore_records(sim->data, &n);

    for (size_t i = 0; i < n; i++) {
        print_record(&records[i]);
    }
    for (int i = 0; i < sim->n_tasks; i++) {
        const struct task *task = &sim->tasks[i];

        printf("task %d: plan %d, phase %d, mode %d, slots %d, target '%s', keys", i, (int)task->plan,
               (int)task->phase, (int)task->mode, task->slots, task->target);
        for (int k = 0; k < task->n_keys; k++) {
            printf(" %s", sim_keys[task->keys[k]]);
        }
        printf("\n");
    }
}

/* The first is the one that counts. */
void sim_fail(struct sim *sim, const char *promise, const char *format, ...)
{
    va_list args;

    if (sim->violated != NULL) {
        return;
    }
    sim->violated = promise;
    va_start(args, format);
    (void)vsnprintf(sim->violation, sizeof sim->violation, format, args);
    va_end(args);
}

/* ---- what the seed decides ------------------------------------------------------ */

static bool coin(struct sim *sim)
{
    return rng_percent(&sim->rng, 50);
}

/* Chosen apart from all else, so that the other seeds stay as they are. */
static void choose_freezes(struct sim *sim)
{
    struct rng rng = { sim->seed ^ 0x66726565 };

    for (int i = 0; i < SIM_KEYS && sim->seed % 4 == 1; i++) {
        struct freeze *freeze = &sim->swarm.freezes[i];

        if (rng_percent(&rng, 60)) {
            freeze->from_t = rng_range(&rng, 0, sim->swarm.busy_until / 2);
            freeze->until_t = rng_range(&rng, freeze->from_t, sim->swarm.busy_until);
        }
    }
}

bool sim_is_frozen(const struct sim *sim, int key, int64_t after_ms)
{
    const struct freeze *freeze = &sim->swarm.freezes[key];

    return freeze->until_t > freeze->from_t && sim->t >= freeze->from_t &&
           sim->t < freeze->until_t + after_ms;
}

static void choose_swarm(struct sim *sim)
{
    static const int64_t latencies[] = { 0, 2, 20, 300 };
    struct swarm *swarm = &sim->swarm;
    bool clean = rng_percent(&sim->rng, 15);

    memset(swarm, 0, sizeof *swarm);
    swarm->dynamo = rng_percent(&sim->rng, 25);
    swarm->fail = coin(sim) && !clean;
    swarm->lose = coin(sim) && !clean;
    swarm->late = coin(sim) && !clean;
    swarm->duplicate = coin(sim) && !clean;
    swarm->pause = coin(sim) && !clean;
    swarm->crash = coin(sim) && !clean;
    swarm->lose_wakes = coin(sim) && !clean;
    swarm->drift = coin(sim);
    swarm->percent = (int)rng_range(&sim->rng, 3, 30);
    swarm->latency_ms = latencies[rng_range(&sim->rng, 0, 3)];
    swarm->timeout_ms = swarm->latency_ms + rng_range(&sim->rng, 50, 2000);
    swarm->late_ms = rng_range(&sim->rng, 100, 15000);
    swarm->busy_until = rng_range(&sim->rng, 5000, 20000);
    swarm->n_clients = (int)rng_range(&sim->rng, 3, SIM_CLIENTS_MAX);
    swarm->n_tasks = (int)rng_range(&sim->rng, 6, 28);
    swarm->n_keys = coin(sim) ? SIM_KEYS : (int)rng_range(&sim->rng, 1, 3);
    swarm->plain = rng_percent(&sim->rng, 35);
    swarm->joint_percent = rng_percent(&sim->rng, 20) ? 75 : 20;
    if (swarm->joint_percent > 50) {
        swarm->n_keys = SIM_KEYS;
    }
    for (int i = 0; i < SIM_KEYS; i++) {
        bool as_before = i > 0 && rng_percent(&sim->rng, 80);

        swarm->slots[i] = as_before ? swarm->slots[i - 1] : (int)rng_range(&sim->rng, 1, SIM_SLOTS_MAX - 1);
    }
}

static void choose_capabilities(struct sim *sim)
{
    sim->capabilities.has_modes = true;
    sim->capabilities.takes_turns = !sim->swarm.dynamo && coin(sim); /* it needs one clock for all */
    if (sim->swarm.dynamo) {
        sim->capabilities.margin_ms = rng_range(&sim->rng, 100, 800);
        sim->capabilities.claim_ms = rng_range(&sim->rng, 3000, 6000);
        sim->capabilities.poll_ms = rng_range(&sim->rng, 300, 1500);
        sim->capabilities.ticket_ttl_ms = rng_range(&sim->rng, 30, 60) * 1000;
    } else {
        sim->capabilities.margin_ms = 0;
        sim->capabilities.claim_ms = coin(sim) ? 1000 : rng_range(&sim->rng, 200, 2000);
        sim->capabilities.poll_ms = rng_range(&sim->rng, 500, 5000);
        sim->capabilities.ticket_ttl_ms = coin(sim) ? 60000 : rng_range(&sim->rng, 4000, 20000);
    }
}

static void make_clients(struct sim *sim)
{
    int64_t margin = sim->capabilities.margin_ms;

    for (int i = 0; i < sim->swarm.n_clients; i++) {
        struct client *client = &sim->clients[i];

        memset(client, 0, sizeof *client);
        client->boot_offset = rng_range(&sim->rng, 1000, 1000000000);
        client->drift_ppm =
            sim->swarm.drift ? rng_range(&sim->rng, -SIM_DRIFT_MAX_PPM, SIM_DRIFT_MAX_PPM) : 0;
        client->skew_ms = rng_range(&sim->rng, -margin, margin);
        client->resumed_t = -1;
        sim_push(sim, rng_range(&sim->rng, 0, 1000), (struct event){ .kind = EVENT_SPAWN, .client = i });
    }
}

static void plan_troubles(struct sim *sim)
{
    int pauses = sim->swarm.pause ? (int)rng_range(&sim->rng, 1, 6) : 0;
    int crashes = sim->swarm.crash ? (int)rng_range(&sim->rng, 1, 4) : 0;

    while (pauses-- > 0) {
        struct event event = { .kind = EVENT_PAUSE };

        event.client = (int)rng_range(&sim->rng, 0, sim->swarm.n_clients - 1);
        sim_push(sim, rng_range(&sim->rng, 0, sim->swarm.busy_until), event);
    }
    while (crashes-- > 0) {
        struct event event = { .kind = EVENT_CRASH };

        event.client = (int)rng_range(&sim->rng, 0, sim->swarm.n_clients - 1);
        sim_push(sim, rng_range(&sim->rng, 0, sim->swarm.busy_until), event);
    }
}

/* ---- the loop --------------------------------------------------------------------- */

void sim_push(struct sim *sim, int64_t t, struct event event)
{
    event.t = t > sim->t ? t : sim->t; /* what was due in the past is due now */
    heap_push(&sim->heap, event);
}

static void pause_client(struct sim *sim, int client)
{
    struct client *c = &sim->clients[client];

    if (c->paused) {
        return;
    }
    c->paused = true;
    c->resume_t = sim->t + rng_range(&sim->rng, 10, 12000);
    sim_saw(sim, SEEN_PAUSED);
    sim_note(sim, "is paused", client, -1, -1, c->resume_t, 0);
    sim_push(sim, c->resume_t, (struct event){ .kind = EVENT_RESUME, .client = client });
}

static void resume_client(struct sim *sim, int client)
{
    sim->clients[client].paused = false;
    sim->clients[client].resumed_t = sim->t;
    sim_note(sim, "goes on", client, -1, -1, 0, 0);
}

static void crash_client(struct sim *sim, int client)
{
    client_crash(sim, client);
    sim_push(sim, sim->t + rng_range(&sim->rng, 1, 3000),
             (struct event){ .kind = EVENT_SPAWN, .client = client, .gen = sim->clients[client].gen });
}

static void dispatch(struct sim *sim, const struct event *event)
{
    switch (event->kind) {
    case EVENT_ARRIVE:
        net_arrive(sim, event->request);
        return;
    case EVENT_PAUSE:
        pause_client(sim, event->client);
        return;
    case EVENT_RESUME:
        resume_client(sim, event->client);
        return;
    case EVENT_CRASH:
        crash_client(sim, event->client);
        return;
    default:
        break;
    }
    /* The rest is the client's own doing, and waits while it is stopped. */
    if (sim->clients[event->client].paused) {
        sim_push(sim, sim->clients[event->client].resume_t, *event);
        return;
    }
    sim->acting_client = event->client;
    if (event->kind == EVENT_ANSWER) {
        net_answer(sim, event->request);
    } else if (event->gen != sim->clients[event->client].gen) {
        return;
    } else if (event->kind == EVENT_SPAWN) {
        client_spawn(sim, event->client);
    } else {
        client_on_event(sim, event);
    }
}

static void loop(struct sim *sim)
{
    struct event event;

    while (sim->violated == NULL && heap_pop(&sim->heap, &event)) {
        if (event.t > sim->swarm.busy_until + LIVENESS_BOUND_MS) {
            net_discard_event(&event);
            break;
        }
        sim->t = event.t;
        dispatch(sim, &event);
        check_hand_over(sim);
        if (++sim->steps > SIM_STEPS_MAX) {
            sim_fail(sim, "I7", "more than %d steps", SIM_STEPS_MAX);
        }
    }
    if (sim->violated == NULL) {
        check_liveness(sim);
    }
    if (sim->violated != NULL && sim->verbose) {
        print_state(sim);
    }
}

struct sim *sim_new(void)
{
    struct sim *sim = calloc(1, sizeof *sim);

    if (sim == NULL) {
        abort();
    }
    return sim;
}

static void begin_world(struct sim *sim, uint64_t seed, bool wall_steps, bool verbose)
{
    struct heap heap = sim->heap;
    struct arena arena = sim->arena;

    memset(&sim->seed, 0, offsetof(struct sim, tasks) - offsetof(struct sim, seed));
    sim->n_tasks = 0;
    memset(sim->keys, 0, sizeof sim->keys);
    sim->n_trace = 0;
    sim->violated = NULL;
    sim->heap = heap;
    sim->arena = arena;
    sim->heap.n = 0;
    sim->heap.seq = 0;
    sim->seed = seed;
    sim->hash = UINT64_C(0xcbf29ce484222325);
    sim->rng.state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    sim->wall_steps = wall_steps;
    sim->verbose = verbose;
    for (int i = 0; i < SIM_KEYS; i++) {
        sim->keys[i].freed_t = -SIM_STORE_EPOCH_MS;
        sim->keys[i].exclusive_t = -1;
        for (int slots = 0; slots <= SIM_SLOTS_MAX; slots++) {
            sim->keys[i].slots_t[slots] = -1;
        }
    }
    choose_swarm(sim);
    choose_freezes(sim);
    choose_capabilities(sim);
    sim->data = memstore_data_new(store_now_ms, store_unix_ms, sim);
    memstore_set_capabilities(sim->data, sim->capabilities);
    memstore_set_knows_used_ids(sim->data, !sim->swarm.dynamo);
    sim->store = memstore_open(sim->data);
    make_clients(sim);
    plan_troubles(sim);
}

static void end_world(struct sim *sim)
{
    struct event event;

    while (heap_pop(&sim->heap, &event)) {
        net_discard_event(&event);
    }
    for (int i = 0; i < sim->n_tasks; i++) {
        for (int slot = 0; slot < SLOTS; slot++) {
            if (sim->tasks[i].op_runs[slot]) {
                op_destroy(&sim->tasks[i].op[slot]);
                sim->tasks[i].op_runs[slot] = false;
            }
        }
    }
    sim->store->ops->close(sim->store);
    memstore_data_free(sim->data);
    arena_reset(&sim->arena);
}

bool sim_run(struct sim *sim, uint64_t seed, bool wall_steps, bool verbose)
{
    begin_world(sim, seed, wall_steps, verbose);
    loop(sim);
    end_world(sim);
    return sim->violated == NULL;
}

void sim_free(struct sim *sim)
{
    if (sim != NULL) {
        free(sim->heap.events);
        arena_release(&sim->arena);
        free(sim);
    }
}
