/* Records of a store, and the struct belay_info that callers see. */
#ifndef LOCK_INFO_H
#define LOCK_INFO_H

#include <string.h>

#include "belay/store.h"

/* Whether the record is held and its lease has not ended. `now_ms` is the store's clock. */
static inline bool record_is_live(const struct belay_record *record, int64_t now_ms)
{
    return record->held && now_ms < record->expires_ms;
}

/* Whether the ticket waits for the record's own key, and not for one below it. A store may share the string. */
static inline bool ticket_is_of(const struct belay_ticket *ticket, const struct belay_record *record)
{
    return ticket->key == record->key || strcmp(ticket->key, record->key) == 0;
}

/* The holder `lock_id` of a shared lock or one with slots; NULL: there is none. */
const struct belay_holder *record_find_holder(const struct belay_record *record, const char *lock_id);
/* Whether `lock_id` is in released_ids. */
bool record_was_released(const struct belay_record *record, const char *lock_id);
/*
 * If `lock_id` is one of several holders, copy it to the record's own fields, which otherwise
 * have the holder whose lease ends last. False: no memory.
 */
bool record_show_holder(struct belay_record *record, const char *lock_id);

/* An info that borrows the record's strings, without waiters and holders. */
struct belay_info info_borrow(const struct belay_record *record, int64_t now_ms);
/* Add the holders. The caller frees the array info->holders; its strings are the record's. False: no memory. */
bool info_borrow_holders(struct belay_info *info, const struct belay_record *record, int64_t now_ms);
/* An info with strings of its own, with the holders and, if asked for, the waiters. NULL: no memory. */
struct belay_info *info_from_record(const struct belay_record *record, int64_t now_ms, bool with_queue);
/* A copy without the waiters. NULL: no memory. */
struct belay_info *info_copy(const struct belay_info *from);

/* Set valid_for_ms on all keys of the lock. */
void info_set_valid_for(struct belay_info *info, int64_t ms);

/*
 * Set `err`: `key` cannot be acquired because of `info`, which `err` then owns. Returns `code`.
 * An expired lock cannot be acquired for `margin_ms` after its end, of which `left_ms` are left.
 */
enum belay_code info_say_held(struct belay_error *err, enum belay_code code, const char *key,
                              struct belay_info *info, int64_t margin_ms, int64_t left_ms);

#endif
