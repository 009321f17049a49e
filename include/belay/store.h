/*
 * The store port: implement it to keep locks in your own store.
 *
 * A store keeps one record per key. It changes records only in commit(), which takes a
 * small batch of conditional writes and applies all of them or none. A store knows nothing
 * of acquiring, waiting or hierarchies. test/conformance tests all requirements and runs
 * against every store.
 *
 * The states of a record:
 *
 *     held ----- expires_ms --> (held, lease expired)      release, force
 *      ^  \                                 |                    |
 *      |   +-- renew: expires_ms = now + ttl |                    v
 *      +------------- acquire --------------+---------------- not held
 *
 * The reader of a record decides whether its lease has expired. It compares expires_ms with
 * `now_ms`, the store's clock, which every answer includes. Only the store computes points in
 * time: a write says how long a lease lasts, never until when.
 *
 * A lock that is shared or has slots has several holders, in `holders`. Each has a lease of
 * its own and goes through the same states; a write with `co_holder` changes one of them.
 *
 * A record also has a ticket for each client that waits for the key or for a key below it,
 * and an intent for each lock that is held on a key below it.
 *
 * Several threads may use one store at a time, unless its client owns the file.
 */
#ifndef BELAY_STORE_H
#define BELAY_STORE_H

#include "belay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The place of a waiter in the queue. It acquires the lock with the ticket's lock_id. */
struct belay_ticket {
    char *lock_id;
    char *key; /* the key it waits for: the record's own, or one below it */
    char *owner;
    char *owner_name;
    uint64_t seq; /* the order of the queue */
    int64_t since_unix_ms;
    int64_t expires_ms;   /* store's clock; then the ticket loses its place */
    bool dead;            /* the store knows that the waiter is gone. A store checks from the front of the
                           queue, and may stop at the first waiter that is alive. */
    bool packed;          /* its strings are in the record's `text` and are not freed one by one */
    uint32_t text_size;   /* not 0: the strings of a packed ticket are one block of this size, which begins
                           at lock_id; the key is in the block, or is the record's. 0: they are not one
                           block */
    char *acquired_by;    /* the credential of the waiter; "": none; NULL: the store does not keep it */
    enum belay_mode mode; /* in which it waits */
    int slots;            /* with BELAY_SLOTS */
    bool joint;           /* of a client that waits for several keys at once */
};

/* An entry in a record: a client holds `key`, which is below the record's key. */
struct belay_intent {
    char *lock_id; /* identifies the intent: the holder's lock id, and a hash of the key */
    char *key;
    int64_t expires_ms;
    bool shared; /* the lock below is shared: it excludes exclusive holders of this key, not shared ones */
};

enum { BELAY_RELEASED_MAX = 8 };

/* The fields of a holder. In a record they are those of its present or last holder. */
#define BELAY_HOLDER_FIELDS                                                                                  \
    char *lock_id; /* "": never acquired */                                                                  \
    char *owner;                                                                                             \
    char *owner_name;                                                                                        \
    char *acquired_by; /* the credential: the name of a server's token; "": none; NULL: not kept */          \
    uint64_t token;                                                                                          \
    bool durable;        /* not tied to a process: the lock survives a restart of the machine */             \
    bool stale_reported; /* reported as stale since its last heartbeat */                                    \
    int64_t ttl_ms;                                                                                          \
    int64_t heartbeat_ms;                                                                                    \
    int64_t stale_after_ms;                                                                                  \
    int64_t expires_ms;        /* store's clock */                                                           \
    int64_t last_heartbeat_ms; /* store's clock: acquisition or last renewal */                              \
    int64_t locked_at_unix_ms;                                                                               \
    int64_t expires_at_unix_ms;                                                                              \
    int64_t last_heartbeat_unix_ms;                                                                          \
    struct belay_meta *metadata; /* owned, as are the strings in it */                                       \
    size_t n_metadata;

/* One of the holders of a lock that is shared or has slots. */
struct belay_holder {
    BELAY_HOLDER_FIELDS
};

struct belay_record {
    char *key;
    uint64_t revision; /* changes with each write; 0: the record does not exist */
    bool held;
    bool ttl_is_estimate; /* the store does not keep the ttl; ttl_ms is the time from acquisition to expiry */
    enum belay_outcome outcome; /* while not held: how the last holding ended */
    union {
        __extension__ struct { /* anonymous; in C++ an extension */
            BELAY_HOLDER_FIELDS
        };
        struct belay_holder holder; /* the same fields, together */
    };
    /*
     * The lock ids of the last releases that were not forced, newest first. They stay when the
     * lock is acquired again. Of a lock that is shared or has slots, a store keeps the last
     * BELAY_RELEASED_MAX, until the record is exclusive again. Of an exclusive lock it keeps the
     * last one or none.
     */
    char **released_ids; /* owned, as are the strings in it that are not part of `text` */
    size_t n_released_ids;
    int64_t freed_ms; /* store's clock: the last release, here or of an intent */
    int64_t freed_at_unix_ms;
    struct belay_ticket *tickets; /* by seq */
    size_t n_tickets;
    /*
     * In the answer of commit(), with capabilities.takes_turns: the number of tickets that the
     * store left out of a long queue. All of them are for this key, exclusive and not joint. The
     * first ticket of the queue is never left out, nor is the ticket of a write with
     * BELAY_IF_OCCUPIED or BELAY_IF_NEXT. After a write with BELAY_IF_NEXT the first may be the only
     * one, if it is for this key, exclusive and not joint.
     */
    size_t n_between; /* left out before the last one of `tickets`, not counting expired ones */
    size_t n_behind;  /* left out behind it */
    struct belay_intent *intents;
    size_t n_intents;
    /*
     * BELAY_EXCLUSIVE: the holder is in the fields above, and `holders` is empty. Otherwise
     * all holders are in `holders`, in the order of their tokens. The fields above then repeat
     * the holder whose lease ends last (of two that end together, the one with the lower
     * token), so that `held` and `expires_ms` tell whether any client holds the lock. When the
     * last holder releases the lock, the fields above keep that holder, with `held` false.
     */
    enum belay_mode mode;
    int slots; /* with BELAY_SLOTS: how many holders there may be */
    struct belay_holder *holders;
    size_t n_holders;
    char *text; /* owned; one block of memory that may contain the record's strings, those of `holders` and
                   released_ids, and those of packed tickets. NULL: each string is freed by itself */
    size_t text_size;
};

/* True: `text` is part of record->text, and is not freed by itself. */
static inline bool belay_record_has_text(const struct belay_record *record, const char *text)
{
    return record->text != NULL && (uintptr_t)text - (uintptr_t)record->text < record->text_size;
}

BELAY_API void belay_record_release(struct belay_record *record); /* leaves *record empty */
BELAY_API bool belay_record_copy(const struct belay_record *from,
                                 struct belay_record *out_record); /* false: no memory */
/*
 * Show a holder in the record's own fields. The holder's strings may be part of record->text; else
 * they are copied. False: no memory.
 */
BELAY_API bool belay_record_show(struct belay_record *record, const struct belay_holder *holder);
/* Put a lock id first among released_ids, and drop the oldest if there are too many. False: no memory. */
BELAY_API bool belay_record_note_released(struct belay_record *record, const char *lock_id);
BELAY_API void belay_record_forget_released(struct belay_record *record); /* all */

enum belay_condition {
    BELAY_IF_ANY,             /* always */
    BELAY_IF_ABSENT,          /* the record does not exist */
    BELAY_IF_FREE,            /* no record; or not held, no tickets, no intents, and the last holder's
                                 lock_id is not the one that this write sets (L5) */
    BELAY_IF_FREE_FOR_INTENT, /* no record; or not held and no tickets. Intents do not exclude each other. */
    BELAY_IF_UNCHANGED,       /* the revision is write.revision */
    BELAY_IF_HELD_BY,         /* held by write.lock_id, even if the lease has expired */
    BELAY_IF_LIVE_BY,         /* held by write.lock_id, and now < expires_ms */
    /*
     * The next two are only for a store whose capabilities have takes_turns. With them a waiter
     * need not read the record first, and a change that does not concern it does not refuse its write.
     */
    BELAY_IF_OCCUPIED, /* for put_ticket: the record is held, or has tickets or intents. If it has a ticket
                          of the same id, that ticket has the same acquired_by. */
    BELAY_IF_NEXT      /* not held and no intents; write.lock_id has a ticket, and is not the last holder's
                          id. All tickets ahead of it have expired or are dead: the write drops them. */
};

/*
 * The groups of fields that a write sets from write.values; all others stay. Only a write
 * that acquires (BELAY_SET_ACQUIRED) or puts a ticket or an intent creates a record. Any
 * other write to a record that does not exist has no effect and is no error.
 */
enum {
    BELAY_SET_ACQUIRED = 1 << 0, /* held, no outcome, locked_at = now */
    BELAY_SET_IDENTITY = 1 << 1, /* lock_id, acquired_by (NULL: ""), and a new token */
    BELAY_SET_OWNER = 1 << 2,    /* owner, owner_name */
    BELAY_SET_METADATA = 1 << 3,
    BELAY_SET_LIVENESS = 1 << 4, /* durable, heartbeat_ms, stale_after_ms */
    BELAY_SET_LEASE = 1 << 5,    /* expires = now + ttl_ms, last_heartbeat = now, not stale_reported; ttl_ms 0
                                    keeps the present ttl */
    BELAY_SET_RELEASED = 1 << 6, /* not held, outcome, freed = now; unless forced, released_ids
                                    begin with write.lock_id */
    BELAY_SET_FREED = 1 << 7,    /* freed = now */
    BELAY_SET_STALE_REPORTED = 1 << 8
};
#define BELAY_SET_HOLDER                                                                                     \
    (BELAY_SET_ACQUIRED | BELAY_SET_IDENTITY | BELAY_SET_OWNER | BELAY_SET_METADATA | BELAY_SET_LIVENESS |   \
     BELAY_SET_LEASE)

struct belay_put_ticket {
    const char
        *lock_id; /* replaces a ticket of the same id, which keeps its seq. If the answer may leave that
                            ticket out (n_between), the earlier since_unix_ms stays too. */
    const char *key;
    const char *owner;
    const char *owner_name;
    int64_t since_unix_ms;
    int64_t ttl_ms;
    const char *acquired_by; /* NULL: "" */
    enum belay_mode mode;
    int slots;
    bool joint;
    /*
     * This process has put it before. If another process has put it since and it is valid, it stays as it is: the
     * client waits there now. A store that does not know which process puts a ticket ignores this.
     */
    bool is_again;
};

struct belay_put_intent {
    const char *lock_id;
    const char *key;
    int64_t ttl_ms;
    bool shared;
};

struct belay_write {
    const char *key;
    enum belay_condition condition;
    uint64_t revision;   /* for BELAY_IF_UNCHANGED */
    const char *lock_id; /* for BELAY_IF_HELD_BY and BELAY_IF_LIVE_BY */
    unsigned set;        /* BELAY_SET_... */
    const struct belay_record *values;
    const char *const *drop_tickets; /* lock ids; one that is not there is no error */
    size_t n_drop_tickets;
    /*
     * The write is refused, whatever its condition, if another process has put the first of drop_tickets last, and it
     * is valid: the client waits there now. Ignored as is_again of a ticket is.
     */
    bool unless_elsewhere;
    const char *const *drop_intents;
    size_t n_drop_intents;
    const struct belay_put_ticket
        *put_ticket; /* NULL: none. Applied after the drops, at the end of the queue. */
    const struct belay_put_intent *put_intents; /* each replaces an intent of the same id */
    size_t n_put_intents;                       /* BELAY_KEYS_MAX at most */
    int64_t ttl_if_unknown_ms; /* with BELAY_SET_LEASE and ttl_ms 0, if the store does not keep the ttl: the
                                  new ttl, or what is left of the lease if that is more; 0: BELAY_INVALID */
    /*
     * The write is about one of several holders. BELAY_SET_ACQUIRED adds one, with
     * values->lock_id, and sets the record's mode and slots to those of `values`. All other
     * sets, BELAY_IF_HELD_BY and BELAY_IF_LIVE_BY are about the holder `lock_id`.
     * BELAY_SET_RELEASED removes it; the record stays held while others are left. A write that
     * does not acquire is refused, whatever its condition, if the record has no such holder.
     *
     * Without co_holder, BELAY_IF_HELD_BY and BELAY_IF_LIVE_BY never hold for a record that
     * is not exclusive, and BELAY_SET_ACQUIRED makes the record exclusive: the caller drops
     * the holders that have expired. co_holder is false in a store whose capabilities lack
     * has_modes.
     */
    bool co_holder;
    /*
     * With BELAY_IF_HELD_BY and BELAY_IF_LIVE_BY: the store sets co_holder unless the record is
     * exclusive. False in a store whose capabilities lack finds_mode.
     */
    bool any_mode;
    const char *const *drop_holders; /* lock ids of expired holders; one that is not there is no error */
    size_t n_drop_holders;
};

/* For an event in a batch, the store replaces these values: */
#define BELAY_TOKEN_OF_BATCH UINT64_MAX /* as token: by the token that the batch grants for the event's key */
#define BELAY_DURATION_HELD (-2)        /* as duration_ms: by how long the lock was held */

struct belay_batch {
    const struct belay_write *writes; /* of different keys */
    size_t n_writes;                  /* 0: only events */
    /*
     * Kept with the writes, if the store keeps events. The store completes an event from a record
     * as it was before the batch: the record of the write with the event's key or, if no write
     * has that key, of writes[0]:
     * - the owner, if it is NULL;
     * - the token, if it is 0 and the event has the record's lock id;
     * - the metadata, if it is NULL and the event has the record's lock id, or a lock id that
     *   this batch puts in its place without changing the metadata.
     * With co_holder the values are those of the holder that the write is about.
     */
    const struct belay_event *events;
    size_t n_events;
    bool durable;       /* must be on disk before commit() returns. So must a batch with a record that is
                           durable before or after it. */
    int64_t timeout_ms; /* the caller does not use a later answer; 0: the store's own timeout. A local store
                           may ignore it. */
    const char *require_unused_id; /* not NULL: BELAY_ID_USED if this id has ever acquired writes[0].key, or
                                      the key of another write that acquires. A store that does not remember
                                      ids ignores it (docs/safety.md). */
    /*
     * BELAY_FROZEN, and nothing is changed, if the key of a write that acquires matches a freeze
     * that is in force, or ended less than freeze_grace_ms ago. The check sees every freeze whose
     * item_put() returned before commit() was called. A store whose capabilities lack has_freezes
     * ignores both fields.
     */
    bool check_freezes;
    int64_t freeze_grace_ms;
    /*
     * For a batch of one write that acquires, and its event. If it is refused because another id
     * holds the lock, exclusively and with a live lease, and this id has no ticket, a store may keep
     * the event with the type "lock.refused" and the reason "lock 'KEY' held by OWNER until TIME
     * (SPAN left)", not necessarily on disk. commit.event_id is then its id; if that is 0, the
     * event was not kept.
     */
    bool note_refusal;
};

/* The result of a batch. */
struct belay_commit {
    int64_t now_ms;    /* the store's clock at the decision */
    size_t refused;    /* with BELAY_REFUSED: the write whose condition did not hold */
    uint64_t token;    /* the new token of the first write that sets an identity; 0: none does */
    uint64_t event_id; /* of the first event; the ids of the others follow; 0: the store keeps no events. With
                          BELAY_REFUSED: see note_refusal */
    int64_t events_at_unix_ms;    /* the time that the events have in the store; 0: it keeps none */
    struct belay_record *records; /* owned. BELAY_OK: all records after the batch, in the order of the writes.
                                     BELAY_REFUSED: the record whose condition did not hold. */
    size_t n_records;
    char *frozen;          /* owned; with BELAY_FROZEN: "frozen until TIME by NAME: REASON" */
    int64_t frozen_for_ms; /* likewise: for how long from now on, at most; INT64_MAX: no end */
    bool woke_first;       /* the store has woken the first waiter in records[0] that has not expired */
};
BELAY_API void belay_commit_release(struct belay_commit *commit);

struct belay_scan {
    const char *prefix; /* NULL: all */
    const char *after;  /* only keys greater than this; NULL: all */
    bool held_only;
};
typedef bool (*belay_record_fn)(void *context, const struct belay_record *record, int64_t now_ms);

struct belay_events_query {
    const char *key;    /* NULL: all */
    const char *prefix; /* NULL: all */
    uint64_t after;     /* only ids greater than this */
    size_t last;        /* only this many of the newest; 0: all */
};

/* The features of a store and how to use it; constant while it is open. */
struct belay_store_capabilities {
    bool is_local;         /* on this machine. False: each call may take as long as the network does. */
    int64_t margin_ms;     /* an expired lock can be acquired this long after expires_ms, because clocks may
                              differ */
    int64_t claim_ms;      /* a free lock is reserved this long for the first waiter, before the next may
                              acquire it */
    int64_t poll_ms;       /* how often the first waiter polls without being woken */
    int64_t first_poll_ms; /* the first interval, and the first after another client acquired the lock; it
                              doubles up to poll_ms. 0: poll_ms from the start. */
    int64_t ticket_ttl_ms; /* how long a ticket is valid without being put again; long if the store detects
                              by itself that a waiter is gone */
    bool release_deletes;  /* a release deletes the record */
    int64_t read_clock_lag_ms;  /* how far now_ms of get() may be behind the store's clock */
    bool has_freezes;           /* commit() checks freezes */
    const char *freezes_advice; /* without has_freezes: what to do instead; NULL: nothing can be done */
    bool finds_mode;            /* understands a write with any_mode */
    bool takes_turns;           /* understands BELAY_IF_OCCUPIED and BELAY_IF_NEXT */
    bool has_modes;             /* keeps shared locks, slots and joint tickets; false: exclusive locks only */
    const char *owner_name_meta; /* the store needs the name of a person for each lock: the owner's name or
                                    this entry of the metadata. NULL: it does not */
};

/*
 * Items: small named values beside the locks, in separate name spaces, such as the registry
 * of applications (belay/shared_db.h). Items are not locks: get() and scan() never return
 * them, and no lock key names one.
 */
#define BELAY_SPACE_APPS "app"           /* the applications, by name */
#define BELAY_SPACE_DATABASES "database" /* the last decision about each database, by identifier */
#define BELAY_SPACE_FREEZES "freeze"     /* the freezes, in one item (src/freeze) */
enum { BELAY_ITEM_NAME_MAX = 256, BELAY_ITEM_VALUE_MAX = 256 * 1024 };

struct belay_item {
    char *name;
    char *value;      /* JSON; NULL: the item does not exist */
    uint64_t version; /* changes with each write; 0: the item does not exist */
};
BELAY_API void belay_item_release(struct belay_item *item); /* leaves *item empty */

struct belay_item_write {
    const char *space;
    const char *name;
    const char *value; /* JSON; NULL: remove the item */
    uint64_t version;  /* write only if the item has this version; 0: only if it does not exist */
    bool any_version;  /* write whatever the version is */
};

/* Return false to stop. `item` is borrowed. */
typedef bool (*belay_item_fn)(void *context, const struct belay_item *item);

struct belay_store;

/*
 * Commits for an event loop, without a thread for each. The loop's thread calls all functions
 * except finish().
 *
 *     begin() --> queued or sent --> take() --+--> answered: code, *out, *err
 *        |                                    +--> is_unfinished: finish() in a worker thread, which may block
 *        +--> false: commit() in a worker thread
 */
struct belay_pending_commit {
    const struct belay_batch *batch; /* borrowed until it is answered, as are the next two */
    struct belay_commit *out;
    struct belay_error *err;
    void *context; /* the caller's */
    enum belay_code code;
    bool is_unfinished;
    struct belay_pending_commit *next; /* of the list that take() returns; the store's before that */
    /* The store's. */
    char *answer; /* owned; free() it if finish() is not called */
    int64_t asked_ms;
    int64_t until_ms;
};

struct belay_loop_ops {
    /* A file descriptor that is readable when take() has something to do; -1: not supported. */
    int (*fd)(struct belay_store *store);
    /* Start a commit; of *pending only batch, out, err and context are set. False: not accepted. */
    bool (*begin)(struct belay_store *store, struct belay_pending_commit *pending);
    /* Return a list of the commits answered since the last call; NULL: none. Sends queued ones if it can. */
    struct belay_pending_commit *(*take)(struct belay_store *store);
    /* Send what was begun. Returns when to call take() again at the latest (boot clock); INT64_MAX: no need. */
    int64_t (*flush)(struct belay_store *store);
    /* Do the rest of a commit, in any thread; the result is that of commit(). */
    enum belay_code (*finish)(struct belay_store *store, struct belay_pending_commit *pending);
    /* Drop the commits that were begun and not answered: their outcome is unknown. */
    void (*stop)(struct belay_store *store);
};

struct belay_store_ops {
    const char *name;
    void (*close)(struct belay_store *store);

    /* Read n records. A record that does not exist has revision 0 and its key. The caller releases each. */
    enum belay_code (*get)(struct belay_store *store, const char *const *keys, size_t n,
                           struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err);

    /*
     * Apply the whole batch or nothing. BELAY_REFUSED: a condition does not hold (the first in
     * order). BELAY_UNREACHABLE: nothing was changed and nothing will be. BELAY_UNKNOWN: it may
     * have been applied, or may be applied later. The caller releases *out.
     */
    enum belay_code (*commit)(struct belay_store *store, const struct belay_batch *batch,
                              struct belay_commit *out, struct belay_error *err);

    /* List records in the order of their keys, until fn returns false. */
    enum belay_code (*scan)(struct belay_store *store, const struct belay_scan *scan, belay_record_fn fn,
                            void *context, struct belay_error *err);

    /* List events in the order of their ids, until fn returns false. NULL: the store keeps no events. */
    enum belay_code (*events)(struct belay_store *store, const struct belay_events_query *query,
                              belay_event_fn fn, void *context, struct belay_error *err);

    struct belay_store_capabilities (*capabilities)(struct belay_store *store);

    /*
     * Wait without missing a wake-up: listen(), then read the record, then wait() with the
     * result of listen(). wait() returns at once if wake() was called for the same id since
     * listen(), at the latest after timeout_ms, and may return sooner. A NULL id is woken by
     * every batch with events. All three NULL: not supported, and waiters poll.
     */
    uint32_t (*listen)(struct belay_store *store, const char *lock_id);
    void (*wait)(struct belay_store *store, const char *lock_id, uint32_t listened, int64_t timeout_ms,
                 struct belay_cancel *cancel);
    void (*wake)(struct belay_store *store, const char *lock_id);

    /*
     * For an event loop, which cannot wait(): call `fn` in a thread of the store for each wake(), by
     * any client of the store, of an id that is not NULL. fn(context, NULL): wake-ups may have been
     * lost, so every waiter must read its record. `fn` must neither block nor call the store. A NULL
     * `fn` ends the subscription; when that call returns, no call of the earlier `fn` is in progress.
     * NULL: not supported, and waiters poll.
     */
    void (*subscribe)(struct belay_store *store, void (*fn)(void *context, const char *lock_id),
                      void *context);

    /* Read an item. An item that does not exist has version 0. The three item_ functions NULL: not supported. */
    enum belay_code (*item_get)(struct belay_store *store, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err);

    /*
     * Write an item; it is on disk when this returns. BELAY_REFUSED: the version differs.
     * BELAY_UNREACHABLE and BELAY_UNKNOWN: as for commit(). *out_version is 0 after a removal.
     */
    enum belay_code (*item_put)(struct belay_store *store, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err);

    /*
     * List all items of a space in the order of their names, until fn returns false. BELAY_OK
     * only if none is missing: the decision that no application uses a database relies on it.
     */
    enum belay_code (*item_list)(struct belay_store *store, const char *space, belay_item_fn fn,
                                 void *context, struct belay_error *err);

    /*
     * Group commit. A store may keep a log, and write several commits to disk with one fsync.
     * Each commit then has a log sequence number (LSN), greater than every earlier one. commit()
     * and reads work in memory, and a crash may undo what they return: report it only once
     * durable_lsn() has reached the committed_lsn() of that moment. All three NULL: commit()
     * writes to disk itself, as far as the batch needs it. Any thread may call the three.
     *
     * sync() writes the commits up to `lsn` to disk; later commits continue meanwhile. After
     * BELAY_UNKNOWN they may or may not be on disk, and the store accepts no more.
     */
    enum belay_code (*sync)(struct belay_store *store, uint64_t lsn, struct belay_error *err);
    uint64_t (*committed_lsn)(struct belay_store *store); /* of the newest commit */
    uint64_t (*durable_lsn)(struct belay_store *store);   /* all commits up to this one are on disk */

    /* With sync(): the commits, syncs and batches so far. */
    void (*batches)(struct belay_store *store, struct belay_store_counts *out);

    /*
     * Write a consistent copy of all that was committed to `path`, an empty file; belay_restore()
     * reads it. Any thread may call this; it may take long. NULL: not supported.
     */
    enum belay_code (*backup)(struct belay_store *store, const char *path, struct belay_cancel *cancel,
                              struct belay_error *err);

    /*
     * The id of the store: the same under every URL of the store, different for every other
     * store. NULL: the store has none.
     */
    enum belay_code (*identity)(struct belay_store *store, char out_id[BELAY_STORE_ID_SIZE],
                                struct belay_error *err);

    const struct belay_loop_ops *loop; /* NULL: not supported. Only with `wait`. */
};

/* The first member of a store's own struct. */
struct belay_store {
    const struct belay_store_ops *ops;
};

/* Open a client on your own store. Takes ownership of it: it is closed with the client, or if this fails. */
BELAY_API enum belay_code belay_client_open_store(struct belay_store *store,
                                                  const struct belay_client_options *options,
                                                  struct belay_client **out_client, struct belay_error *err);

/*
 * For a store's wait(). belay_cancel_requested() is true once the wait was cancelled. After
 * belay_cancel_bind(), belay_cancel_request() increments the futex `word` and wakes the thread
 * that sleeps on it. NULL ends that.
 */
BELAY_API bool belay_cancel_requested(const struct belay_cancel *cancel);
BELAY_API void belay_cancel_bind(struct belay_cancel *cancel, uint32_t *word);
/* The same for a thread in poll(): belay_cancel_request() makes the eventfd `fd` readable. -1 ends that. */
BELAY_API void belay_cancel_bind_fd(struct belay_cancel *cancel, int fd);

#ifdef __cplusplus
}
#endif

#endif
