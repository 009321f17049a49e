/* From a store's record to what people see. */
#ifndef LOCK_INFO_H
#define LOCK_INFO_H

#include <string.h>

#include "belay/store.h"

/* Whether the lease is over at `now_ms` on the store's clock. */
static inline bool record_is_live(const struct belay_record *record, int64_t now_ms)
{
    return record->held && now_ms < record->expires_ms;
}

/* Whether the ticket waits for the record's own key, and not for one below it. */
static inline bool ticket_is_of(const struct belay_ticket *ticket, const struct belay_record *record)
{
    return ticket->key == record->key ||
           strcmp(ticket->key, record->key) == 0; /* a store may share the string */
}

/* The holder `lock_id` of a shared lock or one with slots; NULL: there is none. */
const struct belay_holder *record_find_holder(const struct belay_record *record, const char *lock_id);
/* Whether `lock_id` is among those that were released last, as far as the store keeps them. */
bool record_was_released(const struct belay_record *record, const char *lock_id);
/*
 * If `lock_id` is one of several holders, show it in the record's own fields, instead of the
 * one whose lease ends last. False: no memory.
 */
bool record_show_holder(struct belay_record *record, const char *lock_id);

/* Without the waiters; its texts are the record's, and not to be freed. */
struct belay_info info_borrow(const struct belay_record *record, int64_t now_ms);
/* Adds the holders of a lock that may have several. `info->holders` is to be freed, their texts are the record's. */
bool info_borrow_holders(struct belay_info *info, const struct belay_record *record, int64_t now_ms);
/* With the holders, and with the waiters, which are most of it if the queue is long. NULL without memory, as below. */
struct belay_info *info_from_record(const struct belay_record *record, int64_t now_ms, bool with_queue);
/* Without the waiters. */
struct belay_info *info_copy(const struct belay_info *from);

/* How long the holder may rely on the lock: the same on all its keys. */
void info_set_valid_for(struct belay_info *info, int64_t ms);

/*
 * Say in `err` that `key` cannot be had because of `info`, which is taken over. Returns `code`.
 * `margin_ms` is how long after its end a lease keeps others out, of which `left_ms` are left.
 */
enum belay_code info_say_held(struct belay_error *err, enum belay_code code, const char *key,
                              struct belay_info *info, int64_t margin_ms, int64_t left_ms);

#endif
