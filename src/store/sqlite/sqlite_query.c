/*
 * Reading. Long results are read page by page, and the callback runs without any lock: it may
 * use the store, and a slow reader does not block checkpoints.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "store/sqlite/sqlite_internal.h"

enum { PAGE = 128 };

enum belay_code sqlite_get(struct belay_store *base, const char *const *keys, size_t n,
                           struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    enum belay_code code = BELAY_OK;
    int64_t now_ms;
    size_t done = 0;
    int rc;

    (void)pthread_mutex_lock(&store->mutex);
    /* Before reading: then a lock that was renewed in between does not seem expired. */
    now_ms = sqlite_now_ms(store);
    rc = n > 1 ? db_run(store, ST_BEGIN_READ) : SQLITE_OK; /* so that they are of one snapshot */
    if (rc != SQLITE_OK) {
        code = sqlite_failed(store, rc, err);
    }
    while (code == BELAY_OK && done < n) {
        struct row row = { 0 };
        bool served = false;

        code = row_look(store, keys[done], &row, &served, err);
        if (code == BELAY_OK) {
            out_records[done++] = row_take_record(&row);
            code = served ? sqlite_redirected(store, err) : BELAY_OK;
        }
    }
    if (!sqlite3_get_autocommit(store->db)) {
        (void)db_run(store, ST_COMMIT); /* of an empty transaction */
    }
    db_rollback(store);
    (void)pthread_mutex_unlock(&store->mutex);
    if (code != BELAY_OK) {
        records_release(out_records, done);
        return code;
    }
    *out_now_ms = now_ms;
    return BELAY_OK;
}

/*
 * The smallest text greater than all that begin with `prefix`; keys are UTF-8, so no byte is
 * 255. Without a prefix a blob, which is greater than any text.
 */
static int bind_end(sqlite3_stmt *statement, int at, const char *prefix)
{
    size_t len = prefix == NULL ? 0 : strlen(prefix);
    char end[BELAY_KEY_MAX + 1];

    if (len == 0 || len > BELAY_KEY_MAX) {
        return sqlite3_bind_zeroblob(statement, at, 0);
    }
    memcpy(end, prefix, len);
    end[len - 1] = (char)((unsigned char)end[len - 1] + 1);
    return sqlite3_bind_text(statement, at, end, (int)len, SQLITE_TRANSIENT);
}

/* With the mutex: begin a read transaction. *out_served: another process, a server, owns the file. */
static int begin_look(struct sqlite_store *store, bool *out_served)
{
    struct txn txn = { 0 };
    bool other_boot;
    int rc = db_run(store, ST_BEGIN_READ);

    if (rc == SQLITE_OK) {
        rc = db_read_txn(store, &txn, &other_boot);
    }
    *out_served = txn.served;
    return rc;
}

/*
 * End what begin_look() began, and release the mutex. `rc` is the result of the last step, unless `code` is an error.
 */
static enum belay_code end_look(struct sqlite_store *store, sqlite3_stmt *statement, int rc,
                                enum belay_code code, struct belay_error *err)
{
    if (code == BELAY_OK && rc != SQLITE_OK && rc != SQLITE_DONE) {
        code = sqlite_failed(store, rc, err);
    }
    (void)sqlite3_finalize(statement);
    db_rollback(store);
    (void)pthread_mutex_unlock(&store->mutex);
    return code;
}

/* ---- records ------------------------------------------------------------ */

struct record_page {
    struct belay_record records[PAGE];
    size_t n;
    int64_t now_ms;
};

static int prepare_scan(struct sqlite_store *store, const struct belay_scan *scan, const char *after,
                        sqlite3_stmt **out_statement)
{
    bool from_prefix = after == NULL || (scan->prefix != NULL && strcmp(scan->prefix, after) > 0);
    char sql[768];
    int rc;

    (void)sqlite3_snprintf(sizeof sql, sql,
                           "SELECT %s FROM locks WHERE key %s ?1 AND key < ?2 %s ORDER BY key",
                           RECORD_COLUMNS, from_prefix ? ">=" : ">", scan->held_only ? "AND held = 1" : "");
    rc = sqlite3_prepare_v2(store->db, sql, -1, out_statement, NULL);
    if (rc == SQLITE_OK) {
        const char *from = from_prefix ? scan->prefix : after;
        rc = sqlite3_bind_text(*out_statement, 1, from == NULL ? "" : from, -1, SQLITE_TRANSIENT);
    }
    return rc == SQLITE_OK ? bind_end(*out_statement, 2, scan->prefix) : rc;
}

static enum belay_code fetch_records(struct sqlite_store *store, const struct belay_scan *scan,
                                     const char *after, struct record_page *page, struct belay_error *err)
{
    sqlite3_stmt *statement = NULL;
    enum belay_code code = BELAY_OK;
    bool served = false;
    int rc;

    page->n = 0;
    (void)pthread_mutex_lock(&store->mutex);
    page->now_ms = sqlite_now_ms(store); /* before reading, as in sqlite_get() */
    rc = begin_look(store, &served);
    if (rc == SQLITE_OK && !served) {
        rc = prepare_scan(store, scan, after, &statement);
    } else if (rc == SQLITE_OK) {
        code = sqlite_redirected(store, err);
    }
    while (rc == SQLITE_OK && code == BELAY_OK && page->n < PAGE) {
        struct row row = { 0 };

        rc = sqlite3_step(statement);
        if (rc != SQLITE_ROW) {
            break;
        }
        rc = SQLITE_OK;
        code = row_read(store, statement, &row, err);
        if (code == BELAY_OK) {
            page->records[page->n++] = row_take_record(&row);
        }
    }
    return end_look(store, statement, rc, code, err);
}

enum belay_code sqlite_scan(struct belay_store *base, const struct belay_scan *scan, belay_record_fn fn,
                            void *context, struct belay_error *err)
{
    struct record_page *page = calloc(1, sizeof *page);
    char *after = NULL;
    const char *from = scan->after;
    enum belay_code code = page == NULL ? error_no_memory(err) : BELAY_OK;
    bool more = code == BELAY_OK;

    while (more) {
        code = fetch_records((struct sqlite_store *)base, scan, from, page, err);
        more = code == BELAY_OK && page->n == PAGE;
        for (size_t i = 0; code == BELAY_OK && i < page->n; i++) {
            if (!fn(context, &page->records[i], page->now_ms)) {
                more = false;
                break;
            }
        }
        if (more) {
            free(after);
            from = after = strdup(page->records[page->n - 1].key);
            more = after != NULL;
            code = more ? BELAY_OK : error_no_memory(err);
        }
        records_release(page->records, page->n);
        if (code != BELAY_OK) {
            break;
        }
    }
    free(after);
    free(page);
    return code;
}

/* ---- events ------------------------------------------------------------- */

struct event_page {
    struct belay_event events[PAGE]; /* their strings are owned */
    size_t n;
};

void event_release(struct belay_event *event)
{
    free((char *)event->type);
    free((char *)event->key);
    free((char *)event->lock_id);
    free((char *)event->locked_by);
    free((char *)event->locked_by_name);
    free((char *)event->by);
    free((char *)event->reason);
    meta_free((struct belay_meta *)event->metadata, event->n_metadata);
    memset(event, 0, sizeof *event);
}

static void release_events(struct event_page *page)
{
    while (page->n > 0) {
        event_release(&page->events[--page->n]);
    }
}

static enum belay_code event_from_row(struct sqlite_store *store, sqlite3_stmt *statement,
                                      struct belay_event *event, struct belay_error *err)
{
    const char **texts[] = { &event->type,           &event->key, &event->lock_id, NULL, &event->locked_by,
                             &event->locked_by_name, &event->by,  &event->reason };
    const char *metadata = (const char *)sqlite3_column_text(statement, 12);
    struct belay_meta *meta = NULL;
    enum belay_code code = BELAY_OK;

    event->id = (uint64_t)sqlite3_column_int64(statement, 0);
    event->at_unix_ms = sqlite3_column_int64(statement, 1);
    event->level = (enum belay_level)sqlite3_column_int(statement, 2);
    event->token = (uint64_t)sqlite3_column_int64(statement, 6);
    event->duration_ms = sqlite3_column_int64(statement, 11);
    for (int i = 0; i < (int)(sizeof texts / sizeof texts[0]); i++) {
        const char *text = (const char *)sqlite3_column_text(statement, 3 + i);

        if (texts[i] != NULL && text != NULL && (*texts[i] = strdup(text)) == NULL) {
            return error_no_memory(err);
        }
    }
    if (metadata != NULL) {
        code = json_read_meta(store, metadata, &meta, &event->n_metadata, err);
        event->metadata = meta;
    }
    return code;
}

/*
 * ?1 is the key and ?2 its bucket, or the first of a range and its end; the events are after
 * id ?3 and before id ?4. For one key first the events in `history`, then those that are not
 * indexed yet: SQLite merges the two, each in its order. For a range all events are read in
 * the order of ids; the plus keeps SQLite from using another index.
 */
static const char *event_source(const struct belay_events_query *query)
{
    return query->key != NULL
               ? "FROM history CROSS JOIN events e ON e.id = history.id WHERE history.bucket = ?2 AND "
                 "history.id > ?3 AND history.id < ?4 AND e.key = ?1 "
                 "UNION ALL SELECT %s FROM events e WHERE e.id > ?3 AND e.id < ?4 AND e.key = ?1 AND "
                 "e.id > (SELECT listed FROM meta WHERE id = 1)"
               : "FROM events e WHERE +e.key >= ?1 AND +e.key < ?2 AND e.id > ?3 AND e.id < ?4";
}

static struct binder prepare_events(struct sqlite_store *store, const struct belay_events_query *query,
                                    const char *columns, const char *order, uint64_t after, uint64_t before)
{
    const char *from = query->key != NULL ? query->key : query->prefix;
    struct binder binder = { NULL, SQLITE_OK };
    char source[512];
    char sql[1024];

    (void)sqlite3_snprintf(sizeof source, source, event_source(query), columns);
    (void)sqlite3_snprintf(sizeof sql, sql, "SELECT %s %s ORDER BY 1 %s", columns, source, order);
    binder.rc = sqlite3_prepare_v2(store->db, sql, -1, &binder.statement, NULL);
    bind_text(&binder, 1, from == NULL ? "" : from);
    if (query->key != NULL) {
        bind_int(&binder, 2, hash_acquisition(query->key, "") & (BUCKETS - 1));
    } else if (binder.rc == SQLITE_OK) {
        binder.rc = bind_end(binder.statement, 2, query->prefix);
    }
    bind_int(&binder, 3, (int64_t)after);
    bind_int(&binder, 4, (int64_t)before);
    return binder;
}

/* The id after which the last query->last events begin. */
static enum belay_code start_of_last(struct sqlite_store *store, const struct belay_events_query *query,
                                     uint64_t before, uint64_t *out_after, struct belay_error *err)
{
    struct binder select;
    int rc;

    *out_after = query->after;
    if (query->last == 0) {
        return BELAY_OK;
    }
    (void)pthread_mutex_lock(&store->mutex);
    select = prepare_events(store, query, "e.id", "DESC LIMIT 1 OFFSET ?5", query->after, before);
    bind_int(&select, 5, (int64_t)query->last - 1);
    rc = select.rc == SQLITE_OK ? sqlite3_step(select.statement) : select.rc;
    if (rc == SQLITE_ROW) {
        *out_after = (uint64_t)sqlite3_column_int64(select.statement, 0) - 1;
    }
    (void)sqlite3_finalize(select.statement);
    (void)pthread_mutex_unlock(&store->mutex);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? BELAY_OK : sqlite_failed(store, rc, err);
}

static enum belay_code fetch_events(struct sqlite_store *store, const struct belay_events_query *query,
                                    uint64_t after, uint64_t before, struct event_page *page,
                                    struct belay_error *err)
{
    struct binder select = { NULL, SQLITE_OK };
    enum belay_code code = BELAY_OK;
    bool served = false;
    int rc;

    (void)pthread_mutex_lock(&store->mutex);
    rc = begin_look(store, &served);
    if (rc == SQLITE_OK && !served) {
        select =
            prepare_events(store, query,
                           "e.id, at_unix_ms, level, type, e.key, lock_id, token, locked_by, locked_by_name, "
                           "done_by, reason, duration_ms, metadata",
                           "", after, before);
        rc = select.rc;
    } else if (rc == SQLITE_OK) {
        code = sqlite_redirected(store, err);
    }
    while (rc == SQLITE_OK && code == BELAY_OK && page->n < PAGE) {
        rc = sqlite3_step(select.statement);
        if (rc != SQLITE_ROW) {
            break;
        }
        rc = SQLITE_OK;
        code = event_from_row(store, select.statement, &page->events[page->n++], err);
    }
    return end_look(store, select.statement, rc, code, err);
}

enum belay_code sqlite_events_before(struct sqlite_store *store, const struct belay_events_query *query,
                                     uint64_t before, belay_event_fn fn, void *context,
                                     struct belay_error *err)
{
    struct event_page *page = calloc(1, sizeof *page);
    uint64_t after = 0;
    enum belay_code code =
        page == NULL ? error_no_memory(err) : start_of_last(store, query, before, &after, err);
    bool more = code == BELAY_OK;

    while (more) {
        code = fetch_events(store, query, after, before, page, err);
        more = code == BELAY_OK && page->n == PAGE;
        after = page->n > 0 ? page->events[page->n - 1].id : after;
        for (size_t i = 0; code == BELAY_OK && i < page->n; i++) {
            if (!fn(context, &page->events[i])) {
                more = false;
                break;
            }
        }
        release_events(page);
    }
    free(page);
    return code;
}

enum belay_code sqlite_events(struct belay_store *base, const struct belay_events_query *query,
                              belay_event_fn fn, void *context, struct belay_error *err)
{
    return sqlite_events_before((struct sqlite_store *)base, query, INT64_MAX, fn, context, err);
}
