/*
 * Reading. Records are in memory. Events up to the last checkpoint are in the
 * database, later ones in the journal, and the newest in the frames in memory.
 * Results are read page by page and passed to the caller without the mutex, which
 * is never held for longer than a few hundred entries take.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/journaled/journaled_internal.h"

enum {
    PAGE = 128,
    SCAN_RECORDS = 32, /* copied with the mutex held */
    SCAN_BYTES = 256 << 10,
    SCAN_LOOKS = 128, /* records examined, likewise */
    TAIL_WORK = 1024, /* entries of the journal, likewise */
    UNPACK_WORK = 4,  /* unpacking an entry takes as long as skipping so many */
};

enum belay_code journaled_get(struct belay_store *base, const char *const *keys, size_t n,
                              struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err)
{
    struct journaled *store = (struct journaled *)base;
    enum belay_code code = BELAY_OK;
    size_t done = 0;
    int64_t now_ms;

    (void)pthread_mutex_lock(&store->mutex);
    now_ms = sqlite_now_ms(store->read_db);
    while (code == BELAY_OK && done < n) {
        struct row row = { 0 };

        code = journaled_load(store, keys[done], &row, err);
        if (code == BELAY_OK) {
            out_records[done++] = row_take_record(&row);
        }
    }
    (void)pthread_mutex_unlock(&store->mutex);
    if (code != BELAY_OK) {
        records_release(out_records, done);
        return code;
    }
    *out_now_ms = now_ms;
    return BELAY_OK;
}

/* ---- records ---- */

/* Some records as they are in the table, to be unpacked without the mutex. */
struct scan_page {
    struct buf data; /* keys, each with its '\0', and packed records in turn */
    struct {
        size_t key;
        size_t packed;
        size_t len;
    } at[SCAN_RECORDS];
    size_t n;
    size_t last; /* in data: the key to continue after, whether its record was copied or not */
    bool is_end;
    int64_t now_ms;
};

static void page_add(struct scan_page *page, const struct stored_record *stored, bool is_wanted)
{
    page->last = page->data.len;
    buf_add(&page->data, stored->key, strlen(stored->key) + 1);
    if (is_wanted) {
        page->at[page->n].key = page->last;
        page->at[page->n].packed = page->data.len;
        page->at[page->n++].len = stored->len;
        buf_add(&page->data, stored->packed, stored->len);
    }
}

/* The next records that the scan asks for. False: no memory. */
static bool copy_page(struct journaled *store, const struct belay_scan *scan, const char *after,
                      struct scan_page *page)
{
    const char *prefix = scan->prefix == NULL ? "" : scan->prefix;
    bool from_prefix = after == NULL || strcmp(prefix, after) > 0;
    const struct stored_record *stored;
    const struct stored_record *last = NULL;
    const struct stored_record *copied = NULL;

    page->n = 0;
    (void)pthread_mutex_lock(&store->mutex);
    page->now_ms = sqlite_now_ms(store->read_db);
    stored = table_after(&store->table, from_prefix ? prefix : after, from_prefix);
    page->data.len = 0; /* `after` may be in it */
    for (int i = 0; i < SCAN_LOOKS && page->n < SCAN_RECORDS && page->data.len < SCAN_BYTES && stored != NULL;
         i++) {
        if (!text_has_prefix(stored->key, prefix)) {
            stored = NULL;
            break;
        }
        last = stored;
        if (!scan->held_only || record_is_held_packed(stored->packed)) {
            page_add(page, stored, true);
            copied = stored;
        }
        stored = table_after(&store->table, stored->key, false);
    }
    page->is_end = stored == NULL;
    if (last != copied) {
        page_add(page, last, false);
    }
    (void)pthread_mutex_unlock(&store->mutex);
    return !page->data.failed;
}

/* Returns whether to continue. */
static bool report_page(const struct scan_page *page, belay_record_fn fn, void *context,
                        enum belay_code *out_code, struct belay_error *err)
{
    bool goes_on = true;

    for (size_t i = 0; i < page->n && goes_on; i++) {
        struct row row = { 0 };

        *out_code = record_unpack(page->data.data + page->at[i].key, page->data.data + page->at[i].packed,
                                  page->at[i].len, &row, err);
        if (*out_code != BELAY_OK) {
            return false;
        }
        goes_on = fn(context, &row.record, page->now_ms);
        row_release(&row);
    }
    return goes_on;
}

enum belay_code journaled_scan(struct belay_store *base, const struct belay_scan *scan, belay_record_fn fn,
                               void *context, struct belay_error *err)
{
    struct scan_page *page = calloc(1, sizeof *page);
    const char *after = scan->after;
    enum belay_code code = BELAY_OK;

    if (page == NULL) {
        return error_no_memory(err);
    }
    page->data = (struct buf)BUF_INIT(SIZE_MAX / 2);
    do {
        if (!copy_page((struct journaled *)base, scan, after, page)) {
            code = error_no_memory(err);
            break;
        }
        after = page->is_end ? NULL : page->data.data + page->last;
    } while (report_page(page, fn, context, &code, err) && after != NULL);
    buf_release(&page->data);
    free(page);
    return code;
}

/* ---- events ---- */

/* The first number that may not be in the database. With the mutex. */
static uint64_t floor_of(const struct journaled *store)
{
    uint64_t floor = store->next;

    for (int i = 0; i < JOURNAL_FILES; i++) {
        if (store->first[i] != 0 && store->first[i] < floor) {
            floor = store->first[i];
        }
    }
    return floor;
}

static bool event_matches(const struct belay_event *event, const struct belay_events_query *query,
                          uint64_t after)
{
    return event->id > after && (query->key == NULL || strcmp(event->key, query->key) == 0) &&
           (query->prefix == NULL || text_has_prefix(event->key, query->prefix));
}

typedef bool tail_fn(void *context, const struct belay_event *event);

/* A query over the entries that are not in the database, one part at a time. */
struct tail {
    const struct belay_events_query *query;
    tail_fn *fn;
    void *context;
    uint64_t after; /* all events up to this id were examined */
    int left;       /* of TAIL_WORK */
    bool is_over;   /* fn returned false, or an entry cannot be read */
    size_t key_len; /* of query->key; 0: none */
};

/*
 * An entry without the key's bytes has no event of it. Most have not, and to
 * look for them is ten times faster than to unpack the entry.
 */
static bool may_have(const struct tail *tail, const void *data, size_t len)
{
    return tail->key_len == 0 || memmem(data, len, tail->query->key, tail->key_len) != NULL;
}

static bool report_entry(const struct tail *tail, const struct journal_entry *entry)
{
    bool goes_on = true;

    for (size_t i = 0; i < entry->n_events && goes_on; i++) {
        goes_on = !event_matches(&entry->events[i], tail->query, tail->after) ||
                  tail->fn(tail->context, &entry->events[i]);
    }
    return goes_on;
}

/* False: stop here, because TAIL_WORK is done or tail->is_over. */
static bool read_tail_entries(struct journal_reader *reader, struct entry_room *room, struct tail *tail)
{
    const void *data;
    size_t len;
    struct journal_entry entry;

    while (tail->left > 0 && journal_next(reader, &data, &len)) {
        uint64_t last = entry_last_packed(data, len);

        if (last <= tail->after && last != 0) {
            continue; /* between the indexed frame and the first that is wanted */
        }
        tail->left--;
        if (last == 0 || may_have(tail, data, len)) {
            tail->left -= UNPACK_WORK;
            tail->is_over = !entry_unpack(data, len, room, &entry) || !report_entry(tail, &entry);
        }
        if (tail->is_over) {
            return false;
        }
        tail->after = last;
    }
    return tail->left > 0;
}

/* From the last indexed frame at or before the first event that is wanted. */
static void begin_at_indexed_frame(const struct journaled *store, int which, uint64_t after,
                                   struct journal_reader *out_reader)
{
    const struct frame_index *index = &store->frame_index[which];
    size_t low = 0;
    size_t high = index->n;

    journal_read(&store->journals[which], out_reader);
    /* Not beyond `used`: a frame that is being written is read from memory. */
    out_reader->end = store->journals[which].map + store->journals[which].used;
    while (low < high) {
        size_t middle = (low + high) / 2;

        if (index->all[middle].number <= after + 1) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low > 0) {
        out_reader->at = store->journals[which].map + index->all[low - 1].at;
        out_reader->frames = index->all[low - 1].frames;
    }
}

/*
 * The events that are not in the database, in their order, until fn returns false or TAIL_WORK
 * is done. Returns whether the end was reached. With the mutex.
 */
static bool read_tail(const struct journaled *store, struct tail *tail)
{
    const int order[JOURNAL_FILES] = { 1 - store->active, store->active };
    struct entry_room room = { 0 };
    struct journal_reader reader;
    bool more = true;

    tail->left = TAIL_WORK;
    tail->key_len = tail->query->key == NULL ? 0 : strlen(tail->query->key);
    for (int i = 0; more && i < JOURNAL_FILES; i++) {
        uint64_t first_of_next = i == 0 ? store->first[store->active] : 0;

        if (store->first[order[i]] != 0 && (first_of_next == 0 || tail->after + 1 < first_of_next)) {
            begin_at_indexed_frame(store, order[i], tail->after, &reader);
            more = read_tail_entries(&reader, &room, tail);
        }
    }
    if (more) {
        journal_read_buffer(&store->flushing, &reader);
        more = read_tail_entries(&reader, &room, tail);
    }
    if (more) {
        journal_read_buffer(&store->frame, &reader);
        more = read_tail_entries(&reader, &room, tail);
    }
    entry_room_release(&room);
    return more || tail->is_over;
}

struct journaled_page {
    struct belay_event events[PAGE]; /* owned texts */
    size_t n;
    bool failed;
};

static bool add_to_page(void *context, const struct belay_event *event)
{
    struct journaled_page *page = context;
    struct belay_event *copy = &page->events[page->n++];
    bool ok = true;

    *copy = *event;
    copy->type = text_copy(event->type, &ok);
    copy->key = text_copy(event->key, &ok);
    copy->lock_id = text_copy(event->lock_id, &ok);
    copy->locked_by = text_copy(event->locked_by, &ok);
    copy->locked_by_name = text_copy(event->locked_by_name, &ok);
    copy->by = text_copy(event->by, &ok);
    copy->reason = text_copy(event->reason, &ok);
    copy->metadata = meta_copy(event->metadata, event->n_metadata);
    page->failed = !ok || (copy->metadata == NULL && event->n_metadata > 0);
    return page->n < PAGE && !page->failed;
}

/* Events on their way to the caller of journaled_events(). */
struct passing {
    belay_event_fn fn;
    void *context;
    uint64_t last; /* id that was passed on */
    bool is_over;  /* the caller wants no more, or there are no more */
};

static bool forward_event(void *context, const struct belay_event *event)
{
    struct passing *passing = context;

    passing->last = event->id;
    passing->is_over = !passing->fn(passing->context, event);
    return !passing->is_over;
}

/* Counts events, and keeps the ids of the last ones. */
struct count {
    uint64_t *ids; /* owned; a ring of the last so many */
    size_t size;
    size_t n;
};

static bool count_event(void *context, const struct belay_event *event)
{
    struct count *count = context;

    count->ids[count->n++ % count->size] = event->id;
    return true;
}

/*
 * Count the events that are wanted after `from`, those that are not in the database included. If a
 * checkpoint writes some of them meanwhile, they are counted in the database.
 */
static enum belay_code count_after(struct journaled *store, const struct belay_events_query *query,
                                   uint64_t from, struct count *count, struct belay_error *err)
{
    struct tail tail = { .query = query, .fn = count_event, .context = count, .after = from };
    enum belay_code code = BELAY_OK;
    bool is_end = false;

    count->n = 0;
    while (code == BELAY_OK && !is_end) {
        struct belay_events_query part = *query;
        uint64_t floor;

        (void)pthread_mutex_lock(&store->mutex);
        floor = floor_of(store);
        if (tail.after + 1 >= floor) {
            is_end = read_tail(store, &tail);
        }
        (void)pthread_mutex_unlock(&store->mutex);
        if (!is_end && tail.after + 1 < floor) {
            part.after = tail.after;
            part.last = 0;
            code = sqlite_events_before(store->read_db, &part, floor, count_event, count, err);
            tail.after = floor - 1;
        }
    }
    return code;
}

/* The number before the indexed frame that is `back` from the end of the active journal; else `otherwise`. */
static uint64_t before_indexed_frame(struct journaled *store, size_t back, uint64_t otherwise)
{
    const struct frame_index *index;
    uint64_t number = otherwise;

    (void)pthread_mutex_lock(&store->mutex);
    index = &store->frame_index[store->active];
    if (back <= index->n && index->all[index->n - back].number > otherwise + 1) {
        number = index->all[index->n - back].number - 1;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    return number;
}

/*
 * With query->last: the id after which to begin in the tail, which starts at `floor`, and
 * how many events are to come from the database before it. Searches backwards from the end.
 */
static enum belay_code find_tail_start(struct journaled *store, const struct belay_events_query *query,
                                       uint64_t floor, uint64_t *out_after, size_t *out_from_database,
                                       struct belay_error *err)
{
    uint64_t first = query->after + 1 < floor ? floor - 1 : query->after;
    struct count count = { .size = query->last };
    enum belay_code code = BELAY_OK;
    uint64_t from;

    count.ids = calloc(count.size, sizeof *count.ids);
    if (count.ids == NULL) {
        return error_no_memory(err);
    }
    for (size_t back = 1; code == BELAY_OK; back *= 4) {
        from = before_indexed_frame(store, back, first);
        code = count_after(store, query, from, &count, err);
        if (count.n >= query->last || from == first) {
            break;
        }
    }
    *out_from_database = count.n < query->last ? query->last - count.n : 0;
    *out_after = count.n < query->last ? first : count.ids[count.n % count.size] - 1;
    free(count.ids);
    return code;
}

static enum belay_code forward_checkpointed(struct journaled *store, const struct belay_events_query *query,
                                            uint64_t before, struct passing *passing, struct belay_error *err)
{
    enum belay_code code = sqlite_events_before(store->read_db, query, before, forward_event, passing, err);

    if (code == BELAY_OK && !passing->is_over && passing->last + 1 < before) {
        passing->last = before - 1;
    }
    return code;
}

static enum belay_code forward_tail_page(struct journaled *store, const struct belay_events_query *query,
                                         struct passing *passing, uint64_t *out_floor,
                                         struct belay_error *err)
{
    struct journaled_page *page = calloc(1, sizeof *page);
    struct tail tail = { .query = query, .fn = add_to_page, .context = page, .after = passing->last };
    enum belay_code code = BELAY_OK;
    bool goes_on = true;
    bool is_end = false;

    if (page == NULL) {
        return error_no_memory(err);
    }
    (void)pthread_mutex_lock(&store->mutex);
    *out_floor = floor_of(store);
    if (passing->last + 1 >= *out_floor) {
        is_end = read_tail(store, &tail) && page->n < PAGE;
        code = page->failed ? error_no_memory(err) : BELAY_OK;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    for (size_t i = 0; i < page->n; i++) {
        if (goes_on && code == BELAY_OK) {
            goes_on = forward_event(passing, &page->events[i]);
        }
        event_release(&page->events[i]);
    }
    if (!tail.is_over && goes_on && tail.after > passing->last) {
        passing->last = tail.after; /* no event up to there is wanted */
    }
    passing->is_over = passing->is_over || is_end;
    free(page);
    return code;
}

enum belay_code journaled_events(struct belay_store *base, const struct belay_events_query *query,
                                 belay_event_fn fn, void *context, struct belay_error *err)
{
    struct journaled *store = (struct journaled *)base;
    struct passing passing = { .fn = fn, .context = context, .last = query->after };
    struct belay_events_query part = *query;
    enum belay_code code = BELAY_OK;
    uint64_t floor = 0;

    if (query->last > 0) {
        (void)pthread_mutex_lock(&store->mutex);
        floor = floor_of(store);
        (void)pthread_mutex_unlock(&store->mutex);
        code = find_tail_start(store, query, floor, &passing.last, &part.last, err);
    }
    if (code == BELAY_OK && query->last > 0 && part.last > 0) {
        code = forward_checkpointed(store, &part, floor, &passing, err);
    }
    part.last = 0;
    while (code == BELAY_OK && !passing.is_over) {
        code = forward_tail_page(store, &part, &passing, &floor, err);
        if (code == BELAY_OK && !passing.is_over && passing.last + 1 < floor) {
            part.after = passing.last;
            code = forward_checkpointed(store, &part, floor, &passing, err);
        }
    }
    return code;
}
