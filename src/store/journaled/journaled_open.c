#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/text.h"
#include "store/journaled/journaled_internal.h"

enum {
    JOURNAL_BYTES = 64 << 20,
    JOURNAL_FIRST_BYTES = 2 << 20, /* of the one a server starts with: it must not keep anybody waiting */
    FRAME_MAX_BYTES = 512 << 20,
    IDLE_MS = 1000,
    TICKET_MS = 3600000, /* their waiters are connections of this process: it drops them when they go */
};

static void ledger_close(struct belay_store *base)
{
    struct ledger *ledger = (struct ledger *)base;
    struct belay_error err = BELAY_ERROR_INIT;

    if (ledger == NULL) {
        return;
    }
    ledger_stop_thread(ledger);
    if (ledger->folds != NULL && ledger->journals[0].fd >= 0 && !ledger->stays &&
        ledger_fold_all(ledger, &err) != BELAY_OK && ledger->on_warning != NULL) {
        ledger->on_warning(ledger->context, err.text);
    }
    belay_error_release(&err);
    for (int i = 0; i < JOURNAL_FILES; i++) {
        journal_close(&ledger->journals[i]);
        free(ledger->journals[i].path);
    }
    items_release(&ledger->table);
    ids_release(&ledger->ids);
    buf_release(&ledger->frame);
    buf_release(&ledger->sealed);
    buf_release(&ledger->scratch);
    free(ledger->sweep_key);
    free(ledger->warning);
    if (ledger->reads != NULL) {
        ledger->reads->base.ops->close(&ledger->reads->base);
    }
    if (ledger->folds != NULL && ledger->stays) {
        sqlite_abandon(ledger->folds);
    }
    if (ledger->folds != NULL) {
        ledger->folds->base.ops->close(&ledger->folds->base);
    }
    (void)pthread_mutex_destroy(&ledger->mutex);
    (void)pthread_cond_destroy(&ledger->wake);
    (void)pthread_cond_destroy(&ledger->written);
    free(ledger);
}

static struct belay_store_capabilities ledger_capabilities(struct belay_store *base)
{
    (void)base;
    return (struct belay_store_capabilities){
        .is_local = true, .margin_ms = 0, .claim_ms = 1000, .poll_ms = 1000, .ticket_ttl_ms = TICKET_MS
    };
}

/* Waking is between threads of this process, through the file that is there for processes. */
static uint32_t ledger_listen(struct belay_store *base, const char *lock_id)
{
    return sqlite_listen(&((struct ledger *)base)->reads->base, lock_id);
}

static void ledger_wait(struct belay_store *base, const char *lock_id, uint32_t listened, int64_t timeout_ms,
                        struct belay_cancel *cancel)
{
    sqlite_wait(&((struct ledger *)base)->reads->base, lock_id, listened, timeout_ms, cancel);
}

static void ledger_wake(struct belay_store *base, const char *lock_id)
{
    sqlite_wake(&((struct ledger *)base)->reads->base, lock_id);
}

/* The registry's items are few and seldom change: they stay in the database. */
static enum belay_code ledger_item_get(struct belay_store *base, const char *space, const char *name,
                                       struct belay_item *out_item, struct belay_error *err)
{
    return sqlite_item_get(&((struct ledger *)base)->reads->base, space, name, out_item, err);
}

static enum belay_code ledger_item_put(struct belay_store *base, const struct belay_item_write *write,
                                       uint64_t *out_version, struct belay_error *err)
{
    return sqlite_item_put(&((struct ledger *)base)->reads->base, write, out_version, err);
}

static enum belay_code ledger_item_list(struct belay_store *base, const char *space, belay_item_fn fn,
                                        void *context, struct belay_error *err)
{
    return sqlite_item_list(&((struct ledger *)base)->reads->base, space, fn, context, err);
}

static enum belay_code ledger_identity(struct belay_store *base, char out_id[BELAY_STORE_ID_SIZE],
                                       struct belay_error *err)
{
    return sqlite_identity(&((struct ledger *)base)->reads->base, out_id, err);
}

static const struct belay_store_ops ledger_ops = {
    .name = "ledger",
    .close = ledger_close,
    .get = ledger_get,
    .commit = ledger_commit,
    .scan = ledger_scan,
    .events = ledger_events,
    .capabilities = ledger_capabilities,
    .listen = ledger_listen,
    .wait = ledger_wait,
    .wake = ledger_wake,
    .item_get = ledger_item_get,
    .item_put = ledger_item_put,
    .item_list = ledger_item_list,
    .sync = ledger_sync,
    .is_synced = ledger_is_synced,
    .batches = ledger_batches,
    .backup = ledger_backup,
    .identity = ledger_identity,
};

static struct ledger *ledger_new(const struct ledger_hooks *hooks)
{
    struct ledger *ledger = calloc(1, sizeof *ledger);
    pthread_condattr_t attributes;

    if (ledger == NULL) {
        return NULL;
    }
    ledger->base.ops = &ledger_ops;
    (void)pthread_mutex_init(&ledger->mutex, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&ledger->wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_cond_init(&ledger->written, NULL);
    ledger->journal_bytes = hooks != NULL && hooks->journal_bytes > 0 ? hooks->journal_bytes : JOURNAL_BYTES;
    ledger->idle_ms = hooks != NULL && hooks->idle_ms > 0 ? hooks->idle_ms : IDLE_MS;
    ledger->stays = hooks != NULL && hooks->stays;
    ledger->frame = (struct buf)BUF_INIT(FRAME_MAX_BYTES);
    ledger->sealed = (struct buf)BUF_INIT(FRAME_MAX_BYTES);
    ledger->scratch = (struct buf)BUF_INIT(FRAME_MAX_BYTES);
    ledger->journals[0].fd = ledger->journals[1].fd = -1;
    if (!items_init(&ledger->table) || !ids_init(&ledger->ids)) {
        ledger_close(&ledger->base);
        return NULL;
    }
    return ledger;
}

/* ---- what the database has ---- */

struct loading {
    struct ledger *ledger;
    enum belay_code code;
    struct belay_error *err;
};

static bool load_record(void *context, const struct belay_record *record, int64_t now_ms)
{
    struct loading *loading = context;
    struct ledger *ledger = loading->ledger;
    struct item *item = item_new(record->key);

    /* Their waiters were connections of a process that is gone. For a moment, they may come back. */
    for (size_t i = 0; i < record->n_tickets; i++) {
        if (record->tickets[i].expires_ms > now_ms + SQLITE_PLACE_KEPT_MS) {
            record->tickets[i].expires_ms = now_ms + SQLITE_PLACE_KEPT_MS;
        }
    }
    ledger->scratch.len = 0;
    record_pack(&ledger->scratch, record);
    if (item != NULL && !ledger->scratch.failed) {
        item->packed = malloc(ledger->scratch.len);
    }
    if (item == NULL || item->packed == NULL || !items_add(&ledger->table, item)) {
        item_free(item);
        loading->code = error_no_memory(loading->err);
        return false;
    }
    memcpy(item->packed, ledger->scratch.data, ledger->scratch.len);
    item->len = ledger->scratch.len;
    return true;
}

static enum belay_code load_ids(struct ledger *ledger, struct belay_error *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = db_begin(ledger->folds, false);

    if (rc == SQLITE_OK) {
        rc = sweep_all_events(ledger->folds); /* which puts the newest into the index */
    }
    if (rc == SQLITE_OK) {
        rc = db_run(ledger->folds, ST_COMMIT);
    }
    db_rollback(ledger->folds);
    if (rc == SQLITE_OK) {
        rc = sqlite3_prepare_v2(ledger->folds->db, "SELECT hash FROM acquisitions", -1, &statement, NULL);
    }
    while (rc == SQLITE_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        ids_add(&ledger->ids, (uint64_t)sqlite3_column_int64(statement, 0));
        rc = SQLITE_OK;
    }
    (void)sqlite3_finalize(statement);
    return rc == SQLITE_DONE ? BELAY_OK : sqlite_failed(ledger->folds, rc, err);
}

static enum belay_code load(struct ledger *ledger, struct belay_error *err)
{
    struct belay_scan all = { 0 };
    struct loading loading = { .ledger = ledger, .err = err };
    struct txn txn = { 0 };
    bool other_boot;
    enum belay_code code = sqlite_scan(&ledger->folds->base, &all, load_record, &loading, err);
    int rc;

    if (code == BELAY_OK) {
        code = loading.code;
    }
    if (code == BELAY_OK) {
        code = load_ids(ledger, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    rc = db_read_txn(ledger->folds, &txn, &other_boot);
    ledger->next = txn.next;
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(ledger->folds, rc, err);
}

/* One file to begin with; the thread makes the other. */
static enum belay_code begin_journal(struct ledger *ledger, struct belay_error *err)
{
    size_t first = ledger->journal_bytes < JOURNAL_FIRST_BYTES ? ledger->journal_bytes : JOURNAL_FIRST_BYTES;
    enum belay_code code = BELAY_OK;
    uint64_t id = 0;

    /* Its sign is lost in no database. */
    if (!random_bytes(&id, sizeof id) || (id = (id >> 1) | 1) == 0) {
        return error_set(err, BELAY_UNREACHABLE, "the system gives no random bytes");
    }
    for (int i = 0; code == BELAY_OK && i < JOURNAL_FILES; i++) {
        ledger->journals[i].id = id;
        ledger->journals[i].path = journal_path(ledger->folds->path, i);
        code = ledger->journals[i].path == NULL ? error_no_memory(err) : BELAY_OK;
    }
    journal_frame_init(&ledger->frame);
    journal_frame_init(&ledger->sealed);
    if (code == BELAY_OK) {
        code = journal_begin(&ledger->journals[0], 1, first, ledger->folds->path, err);
    }
    if (code == BELAY_OK) {
        ledger->ahead = (uint64_t)sqlite_numbers_ahead(ledger->folds);
        ledger->ceiling = ledger->next + ledger->ahead;
        code = sqlite_journal_want(ledger->folds, id, 1, 0, ledger->ceiling, err);
    }
    return code == BELAY_OK && (ledger->frame.failed || ledger->sealed.failed) ? error_no_memory(err) : code;
}

static enum belay_code open_database(const char *path_and_params, const struct ledger_hooks *hooks,
                                     struct sqlite_store **out_store, char **out_url, struct belay_error *err)
{
    struct belay_store *store = NULL;
    enum belay_code code =
        sqlite_store_open(path_and_params, hooks == NULL ? NULL : hooks->sqlite, &store, out_url, err);

    *out_store = (struct sqlite_store *)store;
    return code;
}

enum belay_code ledger_store_open(const char *path_and_params, const struct ledger_hooks *hooks,
                                  void (*on_warning)(void *context, const char *text), void *context,
                                  struct belay_store **out_store, char **out_url, char **out_socket,
                                  struct belay_error *err)
{
    struct ledger *ledger = ledger_new(hooks);
    char *url = NULL;
    char *socket = NULL;
    enum belay_code code = ledger == NULL ? error_no_memory(err)
                                          : open_database(path_and_params, hooks, &ledger->folds, &url, err);

    if (code == BELAY_OK) {
        ledger->on_warning = on_warning;
        ledger->context = context;
        code = open_database(path_and_params, hooks, &ledger->reads, NULL, err);
    }
    if (code == BELAY_OK) {
        ledger->reads->is_beside = true;
        code = sqlite_store_own(&ledger->folds->base, &socket, err);
    }
    if (code == BELAY_OK) {
        code = load(ledger, err);
    }
    if (code == BELAY_OK) {
        code = begin_journal(ledger, err);
    }
    if (code == BELAY_OK && !ledger->stays && !ledger_start_thread(ledger)) {
        code = error_set(err, BELAY_NO_MEMORY, "no thread could be started");
    }
    if (code != BELAY_OK) {
        free(url);
        free(socket);
        ledger_close(ledger == NULL ? NULL : &ledger->base);
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
    *out_store = &ledger->base;
    return BELAY_OK;
}

const char *ledger_store_path(const struct belay_store *base)
{
    return ((const struct ledger *)base)->folds->path;
}
