/* Opening and closing: records and used ids are read from the database, and a new journal is begun. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pool.h"
#include "base/text.h"
#include "store/journaled/journaled_internal.h"

enum {
    JOURNAL_BYTES = 64 << 20,
    JOURNAL_FIRST_BYTES = 2 << 20, /* of the first one: it is written before the server starts */
    FRAME_MAX_BYTES = 512 << 20,
    IDLE_MS = 1000,
    TICKET_MS = 3600000, /* long: this process drops the tickets of its connections when they close */
};

static void journaled_close(struct belay_store *base)
{
    struct journaled *store = (struct journaled *)base;
    struct belay_error err = BELAY_ERROR_INIT;

    if (store == NULL) {
        return;
    }
    journaled_stop_thread(store);
    if (store->checkpoint_db != NULL && store->journals[0].fd >= 0 && !store->no_checkpoint &&
        journaled_checkpoint_all(store, &err) != BELAY_OK && store->on_warning != NULL) {
        store->on_warning(store->context, err.text);
    }
    belay_error_release(&err);
    for (int i = 0; i < JOURNAL_FILES; i++) {
        journal_close(&store->journals[i]);
        free(store->journals[i].path);
    }
    table_release(&store->table);
    freeze_list_release(&store->freezes);
    ids_release(&store->ids);
    buf_release(&store->frame);
    buf_release(&store->flushing);
    buf_release(&store->scratch);
    free(store->sweep_key);
    free(store->warning);
    if (store->read_db != NULL) {
        store->read_db->base.ops->close(&store->read_db->base);
    }
    if (store->checkpoint_db != NULL && store->no_checkpoint) {
        sqlite_abandon(store->checkpoint_db);
    }
    if (store->checkpoint_db != NULL) {
        store->checkpoint_db->base.ops->close(&store->checkpoint_db->base);
    }
    (void)pthread_mutex_destroy(&store->mutex);
    (void)pthread_cond_destroy(&store->wake);
    (void)pthread_cond_destroy(&store->flushed);
    free(store);
}

static struct belay_store_capabilities journaled_capabilities(struct belay_store *base)
{
    (void)base;
    return (struct belay_store_capabilities){ .is_local = true,
                                              .has_freezes = true,
                                              .margin_ms = 0,
                                              .claim_ms = 1000,
                                              .poll_ms = 1000,
                                              .ticket_ttl_ms = TICKET_MS,
                                              .finds_mode = true,
                                              .has_modes = true };
}

/* Threads of this process wake each other through the same wake file as processes do. */
static uint32_t journaled_listen(struct belay_store *base, const char *lock_id)
{
    return sqlite_listen(&((struct journaled *)base)->read_db->base, lock_id);
}

static void journaled_wait(struct belay_store *base, const char *lock_id, uint32_t listened,
                           int64_t timeout_ms, struct belay_cancel *cancel)
{
    sqlite_wait(&((struct journaled *)base)->read_db->base, lock_id, listened, timeout_ms, cancel);
}

static void journaled_wake(struct belay_store *base, const char *lock_id)
{
    sqlite_wake(&((struct journaled *)base)->read_db->base, lock_id);
}

/* Items are few and seldom change: they are kept in the database only. */
static enum belay_code journaled_item_get(struct belay_store *base, const char *space, const char *name,
                                          struct belay_item *out_item, struct belay_error *err)
{
    return sqlite_item_get(&((struct journaled *)base)->read_db->base, space, name, out_item, err);
}

static enum belay_code journaled_item_put(struct belay_store *base, const struct belay_item_write *write,
                                          uint64_t *out_version, struct belay_error *err)
{
    struct journaled *store = (struct journaled *)base;
    enum belay_code code = sqlite_item_put(&store->read_db->base, write, out_version, err);

    if (strcmp(write->space, BELAY_SPACE_FREEZES) == 0) {
        (void)pthread_mutex_lock(&store->mutex);
        store->has_freezes = false; /* before this returns: the next commit reads them */
        (void)pthread_mutex_unlock(&store->mutex);
    }
    return code;
}

static enum belay_code journaled_item_list(struct belay_store *base, const char *space, belay_item_fn fn,
                                           void *context, struct belay_error *err)
{
    return sqlite_item_list(&((struct journaled *)base)->read_db->base, space, fn, context, err);
}

static enum belay_code journaled_identity(struct belay_store *base, char out_id[BELAY_STORE_ID_SIZE],
                                          struct belay_error *err)
{
    return sqlite_identity(&((struct journaled *)base)->read_db->base, out_id, err);
}

static const struct belay_store_ops journaled_ops = {
    .name = "journaled",
    .close = journaled_close,
    .get = journaled_get,
    .commit = journaled_commit,
    .scan = journaled_scan,
    .events = journaled_events,
    .capabilities = journaled_capabilities,
    .listen = journaled_listen,
    .wait = journaled_wait,
    .wake = journaled_wake,
    .item_get = journaled_item_get,
    .item_put = journaled_item_put,
    .item_list = journaled_item_list,
    .sync = journaled_sync,
    .committed_lsn = journaled_committed_lsn,
    .durable_lsn = journaled_durable_lsn,
    .batches = journaled_counts,
    .backup = journaled_backup,
    .identity = journaled_identity,
};

static struct journaled *journaled_new(const struct journaled_hooks *hooks)
{
    struct journaled *store = calloc(1, sizeof *store);

    if (store == NULL) {
        return NULL;
    }
    store->base.ops = &journaled_ops;
    (void)pthread_mutex_init(&store->mutex, NULL);
    cond_init(&store->wake);
    (void)pthread_cond_init(&store->flushed, NULL);
    store->journal_bytes = hooks != NULL && hooks->journal_bytes > 0 ? hooks->journal_bytes : JOURNAL_BYTES;
    store->idle_ms = hooks != NULL && hooks->idle_ms > 0 ? hooks->idle_ms : IDLE_MS;
    store->no_checkpoint = hooks != NULL && hooks->no_checkpoint;
    store->frame = (struct buf)BUF_INIT(FRAME_MAX_BYTES);
    store->flushing = (struct buf)BUF_INIT(FRAME_MAX_BYTES);
    store->scratch = (struct buf)BUF_INIT(FRAME_MAX_BYTES);
    store->journals[0].fd = store->journals[1].fd = -1;
    if (!table_init(&store->table) || !ids_init(&store->ids)) {
        journaled_close(&store->base);
        return NULL;
    }
    return store;
}

/* ---- what the database has ---- */

struct loading {
    struct journaled *store;
    enum belay_code code;
    struct belay_error *err;
};

static bool load_record(void *context, const struct belay_record *record, int64_t now_ms)
{
    struct loading *loading = context;
    struct journaled *store = loading->store;
    struct stored_record *stored = stored_record_new(record->key);

    /* The waiters were connections of a server that is gone. They may come back for a moment. */
    for (size_t i = 0; i < record->n_tickets; i++) {
        if (record->tickets[i].expires_ms > now_ms + SQLITE_PLACE_KEPT_MS) {
            record->tickets[i].expires_ms = now_ms + SQLITE_PLACE_KEPT_MS;
        }
    }
    if (stored != NULL) {
        stored->packed = record_pack_new(&store->scratch, record, &stored->len);
    }
    if (stored == NULL || stored->packed == NULL || !table_add(&store->table, stored)) {
        stored_record_free(stored);
        loading->code = error_no_memory(loading->err);
        return false;
    }
    return true;
}

static enum belay_code load_ids(struct journaled *store, struct belay_error *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = db_begin(store->checkpoint_db, false);

    if (rc == SQLITE_OK) {
        rc = sweep_all_events(store->checkpoint_db); /* which indexes the newest */
    }
    if (rc == SQLITE_OK) {
        rc = db_run(store->checkpoint_db, ST_COMMIT);
    }
    db_rollback(store->checkpoint_db);
    if (rc == SQLITE_OK) {
        rc = sqlite3_prepare_v2(store->checkpoint_db->db, "SELECT hash FROM acquisitions", -1, &statement,
                                NULL);
    }
    while (rc == SQLITE_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        ids_add(&store->ids, (uint64_t)sqlite3_column_int64(statement, 0));
        rc = SQLITE_OK;
    }
    (void)sqlite3_finalize(statement);
    return rc == SQLITE_DONE ? BELAY_OK : sqlite_failed(store->checkpoint_db, rc, err);
}

static enum belay_code load_records(struct journaled *store, struct belay_error *err)
{
    struct belay_scan all = { 0 };
    struct loading loading = { .store = store, .err = err };
    struct txn txn = { 0 };
    bool other_boot;
    enum belay_code code = sqlite_scan(&store->checkpoint_db->base, &all, load_record, &loading, err);
    int rc;

    if (code == BELAY_OK) {
        code = loading.code;
    }
    if (code == BELAY_OK) {
        code = load_ids(store, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    rc = db_read_txn(store->checkpoint_db, &txn, &other_boot);
    store->next = txn.next;
    assert(rc != SQLITE_OK || store->next > 0);
    atomic_store(&store->committed, store->next - 1);
    atomic_store(&store->durable, store->next - 1);
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store->checkpoint_db, rc, err);
}

/* Make the first journal; the thread makes the other. */
static enum belay_code begin_journal(struct journaled *store, struct belay_error *err)
{
    size_t first = store->journal_bytes < JOURNAL_FIRST_BYTES ? store->journal_bytes : JOURNAL_FIRST_BYTES;
    enum belay_code code = BELAY_OK;
    uint64_t id = 0;

    /* SQLite's integers have a sign: use 63 bits. */
    if (!random_bytes(&id, sizeof id) || (id = (id >> 1) | 1) == 0) {
        return error_set(err, BELAY_UNREACHABLE, "the system gives no random bytes");
    }
    for (int i = 0; code == BELAY_OK && i < JOURNAL_FILES; i++) {
        store->journals[i].id = id;
        store->journals[i].path = journal_path(store->checkpoint_db->path, i);
        code = store->journals[i].path == NULL ? error_no_memory(err) : BELAY_OK;
    }
    journal_frame_init(&store->frame);
    journal_frame_init(&store->flushing);
    if (code == BELAY_OK) {
        code = journal_begin(&store->journals[0], 1, first, store->checkpoint_db->path, err);
    }
    if (code == BELAY_OK) {
        store->ahead = (uint64_t)sqlite_numbers_ahead(store->checkpoint_db);
        store->ceiling = store->next + store->ahead;
        code = sqlite_journal_want(store->checkpoint_db, id, 1, 0, store->ceiling, err);
    }
    return code == BELAY_OK && (store->frame.failed || store->flushing.failed) ? error_no_memory(err) : code;
}

static enum belay_code open_database(const char *path_and_params, const struct journaled_hooks *hooks,
                                     struct sqlite_store **out_store, char **out_url, struct belay_error *err)
{
    struct belay_store *store = NULL;
    enum belay_code code =
        sqlite_store_open(path_and_params, hooks == NULL ? NULL : hooks->sqlite, &store, out_url, err);

    *out_store = (struct sqlite_store *)store;
    return code;
}

enum belay_code journaled_store_open(const char *path_and_params, const struct journaled_hooks *hooks,
                                     void (*on_warning)(void *context, const char *text), void *context,
                                     struct belay_store **out_store, char **out_url, char **out_socket,
                                     struct belay_error *err)
{
    struct journaled *store = journaled_new(hooks);
    char *url = NULL;
    char *socket = NULL;
    enum belay_code code = store == NULL
                               ? error_no_memory(err)
                               : open_database(path_and_params, hooks, &store->checkpoint_db, &url, err);

    if (code == BELAY_OK) {
        store->on_warning = on_warning;
        store->context = context;
        code = open_database(path_and_params, hooks, &store->read_db, NULL, err);
    }
    if (code == BELAY_OK) {
        store->read_db->is_beside = true;
        code = sqlite_store_own(&store->checkpoint_db->base, &socket, err);
    }
    if (code == BELAY_OK) {
        code = load_records(store, err);
    }
    if (code == BELAY_OK) {
        code = begin_journal(store, err);
    }
    if (code == BELAY_OK && !store->no_checkpoint && !journaled_start_thread(store)) {
        code = error_set(err, BELAY_NO_MEMORY, "no thread could be started");
    }
    if (code != BELAY_OK) {
        free(url);
        free(socket);
        journaled_close(store == NULL ? NULL : &store->base);
        return code;
    }
    if (out_url != NULL) {
        *out_url = url;
    } else {
        free(url);
    }
    if (out_socket != NULL) {
        *out_socket = socket;
    } else {
        free(socket);
    }
    *out_store = &store->base;
    return BELAY_OK;
}

const char *journaled_store_path(const struct belay_store *base)
{
    return ((const struct journaled *)base)->checkpoint_db->path;
}
