/* Records and events, and their rows. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/packed.h"
#include "base/text.h"
#include "store/apply/pack.h"
#include "store/sqlite/sqlite_internal.h"

enum { HOLDERS_MAX = 1 << 29 }; /* bytes; SQLite takes a blob of up to twice as many */

/* In the order of RECORD_COLUMNS. */
enum column {
    COL_KEY,
    COL_HELD,
    COL_OUTLIVES,
    COL_EXPIRES,
    COL_LOCK_ID,
    COL_OWNER,
    COL_OWNER_NAME,
    COL_NUMBERS,
    COL_METADATA,
    COL_TICKETS,
    COL_INTENTS,
    COL_ACQUIRED_BY,
    COL_HOLDERS,
    N_COLUMNS
};

/*
 * The numbers of a record are in one column: a commit reads and writes them all, SQL needs few,
 * and a row of at most 13 columns is found twice as fast (SQLite has a slow path for wider
 * keys).
 * Each is a zigzag varint (base/packed.h), in the order of enum number. Numbers that are missing at the end
 * are 0, so that one can be added without changing old rows, and zeros at the end are not written.
 */
size_t numbers_write(const int64_t numbers[N_NUMBERS], unsigned char out[NUMBERS_MAX])
{
    size_t at = 0;
    size_t n = N_NUMBERS;

    while (n > 0 && numbers[n - 1] == 0) {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        at += varint_write(out + at, zigzag(numbers[i]));
    }
    return at;
}

bool numbers_read(const unsigned char *packed, size_t size, int64_t out[N_NUMBERS])
{
    const unsigned char *end = size == 0 ? packed : packed + size; /* an empty blob is NULL */

    for (size_t i = 0; i < N_NUMBERS; i++) {
        uint64_t value = 0;

        if (packed != end && !varint_read(&packed, end, &value)) {
            return false;
        }
        out[i] = zigzag_back(value);
    }
    return true;
}

/*
 * All texts are copies in one block, which ends with room for those of the queue. Each call of a
 * sqlite3_column function takes the connection's mutex.
 */
static bool row_read_texts(sqlite3_stmt *statement, size_t room, struct belay_record *record)
{
    static const enum column columns[] = { COL_KEY, COL_LOCK_ID, COL_OWNER, COL_OWNER_NAME, COL_ACQUIRED_BY };
    enum { N_TEXTS = sizeof columns / sizeof columns[0] };
    char **const fields[N_TEXTS] = { &record->key, &record->lock_id, &record->owner, &record->owner_name,
                                     &record->acquired_by };
    const char *texts[N_TEXTS];
    size_t sizes[N_TEXTS];
    size_t total = room;
    char *at;

    for (size_t i = 0; i < N_TEXTS; i++) {
        texts[i] = (const char *)sqlite3_column_text(statement, (int)columns[i]);
        if (texts[i] == NULL) {
            return false;
        }
        sizes[i] = (size_t)sqlite3_column_bytes(statement, (int)columns[i]) + 1;
        total += sizes[i];
    }
    at = malloc(total);
    if (at == NULL) {
        return false;
    }
    record->text = at;
    record->text_size = total;
    for (size_t i = 0; i < N_TEXTS; i++) {
        *fields[i] = memcpy(at, texts[i], sizes[i]);
        at += sizes[i];
    }
    return true;
}

static bool row_read_numbers(sqlite3_stmt *statement, struct belay_record *record)
{
    const unsigned char *packed = sqlite3_column_blob(statement, COL_NUMBERS);
    int64_t numbers[N_NUMBERS];

    if (!numbers_read(packed, (size_t)sqlite3_column_bytes(statement, COL_NUMBERS), numbers)) {
        return false;
    }
    record->held = sqlite3_column_int(statement, COL_HELD) != 0;
    record->durable = sqlite3_column_int(statement, COL_OUTLIVES) != 0;
    record->expires_ms = sqlite3_column_int64(statement, COL_EXPIRES);
    record->revision = (uint64_t)numbers[NUM_REVISION];
    record->token = (uint64_t)numbers[NUM_TOKEN];
    record->outcome = (enum belay_outcome)numbers[NUM_OUTCOME];
    record->stale_reported = numbers[NUM_STALE_REPORTED] != 0;
    record->ttl_ms = numbers[NUM_TTL];
    record->heartbeat_ms = numbers[NUM_HEARTBEAT];
    record->stale_after_ms = numbers[NUM_STALE_AFTER];
    record->last_heartbeat_ms = numbers[NUM_BEAT];
    record->freed_ms = numbers[NUM_FREED];
    record->locked_at_unix_ms = numbers[NUM_LOCKED_AT];
    record->expires_at_unix_ms = numbers[NUM_EXPIRES_AT];
    record->last_heartbeat_unix_ms = numbers[NUM_BEAT_AT];
    record->freed_at_unix_ms = numbers[NUM_FREED_AT];
    record->mode = (enum belay_mode)numbers[NUM_MODE];
    record->slots = (int)numbers[NUM_SLOTS];
    return record->revision != 0 && numbers[NUM_MODE] >= BELAY_EXCLUSIVE && numbers[NUM_MODE] <= BELAY_SLOTS;
}

static enum belay_code row_read_holders(const struct sqlite_store *store, sqlite3_stmt *statement,
                                        struct belay_record *record, struct belay_error *err)
{
    const void *packed = sqlite3_column_blob(statement, COL_HOLDERS);

    if (packed == NULL ||
        holders_unpack(packed, (size_t)sqlite3_column_bytes(statement, COL_HOLDERS), record)) {
        return BELAY_OK;
    }
    return error_set(err, BELAY_BAD_CONTENT,
                     "the lock database '%s' is damaged: the list of holders of '%s' cannot be read",
                     store->path, record->key);
}

enum belay_code row_read(struct sqlite_store *store, sqlite3_stmt *statement, struct row *out_row,
                         struct belay_error *err)
{
    struct row row = { .stored = true };
    const char *metadata = (const char *)sqlite3_column_text(statement, COL_METADATA);
    const char *tickets = (const char *)sqlite3_column_text(statement, COL_TICKETS);
    const char *intents = (const char *)sqlite3_column_text(statement, COL_INTENTS);
    enum belay_code code = BELAY_OK;

    if (!row_read_texts(statement, tickets == NULL ? 0 : strlen(tickets) + 1, &row.record)) {
        code = error_no_memory(err);
    } else if (!row_read_numbers(statement, &row.record)) {
        code = error_set(err, BELAY_BAD_CONTENT,
                         "the lock database '%s' is damaged: the record of '%s' cannot be read", store->path,
                         row.record.key);
    } else if (metadata != NULL || tickets != NULL || intents != NULL) {
        code = json_read_row(store, metadata, tickets, intents, &row, err);
    }
    if (code == BELAY_OK && row.record.mode != BELAY_EXCLUSIVE) {
        code = row_read_holders(store, statement, &row.record, err);
    }
    if (code != BELAY_OK) {
        row_release(&row);
        return code;
    }
    if (row.record.n_tickets > 0) {
        alive_probe(store, &row);
    }
    *out_row = row;
    return BELAY_OK;
}

enum belay_code row_load(struct sqlite_store *store, const char *key, struct row *out_row,
                         struct belay_error *err)
{
    sqlite3_stmt *statement;
    int rc = db_statement(store, ST_GET, &statement);
    enum belay_code code;

    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    }
    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) {
        code = row_read(store, statement, out_row, err);
    } else if (rc == SQLITE_DONE) {
        code = row_absent(key, out_row, err);
    } else {
        code = sqlite_failed(store, rc, err);
    }
    (void)sqlite3_reset(statement);
    return code;
}

enum belay_code row_look(struct sqlite_store *store, const char *key, struct row *out_row, bool *out_served,
                         struct belay_error *err)
{
    sqlite3_stmt *statement;
    int rc = db_statement(store, ST_LOOK, &statement);
    enum belay_code code;

    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
    }
    if (rc != SQLITE_ROW) {
        code = sqlite_failed(store, rc == SQLITE_DONE ? SQLITE_CORRUPT : rc, err);
    } else {
        *out_served = db_read_served(store, statement, N_COLUMNS);
        code = sqlite3_column_type(statement, COL_KEY) == SQLITE_NULL
                   ? row_absent(key, out_row, err)
                   : row_read(store, statement, out_row, err);
    }
    if (statement != NULL) {
        (void)sqlite3_reset(statement);
    }
    return code;
}

static size_t write_numbers(const struct belay_record *record, unsigned char out[NUMBERS_MAX])
{
    const int64_t numbers[N_NUMBERS] = {
        [NUM_REVISION] = (int64_t)record->revision,
        [NUM_TOKEN] = (int64_t)record->token,
        [NUM_OUTCOME] = (int64_t)record->outcome,
        [NUM_STALE_REPORTED] = record->stale_reported,
        [NUM_TTL] = record->ttl_ms,
        [NUM_HEARTBEAT] = record->heartbeat_ms,
        [NUM_STALE_AFTER] = record->stale_after_ms,
        [NUM_BEAT] = record->last_heartbeat_ms,
        [NUM_FREED] = record->freed_ms,
        [NUM_LOCKED_AT] = record->locked_at_unix_ms,
        [NUM_EXPIRES_AT] = record->expires_at_unix_ms,
        [NUM_BEAT_AT] = record->last_heartbeat_unix_ms,
        [NUM_FREED_AT] = record->freed_at_unix_ms,
        [NUM_MODE] = (int64_t)record->mode,
        [NUM_SLOTS] = record->slots,
    };

    return numbers_write(numbers, out);
}

static void bind_record(struct binder *binder, const struct belay_record *record)
{
    bind_text(binder, COL_KEY + 1, record->key);
    bind_int(binder, COL_HELD + 1, record->held);
    bind_int(binder, COL_OUTLIVES + 1, record->durable);
    bind_int(binder, COL_EXPIRES + 1, record->expires_ms);
    bind_text(binder, COL_LOCK_ID + 1, record->lock_id);
    bind_text(binder, COL_OWNER + 1, record->owner);
    bind_text(binder, COL_OWNER_NAME + 1, record->owner_name);
    bind_text(binder, COL_ACQUIRED_BY + 1, record->acquired_by == NULL ? "" : record->acquired_by);
}

/* An UPDATE if the row exists: REPLACE would delete and insert it. */
enum belay_code row_save(struct sqlite_store *store, const struct row *row, struct belay_error *err)
{
    struct binder binder = { NULL, SQLITE_OK };
    unsigned char numbers[NUMBERS_MAX];
    char *metadata = NULL;
    char *tickets = NULL;
    char *intents = NULL;
    struct buf holders = BUF_INIT(HOLDERS_MAX);
    enum belay_code code;

    assert(!sqlite3_get_autocommit(store->db) && row->record.key != NULL);
    binder.rc = db_statement(store, row->stored ? ST_UPDATE : ST_INSERT, &binder.statement);
    code = json_write_meta(row->record.metadata, row->record.n_metadata, &metadata, err);
    if (code == BELAY_OK) {
        code = tickets_write(row, &tickets, err);
    }
    if (code == BELAY_OK) {
        code = json_write_intents(row, &intents, err);
    }
    if (code == BELAY_OK && (row->record.n_holders > 0 || row->record.n_released_ids > 0)) {
        holders_pack(&holders, &row->record);
        code = holders.failed ? error_no_memory(err) : BELAY_OK;
    }
    if (code != BELAY_OK) {
        goto done;
    }
    bind_record(&binder, &row->record);
    bind_blob(&binder, COL_NUMBERS + 1, numbers, write_numbers(&row->record, numbers));
    bind_text(&binder, COL_METADATA + 1, metadata);
    bind_text(&binder, COL_TICKETS + 1, tickets);
    bind_text(&binder, COL_INTENTS + 1, intents);
    bind_blob(&binder, COL_HOLDERS + 1, holders.data, holders.len);
    if (binder.rc == SQLITE_OK) {
        binder.rc = db_finish(binder.statement);
    }
    if (binder.rc != SQLITE_OK) {
        code = sqlite_failed(store, binder.rc, err);
    }

done:
    free(metadata);
    free(tickets);
    free(intents);
    buf_release(&holders);
    return code;
}

enum belay_code event_save(struct sqlite_store *store, const struct belay_event *event,
                           struct belay_error *err)
{
    struct binder binder = { NULL, SQLITE_OK };
    char *metadata = NULL;
    enum belay_code code = json_write_meta(event->metadata, event->n_metadata, &metadata, err);

    if (code != BELAY_OK) {
        return code;
    }
    binder.rc = db_statement(store, ST_EVENT, &binder.statement);
    bind_int(&binder, 1, (int64_t)event->id);
    bind_int(&binder, 2, event->at_unix_ms);
    bind_int(&binder, 3, (int64_t)event->level);
    bind_text(&binder, 4, event->type);
    bind_text(&binder, 5, event->key);
    bind_text(&binder, 6, event->lock_id);
    bind_int(&binder, 7, (int64_t)event->token);
    bind_text(&binder, 8, event->locked_by);
    bind_text(&binder, 9, event->locked_by_name);
    bind_text(&binder, 10, event->by);
    bind_text(&binder, 11, event->reason);
    bind_int(&binder, 12, event->duration_ms);
    bind_text(&binder, 13, metadata);
    if (binder.rc == SQLITE_OK) {
        binder.rc = db_finish(binder.statement);
    }
    free(metadata);
    return binder.rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, binder.rc, err);
}

enum belay_code row_each(struct sqlite_store *store, enum row_list list, row_fn fn, void *context,
                         struct belay_error *err)
{
    static const char *const queries[] = {
        [ROW_INTENTS] = "SELECT " RECORD_COLUMNS
                        " FROM locks WHERE intents IS NOT NULL AND key > ?1 ORDER BY key LIMIT 1",
        [ROW_TICKETS] = "SELECT " RECORD_COLUMNS
                        " FROM locks WHERE tickets IS NOT NULL AND key > ?1 ORDER BY key LIMIT 1",
        [ROW_HOLDERS] = "SELECT " RECORD_COLUMNS
                        " FROM locks WHERE holders IS NOT NULL AND key > ?1 ORDER BY key LIMIT 1",
    };
    sqlite3_stmt *statement = NULL;
    enum belay_code code = BELAY_OK;
    int rc = sqlite3_prepare_v2(store->db, queries[list], -1, &statement, NULL);
    char *after = strdup("");

    while (code == BELAY_OK && rc == SQLITE_OK) {
        struct row row = { 0 };

        rc = after == NULL ? SQLITE_NOMEM : sqlite3_bind_text(statement, 1, after, -1, SQLITE_STATIC);
        rc = rc == SQLITE_OK ? sqlite3_step(statement) : rc;
        if (rc == SQLITE_ROW) {
            rc = SQLITE_OK;
            code = row_read(store, statement, &row, err);
            (void)sqlite3_reset(statement);
            code = code == BELAY_OK ? fn(store, &row, context, err) : code;
            free(after);
            after = code == BELAY_OK ? strdup(row.record.key) : NULL;
        }
        row_release(&row);
    }
    (void)sqlite3_finalize(statement);
    free(after);
    return code != BELAY_OK || rc == SQLITE_DONE ? code : sqlite_failed(store, rc, err);
}
