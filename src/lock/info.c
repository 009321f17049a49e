#include "lock/info.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

const char *belay_status_name(enum belay_status status)
{
    switch (status) {
    case BELAY_STATUS_ACTIVE:
        return "active";
    case BELAY_STATUS_EXPIRED:
        return "expired";
    case BELAY_STATUS_RELEASED:
        return "released";
    case BELAY_STATUS_NONE:
        break;
    }
    return "none";
}

const char *belay_mode_name(enum belay_mode mode)
{
    switch (mode) {
    case BELAY_SHARED:
        return "shared";
    case BELAY_SLOTS:
        return "slots";
    case BELAY_EXCLUSIVE:
        break;
    }
    return "exclusive";
}

const char *belay_outcome_name(enum belay_outcome outcome)
{
    switch (outcome) {
    case BELAY_OUTCOME_COMPLETED:
        return "completed";
    case BELAY_OUTCOME_FAILED:
        return "failed";
    case BELAY_OUTCOME_FORCED:
        return "forced";
    case BELAY_OUTCOME_NONE:
        break;
    }
    return NULL;
}

/* Frees what an info points to. */
static void release_info(struct belay_info *info)
{
    free(info->key);
    free(info->lock_id);
    free(info->locked_by);
    free(info->locked_by_name);
    free(info->acquired_by);
    meta_free(info->metadata, info->n_metadata);
    for (size_t i = 0; !info->has_packed_lists && i < info->n_waiters; i++) {
        free(info->waiters[i].key);
        free(info->waiters[i].locked_by);
        free(info->waiters[i].locked_by_name);
    }
    free(info->waiters);
    for (size_t i = 0; !info->has_packed_lists && i < info->n_holders; i++) {
        release_info(&info->holders[i]);
    }
    free(info->holders);
    for (size_t i = 0; i < info->n_joint; i++) {
        release_info(&info->joint[i]);
    }
    free(info->joint);
}

void belay_info_free(struct belay_info *info)
{
    if (info != NULL) {
        release_info(info);
        free(info);
    }
}

/* The holder declared a heartbeat, and has sent none for stale_after_ms (S4.7). */
static bool is_stale(const struct belay_record *record, int64_t now_ms)
{
    return record_is_live(record, now_ms) && record->heartbeat_ms > 0 &&
           now_ms - record->last_heartbeat_ms > record->stale_after_ms;
}

/* A store may read its clock a little earlier than it wrote the lease by; nothing lasts longer than its ttl. */
static int64_t expires_in_ms(const struct belay_record *record, int64_t now_ms)
{
    int64_t left_ms = record->expires_ms - now_ms;

    return record->ttl_ms > 0 && left_ms > record->ttl_ms ? record->ttl_ms : left_ms;
}

struct belay_info info_borrow(const struct belay_record *record, int64_t now_ms)
{
    bool is_live = record_is_live(record, now_ms);

    return (struct belay_info){
        .key = (char *)text_or_empty(record->key),
        .lock_id = (char *)text_or_empty(record->lock_id),
        .token = record->token,
        .locked_by = (char *)text_or_empty(record->owner),
        .locked_by_name = (char *)text_or_empty(record->owner_name),
        .status = !record->held ? BELAY_STATUS_RELEASED
                  : is_live     ? BELAY_STATUS_ACTIVE
                                : BELAY_STATUS_EXPIRED,
        .outcome = record->outcome,
        .locked_at_unix_ms = record->locked_at_unix_ms,
        .expires_at_unix_ms = record->expires_at_unix_ms,
        .released_at_unix_ms = record->held ? 0 : record->freed_at_unix_ms,
        .last_heartbeat_unix_ms = record->heartbeat_ms > 0 ? record->last_heartbeat_unix_ms : 0,
        .ttl_ms = record->ttl_ms,
        .expires_in_ms = is_live ? expires_in_ms(record, now_ms) : 0,
        .valid_for_ms = -1,
        .is_stale = is_stale(record, now_ms),
        .metadata = record->metadata,
        .n_metadata = record->n_metadata,
        .acquired_by =
            record->acquired_by == NULL || record->acquired_by[0] == '\0' ? NULL : record->acquired_by,
        .mode = record->mode,
        .slots = record->mode == BELAY_SLOTS ? record->slots : 0,
    };
}

/* A record with one of several holders in its own fields. All strings are borrowed. */
static struct belay_record record_of_holder(const struct belay_record *record,
                                            const struct belay_holder *holder)
{
    return (struct belay_record){ .key = record->key,
                                  .revision = record->revision,
                                  .held = true,
                                  .holder = *holder,
                                  .mode = record->mode,
                                  .slots = record->slots };
}

/*
 * Each list of an info is one block of memory: the elements, then their metadata and strings. A
 * lock may have many holders and a long queue, and an info is made for each client that is
 * refused or waits: one allocation for a list saves time.
 */
struct pack {
    struct belay_meta *meta; /* the free part of the block for metadata */
    char *text;              /* and for strings */
};

static void pack_info(struct pack *pack, struct belay_info *info)
{
    const struct belay_meta *from = info->metadata;
    struct belay_meta *to = pack->meta;

    info->key = text_place(&pack->text, info->key);
    info->lock_id = text_place(&pack->text, info->lock_id);
    info->locked_by = text_place(&pack->text, info->locked_by);
    info->locked_by_name = text_place(&pack->text, info->locked_by_name);
    info->acquired_by = text_place(&pack->text, info->acquired_by);
    for (size_t i = 0; i < info->n_metadata; i++) {
        to[i].name = text_place(&pack->text, from[i].name);
        to[i].value = text_place(&pack->text, from[i].value);
    }
    info->metadata = info->n_metadata == 0 ? NULL : to;
    pack->meta += info->n_metadata;
}

/* Copy the strings of list->holders, which are borrowed, into its block. False: no memory; they are still borrowed. */
static bool pack_holders(struct belay_info *list)
{
    size_t n = list->n_holders;
    size_t n_meta = 0;
    size_t size = 0;
    struct belay_info *packed;
    struct pack pack;

    for (size_t i = 0; i < n; i++) {
        const struct belay_info *info = &list->holders[i];

        size += text_room(info->key) + text_room(info->lock_id) + text_room(info->locked_by) +
                text_room(info->locked_by_name) + text_room(info->acquired_by);
        n_meta += info->n_metadata;
        for (size_t m = 0; m < info->n_metadata; m++) {
            size += text_room(info->metadata[m].name) + text_room(info->metadata[m].value);
        }
    }
    packed = realloc(list->holders, n * sizeof *packed + n_meta * sizeof *pack.meta + size);
    if (packed == NULL) {
        return false;
    }
    pack.meta = (struct belay_meta *)(packed + n);
    pack.text = (char *)(pack.meta + n_meta);
    for (size_t i = 0; i < n; i++) {
        pack_info(&pack, &packed[i]);
    }
    list->holders = packed;
    list->has_packed_lists = true;
    return true;
}

/* If one holder is stale, the lock is. */
bool info_borrow_holders(struct belay_info *info, const struct belay_record *record, int64_t now_ms)
{
    info->holders = record->n_holders == 0 ? NULL : malloc(record->n_holders * sizeof *info->holders);
    if (info->holders == NULL) {
        return record->n_holders == 0;
    }
    for (size_t i = 0; i < record->n_holders; i++) {
        struct belay_record holder = record_of_holder(record, &record->holders[i]);

        info->holders[i] = info_borrow(&holder, now_ms);
        info->is_stale = info->is_stale || info->holders[i].is_stale;
    }
    info->n_holders = record->n_holders;
    return true;
}

/* The same, for an info that the caller frees: without memory it is left without holders. */
static bool own_holders(struct belay_info *info)
{
    if (!pack_holders(info)) {
        info->n_holders = 0; /* their strings are borrowed */
        return false;
    }
    return true;
}

/* Add the waiters, except dead and expired ones. False: no memory. */
static bool add_waiters(struct belay_info *info, const struct belay_record *record, int64_t now_ms)
{
    size_t n = record->n_tickets;
    size_t size = 0;
    char *text;

    for (size_t i = 0; i < n; i++) {
        const struct belay_ticket *ticket = &record->tickets[i];

        size += text_room(text_or_empty(ticket->key)) + text_room(text_or_empty(ticket->owner)) +
                text_room(text_or_empty(ticket->owner_name));
    }
    info->waiters = malloc(n * sizeof *info->waiters + size);
    if (info->waiters == NULL) {
        return false;
    }
    info->has_packed_lists = true;
    text = (char *)(info->waiters + n);
    for (size_t i = 0; i < n; i++) {
        const struct belay_ticket *ticket = &record->tickets[i];

        if (!ticket->dead && now_ms < ticket->expires_ms) {
            info->waiters[info->n_waiters++] =
                (struct belay_waiter){ .key = text_place(&text, text_or_empty(ticket->key)),
                                       .locked_by = text_place(&text, text_or_empty(ticket->owner)),
                                       .locked_by_name = text_place(&text, text_or_empty(ticket->owner_name)),
                                       .since_unix_ms = ticket->since_unix_ms,
                                       .mode = ticket->mode };
        }
    }
    return true;
}

struct belay_info *info_from_record(const struct belay_record *record, int64_t now_ms, bool with_queue)
{
    struct belay_info borrowed = info_borrow(record, now_ms);
    struct belay_info *info = info_copy(&borrowed);

    if (info == NULL) {
        return NULL;
    }
    /* A queue with tickets left out is not shown. */
    with_queue = with_queue && record->n_between == 0 && record->n_behind == 0;
    info->has_queue = with_queue;
    if ((record->n_holders > 0 && (!info_borrow_holders(info, record, now_ms) || !own_holders(info))) ||
        (with_queue && record->n_tickets > 0 && !add_waiters(info, record, now_ms))) {
        belay_info_free(info);
        return NULL;
    }
    return info;
}

/* Copy all but the waiters and the locks on further keys. False: no memory; the caller still releases `to`. */
static bool copy_info(struct belay_info *to, const struct belay_info *from)
{
    size_t n = from->n_holders;
    bool ok = true;

    *to = *from;
    to->waiters = NULL;
    to->holders = to->joint = NULL;
    to->n_waiters = to->n_holders = to->n_joint = 0;
    to->has_queue = to->has_packed_lists = false;
    to->key = text_copy(from->key, &ok);
    to->lock_id = text_copy(from->lock_id, &ok);
    to->locked_by = text_copy(from->locked_by, &ok);
    to->locked_by_name = text_copy(from->locked_by_name, &ok);
    to->acquired_by = text_copy(from->acquired_by, &ok);
    to->metadata = meta_copy(from->metadata, from->n_metadata);
    to->n_metadata = to->metadata == NULL ? 0 : from->n_metadata;
    if (!ok || to->n_metadata != from->n_metadata || n == 0) {
        return ok && to->n_metadata == from->n_metadata;
    }
    to->holders = malloc(n * sizeof *to->holders);
    if (to->holders == NULL) {
        return false;
    }
    memcpy(to->holders, from->holders, n * sizeof *to->holders);
    to->n_holders = n;
    return own_holders(to);
}

struct belay_info *info_copy(const struct belay_info *from)
{
    struct belay_info *info = malloc(sizeof *info);
    bool ok;

    if (info == NULL) {
        return NULL;
    }
    ok = copy_info(info, from);
    if (ok && from->n_joint > 0) {
        info->joint = calloc(from->n_joint, sizeof *info->joint);
        ok = info->joint != NULL;
    }
    for (size_t i = 0; ok && i < from->n_joint; i++) {
        info->n_joint++;
        ok = copy_info(&info->joint[i], &from->joint[i]);
    }
    if (!ok) {
        belay_info_free(info);
        return NULL;
    }
    return info;
}

void info_set_valid_for(struct belay_info *info, int64_t ms)
{
    info->valid_for_ms = ms;
    for (size_t i = 0; i < info->n_joint; i++) {
        info->joint[i].valid_for_ms = ms;
    }
}

/* Set `err` for a lock with several holders. */
static void say_several(struct belay_error *err, enum belay_code code, const char *key,
                        const struct belay_info *info)
{
    const struct belay_info *first = info;
    const struct belay_info *last = info;
    char until[CLOCK_TEXT_SIZE];
    char left[CLOCK_TEXT_SIZE];
    size_t n = 0;

    for (size_t i = 0; i < info->n_holders; i++) {
        const struct belay_info *holder = &info->holders[i];

        if (holder->status == BELAY_STATUS_ACTIVE) {
            first = n == 0 || holder->expires_in_ms < first->expires_in_ms ? holder : first;
            last = n == 0 || holder->expires_in_ms > last->expires_in_ms ? holder : last;
            n++;
        }
    }
    if (info->mode == BELAY_SLOTS) {
        (void)error_set(err, code, "lock '%s': %zu of %d slots are held, the first by %s until %s (%s left)",
                        key, n, info->slots, first->locked_by,
                        clock_format_utc(until, first->expires_at_unix_ms, false),
                        clock_format_span(left, first->expires_in_ms));
    } else {
        (void)error_set(err, code, "lock '%s' shared by %zu, the last of them %s until %s (%s left)", key, n,
                        last->locked_by, clock_format_utc(until, last->expires_at_unix_ms, false),
                        clock_format_span(left, last->expires_in_ms));
    }
}

enum belay_code info_say_held(struct belay_error *err, enum belay_code code, const char *key,
                              struct belay_info *info, int64_t margin_ms, int64_t left_ms)
{
    char until[CLOCK_TEXT_SIZE];
    char left[CLOCK_TEXT_SIZE];
    char free[CLOCK_TEXT_SIZE];

    assert(code != BELAY_OK && info != NULL);
    clock_format_utc(until, info->expires_at_unix_ms, false);
    clock_format_span(left, info->expires_in_ms);
    if (info->status == BELAY_STATUS_EXPIRED && info->n_waiters == 0 && left_ms > 0) {
        (void)error_set(
            err, code,
            "lock '%s' is not free yet: the lease of %s ended at %s, and clocks may differ, so that it "
            "can be taken at %s (%s left)",
            key, info->locked_by, until, clock_format_utc(free, info->expires_at_unix_ms + margin_ms, false),
            clock_format_span(left, left_ms));
    } else if (info->status != BELAY_STATUS_ACTIVE && info->n_waiters == 0) {
        (void)error_set(err, code, "lock '%s' is not free yet", key);
    } else if (info->status != BELAY_STATUS_ACTIVE) {
        (void)error_set(err, code, "lock '%s' is reserved for %zu waiters ahead in the queue", key,
                        info->n_waiters);
    } else if (strcmp(info->key, key) == 0 && info->n_holders > 0) {
        say_several(err, code, key, info);
    } else if (strcmp(info->key, key) == 0) {
        (void)error_set(err, code, "lock '%s' held by %s until %s (%s left)", key, info->locked_by, until,
                        left);
    } else {
        (void)error_set(err, code, "lock '%s' is excluded by '%s', held by %s until %s (%s left)", key,
                        info->key, info->locked_by, until, left);
    }
    error_set_holder(err, info);
    return code;
}
