/* Shared by the files that apply writes; for src/store/apply only. */
#ifndef STORE_APPLY_APPLY_INTERNAL_H
#define STORE_APPLY_APPLY_INTERNAL_H

#include "store/apply/apply.h"

/* apply.c: one write and its record */

/* Whether its condition holds, and the holder that it changes is there. */
bool write_may_happen(const struct belay_write *write, const struct belay_record *record, int64_t now_ms);
/* Whether it must be on disk before it is reported (sqlite_commit.c). */
bool write_must_last(const struct belay_write *write, const struct belay_record *record);
/* False: no memory. */
bool set_fields(struct belay_record *record, unsigned set, const struct belay_record *values,
                const struct txn *txn);
/* For a string that may be part of the record's block of text. */
void free_record_text(const struct belay_record *record, char *text);
bool replace_text(const struct belay_record *record, char **text, const char *with);

/* apply_holders.c: a lock that is shared or has slots */

/* The holder's fields as those of a record, which borrows them all. */
struct belay_record holder_as_record(const struct belay_holder *holder, const struct belay_record *record);
/* Whether the write ends or changes a holder that is not a process. */
bool holders_must_last(const struct belay_write *write, const struct belay_record *record);
/* The write's sets and drop_holders, for a record that has holders or a write that is about them. */
bool holders_apply(const struct belay_write *write, const struct txn *txn, struct belay_record *record);

/* apply_queue.c: tickets and intents */

/* Drop the tickets and intents that the write drops, then put those that it puts. `has_liveness` is for its ticket. False: no memory. */
bool queue_apply(const struct belay_write *write, const struct txn *txn, bool has_liveness, struct row *row);

#endif
