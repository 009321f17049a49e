/* Records and events, and their rows. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
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

struct binder {
    sqlite3_stmt *statement;
    int rc; /* of the first failure */
};

static void bind_int(struct binder *binder, enum column column, int64_t value)
{
    if (binder->rc == SQLITE_OK) {
        binder->rc = sqlite3_bind_int64(binder->statement, (int)column + 1, value);
    }
}

static void bind_text(struct binder *binder, enum column column, const char *text)
{
    if (binder->rc == SQLITE_OK) {
        binder->rc = sqlite3_bind_text(binder->statement, (int)column + 1, text, -1, SQLITE_STATIC);
    }
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
    bind_text(binder, COL_KEY, record->key);
    bind_int(binder, COL_HELD, record->held);
    bind_int(binder, COL_OUTLIVES, record->durable);
    bind_int(binder, COL_EXPIRES, record->expires_ms);
    bind_text(binder, COL_LOCK_ID, record->lock_id);
    bind_text(binder, COL_OWNER, record->owner);
    bind_text(binder, COL_OWNER_NAME, record->owner_name);
    bind_text(binder, COL_ACQUIRED_BY, record->acquired_by == NULL ? "" : record->acquired_by);
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
    if (binder.rc == SQLITE_OK) {
        binder.rc = sqlite3_bind_blob(binder.statement, COL_NUMBERS + 1, numbers,
                                      (int)write_numbers(&row->record, numbers), SQLITE_STATIC);
    }
    bind_text(&binder, COL_METADATA, metadata);
    bind_text(&binder, COL_TICKETS, tickets);
    bind_text(&binder, COL_INTENTS, intents);
    if (binder.rc == SQLITE_OK) {
        binder.rc = sqlite3_bind_blob(binder.statement, COL_HOLDERS + 1, holders.data, (int)holders.len,
                                      SQLITE_STATIC);
    }
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

static int bind_event(sqlite3_stmt *statement, const struct belay_event *event, const char *metadata)
{
    const struct {
        int at;
        const char *text;
    } texts[] = { { 4, event->type },           { 5, event->key },
                  { 6, event->lock_id },        { 8, event->locked_by },
                  { 9, event->locked_by_name }, { 10, event->by },
                  { 11, event->reason },        { 13, metadata } };
    const struct {
        int at;
        int64_t value;
    } numbers[] = { { 1, (int64_t)event->id },
                    { 2, event->at_unix_ms },
                    { 3, (int64_t)event->level },
                    { 7, (int64_t)event->token },
                    { 12, event->duration_ms } };
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof numbers / sizeof numbers[0]; i++) {
        rc = sqlite3_bind_int64(statement, numbers[i].at, numbers[i].value);
    }
    for (size_t i = 0; rc == SQLITE_OK && i < sizeof texts / sizeof texts[0]; i++) {
        rc = sqlite3_bind_text(statement, texts[i].at, texts[i].text, -1, SQLITE_STATIC);
    }
    return rc;
}

enum belay_code event_save(struct sqlite_store *store, const struct belay_event *event,
                           struct belay_error *err)
{
    char *metadata = NULL;
    sqlite3_stmt *statement;
    enum belay_code code = json_write_meta(event->metadata, event->n_metadata, &metadata, err);
    int rc;

    if (code != BELAY_OK) {
        return code;
    }
    rc = db_statement(store, ST_EVENT, &statement);
    if (rc == SQLITE_OK) {
        rc = bind_event(statement, event, metadata);
    }
    if (rc == SQLITE_OK) {
        rc = db_finish(statement);
    }
    free(metadata);
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
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
