/*
 * Reading. Records are in memory. Events are in the database as far as they have
 * been brought in, else in the journal, or in the frame that will go there.
 * Long answers are read page by page and handed over with nothing locked.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/ledger/ledger_internal.h"

enum { PAGE = 128 };

enum belay_code ledger_get(struct belay_store *base, const char *const *keys, size_t n,
                           struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err)
{
    struct ledger *ledger = (struct ledger *)base;
    enum belay_code code = BELAY_OK;
    size_t done = 0;
    int64_t now_ms;

    (void)pthread_mutex_lock(&ledger->mutex);
    now_ms = sqlite_now_ms(ledger->reads);
    while (code == BELAY_OK && done < n) {
        struct row row = { 0 };

        code = ledger_load(ledger, keys[done], &row, err);
        if (code == BELAY_OK) {
            out_records[done++] = row.record;
            free(row.vouched);
        }
    }
    (void)pthread_mutex_unlock(&ledger->mutex);
    if (code != BELAY_OK) {
        while (done > 0) {
            belay_record_release(&out_records[--done]);
        }
        return code;
    }
    *out_now_ms = now_ms;
    return BELAY_OK;
}

/* ---- records ---- */

/* The next that the scan asks for; *out_is_end without one. */
static enum belay_code scan_next(struct ledger *ledger, const struct belay_scan *scan, const char *after,
                                 struct belay_record *out_record, int64_t *out_now_ms, bool *out_is_end,
                                 struct belay_error *err)
{
    const char *prefix = scan->prefix == NULL ? "" : scan->prefix;
    bool from_prefix = after == NULL || strcmp(prefix, after) > 0;
    struct row row = { 0 };
    enum belay_code code = BELAY_OK;
    struct item *item;

    (void)pthread_mutex_lock(&ledger->mutex);
    item = items_after(&ledger->table, from_prefix ? prefix : after, from_prefix);
    while (item != NULL && scan->held_only && !record_is_held_packed(item->packed) &&
           text_has_prefix(item->key, prefix)) {
        item = items_after(&ledger->table, item->key, false);
    }
    *out_is_end = item == NULL || !text_has_prefix(item->key, prefix);
    if (!*out_is_end) {
        code = record_unpack(item->key, item->packed, item->len, &row, err);
    }
    *out_now_ms = sqlite_now_ms(ledger->reads);
    (void)pthread_mutex_unlock(&ledger->mutex);
    if (code == BELAY_OK) {
        *out_record = row.record;
        free(row.vouched);
    }
    return code;
}

enum belay_code ledger_scan(struct belay_store *base, const struct belay_scan *scan, belay_record_fn fn,
                            void *context, struct belay_error *err)
{
    struct belay_record last = { 0 }; /* its key is where to go on */
    const char *after = scan->after;
    enum belay_code code;
    bool is_end;

    for (;;) {
        struct belay_record record = { 0 };
        int64_t now_ms;

        code = scan_next((struct ledger *)base, scan, after, &record, &now_ms, &is_end, err);
        if (code != BELAY_OK || is_end) {
            break;
        }
        belay_record_release(&last);
        last = record;
        after = last.key;
        if (!fn(context, &last, now_ms)) {
            break;
        }
    }
    belay_record_release(&last);
    return code;
}

/* ---- events ---- */

/* The first number that may not be in the database. With the mutex. */
static uint64_t floor_of(const struct ledger *ledger)
{
    uint64_t floor = ledger->next;

    for (int i = 0; i < JOURNAL_FILES; i++) {
        if (ledger->first[i] != 0 && ledger->first[i] < floor) {
            floor = ledger->first[i];
        }
    }
    return floor;
}

static bool is_wanted(const struct belay_event *event, const struct belay_events_query *query, uint64_t after)
{
    return event->id > after && (query->key == NULL || strcmp(event->key, query->key) == 0) &&
           (query->prefix == NULL || text_has_prefix(event->key, query->prefix));
}

typedef bool tail_fn(void *context, const struct belay_event *event);

static bool read_part(struct journal_reader *reader, struct entry_room *room,
                      const struct belay_events_query *query, uint64_t after, tail_fn *fn, void *context)
{
    const void *data;
    size_t len;
    struct journal_entry entry;

    while (journal_next(reader, &data, &len)) {
        if (!entry_unpack(data, len, room, &entry)) {
            return false;
        }
        for (size_t i = 0; entry.number + entry.n_events > after && i < entry.n_events; i++) {
            if (is_wanted(&entry.events[i], query, after) && !fn(context, &entry.events[i])) {
                return false;
            }
        }
    }
    return true;
}

/* From the last mark at or before the first that is wanted. */
static void begin_at_mark(const struct ledger *ledger, int which, uint64_t after,
                          struct journal_reader *out_reader)
{
    const struct marks *marks = &ledger->marks[which];
    size_t low = 0;
    size_t high = marks->n;

    journal_read(&ledger->journals[which], out_reader);
    /* Not beyond what is counted: a frame that is just being written is read from memory. */
    out_reader->end = ledger->journals[which].map + ledger->journals[which].used;
    while (low < high) {
        size_t middle = (low + high) / 2;

        if (marks->all[middle].number <= after + 1) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low > 0) {
        out_reader->at = ledger->journals[which].map + marks->all[low - 1].at;
        out_reader->frames = marks->all[low - 1].frames;
    }
}

/* Those that are not in the database, in their order, until fn says no. With the mutex. */
static void read_tail(const struct ledger *ledger, const struct belay_events_query *query, uint64_t after,
                      tail_fn *fn, void *context)
{
    const int order[JOURNAL_FILES] = { 1 - ledger->active, ledger->active };
    struct entry_room room = { 0 };
    struct journal_reader reader;
    bool more = true;

    for (int i = 0; more && i < JOURNAL_FILES; i++) {
        uint64_t first_of_next = i == 0 ? ledger->first[ledger->active] : 0;

        if (ledger->first[order[i]] != 0 && (first_of_next == 0 || after + 1 < first_of_next)) {
            begin_at_mark(ledger, order[i], after, &reader);
            more = read_part(&reader, &room, query, after, fn, context);
        }
    }
    if (more) {
        journal_read_buffer(&ledger->sealed, &reader);
        more = read_part(&reader, &room, query, after, fn, context);
    }
    if (more) {
        journal_read_buffer(&ledger->frame, &reader);
        (void)read_part(&reader, &room, query, after, fn, context);
    }
    entry_room_release(&room);
}

struct page {
    struct belay_event events[PAGE]; /* owned texts */
    size_t n;
    bool failed;
};

static const char *copy_text(const char *text, bool *failed)
{
    char *copy = text == NULL ? NULL : strdup(text);

    *failed = *failed || (text != NULL && copy == NULL);
    return copy;
}

static bool add_to_page(void *context, const struct belay_event *event)
{
    struct page *page = context;
    struct belay_event *copy = &page->events[page->n++];

    *copy = *event;
    copy->type = copy_text(event->type, &page->failed);
    copy->key = copy_text(event->key, &page->failed);
    copy->lock_id = copy_text(event->lock_id, &page->failed);
    copy->locked_by = copy_text(event->locked_by, &page->failed);
    copy->locked_by_name = copy_text(event->locked_by_name, &page->failed);
    copy->by = copy_text(event->by, &page->failed);
    copy->reason = copy_text(event->reason, &page->failed);
    copy->metadata = meta_copy(event->metadata, event->n_metadata);
    page->failed = page->failed || (copy->metadata == NULL && event->n_metadata > 0);
    return page->n < PAGE && !page->failed;
}

struct passing {
    belay_event_fn fn;
    void *context;
    uint64_t last; /* id that was handed over */
    bool is_over;
};

static bool pass_on(void *context, const struct belay_event *event)
{
    struct passing *passing = context;

    passing->last = event->id;
    passing->is_over = !passing->fn(passing->context, event);
    return !passing->is_over;
}

struct count {
    uint64_t *ids; /* owned; a ring of the last so many */
    size_t size;
    size_t n;
};

static bool count_one(void *context, const struct belay_event *event)
{
    struct count *count = context;

    count->ids[count->n++ % count->size] = event->id;
    return true;
}

/*
 * With query->last: after which id to begin in the tail, and how many of those
 * before it, in the database.
 */
static enum belay_code find_last(struct ledger *ledger, const struct belay_events_query *query,
                                 uint64_t *out_after, size_t *out_from_database, struct belay_error *err)
{
    struct count count = { .size = query->last };

    count.ids = calloc(count.size, sizeof *count.ids);
    if (count.ids == NULL) {
        return error_no_memory(err);
    }
    read_tail(ledger, query, query->after, count_one, &count);
    *out_from_database = count.n < query->last ? query->last - count.n : 0;
    *out_after = count.n < query->last ? query->after : count.ids[count.n % count.size] - 1;
    free(count.ids);
    return BELAY_OK;
}

static enum belay_code read_database(struct ledger *ledger, const struct belay_events_query *query,
                                     uint64_t before, struct passing *passing, struct belay_error *err)
{
    enum belay_code code = sqlite_events_before(ledger->reads, query, before, pass_on, passing, err);

    if (code == BELAY_OK && !passing->is_over && passing->last + 1 < before) {
        passing->last = before - 1;
    }
    return code;
}

static enum belay_code read_page(struct ledger *ledger, const struct belay_events_query *query,
                                 struct passing *passing, uint64_t *out_floor, struct belay_error *err)
{
    struct page *page = calloc(1, sizeof *page);
    enum belay_code code = page == NULL ? error_no_memory(err) : BELAY_OK;
    bool goes_on = true;
    bool is_end = false;

    (void)pthread_mutex_lock(&ledger->mutex);
    *out_floor = floor_of(ledger);
    if (code == BELAY_OK && passing->last + 1 >= *out_floor) {
        read_tail(ledger, query, passing->last, add_to_page, page);
        is_end = page->n < PAGE;
        code = page->failed ? error_no_memory(err) : BELAY_OK;
    }
    (void)pthread_mutex_unlock(&ledger->mutex);
    for (size_t i = 0; page != NULL && i < page->n; i++) {
        if (goes_on && code == BELAY_OK) {
            goes_on = pass_on(passing, &page->events[i]);
        }
        event_release(&page->events[i]);
    }
    passing->is_over = passing->is_over || is_end;
    free(page);
    return code;
}

enum belay_code ledger_events(struct belay_store *base, const struct belay_events_query *query,
                              belay_event_fn fn, void *context, struct belay_error *err)
{
    struct ledger *ledger = (struct ledger *)base;
    struct passing passing = { .fn = fn, .context = context, .last = query->after };
    struct belay_events_query part = *query;
    enum belay_code code = BELAY_OK;
    uint64_t floor = 0;
    bool skip_database = false;

    if (query->last > 0) {
        (void)pthread_mutex_lock(&ledger->mutex);
        code = find_last(ledger, query, &passing.last, &part.last, err);
        floor = floor_of(ledger);
        (void)pthread_mutex_unlock(&ledger->mutex);
        skip_database = part.last == 0;
    }
    if (code == BELAY_OK && query->last > 0 && !skip_database) {
        code = read_database(ledger, &part, floor, &passing, err);
    }
    part.last = 0;
    while (code == BELAY_OK && !passing.is_over) {
        code = read_page(ledger, &part, &passing, &floor, err);
        if (code == BELAY_OK && !passing.is_over && passing.last + 1 < floor) {
            part.after = passing.last;
            code = read_database(ledger, &part, floor, &passing, err);
        }
    }
    return code;
}
