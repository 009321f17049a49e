/*
 * A batch: one write is one UpdateItem, several are one TransactWriteItems.
 *   plan --> send --done--> records --> [clock wrong: compensate] --> answer
 *    ^        |  \--refused--> read --> refused, or only absent --+
 *    |        v                                                   |
 *    +-- conflict: retry <----------------------------------------+
 * A write that must not create a record has the condition that the record exists. Where it is
 * absent and that is no error, the write is left out, on the condition that the record is
 * still absent.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "freeze/freeze_list.h"
#include "store/dynamodb/dynamodb_plan.h"

enum { TRIES_MAX = 12, PAUSE_MS = 15 };

/* ---- the result -------------------------------------------------------------- */

static enum belay_code answer_alloc(struct belay_commit *out, size_t n, struct belay_error *err)
{
    out->records = calloc(n + 1, sizeof *out->records);
    if (out->records == NULL) {
        return error_no_memory(err);
    }
    out->n_records = n;
    return BELAY_OK;
}

static enum belay_code answer_done(struct ddb_store *store, const struct plan *plan, json_t *image,
                                   struct belay_commit *out, struct belay_error *err)
{
    enum belay_code code = answer_alloc(out, plan->batch->n_writes, err);

    out->now_ms = plan->now_ms;
    return code == BELAY_OK ? plan_images(store, plan, image, out, err) : code;
}

static bool is_writers_lock(const struct belay_write *write, const struct belay_record *record)
{
    const char *id = (write->set & BELAY_SET_IDENTITY) != 0 ? write->values->lock_id : write->lock_id;

    return id != NULL && record->lock_id[0] != '\0' &&
           (strcmp(id, record->lock_id) == 0 || ddb_holder_find(record, id) != NULL);
}

/* The lease of a client's own lock as it was written, not as it was observed. */
static void show_as_written(struct belay_record *record)
{
    for (size_t i = 0; i < record->n_holders; i++) {
        record->holders[i].expires_ms = record->holders[i].expires_at_unix_ms;
    }
    record->expires_ms = record->expires_at_unix_ms;
}

static enum belay_code answer_refused(struct ddb_store *store, const struct plan *plan,
                                      const struct refusal *refusal, struct belay_commit *out,
                                      struct belay_error *err)
{
    const struct belay_write *write = &plan->batch->writes[refusal->write];
    enum belay_code code = answer_alloc(out, 1, err);

    assert(refusal->write < plan->batch->n_writes && !refusal->conflict);
    if (code == BELAY_OK) {
        code = ddb_record(store, write->key, &refusal->items, &out->records[0], err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    out->refused = refusal->write;
    out->now_ms = ddb_clock_judge_ms(store);
    /*
     * Other clients' leases are judged by an early time, and by local observation. The
     * client's own lease must not seem longer than it is: it counts from the write, by the
     * later clock.
     */
    if (is_writers_lock(write, &out->records[0])) {
        out->now_ms = plan->now_ms > out->now_ms ? plan->now_ms : out->now_ms;
        show_as_written(&out->records[0]);
    }
    return BELAY_REFUSED;
}

/* ---- one try after the other ------------------------------------------------ */

/* Reads the item in the way, if the answer did not contain it. */
static enum belay_code complete_refusal(struct ddb_store *store, const struct plan *plan,
                                        struct refusal *refusal, struct belay_error *err)
{
    const char *key = plan->batch->writes[refusal->write].key;

    if (refusal->items.item != NULL || refusal->items.queue != NULL) {
        atomic_store(&store->returns_items, true);
    }
    if (refusal->known || refusal->items.item != NULL) {
        return BELAY_OK;
    }
    /* A server that returns items, and returned none, has none. */
    if (refusal->by_item && atomic_load(&store->returns_items)) {
        return BELAY_OK;
    }
    /* Only the queue is in the way: the item met its condition, which was to be unchanged. */
    if (!refusal->by_item && plan->has_seen[refusal->write] && refusal->items.queue != NULL) {
        refusal->items.item = json_incref(plan->seen[refusal->write].item);
        return BELAY_OK;
    }
    ddb_items_release(&refusal->items);
    return ddb_read_locks(store, &key, 1, &refusal->items, err);
}

static bool was_only_absent(const struct ddb_store *store, const struct plan *plan,
                            const struct refusal *refusal)
{
    const struct belay_write *write = &plan->batch->writes[refusal->write];
    bool seen_absent = write->condition == BELAY_IF_UNCHANGED && plan->has_seen[refusal->write] &&
                       plan->seen[refusal->write].item == NULL;

    assert(refusal->write < plan->batch->n_writes);
    return refusal->by_item && !refusal->known && refusal->items.item == NULL &&
           !ddb_creates_item(store, write) && !write->co_holder &&
           (seen_absent || ddb_holds_if_absent(write));
}

static enum belay_code answer_absent(struct ddb_store *store, const struct plan *plan,
                                     struct belay_commit *out, struct belay_error *err)
{
    struct ddb_items nothing = { 0 };
    enum belay_code code = answer_alloc(out, 1, err);

    out->now_ms = plan->now_ms;
    return code == BELAY_OK ? ddb_record(store, plan->batch->writes[0].key, &nothing, &out->records[0], err)
                            : code;
}

/* The next try is made from the items that came back with the refusal. */
static void keep_seen(struct plan *plan, struct refusal *refusal)
{
    assert(refusal->write < plan->batch->n_writes);
    ddb_items_release(&plan->seen[refusal->write]);
    plan->seen[refusal->write] = refusal->items;
    memset(&refusal->items, 0, sizeof refusal->items);
    plan->has_seen[refusal->write] = true;
}

/*
 * A lock without an owner or an expiry counts as free: it is acquired on the condition that it
 * is unchanged.
 */
static enum belay_code take_as_seen(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                                    bool *again, struct belay_error *err)
{
    const struct belay_write *write = &plan->batch->writes[refusal->write];
    struct belay_record record = { 0 };
    enum belay_code code;

    if (!layout_is_foreign(store->layout) || refusal->items.item == NULL || plan->has_seen[refusal->write] ||
        (write->condition != BELAY_IF_FREE && write->condition != BELAY_IF_FREE_FOR_INTENT)) {
        return BELAY_OK;
    }
    code = ddb_record(store, write->key, &refusal->items, &record, err);
    if (code == BELAY_OK && !record.held && !is_writers_lock(write, &record)) {
        keep_seen(plan, refusal);
        *again = true;
    }
    belay_record_release(&record);
    return code;
}

/*
 * A write about one of several holders that has to know the others, and the item has changed
 * since it was read: it is made again from the item that came back with the refusal.
 */
static bool make_from_newer(const struct ddb_store *store, struct plan *plan, struct refusal *refusal)
{
    const struct belay_write *write = &plan->batch->writes[refusal->write];
    const char *name = layout_name_of(store->layout, FIELD_REVISION);
    const struct ddb_items *seen = &plan->seen[refusal->write];
    bool is_newer =
        plan->has_seen[refusal->write] && write->condition != BELAY_IF_UNCHANGED &&
        !json_equal(json_object_get(refusal->items.item, name), json_object_get(seen->item, name));
    bool grows = !plan->has_seen[refusal->write] && ddb_holders_must_grow(store, write, refusal->items.item);

    if (layout_is_foreign(store->layout) || refusal->items.item == NULL || !(is_newer || grows)) {
        return false;
    }
    keep_seen(plan, refusal);
    return true;
}

/* BELAY_OK with *again: a conflict, or a write is to be left out. */
static enum belay_code handle_refusal(struct ddb_store *store, struct plan *plan, struct refusal *refusal,
                                      struct belay_commit *out, bool *again, struct belay_error *err)
{
    enum belay_code code = complete_refusal(store, plan, refusal, err);

    if (code != BELAY_OK) {
        return code;
    }
    if (plan->leave_out[refusal->write] && refusal->by_item) {
        plan->leave_out[refusal->write] = false; /* the item exists now */
        *again = true;
        return BELAY_OK;
    }
    if (refusal->by_item && make_from_newer(store, plan, refusal)) {
        *again = true;
        return BELAY_OK;
    }
    if (refusal->by_item) {
        code = take_as_seen(store, plan, refusal, again, err);
        if (code != BELAY_OK || *again) {
            return code;
        }
    }
    if (!was_only_absent(store, plan, refusal)) {
        return answer_refused(store, plan, refusal, out, err);
    }
    if (plan->batch->n_writes == 1 && !layout_is_foreign(store->layout)) {
        return answer_absent(store, plan, out, err);
    }
    plan->leave_out[refusal->write] = true;
    *again = true;
    return BELAY_OK;
}

static void pause_with_jitter(int tries)
{
    uint8_t chance = 0;

    (void)random_bytes(&chance, sizeof chance);
    platform_sleep_ms(platform_system(), PAUSE_MS * (tries + 1) * (64 + chance) / 256);
}

static enum belay_code try_commit(struct ddb_store *store, struct plan *plan, int tries,
                                  struct belay_commit *out, bool *again, struct belay_error *err)
{
    struct refusal refusal = { 0 };
    json_t *image = NULL;
    enum belay_code code = BELAY_OK;

    if (plan_looks_before(plan)) {
        code = plan_look_before(store, plan, &refusal, err);
    }
    if (code == BELAY_OK) {
        code = plan_make(store, plan, &refusal, err);
    }
    if (code == BELAY_OK && plan->n > 0) {
        code = plan_send(store, plan, &image, &refusal, err);
    }
    assert(refusal.write < plan->batch->n_writes && out->records == NULL);
    if (code == BELAY_OK) {
        code = answer_done(store, plan, image, out, err);
    } else if (code == BELAY_REFUSED && refusal.conflict) {
        *again = true;
        pause_with_jitter(tries);
        code = BELAY_OK;
    } else if (code == BELAY_REFUSED) {
        code = handle_refusal(store, plan, &refusal, out, again, err);
    }
    json_decref(image);
    refusal_release(&refusal);
    return code;
}

static enum belay_code commit_planned(struct ddb_store *store, const struct belay_batch *batch,
                                      struct belay_commit *out, struct belay_error *err)
{
    struct plan plan;
    enum belay_code code = plan_init(&plan, batch, err);

    for (int tries = 0; code == BELAY_OK; tries++) {
        bool again = false;

        if (tries == TRIES_MAX) {
            code = error_set(err, BELAY_UNREACHABLE, "lock '%s': concurrent changes kept it busy",
                             batch->writes[0].key);
            break;
        }
        belay_commit_release(out);
        code = try_commit(store, &plan, tries, out, &again, err);
        if (!again) {
            break;
        }
    }
    plan_release(&plan);
    return code;
}

/* ---- what time it is ------------------------------------------------------------ */

static bool depends_on_time(const struct belay_batch *batch)
{
    for (size_t i = 0; i < batch->n_writes; i++) {
        const struct belay_write *write = &batch->writes[i];

        if ((write->set & (BELAY_SET_ACQUIRED | BELAY_SET_LEASE)) != 0 || write->put_ticket != NULL ||
            write->n_put_intents > 0) {
            return true;
        }
    }
    return false;
}

/* A release that sets the expiry to the past: with a clock that is ahead, it would be in the future. */
static bool ends_by_time(const struct ddb_store *store, const struct belay_batch *batch)
{
    return store->layout->release_expires && (batch->writes[0].set & BELAY_SET_RELEASED) != 0;
}

/* A deadline is written by a checked clock, or not at all (L4, L7). */
static enum belay_code check_time(struct ddb_store *store, const struct belay_batch *batch,
                                  struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    int64_t skew_ms;

    if (!depends_on_time(batch) && !ends_by_time(store, batch)) {
        return BELAY_OK;
    }
    if (!ddb_clock_is_known(store)) {
        code = ddb_ask_date(store, batch->timeout_ms, err);
    }
    if (!depends_on_time(batch)) {
        return code == BELAY_CONFIG ? BELAY_OK : code; /* a release needs no clock */
    }
    if (code != BELAY_OK) {
        return code;
    }
    skew_ms = ddb_clock_skew_ms(store);
    return skew_ms == 0 ? BELAY_OK : ddb_clock_say_skew(store, skew_ms, err);
}

static enum belay_code commit_in_time(struct ddb_store *store, const struct belay_batch *batch,
                                      struct belay_commit *out, struct belay_error *err)
{
    enum belay_code code = check_time(store, batch, err);

    return code == BELAY_OK ? commit_planned(store, batch, out, err) : code;
}

/* ---- a lease of which only the record knows the length ------------------------ */

static bool lacks_ttl(const struct belay_write *write)
{
    return (write->set & BELAY_SET_LEASE) != 0 && write->values->ttl_ms == 0;
}

/* The ttl that the record has for this write, in *out_ttl_ms. */
static enum belay_code find_ttl(const struct ddb_store *store, const struct belay_write *write,
                                const struct belay_record *seen, int64_t now_ms, int64_t *out_ttl_ms,
                                struct belay_error *err)
{
    const struct belay_holder *holder = write->co_holder ? ddb_holder_find(seen, write->lock_id) : NULL;

    *out_ttl_ms = holder != NULL ? holder->ttl_ms : seen->ttl_ms;
    if (seen->ttl_is_estimate && write->ttl_if_unknown_ms > 0) {
        int64_t left_ms = seen->expires_ms - now_ms;

        *out_ttl_ms = left_ms > write->ttl_if_unknown_ms ? left_ms : write->ttl_if_unknown_ms;
    } else if (seen->ttl_is_estimate && write->lock_id != NULL &&
               strcmp(write->lock_id, seen->lock_id) == 0) {
        /* The span from the acquisition to the expiry grows with every renewal. */
        return error_set(err, BELAY_INVALID,
                         "lock '%s': nothing in the layout '%s' says how long its lease is: renew it with a "
                         "ttl (--ttl) or a profile (--profile)",
                         write->key, store->layout->name);
    }
    return BELAY_OK;
}

/* Writes with ttls from the records of these keys. */
struct ttl_room {
    struct belay_write *writes;  /* owned */
    struct belay_record *values; /* owned; borrow all that they point to */
    struct belay_record *seen;   /* owned */
    const char **keys;           /* owned */
    size_t n_keys;
};

static enum belay_code fill_ttls(struct ddb_store *store, const struct belay_batch *batch,
                                 struct ttl_room *room, struct belay_error *err)
{
    int64_t now_ms = 0;
    size_t n = 0;
    enum belay_code code;

    for (size_t i = 0; i < batch->n_writes; i++) {
        room->writes[i] = batch->writes[i];
        if (lacks_ttl(&batch->writes[i])) {
            room->keys[n++] = batch->writes[i].key;
        }
    }
    assert(n > 0 && n <= batch->n_writes);
    code = ddb_get(&store->base, room->keys, n, room->seen, &now_ms, err);
    room->n_keys = code == BELAY_OK ? n : 0;
    n = 0;
    for (size_t i = 0; code == BELAY_OK && i < batch->n_writes; i++) {
        if (lacks_ttl(&batch->writes[i])) {
            room->values[i] = *batch->writes[i].values;
            room->writes[i].values = &room->values[i];
            code = find_ttl(store, &batch->writes[i], &room->seen[n++], now_ms, &room->values[i].ttl_ms, err);
        }
    }
    return code;
}

static enum belay_code commit_with_ttl(struct ddb_store *store, const struct belay_batch *batch,
                                       struct belay_commit *out, struct belay_error *err)
{
    struct belay_batch known = *batch;
    struct ttl_room room = { 0 };
    size_t n = batch->n_writes;
    bool lacks = false;
    enum belay_code code;

    for (size_t i = 0; i < n; i++) {
        lacks = lacks || lacks_ttl(&batch->writes[i]);
    }
    if (!lacks) {
        return commit_in_time(store, batch, out, err);
    }
    room.writes = calloc(n, sizeof *room.writes);
    room.values = calloc(n, sizeof *room.values);
    room.seen = calloc(n, sizeof *room.seen);
    room.keys = calloc(n, sizeof *room.keys);
    code = room.writes == NULL || room.values == NULL || room.seen == NULL || room.keys == NULL
               ? error_no_memory(err)
               : fill_ttls(store, batch, &room, err);
    if (code == BELAY_OK) {
        assert(room.writes != NULL);
        known.writes = room.writes;
        code = commit_in_time(store, &known, out, err);
    }
    for (size_t i = 0; i < room.n_keys; i++) {
        belay_record_release(&room.seen[i]);
    }
    free(room.writes);
    free(room.values);
    free(room.seen);
    free((void *)room.keys);
    return code;
}

/* ---- a clock that is wrong ----------------------------------------------------- */

static void commit_back(struct ddb_store *store, const struct belay_batch *batch)
{
    struct compensation compensation;
    struct belay_commit done = { 0 };

    /* Without memory the lock ends with its ttl. */
    if (compensation_make(&compensation, batch)) {
        (void)commit_planned(store, &compensation.batch, &done, NULL);
    }
    belay_commit_release(&done);
    compensation_release(&compensation);
}

static enum belay_code check_allowed(const struct ddb_store *store, const struct belay_batch *batch,
                                     struct belay_error *err)
{
    for (size_t i = 0; store->layout->read_only && i < batch->n_writes; i++) {
        if (ddb_creates(&batch->writes[i]) || (batch->writes[i].set & ~(unsigned)BELAY_SET_RELEASED) != 0) {
            return error_set(
                err, BELAY_NOT_PERMITTED,
                "locks of layout '%s' can only be shown and forced: its own programs acquire them",
                store->layout->name);
        }
    }
    return BELAY_OK;
}

/*
 * A read that begins after a freeze was written finds it: it is consistent. The write of the
 * batch comes later, so a freeze that is written between the two does not hinder it: it has
 * not returned before the acquisition began.
 */
static enum belay_code check_freezes(struct ddb_store *store, const struct belay_batch *batch,
                                     struct belay_commit *out, struct belay_error *err)
{
    struct belay_item item = { 0 };
    struct freeze_list list = { 0 };
    struct freeze_now now;
    enum belay_code code;

    if (!batch->check_freezes || !store->params.freezes) {
        return BELAY_OK;
    }
    code = ddb_item_get(&store->base, BELAY_SPACE_FREEZES, FREEZE_ITEM, &item, err);
    if (code == BELAY_OK) {
        code = freeze_list_read(&item, &list, err);
    }
    if (code == BELAY_OK) {
        ddb_clock_bounds(store, &now.low_unix_ms, &now.high_unix_ms);
        code = freeze_check(&list, batch, now, out, err);
    }
    freeze_list_release(&list);
    belay_item_release(&item);
    return code;
}

enum belay_code ddb_commit(struct belay_store *base, const struct belay_batch *batch,
                           struct belay_commit *out, struct belay_error *err)
{
    struct ddb_store *store = ddb_of(base);
    struct belay_commit result = { 0 };
    enum belay_code code;
    int64_t skew_ms;

    if (batch->n_writes == 0) {
        result.now_ms = ddb_clock_write_ms(store);
        *out = result;
        return BELAY_OK;
    }
    code = check_allowed(store, batch, err);
    if (code == BELAY_OK) {
        code = check_freezes(store, batch, &result, err);
    }
    if (code == BELAY_OK) {
        code = commit_with_ttl(store, batch, &result, err);
    }
    skew_ms =
        (code == BELAY_OK || code == BELAY_REFUSED) && depends_on_time(batch) ? ddb_clock_skew_ms(store) : 0;
    if (skew_ms != 0) {
        if (code == BELAY_OK) {
            commit_back(store, batch);
        }
        code = ddb_clock_say_skew(store, skew_ms, err);
    }
    if (code == BELAY_OK || code == BELAY_REFUSED || code == BELAY_FROZEN) {
        *out = result;
    } else {
        belay_commit_release(&result);
    }
    return code;
}
