/*
 * The binary form of records and commits, for the memory of the journaled store and for its journal.
 * Both are made of numbers and strings (base/packed.h): a commit repeats its strings, in its write and in its event.
 */
#ifndef STORE_APPLY_PACK_H
#define STORE_APPLY_PACK_H

#include "base/buf.h"
#include "store/apply/apply.h"

/* One commit with its decisions made: applied to the same records it always has the same result. */
struct journal_entry {
    uint64_t number; /* its first number */
    int64_t now_ms;
    int64_t unix_ms;
    const struct belay_write *writes; /* without their conditions, which held */
    size_t n_writes;
    const struct belay_event *events; /* without id and time, which follow from the above */
    size_t n_events;
    const char *const *deletes; /* keys of records that maintenance removed */
    size_t n_deletes;
};

/* Its last number. */
static inline uint64_t entry_last(const struct journal_entry *entry)
{
    return entry->number + (entry->n_events == 0 ? 0 : entry->n_events - 1);
}

/* Memory for reading entries; empty at first, reused for each. */
struct entry_room {
    struct belay_write *writes; /* owned, as are all of these */
    struct belay_record *values;
    struct belay_put_ticket *tickets;
    struct belay_put_intent *intents;
    size_t cap_intents;
    size_t cap_writes;
    struct belay_event *events;
    size_t cap_events;
    struct belay_meta *meta;
    size_t cap_meta;
    const char **texts;
    size_t cap_texts;
};
void entry_room_release(struct entry_room *room);

/*
 * After batch_apply(): pack the rows that were changed, by way of `scratch`, and append the batch as an entry to `frame`.
 * After an error part of it may be there.
 */
enum belay_code batch_pack(struct batch_work *work, struct buf *scratch, struct buf *frame,
                           struct belay_error *err);

enum { ENTRY_HEAD = sizeof(uint32_t) }; /* the length of the entry */
/* Append it with its head. frame->failed afterwards if there was no memory. */
void entry_pack(struct buf *frame, const struct journal_entry *entry);
/* The next two take an entry without its head. Its last number; 0: it cannot be read. */
uint64_t entry_last_packed(const void *data, size_t len);
/* The whole entry, borrowed from `data` and `room`. False: it cannot be read, or there is no memory. */
bool entry_unpack(const void *data, size_t len, struct entry_room *room, struct journal_entry *out_entry);

/* A record without its key. After unpacking, most of its strings are in one piece of memory. */
void record_pack(struct buf *to, const struct belay_record *record);
/* The same by way of `scratch`, in memory that the caller frees. NULL: no memory. */
unsigned char *record_pack_new(struct buf *scratch, const struct belay_record *record, size_t *out_len);
enum belay_code record_unpack(const char *key, const void *data, size_t len, struct row *out_row,
                              struct belay_error *err);
/* The holders alone. After unpacking each string is a copy. False: it cannot be read, or there is no memory. */
void holders_pack(struct buf *to, const struct belay_record *record);
bool holders_unpack(const void *data, size_t len, struct belay_record *record);
/* Without unpacking all of it: whether it is held; its numbers, without strings and lists. */
bool record_is_held_packed(const void *data);
bool record_unpack_numbers(const void *data, size_t len, struct belay_record *out_record);

#endif
