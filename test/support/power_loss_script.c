#include "support/power_loss_script.h"

#include <stdio.h>
#include <string.h>

#include "store/sqlite/sqlite_store.h"

enum { REOPEN_AT = 35 };

/* p: held by a process; d: durable; f: a process, but with durability requested; m: alternating. */
const char *const script_keys[SCRIPT_KEYS] = { "p1", "p2", "d1", "d2", "f", "m" };

static int64_t clock_ms;

static int64_t read_clock(void *context)
{
    (void)context;
    return clock_ms;
}

static int64_t read_wall_clock(void *context)
{
    return 1730816000000 + read_clock(context);
}

void script_set_clock(int64_t boot_ms)
{
    clock_ms = boot_ms;
}

struct belay_store *script_open(const char *directory, const char *boot_id, char *why, size_t why_size)
{
    struct sqlite_hooks hooks = { .vfs = POWER_LOSS_VFS,
                                  .boot_id = boot_id,
                                  .boot_ms = read_clock,
                                  .unix_ms = read_wall_clock,
                                  .numbers_ahead = SCRIPT_AHEAD };
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_store *store = NULL;
    char path[128];

    (void)snprintf(path, sizeof path, "%s/locks.db", directory);
    if (sqlite_store_open(path, &hooks, &store, NULL, &err) != BELAY_OK) {
        (void)snprintf(why, why_size, "it does not open: %.300s", err.text);
        belay_error_release(&err);
        return NULL;
    }
    return store;
}

/* The effect of step `i` on a record in `state`: fill the write and its event, and update `state`. */
static void plan(size_t i, struct script_state *state, const char *id, bool durable,
                 struct belay_write *write, struct belay_event *event)
{
    if (!state->held) {
        write->condition = BELAY_IF_FREE;
        write->set = BELAY_SET_HOLDER;
        event->type = "lock.acquired";
        event->token = BELAY_TOKEN_OF_BATCH;
        *state = (struct script_state){ .held = true, .durable = durable, .token = state->token };
        (void)snprintf(state->id, sizeof state->id, "%s", id);
    } else if (i % 4 == 1) {
        write->condition = BELAY_IF_LIVE_BY;
        write->set = BELAY_SET_LEASE;
        event->type = "lock.renewed";
    } else {
        write->condition = BELAY_IF_HELD_BY;
        write->set = BELAY_SET_RELEASED;
        event->type = "lock.released";
        state->held = false;
        state->outcome = BELAY_OUTCOME_FAILED;
    }
}

static bool do_step(struct belay_store *store, size_t i, const char *key, struct script_state *state,
                    struct script_step *out_step)
{
    char id[16];
    struct belay_meta metadata = { "step", id };
    struct belay_record values = { .lock_id = id,
                                   .owner = "o",
                                   .owner_name = "n",
                                   .ttl_ms = SCRIPT_TTL_MS,
                                   .outcome = BELAY_OUTCOME_FAILED,
                                   .metadata = &metadata,
                                   .n_metadata = 1 };
    struct belay_write write = { .key = key, .values = &values, .lock_id = state->id };
    struct belay_event event = {
        .key = key, .lock_id = id, .locked_by = "o", .locked_by_name = "n", .duration_ms = -1
    };
    struct belay_batch batch = { .writes = &write,
                                 .n_writes = 1,
                                 .events = &event,
                                 .n_events = i % 5 == 4 ? 0 : 1,
                                 .durable = key[0] == 'f' };
    struct belay_commit done = { 0 };
    enum belay_code code;

    (void)snprintf(id, sizeof id, "id-%zu", i);
    values.durable = key[0] == 'd' || (key[0] == 'm' && i % 2 == 0);
    plan(i, state, id, values.durable, &write, &event);
    code = store->ops->commit(store, &batch, &done, NULL);
    out_step->token = done.token;
    state->token = done.token != 0 ? done.token : state->token;
    /* A renewal changes nothing that is looked for afterwards: the lease starts again in any case. */
    out_step->durable = batch.durable || (state->durable && write.set != BELAY_SET_LEASE);
    belay_commit_release(&done);
    return code == BELAY_OK;
}

static struct belay_store *reopen(struct belay_store *store, const char *directory, char *why,
                                  size_t why_size)
{
    store->ops->close(store);
    return script_open(directory, "boot-1", why, why_size);
}

bool script_run(struct script_run *run, const char *directory)
{
    struct script_state states[SCRIPT_KEYS];
    struct belay_store *store;
    char why[400] = "a step was not done";
    bool ok = true;

    memset(states, 0, sizeof states);
    run->log = power_loss_log_new();
    power_loss_vfs_record(run->log);
    clock_ms = 1000000;
    store = script_open(directory, "boot-1", why, sizeof why);
    run->opened = power_loss_log_length(run->log);
    for (size_t i = 0; i < SCRIPT_STEPS && store != NULL && ok; i++) {
        struct script_step *step = &run->steps[i];
        size_t key = (i * 5 + i / 7) % SCRIPT_KEYS;

        step->begun = power_loss_log_length(run->log);
        ok = do_step(store, i, script_keys[key], &states[key], step);
        step->acked = power_loss_log_length(run->log);
        memcpy(step->after, states, sizeof states);
        clock_ms += 100;
        store = i == REOPEN_AT ? reopen(store, directory, why, sizeof why) : store;
    }
    power_loss_vfs_record(NULL);
    if (store == NULL || !ok) {
        (void)fprintf(stderr, "%s\n", why);
    }
    if (store != NULL) {
        store->ops->close(store);
    }
    return store != NULL && ok;
}

struct script_bounds script_bounds_at(const struct script_run *run, size_t cut)
{
    struct script_bounds bounds = { 0, 0, 0 };

    for (size_t i = 0; i < SCRIPT_STEPS; i++) {
        const struct script_step *step = &run->steps[i];

        if (step->begun < cut) {
            bounds.most = i + 1;
        }
        if (step->acked <= cut) {
            bounds.least = step->durable ? i + 1 : bounds.least;
            bounds.token = step->token > bounds.token ? step->token : bounds.token;
        }
    }
    return bounds;
}

bool script_is_as_after(const struct script_run *run, const struct belay_record records[SCRIPT_KEYS],
                        size_t n)
{
    static const struct script_state nothing[SCRIPT_KEYS];
    const struct script_state *states = n == 0 ? nothing : run->steps[n - 1].after;

    for (size_t i = 0; i < SCRIPT_KEYS; i++) {
        const struct belay_record *r = &records[i];

        if (r->held != states[i].held || strcmp(r->lock_id, states[i].id) != 0 ||
            r->token != states[i].token || r->outcome != states[i].outcome) {
            return false;
        }
    }
    return true;
}
