/* A record in memory, as the journaled store keeps it. */
#include "store/apply/pack_internal.h"

#include <stdlib.h>

#include "base/error.h"

/* FLAG_HOLDERS: the record is not exclusive. Only then are its mode, slots and holders written. */
enum { FLAG_HELD = 1, FLAG_DURABLE = 2, FLAG_STALE_REPORTED = 4, FLAG_HOLDERS = 8 };

static void put_numbers(struct packed_writer *w, const int64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_int(w, numbers[i]);
    }
}

static void put_holder(struct packed_writer *w, const struct belay_holder *holder)
{
    const int64_t numbers[] = { holder->ttl_ms,
                                holder->heartbeat_ms,
                                holder->stale_after_ms,
                                holder->expires_ms,
                                holder->last_heartbeat_ms,
                                holder->locked_at_unix_ms,
                                holder->expires_at_unix_ms,
                                holder->last_heartbeat_unix_ms };

    put_unsigned(w,
                 (holder->durable ? FLAG_DURABLE : 0U) | (holder->stale_reported ? FLAG_STALE_REPORTED : 0U));
    put_unsigned(w, holder->token);
    put_numbers(w, numbers, sizeof numbers / sizeof numbers[0]);
    put_text(w, holder->lock_id);
    put_text(w, holder->owner);
    put_text(w, holder->owner_name);
    put_text(w, holder->acquired_by == NULL ? "" : holder->acquired_by);
    put_meta(w, holder->metadata, holder->n_metadata);
}

void holders_pack(struct buf *to, const struct belay_record *record)
{
    struct packed_writer w = { .to = to };

    put_unsigned(&w, record->n_holders);
    for (size_t i = 0; i < record->n_holders; i++) {
        put_holder(&w, &record->holders[i]);
    }
    put_texts(&w, (const char *const *)record->released_ids, record->n_released_ids);
}

/*
 * In memory a holder is a copy of its struct, followed by its strings, each with its '\0'. A lock with many holders is
 * read and written at every commit, and this form is read without going through the strings.
 */
enum { TEXTS_MAX = 4 };

/* Where the strings behind a head are; the first is at 0. */
struct texts {
    uint32_t size;
    uint32_t at[TEXTS_MAX - 1];
};

struct holder_head {
    struct belay_holder holder; /* its pointers are NULL */
    struct texts texts;
};

static void texts_measure(const char *const texts[TEXTS_MAX], struct texts *out)
{
    uint32_t at = 0;

    for (size_t i = 0; i < TEXTS_MAX; i++) {
        if (i > 0) {
            out->at[i - 1] = at;
        }
        at += (uint32_t)strlen(texts[i]) + 1;
    }
    out->size = at;
}

static void texts_put(struct buf *to, const char *const texts[TEXTS_MAX])
{
    for (size_t i = 0; i < TEXTS_MAX; i++) {
        buf_add(to, texts[i], strlen(texts[i]) + 1);
    }
}

/* Whether every string begins and ends before `end`. */
static inline bool texts_fit(const struct texts *texts, const unsigned char *from, const unsigned char *end)
{
    uint32_t size = texts->size;

    return size > 0 && size <= (size_t)(end - from) && from[size - 1] == '\0' && texts->at[0] < size &&
           texts->at[1] < size && texts->at[2] < size;
}

static void put_holder_in_place(struct packed_writer *w, const struct belay_holder *holder)
{
    const char *const texts[TEXTS_MAX] = { holder->lock_id, holder->owner, holder->owner_name,
                                           holder->acquired_by == NULL ? "" : holder->acquired_by };
    struct holder_head head;

    /* Field by field: a copy of the struct would have its padding, and equal records would differ. */
    memset(&head, 0, sizeof head);
    head.holder.token = holder->token;
    head.holder.durable = holder->durable;
    head.holder.stale_reported = holder->stale_reported;
    head.holder.ttl_ms = holder->ttl_ms;
    head.holder.heartbeat_ms = holder->heartbeat_ms;
    head.holder.stale_after_ms = holder->stale_after_ms;
    head.holder.expires_ms = holder->expires_ms;
    head.holder.last_heartbeat_ms = holder->last_heartbeat_ms;
    head.holder.locked_at_unix_ms = holder->locked_at_unix_ms;
    head.holder.expires_at_unix_ms = holder->expires_at_unix_ms;
    head.holder.last_heartbeat_unix_ms = holder->last_heartbeat_unix_ms;
    head.holder.n_metadata = holder->n_metadata;
    texts_measure(texts, &head.texts);
    buf_add(w->to, &head, sizeof head);
    texts_put(w->to, texts);
    put_meta(w, holder->metadata, holder->n_metadata);
}

static void put_released_in_place(struct packed_writer *w, const struct belay_record *record)
{
    put_unsigned(w, record->n_released_ids);
    for (size_t i = 0; i < record->n_released_ids; i++) {
        buf_add(w->to, record->released_ids[i], strlen(record->released_ids[i]) + 1);
    }
}

static bool unpack_meta(struct packed_reader *r, struct belay_meta **out_meta, size_t *out_n);

static bool is_bool(const bool *byte)
{
    return *(const unsigned char *)byte <= 1;
}

/* The holder borrows its strings from the memory that is read. */
static bool get_holder_in_place(struct packed_reader *r, struct belay_holder *holder)
{
    char *texts = (char *)r->at + sizeof(struct holder_head);
    struct holder_head head;

    if ((size_t)(r->end - r->at) < sizeof head) {
        r->bad = true;
        return true;
    }
    memcpy(&head, r->at, sizeof head);
    if (!texts_fit(&head.texts, (unsigned char *)texts, r->end) || !is_bool(&head.holder.durable) ||
        !is_bool(&head.holder.stale_reported)) {
        r->bad = true;
        return true;
    }
    *holder = head.holder;
    holder->lock_id = texts;
    holder->owner = texts + head.texts.at[0];
    holder->owner_name = texts + head.texts.at[1];
    holder->acquired_by = texts + head.texts.at[2];
    holder->metadata = NULL;
    holder->n_metadata = 0;
    r->at = (unsigned char *)texts + head.texts.size;
    return unpack_meta(r, &holder->metadata, &holder->n_metadata);
}

/*
 * Most times are close to another one, and a small difference takes few bytes. Differences wrap around, so that any
 * two times can be stored.
 */
static void put_after(struct packed_writer *w, int64_t time_ms, int64_t earlier_ms)
{
    put_int(w, (int64_t)((uint64_t)time_ms - (uint64_t)earlier_ms));
}

static int64_t get_after(struct packed_reader *r, int64_t earlier_ms)
{
    return (int64_t)((uint64_t)get_int(r) + (uint64_t)earlier_ms);
}

static void pack_times(struct packed_writer *w, const struct belay_record *record)
{
    put_int(w, record->ttl_ms);
    put_int(w, record->heartbeat_ms);
    put_int(w, record->stale_after_ms);
    put_int(w, record->last_heartbeat_ms);
    put_after(w, record->expires_ms, record->last_heartbeat_ms);
    put_after(w, record->freed_ms, record->last_heartbeat_ms);
    put_int(w, record->locked_at_unix_ms);
    put_after(w, record->expires_at_unix_ms, record->locked_at_unix_ms);
    put_after(w, record->last_heartbeat_unix_ms, record->locked_at_unix_ms);
    put_after(w, record->freed_at_unix_ms, record->locked_at_unix_ms);
}

static void unpack_times(struct packed_reader *r, struct belay_record *record)
{
    record->ttl_ms = get_int(r);
    record->heartbeat_ms = get_int(r);
    record->stale_after_ms = get_int(r);
    record->last_heartbeat_ms = get_int(r);
    record->expires_ms = get_after(r, record->last_heartbeat_ms);
    record->freed_ms = get_after(r, record->last_heartbeat_ms);
    record->locked_at_unix_ms = get_int(r);
    record->expires_at_unix_ms = get_after(r, record->locked_at_unix_ms);
    record->last_heartbeat_unix_ms = get_after(r, record->locked_at_unix_ms);
    record->freed_at_unix_ms = get_after(r, record->locked_at_unix_ms);
}

void record_pack(struct buf *to, const struct belay_record *record)
{
    struct packed_writer w = { .to = to };
    bool has_holders = record->mode != BELAY_EXCLUSIVE;
    unsigned flags = (record->held ? FLAG_HELD : 0U) | (record->durable ? FLAG_DURABLE : 0U) |
                     (record->stale_reported ? FLAG_STALE_REPORTED : 0U) | (has_holders ? FLAG_HOLDERS : 0U);
    put_unsigned(&w, flags);
    put_unsigned(&w, (uint64_t)record->outcome);
    put_unsigned(&w, record->revision);
    put_unsigned(&w, record->token);
    pack_times(&w, record);
    put_text(&w, record->lock_id);
    put_text(&w, record->owner);
    put_text(&w, record->owner_name);
    put_text(&w, record->acquired_by == NULL ? "" : record->acquired_by);
    put_meta(&w, record->metadata, record->n_metadata);
    if (has_holders) {
        put_unsigned(&w, (uint64_t)record->mode);
        put_int(&w, record->slots);
        put_unsigned(&w, record->n_holders);
        for (size_t i = 0; i < record->n_holders; i++) {
            put_holder_in_place(&w, &record->holders[i]);
        }
        put_released_in_place(&w, record);
    }
    put_unsigned(&w, record->n_intents);
    for (size_t i = 0; i < record->n_intents; i++) {
        put_text(&w, record->intents[i].lock_id);
        put_text(&w, record->intents[i].key);
        put_int(&w, record->intents[i].expires_ms);
        put_unsigned(&w, record->intents[i].shared);
    }
    pack_tickets(&w, record);
}

unsigned char *record_pack_new(struct buf *scratch, const struct belay_record *record, size_t *out_len)
{
    unsigned char *packed;

    scratch->len = 0;
    scratch->failed = false;
    record_pack(scratch, record);
    packed = scratch->failed ? NULL : malloc(scratch->len);
    if (packed != NULL) {
        memcpy(packed, scratch->data, scratch->len);
        *out_len = scratch->len;
    }
    return packed;
}

bool record_is_held_packed(const void *data)
{
    return (*(const unsigned char *)data & FLAG_HELD) != 0;
}

static char *get_copy(struct packed_reader *r, bool *ok)
{
    char *copy = strdup(get_given(r));

    *ok = *ok && copy != NULL;
    return copy;
}

/* A string that is borrowed in place; NULL: it cannot be read. */
static char *get_in_place(struct packed_reader *r)
{
    const char *text = get_given(r);

    return r->bad ? NULL : (char *)text;
}

static bool unpack_meta(struct packed_reader *r, struct belay_meta **out_meta, size_t *out_n)
{
    size_t n = get_count(r);
    struct belay_meta *meta = n == 0 ? NULL : calloc(n, sizeof *meta);
    bool ok = true;

    if (n > 0 && meta == NULL) {
        return false;
    }
    *out_meta = meta;
    *out_n = n;
    for (size_t i = 0; i < n; i++) {
        meta[i].name = get_copy(r, &ok);
        meta[i].value = get_copy(r, &ok);
    }
    return ok;
}

/* Its strings are copies. */
static bool get_holder(struct packed_reader *r, struct belay_holder *holder)
{
    char **const texts[] = { &holder->lock_id, &holder->owner, &holder->owner_name, &holder->acquired_by };
    int64_t *const numbers[] = { &holder->ttl_ms,
                                 &holder->heartbeat_ms,
                                 &holder->stale_after_ms,
                                 &holder->expires_ms,
                                 &holder->last_heartbeat_ms,
                                 &holder->locked_at_unix_ms,
                                 &holder->expires_at_unix_ms,
                                 &holder->last_heartbeat_unix_ms };
    uint64_t flags = get_unsigned(r);
    bool ok = true;

    holder->durable = (flags & FLAG_DURABLE) != 0;
    holder->stale_reported = (flags & FLAG_STALE_REPORTED) != 0;
    holder->token = get_unsigned(r);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        *numbers[i] = get_int(r);
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        *texts[i] = get_copy(r, &ok);
    }
    return ok && unpack_meta(r, &holder->metadata, &holder->n_metadata);
}

static bool unpack_holders(struct packed_reader *r, struct belay_record *record,
                           bool (*unpack)(struct packed_reader *r, struct belay_holder *holder))
{
    size_t n = get_count(r);
    bool ok = true;

    record->holders = n == 0 ? NULL : calloc(n, sizeof *record->holders);
    if (n > 0 && record->holders == NULL) {
        return false;
    }
    for (size_t i = 0; ok && !r->bad && i < n; i++) {
        record->n_holders = i + 1;
        ok = unpack(r, &record->holders[i]);
    }
    return ok;
}

/* A string of put_released_in_place(), which stays where it is; NULL: it cannot be read. */
static char *get_released_in_place(struct packed_reader *r)
{
    char *text = (char *)r->at;
    const unsigned char *end = memchr(r->at, '\0', (size_t)(r->end - r->at));

    if (end == NULL) {
        r->bad = true;
        return NULL;
    }
    r->at = end + 1;
    return text;
}

/* `in_place`: those of put_released_in_place(). Else those of holders_pack(), copied; rows of an earlier belay have none. */
static bool unpack_released(struct packed_reader *r, bool in_place, struct belay_record *record)
{
    size_t n = r->at == r->end ? 0 : get_count(r);
    bool ok = true;

    r->bad = r->bad || n > BELAY_RELEASED_MAX;
    if (n == 0 || r->bad) {
        return true;
    }
    record->released_ids = calloc(n, sizeof *record->released_ids);
    if (record->released_ids == NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        record->released_ids[i] = in_place ? get_released_in_place(r) : get_copy(r, &ok);
    }
    record->n_released_ids = n;
    return ok;
}

bool holders_unpack(const void *data, size_t len, struct belay_record *record)
{
    struct packed_reader r = { .at = data, .end = (const unsigned char *)data + len };

    return unpack_holders(&r, record, get_holder) && unpack_released(&r, false, record) && !r.bad &&
           r.at == r.end;
}

/* After the numbers, whose flags say whether the record is exclusive. */
static bool unpack_mode(struct packed_reader *r, struct belay_record *record)
{
    if (record->mode == BELAY_EXCLUSIVE) {
        return true;
    }
    record->mode = get_mode(r);
    r->bad = r->bad || record->mode == BELAY_EXCLUSIVE;
    record->slots = (int)get_int(r);
    return unpack_holders(r, record, get_holder_in_place) && unpack_released(r, true, record);
}

static bool unpack_intents(struct packed_reader *r, struct belay_record *record)
{
    size_t n = get_count(r);
    bool ok = true;

    record->intents = n == 0 ? NULL : calloc(n, sizeof *record->intents);
    if (n > 0 && record->intents == NULL) {
        return false;
    }
    record->n_intents = n;
    for (size_t i = 0; i < n; i++) {
        record->intents[i].lock_id = get_copy(r, &ok);
        record->intents[i].key = get_copy(r, &ok);
        record->intents[i].expires_ms = get_int(r);
        record->intents[i].shared = get_unsigned(r) != 0;
    }
    return ok;
}

static void unpack_numbers(struct packed_reader *r, struct belay_record *record)
{
    uint64_t flags = get_unsigned(r);

    record->held = (flags & FLAG_HELD) != 0;
    record->durable = (flags & FLAG_DURABLE) != 0;
    record->stale_reported = (flags & FLAG_STALE_REPORTED) != 0;
    record->mode = (flags & FLAG_HOLDERS) != 0 ? BELAY_SHARED : BELAY_EXCLUSIVE; /* until it is read */
    record->outcome = (enum belay_outcome)get_unsigned(r);
    record->revision = get_unsigned(r);
    record->token = get_unsigned(r);
    unpack_times(r, record);
}

bool record_unpack_numbers(const void *data, size_t len, struct belay_record *out_record)
{
    struct packed_reader r = { .at = data, .end = (const unsigned char *)data + len };
    struct belay_record record = { 0 };

    unpack_numbers(&r, &record);
    if (r.bad) {
        return false;
    }
    *out_record = record;
    return true;
}

/*
 * Called at every commit, also for a lock with a long queue: one copy of all bytes, in which
 * the strings stay.
 */
enum belay_code record_unpack(const char *key, const void *data, size_t len, struct row *out_row,
                              struct belay_error *err)
{
    size_t key_size = strlen(key) + 1;
    char *text = malloc(len + key_size);
    struct packed_reader r = { .at = (unsigned char *)text, .end = (unsigned char *)text + len };
    struct row row = { .record = { .text = text, .text_size = len + key_size } };
    bool ok;

    if (text == NULL) {
        return error_no_memory(err);
    }
    memcpy(text, data, len);
    row.record.key = memcpy(text + len, key, key_size);
    unpack_numbers(&r, &row.record);
    row.record.lock_id = get_in_place(&r);
    row.record.owner = get_in_place(&r);
    row.record.owner_name = get_in_place(&r);
    row.record.acquired_by = get_in_place(&r);
    ok = unpack_meta(&r, &row.record.metadata, &row.record.n_metadata) && unpack_mode(&r, &row.record) &&
         unpack_intents(&r, &row.record) && unpack_tickets(&r, &row);
    if (!ok || r.bad) {
        row_release(&row);
        return r.bad ? error_set(err, BELAY_BUG, "the record of '%s' in memory cannot be read", key)
                     : error_no_memory(err);
    }
    *out_row = row;
    return BELAY_OK;
}
