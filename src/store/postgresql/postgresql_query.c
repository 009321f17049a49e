/* Reading. Long results are read page by page, and no connection is held while the callback runs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

#define PAGE_TEXT "256"
enum { PAGE = 256, TAIL_EVERY = 16, TAIL_SETTLE_MS = 2000 };

/* An array of texts, as PostgreSQL writes one. */
static char *array_text(const char *const *keys, size_t n)
{
    struct buf text = BUF_INIT(1 << 20);

    buf_adds(&text, "{");
    for (size_t i = 0; i < n; i++) {
        buf_adds(&text, i == 0 ? "\"" : ",\"");
        for (const char *at = keys[i]; *at != '\0'; at++) {
            if (*at == '"' || *at == '\\') {
                buf_adds(&text, "\\");
            }
            buf_add(&text, at, 1);
        }
        buf_adds(&text, "\"");
    }
    buf_adds(&text, "}");
    return buf_take(&text);
}

/*
 * Read records, with the time as the first column. If the clock has jumped, leases may seem to have ended: they are
 * read once more when all have begun again. *out_result: the caller clears it; NULL after an error.
 */
static enum belay_code read_by_clock(struct pg_store *store, const struct pg_call *call,
                                     PGresult **out_result, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    bool is_stale = true;

    for (int i = 0; code == BELAY_OK && is_stale && i < 2; i++) {
        int64_t asked_boot_ms = clock_boot_ms();

        PQclear(*out_result);
        *out_result = NULL;
        is_stale = false;
        code = pg_call(store, call, out_result, err);
        if (code == BELAY_OK && PQntuples(*out_result) > 0) {
            pg_saw_clock(store, pg_number(*out_result, 0, 0), asked_boot_ms);
            code = pg_mend_clock(store, asked_boot_ms + pg_timeout_ms(store, 0), err);
            is_stale = pg_was_mended_since(store, asked_boot_ms);
        }
    }
    if (code != BELAY_OK) {
        PQclear(*out_result);
        *out_result = NULL;
    }
    return code;
}

static enum belay_code read_time(struct pg_store *store, int64_t *out_now_ms, struct belay_error *err)
{
    enum belay_code code = pg_ask_time(store, out_now_ms, err);

    return code == BELAY_OK ? pg_mend_clock(store, clock_boot_ms() + pg_timeout_ms(store, 0), err) : code;
}

enum belay_code pg_get(struct belay_store *base, const char *const *keys, size_t n,
                       struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err)
{
    char *text = array_text(keys, n);
    const char *values[] = { text };
    struct pg_call call = { PG_GET, values, 1, true, 0 };
    PGresult *result = NULL;
    enum belay_code code = text == NULL ? error_no_memory(err) : BELAY_OK;
    size_t done = 0;

    if (code == BELAY_OK && pg_is_unsettled(pg_of(base))) {
        code = pg_settle(pg_of(base), 0, err);
    }
    if (code == BELAY_OK) {
        code = n == 0 ? read_time(pg_of(base), out_now_ms, err)
                      : read_by_clock(pg_of(base), &call, &result, err);
    }
    if (code == BELAY_OK && n > 0 && PQntuples(result) != (int)n) {
        code =
            error_set(err, BELAY_BUG, "PostgreSQL answered %d records instead of %zu", PQntuples(result), n);
    }
    while (code == BELAY_OK && done < n) {
        code = pg_read_record(result, (int)done, 1, &out_records[done], err);
        done += code == BELAY_OK ? 1 : 0;
    }
    if (code == BELAY_OK && n > 0) {
        *out_now_ms = pg_number(result, 0, 0);
    }
    while (code != BELAY_OK && done > 0) {
        belay_record_release(&out_records[--done]);
    }
    PQclear(result);
    free(text);
    return code;
}

/* ---- records ---- */

/* *out_last: the caller frees it; NULL: that was all. */
static enum belay_code scan_page(struct belay_store *base, const struct belay_scan *scan, const char *after,
                                 belay_record_fn fn, void *context, char **out_last, struct belay_error *err)
{
    const char *values[] = { scan->prefix == NULL ? "" : scan->prefix, after, scan->held_only ? "t" : "f",
                             PAGE_TEXT };
    struct pg_call call = { PG_SCAN, values, 4, true, 0 };
    PGresult *result = NULL;
    enum belay_code code = read_by_clock(pg_of(base), &call, &result, err);
    int n = code == BELAY_OK ? PQntuples(result) : 0;
    bool more = n == PAGE;

    *out_last = NULL;
    for (int i = 0; code == BELAY_OK && i < n; i++) {
        struct belay_record record = { 0 };

        code = pg_read_record(result, i, 1, &record, err);
        if (code == BELAY_OK && !fn(context, &record, pg_number(result, i, 0))) {
            i = n;
            more = false;
        }
        belay_record_release(&record);
    }
    if (code == BELAY_OK && more) {
        *out_last = strdup(PQgetvalue(result, n - 1, 1));
        code = *out_last == NULL ? error_no_memory(err) : BELAY_OK;
    }
    PQclear(result);
    return code;
}

enum belay_code pg_scan(struct belay_store *base, const struct belay_scan *scan, belay_record_fn fn,
                        void *context, struct belay_error *err)
{
    char *last = NULL;
    enum belay_code code =
        scan_page(base, scan, scan->after == NULL ? "" : scan->after, fn, context, &last, err);

    while (code == BELAY_OK && last != NULL) {
        char *after = last;

        code = scan_page(base, scan, after, fn, context, &last, err);
        free(after);
    }
    return code;
}

/* ---- events ---- */

static const char *text_or_null(const PGresult *result, int row, int column)
{
    return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

/* Borrows from the result, except for the metadata. */
static enum belay_code read_event(const PGresult *result, int row, struct belay_event *out_event,
                                  struct belay_error *err)
{
    struct belay_meta *meta = NULL;
    enum belay_code code = BELAY_OK;

    *out_event = (struct belay_event){
        .id = (uint64_t)pg_number(result, row, 0),
        .at_unix_ms = pg_number(result, row, 1),
        .level = (enum belay_level)pg_number(result, row, 2),
        .type = PQgetvalue(result, row, 3),
        .key = PQgetvalue(result, row, 4),
        .lock_id = text_or_null(result, row, 5),
        .token = (uint64_t)pg_number(result, row, 6),
        .locked_by = text_or_null(result, row, 7),
        .locked_by_name = text_or_null(result, row, 8),
        .by = text_or_null(result, row, 9),
        .reason = text_or_null(result, row, 10),
        .duration_ms = pg_number(result, row, 11),
    };
    if (!PQgetisnull(result, row, 12)) {
        code = pg_read_meta(PQgetvalue(result, row, 12), &meta, &out_event->n_metadata, err);
        out_event->metadata = meta;
    }
    return code;
}

/* The id after which the last so many begin. */
static enum belay_code find_last(struct belay_store *base, const struct belay_events_query *query,
                                 uint64_t *after, struct belay_error *err)
{
    char from[24], last[24];
    const char *values[] = { query->key, query->prefix == NULL ? "" : query->prefix, from, last };
    struct pg_call call = { PG_BEFORE_LAST, values, 4, true, 0 };
    PGresult *result = NULL;
    enum belay_code code;

    (void)snprintf(from, sizeof from, "%" PRIu64, *after);
    (void)snprintf(last, sizeof last, "%zu", query->last);
    code = pg_call(pg_of(base), &call, &result, err);
    if (code == BELAY_OK && PQntuples(result) == 1 && !PQgetisnull(result, 0, 0)) {
        *after = (uint64_t)pg_number(result, 0, 0);
    }
    PQclear(result);
    return code;
}

static enum belay_code events_page(struct belay_store *base, const struct belay_events_query *query,
                                   uint64_t *after, belay_event_fn fn, void *context, bool *out_more,
                                   struct belay_error *err)
{
    char from[24];
    const char *values[] = { query->key, query->prefix == NULL ? "" : query->prefix, from, PAGE_TEXT };
    struct pg_call call = { PG_EVENTS, values, 4, true, 0 };
    PGresult *result = NULL;
    enum belay_code code;
    int n;

    (void)snprintf(from, sizeof from, "%" PRIu64, *after > INT64_MAX ? (uint64_t)INT64_MAX : *after);
    code = pg_call(pg_of(base), &call, &result, err);
    n = code == BELAY_OK ? PQntuples(result) : 0;
    *out_more = n == PAGE;
    for (int i = 0; code == BELAY_OK && i < n; i++) {
        struct belay_event event;

        code = read_event(result, i, &event, err);
        *after = event.id;
        if (code == BELAY_OK && !fn(context, &event)) {
            i = n;
            *out_more = false;
        }
        meta_free((struct belay_meta *)event.metadata, event.n_metadata);
    }
    PQclear(result);
    return code;
}

/*
 * A client that follows the events of a prefix asks for those after the last one that it got, which may be long ago:
 * each time all later events of other keys would be read again. So the store remembers how far it has read.
 *
 *     the last event that is settled -> flush -> read those of the prefix: none -> begin there the next time
 *
 * Settled: below the oldest open transaction, so nothing can appear before it any more. Flushed: its id is not used
 * again after a crash. That costs two calls, and is done every TAIL_EVERY times.
 */
static bool tail_is(const struct pg_tail *tail, const struct belay_events_query *query)
{
    return tail->prefix != NULL && strcmp(tail->prefix, query->prefix) == 0 && tail->after == query->after;
}

/* The id to begin after. */
static uint64_t tail_begin(struct pg_store *store, const struct belay_events_query *query, bool *out_is_due)
{
    struct pg_tail *tail = &store->tail;
    uint64_t after;

    (void)pthread_mutex_lock(&store->mutex);
    if (!tail_is(tail, query)) {
        free(tail->prefix);
        *tail =
            (struct pg_tail){ .prefix = strdup(query->prefix), .after = query->after, .read = query->after };
    }
    tail->times++;
    *out_is_due = tail->times % TAIL_EVERY == 0;
    after = tail_is(tail, query) ? tail->read : query->after;
    (void)pthread_mutex_unlock(&store->mutex);
    return after;
}

static void tail_end(struct pg_store *store, const struct belay_events_query *query, uint64_t read)
{
    (void)pthread_mutex_lock(&store->mutex);
    if (tail_is(&store->tail, query) && read > store->tail.read) {
        store->tail.read = read;
    }
    (void)pthread_mutex_unlock(&store->mutex);
}

/* The last event that is settled and flushed, of any key; `after`: not known. */
static uint64_t find_settled(struct belay_store *base, uint64_t after)
{
    struct belay_events_query last = { .last = 1 };
    uint64_t before = after;
    bool found = find_last(base, &last, &before, NULL) == BELAY_OK && before > after &&
                 pg_settle(pg_of(base), TAIL_SETTLE_MS, NULL) == BELAY_OK;

    return found ? before + 1 : after;
}

static enum belay_code tail_events(struct belay_store *base, const struct belay_events_query *query,
                                   belay_event_fn fn, void *context, struct belay_error *err)
{
    bool is_due;
    uint64_t begin = tail_begin(pg_of(base), query, &is_due);
    uint64_t settled = is_due ? find_settled(base, begin) : begin;
    uint64_t after = begin;
    enum belay_code code = BELAY_OK;
    bool more = true;

    while (more && code == BELAY_OK) {
        code = events_page(base, query, &after, fn, context, &more, err);
    }
    if (code == BELAY_OK && after == begin) {
        tail_end(pg_of(base), query, settled);
    }
    return code;
}

enum belay_code pg_events(struct belay_store *base, const struct belay_events_query *query, belay_event_fn fn,
                          void *context, struct belay_error *err)
{
    uint64_t after = query->after > INT64_MAX ? INT64_MAX : query->after;
    enum belay_code code = query->last == 0 ? BELAY_OK : find_last(base, query, &after, err);
    bool more = code == BELAY_OK;

    if (query->key == NULL && query->prefix != NULL && query->prefix[0] != '\0' && query->last == 0 &&
        query->after > 0) {
        return tail_events(base, query, fn, context, err);
    }
    while (more && code == BELAY_OK) {
        code = events_page(base, query, &after, fn, context, &more, err);
    }
    return code;
}
