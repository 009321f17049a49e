/* The fields of a write, as clauses of an update. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/dynamodb/dynamodb_internal.h"

/* ---- fields -------------------------------------------------------------------- */

/* Sets a field, if the layout has an attribute for it. */
static void put_field(const struct ddb_store *store, enum layout_field field, json_t *value,
                      struct expr *expr)
{
    const char *name = layout_name_of(store->layout, field);

    if (name == NULL) {
        json_decref(value);
    } else {
        expr_set(expr, name, value);
    }
}

static void put_time(const struct ddb_store *store, enum layout_field field, int64_t unix_ms,
                     struct expr *expr)
{
    /*
     * The heartbeat is rounded like the expiry: their difference is the length of the lease,
     * also after many renewals.
     */
    bool round_up = field == FIELD_EXPIRES || field == FIELD_TTL || field == FIELD_BEAT;

    put_field(store, field, ddb_time_value(store->layout->fields[field].format, unix_ms, round_up), expr);
}

static void clear_field(const struct ddb_store *store, enum layout_field field, struct expr *expr)
{
    const char *name = layout_name_of(store->layout, field);

    if (name != NULL) {
        expr_remove(expr, name);
    }
}

static void put_token(const struct ddb_store *store, int64_t now_ms, struct expr *expr)
{
    const char *name = layout_name_of(store->layout, FIELD_TOKEN);

    if (name != NULL) {
        expr_set_next(expr, name, name, now_ms);
    }
}

static const char *meta_value(const struct belay_record *values, const char *name)
{
    return meta_find(values->metadata, values->n_metadata, name);
}

/* Whether the metadata entry has an attribute of its own. */
static bool has_attribute(const struct layout *layout, const char *meta)
{
    for (size_t i = 0; i < layout->n_extras; i++) {
        if (layout->extras[i].meta != NULL && strcmp(layout->extras[i].meta, meta) == 0) {
            return true;
        }
    }
    return layout->owner_name_meta != NULL && strcmp(layout->owner_name_meta, meta) == 0;
}

/* The metadata entry, else the part of the key, else nothing. */
static void put_extra_meta(const struct ddb_store *store, const struct belay_write *write,
                           const struct layout_extra *extra, struct expr *expr)
{
    const char *value = meta_value(write->values, extra->meta);
    char *part = value == NULL ? layout_key_part(store->layout, write->key, extra->meta) : NULL;

    if (value == NULL) {
        value = part;
    }
    if (value == NULL) {
        expr_remove(expr, extra->name);
    } else {
        expr_set(expr, extra->name, av_text(value));
    }
    free(part);
}

static void put_extras(const struct ddb_store *store, const struct belay_write *write, struct expr *expr)
{
    for (size_t i = 0; i < store->layout->n_extras; i++) {
        const struct layout_extra *extra = &store->layout->extras[i];

        if (extra->meta != NULL && (write->set & BELAY_SET_METADATA) != 0) {
            put_extra_meta(store, write, extra, expr);
        } else if (extra->value != NULL && (write->set & BELAY_SET_ACQUIRED) != 0) {
            expr_set(expr, extra->name,
                     av_text(strcmp(extra->value, "{key}") == 0 ? layout_short_key(store->layout, write->key)
                                                                : extra->value));
        }
    }
}

static void put_metadata(const struct ddb_store *store, const struct belay_record *values, struct expr *expr)
{
    json_t *map = json_object();

    for (size_t i = 0; i < values->n_metadata; i++) {
        const struct belay_meta *entry = &values->metadata[i];

        if (!has_attribute(store->layout, entry->name) &&
            json_object_set_new(map, entry->name, av_text(entry->value)) != 0) {
            expr->failed = true;
        }
    }
    put_field(store, FIELD_METADATA, av_map(map), expr);
}

/* When DynamoDB may remove the item. */
static void put_ttl(const struct ddb_store *store, const struct belay_record *values, int64_t now_ms,
                    struct expr *expr)
{
    put_time(store, FIELD_TTL, now_ms + values->ttl_ms + (layout_is_foreign(store->layout) ? 0 : DDB_KEEP_MS),
             expr);
}

static void put_lease(const struct ddb_store *store, const struct belay_record *values, int64_t now_ms,
                      struct expr *expr)
{
    put_field(store, FIELD_LEASE, av_int(values->ttl_ms), expr);
    put_time(store, FIELD_EXPIRES, now_ms + values->ttl_ms, expr);
    put_time(store, FIELD_BEAT, now_ms, expr);
    clear_field(store, FIELD_STALE_NOTED, expr);
}

void ddb_write_outcome(const struct ddb_store *store, const struct belay_write *write, struct expr *expr)
{
    enum belay_outcome outcome = write->values->outcome;

    put_field(store, FIELD_OUTCOME, av_text(belay_outcome_name(outcome)), expr);
    if (outcome != BELAY_OUTCOME_FORCED && write->lock_id != NULL) {
        put_field(store, FIELD_RELEASED_ID, av_text(write->lock_id), expr);
        if (write->co_holder) {
            ddb_holders_shift_released(store->layout, expr);
        }
    }
}

static void put_released_status(const struct ddb_store *store, const struct belay_write *write,
                                struct expr *expr)
{
    const struct layout *layout = store->layout;
    enum belay_outcome outcome = write->values->outcome;
    const char *word = outcome == BELAY_OUTCOME_FAILED   ? layout->failed_word
                       : outcome == BELAY_OUTCOME_FORCED ? layout->forced_word
                                                         : layout->completed_word;

    put_field(store, FIELD_STATUS, av_text(word), expr);
    ddb_write_outcome(store, write, expr);
}

/* Random: it never recurs, not even for a key whose item was deleted in between. */
static json_t *random_revision(struct expr *expr)
{
    uint64_t revision = 0;

    if (!random_bytes(&revision, sizeof revision)) {
        expr->failed = true;
    }
    return av_uint(revision >> 2 | 1);
}

void ddb_write_queue_revision(struct expr *expr)
{
    expr_set(expr, QUEUE_REVISION, random_revision(expr));
}

static void put_owner_name(const struct ddb_store *store, const struct belay_record *values,
                           struct expr *expr)
{
    const char *meta = store->layout->owner_name_meta;
    const char *name = meta == NULL ? NULL : meta_value(values, meta);

    put_field(store, FIELD_OWNER_NAME, av_text(name == NULL ? values->owner_name : name), expr);
}

void ddb_write_holder(const struct ddb_store *store, const struct belay_write *write, int64_t now_ms,
                      struct expr *expr)
{
    const struct belay_record *values = write->values;

    if ((write->set & BELAY_SET_ACQUIRED) != 0) {
        put_time(store, FIELD_LOCKED_AT, now_ms, expr);
    }
    if ((write->set & BELAY_SET_IDENTITY) != 0) {
        put_field(store, FIELD_ACQUIRED_BY, av_text(values->acquired_by == NULL ? "" : values->acquired_by),
                  expr);
    }
    if ((write->set & BELAY_SET_OWNER) != 0) {
        put_field(store, FIELD_OWNER, av_text(values->owner), expr);
        put_owner_name(store, values, expr);
    }
    if ((write->set & BELAY_SET_METADATA) != 0) {
        put_metadata(store, values, expr);
    }
    if ((write->set & BELAY_SET_LIVENESS) != 0) {
        put_field(store, FIELD_OUTLIVES, av_bool(values->durable), expr);
        put_field(store, FIELD_HEARTBEAT, av_int(values->heartbeat_ms), expr);
        put_field(store, FIELD_STALE_AFTER, av_int(values->stale_after_ms), expr);
    }
    if ((write->set & BELAY_SET_LEASE) != 0) {
        put_lease(store, values, now_ms, expr);
    }
    if ((write->set & BELAY_SET_STALE_REPORTED) != 0 && (write->set & BELAY_SET_LEASE) == 0) {
        put_field(store, FIELD_STALE_NOTED, av_bool(true), expr);
    }
}

/* Fields of the record as a whole, whether it has one holder or several. */
static void put_common(const struct ddb_store *store, const struct belay_write *write, int64_t now_ms,
                       struct expr *expr)
{
    bool foreign = layout_is_foreign(store->layout);

    if ((write->set & BELAY_SET_RELEASED) != 0 || ((write->set & BELAY_SET_FREED) != 0 && !foreign)) {
        put_time(store, FIELD_FREED, now_ms, expr);
    }
    /* An intent may last longer than all other entries of the item, and there may be several. */
    if (write->n_put_intents > 0 && (write->set & BELAY_SET_LEASE) == 0) {
        clear_field(store, FIELD_TTL, expr);
        if (!foreign) {
            ddb_holders_keep_long(expr);
        }
    }
    put_field(store, FIELD_REVISION, random_revision(expr), expr);
}

/* Of an exclusive lock. */
static void put_own(const struct ddb_store *store, const struct belay_write *write, int64_t now_ms,
                    struct expr *expr)
{
    if ((write->set & BELAY_SET_ACQUIRED) != 0) {
        put_field(store, FIELD_STATUS, av_text(store->layout->held_word), expr);
        clear_field(store, FIELD_OUTCOME, expr);
        if (layout_is_foreign(store->layout)) {
            clear_field(store, FIELD_FREED, expr); /* it says that the present hold has ended */
        } else {
            ddb_holders_clear(expr);
        }
    }
    if ((write->set & BELAY_SET_IDENTITY) != 0) {
        put_field(store, FIELD_LOCK_ID, av_text(write->values->lock_id), expr);
        put_token(store, now_ms, expr);
    }
    ddb_write_holder(store, write, now_ms, expr);
    put_extras(store, write, expr);
    if ((write->set & BELAY_SET_LEASE) != 0) {
        put_ttl(store, write->values, now_ms, expr);
    }
    if ((write->set & BELAY_SET_RELEASED) != 0) {
        put_released_status(store, write, expr);
        /*
         * A second ago, because those programs compare whole seconds with "<": the lock is
         * free at once (L4).
         */
        if (store->layout->release_expires && (write->set & BELAY_SET_LEASE) == 0) {
            put_field(store, FIELD_EXPIRES,
                      ddb_time_value(store->layout->fields[FIELD_EXPIRES].format, now_ms - 1000, false),
                      expr);
        }
    }
}

void ddb_write_fields(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                      int64_t now_ms, struct expr *expr)
{
    if (write->co_holder) {
        ddb_write_co_holder(store, write, seen, now_ms, expr);
    } else {
        put_own(store, write, now_ms, expr);
        ddb_write_drops(store, write, seen, expr);
    }
    put_common(store, write, now_ms, expr);
}
