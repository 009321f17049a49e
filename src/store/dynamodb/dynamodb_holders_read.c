/* The holders of a lock that is shared or has slots, as a part of its record. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/dynamodb/dynamodb_internal.h"

bool ddb_is_several(const struct layout *layout, const json_t *item)
{
    const char *id = item_text(item, layout_name_of(layout, FIELD_LOCK_ID));

    return !layout_is_foreign(layout) && id != NULL && strcmp(id, HOLDERS_SEVERAL) == 0;
}

const json_t *ddb_holder_entry(const json_t *item, const char *lock_id)
{
    return lock_id == NULL ? NULL : item_map(item_map(item, HOLDERS_MAP), lock_id);
}

enum belay_mode ddb_read_mode(const json_t *map, int *out_slots)
{
    const char *name = item_text(map, HOLDERS_MODE);
    int64_t slots = 0;

    (void)item_int(map, HOLDERS_SLOTS, &slots);
    *out_slots = slots > 0 && slots <= INT_MAX ? (int)slots : 0;
    if (name != NULL && strcmp(name, belay_mode_name(BELAY_SHARED)) == 0) {
        return BELAY_SHARED;
    }
    return name != NULL && strcmp(name, belay_mode_name(BELAY_SLOTS)) == 0 ? BELAY_SLOTS : BELAY_EXCLUSIVE;
}

static void add_released(struct belay_record *record, const char *id, bool *ok)
{
    char *copy = strdup(id);

    *ok = *ok && copy != NULL;
    record->released_ids[record->n_released_ids] = copy;
    record->n_released_ids += copy != NULL;
}

void ddb_read_released(const struct layout *layout, const json_t *item, struct belay_record *record, bool *ok)
{
    const char *last = layout_name_of(layout, FIELD_RELEASED_ID);
    const char *id = last == NULL ? NULL : item_text(item, last);

    if (id == NULL) {
        return;
    }
    record->released_ids = calloc(BELAY_RELEASED_MAX, sizeof *record->released_ids);
    if (record->released_ids == NULL) {
        *ok = false;
        return;
    }
    add_released(record, id, ok);
    for (size_t i = 2; ddb_is_several(layout, item) && i <= BELAY_RELEASED_MAX; i++) {
        char name[sizeof HOLDERS_RELEASED + 8];

        (void)snprintf(name, sizeof name, HOLDERS_RELEASED, i);
        id = item_text(item, name);
        if (id != NULL && id[0] != '\0') {
            add_released(record, id, ok);
        }
    }
}

/* ---- one of them ---- */

static void holder_release(struct belay_holder *holder)
{
    free(holder->lock_id);
    free(holder->owner);
    free(holder->owner_name);
    free(holder->acquired_by);
    meta_free(holder->metadata, holder->n_metadata);
    memset(holder, 0, sizeof *holder);
}

/* `token` is of the entry that has none of its own. */
static void holder_from_entry(const struct layout *layout, const char *id, const json_t *entry,
                              uint64_t token, struct belay_holder *holder, bool *ok)
{
    struct belay_record one = { .token = token };

    ddb_read_holder(layout, entry, &one, ok);
    *holder = one.holder;
    holder->lock_id = strdup(id);
    *ok = *ok && holder->lock_id != NULL;
}

static void record_show_holder(struct belay_record *record, const struct belay_holder *holder, bool *ok)
{
    record->ttl_is_estimate = false;
    *ok = belay_record_show(record, holder) && *ok;
}

/* ---- all of them ---- */

static int by_token(const void *a, const void *b)
{
    uint64_t x = ((const struct belay_holder *)a)->token;
    uint64_t y = ((const struct belay_holder *)b)->token;

    return (x > y) - (x < y);
}

static void read_entries(const struct layout *layout, const json_t *item, uint64_t first_token,
                         struct belay_record *record, bool *ok)
{
    const json_t *map = item_map(item, HOLDERS_MAP);
    const char *id;
    json_t *value;

    record->holders = calloc(json_object_size(map) + 1, sizeof *record->holders);
    *ok = *ok && record->holders != NULL;
    if (!*ok) {
        return;
    }
    json_object_foreach((json_t *)map, id, value)
    {
        holder_from_entry(layout, id, json_object_get(value, "M"), first_token,
                          &record->holders[record->n_holders++], ok);
    }
    if (record->n_holders > 1) {
        qsort(record->holders, record->n_holders, sizeof *record->holders, by_token);
    }
}

static void holders_release(struct belay_record *record)
{
    for (size_t i = 0; i < record->n_holders; i++) {
        holder_release(&record->holders[i]);
    }
    free(record->holders);
    record->holders = NULL;
    record->n_holders = 0;
}

/*
 * The holder that was released last. After an older belay, which does not know of several
 * holders, released the lock by force, all of them are still there: then the one whose
 * lease would have ended last.
 */
static void show_last_holder(const struct layout *layout, const json_t *item, uint64_t first_token,
                             struct belay_record *record, bool *ok)
{
    const char *id = item_text(item, HOLDERS_LAST_ID);
    const json_t *entry = item_map(item, HOLDERS_LAST);
    struct belay_holder last;

    if (record->n_holders > 0) {
        ddb_holders_repeat(record, ok);
    } else if (id != NULL && entry != NULL) {
        holder_from_entry(layout, id, entry, first_token, &last, ok);
        if (*ok) {
            record_show_holder(record, &last, ok);
        }
        holder_release(&last);
    }
    holders_release(record);
}

void ddb_read_holders(const struct ddb_store *store, const json_t *item, struct belay_record *record,
                      bool *ok)
{
    uint64_t first_token = 0;

    (void)item_uint(item, HOLDERS_FIRST, &first_token);
    record->mode = ddb_read_mode(item, &record->slots);
    read_entries(store->layout, item, first_token, record, ok);
    if (*ok && !record->held) {
        show_last_holder(store->layout, item, first_token, record, ok);
    }
}

struct belay_holder *ddb_holder_find(const struct belay_record *record, const char *lock_id)
{
    for (size_t i = 0; lock_id != NULL && i < record->n_holders; i++) {
        if (strcmp(record->holders[i].lock_id, lock_id) == 0) {
            return &record->holders[i];
        }
    }
    return NULL;
}

void ddb_holders_repeat(struct belay_record *record, bool *ok)
{
    const struct belay_holder *last = record->holders;

    if (record->n_holders == 0) {
        return;
    }
    for (size_t i = 1; i < record->n_holders; i++) {
        if (record->holders[i].expires_ms > last->expires_ms) {
            last = &record->holders[i];
        }
    }
    record_show_holder(record, last, ok);
}

void ddb_holders_end(struct belay_record *record, const char *lock_id, bool *ok)
{
    struct belay_holder *holder = ddb_holder_find(record, lock_id);
    size_t after;

    if (holder == NULL) {
        return;
    }
    if (record->n_holders == 1) {
        record_show_holder(record, holder, ok);
        record->held = false;
    }
    after = (size_t)(record->holders + record->n_holders - holder) - 1;
    holder_release(holder);
    memmove(holder, holder + 1, after * sizeof *holder);
    record->n_holders--;
    ddb_holders_repeat(record, ok);
}
