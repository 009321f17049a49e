/* A record in memory, as the journaled store keeps it. */
#include "store/apply/pack_internal.h"

#include <stdlib.h>

#include "base/error.h"

enum { FLAG_HELD = 1, FLAG_OUTLIVES = 2, FLAG_STALE_NOTED = 4 };

void record_pack(struct buf *to, const struct belay_record *record)
{
    struct writer w = { .to = to };
    unsigned flags = (record->held ? FLAG_HELD : 0U) | (record->durable ? FLAG_OUTLIVES : 0U) |
                     (record->stale_reported ? FLAG_STALE_NOTED : 0U);
    const int64_t numbers[] = { record->ttl_ms,
                                record->heartbeat_ms,
                                record->stale_after_ms,
                                record->expires_ms,
                                record->last_heartbeat_ms,
                                record->freed_ms,
                                record->locked_at_unix_ms,
                                record->expires_at_unix_ms,
                                record->last_heartbeat_unix_ms,
                                record->freed_at_unix_ms };

    put_unsigned(&w, flags);
    put_unsigned(&w, (uint64_t)record->outcome);
    put_unsigned(&w, record->revision);
    put_unsigned(&w, record->token);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        put_int(&w, numbers[i]);
    }
    put_text(&w, record->lock_id);
    put_text(&w, record->owner);
    put_text(&w, record->owner_name);
    put_text(&w, record->acquired_by == NULL ? "" : record->acquired_by);
    put_meta(&w, record->metadata, record->n_metadata);
    put_unsigned(&w, record->n_intents);
    for (size_t i = 0; i < record->n_intents; i++) {
        put_text(&w, record->intents[i].lock_id);
        put_text(&w, record->intents[i].key);
        put_int(&w, record->intents[i].expires_ms);
    }
    put_unsigned(&w, record->n_tickets);
    w.is_plain = true; /* tickets are copied as they are, and a long queue would take long to compare */
    for (size_t i = 0; i < record->n_tickets; i++) {
        const struct belay_ticket *ticket = &record->tickets[i];

        put_text(&w, ticket->lock_id);
        put_text(&w, ticket->key);
        put_text(&w, ticket->owner);
        put_text(&w, ticket->owner_name);
        put_text(&w, ticket->acquired_by);
        put_unsigned(&w, ticket->seq);
        put_int(&w, ticket->since_unix_ms);
        put_int(&w, ticket->expires_ms);
    }
}

bool record_is_held_packed(const void *data)
{
    return (*(const unsigned char *)data & FLAG_HELD) != 0;
}

static char *copy_text(struct reader *r, bool *ok)
{
    char *copy = strdup(get_given(r));

    *ok = *ok && copy != NULL;
    return copy;
}

static bool unpack_meta(struct reader *r, struct belay_record *record)
{
    size_t n = get_count(r);
    bool ok = true;

    record->metadata = n == 0 ? NULL : calloc(n, sizeof *record->metadata);
    if (n > 0 && record->metadata == NULL) {
        return false;
    }
    record->n_metadata = n;
    for (size_t i = 0; i < n; i++) {
        record->metadata[i].name = copy_text(r, &ok);
        record->metadata[i].value = copy_text(r, &ok);
    }
    return ok;
}

static bool unpack_intents(struct reader *r, struct belay_record *record)
{
    size_t n = get_count(r);
    bool ok = true;

    record->intents = n == 0 ? NULL : calloc(n, sizeof *record->intents);
    if (n > 0 && record->intents == NULL) {
        return false;
    }
    record->n_intents = n;
    for (size_t i = 0; i < n; i++) {
        record->intents[i].lock_id = copy_text(r, &ok);
        record->intents[i].key = copy_text(r, &ok);
        record->intents[i].expires_ms = get_int(r);
    }
    return ok;
}

static bool unpack_tickets(struct reader *r, struct row *row)
{
    struct belay_record *record = &row->record;
    size_t n = get_count(r);

    if (n == 0) {
        return true;
    }
    record->tickets = calloc(n, sizeof *record->tickets);
    row->has_liveness = malloc(n * sizeof *row->has_liveness);
    if (record->tickets == NULL || row->has_liveness == NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        struct belay_ticket *ticket = &record->tickets[i];

        ticket->lock_id = (char *)get_given(r);
        ticket->key = (char *)get_given(r);
        ticket->owner = (char *)get_given(r);
        ticket->owner_name = (char *)get_given(r);
        ticket->acquired_by = (char *)get_text(r);
        ticket->seq = get_unsigned(r);
        ticket->since_unix_ms = get_int(r);
        ticket->expires_ms = get_int(r);
        ticket->packed = true;
        row->has_liveness[i] = true;
    }
    record->n_tickets = n;
    return true;
}

static void unpack_numbers(struct reader *r, struct belay_record *record)
{
    int64_t *const numbers[] = { &record->ttl_ms,
                                 &record->heartbeat_ms,
                                 &record->stale_after_ms,
                                 &record->expires_ms,
                                 &record->last_heartbeat_ms,
                                 &record->freed_ms,
                                 &record->locked_at_unix_ms,
                                 &record->expires_at_unix_ms,
                                 &record->last_heartbeat_unix_ms,
                                 &record->freed_at_unix_ms };
    uint64_t flags = get_unsigned(r);

    record->held = (flags & FLAG_HELD) != 0;
    record->durable = (flags & FLAG_OUTLIVES) != 0;
    record->stale_reported = (flags & FLAG_STALE_NOTED) != 0;
    record->outcome = (enum belay_outcome)get_unsigned(r);
    record->revision = get_unsigned(r);
    record->token = get_unsigned(r);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        *numbers[i] = get_int(r);
    }
}

bool record_unpack_numbers(const void *data, size_t len, struct belay_record *out_record)
{
    struct reader r = { .at = data, .end = (const unsigned char *)data + len };
    struct belay_record record = { 0 };

    unpack_numbers(&r, &record);
    if (r.bad) {
        return false;
    }
    *out_record = record;
    return true;
}

/* A string that is borrowed in place; NULL: it cannot be read. */
static char *keep_text(struct reader *r)
{
    const char *text = get_given(r);

    return r->bad ? NULL : (char *)text;
}

/*
 * Called at every commit, also for a lock with a long queue: one copy of all bytes, in which
 * the strings stay.
 */
enum belay_code record_unpack(const char *key, const void *data, size_t len, struct row *out_row,
                              struct belay_error *err)
{
    size_t key_size = strlen(key) + 1;
    char *text = malloc(len + key_size);
    struct reader r = { .at = (unsigned char *)text, .end = (unsigned char *)text + len };
    struct row row = { .record = { .text = text, .text_size = len + key_size } };
    bool ok;

    if (text == NULL) {
        return error_no_memory(err);
    }
    memcpy(text, data, len);
    row.record.key = memcpy(text + len, key, key_size);
    unpack_numbers(&r, &row.record);
    row.record.lock_id = keep_text(&r);
    row.record.owner = keep_text(&r);
    row.record.owner_name = keep_text(&r);
    row.record.acquired_by = keep_text(&r);
    ok = unpack_meta(&r, &row.record) && unpack_intents(&r, &row.record) && unpack_tickets(&r, &row);
    if (!ok || r.bad) {
        row_release(&row);
        return r.bad ? error_set(err, BELAY_BUG, "the record of '%s' in memory cannot be read", key)
                     : error_no_memory(err);
    }
    *out_row = row;
    return BELAY_OK;
}
