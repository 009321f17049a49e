/*
 * Conditional writes: whether the condition holds, and the record after the write (apply.c); and a
 * batch of them, which happens as a whole or not at all (apply_batch.c).
 * Shared by the SQLite store and the journaled store; no database and no file here.
 */
#ifndef STORE_APPLY_APPLY_H
#define STORE_APPLY_APPLY_H

#include "base/buf.h"
#include "belay/store.h"
#include "freeze/freeze_list.h"

/* A record, and what only these stores keep with it. */
struct row {
    struct belay_record record;
    bool stored;           /* the database has it */
    bool is_changed;       /* by the batch; set by batch_apply() */
    unsigned char *packed; /* owned; the changed record as batch_pack() (pack.h) packed it */
    size_t packed_len;
    bool *has_liveness; /* owned; beside record.tickets: the waiter holds a liveness lock in the wake file */
};

/* The state in which a transaction finds the store. */
struct txn {
    int64_t now_ms;   /* the store's clock */
    int64_t unix_ms;  /* wall clock */
    uint64_t number;  /* the last one that a batch without events took */
    uint64_t newest;  /* id of the newest event; 0: there is none */
    uint64_t next;    /* the number that this transaction takes */
    uint64_t ceiling; /* numbers below this may be issued */
    bool served;      /* another process, a server, owns the file */
};

void row_release(struct row *row);
/* The record alone: releases the rest of the row. */
struct belay_record row_take_record(struct row *row);
/* Release the first n of an array. */
void records_release(struct belay_record *records, size_t n);
/* The row of a key that has no record. */
enum belay_code row_absent(const char *key, struct row *out_row, struct belay_error *err);

/* True: the write changes nothing. It is only a condition, or would make an empty record. */
bool write_leaves_alone(const struct belay_write *write, const struct belay_record *record);
/* `has_liveness` is for the ticket that it puts. */
enum belay_code write_apply(const struct belay_write *write, const struct txn *txn, bool has_liveness,
                            struct row *row, struct belay_error *err);

/* Of a lock that is shared or has slots. NULL: the record has no such holder. */
struct belay_holder *holder_find(const struct belay_record *record, const char *lock_id);
/* The record's own fields repeat the holder whose lease ends last, if there is any. False: no memory. */
bool holders_repeat(struct belay_record *record);

/*
 * The values that the events of one key take from the key's record as it was before the batch, or from one of its holders. A
 * string that no event takes is NULL.
 */
struct before {
    const char *lock_id; /* borrowed from the record, as are the next two, or from `kept` */
    const char *owner;
    const char *owner_name;
    char *kept[3];                     /* owned; copies of what the batch replaces */
    const struct belay_meta *metadata; /* borrowed; NULL: none, or the batch replaces it */
    size_t n_metadata;
    struct belay_meta *kept_metadata; /* owned; the same if the batch may free the record's */
    const char *new_id; /* borrowed; the id that replaces lock_id and keeps the metadata; or NULL */
    uint64_t token;
    int64_t held_ms;
    bool is_known;
};

/* So many writes and events need no malloc(): a lock and its ancestors are few. */
enum { BATCH_FEW = 4 };

/*
 * A batch while it is committed. The store sets `txn` and loads the rows, then
 *
 *     batch_check() -> the store's own checks -> batch_apply() -> the store saves rows and events
 */
struct batch_work {
    const struct belay_batch *batch; /* borrowed, or `found` once batch_check() has seen the rows */
    const struct belay_batch *asked; /* borrowed; as the caller gave it */
    struct txn txn;
    struct row *rows;             /* beside batch->writes; owned, as the next two are, unless they are few */
    struct before *before;        /* the same; one if there is no write */
    struct belay_event *events;   /* beside batch->events: as they are stored; borrow from all of this */
    struct belay_record *records; /* owned; for batch_answer() */
    size_t refused;               /* the write whose condition does not hold */
    struct belay_commit frozen;   /* owned; what freeze_check() says if a freeze refuses the batch */
    struct belay_batch found;     /* the same batch, with its own writes: co_holder is set for any_mode */
    struct belay_write *found_writes; /* owned; NULL: no write needs that */

    /* batch_begin() zeroes only as many of these as there are writes. */
    struct row few_rows[BATCH_FEW];
    struct before few_before[BATCH_FEW];
    struct belay_event few_events[BATCH_FEW];
};

enum belay_code batch_begin(struct batch_work *work, const struct belay_batch *batch,
                            struct belay_error *err);
void batch_release(struct batch_work *work);
/*
 * BELAY_FROZEN: a key that the batch acquires is frozen; `freezes` is used only if the batch says so.
 * BELAY_REFUSED: a row does not meet its condition.
 */
enum belay_code batch_check(struct batch_work *work, const struct freeze_list *freezes,
                            struct belay_error *err);
/* Whether the lock id has acquired the key before, as far as the store remembers. */
typedef enum belay_code (*id_used_fn)(void *context, const char *key, const char *lock_id, bool *out_used,
                                      struct belay_error *err);
/* BELAY_ID_USED: batch->require_unused_id has had one of the keys that it is to acquire (L5). */
enum belay_code batch_check_unused(const struct batch_work *work, id_used_fn is_used, void *context,
                                   struct belay_error *err);
/* Whether it must be on disk before it is reported (sqlite_commit.c). */
bool batch_must_last(const struct batch_work *work);
/* Change the rows and complete the events. `has_liveness` is for the tickets that are put; NULL: all have it. */
enum belay_code batch_apply(struct batch_work *work, const bool *has_liveness, struct belay_error *err);
/*
 * The result of commit(): after BELAY_OK all records as they are now, after
 * BELAY_REFUSED the one that was. They move from the rows. After another code *out stays as it is.
 */
void batch_answer(struct batch_work *work, enum belay_code code, struct belay_commit *out);

/* Whether the event says that a lock id acquired its key. */
bool event_takes(const struct belay_event *event);

#endif
