/*
 * The freezes of a store. All of them are one item (belay/store.h): every store that has
 * items can keep them, one read gets them all, and one conditional write changes them.
 *
 * A freeze is in force from `from` until `until`, on a wall clock. If there are two clocks, it is
 * in force while it is by at least one of them: `low` and `high` are the two times.
 *
 *     made      from                     until, or `ended` if that is earlier
 *      |---------|==========================|·········|
 *       announced        in force             grace     removed by a later change
 *
 * A freeze that is over stays in the list for a while, because of the grace: waiters acquire the
 * lock in the order of the queue, so the freeze lasts n claim times longer for the n-th waiter.
 */
#ifndef FREEZE_FREEZE_LIST_H
#define FREEZE_FREEZE_LIST_H

#include "belay/store.h"

enum { FREEZES_MAX = 100, FREEZE_KEPT_MS = 3600 * 1000 };
#define FREEZE_ITEM "list" /* its name in BELAY_SPACE_FREEZES */

struct frozen_keys {
    char id[BELAY_ID_MAX + 1];
    char *pattern; /* owned, as are the next two */
    char *reason;
    char *by;
    int64_t made_unix_ms;
    int64_t from_unix_ms;  /* 0: from the moment it was made */
    int64_t until_unix_ms; /* 0: no end */
    int64_t ended_unix_ms; /* 0: no client has ended it */
    bool reported;         /* the event of its end was recorded */
};

struct freeze_list {
    struct frozen_keys *items; /* owned */
    size_t n;
    uint64_t version; /* of the item; 0: there is none */
};

/* The present time by the slower and the faster of two clocks; equal if there is one. */
struct freeze_now {
    int64_t low_unix_ms;
    int64_t high_unix_ms;
};

/* Read the item into an empty list. BELAY_BAD_CONTENT: it is not a list of freezes. */
enum belay_code freeze_list_read(const struct belay_item *item, struct freeze_list *out_list,
                                 struct belay_error *err);
char *freeze_list_write(const struct freeze_list *list); /* JSON; the caller frees it; NULL: no memory */
void freeze_list_release(struct freeze_list *list);      /* leaves *list empty */
/* Add a copy. False: no memory. */
bool freeze_list_add(struct freeze_list *list, const struct frozen_keys *freeze);
void freeze_list_remove(struct freeze_list *list, size_t i);

bool freeze_is_over(const struct frozen_keys *freeze, int64_t unix_ms);
bool freeze_in_force(const struct frozen_keys *freeze, struct freeze_now now, int64_t grace_ms);

/*
 * BELAY_FROZEN: a key that the batch acquires is frozen. Sets `frozen` and frozen_for_ms of `out`;
 * of several freezes, those of the one that ends last.
 */
enum belay_code freeze_check(const struct freeze_list *list, const struct belay_batch *batch,
                             struct freeze_now now, struct belay_commit *out, struct belay_error *err);

#endif
