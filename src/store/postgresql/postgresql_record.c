/* Records, from the columns of an answer. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

int64_t pg_number(const PGresult *result, int row, int column)
{
    return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

static enum belay_code bad_row(const char *what, struct belay_error *err)
{
    return error_set(err, BELAY_BAD_CONTENT, "the database is damaged: %s of a lock cannot be read", what);
}

enum belay_code pg_read_meta(const char *text, struct belay_meta **out_meta, size_t *out_n,
                             struct belay_error *err)
{
    json_t *list = json_loads(text, 0, NULL);
    size_t n = json_array_size(list);
    struct belay_meta *meta = n == 0 ? NULL : calloc(n, sizeof *meta);
    enum belay_code code = n > 0 && meta == NULL ? error_no_memory(err) : BELAY_OK;
    bool is_readable = true;

    for (size_t i = 0; code == BELAY_OK && is_readable && i < n; i++) {
        const char *name = NULL;
        const char *value = NULL;

        is_readable = json_unpack(json_array_get(list, i), "[s, s]", &name, &value) == 0;
        if (!is_readable) {
            break;
        }
        meta[i].name = strdup(name);
        meta[i].value = strdup(value);
        code = meta[i].name == NULL || meta[i].value == NULL ? error_no_memory(err) : BELAY_OK;
    }
    json_decref(list);
    if (code != BELAY_OK || !is_readable) {
        meta_free(meta, meta == NULL ? 0 : n);
        return code;
    }
    *out_meta = meta;
    *out_n = n;
    return BELAY_OK;
}

/* ---- numbers ---- */

/*
 * Any role may have written any number, and callers add to it: a margin to a time, a place to another. All that belay
 * itself writes is far from these ends.
 */
static int64_t between(int64_t least, int64_t value, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static int64_t tame(int64_t value)
{
    return between(-(INT64_MAX / 4), value, INT64_MAX / 4);
}

static int tame_slots(int64_t slots)
{
    return (int)between(0, slots, BELAY_HOLDERS_MAX);
}

/* ---- lists ---- */

static char *text_of(const json_t *item, const char *name)
{
    const char *text = json_string_value(json_object_get(item, name));

    return strdup(text == NULL ? "" : text);
}

static int64_t number_of(const json_t *item, const char *name)
{
    return tame(json_integer_value(json_object_get(item, name)));
}

static bool read_ticket(const json_t *item, struct belay_record *record, struct belay_ticket *ticket)
{
    record->n_between +=
        (size_t)between(0, number_of(item, "b"), BELAY_QUEUE_MAX); /* only one has it: see placed() */
    *ticket = (struct belay_ticket){
        .lock_id = text_of(item, "i"),
        .key = text_of(item, "k"),
        .owner = text_of(item, "o"),
        .owner_name = text_of(item, "n"),
        .acquired_by = text_of(item, "a"),
        .seq = (uint64_t)number_of(item, "q"),
        .since_unix_ms = number_of(item, "s"),
        .expires_ms = number_of(item, "e"),
        .mode = (enum belay_mode)number_of(item, "m"),
        .slots = tame_slots(number_of(item, "c")),
        .joint = json_is_true(json_object_get(item, "j")),
    };
    return ticket->lock_id != NULL && ticket->key != NULL && ticket->owner != NULL &&
           ticket->owner_name != NULL && ticket->acquired_by != NULL;
}

static bool read_intent(const json_t *item, struct belay_record *record, struct belay_intent *intent)
{
    (void)record;
    *intent = (struct belay_intent){
        .lock_id = text_of(item, "i"),
        .key = text_of(item, "k"),
        .expires_ms = number_of(item, "e"),
        .shared = json_is_true(json_object_get(item, "s")),
    };
    return intent->lock_id != NULL && intent->key != NULL;
}

static bool read_holder(const json_t *item, struct belay_record *record, struct belay_holder *holder)
{
    const char *metadata = json_string_value(json_object_get(item, "m"));

    (void)record;
    *holder = (struct belay_holder){
        .lock_id = text_of(item, "i"),
        .owner = text_of(item, "o"),
        .owner_name = text_of(item, "n"),
        .acquired_by = text_of(item, "a"),
        .token = (uint64_t)number_of(item, "t"),
        .durable = json_is_true(json_object_get(item, "d")),
        .stale_reported = json_is_true(json_object_get(item, "s")),
        .ttl_ms = number_of(item, "l"),
        .heartbeat_ms = number_of(item, "h"),
        .stale_after_ms = number_of(item, "f"),
        .expires_ms = number_of(item, "e"),
        .last_heartbeat_ms = number_of(item, "b"),
        .locked_at_unix_ms = number_of(item, "k"),
        .expires_at_unix_ms = number_of(item, "e"),
        .last_heartbeat_unix_ms = number_of(item, "b"),
    };
    return holder->lock_id != NULL && holder->owner != NULL && holder->owner_name != NULL &&
           holder->acquired_by != NULL &&
           (metadata == NULL ||
            pg_read_meta(metadata, &holder->metadata, &holder->n_metadata, NULL) == BELAY_OK);
}

/* Each list grows its count with every element, so that a failure releases what is there. */
#define READ_LIST(text, record, list, read_one, ok)                                                          \
    do {                                                                                                     \
        json_t *items_ = json_loads((text), 0, NULL);                                                        \
        size_t n_ = json_array_size(items_);                                                                 \
        (record)->list = n_ == 0 ? NULL : calloc(n_, sizeof *(record)->list);                                \
        (ok) = json_is_array(items_) && (n_ == 0 || (record)->list != NULL);                                 \
        for (size_t i_ = 0; (ok) && i_ < n_; i_++) {                                                         \
            (record)->n_##list = i_ + 1;                                                                     \
            (ok) = read_one(json_array_get(items_, i_), (record), &(record)->list[i_]);                      \
        }                                                                                                    \
        json_decref(items_);                                                                                 \
    } while (0)

static enum belay_code read_lists(const char *const fields[4], struct belay_record *record,
                                  struct belay_error *err)
{
    bool ok = true;

    if (fields[0] != NULL) {
        enum belay_code code = pg_read_meta(fields[0], &record->metadata, &record->n_metadata, err);

        if (code != BELAY_OK) {
            return code;
        }
    }
    if (fields[1] != NULL) {
        READ_LIST(fields[1], record, tickets, read_ticket, ok);
    }
    if (ok && fields[2] != NULL) {
        READ_LIST(fields[2], record, intents, read_intent, ok);
    }
    if (ok && fields[3] != NULL) {
        READ_LIST(fields[3], record, holders, read_holder, ok);
    }
    return ok ? BELAY_OK : bad_row("a list", err);
}

/* ---- the record ---- */

/* One id a line, the newest first. */
static bool read_released(const char *lines, struct belay_record *record)
{
    const char *end = lines + strlen(lines);
    bool ok = true;

    while (ok && end > lines) { /* from the oldest on: each is put first */
        const char *at = end;
        char *id;

        while (at > lines && at[-1] != '\n') {
            at--;
        }
        id = strndup(at, (size_t)(end - at));
        ok = id != NULL && belay_record_note_released(record, id);
        free(id);
        end = at > lines ? at - 1 : lines;
    }
    return ok;
}

static const char *text_at(const char *const fields[], size_t i)
{
    return fields[i] == NULL ? "" : fields[i];
}

static int64_t number_at(const char *const fields[], size_t i)
{
    return tame(strtoll(text_at(fields, i), NULL, 10));
}

/* The server has one clock: the store's and the wall clock are the same. */
enum belay_code pg_record_of(const char *const fields[PG_RECORD_FIELDS], struct belay_record *out_record,
                             struct belay_error *err)
{
    struct belay_record record = {
        .key = strdup(text_at(fields, 0)),
        .revision = (uint64_t)number_at(fields, 1),
        .held = text_at(fields, 2)[0] == 't',
        .lock_id = strdup(text_at(fields, 3)),
        .acquired_by = strdup(text_at(fields, 5)),
        .token = (uint64_t)number_at(fields, 6),
        .owner = strdup(text_at(fields, 7)),
        .owner_name = strdup(text_at(fields, 8)),
        .outcome = (enum belay_outcome)number_at(fields, 9),
        .durable = text_at(fields, 10)[0] == 't',
        .stale_reported = text_at(fields, 11)[0] == 't',
        .ttl_ms = number_at(fields, 12),
        .heartbeat_ms = number_at(fields, 13),
        .stale_after_ms = number_at(fields, 14),
        .expires_ms = number_at(fields, 15),
        .last_heartbeat_ms = number_at(fields, 16),
        .locked_at_unix_ms = number_at(fields, 17),
        .freed_ms = number_at(fields, 18),
        .mode = (enum belay_mode)number_at(fields, 19),
        .slots = tame_slots(number_at(fields, 20)),
        .n_behind = (size_t)number_at(fields, 25),
    };
    /* The analyzer does not see that the strings in the record's union are released. */
    enum belay_code code = BELAY_OK; /* NOLINT(clang-analyzer-unix.Malloc) */

    record.expires_at_unix_ms = record.expires_ms;
    record.last_heartbeat_unix_ms = record.last_heartbeat_ms;
    record.freed_at_unix_ms = record.freed_ms;
    if (record.key == NULL || record.lock_id == NULL || record.acquired_by == NULL || record.owner == NULL ||
        record.owner_name == NULL || !read_released(text_at(fields, 4), &record)) {
        code = error_no_memory(err);
    }
    if (code == BELAY_OK) {
        code = read_lists(fields + 21, &record, err);
    }
    if (code != BELAY_OK) {
        belay_record_release(&record);
        return code;
    }
    *out_record = record;
    return BELAY_OK;
}

enum belay_code pg_read_record(const PGresult *result, int row, int at, struct belay_record *out_record,
                               struct belay_error *err)
{
    const char *fields[PG_RECORD_FIELDS];

    for (int i = 0; i < PG_RECORD_FIELDS; i++) {
        fields[i] = PQgetisnull(result, row, at + i) ? NULL : PQgetvalue(result, row, at + i);
    }
    return pg_record_of(fields, out_record, err);
}
