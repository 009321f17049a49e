/* Shared by the files that pack entries and records; for src/store/apply only. */
#ifndef STORE_APPLY_PACK_INTERNAL_H
#define STORE_APPLY_PACK_INTERNAL_H

#include "base/packed.h"
#include "store/apply/pack.h"

static inline enum belay_mode get_mode(struct packed_reader *r)
{
    uint64_t mode = get_unsigned(r);

    r->bad = r->bad || mode > BELAY_SLOTS;
    return (enum belay_mode)mode;
}

/* ---- pack_tickets.c: the queue of a record in memory ---- */
void pack_tickets(struct packed_writer *w, const struct belay_record *record);
/* Their strings stay where they are; `row` has its key. False: no memory. */
bool unpack_tickets(struct packed_reader *r, struct row *row);

#endif
