/*
 * Writes about the holders of a lock that is shared or has slots, as expressions.
 *
 * The item's own attributes speak for all holders at once, so that the conditions of
 * exclusive locks, also those of an older belay, see a lock that is held:
 *
 *     status                  'active' while there is a holder, then 'released'
 *     ttl_ms, expires_at      the longest ttl of any holder, and that much after the last renewal or
 *                             acquisition: no lease ends later
 *     token                   the last one that was granted
 *
 * A release does not know whether other holders are left, and cannot ask. `marks` has one
 * entry 'active' for each holder; a release sets the status to the second entry if there is
 * one, else to 'released', and removes the first. A renewal adds the longest ttl, whatever it
 * is, to its own time.
 *
 * A write that has to know the other holders is made from the item that was read, on the
 * condition that it has not changed since (dynamodb_plan.c).
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "store/dynamodb/dynamodb_internal.h"

#define KEEP_LONG_MS BELAY_TTL_MAX_MS /* no intent lasts longer */
#define OLD_BELAY_OWNER "several holders, which a newer belay shows"

static const char *attribute_of(const struct ddb_store *store, enum layout_field field)
{
    return layout_name_of(store->layout, field);
}

static bool acquires_place(const struct belay_write *write)
{
    return write->co_holder && (write->set & BELAY_SET_ACQUIRED) != 0;
}

static bool adopts(const struct belay_write *write)
{
    return write->co_holder && (write->set & (BELAY_SET_ACQUIRED | BELAY_SET_IDENTITY)) == BELAY_SET_IDENTITY;
}

static bool releases(const struct belay_write *write)
{
    return (write->set & BELAY_SET_RELEASED) != 0;
}

/* Whether the condition names a holder, or the write changes one that exists. */
static bool needs_holder(const struct belay_write *write)
{
    return write->co_holder && (!acquires_place(write) || ddb_names_holder(write));
}

static bool requires_no_holder(const struct belay_write *write)
{
    return write->condition != BELAY_IF_ANY && ddb_holds_if_absent(write);
}

bool ddb_holders_need_item(const struct belay_write *write)
{
    bool drops = write->n_drop_holders > 0 && (write->co_holder || (write->set & BELAY_SET_ACQUIRED) == 0);

    return (acquires_place(write) || adopts(write) || drops) && !requires_no_holder(write);
}

/* ---- conditions ---- */

static void require_several(const struct ddb_store *store, struct expr *expr)
{
    expr_and_is(expr, attribute_of(store, FIELD_STATUS), av_text(store->layout->held_word));
    expr_and_is(expr, attribute_of(store, FIELD_LOCK_ID), av_text(HOLDERS_SEVERAL));
}

static void require_holder(const struct ddb_store *store, const struct belay_write *write, int64_t now_ms,
                           struct expr *expr)
{
    struct expr_ref map = expr_name(expr, HOLDERS_MAP);
    struct expr_ref id = expr_name(expr, write->lock_id);
    struct expr_ref expires;

    expr_and(expr, "attribute_exists(%s.%s)", map.text, id.text);
    if (write->condition == BELAY_IF_LIVE_BY && !store->params.observe) {
        expires = expr_name(expr, attribute_of(store, FIELD_EXPIRES));
        expr_and(expr, "%s.%s.%s > %s", map.text, id.text, expires.text,
                 expr_value(expr, av_int(now_ms)).text);
    }
}

/* The record's own ttl is not shorter than the new one. */
static void require_ttl_covered(const struct ddb_store *store, const struct belay_write *write,
                                struct expr *expr)
{
    struct expr_ref ttl = expr_name(expr, attribute_of(store, FIELD_LEASE));

    expr_and(expr, "%s >= %s", ttl.text, expr_value(expr, av_int(write->values->ttl_ms)).text);
}

void ddb_holders_condition(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                           int64_t now_ms, struct expr *expr)
{
    const unsigned of_holder = ~(unsigned)(BELAY_SET_FREED | BELAY_SET_ACQUIRED);
    json_t *revision = json_object_get(seen, attribute_of(store, FIELD_REVISION));

    if (needs_holder(write)) {
        require_several(store, expr);
        require_holder(store, write, now_ms, expr);
        if ((write->set & BELAY_SET_LEASE) != 0 && seen == NULL) {
            require_ttl_covered(store, write, expr);
        }
    } else if (!write->co_holder && !ddb_names_holder(write) && (write->set & BELAY_SET_ACQUIRED) == 0 &&
               (write->set & of_holder) != 0) {
        /* No set of an exclusive holder's fields applies to several. */
        expr_and_is_not(expr, attribute_of(store, FIELD_LOCK_ID), av_text(HOLDERS_SEVERAL));
    }
    if (seen != NULL && write->condition != BELAY_IF_UNCHANGED) {
        expr_and_is(expr, attribute_of(store, FIELD_REVISION), json_incref(revision));
    }
}

bool ddb_holders_must_grow(const struct ddb_store *store, const struct belay_write *write, const json_t *item)
{
    int64_t longest_ms = 0;

    return needs_holder(write) && (write->set & BELAY_SET_LEASE) != 0 &&
           ddb_is_several(store->layout, item) && ddb_holder_entry(item, write->lock_id) != NULL &&
           item_int(item, attribute_of(store, FIELD_LEASE), &longest_ms) &&
           longest_ms < write->values->ttl_ms;
}

/* ---- the item's own attributes ---- */

static void set_field_time(const struct ddb_store *store, enum layout_field field, int64_t unix_ms,
                           struct expr *expr)
{
    expr_set(expr, attribute_of(store, field),
             ddb_time_value(store->layout->fields[field].format, unix_ms, true));
}

static int64_t whole_s(int64_t ms)
{
    return (ms + 999) / 1000;
}

void ddb_holders_keep_long(struct expr *expr)
{
    expr_set(expr, HOLDERS_KEEP, av_int(whole_s(KEEP_LONG_MS + DDB_KEEP_MS)));
}

/* The longest ttl of all holders is known. */
static void set_bounds(const struct ddb_store *store, const json_t *seen, int64_t longest_ms, int64_t now_ms,
                       struct expr *expr)
{
    int64_t keep_ms =
        DDB_KEEP_MS + (json_object_get(seen, QUEUE_INTENTS) != NULL ? KEEP_LONG_MS : longest_ms);

    expr_set(expr, attribute_of(store, FIELD_LEASE), av_int(longest_ms));
    expr_set(expr, HOLDERS_KEEP, av_int(whole_s(keep_ms)));
    set_field_time(store, FIELD_EXPIRES, now_ms + longest_ms, expr);
    set_field_time(store, FIELD_BEAT, now_ms, expr);
    set_field_time(store, FIELD_TTL, now_ms + keep_ms, expr);
}

/* The longest ttl is the one in the item: the service adds it to the new time. */
static void move_bounds(const struct ddb_store *store, int64_t now_ms, struct expr *expr)
{
    struct expr_ref ttl = expr_name(expr, attribute_of(store, FIELD_LEASE));
    struct expr_ref keep = expr_name(expr, HOLDERS_KEEP);
    struct expr_ref now = expr_value(expr, av_int(now_ms));
    struct expr_ref now_s = expr_value(expr, av_int(whole_s(now_ms)));

    expr_set_to(expr, attribute_of(store, FIELD_EXPIRES), "%s + %s", now.text, ttl.text);
    expr_set_to(expr, attribute_of(store, FIELD_TTL), "%s + %s", now_s.text, keep.text);
    set_field_time(store, FIELD_BEAT, now_ms, expr);
}

static void set_mode(const struct belay_record *values, struct expr *expr)
{
    expr_set(expr, HOLDERS_MODE, av_text(belay_mode_name(values->mode)));
    if (values->mode == BELAY_SLOTS) {
        expr_set(expr, HOLDERS_SLOTS, av_int(values->slots));
    } else {
        expr_remove(expr, HOLDERS_SLOTS);
    }
}

void ddb_holders_clear(struct expr *expr)
{
    static const char *const names[] = { HOLDERS_MAP,   HOLDERS_MARKS, HOLDERS_MODE, HOLDERS_SLOTS,
                                         HOLDERS_FIRST, HOLDERS_KEEP,  HOLDERS_LAST, HOLDERS_LAST_ID };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        expr_remove(expr, names[i]);
    }
}

/* ---- entries ---- */

/* The entry after the write, from the one before it, if it had one. `token` 0: the entry gets none. */
static json_t *make_entry(const struct ddb_store *store, const struct belay_write *write,
                          const json_t *before, uint64_t token, int64_t now_ms)
{
    struct expr fields;
    json_t *entry = before == NULL ? json_object() : json_copy((json_t *)before);
    bool ok;

    expr_init(&fields);
    ddb_write_holder(store, write, now_ms, &fields);
    if ((write->set & BELAY_SET_LEASE) != 0) {
        (void)json_object_del(entry, attribute_of(store, FIELD_STALE_NOTED));
    }
    ok = !fields.failed && json_object_update(entry, fields.assigned) == 0 &&
         (token == 0 || json_object_set_new(entry, attribute_of(store, FIELD_TOKEN), av_uint(token)) == 0);
    expr_release(&fields);
    if (!ok) {
        json_decref(entry);
        return NULL;
    }
    return av_map(entry);
}

/* The entries of the item without those that the write drops. Empty if it has no holders; NULL: no memory. */
static json_t *copy_left(const struct ddb_store *store, const struct belay_write *write, const json_t *seen)
{
    const char *status = item_text(seen, attribute_of(store, FIELD_STATUS));
    bool held = status != NULL && strcmp(status, store->layout->held_word) == 0;
    const json_t *map = held && ddb_is_several(store->layout, seen) ? item_map(seen, HOLDERS_MAP) : NULL;
    json_t *left = map == NULL ? json_object() : json_copy((json_t *)map);

    for (size_t i = 0; i < write->n_drop_holders; i++) {
        (void)json_object_del(left, write->drop_holders[i]);
    }
    return left;
}

static int64_t longest_of(const struct ddb_store *store, const json_t *entries, int64_t least_ms)
{
    int64_t longest_ms = least_ms;
    const char *id;
    json_t *entry;

    json_object_foreach((json_t *)entries, id, entry)
    {
        int64_t ttl_ms = 0;

        (void)item_int(json_object_get(entry, "M"), attribute_of(store, FIELD_LEASE), &ttl_ms);
        longest_ms = ttl_ms > longest_ms ? ttl_ms : longest_ms;
    }
    return longest_ms;
}

/* All entries at once. */
static void rewrite_entries(const struct ddb_store *store, const json_t *entries, struct expr *expr)
{
    size_t n = json_object_size(entries);

    expr_set(expr, HOLDERS_MAP, av_map(json_incref((json_t *)entries)));
    expr_set(expr, HOLDERS_MARKS, av_repeated(store->layout->held_word, n));
    expr_set(expr, attribute_of(store, FIELD_STATUS),
             av_text(n > 0 ? store->layout->held_word : store->layout->completed_word));
}

static uint64_t next_token(const struct ddb_store *store, const json_t *seen)
{
    uint64_t token = 0;

    (void)item_uint(seen, attribute_of(store, FIELD_TOKEN), &token);
    return token + 1;
}

/* ---- acquiring ---- */

/* The first holder: nothing of those before remains. Its token is in the item, not in its entry. */
static void set_first_holder(const struct ddb_store *store, const struct belay_write *write, int64_t now_ms,
                             struct expr *expr)
{
    static const enum layout_field of_one[] = { FIELD_ACQUIRED_BY, FIELD_OUTCOME,     FIELD_OUTLIVES,
                                                FIELD_STALE_NOTED, FIELD_STALE_AFTER, FIELD_HEARTBEAT,
                                                FIELD_METADATA };
    const char *token = attribute_of(store, FIELD_TOKEN);
    json_t *entries = json_object();

    if (json_object_set_new(entries, write->values->lock_id, make_entry(store, write, NULL, 0, now_ms)) !=
        0) {
        expr->failed = true;
    }
    rewrite_entries(store, entries, expr);
    json_decref(entries);
    expr_set_next(expr, token, token, now_ms);
    expr_set_next(expr, HOLDERS_FIRST, token, now_ms);
    expr_set(expr, attribute_of(store, FIELD_LOCK_ID), av_text(HOLDERS_SEVERAL));
    expr_set(expr, attribute_of(store, FIELD_OWNER), av_text(OLD_BELAY_OWNER));
    expr_set(expr, attribute_of(store, FIELD_OWNER_NAME), av_text(OLD_BELAY_OWNER));
    set_field_time(store, FIELD_LOCKED_AT, now_ms, expr);
    for (size_t i = 0; i < sizeof of_one / sizeof of_one[0]; i++) {
        expr_remove(expr, attribute_of(store, of_one[i]));
    }
    expr_remove(expr, HOLDERS_LAST);
    expr_remove(expr, HOLDERS_LAST_ID);
}

/* A further holder, beside those in `left`. */
static void join_holders(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                         json_t *left, int64_t now_ms, struct expr *expr)
{
    const char *id = write->values->lock_id;
    uint64_t token = next_token(store, seen);
    json_t *entry = make_entry(store, write, NULL, token, now_ms);
    bool is_new = json_object_get(left, id) == NULL;

    if (json_object_size(left) != json_object_size(item_map(seen, HOLDERS_MAP))) {
        expr->failed = expr->failed || json_object_set_new(left, id, entry) != 0;
        rewrite_entries(store, left, expr);
    } else {
        struct expr_ref marks = expr_name(expr, HOLDERS_MARKS);
        struct expr_ref mark = expr_value(expr, av_repeated(store->layout->held_word, is_new ? 1 : 0));

        expr_set_entry(expr, HOLDERS_MAP, id, entry);
        expr_set_to(expr, HOLDERS_MARKS, "list_append(%s, %s)", marks.text, mark.text);
    }
    expr_set(expr, attribute_of(store, FIELD_TOKEN), av_uint(token));
    expr_remove(expr, attribute_of(store, FIELD_OUTCOME));
}

static void write_acquired(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                           int64_t now_ms, struct expr *expr)
{
    json_t *left = copy_left(store, write, seen);

    set_mode(write->values, expr);
    set_bounds(store, seen, longest_of(store, left, write->values->ttl_ms), now_ms, expr);
    if (json_object_size(left) == 0) {
        set_first_holder(store, write, now_ms, expr);
    } else {
        join_holders(store, write, seen, left, now_ms, expr);
    }
    expr->failed = expr->failed || left == NULL;
    json_decref(left);
}

/* ---- changing one of them ---- */

/* Each id moves to the next attribute, as it was before the write. */
void ddb_holders_shift_released(const struct layout *layout, struct expr *expr)
{
    struct expr_ref none = expr_value(expr, av_text(""));
    struct expr_ref before = expr_name(expr, layout_name_of(layout, FIELD_RELEASED_ID));

    for (size_t i = 2; i <= BELAY_RELEASED_MAX; i++) {
        char name[sizeof HOLDERS_RELEASED + 8];

        (void)snprintf(name, sizeof name, HOLDERS_RELEASED, i);
        expr_set_to(expr, name, "if_not_exists(%s, %s)", before.text, none.text);
        before = expr_name(expr, name);
    }
}

/* The second mark, if there is one, says that the lock stays held. */
static void release_entry(const struct ddb_store *store, const struct belay_write *write, struct expr *expr)
{
    expr_set_to(expr, attribute_of(store, FIELD_STATUS), "if_not_exists(%s[1], %s)",
                expr_name(expr, HOLDERS_MARKS).text,
                expr_value(expr, av_text(store->layout->completed_word)).text);
    expr_set_to(expr, HOLDERS_LAST, "%s.%s", expr_name(expr, HOLDERS_MAP).text,
                expr_name(expr, write->lock_id).text);
    expr_set(expr, HOLDERS_LAST_ID, av_text(write->lock_id));
    expr_remove_entry(expr, HOLDERS_MAP, write->lock_id);
    expr_remove_first(expr, HOLDERS_MARKS);
    ddb_write_outcome(store, write, expr);
}

/* A new id and token for one of them, which keeps its place among the marks. */
static void adopt_co_holder(const struct ddb_store *store, const struct belay_write *write,
                            const json_t *seen, int64_t now_ms, struct expr *expr)
{
    const char *id = write->values->lock_id;
    uint64_t token = next_token(store, seen);

    expr_set_entry(expr, HOLDERS_MAP, id,
                   make_entry(store, write, ddb_holder_entry(seen, write->lock_id), token, now_ms));
    if (strcmp(id, write->lock_id) != 0) {
        expr_remove_entry(expr, HOLDERS_MAP, write->lock_id);
    }
    expr_set(expr, attribute_of(store, FIELD_TOKEN), av_uint(token));
}

/* The same as part of a write that drops others, too. */
static void change_entries(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                           json_t *left, int64_t now_ms, struct expr *expr)
{
    const json_t *before = ddb_holder_entry(seen, write->lock_id);
    uint64_t token = adopts(write) ? next_token(store, seen) : 0;
    const char *id = adopts(write) ? write->values->lock_id : write->lock_id;

    (void)json_object_del(left, write->lock_id);
    if (!releases(write)) {
        expr->failed = expr->failed ||
                       json_object_set_new(left, id, make_entry(store, write, before, token, now_ms)) != 0;
    } else {
        expr_set(expr, HOLDERS_LAST, av_map(json_copy((json_t *)before)));
        expr_set(expr, HOLDERS_LAST_ID, av_text(write->lock_id));
        ddb_write_outcome(store, write, expr);
    }
    if (token > 0) {
        expr_set(expr, attribute_of(store, FIELD_TOKEN), av_uint(token));
    }
    rewrite_entries(store, left, expr);
}

static void change_co_holder(const struct ddb_store *store, const struct belay_write *write,
                             const json_t *seen, int64_t now_ms, struct expr *expr)
{
    if (adopts(write)) {
        adopt_co_holder(store, write, seen, now_ms, expr);
    } else if (releases(write)) {
        release_entry(store, write, expr);
    } else {
        expr_within(expr, HOLDERS_MAP, write->lock_id);
        ddb_write_holder(store, write, now_ms, expr);
        expr_within(expr, NULL, NULL);
    }
}

void ddb_write_co_holder(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                         int64_t now_ms, struct expr *expr)
{
    json_t *left;

    assert(!layout_is_foreign(store->layout));
    if (acquires_place(write)) {
        write_acquired(store, write, seen, now_ms, expr);
        return;
    }
    left = copy_left(store, write, seen);
    if (write->n_drop_holders > 0) {
        change_entries(store, write, seen, left, now_ms, expr);
    } else {
        change_co_holder(store, write, seen, now_ms, expr);
    }
    if ((write->set & BELAY_SET_LEASE) != 0 && !releases(write)) {
        if (seen != NULL) {
            set_bounds(store, seen, longest_of(store, left, write->values->ttl_ms), now_ms, expr);
        } else {
            move_bounds(store, now_ms, expr);
        }
    }
    expr->failed = expr->failed || left == NULL;
    json_decref(left);
}

/* ---- dropping some ---- */

static const char *last_dropped(const struct ddb_store *store, const struct belay_write *write,
                                const json_t *seen)
{
    const char *last = NULL;
    int64_t last_ms = 0;

    for (size_t i = 0; i < write->n_drop_holders; i++) {
        const json_t *entry = ddb_holder_entry(seen, write->drop_holders[i]);
        int64_t expires_ms = 0;

        (void)item_int(entry, attribute_of(store, FIELD_EXPIRES), &expires_ms);
        if (entry != NULL && (last == NULL || expires_ms > last_ms)) {
            last = write->drop_holders[i];
            last_ms = expires_ms;
        }
    }
    return last;
}

void ddb_write_drops(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                     struct expr *expr)
{
    const char *last = last_dropped(store, write, seen);
    json_t *left;

    if (last == NULL || (write->set & BELAY_SET_ACQUIRED) != 0 || !ddb_is_several(store->layout, seen)) {
        return;
    }
    left = copy_left(store, write, seen);
    rewrite_entries(store, left, expr);
    if (json_object_size(left) == 0) {
        expr_set(expr, HOLDERS_LAST, av_map(json_copy((json_t *)ddb_holder_entry(seen, last))));
        expr_set(expr, HOLDERS_LAST_ID, av_text(last));
    }
    expr->failed = expr->failed || left == NULL;
    json_decref(left);
}
