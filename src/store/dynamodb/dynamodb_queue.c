/* Tickets and intents, as clauses of an update. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "store/dynamodb/dynamodb_internal.h"

enum { DROPS_MAX = 100 }; /* an expression has 4 KB */

/*
 * A ticket is an id in a set and two attributes named after it, so that it can be put and
 * dropped without reading the item: adding to a set creates it, removing the last element
 * deletes it, and so an absent attribute means an empty queue. Intents are stored the same
 * way.
 */
char *ddb_id_name(char out[ID_NAME_SIZE], const char *prefix, const char *id)
{
    (void)snprintf(out, ID_NAME_SIZE, "%s%s", prefix, id); /* an id has BELAY_ID_MAX bytes */
    return out;
}

bool ddb_ids_contain(const char *const *ids, size_t n, const char *id)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(ids[i], id) == 0) {
            return true;
        }
    }
    return false;
}

struct drops {
    const char *const *ids;
    size_t n;
    const char *puts[BELAY_KEYS_MAX]; /* the ids that are put, which are not dropped */
    size_t n_puts;
    const char *prefixes[2];
    const char *set;
};

static void drop_entry(struct expr *expr, const struct drops *drops, const char *id, json_t *dropped)
{
    char name[ID_NAME_SIZE];

    if (ddb_ids_contain(drops->puts, drops->n_puts, id)) {
        return;
    }
    for (size_t p = 0; p < 2 && drops->prefixes[p] != NULL; p++) {
        expr_remove(expr, ddb_id_name(name, drops->prefixes[p], id));
    }
    if (json_array_append_new(dropped, json_string(id)) != 0) {
        expr->failed = true;
    }
}

static bool is_ghost(const json_t *seen, const struct drops *drops, const char *id)
{
    char name[ID_NAME_SIZE];

    return json_object_get(seen, ddb_id_name(name, drops->prefixes[0], id)) == NULL;
}

static bool json_contains(const json_t *ids, const char *id)
{
    for (size_t i = 0; i < json_array_size(ids); i++) {
        if (strcmp(json_string_value(json_array_get(ids, i)), id) == 0) {
            return true;
        }
    }
    return false;
}

/* Writes the whole set: the ids that were read, without those that are dropped and without ghosts. */
static void rewrite_set(struct expr *expr, const struct drops *drops, const json_t *seen,
                        const json_t *dropped)
{
    const json_t *old = json_object_get(json_object_get(seen, drops->set), "SS");
    json_t *ids = json_array();
    bool ok = ids != NULL;

    for (size_t i = 0; ok && i < json_array_size(old); i++) {
        json_t *id = json_array_get(old, i);
        const char *text = json_string_value(id);

        if (!json_contains(dropped, text) && !is_ghost(seen, drops, text) &&
            !ddb_ids_contain(drops->puts, drops->n_puts, text)) {
            ok = json_array_append(ids, id) == 0;
        }
    }
    for (size_t i = 0; i < drops->n_puts; i++) {
        ok = ok && json_array_append_new(ids, json_string(drops->puts[i])) == 0;
    }
    if (drops->n_puts == 0 && json_array_size(ids) == json_array_size(old)) {
        /* unchanged */
    } else if (json_array_size(ids) > 0) {
        expr_set(expr, drops->set, json_pack("{s:O}", "SS", ids));
    } else {
        expr_remove(expr, drops->set);
    }
    expr->failed = expr->failed || !ok;
    json_decref(ids);
}

/*
 * One update cannot both add to a set and delete from it. If the write's condition is an
 * unchanged item, it writes the whole set. Otherwise, when an id is put, the dropped ids stay
 * in the set as ghosts: without an attribute they mean nothing, and the next write of the
 * first kind removes them.
 */
static void change_id_set(struct expr *expr, const struct drops *drops, const json_t *seen, json_t *dropped)
{
    if (seen != NULL) {
        rewrite_set(expr, drops, seen, dropped);
    } else if (drops->n_puts > 0) {
        expr_change_set(expr, CLAUSE_ADD, drops->set, av_set(drops->puts, drops->n_puts));
    } else if (json_array_size(dropped) > 0) {
        expr_change_set(expr, CLAUSE_DELETE, drops->set, json_pack("{s:O}", "SS", dropped));
    }
}

/*
 * If there are very many, only some are dropped now: each has expired or was passed over, and
 * a later write drops the rest. The writer's own id must not stay, so it goes first.
 */
static void change_ids(struct expr *expr, const struct drops *drops, const char *own, const json_t *seen)
{
    json_t *dropped = json_array();
    bool has_own = own != NULL && ddb_ids_contain(drops->ids, drops->n, own);

    if (has_own) {
        drop_entry(expr, drops, own, dropped);
    }
    for (size_t i = 0; i < drops->n && json_array_size(dropped) < DROPS_MAX; i++) {
        if (!(has_own && strcmp(drops->ids[i], own) == 0) && !ddb_ids_contain(drops->ids, i, drops->ids[i])) {
            drop_entry(expr, drops, drops->ids[i], dropped);
        }
    }
    change_id_set(expr, drops, seen, dropped);
    json_decref(dropped);
}

static void set_ticket_seq(const struct belay_write *write, struct expr *expr)
{
    const struct belay_put_ticket *put = write->put_ticket;
    struct expr_ref last = expr_name(expr, QUEUE_LAST_SEQ);
    struct expr_ref one = expr_value(expr, av_int(1));
    char name[ID_NAME_SIZE];

    (void)ddb_id_name(name, QUEUE_SEQ, put->lock_id);
    if (ddb_ids_contain(write->drop_tickets, write->n_drop_tickets, put->lock_id)) {
        expr_set_to(expr, name, "if_not_exists(%s, %s)", last.text, one.text);
    } else {
        /* By the grammar in AWS's developer guide any operand can be the second argument, also a function. */
        expr_set_to(expr, name, "if_not_exists(%s, if_not_exists(%s, %s))", expr_name(expr, name).text,
                    last.text, one.text);
    }
    expr_set_next(expr, QUEUE_LAST_SEQ, QUEUE_LAST_SEQ, 1);
}

static void set_ticket(const struct belay_write *write, int64_t now_ms, struct expr *expr)
{
    const struct belay_put_ticket *put = write->put_ticket;
    char name[ID_NAME_SIZE];
    json_t *map = json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "key", av_text(put->key), "locked_by",
                            av_text(put->owner), "locked_by_name", av_text(put->owner_name), "since",
                            av_int(put->since_unix_ms), "expires_at", av_int(now_ms + put->ttl_ms),
                            "acquired_by", av_text(put->acquired_by == NULL ? "" : put->acquired_by));

    /* Not said of a waiter for one exclusive lock: its ticket is as it always was. */
    if (put->mode != BELAY_EXCLUSIVE &&
        (json_object_set_new(map, HOLDERS_MODE, av_text(belay_mode_name(put->mode))) != 0 ||
         json_object_set_new(map, HOLDERS_SLOTS, av_int(put->slots)) != 0)) {
        expr->failed = true;
    }
    if (put->joint && json_object_set_new(map, "joint", av_bool(true)) != 0) {
        expr->failed = true;
    }
    expr_set(expr, ddb_id_name(name, QUEUE_TICKET, put->lock_id), av_map(map));
    set_ticket_seq(write, expr);
}

static void set_intent(const struct belay_put_intent *put, int64_t now_ms, struct expr *expr)
{
    char name[ID_NAME_SIZE];
    json_t *map = json_pack("{s:o,s:o,s:o}", "key", av_text(put->key), "expires_at",
                            av_int(now_ms + put->ttl_ms), "ttl_ms", av_int(put->ttl_ms));

    if (put->shared && json_object_set_new(map, "shared", av_bool(true)) != 0) {
        expr->failed = true;
    }
    expr_set(expr, ddb_id_name(name, QUEUE_INTENT, put->lock_id), av_map(map));
}

void ddb_write_queue(const struct belay_write *write, const json_t *seen, int64_t now_ms, struct expr *expr)
{
    const struct drops tickets = { .ids = write->drop_tickets,
                                   .n = write->n_drop_tickets,
                                   .puts = { write->put_ticket == NULL ? NULL : write->put_ticket->lock_id },
                                   .n_puts = write->put_ticket == NULL ? 0 : 1,
                                   .prefixes = { QUEUE_TICKET, QUEUE_SEQ },
                                   .set = QUEUE_WAITING };
    struct drops intents = { .ids = write->drop_intents,
                             .n = write->n_drop_intents,
                             .prefixes = { QUEUE_INTENT, NULL },
                             .set = QUEUE_INTENTS };
    const char *own = write->values == NULL ? NULL : write->values->lock_id;

    assert(write->n_put_intents <= BELAY_KEYS_MAX);
    for (size_t i = 0; i < write->n_put_intents; i++) {
        intents.puts[intents.n_puts++] = write->put_intents[i].lock_id;
    }
    change_ids(expr, &tickets, own, seen);
    change_ids(expr, &intents, own, seen);
    if (write->put_ticket != NULL) {
        set_ticket(write, now_ms, expr);
    }
    for (size_t i = 0; i < write->n_put_intents; i++) {
        set_intent(&write->put_intents[i], now_ms, expr);
    }
}

bool ddb_changes_queue(const struct belay_write *write)
{
    return write->n_drop_tickets + write->n_drop_intents > 0 || write->put_ticket != NULL ||
           write->n_put_intents > 0;
}
