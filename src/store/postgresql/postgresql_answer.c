/*
 * The answer of acquire(), change(), change_many(), queue() and claim(): a text, which functions.sql describes.
 * A record in it is in PostgreSQL's form of a row: fields between commas, in quotes where they need it, nothing
 * for NULL.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/saturate.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

static enum belay_code bad_answer(struct belay_error *err)
{
    return error_set(err, BELAY_BAD_CONTENT, "the database is damaged: its answer cannot be read");
}

static int64_t next_number(const char **at)
{
    char *end = NULL;
    int64_t value = strtoll(*at, &end, 10);

    *at = *end == ' ' ? end + 1 : end;
    return value;
}

/* ---- a row ---- */

/* One field, unquoted in place; *out_field is NULL for NULL. Returns what follows its end; NULL: no field. */
static char *cut_field(char *at, const char **out_field)
{
    bool is_quoted = *at == '"';
    char *to = at;
    char *from = is_quoted ? at + 1 : at;
    char end;

    *out_field = is_quoted || (*at != ',' && *at != ')') ? at : NULL;
    while (is_quoted ? !(from[0] == '"' && from[1] != '"') : *from != ',' && *from != ')') {
        from += is_quoted && (*from == '"' || *from == '\\') ? 1 : 0;
        if (*from == '\0') {
            return NULL;
        }
        *to++ = *from++;
    }
    from += is_quoted ? 1 : 0;
    end = *from;
    *to = '\0';
    return end == ',' || end == ')' ? from + 1 : NULL;
}

/* Changes `row`. */
static enum belay_code read_row(char *row, struct belay_record *out_record, struct belay_error *err)
{
    const char *fields[PG_RECORD_FIELDS];
    char *at = row[0] == '(' ? row + 1 : NULL;

    for (size_t i = 0; i < PG_RECORD_FIELDS; i++) {
        at = at == NULL ? NULL : cut_field(at, &fields[i]);
    }
    return at == NULL || *at != '\0' ? bad_answer(err) : pg_record_of(fields, out_record, err);
}

static enum belay_code copy_row(const char *row, struct belay_record *out_record, struct belay_error *err)
{
    char *copy = strdup(row);
    enum belay_code code = copy == NULL ? error_no_memory(err) : read_row(copy, out_record, err);

    free(copy);
    return code;
}

/* ---- the records ---- */

static char *copy_text(const char *text)
{
    return strdup(text == NULL ? "" : text);
}

/* What the write made of a record that was free. */
static enum belay_code make_acquired(const struct belay_write *write, int64_t now_ms, const char *numbers,
                                     struct belay_record *out_record, struct belay_error *err)
{
    const struct belay_record *values = write->values;
    struct belay_record record = {
        .key = strdup(write->key),
        .held = true,
        .lock_id = copy_text(values->lock_id),
        .acquired_by = copy_text(values->acquired_by),
        .owner = copy_text(values->owner),
        .owner_name = copy_text(values->owner_name),
        .durable = values->durable,
        .ttl_ms = values->ttl_ms,
        .heartbeat_ms = values->heartbeat_ms,
        .stale_after_ms = values->stale_after_ms,
        .expires_ms = add_saturated(now_ms, values->ttl_ms),
        .last_heartbeat_ms = now_ms,
        .locked_at_unix_ms = now_ms,
        .metadata = meta_copy(values->metadata, values->n_metadata),
        .n_metadata = values->n_metadata,
    };

    /* The analyzer does not see that the strings in the record's union are released. */
    record.revision = (uint64_t)next_number(&numbers); /* NOLINT(clang-analyzer-unix.Malloc) */
    record.token = (uint64_t)next_number(&numbers);
    record.freed_ms = next_number(&numbers);
    record.freed_at_unix_ms = record.freed_ms;
    record.expires_at_unix_ms = record.expires_ms;
    record.last_heartbeat_unix_ms = now_ms;
    if (record.key == NULL || record.lock_id == NULL || record.acquired_by == NULL || record.owner == NULL ||
        record.owner_name == NULL || (record.n_metadata > 0 && record.metadata == NULL)) {
        record.n_metadata = record.metadata == NULL ? 0 : record.n_metadata;
        belay_record_release(&record);
        return error_no_memory(err);
    }
    *out_record = record;
    return BELAY_OK;
}

/* The ids in the row are an array: of a lock that is exclusive there is none, or that of this release. */
static enum belay_code make_changed(const struct belay_write *write, const char *row,
                                    struct belay_record *out_record, struct belay_error *err)
{
    enum belay_code code = copy_row(row, out_record, err);

    if (code != BELAY_OK) {
        return code;
    }
    belay_record_forget_released(out_record);
    if (!out_record->held && out_record->outcome != BELAY_OUTCOME_FORCED &&
        !belay_record_note_released(out_record, write->lock_id)) {
        belay_record_release(out_record);
        return error_no_memory(err);
    }
    return BELAY_OK;
}

bool pg_is_handed_on(const char *answer, char out_id[BELAY_ID_MAX + 1])
{
    const char *id = answer;
    size_t len;

    if (answer[0] != 'W') {
        return false;
    }
    for (int i = 0; i < 3; i++) {
        id += strcspn(id, " ");
        id += *id == ' ' ? 1 : 0;
    }
    len = strcspn(id, " ");
    len = len > BELAY_ID_MAX ? BELAY_ID_MAX : len;
    memcpy(out_id, id, len);
    out_id[len] = '\0';
    return true;
}

enum belay_code pg_read_answer(const char *answer, const struct belay_batch *batch, struct belay_commit *out,
                               struct belay_error *err)
{
    const struct belay_write *write = &batch->writes[0];
    const char *at = answer[0] == '\0' ? answer : answer + 2;
    bool is_refused = answer[0] == 'R' || answer[0] == 'N';
    enum belay_code code = BELAY_OK;

    out->now_ms = next_number(&at);
    if (answer[0] == 'U') {
        return BELAY_CANCELLED;
    }
    out->records = calloc(1, sizeof *out->records);
    if (out->records == NULL) {
        code = error_no_memory(err);
    } else if (is_refused) {
        out->event_id = answer[0] == 'N' ? (uint64_t)next_number(&at) : 0;
        out->events_at_unix_ms = answer[0] == 'N' ? out->now_ms : 0;
        code = copy_row(at, out->records, err);
    } else {
        out->event_id = (uint64_t)next_number(&at);
        out->events_at_unix_ms = out->now_ms;
        out->token = answer[0] == 'T' ? (uint64_t)next_number(&at) : 0;
        out->woke_first = answer[0] == 'W';
        at += out->woke_first ? strcspn(at, " ") + 1 : 0;
        code = answer[0] == 'A' ? make_acquired(write, out->now_ms, at, out->records, err)
               : answer[0] == 'C' || answer[0] == 'W' ? make_changed(write, at, out->records, err)
               : answer[0] == 'T'                     ? copy_row(at, out->records, err)
                                                      : bad_answer(err);
    }
    if (code != BELAY_OK) {
        return is_refused ? code : BELAY_UNKNOWN; /* it has happened, whatever can be read of it */
    }
    out->n_records = 1;
    out->token = answer[0] == 'A' ? out->records[0].token : out->token;
    return is_refused ? error_set(err, BELAY_REFUSED, "the condition on '%s' does not hold", write->key)
                      : BELAY_OK;
}
