/*
 * Several changes in one call, change_many(): parsing, planning and starting a statement cost more than
 * a change does. Its parameters are arrays, in PostgreSQL's binary form, which needs no quotes.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/postgresql/postgresql_internal.h"

enum { TEXT_OID = 25, BIGINT_OID = 20, NUMBERS_EACH = 5, BYTES_MAX = 64 << 20 };

/* The parameters of change_many(). */
enum { DEADLINE, FREEZES, ANY_NEW, N_ACQUIRES, FIRST_ARRAY };
enum { KEY, ID, OWNER, NAME, METADATA, BY, REASON, TYPE, CREDENTIAL, TEXTS };
enum { NUMBERS = FIRST_ARRAY + TEXTS, VALUES };
static_assert((int)VALUES <= (int)PG_VALUES_MAX, "a call has room for them");

static bool is_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool acquires(const struct belay_batch *batch)
{
    return batch->writes[0].condition == BELAY_IF_FREE;
}

bool pg_can_join(const struct belay_batch *batch)
{
    const struct belay_event *event = batch->events;
    const struct belay_record *values = batch->writes[0].values;

    assert(pg_is_one(batch));
    if (batch->n_events != 1) {
        return false;
    }
    if (!acquires(batch)) {
        return event->metadata == NULL;
    }
    return strcmp(event->type, "lock.acquired") == 0 && event->level == BELAY_LEVEL_INFO &&
           event->token == BELAY_TOKEN_OF_BATCH && event->duration_ms == -1 &&
           is_same(event->locked_by, values->owner) && is_same(event->locked_by_name, values->owner_name) &&
           event->n_metadata == values->n_metadata &&
           (event->metadata == values->metadata || event->n_metadata == 0);
}

/* ---- arrays ---- */

static void add_u32(struct buf *buf, uint32_t value)
{
    unsigned char bytes[4] = { (unsigned char)(value >> 24), (unsigned char)(value >> 16),
                               (unsigned char)(value >> 8), (unsigned char)value };

    buf_add(buf, bytes, sizeof bytes);
}

static void add_i64(struct buf *buf, int64_t value)
{
    add_u32(buf, (uint32_t)((uint64_t)value >> 32));
    add_u32(buf, (uint32_t)(uint64_t)value);
}

/* One dimension that begins at 1, and may have NULLs. */
static void begin_array(struct buf *buf, uint32_t type, size_t n)
{
    add_u32(buf, 1);
    add_u32(buf, type == TEXT_OID);
    add_u32(buf, type);
    add_u32(buf, (uint32_t)n);
    add_u32(buf, 1);
}

static void add_text(struct buf *buf, const char *text)
{
    size_t len = text == NULL ? 0 : strlen(text);

    add_u32(buf, text == NULL ? UINT32_MAX : (uint32_t)len);
    buf_add(buf, text, len);
}

/* ---- the call ---- */

/* Acquisitions first; in either part the last key first, as commit() in functions.sql locks rows. */
static int by_kind_and_key(const void *a, const void *b)
{
    const struct belay_batch *x = (*(struct pg_item *const *)a)->batch;
    const struct belay_batch *y = (*(struct pg_item *const *)b)->batch;

    return acquires(x) != acquires(y) ? (acquires(x) ? -1 : 1) : strcmp(y->writes[0].key, x->writes[0].key);
}

/* False: metadata that is not UTF-8, or no memory. */
static bool add_texts(struct buf arrays[VALUES], const struct belay_batch *batch)
{
    const struct belay_write *write = &batch->writes[0];
    const struct belay_event *event = &batch->events[0];
    char *metadata = NULL;
    bool ok = true;
    const char *texts[TEXTS] = { [KEY] = write->key,         [ID] = event->lock_id,
                                 [OWNER] = event->locked_by, [NAME] = event->locked_by_name,
                                 [BY] = event->by,           [REASON] = event->reason,
                                 [TYPE] = event->type };

    if (acquires(batch)) {
        texts[CREDENTIAL] = write->values->acquired_by == NULL ? "" : write->values->acquired_by;
        if (write->values->n_metadata > 0) {
            texts[METADATA] = metadata = pg_meta_text(write->values->metadata, write->values->n_metadata);
            ok = metadata != NULL;
        }
    }
    for (size_t i = 0; i < TEXTS; i++) {
        add_text(&arrays[FIRST_ARRAY + i], texts[i]);
    }
    free(metadata);
    return ok;
}

static void add_numbers(struct buf *array, const struct belay_batch *batch)
{
    const struct belay_write *write = &batch->writes[0];
    const struct belay_record *values = write->values;
    const struct belay_event *event = &batch->events[0];
    bool releases = write->condition == BELAY_IF_HELD_BY;
    int64_t of_acquire[NUMBERS_EACH] = { values->durable, values->ttl_ms, values->heartbeat_ms,
                                         values->stale_after_ms,
                                         (batch->require_unused_id != NULL) | batch->note_refusal << 1 };
    int64_t of_change[NUMBERS_EACH] = { write->condition,
                                        releases ? (int64_t)values->outcome : values->ttl_ms, event->level,
                                        (int64_t)event->token, event->duration_ms };

    for (size_t i = 0; i < NUMBERS_EACH; i++) {
        add_u32(array, 8);
        add_i64(array, acquires(batch) ? of_acquire[i] : of_change[i]);
    }
}

static bool fill(struct buf values[VALUES], struct pg_item *const items[], size_t n)
{
    int64_t deadline_ms = INT64_MAX;
    uint32_t n_acquires = 0;
    bool check_freezes = false;
    bool any_new = false;
    bool ok = true;

    for (size_t i = 0; i < TEXTS; i++) {
        begin_array(&values[FIRST_ARRAY + i], TEXT_OID, n);
    }
    begin_array(&values[NUMBERS], BIGINT_OID, n * NUMBERS_EACH);
    for (size_t i = 0; i < n; i++) {
        const struct belay_batch *batch = items[i]->batch;

        deadline_ms = items[i]->deadline_ms < deadline_ms ? items[i]->deadline_ms : deadline_ms;
        n_acquires += acquires(batch) ? 1 : 0;
        check_freezes = check_freezes || batch->check_freezes;
        any_new = any_new || batch->require_unused_id != NULL;
        ok = add_texts(values, batch) && ok;
        add_numbers(&values[NUMBERS], batch);
    }
    add_i64(&values[DEADLINE], deadline_ms);
    buf_add(&values[FREEZES], check_freezes ? "\1" : "\0", 1);
    buf_add(&values[ANY_NEW], any_new ? "\1" : "\0", 1);
    add_u32(&values[N_ACQUIRES], n_acquires);
    for (size_t i = 0; i < VALUES; i++) {
        ok = ok && !values[i].failed;
    }
    return ok;
}

static enum belay_code send_many(struct pg_store *store, const struct buf values[VALUES],
                                 PGresult **out_result)
{
    const char *texts[VALUES];
    int lengths[VALUES];
    struct pg_call call = { PG_CHANGE_MANY, texts, VALUES, false, 0 };
    struct pg_bytes bytes = { .lengths = lengths };

    for (size_t i = 0; i < VALUES; i++) {
        texts[i] = values[i].data;
        lengths[i] = (int)values[i].len;
    }
    return pg_call_bytes(store, &call, &bytes, out_result, NULL);
}

enum belay_code pg_call_many(struct pg_store *store, struct pg_item *items[], size_t n)
{
    struct buf values[VALUES];
    PGresult *result = NULL;
    enum belay_code code = BELAY_CANCELLED;

    for (size_t i = 0; i < VALUES; i++) {
        values[i] = (struct buf)BUF_INIT(BYTES_MAX);
    }
    qsort((void *)items, n, sizeof(struct pg_item *), by_kind_and_key);
    if (fill(values, items, n)) {
        code = send_many(store, values, &result);
    }
    for (int i = 0; code == BELAY_OK && i < PQntuples(result); i++) {
        int64_t place = pg_number(result, i, 0);

        assert(place >= 1 && place <= (int64_t)n && items[place - 1]->answer == NULL);
        items[place - 1]->answer = strdup(PQgetvalue(result, i, 1));
        if (items[place - 1]->answer == NULL) {
            code = BELAY_UNKNOWN; /* no memory, and it has happened */
        }
    }
    PQclear(result);
    for (size_t i = 0; i < VALUES; i++) {
        buf_release(&values[i]);
    }
    return code == BELAY_OK || code == BELAY_UNKNOWN ? code : BELAY_CANCELLED;
}
