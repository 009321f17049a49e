/*
 * Several changes in one call, change_many(): parsing, planning and starting a statement cost more than
 * a change does. They are one array of rows, in PostgreSQL's binary form, which needs no quotes.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

enum { BOOLEAN_OID = 16, BIGINT_OID = 20, SMALLINT_OID = 21, TEXT_OID = 25, BYTES_MAX = 64 << 20 };

/* The parameters of change_many(). */
enum { DEADLINE, FREEZES, ANY_NEW, CHANGES, VALUES };
static_assert((int)VALUES == (int)PG_CHANGE_MANY_VALUES, "a call has room for them");
enum { FIELDS = 20 }; /* of a change, as schema.sql has them */

static bool acquires(const struct belay_batch *batch)
{
    return batch->writes[0].condition == BELAY_IF_FREE;
}

/* ---- a change ---- */

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

static void add_null(struct buf *buf, uint32_t type)
{
    add_u32(buf, type);
    add_u32(buf, UINT32_MAX);
}

static void add_text(struct buf *buf, const char *text)
{
    if (text == NULL) {
        add_null(buf, TEXT_OID);
        return;
    }
    add_u32(buf, TEXT_OID);
    add_u32(buf, (uint32_t)strlen(text));
    buf_adds(buf, text);
}

static void add_boolean(struct buf *buf, bool value)
{
    add_u32(buf, BOOLEAN_OID);
    add_u32(buf, 1);
    buf_add(buf, value ? "\1" : "\0", 1);
}

static void add_small(struct buf *buf, int value)
{
    unsigned char bytes[2] = { (unsigned char)((unsigned)value >> 8), (unsigned char)value };

    add_u32(buf, SMALLINT_OID);
    add_u32(buf, sizeof bytes);
    buf_add(buf, bytes, sizeof bytes);
}

static void add_number(struct buf *buf, int64_t value)
{
    add_u32(buf, BIGINT_OID);
    add_u32(buf, 8);
    add_i64(buf, value);
}

/* What a new holder sets: nine fields, from the credential on to the stale time. `metadata` is their text. */
static void add_holder(struct buf *buf, const struct belay_record *values, const char *metadata)
{
    add_text(buf, text_or_empty(values->acquired_by));
    add_text(buf, text_or_empty(values->owner));
    add_text(buf, text_or_empty(values->owner_name));
    add_text(buf, metadata);
    add_small(buf, 0);
    add_boolean(buf, values->durable);
    add_number(buf, values->ttl_ms);
    add_number(buf, values->heartbeat_ms);
    add_number(buf, values->stale_after_ms);
}

/* The same fields for a release or a renewal, which leave most of them as they are. */
static void add_kept(struct buf *buf, const struct belay_write *write)
{
    for (int i = 0; i < 4; i++) {
        add_null(buf, TEXT_OID);
    }
    if (write->condition == BELAY_IF_HELD_BY) {
        add_small(buf, (int)write->values->outcome);
    } else {
        add_null(buf, SMALLINT_OID);
    }
    add_null(buf, BOOLEAN_OID);
    if (write->condition == BELAY_IF_LIVE_BY && write->values->ttl_ms != 0) {
        add_number(buf, write->values->ttl_ms);
    } else {
        add_null(buf, BIGINT_OID);
    }
    add_null(buf, BIGINT_OID);
    add_null(buf, BIGINT_OID);
}

static void add_fields(struct buf *buf, const struct belay_batch *batch, const char *metadata)
{
    const struct belay_write *write = &batch->writes[0];
    const struct belay_event *event = &batch->events[0];

    add_u32(buf, FIELDS);
    add_text(buf, write->key);
    add_text(buf, event->lock_id);
    add_boolean(buf, acquires(batch));
    add_boolean(buf, write->condition != BELAY_IF_HELD_BY);
    if (acquires(batch)) {
        add_holder(buf, write->values, metadata);
    } else {
        add_kept(buf, write);
    }
    add_boolean(buf, batch->require_unused_id != NULL);
    add_boolean(buf, acquires(batch) && batch->note_refusal);
    add_text(buf, event->type);
    add_small(buf, (int)event->level);
    add_text(buf, event->by);
    add_text(buf, event->reason);
    add_number(buf, event->duration_ms);
}

/* An element of the array: its length, and the fields. False: metadata that is not UTF-8, or no memory. */
static bool add_change(struct buf *array, const struct belay_batch *batch)
{
    const struct belay_record *values = batch->writes[0].values;
    struct buf fields = BUF_INIT(BYTES_MAX);
    char *metadata = NULL;
    bool ok = true;

    if (acquires(batch) && values->n_metadata > 0) {
        metadata = pg_meta_text(values->metadata, values->n_metadata);
        ok = metadata != NULL;
    }
    add_fields(&fields, batch, metadata);
    ok = ok && !fields.failed;
    add_u32(array, (uint32_t)fields.len);
    buf_add(array, fields.data, fields.len);
    buf_release(&fields);
    free(metadata);
    return ok;
}

/* ---- the call ---- */

/* The last key first, as commit() in functions.sql locks rows. */
static int by_key(const void *a, const void *b)
{
    const struct belay_batch *x = (*(struct pg_change *const *)a)->batch;
    const struct belay_batch *y = (*(struct pg_change *const *)b)->batch;

    return strcmp(y->writes[0].key, x->writes[0].key);
}

/* One dimension that begins at 1, without NULLs. */
static void begin_array(struct buf *buf, uint32_t type, size_t n)
{
    add_u32(buf, 1);
    add_u32(buf, 0);
    add_u32(buf, type);
    add_u32(buf, (uint32_t)n);
    add_u32(buf, 1);
}

/* The first that one of them has. */
static int64_t first_deadline_ms(struct pg_change *const changes[], size_t n)
{
    int64_t deadline_ms = INT64_MAX;

    for (size_t i = 0; i < n; i++) {
        deadline_ms = changes[i]->deadline_ms < deadline_ms ? changes[i]->deadline_ms : deadline_ms;
    }
    return deadline_ms;
}

static bool fill(struct buf values[VALUES], uint32_t type, struct pg_change *const changes[], size_t n)
{
    bool check_freezes = false;
    bool any_new = false;
    bool ok = true;

    begin_array(&values[CHANGES], type, n);
    for (size_t i = 0; i < n; i++) {
        const struct belay_batch *batch = changes[i]->batch;

        check_freezes = check_freezes || batch->check_freezes;
        any_new = any_new || batch->require_unused_id != NULL;
        ok = add_change(&values[CHANGES], batch) && ok;
    }
    add_i64(&values[DEADLINE], first_deadline_ms(changes, n));
    buf_add(&values[FREEZES], check_freezes ? "\1" : "\0", 1);
    buf_add(&values[ANY_NEW], any_new ? "\1" : "\0", 1);
    for (size_t i = 0; i < VALUES; i++) {
        ok = ok && !values[i].failed;
    }
    return ok;
}

bool pg_write_change_many(struct pg_store *store, struct pg_change *changes[], size_t n,
                          struct pg_change_many *out_many)
{
    int64_t left_ms = first_deadline_ms(changes, n) - pg_server_ms(store);

    assert(n > 0 && n <= PG_GROUP_MAX);
    for (size_t i = 0; i < VALUES; i++) {
        out_many->buffers[i] = (struct buf)BUF_INIT(BYTES_MAX);
    }
    qsort((void *)changes, n, sizeof(struct pg_change *), by_key);
    if (!fill(out_many->buffers, atomic_load(&store->one_change), changes, n)) {
        pg_change_many_release(out_many);
        return false;
    }
    for (size_t i = 0; i < VALUES; i++) {
        out_many->values[i] = out_many->buffers[i].data;
        out_many->lengths[i] = (int)out_many->buffers[i].len;
    }
    out_many->call =
        (struct pg_call){ PG_CHANGE_MANY, out_many->values, VALUES, false, left_ms > 0 ? left_ms : 1 };
    out_many->bytes = (struct pg_bytes){ .lengths = out_many->lengths };
    return true;
}

void pg_change_many_release(struct pg_change_many *many)
{
    for (size_t i = 0; i < VALUES; i++) {
        buf_release(&many->buffers[i]);
    }
}

enum belay_code pg_read_change_many(const PGresult *result, struct pg_change *changes[], size_t n)
{
    enum belay_code code = BELAY_OK;

    for (int i = 0; i < PQntuples(result); i++) {
        int64_t place = pg_number(result, i, 0);

        if (place < 1 || place > (int64_t)n || changes[place - 1]->answer != NULL) {
            code = BELAY_UNKNOWN; /* the answer of another program: it may have happened */
            continue;
        }
        changes[place - 1]->answer = strdup(PQgetvalue(result, i, 1));
        if (changes[place - 1]->answer == NULL) {
            code = BELAY_UNKNOWN; /* no memory, and it has happened */
        }
    }
    return code;
}

enum belay_code pg_call_change_many(struct pg_store *store, struct pg_change *changes[], size_t n)
{
    struct pg_change_many many;
    PGresult *result = NULL;
    enum belay_code code;

    if (!pg_write_change_many(store, changes, n, &many)) {
        return BELAY_CANCELLED;
    }
    code = pg_call_bytes(store, &many.call, &many.bytes, &result, NULL);
    if (code == BELAY_OK) {
        code = pg_read_change_many(result, changes, n);
    }
    PQclear(result);
    pg_change_many_release(&many);
    return code == BELAY_OK || code == BELAY_UNKNOWN ? code : BELAY_CANCELLED;
}
