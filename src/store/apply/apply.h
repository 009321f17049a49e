/*
 * What a conditional write means: whether its condition holds, and the record after
 * it. Shared by the SQLite store and the journaled store; no database and no file here.
 */
#ifndef STORE_APPLY_APPLY_H
#define STORE_APPLY_APPLY_H

#include "belay/store.h"

/* A record with what only this store knows of it. */
struct row {
    struct belay_record record;
    bool stored;        /* there is a row of it */
    bool *has_liveness; /* owned; beside record.tickets: the waiter holds a liveness lock in the wake file */
};

/* What a write transaction finds when it begins. */
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
/* A row that says that there is no record of `key`. */
enum belay_code row_absent(const char *key, struct row *out_row, struct belay_error *err);

/* BELAY_REFUSED if its condition does not hold of the record. */
enum belay_code write_check(const struct belay_write *write, const struct belay_record *record,
                            int64_t now_ms, struct belay_error *err);
/* A condition and nothing more, or one of those that make no record. */
bool write_leaves_alone(const struct belay_write *write, const struct belay_record *record);
/* Whether losing it to a power cut would break a promise (sqlite_commit.c). */
bool write_must_last(const struct belay_write *write, const struct belay_record *record);
/* `has_liveness` is for the ticket that it puts. */
enum belay_code write_apply(const struct belay_write *write, const struct txn *txn, bool has_liveness,
                            struct row *row, struct belay_error *err);

/* Of writes[0]'s record before the batch, for events that leave it to the store to say. NULL: none does. */
struct before {
    const char *lock_id; /* borrowed from the record, as are the next two, or from `kept` */
    const char *owner;
    const char *owner_name;
    char *kept[3];                     /* owned; of these what the batch replaces */
    const struct belay_meta *metadata; /* borrowed; NULL: none, or the batch replaces it */
    size_t n_metadata;
    const char *new_id; /* borrowed; the id that replaces lock_id and keeps the metadata; or NULL */
    uint64_t token;
    int64_t held_ms;
};
enum belay_code before_remember(struct before *before, const struct belay_batch *batch,
                                const struct belay_record *record, int64_t unix_ms, struct belay_error *err);
void before_release(struct before *before);
/* An event as it is kept, with what only the store knows. Borrows from all. */
struct belay_event event_complete(const struct belay_batch *batch, size_t index, const struct txn *txn,
                                  const struct before *before);
/*
 * What the port answers: after BELAY_OK all records as they are now, after
 * BELAY_REFUSED the one of writes[refused]. They move from the rows to `records`.
 */
struct belay_commit commit_answer(enum belay_code code, const struct belay_batch *batch, size_t refused,
                                  const struct txn *txn, struct row *rows, struct belay_record *records);
/* It says that a lock id took a key. */
bool event_takes(const struct belay_event *event);

#endif
