/*
 * Conditional writes: whether the condition holds, and the record after the write.
 * Shared by the SQLite store and the journaled store; no database and no file here.
 */
#ifndef STORE_APPLY_APPLY_H
#define STORE_APPLY_APPLY_H

#include "belay/store.h"

/* A record, and what only these stores keep with it. */
struct row {
    struct belay_record record;
    bool stored;        /* the database has it */
    bool *has_liveness; /* owned; beside record.tickets: the waiter holds a liveness lock in the wake file */
};

/* A write transaction: what it finds when it begins. */
struct txn {
    int64_t now_ms;
    int64_t unix_ms;
    uint64_t number;  /* the last without an event */
    uint64_t newest;  /* event; 0: none */
    uint64_t next;    /* number */
    uint64_t ceiling; /* numbers below this may be handed out */
    bool served;      /* another process, a server, owns the file */
};

void row_release(struct row *row);
/* The row of a key that has no record. */
enum belay_code row_absent(const char *key, struct row *out_row, struct belay_error *err);

/* BELAY_REFUSED: the record does not meet its condition. */
enum belay_code write_check(const struct belay_write *write, const struct belay_record *record,
                            int64_t now_ms, struct belay_error *err);
/* True: the write changes nothing. It is only a condition, or would make an empty record. */
bool write_leaves_alone(const struct belay_write *write, const struct belay_record *record);
/* Whether it must be on disk before it is reported (sqlite_commit.c). */
bool write_must_last(const struct belay_write *write, const struct belay_record *record);
/* `has_liveness` is for the ticket that it puts. */
enum belay_code write_apply(const struct belay_write *write, const struct txn *txn, bool has_liveness,
                            struct row *row, struct belay_error *err);

/* Of a lock that is shared or has slots. NULL: the record has no such holder. */
struct belay_holder *holder_find(const struct belay_record *record, const char *lock_id);
/* The record's own fields repeat the holder whose lease ends last, if there is any. False: no memory. */
bool holders_repeat(struct belay_record *record);

/*
 * For the events of one key that leave some fields to the store: those of the key's record
 * before the batch, or of one of its holders. NULL: no event needs it.
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
/* One for each write; one if there is none. `rows` are those before the batch. */
enum belay_code before_remember(struct before *befores, const struct belay_batch *batch,
                                const struct row *rows, int64_t unix_ms, struct belay_error *err);
void before_release(struct before *befores, size_t n);
/* The event as it is stored, completed from the transaction and the record before. Borrows from all. */
struct belay_event event_complete(const struct belay_batch *batch, size_t index, const struct txn *txn,
                                  const struct before *befores);

/* Whether batch->require_unused_id is about this write's key. */
bool write_needs_unused(const struct belay_batch *batch, size_t index);
/* The record's present or last holder, or one of several, has that id. */
bool record_names(const struct belay_record *record, const char *lock_id);
/*
 * The result of commit(): after BELAY_OK all records as they are now, after
 * BELAY_REFUSED the one of writes[refused]. They move from the rows to `records`.
 */
struct belay_commit commit_answer(enum belay_code code, const struct belay_batch *batch, size_t refused,
                                  const struct txn *txn, struct row *rows, struct belay_record *records);
/* Whether the event says that a lock id acquired its key. */
bool event_takes(const struct belay_event *event);

#endif
