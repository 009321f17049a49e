/* Items from the table, and an item as a record. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fnv.h"
#include "base/text.h"
#include "store/dynamodb/dynamodb_internal.h"

/* ---- the queue -------------------------------------------------------------  */

static char *copy_item_text(const char *text, bool *ok)
{
    char *made = strdup(text == NULL ? "" : text);

    *ok = *ok && made != NULL;
    return made;
}

static const json_t *id_map(const json_t *item, const char *prefix, const char *id)
{
    char name[ID_NAME_SIZE];

    return item_map(item, ddb_id_name(name, prefix, id));
}

static void read_queue_ticket(const json_t *item, const json_t *map, const char *id,
                              struct belay_ticket *ticket, bool *ok)
{
    char name[ID_NAME_SIZE];

    ticket->lock_id = copy_item_text(id, ok);
    ticket->key = copy_item_text(item_text(map, "key"), ok);
    ticket->owner = copy_item_text(item_text(map, "locked_by"), ok);
    ticket->owner_name = copy_item_text(item_text(map, "locked_by_name"), ok);
    ticket->acquired_by = copy_item_text(item_text(map, "acquired_by"), ok);
    (void)item_int(map, "since", &ticket->since_unix_ms);
    (void)item_int(map, "expires_at", &ticket->expires_ms);
    ticket->mode = ddb_read_mode(map, &ticket->slots);
    ticket->joint = item_bool(map, "joint");
    (void)item_uint(item, ddb_id_name(name, QUEUE_SEQ, id), &ticket->seq);
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = ((const struct belay_ticket *)a)->seq;
    uint64_t y = ((const struct belay_ticket *)b)->seq;

    return (x > y) - (x < y);
}

static void read_queue_tickets(const json_t *item, struct belay_record *record, bool *ok)
{
    const json_t *ids = json_object_get(json_object_get(item, QUEUE_WAITING), "SS");
    size_t n = json_array_size(ids);

    record->tickets = n == 0 ? NULL : calloc(n, sizeof *record->tickets);
    *ok = *ok && (n == 0 || record->tickets != NULL);
    for (size_t i = 0; *ok && i < n; i++) {
        const char *id = json_string_value(json_array_get(ids, i));
        const json_t *map = id_map(item, QUEUE_TICKET, id);

        if (map != NULL) { /* else a ghost: see dynamodb_queue.c */
            read_queue_ticket(item, map, id, &record->tickets[record->n_tickets++], ok);
        }
    }
    if (record->tickets != NULL && record->n_tickets > 1) {
        qsort(record->tickets, record->n_tickets, sizeof *record->tickets, by_seq);
    }
}

static void read_queue_intents(const json_t *item, struct belay_record *record, bool *ok)
{
    const json_t *ids = json_object_get(json_object_get(item, QUEUE_INTENTS), "SS");
    size_t n = json_array_size(ids);

    record->intents = n == 0 ? NULL : calloc(n, sizeof *record->intents);
    *ok = *ok && (n == 0 || record->intents != NULL);
    for (size_t i = 0; *ok && i < n; i++) {
        const char *id = json_string_value(json_array_get(ids, i));
        const json_t *map = id_map(item, QUEUE_INTENT, id);
        struct belay_intent *intent;

        if (map == NULL) {
            continue; /* a ghost: see dynamodb_queue.c */
        }
        intent = &record->intents[record->n_intents++];
        intent->lock_id = copy_item_text(id, ok);
        intent->key = copy_item_text(item_text(map, "key"), ok);
        (void)item_int(map, "expires_at", &intent->expires_ms);
        intent->shared = item_bool(map, "shared");
    }
}

int64_t ddb_intent_ttl_ms(const json_t *queue, const char *lock_id)
{
    int64_t ttl_ms = 0;

    (void)item_int(id_map(queue, QUEUE_INTENT, lock_id), "ttl_ms", &ttl_ms);
    return ttl_ms;
}

/* ---- the holder -------------------------------------------------------------- */

static const char *field_text(const struct layout *layout, const json_t *item, enum layout_field field)
{
    return item_text(item, layout_name_of(layout, field));
}

static bool time_of(const struct layout *layout, const json_t *item, enum layout_field field, int64_t *out)
{
    return ddb_parse_time(field_text(layout, item, field), out);
}

void ddb_add_meta(struct belay_record *record, const char *name, const char *value, bool *ok)
{
    struct belay_meta *grown = realloc(record->metadata, (record->n_metadata + 1) * sizeof *grown);

    if (grown == NULL) {
        *ok = false;
        return;
    }
    record->metadata = grown;
    grown[record->n_metadata].name = copy_item_text(name, ok);
    grown[record->n_metadata++].value = copy_item_text(value, ok);
}

static void read_item_metadata(const struct layout *layout, const json_t *item, struct belay_record *record,
                               bool *ok)
{
    const json_t *map = item_map(item, layout_name_of(layout, FIELD_METADATA));
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)map, name, value)
    {
        ddb_add_meta(record, name, item_text(map, name), ok);
    }
    for (size_t i = 0; i < layout->n_extras; i++) {
        const struct layout_extra *extra = &layout->extras[i];

        if (extra->meta != NULL && item_text(item, extra->name) != NULL &&
            json_object_get(map, extra->meta) == NULL) {
            ddb_add_meta(record, extra->meta, item_text(item, extra->name), ok);
        }
    }
}

static enum belay_outcome read_outcome(const struct layout *layout, const json_t *item)
{
    const char *word = field_text(layout, item, FIELD_OUTCOME);

    for (int i = BELAY_OUTCOME_COMPLETED; word != NULL && i <= BELAY_OUTCOME_FORCED; i++) {
        if (strcmp(word, belay_outcome_name((enum belay_outcome)i)) == 0) {
            return (enum belay_outcome)i;
        }
    }
    word = field_text(layout, item, FIELD_STATUS);
    if (word == NULL || layout_name_of(layout, FIELD_OUTCOME) != NULL) {
        return BELAY_OUTCOME_NONE;
    }
    /* Some layouts have one word for all outcomes. */
    if (layout->failed_word != NULL && layout->completed_word != NULL &&
        strcmp(layout->failed_word, layout->completed_word) == 0) {
        return BELAY_OUTCOME_NONE;
    }
    return layout->failed_word != NULL && strcmp(word, layout->failed_word) == 0 ? BELAY_OUTCOME_FAILED
                                                                                 : BELAY_OUTCOME_COMPLETED;
}

static void read_item_times(const struct layout *layout, const json_t *item, struct belay_record *record)
{
    if (time_of(layout, item, FIELD_EXPIRES, &record->expires_ms)) {
        record->expires_at_unix_ms = record->expires_ms;
    }
    (void)time_of(layout, item, FIELD_LOCKED_AT, &record->locked_at_unix_ms);
    record->last_heartbeat_ms = record->locked_at_unix_ms;
    (void)time_of(layout, item, FIELD_BEAT, &record->last_heartbeat_ms);
    record->last_heartbeat_unix_ms = record->last_heartbeat_ms;
    if (time_of(layout, item, FIELD_FREED, &record->freed_ms)) {
        record->freed_at_unix_ms = record->freed_ms;
    }
}

static void read_liveness(const struct layout *layout, const json_t *item, struct belay_record *record)
{
    record->durable = item_bool(item, layout_name_of(layout, FIELD_OUTLIVES));
    record->stale_reported = item_bool(item, layout_name_of(layout, FIELD_STALE_NOTED));
    (void)item_uint(item, layout_name_of(layout, FIELD_TOKEN), &record->token);
    if (!item_int(item, layout_name_of(layout, FIELD_LEASE), &record->ttl_ms) &&
        record->expires_ms > record->last_heartbeat_ms && record->last_heartbeat_ms > 0) {
        record->ttl_ms = record->expires_ms - record->last_heartbeat_ms;
        record->ttl_is_estimate = layout_name_of(layout, FIELD_BEAT) == NULL;
    }
    (void)item_int(item, layout_name_of(layout, FIELD_HEARTBEAT), &record->heartbeat_ms);
    (void)item_int(item, layout_name_of(layout, FIELD_STALE_AFTER), &record->stale_after_ms);
}

static bool is_held(const struct layout *layout, const json_t *item)
{
    const char *word = field_text(layout, item, FIELD_STATUS);

    return word != NULL && strcmp(word, layout->held_word) == 0;
}

void ddb_read_holder(const struct layout *layout, const json_t *item, struct belay_record *record, bool *ok)
{
    record->owner = copy_item_text(field_text(layout, item, FIELD_OWNER), ok);
    record->owner_name = copy_item_text(field_text(layout, item, FIELD_OWNER_NAME), ok);
    if (layout_name_of(layout, FIELD_ACQUIRED_BY) != NULL) {
        record->acquired_by = copy_item_text(field_text(layout, item, FIELD_ACQUIRED_BY), ok);
    }
    if (*ok && item != NULL) {
        read_item_times(layout, item, record);
        read_liveness(layout, item, record);
        read_item_metadata(layout, item, record, ok);
    }
}

/* Whether the lock is held, by whom, and how it ended. */
static void read_item_state(struct ddb_store *store, const json_t *item, struct belay_record *record,
                            bool *ok)
{
    const struct layout *layout = store->layout;

    record->outcome = read_outcome(layout, item);
    if (layout_is_foreign(layout)) {
        ddb_foreign_holder(store, record->key, item, record, ok);
    } else {
        record->held = is_held(layout, item);
    }
    if (ddb_is_several(layout, item)) {
        ddb_read_holders(store, item, record, ok);
    }
    record->outcome = record->held ? BELAY_OUTCOME_NONE : record->outcome;
}

uint64_t ddb_hash_item(const json_t *item, uint64_t hash)
{
    char *text = json_dumps(item, JSON_COMPACT | JSON_SORT_KEYS);

    hash = fnv_text(hash, text);
    free(text);
    return hash;
}

/* Without an attribute for it, the revision is a hash of the item. */
static uint64_t revision_of(const struct layout *layout, const json_t *item, const json_t *queue)
{
    uint64_t revision = 0;

    if (item_uint(item, layout_name_of(layout, FIELD_REVISION), &revision)) {
        return revision;
    }
    if (item == NULL && queue == NULL) {
        return 0;
    }
    revision = ddb_hash_item(item, FNV_INIT);
    return (queue == item || queue == NULL ? revision : ddb_hash_item(queue, revision)) | 1;
}

/*
 * The counter belongs to this holder only if it has its id: other programs acquire the lock
 * without the counter.
 */
static void read_fence(const json_t *fence, struct belay_record *record)
{
    const char *id = item_text(fence, "lock_id");

    if (id != NULL && strcmp(id, record->lock_id) == 0) {
        (void)item_uint(fence, "token", &record->token);
    }
}

static bool has_ids(const json_t *queue)
{
    return json_object_get(queue, QUEUE_WAITING) != NULL || json_object_get(queue, QUEUE_INTENTS) != NULL;
}

/* An empty queue counts as none. */
static const json_t *queue_of(const struct ddb_items *items)
{
    return has_ids(items->queue) ? items->queue : NULL;
}

enum belay_code ddb_record(struct ddb_store *store, const char *key, const struct ddb_items *items,
                           struct belay_record *out_record, struct belay_error *err)
{
    const struct layout *layout = store->layout;
    const json_t *item = items->item;
    const json_t *queue = layout_is_foreign(layout) ? queue_of(items) : item;
    struct belay_record record = { 0 };
    bool ok = true;

    record.key = copy_item_text(key, &ok);
    record.lock_id = copy_item_text(field_text(layout, item, FIELD_LOCK_ID), &ok);
    ddb_read_released(layout, item, &record, &ok);
    ddb_read_holder(layout, item, &record, &ok);
    if (ok && item != NULL) {
        read_item_state(store, item, &record, &ok);
        read_fence(items->fence, &record);
    }
    record.revision = revision_of(layout, item, queue);
    read_queue_tickets(queue, &record, &ok);
    read_queue_intents(queue, &record, &ok);
    if (ok && layout_is_foreign(layout)) {
        int64_t since = ddb_seen_put(&store->seen, key, items, &record, ddb_clock_judge_ms(store));

        record.freed_ms = record.freed_ms > 0 || record.n_tickets == 0 ? record.freed_ms : since;
    } else if (ok && item != NULL) {
        (void)ddb_seen_put(&store->seen, key, items, &record, 0);
    }
    if (ok && store->params.observe) {
        ddb_observe(store, queue, &record);
    }
    if (ok) {
        ddb_holders_repeat(&record, &ok);
    }
    if (!ok) {
        belay_record_release(&record);
        return error_no_memory(err);
    }
    *out_record = record;
    return BELAY_OK;
}

/* ---- from the table ----------------------------------------------------------- */

/* The item, its queue and its counter, as far as the layout has them. */
static size_t places_per_key(const struct ddb_store *store)
{
    return 1U + (layout_is_foreign(store->layout) ? 1U : 0U) + (store->params.fence_table != NULL ? 1U : 0U);
}

static void name_places(const struct ddb_store *store, const char *key, struct ddb_place *places)
{
    size_t n = 0;

    places[n++] = (struct ddb_place){ store->params.table, ddb_item_key(store->layout, key), NULL };
    if (layout_is_foreign(store->layout)) {
        places[n++] = (struct ddb_place){ store->params.table, ddb_queue_key(store->layout, key), NULL };
    }
    if (store->params.fence_table != NULL) {
        places[n] = (struct ddb_place){ store->params.fence_table, ddb_fence_key(store, key), NULL };
    }
}

static void take_places(const struct ddb_store *store, struct ddb_place *places, struct ddb_items *items)
{
    size_t n = 0;

    items->item = json_incref(places[n++].item);
    if (layout_is_foreign(store->layout)) {
        items->queue = json_incref(places[n++].item);
    }
    if (store->params.fence_table != NULL) {
        items->fence = json_incref(places[n].item);
    }
    items->queue_known = true;
}

enum belay_code ddb_read_locks(struct ddb_store *store, const char *const *keys, size_t n,
                               struct ddb_items *out_items, struct belay_error *err)
{
    size_t each = places_per_key(store);
    struct ddb_place *places = calloc(n * each + 1, sizeof *places);
    enum belay_code code;

    if (places == NULL) {
        return error_no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        name_places(store, keys[i], places + i * each);
    }
    code = n == 0 ? BELAY_OK : ddb_read(store, places, n * each, err);
    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        memset(&out_items[i], 0, sizeof out_items[i]);
        take_places(store, places + i * each, &out_items[i]);
    }
    ddb_places_release(places, n * each);
    free(places);
    return code;
}

static enum belay_code records_of_items(struct ddb_store *store, const char *const *keys, size_t n,
                                        const struct ddb_items *items, struct belay_record *out_records,
                                        struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    size_t made = 0;

    for (; code == BELAY_OK && made < n; made++) {
        code = ddb_record(store, keys[made], &items[made], &out_records[made], err);
    }
    if (code != BELAY_OK) {
        for (size_t i = 0; i + 1 < made; i++) {
            belay_record_release(&out_records[i]);
        }
    }
    return code;
}

enum belay_code ddb_get(struct belay_store *base, const char *const *keys, size_t n,
                        struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err)
{
    struct ddb_store *store = ddb_of(base);
    struct ddb_items *items = calloc(n + 1, sizeof *items);
    enum belay_code code = items == NULL ? error_no_memory(err) : ddb_read_locks(store, keys, n, items, err);

    if (code == BELAY_OK) {
        assert(items != NULL);
        code = records_of_items(store, keys, n, items, out_records, err);
    }
    if (code == BELAY_OK) {
        *out_now_ms = ddb_clock_judge_ms(store);
    }
    for (size_t i = 0; items != NULL && i < n; i++) {
        ddb_items_release(&items[i]);
    }
    free(items);
    return code;
}
