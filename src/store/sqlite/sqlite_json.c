/*
 * Lists in a row, as JSON. Most rows have none, which keeps the usual commit fast.
 *     metadata  [["name", "value"], ...]     in the given order
 *     tickets   [[id, key, owner, owner's name, seq, since, expires, has liveness lock, credential,
 *                 mode, slots, joint], ...]  the last three only if one of them is not 0
 *     intents   [[id, key, expires, shared], ...]  the last only if it is true
 * By position and not by name: a queue is read and written at every hand-over (sqlite_tickets.c),
 * and names would be most of its text.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/sqlite/sqlite_internal.h"

static enum belay_code say_damaged(const struct sqlite_store *store, const char *what, const char *key,
                                   struct belay_error *err)
{
    return error_set(err, BELAY_BAD_CONTENT, "the lock database '%s' is damaged: %s of '%s' cannot be read",
                     store->path, what, key);
}

enum belay_code json_read_meta(const struct sqlite_store *store, const char *text,
                               struct belay_meta **out_meta, size_t *out_n, struct belay_error *err)
{
    json_t *list = json_loads(text, 0, NULL);
    size_t n = json_array_size(list);
    struct belay_meta *meta = n == 0 ? NULL : calloc(n, sizeof *meta);
    enum belay_code code = list == NULL ? say_damaged(store, "metadata", "a lock", err) : BELAY_OK;

    if (n > 0 && meta == NULL) {
        code = error_no_memory(err);
    }
    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        const char *name = NULL;
        const char *value = NULL;

        if (json_unpack(json_array_get(list, i), "[s, s]", &name, &value) != 0) {
            code = say_damaged(store, "metadata", "a lock", err);
            break;
        }
        meta[i].name = strdup(name);
        meta[i].value = strdup(value);
        if (meta[i].name == NULL || meta[i].value == NULL) {
            code = error_no_memory(err);
        }
    }
    json_decref(list);
    if (code != BELAY_OK) {
        meta_free(meta, n);
        return code;
    }
    *out_meta = meta;
    *out_n = n;
    return BELAY_OK;
}

static bool intent_from_json(json_t *item, struct belay_intent *intent)
{
    const char *id, *key;
    json_int_t expires;

    if (json_unpack(item, "[s, s, I]", &id, &key, &expires) != 0) {
        return false;
    }
    intent->lock_id = strdup(id);
    intent->key = strdup(key);
    intent->expires_ms = expires;
    intent->shared = json_is_true(json_array_get(item, 3));
    return intent->lock_id != NULL && intent->key != NULL;
}

static bool intents_from_json(const char *text, struct row *row)
{
    json_t *list = json_loads(text, 0, NULL);
    size_t n = json_array_size(list);
    bool good = list != NULL;

    if (n > 0) {
        row->record.intents = calloc(n, sizeof *row->record.intents);
        good = row->record.intents != NULL;
    }
    for (size_t i = 0; good && i < n; i++) {
        row->record.n_intents = i + 1;
        good = intent_from_json(json_array_get(list, i), &row->record.intents[i]);
    }
    json_decref(list);
    return good;
}

enum belay_code json_read_row(const struct sqlite_store *store, const char *metadata, const char *tickets,
                              const char *intents, struct row *row, struct belay_error *err)
{
    struct belay_record *record = &row->record;

    if (metadata != NULL) {
        enum belay_code code = json_read_meta(store, metadata, &record->metadata, &record->n_metadata, err);
        if (code != BELAY_OK) {
            return code;
        }
    }
    if (tickets != NULL && !tickets_read(tickets, row)) {
        return say_damaged(store, "the queue", record->key, err);
    }
    if (intents != NULL && !intents_from_json(intents, row)) {
        return say_damaged(store, "the list of locks below", record->key, err);
    }
    return BELAY_OK;
}

/* Takes over `list`, to which every item was appended unless it could not be made. */
static enum belay_code list_to_text(json_t *list, size_t n, const char *what, char **out_text,
                                    struct belay_error *err)
{
    char *text = json_array_size(list) == n ? json_dumps(list, JSON_COMPACT) : NULL;

    json_decref(list);
    if (text == NULL) {
        return error_set(err, BELAY_INVALID, "%s must be valid UTF-8 (or there is no memory left)", what);
    }
    *out_text = text;
    return BELAY_OK;
}

enum belay_code json_write_meta(const struct belay_meta *meta, size_t n, char **out_text,
                                struct belay_error *err)
{
    json_t *list;

    if (n == 0) {
        *out_text = NULL;
        return BELAY_OK;
    }
    list = json_array();
    for (size_t i = 0; i < n; i++) {
        (void)json_array_append_new(list, json_pack("[s, s]", meta[i].name, meta[i].value));
    }
    return list_to_text(list, n, "metadata", out_text, err);
}

enum belay_code json_write_intents(const struct row *row, char **out_text, struct belay_error *err)
{
    json_t *list;

    if (row->record.n_intents == 0) {
        *out_text = NULL;
        return BELAY_OK;
    }
    list = json_array();
    for (size_t i = 0; i < row->record.n_intents; i++) {
        const struct belay_intent *intent = &row->record.intents[i];

        (void)json_array_append_new(list,
                                    json_pack(intent->shared ? "[s, s, I, b]" : "[s, s, I]", intent->lock_id,
                                              intent->key, (json_int_t)intent->expires_ms, 1));
    }
    return list_to_text(list, row->record.n_intents, "the key of a lock", out_text, err);
}
