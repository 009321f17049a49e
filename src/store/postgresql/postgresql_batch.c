/*
 * A batch as JSON, which functions.sql reads. Names are short, and absent where there is nothing to say:
 *     {"d": deadline, "w": [write, ...], "e": [event, ...], "u": unused id,
 *      "g": grace of freezes, "y": on disk}
 *     write   {"k": key, "c": condition, "r": revision, "i": id, "s": sets, "v": values, "co": about one holder,
 *              "dt", "di", "dh": ids to drop, "h": the process that must have put the first of "dt",
 *              "pt": ticket, "pi": [intent, ...]}
 *     ticket  "p": the process that puts it, "h": this process has put it before; see ticket_of() for the rest
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

char *pg_meta_text(const struct belay_meta *meta, size_t n)
{
    json_t *list = json_array();
    char *text;

    for (size_t i = 0; i < n; i++) {
        if (json_array_append_new(list, json_pack("[s, s]", meta[i].name, meta[i].value)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

static json_t *meta_text(const struct belay_meta *meta, size_t n)
{
    char *dumped = pg_meta_text(meta, n);
    json_t *text = dumped == NULL ? NULL : json_string(dumped);

    free(dumped);
    return text;
}

static bool add(json_t *to, const char *name, json_t *value)
{
    return value != NULL && json_object_set_new(to, name, value) == 0;
}

static bool add_text(json_t *to, const char *name, const char *text)
{
    return text == NULL || add(to, name, json_string(text));
}

/* Only what the sets ask for. */
static json_t *values_of(unsigned set, const struct belay_record *values)
{
    json_t *out = json_object();
    bool ok = out != NULL;

    if (ok && (set & BELAY_SET_IDENTITY) != 0) {
        ok = add_text(out, "i", values->lock_id) && add_text(out, "a", text_or_empty(values->acquired_by));
    }
    if (ok && (set & BELAY_SET_OWNER) != 0) {
        ok = add_text(out, "o", text_or_empty(values->owner)) &&
             add_text(out, "n", text_or_empty(values->owner_name));
    }
    if (ok && (set & BELAY_SET_METADATA) != 0 && values->n_metadata > 0) {
        ok = add(out, "m", meta_text(values->metadata, values->n_metadata));
    }
    if (ok && (set & BELAY_SET_LIVENESS) != 0) {
        ok = add(out, "d", json_boolean(values->durable)) &&
             add(out, "h", json_integer(values->heartbeat_ms)) &&
             add(out, "f", json_integer(values->stale_after_ms));
    }
    if (ok && (set & BELAY_SET_LEASE) != 0) {
        ok = add(out, "l", json_integer(values->ttl_ms));
    }
    if (ok && (set & BELAY_SET_RELEASED) != 0) {
        ok = add(out, "x", json_integer(values->outcome));
    }
    if (ok && (set & BELAY_SET_ACQUIRED) != 0) {
        ok = add(out, "q", json_integer(values->mode)) && add(out, "c", json_integer(values->slots));
    }
    if (!ok) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static bool add_ids(json_t *to, const char *name, const char *const *ids, size_t n)
{
    json_t *list;

    if (n == 0) {
        return true;
    }
    list = json_array();
    for (size_t i = 0; i < n; i++) {
        if (json_array_append_new(list, json_string(ids[i])) != 0) {
            json_decref(list);
            return false;
        }
    }
    return add(to, name, list);
}

static json_t *ticket_of(const struct belay_put_ticket *put, const char *here)
{
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:b}", "i", put->lock_id, "k", put->key, "o",
                  text_or_empty(put->owner), "n", text_or_empty(put->owner_name), "a",
                  text_or_empty(put->acquired_by), "s", (json_int_t)put->since_unix_ms, "l",
                  (json_int_t)put->ttl_ms, "m", (int)put->mode, "c", put->slots, "j", (int)put->joint);
    bool ok = out != NULL && add_text(out, "p", here) && (!put->is_again || add(out, "h", json_true()));

    if (!ok) {
        json_decref(out);
        return NULL;
    }
    return out;
}

char *pg_ticket_text(const struct belay_put_ticket *put, const char *here)
{
    json_t *ticket = ticket_of(put, here);
    char *text = ticket == NULL ? NULL : json_dumps(ticket, JSON_COMPACT);

    json_decref(ticket);
    return text;
}

static bool add_intents(json_t *to, const struct belay_write *write)
{
    json_t *list;

    if (write->n_put_intents == 0) {
        return true;
    }
    list = json_array();
    for (size_t i = 0; i < write->n_put_intents; i++) {
        const struct belay_put_intent *put = &write->put_intents[i];

        if (json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:b}", "i", put->lock_id, "k", put->key,
                                                  "l", (json_int_t)put->ttl_ms, "s", (int)put->shared)) !=
            0) {
            json_decref(list);
            return false;
        }
    }
    return add(to, "pi", list);
}

static json_t *write_of(const struct belay_write *write, const char *here)
{
    json_t *out =
        json_pack("{s:s, s:i, s:i}", "k", write->key, "c", (int)write->condition, "s", (int)write->set);
    bool ok = out != NULL && add_text(out, "i", write->lock_id);

    if (ok && write->condition == BELAY_IF_UNCHANGED) {
        ok = add(out, "r", json_integer((json_int_t)write->revision));
    }
    if (ok && write->set != 0 && write->values != NULL) {
        ok = add(out, "v", values_of(write->set, write->values));
    }
    if (ok && write->co_holder) {
        ok = add(out, "co", json_true());
    }
    if (ok && write->unless_elsewhere) {
        ok = add_text(out, "h", here);
    }
    ok = ok && add_ids(out, "dt", write->drop_tickets, write->n_drop_tickets) &&
         add_ids(out, "di", write->drop_intents, write->n_drop_intents) &&
         add_ids(out, "dh", write->drop_holders, write->n_drop_holders) && add_intents(out, write);
    if (ok && write->put_ticket != NULL) {
        ok = add(out, "pt", ticket_of(write->put_ticket, here));
    }
    if (!ok) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* The write whose record completes the event. */
static size_t index_of(const struct belay_batch *batch, const struct belay_event *event)
{
    for (size_t i = 0; i < batch->n_writes; i++) {
        if (strcmp(batch->writes[i].key, event->key) == 0) {
            return i;
        }
    }
    return 0;
}

static json_t *event_of(const struct belay_batch *batch, const struct belay_event *event)
{
    json_int_t token = event->token == BELAY_TOKEN_OF_BATCH ? -1 : (json_int_t)event->token;
    json_t *out =
        json_pack("{s:s, s:s, s:i, s:I, s:I, s:I}", "k", event->key, "t", event->type, "l", (int)event->level,
                  "n", token, "d", (json_int_t)event->duration_ms, "w", (json_int_t)index_of(batch, event));
    bool ok = out != NULL && add_text(out, "i", event->lock_id) && add_text(out, "o", event->locked_by) &&
              add_text(out, "on", event->locked_by_name) && add_text(out, "b", event->by) &&
              add_text(out, "r", event->reason);

    if (ok && event->metadata != NULL) {
        ok = add(out, "m", meta_text(event->metadata, event->n_metadata));
    }
    if (!ok) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static bool add_rest(json_t *out, const struct belay_batch *batch)
{
    bool ok = true;

    if (batch->require_unused_id != NULL) {
        ok = add_text(out, "u", batch->require_unused_id);
    }
    if (ok && batch->check_freezes) {
        ok = add(out, "g", json_integer(batch->freeze_grace_ms));
    }
    return ok && (!batch->durable || add(out, "y", json_true()));
}

enum belay_code pg_write_batch(const struct belay_batch *batch, const char *here, int64_t deadline_ms,
                               char **out_text, struct belay_error *err)
{
    json_t *writes = json_array();
    json_t *events = json_array();
    json_t *out = json_pack("{s:I, s:o, s:o}", "d", (json_int_t)deadline_ms, "w", writes, "e", events);
    bool ok = out != NULL;
    char *text;

    for (size_t i = 0; ok && i < batch->n_writes; i++) {
        ok = json_array_append_new(writes, write_of(&batch->writes[i], here)) == 0;
    }
    for (size_t i = 0; ok && i < batch->n_events; i++) {
        ok = json_array_append_new(events, event_of(batch, &batch->events[i])) == 0;
    }
    ok = ok && add_rest(out, batch);
    text = ok ? json_dumps(out, JSON_COMPACT) : NULL;
    json_decref(out);
    if (text == NULL) {
        return error_set(err, BELAY_INVALID,
                         "a lock's texts must be valid UTF-8 (or there is no memory left)");
    }
    *out_text = text;
    return BELAY_OK;
}
