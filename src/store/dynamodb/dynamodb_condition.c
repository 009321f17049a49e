/*
 * The conditions of the store API, as expressions.
 * In belay's own layout a status says whether a lock is held, and a revision whether it
 * changed. In the layouts of other programs a lock is held if its item exists, has an owner
 * and an expiry, and no status that says otherwise; it is unchanged if all attributes of the
 * layout are as they were read.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "store/dynamodb/dynamodb_internal.h"

bool ddb_creates(const struct belay_write *write)
{
    return (write->set & BELAY_SET_ACQUIRED) != 0 || write->put_ticket != NULL || write->n_put_intents > 0;
}

bool ddb_creates_item(const struct ddb_store *store, const struct belay_write *write)
{
    return layout_is_foreign(store->layout) ? (write->set & BELAY_SET_ACQUIRED) != 0 : ddb_creates(write);
}

bool ddb_holds_if_absent(const struct belay_write *write)
{
    return write->condition == BELAY_IF_ANY || write->condition == BELAY_IF_ABSENT ||
           write->condition == BELAY_IF_FREE || write->condition == BELAY_IF_FREE_FOR_INTENT ||
           (write->condition == BELAY_IF_UNCHANGED && write->revision == 0);
}

/* ---- held or not -------------------------------------------------------------- */

/* "#status IN (:a, :b, :c)" with the words that mean free. */
static void free_words_text(const struct layout *layout, struct expr *expr, char out[64])
{
    struct expr_ref status = expr_name(expr, layout_name_of(layout, FIELD_STATUS));
    struct expr_ref a = expr_value(expr, av_text(layout->completed_word));
    struct expr_ref b = expr_value(expr, av_text(layout->failed_word));
    struct expr_ref c = expr_value(expr, av_text(layout->forced_word));

    (void)snprintf(out, 64, "%s IN (%s, %s, %s)", status.text, a.text, b.text, c.text);
}

/*
 * A lock of another program without an owner or an expiry is free, too, but this condition
 * refuses it: the refusal returns the item, the user is warned, and the lock is then acquired
 * on the condition that it is unchanged (dynamodb_commit.c).
 */
static void require_not_held(const struct layout *layout, struct expr *expr)
{
    struct expr_ref key;
    char words[64] = "";

    if (!layout_is_foreign(layout)) {
        expr_and_is_not(expr, layout_name_of(layout, FIELD_STATUS), av_text(layout->held_word));
        return;
    }
    key = expr_name(expr, layout->keys[0].name);
    if (layout_name_of(layout, FIELD_STATUS) != NULL) {
        free_words_text(layout, expr, words);
    }
    expr_and(expr, "attribute_not_exists(%s)%s%s", key.text, *words == '\0' ? "" : " OR ", words);
}

static void require_held(const struct layout *layout, struct expr *expr)
{
    char words[64];

    if (!layout_is_foreign(layout)) {
        expr_and_is(expr, layout_name_of(layout, FIELD_STATUS), av_text(layout->held_word));
    } else if (layout_name_of(layout, FIELD_STATUS) != NULL) {
        free_words_text(layout, expr, words);
        expr_and(expr, "NOT %s", words);
    }
}

/* ---- the holder ---------------------------------------------------------------- */

/* The id that had the lock last cannot acquire it again (L5). */
static void require_new_id(const struct layout *layout, const struct belay_write *write, struct expr *expr)
{
    expr_and_is_not(expr, layout_name_of(layout, FIELD_LOCK_ID), av_text(write->values->lock_id));
    if (!layout_is_foreign(layout)) {
        expr_and_is_not(expr, HOLDERS_LAST_ID, av_text(write->values->lock_id));
    }
}

void ddb_require_as_seen(const char *attribute, const json_t *item, struct expr *expr)
{
    json_t *value = attribute == NULL ? NULL : json_object_get(item, attribute);

    if (value != NULL) {
        expr_and_is(expr, attribute, json_incref(value));
    } else if (attribute != NULL) {
        expr_and_absent(expr, attribute);
    }
}

/* The holder without an id is the one that was read: same name and time. */
static void require_seen_holder(const struct layout *layout, const json_t *item, struct expr *expr)
{
    ddb_require_as_seen(layout_name_of(layout, FIELD_LOCK_ID), item, expr);
    ddb_require_as_seen(layout_name_of(layout, FIELD_OWNER), item, expr);
    ddb_require_as_seen(layout_name_of(layout, FIELD_LOCKED_AT), item, expr);
    ddb_require_as_seen(layout->info, item, expr);
}

static void require_held_by(const struct layout *layout, const struct belay_write *write,
                            const struct ddb_items *seen, struct expr *expr)
{
    require_held(layout, expr);
    if (seen != NULL) {
        require_seen_holder(layout, seen->item, expr);
    } else {
        expr_and_is(expr, layout_name_of(layout, FIELD_LOCK_ID), av_text(write->lock_id));
    }
}

static void require_not_expired(const struct ddb_store *store, int64_t now_ms, struct expr *expr)
{
    const struct layout_attribute *expires = &store->layout->fields[FIELD_EXPIRES];

    if (store->params.observe) {
        return; /* no clock is trusted: a recorded holder has the lock */
    }
    expr_and(expr, "%s > %s", expr_name(expr, expires->name).text,
             expr_value(expr, ddb_time_value(expires->format, now_ms, false)).text);
}

/* ---- unchanged ----------------------------------------------------------------- */

static void require_unchanged(const struct layout *layout, const struct belay_write *write,
                              const struct ddb_items *seen, struct expr *expr)
{
    if (seen == NULL ? write->revision == 0 : seen->item == NULL) {
        expr_and_absent(expr, layout->keys[0].name);
        return;
    }
    if (seen == NULL) {
        expr_and_is(expr, layout_name_of(layout, FIELD_REVISION), av_uint(write->revision));
        return;
    }
    ddb_require_as_seen(layout->keys[0].name, seen->item, expr);
    for (int i = 0; i < N_FIELDS; i++) {
        ddb_require_as_seen(layout_name_of(layout, (enum layout_field)i), seen->item, expr);
    }
    for (size_t i = 0; i < layout->n_extras; i++) {
        ddb_require_as_seen(layout->extras[i].name, seen->item, expr);
    }
    ddb_require_as_seen(layout->info, seen->item, expr);
    ddb_require_as_seen(layout->lease_text, seen->item, expr);
    ddb_require_as_seen(layout->released_flag, seen->item, expr);
}

/* ---- all of them ----------------------------------------------------------------- */

static void require_empty_queue(const struct belay_write *write, struct expr *expr)
{
    expr_and_absent(expr, QUEUE_WAITING);
    if (write->condition != BELAY_IF_FREE_FOR_INTENT) {
        expr_and_absent(expr, QUEUE_INTENTS);
    }
}

/* The conditions about several holders. If the item was read and is absent, it must still be absent. */
static void require_holders(const struct ddb_store *store, const struct belay_write *write,
                            const struct ddb_items *seen, int64_t now_ms, struct expr *expr)
{
    if (seen != NULL && seen->item == NULL) {
        expr_and_absent(expr, store->layout->keys[0].name);
    }
    ddb_holders_condition(store, write, seen == NULL ? NULL : seen->item, now_ms, expr);
}

void ddb_write_condition(const struct ddb_store *store, const struct belay_write *write,
                         const struct ddb_items *seen, int64_t now_ms, struct expr *expr)
{
    const struct layout *layout = store->layout;
    bool is_native = !layout_is_foreign(layout); /* then the queue is in the lock's item */

    if (is_native) {
        require_holders(store, write, seen, now_ms, expr);
        seen = NULL; /* the revision is all that the rest refers to */
    }
    switch (write->condition) {
    case BELAY_IF_ANY:
        break;
    case BELAY_IF_ABSENT:
        expr_and_absent(expr, layout->keys[0].name);
        break;
    case BELAY_IF_FREE:
    case BELAY_IF_FREE_FOR_INTENT:
        if (seen != NULL) {
            require_unchanged(layout, write, seen, expr);
            break;
        }
        require_not_held(layout, expr);
        if (is_native) {
            require_empty_queue(write, expr);
        }
        if (write->condition == BELAY_IF_FREE && (write->set & BELAY_SET_IDENTITY) != 0) {
            require_new_id(layout, write, expr);
        }
        break;
    case BELAY_IF_UNCHANGED:
        require_unchanged(layout, write, seen, expr);
        break;
    case BELAY_IF_LIVE_BY:
    case BELAY_IF_HELD_BY:
        if (write->co_holder) {
            break;
        }
        if (write->condition == BELAY_IF_LIVE_BY) {
            require_not_expired(store, now_ms, expr);
        }
        require_held_by(layout, write, seen, expr);
        break;
    case BELAY_IF_OCCUPIED:
    case BELAY_IF_NEXT:
        assert(!"a store without takes_turns");
        break;
    }
}

/* Of a queue in an item of its own. If it was not read, an acquisition requires it to be empty. */
void ddb_queue_condition(const struct belay_write *write, const struct ddb_items *seen, struct expr *expr)
{
    bool is_unchanged = write->condition == BELAY_IF_UNCHANGED;

    if (write->condition == BELAY_IF_ANY || ddb_names_holder(write) ||
        (is_unchanged && seen != NULL && !seen->queue_known && (write->set & BELAY_SET_ACQUIRED) == 0)) {
        return;
    }
    if (is_unchanged && seen != NULL && seen->queue != NULL) {
        ddb_require_as_seen(QUEUE_REVISION, seen->queue, expr);
    } else {
        require_empty_queue(write, expr);
    }
}
