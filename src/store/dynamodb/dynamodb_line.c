/* Tickets and intents, as clauses of an update. */
#include <string.h>

#include "store/dynamodb/dynamodb_internal.h"

enum { DROPS_MAX = 100 }; /* an expression has 4 KB */

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
    json_t *map = json_pack("{s:o,s:o,s:o}", "key", av_text(put->key), "expires_at",
                            av_int(now_ms + put->ttl_ms), "ttl_ms", av_int(put->ttl_ms));

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

bool ddb_changes_line(const struct belay_write *write)
{
    return write->n_drop_tickets + write->n_drop_intents > 0 || write->put_ticket != NULL ||
           write->put_intent != NULL;
}
