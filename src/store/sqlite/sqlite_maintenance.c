/*
 * Work behind the commits, in small steps after some of them: indexing new events, and
 * deleting. It deletes records that had no holder, waiter or holder below for retain_records,
 * and events older than retain_events or beyond the largest number that is kept. Tokens depend
 * on neither: the newest event, which has the last number, is never deleted.
 * Failures are ignored: the next step tries again.
 */
#include <stdlib.h>
#include <string.h>

#include "store/sqlite/sqlite_internal.h"

/* Indexes the events since the last step in `acquisitions`, and if `history` is true there, too. */
static int index_events(struct sqlite_store *store, uint64_t newest, bool history)
{
    int rc = db_run(store, ST_INDEX_IDS);

    if (rc == SQLITE_OK) {
        rc = db_run_int(store, ST_SET_INDEXED, (int64_t)newest);
    }
    if (rc == SQLITE_OK && history) {
        rc = db_run(store, ST_INDEX_HISTORY);
    }
    return rc == SQLITE_OK && history ? db_run_int(store, ST_SET_LISTED, (int64_t)newest) : rc;
}

/*
 * The id up to which events are deleted because there are too many; 0: there are not. Skipped
 * numbers (sqlite_jump()) are no events; if they are among the oldest, it takes one more step.
 */
static int find_surplus(struct sqlite_store *store, const struct txn *txn, int64_t *out_id)
{
    sqlite3_stmt *statement;
    int64_t oldest, surplus;
    int rc = db_statement(store, ST_SWEEP_SPAN, &statement);

    if (rc != SQLITE_OK) {
        return rc;
    }
    rc = sqlite3_step(statement);
    oldest = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    surplus = (int64_t)txn->newest - oldest + 1 - EVENTS_KEPT;
    surplus -= rc == SQLITE_ROW ? sqlite3_column_int64(statement, 1) : 0;
    (void)sqlite3_reset(statement);
    *out_id = surplus > 0 ? oldest + surplus - 1 : 0;
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* The last of the `most` oldest events that may be deleted; 0: none. Never the newest. */
static int find_cut(struct sqlite_store *store, const struct txn *txn, int64_t most, int64_t *out_cut)
{
    int64_t values[] = { (int64_t)txn->newest, 0, txn->unix_ms - store->retain_events_ms, most };
    sqlite3_stmt *statement;
    int rc = find_surplus(store, txn, &values[1]);

    if (rc == SQLITE_OK) {
        rc = db_statement(store, ST_SWEEP_CUT, &statement);
    }
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

static int sweep_events(struct sqlite_store *store, const struct txn *txn)
{
    int64_t cut = 0;
    int rc = find_cut(store, txn, 1, &cut);

    if (rc == SQLITE_OK && cut != 0) {
        rc = find_cut(store, txn, SWEEP_EVENTS, &cut);
    }
    if (rc != SQLITE_OK || cut == 0) {
        return rc; /* usually: the oldest event is not old enough */
    }
    rc = db_run_int(store, ST_SWEEP_HISTORY, cut);
    if (rc == SQLITE_OK) {
        rc = db_run_int(store, ST_SWEEP_IDS, cut);
    }
    return rc == SQLITE_OK ? db_run_int(store, ST_SWEEP_EVENTS, cut) : rc;
}

/* Whether no ticket and no intent of the record is still valid. */
static bool is_abandoned(const struct belay_record *record, int64_t now_ms)
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
    struct txn txn = { 0 };
    bool other_boot = false;
    int64_t cut = 0;
    int rc = db_add_functions(store);

    if (rc == SQLITE_OK) {
        rc = db_read_txn(store, &txn, &other_boot);
    }
    if (rc == SQLITE_OK) {
        rc = index_events(store, txn.newest, true);
    }
    while (rc == SQLITE_OK) {
        rc = sweep_events(store, &txn);
        rc = rc == SQLITE_OK ? find_cut(store, &txn, 1, &cut) : rc;
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
           record->freed_at_unix_ms < before_unix_ms && is_abandoned(record, now_ms);
}

/* A record that was unused for long: its key, and whether it has tickets or intents. */
struct old_record {
    char *key; /* owned */
    bool plain;
};

/* The records that one step examines. */
struct sweep_page {
    struct old_record old[SWEEP_ROWS];
    size_t n;
    char *last; /* owned; the key up to which this step goes; NULL: to the end */
};

static void sweep_page_release(struct sweep_page *page)
{
    for (size_t i = 0; i < page->n; i++) {
        free(page->old[i].key);
    }
    free(page->last);
}

static bool is_old(sqlite3_stmt *row, const struct sqlite_store *store, const struct txn *txn)
{
    bool held = sqlite3_column_int(row, 1) != 0;
    const unsigned char *packed = sqlite3_column_blob(row, 3);
    int64_t limit = txn->unix_ms - store->retain_records_ms;
    int64_t numbers[N_NUMBERS];

    return (!held || sqlite3_column_int64(row, 2) <= txn->now_ms) &&
           numbers_read(packed, (size_t)sqlite3_column_bytes(row, 3), numbers) &&
           numbers[NUM_LOCKED_AT] < limit && numbers[NUM_FREED_AT] < limit &&
           (!held || numbers[NUM_EXPIRES_AT] < limit);
}

static int sweep_page_read(struct sqlite_store *store, const struct txn *txn, struct sweep_page *page)
{
    sqlite3_stmt *select;
    size_t seen = 0;
    int rc = db_statement(store, ST_SWEEP_LOOK, &select);

    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_int(select, 1, SWEEP_ROWS);
    }
    while (rc == SQLITE_OK && (rc = sqlite3_step(select)) == SQLITE_ROW) {
        const char *key = (const char *)sqlite3_column_text(select, 0);

        rc = key == NULL ? SQLITE_NOMEM : SQLITE_OK;
        if (rc == SQLITE_OK && ++seen == SWEEP_ROWS) {
            page->last = strdup(key);
            rc = page->last == NULL ? SQLITE_NOMEM : SQLITE_OK;
        }
        if (rc == SQLITE_OK && is_old(select, store, txn)) {
            page->old[page->n].plain = sqlite3_column_int(select, 4) != 0;
            page->old[page->n].key = strdup(key);
            rc = page->old[page->n++].key == NULL ? SQLITE_NOMEM : SQLITE_OK;
        }
    }
    (void)sqlite3_reset(select);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Also a record whose tickets and intents have expired, because their clients never removed them. */
static int remove_old(struct sqlite_store *store, const struct old_record *old, const struct txn *txn)
{
    struct row row = { 0 };
    bool goes = old->plain;

    if (!goes) {
        goes = row_load(store, old->key, &row, NULL) == BELAY_OK && is_abandoned(&row.record, txn->now_ms);
        row_release(&row);
    }
    return goes ? db_run_text(store, ST_DELETE, old->key) : SQLITE_OK;
}

static int sweep_records(struct sqlite_store *store, const struct txn *txn)
{
    struct sweep_page *page = calloc(1, sizeof *page);
    int rc = page == NULL ? SQLITE_NOMEM : sweep_page_read(store, txn, page);

    for (size_t i = 0; rc == SQLITE_OK && i < page->n; i++) {
        rc = remove_old(store, &page->old[i], txn);
    }
    if (rc == SQLITE_OK) {
        rc = db_run_text(store, ST_SWEEP_CURSOR, page->last == NULL ? "" : page->last);
    }
    if (page != NULL) {
        sweep_page_release(page);
        free(page);
    }
    return rc;
}

void sqlite_sweep(struct sqlite_store *store, bool events_too)
{
    struct txn txn = { 0 };
    bool other_boot = false;
    int rc = db_add_functions(store);

    if (rc == SQLITE_OK) {
        rc = db_begin(store, false);
    }
    if (rc == SQLITE_OK) {
        rc = db_read_txn(store, &txn, &other_boot);
    }
    if (rc == SQLITE_OK && !other_boot && !txn.served) {
        rc = index_events(store, txn.newest, events_too);
        if (rc == SQLITE_OK && events_too) {
            rc = sweep_events(store, &txn);
        }
        if (rc == SQLITE_OK) {
            rc = sweep_records(store, &txn);
        }
        if (rc == SQLITE_OK) {
            (void)db_run(store, ST_COMMIT);
        }
    }
    db_rollback(store);
}
