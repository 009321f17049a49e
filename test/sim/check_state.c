/* L1 and L6 of the records as they are: holders above and below each other, and their intents. */
#include <string.h>

#include "sim/sim.h"

static int64_t store_now(const struct sim *sim)
{
    return SIM_STORE_EPOCH_MS + sim->t;
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

static bool is_live(const struct sim *sim, const struct belay_holder *holder)
{
    return store_now(sim) < holder->expires_ms;
}

static size_t count_live(const struct sim *sim, const struct belay_record *record)
{
    struct belay_holder holder;
    size_t live = 0;

    for (size_t i = 0; check_holder_at(record, i, &holder); i++) {
        live += is_live(sim, &holder);
    }
    return live;
}

/* An intent lasts as long as its lock, and is as shared: there for every live holder, with its end, */
static void check_has_intents(struct sim *sim, const struct belay_record *records, size_t n,
                              const struct belay_record *record)
{
    const char *above[BELAY_ANCESTORS_MAX];
    size_t n_above = sim_ancestors(sim_key_index(record->key), above);
    struct belay_holder holder;

    for (size_t h = 0; check_holder_at(record, h, &holder); h++) {
        for (size_t i = 0; i < n_above && is_live(sim, &holder); i++) {
            const struct belay_intent *intent =
                find_intent(find_record(records, n, above[i]), holder.lock_id, record->key);

            if (intent == NULL || intent->expires_ms != holder.expires_ms) {
                sim_fail(sim, "L6", "%s holds '%s' and %s intent on '%s'", holder.lock_id, record->key,
                         intent == NULL ? "has no" : "its lease ends at another time than its", above[i]);
            } else if (intent->shared != (record->mode == BELAY_SHARED)) {
                sim_fail(sim, "L1", "%s holds '%s', and its intent on '%s' has another mode", holder.lock_id,
                         record->key, above[i]);
            }
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
        struct belay_holder holder;
        bool held = false;

        for (size_t h = 0; lock != NULL && check_holder_at(lock, h, &holder); h++) {
            held = held || is_intent_of(intent, holder.lock_id, lock->key);
        }
        if (!held && store_now(sim) < intent->expires_ms) {
            sim_fail(sim, "L6", "the intent of %s on '%s' has outlived its lock on '%s'", intent->lock_id,
                     record->key, intent->key);
        }
    }
}

/* L1: beside each other on one record, and above and below each other (S4.5). */
static void check_holders(struct sim *sim, const struct belay_record *records, size_t n, size_t i)
{
    size_t live = count_live(sim, &records[i]);

    if (live == 0) {
        return;
    }
    if ((records[i].mode == BELAY_SLOTS && live > (size_t)records[i].slots) ||
        (records[i].mode == BELAY_EXCLUSIVE && records[i].n_holders > 0)) {
        sim_fail(sim, "L1", "'%s' has %zu holders", records[i].key, live);
    }
    for (size_t k = i + 1; k < n; k++) {
        bool both_shared = records[i].mode == BELAY_SHARED && records[k].mode == BELAY_SHARED;

        if (!sim_keys_conflict(sim_key_index(records[i].key), sim_key_index(records[k].key)) ||
            count_live(sim, &records[k]) == 0) {
            continue;
        }
        if (both_shared) {
            sim_saw(sim, SEEN_SHARED_BELOW);
        } else {
            sim_fail(sim, "L1", "'%s' is held by %s and '%s' by %s (S4.5)", records[i].key,
                     records[i].lock_id, records[k].key, records[k].lock_id);
        }
    }
}

void check_state(struct sim *sim)
{
    size_t n;
    const struct belay_record *records = memstore_records(sim->data, &n);

    for (size_t i = 0; i < n; i++) {
        check_holders(sim, records, n, i);
        check_has_intents(sim, records, n, &records[i]);
        check_intents_are_meant(sim, records, n, &records[i]);
    }
}
