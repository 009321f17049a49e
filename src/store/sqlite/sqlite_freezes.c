/*
 * The freezes, for commits. They are one item, and the table of items is created with the first
 * item. A commit reads nothing for them in two cases: if there is no such table, which SQLite
 * knows from the schema in memory, and while no other process writes (db_read_txn()).
 * Otherwise it reads one row, and parses it only if its version is new.
 */
#include "store/sqlite/sqlite_internal.h"

static enum belay_code use_freezes_row(struct sqlite_store *store, sqlite3_stmt *statement,
                                       struct belay_error *err)
{
    struct belay_item item = { .version = (uint64_t)sqlite3_column_int64(statement, 0) };
    struct freeze_list list = { 0 };
    enum belay_code code;

    if (item.version == store->freezes.list.version) {
        return BELAY_OK;
    }
    item.value = (char *)sqlite3_column_text(statement, 1);
    item.value = item.value == NULL ? (char *)"" : item.value;
    code = freeze_list_read(&item, &list, err);
    if (code == BELAY_OK) {
        freeze_list_release(&store->freezes.list);
        store->freezes.list = list;
    }
    return code;
}

enum belay_code sqlite_load_freezes(struct sqlite_store *store, struct belay_error *err)
{
    sqlite3_stmt *statement;
    enum belay_code code = BELAY_OK;
    int rc;

    if (store->freezes.is_current) {
        return BELAY_OK;
    }
    if (sqlite3_table_column_metadata(store->db, "main", "items", NULL, NULL, NULL, NULL, NULL, NULL) !=
        SQLITE_OK) {
        freeze_list_release(&store->freezes.list);
        store->freezes.is_current = true;
        return BELAY_OK;
    }
    rc = db_statement(store, ST_FREEZES, &statement);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) {
            code = use_freezes_row(store, statement, err);
        } else if (rc == SQLITE_DONE) {
            freeze_list_release(&store->freezes.list);
        }
        (void)sqlite3_reset(statement);
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        return sqlite_failed(store, rc, err);
    }
    store->freezes.is_current = code == BELAY_OK;
    return code;
}
