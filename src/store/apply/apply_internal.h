/* Shared by apply.c and apply_holders.c. */
#ifndef STORE_APPLY_APPLY_INTERNAL_H
#define STORE_APPLY_APPLY_INTERNAL_H

#include "store/apply/apply.h"

/* apply.c. False: no memory. */
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

#endif
