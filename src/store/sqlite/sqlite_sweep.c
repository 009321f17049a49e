/*
 * What is done behind the commits, in small steps after some of them: indexing
 * new events, and cleaning up. What goes: records that
 * nobody has held, waited for or held below for retain_records, and events
 * older than retain_events or beyond the number we keep. Tokens do not depend on
 * either: the newest event, which carries the last number, is never removed.
 *
 * A failure is no one's business: the next step tries again.
 */
#include <stdlib.h>
#include <string.h>

#include "store/sqlite/sqlite_internal.h"

static void hash_function(sqlite3_context *context, int n, sqlite3_value **values)
{
    const char *key = (const char *)sqlite3_value_text(values[0]);
    const char *lock_id = (const char *)sqlite3_value_text(values[1]);

    (void)n;
    if (key != NULL && lock_id != NULL) {
        sqlite3_result_int64(context, hash_acquisition(key, lock_id));
    }
}

static int add_hash_function(struct sqlite_store *store)
{
    int rc;

    if (store->has_hash) {
        return SQLITE_OK;
    }
    rc = sqlite3_create_function_v2(store->db, "belay_hash", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
                                    hash_function, NULL, NULL, NULL);
    store->has_hash = rc == SQLITE_OK;
    return rc;
}

static int run_with(struct sqlite_store *store, enum statement which, int64_t value)
{
    sqlite3_stmt *statement;
    int rc = db_statement(store, which, &statement);

    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_int64(statement, 1, value);
    }
    return rc == SQLITE_OK ? db_finish(statement) : rc;
}

/* Take the events since the last step into `history` and `acquisitions`. */
static int index_events(struct sqlite_store *store, uint64_t newest)
{
    int rc = db_run(store, ST_INDEX_HISTORY);

    if (rc == SQLITE_OK) {
        rc = db_run(store, ST_INDEX_IDS);
    }
    return rc == SQLITE_OK ? run_with(store, ST_SET_INDEXED, (int64_t)newest) : rc;
}

/* The last of the `most` oldest events that may go; 0: none. Never the newest. */
static int find_cut(struct sqlite_store *store, const struct ground *ground, int64_t most, int64_t *out_cut)
{
    const int64_t values[] = { (int64_t)ground->newest, (int64_t)ground->newest - EVENTS_KEPT,
                               ground->unix_ms - store->retain_events_ms, most };
    sqlite3_stmt *statement;
    int rc = db_statement(store, ST_SWEEP_CUT, &statement);

    for (int i = 0; rc == SQLITE_OK && i < (int)(sizeof values / sizeof values[0]); i++) {
        rc = sqlite3_bind_int64(statement, i + 1, values[i]);
    }
    if (rc != SQLITE_OK) {
        return rc;
    }
    rc = sqlite3_step(statement);
    *out_cut = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    (void)sqlite3_reset(statement);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int sweep_events(struct sqlite_store *store, const struct ground *ground)
{
    int64_t cut = 0;
    int rc = index_events(store, ground->newest);

    if (rc == SQLITE_OK) {
        rc = find_cut(store, ground, 1, &cut);
    }
    if (rc == SQLITE_OK && cut != 0) {
        rc = find_cut(store, ground, SWEEP_EVENTS, &cut);
    }
    if (rc != SQLITE_OK || cut == 0) {
        return rc; /* mostly: the very oldest is not old enough */
    }
    rc = run_with(store, ST_SWEEP_HISTORY, cut);
    if (rc == SQLITE_OK) {
        rc = run_with(store, ST_SWEEP_IDS, cut);
    }
    return rc == SQLITE_OK ? run_with(store, ST_SWEEP_EVENTS, cut) : rc;
}

static bool nobody_is_left(const struct belay_record *record, int64_t now_ms)
{
    bool left = false;

    for (size_t i = 0; i < record->n_tickets; i++) {
        left = left || now_ms < record->tickets[i].expires_ms;
    }
    for (size_t i = 0; i < record->n_intents; i++) {
        left = left || now_ms < record->intents[i].expires_ms;
    }
    return !left;
}

int sweep_all_events(struct sqlite_store *store)
{
    struct ground ground;
    bool other_boot = false;
    int64_t cut = 0;
    int rc = add_hash_function(store);

    if (rc == SQLITE_OK) {
        rc = db_read_ground(store, &ground, &other_boot);
    }
    while (rc == SQLITE_OK) {
        rc = sweep_events(store, &ground);
        rc = rc == SQLITE_OK ? find_cut(store, &ground, 1, &cut) : rc;
        if (cut == 0) {
            break;
        }
    }
    return rc;
}

bool record_may_go(const struct belay_record *record, int64_t now_ms, int64_t before_unix_ms)
{
    return (!record->held || record->expires_ms <= now_ms) && record->locked_at_unix_ms < before_unix_ms &&
           (!record->held || record->expires_at_unix_ms < before_unix_ms) &&
           record->freed_at_unix_ms < before_unix_ms && nobody_is_left(record, now_ms);
}

/* The key up to which this step goes; NULL: to the end. */
static int find_stretch(struct sqlite_store *store, char **out_last)
{
    sqlite3_stmt *statement;
    int rc = db_statement(store, ST_SWEEP_LAST, &statement);

    *out_last = NULL;
    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_int(statement, 1, SWEEP_ROWS - 1);
    }
    if (rc != SQLITE_OK) {
        return rc;
    }
    rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) {
        *out_last = strdup((const char *)sqlite3_column_text(statement, 0));
        rc = *out_last == NULL ? SQLITE_NOMEM : SQLITE_OK;
    } else if (rc == SQLITE_DONE) {
        rc = SQLITE_OK;
    }
    (void)sqlite3_reset(statement);
    return rc;
}

static int bind_stretch(sqlite3_stmt *statement, const struct sqlite_store *store, const char *last,
                        const struct ground *ground)
{
    /* A blob is greater than any text: to the end. */
    int rc = last == NULL ? sqlite3_bind_zeroblob(statement, 1, 0)
                          : sqlite3_bind_text(statement, 1, last, -1, SQLITE_STATIC);

    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_int64(statement, 2, ground->now_ms);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_int64(statement, 3, ground->unix_ms - store->retain_records_ms);
    }
    return rc;
}

/* Those whose waiters and whose holders below never came back to take themselves out. */
static int sweep_deserted(struct sqlite_store *store, const char *last, const struct ground *ground)
{
    sqlite3_stmt *select;
    sqlite3_stmt *delete;
    int rc = db_statement(store, ST_SWEEP_OTHERS, &select);

    if (rc == SQLITE_OK) {
        rc = db_statement(store, ST_DELETE, &delete);
    }
    if (rc == SQLITE_OK) {
        rc = bind_stretch(select, store, last, ground);
    }
    while (rc == SQLITE_OK && (rc = sqlite3_step(select)) == SQLITE_ROW) {
        struct row row = { 0 };

        rc = SQLITE_OK;
        if (row_read(store, select, &row, NULL) == BELAY_OK && nobody_is_left(&row.record, ground->now_ms)) {
            rc = sqlite3_bind_text(delete, 1, row.record.key, -1, SQLITE_STATIC);
            rc = rc == SQLITE_OK ? db_finish(delete) : rc;
        }
        row_release(&row);
    }
    (void)sqlite3_reset(select);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int sweep_records(struct sqlite_store *store, const char *last, const struct ground *ground)
{
    sqlite3_stmt *statement;
    int rc = db_statement(store, ST_SWEEP_RECORDS, &statement);

    if (rc == SQLITE_OK) {
        rc = bind_stretch(statement, store, last, ground);
    }
    if (rc == SQLITE_OK) {
        rc = db_finish(statement);
    }
    if (rc == SQLITE_OK) {
        rc = sweep_deserted(store, last, ground);
    }
    if (rc == SQLITE_OK) {
        rc = db_statement(store, ST_SWEEP_CURSOR, &statement);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_text(statement, 1, last == NULL ? "" : last, -1, SQLITE_STATIC);
    }
    return rc == SQLITE_OK ? db_finish(statement) : rc;
}

void sqlite_sweep(struct sqlite_store *store)
{
    struct ground ground;
    bool other_boot = false;
    char *last = NULL;
    int rc = add_hash_function(store);

    if (rc == SQLITE_OK) {
        rc = db_begin(store, false);
    }
    if (rc == SQLITE_OK) {
        rc = db_read_ground(store, &ground, &other_boot);
    }
    if (rc == SQLITE_OK && !other_boot && !ground.served) {
        rc = sweep_events(store, &ground);
        if (rc == SQLITE_OK) {
            rc = find_stretch(store, &last);
        }
        if (rc == SQLITE_OK) {
            rc = sweep_records(store, last, &ground);
        }
        if (rc == SQLITE_OK) {
            (void)db_run(store, ST_COMMIT);
        }
    }
    db_rollback(store);
    free(last);
}
