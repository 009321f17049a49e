/* The registry's items: a table of its own, created with the first item. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "store/sqlite/sqlite_internal.h"

#define MAKE_TABLE                                                                                           \
    "CREATE TABLE IF NOT EXISTS items ("                                                                     \
    " space TEXT NOT NULL,"                                                                                  \
    " name TEXT NOT NULL,"                                                                                   \
    " version INTEGER NOT NULL,"                                                                             \
    " value TEXT NOT NULL,"                                                                                  \
    " PRIMARY KEY (space, name)) WITHOUT ROWID"

static int has_table(struct sqlite_store *store, bool *out_there)
{
    int64_t n = 0;
    int rc = db_read_int(store->db,
                         "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'items'", &n);

    *out_there = n > 0;
    return rc;
}

/* Prepared for one use: items are few; the store's own statements stay prepared. */
static struct binder prepare_item(struct sqlite_store *store, const char *sql, const char *space,
                                  const char *name)
{
    struct binder binder = { NULL, SQLITE_OK };

    binder.rc = sqlite3_prepare_v2(store->db, sql, -1, &binder.statement, NULL);
    bind_text(&binder, 1, space);
    bind_text(&binder, 2, name);
    return binder;
}

static bool copy_item_row(sqlite3_stmt *statement, struct belay_item *out_item)
{
    const char *name = (const char *)sqlite3_column_text(statement, 0);
    const char *value = (const char *)sqlite3_column_text(statement, 2);

    out_item->name = strdup(name == NULL ? "" : name);
    out_item->value = strdup(value == NULL ? "" : value);
    out_item->version = (uint64_t)sqlite3_column_int64(statement, 1);
    return out_item->name != NULL && out_item->value != NULL;
}

struct item_list {
    struct belay_item *items; /* owned */
    size_t n;
    size_t cap;
};

static void item_list_release(struct item_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        belay_item_release(&list->items[i]);
    }
    free(list->items);
}

static bool item_list_add(struct item_list *list, sqlite3_stmt *statement)
{
    struct belay_item *grown = array_grow(list->items, sizeof *grown, list->n + 1, &list->cap);

    if (grown == NULL) {
        return false;
    }
    list->items = grown;
    memset(&list->items[list->n], 0, sizeof list->items[list->n]);
    return copy_item_row(statement, &list->items[list->n++]);
}

/*
 * With the mutex. The item of that name, or all items of the space if the name is NULL: in one statement, so that they
 * are of one snapshot. The caller releases the list, also after an error.
 */
static enum belay_code read_items(struct sqlite_store *store, const char *space, const char *name,
                                  struct item_list *list, struct belay_error *err)
{
    static const char one[] = "SELECT name, version, value FROM items WHERE space = ?1 AND name = ?2";
    static const char all[] =
        "SELECT name, version, value FROM items WHERE space = ?1 AND name > ?2 ORDER BY name";
    struct binder select;
    enum belay_code code = BELAY_OK;
    bool is_there = false;
    int rc = has_table(store, &is_there);

    if (rc != SQLITE_OK || !is_there) {
        return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
    }
    select = prepare_item(store, name == NULL ? all : one, space, name == NULL ? "" : name);
    rc = select.rc;
    while (rc == SQLITE_OK && code == BELAY_OK && (rc = sqlite3_step(select.statement)) == SQLITE_ROW) {
        rc = SQLITE_OK;
        code = item_list_add(list, select.statement) ? BELAY_OK : error_no_memory(err);
    }
    (void)sqlite3_finalize(select.statement);
    return rc == SQLITE_OK || rc == SQLITE_DONE ? code : sqlite_failed(store, rc, err);
}

enum belay_code sqlite_item_get(struct belay_store *base, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    struct belay_item item = { 0 };
    struct item_list list = { 0 };
    enum belay_code code;

    (void)pthread_mutex_lock(&store->mutex);
    code = read_items(store, space, name, &list, err);
    (void)pthread_mutex_unlock(&store->mutex);
    if (code == BELAY_OK && list.n > 0) {
        item = list.items[0];
        list.n = 0; /* it is the caller's now */
    } else if (code == BELAY_OK) {
        item.name = strdup(name);
        code = item.name == NULL ? error_no_memory(err) : BELAY_OK;
    }
    item_list_release(&list);
    if (code == BELAY_OK) {
        *out_item = item;
    }
    return code;
}

static int write_row(struct sqlite_store *store, const struct belay_item_write *write, uint64_t version)
{
    struct binder change = prepare_item(
        store,
        write->value == NULL
            ? "DELETE FROM items WHERE space = ?1 AND name = ?2"
            : "INSERT OR REPLACE INTO items (space, name, version, value) VALUES (?1, ?2, ?3, ?4)",
        write->space, write->name);
    int rc;

    if (write->value != NULL) {
        bind_int(&change, 3, (int64_t)version);
        bind_text(&change, 4, write->value);
    }
    rc = change.rc == SQLITE_OK ? db_finish(change.statement) : change.rc;
    (void)sqlite3_finalize(change.statement);
    return rc;
}

/*
 * A server that owns the file finds most items in it when it needs them. The freezes it has in
 * memory, so it must write them itself.
 */
static int has_served(struct sqlite_store *store, const struct belay_item_write *write, bool *out_is_served)
{
    struct txn txn = { 0 };
    bool other_boot;
    int rc = SQLITE_OK;

    if (strcmp(write->space, BELAY_SPACE_FREEZES) == 0) {
        rc = db_read_txn(store, &txn, &other_boot);
    }
    *out_is_served = txn.served;
    return rc;
}

static enum belay_code put_item(struct sqlite_store *store, const struct belay_item_write *write,
                                uint64_t version, struct belay_error *err)
{
    struct item_list before = { 0 };
    enum belay_code code;
    bool is_served = false;
    int rc = db_has_moved(store) ? SQLITE_OK : db_begin(store, true);

    if (sqlite3_get_autocommit(store->db)) {
        return rc == SQLITE_OK ? sqlite_moved(store, err) : sqlite_failed(store, rc, err);
    }
    rc = has_served(store, write, &is_served);
    if (rc == SQLITE_OK && is_served) {
        db_rollback(store);
        return sqlite_redirected(store, err);
    }
    rc = rc == SQLITE_OK ? db_exec(store, MAKE_TABLE) : rc;
    code = rc == SQLITE_OK ? read_items(store, write->space, write->name, &before, err)
                           : sqlite_failed(store, rc, err);
    if (code == BELAY_OK && !write->any_version &&
        (before.n == 0 ? 0 : before.items[0].version) != write->version) {
        code = error_set(err, BELAY_REFUSED, "'%.200s' is of another version", write->name);
    }
    if (code == BELAY_OK) {
        rc = write_row(store, write, version);
        code = rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
    }
    if (code == BELAY_OK) {
        rc = db_run(store, ST_COMMIT);
        code = rc == SQLITE_OK ? BELAY_OK : sqlite_commit_failed(store, rc, err);
    }
    db_rollback(store);
    item_list_release(&before);
    return code;
}

enum belay_code sqlite_item_put(struct belay_store *base, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    uint64_t version = random_version();
    enum belay_code code;

    (void)pthread_mutex_lock(&store->mutex);
    code = put_item(store, write, version, err);
    store->freezes.is_current = false;
    if (code == BELAY_OK) {
        store->commits++;
        db_checkpoint_if_due(store);
    }
    if (strcmp(write->space, BELAY_SPACE_FREEZES) == 0) {
        wake_all(store); /* a freeze may be over for them */
    }
    (void)pthread_mutex_unlock(&store->mutex);
    if (code == BELAY_OK) {
        *out_version = write->value == NULL ? 0 : version;
    }
    return code;
}

enum belay_code sqlite_item_list(struct belay_store *base, const char *space, belay_item_fn fn, void *context,
                                 struct belay_error *err)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    struct item_list list = { 0 };
    enum belay_code code;
    bool go_on = true;

    (void)pthread_mutex_lock(&store->mutex);
    code = read_items(store, space, NULL, &list, err);
    (void)pthread_mutex_unlock(&store->mutex);
    for (size_t i = 0; code == BELAY_OK && go_on && i < list.n; i++) {
        go_on = fn(context, &list.items[i]);
    }
    item_list_release(&list);
    return code;
}
