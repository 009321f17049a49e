/* A write of the port, as conditions and clauses of an update. */
#include <string.h>

#include "base/text.h"
#include "store/dynamodb/dynamodb_internal.h"

enum { DROPS_MAX = 100 }; /* an expression has 4 KB */

bool ddb_creates(const struct belay_write *write)
{
    return (write->set & BELAY_SET_TAKEN) != 0 || write->put_ticket != NULL || write->put_intent != NULL;
}

bool ddb_holds_if_absent(const struct belay_write *write)
{
    switch (write->condition) {
    case BELAY_IF_ANY:
    case BELAY_IF_ABSENT:
    case BELAY_IF_FREE:
    case BELAY_IF_OPEN:
        return true;
    case BELAY_IF_UNCHANGED:
        return write->revision == 0;
    case BELAY_IF_HELD_BY:
    case BELAY_IF_LIVE_BY:
        break;
    }
    return false;
}

/* ---- conditions -------------------------------------------------------------- */

static struct expr_ref field_name(const struct ddb_store *store, enum layout_field field, struct expr *expr)
{
    return expr_name(expr, layout_name_of(store->layout, field));
}

static void not_held(const struct ddb_store *store, struct expr *expr)
{
    struct expr_ref status = field_name(store, FIELD_STATUS, expr);
    struct expr_ref held = expr_value(expr, av_text(store->layout->held_word));

    expr_and(expr, "attribute_not_exists(%s) OR %s <> %s", status.text, status.text, held.text);
}

static void none_in(const char *attribute, struct expr *expr)
{
    expr_and(expr, "attribute_not_exists(%s)", expr_name(expr, attribute).text);
}

/* An id that had the lock last does not take it again (L5). */
static void not_the_last(const struct ddb_store *store, const struct belay_write *write, struct expr *expr)
{
    struct expr_ref name = field_name(store, FIELD_LOCK_ID, expr);
    struct expr_ref id = expr_value(expr, av_text(write->values->lock_id));

    expr_and(expr, "attribute_not_exists(%s) OR %s <> %s", name.text, name.text, id.text);
}

static void held_by(const struct ddb_store *store, const struct belay_write *write, struct expr *expr)
{
    struct expr_ref status = field_name(store, FIELD_STATUS, expr);
    struct expr_ref name = field_name(store, FIELD_LOCK_ID, expr);
    struct expr_ref held = expr_value(expr, av_text(store->layout->held_word));
    struct expr_ref id = expr_value(expr, av_text(write->lock_id));

    expr_and(expr, "%s = %s AND %s = %s", status.text, held.text, name.text, id.text);
}

static void not_over(const struct ddb_store *store, int64_t now_ms, struct expr *expr)
{
    struct expr_ref name = field_name(store, FIELD_EXPIRES, expr);

    expr_and(expr, "%s > %s", name.text, expr_value(expr, av_int(now_ms)).text);
}

static void is_revision(const struct ddb_store *store, uint64_t revision, struct expr *expr)
{
    struct expr_ref name = field_name(store, FIELD_REVISION, expr);

    expr_and(expr, "%s = %s", name.text, expr_value(expr, av_uint(revision)).text);
}

void ddb_write_condition(const struct ddb_store *store, const struct belay_write *write, int64_t now_ms,
                         struct expr *expr)
{
    const char *key = store->layout->keys[0].name;

    if (!ddb_creates(write)) {
        expr_and(expr, "attribute_exists(%s)", expr_name(expr, key).text);
    }
    switch (write->condition) {
    case BELAY_IF_ANY:
        break;
    case BELAY_IF_ABSENT:
        none_in(key, expr);
        break;
    case BELAY_IF_FREE:
        not_held(store, expr);
        none_in(LINE_WAITING, expr);
        none_in(LINE_INTENTS, expr);
        if ((write->set & BELAY_SET_IDENTITY) != 0) {
            not_the_last(store, write, expr);
        }
        break;
    case BELAY_IF_OPEN:
        not_held(store, expr);
        none_in(LINE_WAITING, expr);
        break;
    case BELAY_IF_UNCHANGED:
        if (write->revision == 0) {
            none_in(key, expr);
        } else {
            is_revision(store, write->revision, expr);
        }
        break;
    case BELAY_IF_LIVE_BY:
        not_over(store, now_ms, expr);
        held_by(store, write, expr);
        break;
    case BELAY_IF_HELD_BY:
        held_by(store, write, expr);
        break;
    }
}

/* ---- fields -------------------------------------------------------------------- */

/* Set a field to a value, if the layout has a place for it. */
static void put(const struct ddb_store *store, enum layout_field field, json_t *value, struct expr *expr)
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
    bool round_up = field == FIELD_EXPIRES || field == FIELD_TTL;

    put(store, field, ddb_time_value(store->layout->fields[field].format, unix_ms, round_up), expr);
}

static void clear(const struct ddb_store *store, enum layout_field field, struct expr *expr)
{
    const char *name = layout_name_of(store->layout, field);

    if (name != NULL) {
        expr_remove(expr, name);
    }
}

static void put_token(const struct ddb_store *store, int64_t now_ms, struct expr *expr)
{
    const char *name = layout_name_of(store->layout, FIELD_TOKEN);
    struct expr_ref ref, first, one;

    if (name == NULL) {
        return;
    }
    ref = expr_name(expr, name);
    first = expr_value(expr, av_int(now_ms));
    one = expr_value(expr, av_int(1));
    expr_set_to(expr, name, "if_not_exists(%s, %s) + %s", ref.text, first.text, one.text);
}

static void put_metadata(const struct ddb_store *store, const struct belay_record *values, struct expr *expr)
{
    json_t *map = json_object();

    for (size_t i = 0; i < values->n_metadata; i++) {
        if (json_object_set_new(map, values->metadata[i].name, av_text(values->metadata[i].value)) != 0) {
            expr->failed = true;
        }
    }
    put(store, FIELD_METADATA, av_map(map), expr);
}

static void put_lease(const struct ddb_store *store, const struct belay_record *values, int64_t now_ms,
                      struct expr *expr)
{
    put(store, FIELD_LEASE, av_int(values->ttl_ms), expr);
    put_time(store, FIELD_EXPIRES, now_ms + values->ttl_ms, expr);
    put_time(store, FIELD_TTL, now_ms + values->ttl_ms + DDB_KEEP_MS, expr);
    put_time(store, FIELD_BEAT, now_ms, expr);
    clear(store, FIELD_STALE_NOTED, expr);
}

static void put_released(const struct ddb_store *store, enum belay_outcome outcome, struct expr *expr)
{
    const struct layout *layout = store->layout;
    const char *word = outcome == BELAY_OUTCOME_FAILED   ? layout->failed_word
                       : outcome == BELAY_OUTCOME_FORCED ? layout->forced_word
                                                         : layout->completed_word;

    put(store, FIELD_STATUS, av_text(word), expr);
    put(store, FIELD_OUTCOME, av_text(belay_outcome_name(outcome)), expr);
}

static void put_revision(const struct ddb_store *store, struct expr *expr)
{
    uint64_t revision = 0;

    /* Random: it never comes back, not even for a key whose item was removed in between. */
    if (!random_bytes(&revision, sizeof revision)) {
        expr->failed = true;
    }
    put(store, FIELD_REVISION, av_uint(revision >> 2 | 1), expr);
}

static void put_holder(const struct ddb_store *store, const struct belay_write *write, int64_t now_ms,
                       struct expr *expr)
{
    const struct belay_record *values = write->values;

    if ((write->set & BELAY_SET_IDENTITY) != 0) {
        put(store, FIELD_LOCK_ID, av_text(values->lock_id), expr);
        put_token(store, now_ms, expr);
    }
    if ((write->set & BELAY_SET_OWNER) != 0) {
        put(store, FIELD_OWNER, av_text(values->owner), expr);
        put(store, FIELD_OWNER_NAME, av_text(values->owner_name), expr);
    }
    if ((write->set & BELAY_SET_METADATA) != 0) {
        put_metadata(store, values, expr);
    }
    if ((write->set & BELAY_SET_TERMS) != 0) {
        put(store, FIELD_OUTLIVES, av_bool(values->outlives), expr);
        put(store, FIELD_HEARTBEAT, av_int(values->heartbeat_ms), expr);
        put(store, FIELD_STALE_AFTER, av_int(values->stale_after_ms), expr);
    }
}

void ddb_write_fields(const struct ddb_store *store, const struct belay_write *write, int64_t now_ms,
                      struct expr *expr)
{
    if ((write->set & BELAY_SET_TAKEN) != 0) {
        put(store, FIELD_STATUS, av_text(store->layout->held_word), expr);
        put_time(store, FIELD_LOCKED_AT, now_ms, expr);
        clear(store, FIELD_OUTCOME, expr);
    }
    put_holder(store, write, now_ms, expr);
    if ((write->set & BELAY_SET_LEASE) != 0) {
        put_lease(store, write->values, now_ms, expr);
    }
    if ((write->set & BELAY_SET_RELEASED) != 0) {
        put_released(store, write->values->outcome, expr);
    }
    if ((write->set & (BELAY_SET_RELEASED | BELAY_SET_FREED)) != 0) {
        put_time(store, FIELD_FREED, now_ms, expr);
    }
    if ((write->set & BELAY_SET_STALE_NOTED) != 0 && (write->set & BELAY_SET_LEASE) == 0) {
        put(store, FIELD_STALE_NOTED, av_bool(true), expr);
    }
    /* An intent may last longer than anything else in the item, and there may be several. */
    if (write->put_intent != NULL && (write->set & BELAY_SET_LEASE) == 0) {
        clear(store, FIELD_TTL, expr);
    }
    put_revision(store, expr);
}

/* ---- the line ------------------------------------------------------------------ */

/*
 * A ticket is an id in a set and two attributes named after it, so that it can
 * be put and dropped without knowing what is there: adding to a set makes the
 * set, taking the last one out of it removes it, and so "nobody waits" is that
 * there is no such attribute. An intent is made the same way.
 */
static void set_named(struct expr *expr, const char *prefix, const char *id, json_t *value)
{
    struct buf name = BUF_INIT(512);

    buf_addf(&name, "%s%s", prefix, id);
    if (name.failed) {
        expr->failed = true;
        json_decref(value);
    } else {
        expr_set(expr, name.data, value);
    }
    buf_release(&name);
}

static void remove_named(struct expr *expr, const char *prefix, const char *id)
{
    struct buf name = BUF_INIT(512);

    buf_addf(&name, "%s%s", prefix, id);
    if (name.failed) {
        expr->failed = true;
    } else {
        expr_remove(expr, name.data);
    }
    buf_release(&name);
}

static bool is_dropped(const char *const *drops, size_t n, const char *id)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(drops[i], id) == 0) {
            return true;
        }
    }
    return false;
}

struct drops {
    const char *const *ids;
    size_t n;
    const char *put_again; /* NULL: none */
    const char *prefixes[2];
    const char *set;
};

static void drop_one(struct expr *expr, const struct drops *drops, const char *id, json_t *dropped)
{
    if (drops->put_again != NULL && strcmp(id, drops->put_again) == 0) {
        return;
    }
    for (size_t p = 0; p < 2 && drops->prefixes[p] != NULL; p++) {
        remove_named(expr, drops->prefixes[p], id);
    }
    if (json_array_append_new(dropped, json_string(id)) != 0) {
        expr->failed = true;
    }
}

/*
 * Of very many only some are dropped now: each is over or was passed by, and is
 * dropped by who comes next. The writer's own must not stay, so it goes first.
 */
static void drop(struct expr *expr, const struct drops *drops, const char *own)
{
    json_t *dropped = json_array();
    bool has_own = own != NULL && is_dropped(drops->ids, drops->n, own);

    if (has_own) {
        drop_one(expr, drops, own, dropped);
    }
    for (size_t i = 0; i < drops->n && json_array_size(dropped) < DROPS_MAX; i++) {
        if (!(has_own && strcmp(drops->ids[i], own) == 0) && !is_dropped(drops->ids, i, drops->ids[i])) {
            drop_one(expr, drops, drops->ids[i], dropped);
        }
    }
    if (json_array_size(dropped) > 0) {
        expr_delete(expr, drops->set, json_pack("{s:O}", "SS", dropped));
    }
    json_decref(dropped);
}

static void put_seq(const struct belay_write *write, struct expr *expr)
{
    const struct belay_put_ticket *put = write->put_ticket;
    struct expr_ref last = expr_name(expr, LINE_LAST_SEQ);
    struct expr_ref one = expr_value(expr, av_int(1));
    struct buf name = BUF_INIT(512);

    buf_addf(&name, "%s%s", LINE_SEQ, put->lock_id);
    if (name.failed) {
        expr->failed = true;
    } else if (is_dropped(write->drop_tickets, write->n_drop_tickets, put->lock_id)) {
        expr_set_to(expr, name.data, "if_not_exists(%s, %s)", last.text, one.text);
    } else {
        expr_set_to(expr, name.data, "if_not_exists(%s, if_not_exists(%s, %s))",
                    expr_name(expr, name.data).text, last.text, one.text);
    }
    expr_set_to(expr, LINE_LAST_SEQ, "if_not_exists(%s, %s) + %s", last.text, one.text, one.text);
    buf_release(&name);
}

static void put_ticket(const struct belay_write *write, int64_t now_ms, struct expr *expr)
{
    const struct belay_put_ticket *put = write->put_ticket;
    json_t *map = json_pack("{s:o,s:o,s:o,s:o,s:o}", "key", av_text(put->key), "locked_by",
                            av_text(put->owner), "locked_by_name", av_text(put->owner_name), "since",
                            av_int(put->since_unix_ms), "expires_at", av_int(now_ms + put->ttl_ms));

    set_named(expr, LINE_TICKET, put->lock_id, av_map(map));
    put_seq(write, expr);
    expr_add(expr, LINE_WAITING, av_set_of_one(put->lock_id));
}

static void put_intent(const struct belay_write *write, int64_t now_ms, struct expr *expr)
{
    const struct belay_put_intent *put = write->put_intent;
    json_t *map =
        json_pack("{s:o,s:o}", "key", av_text(put->key), "expires_at", av_int(now_ms + put->ttl_ms));

    set_named(expr, LINE_INTENT, put->lock_id, av_map(map));
    expr_add(expr, LINE_INTENTS, av_set_of_one(put->lock_id));
}

void ddb_write_line(const struct belay_write *write, int64_t now_ms, struct expr *expr)
{
    const struct drops tickets = { .ids = write->drop_tickets,
                                   .n = write->n_drop_tickets,
                                   .put_again = write->put_ticket == NULL ? NULL : write->put_ticket->lock_id,
                                   .prefixes = { LINE_TICKET, LINE_SEQ },
                                   .set = LINE_WAITING };
    const struct drops intents = { .ids = write->drop_intents,
                                   .n = write->n_drop_intents,
                                   .put_again = write->put_intent == NULL ? NULL : write->put_intent->lock_id,
                                   .prefixes = { LINE_INTENT, NULL },
                                   .set = LINE_INTENTS };
    const char *own = write->values == NULL ? NULL : write->values->lock_id;

    drop(expr, &tickets, own);
    drop(expr, &intents, own);
    if (write->put_ticket != NULL) {
        put_ticket(write, now_ms, expr);
    }
    if (write->put_intent != NULL) {
        put_intent(write, now_ms, expr);
    }
}
