/*
 * The port behind which a store of lock records stands.
 *
 * A store keeps one record per key and changes records in one way only:
 * commit() takes a small batch of conditional writes, and does all of it or
 * nothing. It knows nothing of acquiring, waiting or hierarchy. Everything it
 * must keep to is tested by test/conformance, which runs against every store.
 *
 * A record and who may be in it:
 *
 *     held ----- expires_ms --> (still held, but over)     release, force
 *      ^  \                                 |                    |
 *      |   +-- renew: expires_ms = now + ttl |                    v
 *      +------------- take ----------------+---------------- not held
 *
 * Whether a held record's lease is over is for who reads it to decide, with
 * the store's clock, `now_ms`, that comes with every answer. Only the store
 * adds to that clock: a write says for how long, never until when.
 *
 * Besides a holder a record has tickets, of those who wait for the key or for
 * a key below it, and intents, of those who hold a key below it.
 */
#ifndef BELAY_STORE_H
#define BELAY_STORE_H

#include "belay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Somebody waits. The ticket's lock_id is the one it will take the lock with. */
struct belay_ticket {
    char *lock_id;
    char *key; /* what it waits for: this record's key or one below it */
    char *owner;
    char *owner_name;
    uint64_t seq; /* the order within this record */
    int64_t since_unix_ms;
    int64_t expires_ms; /* store's clock; a ticket past it counts for nothing */
    bool dead;          /* the store knows that its waiter is gone. It looks from the front and
                  need not look beyond the first one that lives. */
    bool packed;        /* its texts stand in the record's `text` and are not freed one by one */
    char *acquired_by;  /* the credential that took this place; "": none; NULL: the store does not keep it */
};

/* Somebody holds a key below this one. */
struct belay_intent {
    char *lock_id;
    char *key;
    int64_t expires_ms;
};

struct belay_record {
    char *key;
    uint64_t revision; /* changes with every write; 0: there is no record */
    bool held;
    char *lock_id;     /* of the present or the last holder; "" if never taken */
    char *released_id; /* whose holding was last given back, by itself and not by force, whoever has
                          taken it since; NULL: the store does not keep it, or it never was */
    uint64_t token;
    char *owner;
    char *owner_name;
    enum belay_outcome outcome; /* how the last holding ended, while not held */
    bool durable;               /* the holder is not a process: it survives a restart of the machine */
    bool stale_reported;        /* somebody has reported it as stale since its last heartbeat */
    int64_t ttl_ms;
    bool ttl_is_estimate; /* the store does not keep it: it is the time from the taking to the end */
    int64_t heartbeat_ms;
    int64_t stale_after_ms;
    int64_t expires_ms;        /* store's clock */
    int64_t last_heartbeat_ms; /* store's clock: last sign of life */
    int64_t freed_ms;          /* store's clock: when something was last given back here */
    int64_t locked_at_unix_ms;
    int64_t expires_at_unix_ms;
    int64_t last_heartbeat_unix_ms;
    int64_t freed_at_unix_ms;
    struct belay_meta *metadata; /* owned, as are the strings in it */
    size_t n_metadata;
    struct belay_ticket *tickets; /* by seq */
    size_t n_tickets;
    struct belay_intent *intents;
    size_t n_intents;
    char *acquired_by; /* the credential that lock_id was given to: the name of a server's token; "": none.
                          NULL: the store has no place for it, and nobody knows */
    char *text; /* owned; where key, lock_id, owner, owner_name and acquired_by may stand, and the texts of
                   tickets that are packed; NULL: each of them is freed by itself */
    size_t text_size;
};

/* Whether it stands in record->text. */
static inline bool belay_record_has_text(const struct belay_record *record, const char *text)
{
    return record->text != NULL && (uintptr_t)text - (uintptr_t)record->text < record->text_size;
}

BELAY_API void belay_record_release(struct belay_record *record); /* leaves it empty */
BELAY_API bool belay_record_copy(const struct belay_record *from, struct belay_record *out_record);

enum belay_condition {
    BELAY_IF_ANY,             /* always */
    BELAY_IF_ABSENT,          /* there is no record */
    BELAY_IF_FREE,            /* no record; or not held, no tickets, no intents, and its last
                           holder's lock_id is not the one this write sets (L5) */
    BELAY_IF_FREE_FOR_INTENT, /* no record; or not held and no tickets: intents do no harm */
    BELAY_IF_UNCHANGED,       /* the revision is write.revision */
    BELAY_IF_HELD_BY,         /* held, by write.lock_id, whether over or not */
    BELAY_IF_LIVE_BY          /* held, by write.lock_id, and now < expires_ms */
};

/*
 * Which fields of write.values a write sets. What it does not name stays. Only a
 * write that takes (BELAY_SET_ACQUIRED) or puts a ticket or an intent creates a
 * record: any other leaves an absent one absent, and is no error.
 */
enum {
    BELAY_SET_ACQUIRED = 1 << 0, /* held, no outcome, locked_at = now */
    BELAY_SET_IDENTITY = 1 << 1, /* lock_id, acquired_by (NULL: ""), and a new token */
    BELAY_SET_OWNER = 1 << 2,    /* owner, owner_name */
    BELAY_SET_METADATA = 1 << 3,
    BELAY_SET_LIVENESS = 1 << 4, /* outlives, heartbeat_ms, stale_after_ms */
    BELAY_SET_LEASE = 1 << 5,    /* expires = now + ttl_ms, beat = now, not stale_reported;
                                    ttl_ms 0 keeps the ttl that is there */
    BELAY_SET_RELEASED = 1 << 6, /* not held, outcome, freed = now; unless it is forced, released_id
                                    = write.lock_id */
    BELAY_SET_FREED = 1 << 7,    /* freed = now */
    BELAY_SET_STALE_REPORTED = 1 << 8
};
#define BELAY_SET_HOLDER                                                                                     \
    (BELAY_SET_ACQUIRED | BELAY_SET_IDENTITY | BELAY_SET_OWNER | BELAY_SET_METADATA | BELAY_SET_LIVENESS |   \
     BELAY_SET_LEASE)

struct belay_put_ticket {
    const char *lock_id; /* a ticket of that id in the record is replaced and keeps its seq */
    const char *key;
    const char *owner;
    const char *owner_name;
    int64_t since_unix_ms;
    int64_t ttl_ms;
    const char *acquired_by; /* NULL: "" */
};

struct belay_put_intent {
    const char *lock_id;
    const char *key;
    int64_t ttl_ms;
};

struct belay_write {
    const char *key;
    enum belay_condition condition;
    uint64_t revision;   /* for BELAY_IF_UNCHANGED */
    const char *lock_id; /* for BELAY_IF_HELD_BY and BELAY_IF_LIVE_BY */
    unsigned set;        /* BELAY_SET_... */
    const struct belay_record *values;
    const char *const *drop_tickets; /* lock ids; what is not there is no error */
    size_t n_drop_tickets;
    const char *const *drop_intents;
    size_t n_drop_intents;
    const struct belay_put_ticket *put_ticket; /* NULL: none. After the drops, at the end. */
    const struct belay_put_intent *put_intent; /* NULL: none; replaces one of the same id */
    int64_t ttl_if_unknown_ms; /* with BELAY_SET_LEASE and a ttl of 0, where the store does not keep the ttl:
                                  this one, or what is left of the lease if that is more; 0: BELAY_INVALID */
};

/* In an event of a batch: the token that this batch hands out; how long writes[0] was held. */
#define BELAY_TOKEN_OF_BATCH UINT64_MAX
#define BELAY_DURATION_HELD (-2)

struct belay_batch {
    const struct belay_write *writes; /* of different keys */
    size_t n_writes;                  /* may be 0: only events */
    const struct belay_event *events; /* kept with the writes, if the store keeps events. An owner
                                         that is NULL is that of writes[0]'s record before the batch;
                                         so is a token of 0, if the event is of that record's id;
                                         and so is metadata that is NULL, if the event is of that
                                         record's id or of one that replaces it and keeps the rest. */
    size_t n_events;
    bool durable;                  /* on disk before it is reported. A store does so by itself for a
                     record that outlives its process, before or after. */
    int64_t timeout_ms;            /* an answer that comes later is of no use; 0: as the store thinks fit. A
                              store on this machine may leave it out. */
    const char *require_unused_id; /* not NULL: BELAY_ID_USED if this id ever took writes[0].key. A
                              store without memory of it leaves this out (docs/safety.md). */
};

/* What became of a batch. */
struct belay_commit {
    int64_t now_ms;               /* the store's clock when it decided */
    size_t refused;               /* with BELAY_REFUSED: the write whose condition did not hold */
    uint64_t token;               /* the new token, if one was handed out */
    uint64_t event_id;            /* of the first event, the others follow it; 0: none are kept */
    struct belay_record *records; /* owned. Done: all records as they are now, in the order
                                     of the writes. Refused: the one in the way. */
    size_t n_records;
};
BELAY_API void belay_commit_release(struct belay_commit *commit);

struct belay_scan {
    const char *prefix; /* NULL: all */
    const char *after;  /* keys greater than this; NULL: from the first */
    bool held_only;
};
typedef bool (*belay_record_fn)(void *context, const struct belay_record *record, int64_t now_ms);

struct belay_events_query {
    const char *key;    /* NULL: of all keys */
    const char *prefix; /* NULL: all */
    uint64_t after;     /* ids greater than this */
    size_t last;        /* 0: all; else the last so many */
};

/* How fast things go on this store; constant while it is open. */
struct belay_store_capabilities {
    bool is_local;     /* on this machine. False: every call may take as long as the network does. */
    int64_t margin_ms; /* how long after expires_ms a lease may be taken over, for clocks that differ */
    int64_t claim_ms;  /* how long a free lock is kept for the first in line before the next may have it */
    int64_t poll_ms;   /* how often the first in line looks again without being woken */
    int64_t first_poll_ms;       /* its first look, and the first after another one took the lock; the next
                              after twice as long, until it is poll_ms. 0: poll_ms from the first. */
    int64_t ticket_ttl_ms;       /* how long a ticket counts without being put again; long where the store
                          sees by itself that a waiter is gone */
    bool release_deletes;        /* a release leaves no record */
    int64_t read_clock_lag_ms;   /* by how much less than the store's time get() may say that it is */
    const char *owner_name_meta; /* the store keeps a person with every lock: the owner's name, which must
                                be given, or this entry of the metadata. NULL: it does not */
};

/*
 * Small values beside the locks, each with a name in a space of names: the
 * registry of applications (belay/shared_db.h). They are no locks: scan() and get()
 * never show them, and no key of a lock can name one.
 */
#define BELAY_SPACE_APPS "app"           /* the applications, by name */
#define BELAY_SPACE_DATABASES "database" /* what was last decided about a database, by identifier */
enum { BELAY_ITEM_NAME_MAX = 256, BELAY_ITEM_VALUE_MAX = 256 * 1024 };

struct belay_item {
    char *name;
    char *value;      /* JSON; NULL if there is no such item */
    uint64_t version; /* another one after every write, never 0; 0: there is no such item */
};
BELAY_API void belay_item_release(struct belay_item *item); /* leaves it empty */

struct belay_item_write {
    const char *space;
    const char *name;
    const char *value; /* JSON; NULL removes it */
    uint64_t version;  /* only if it is of this version; 0: only if there is none */
    bool any_version;  /* whatever is there */
};

/* Return false to stop. The item is borrowed. */
typedef bool (*belay_item_fn)(void *context, const struct belay_item *item);

struct belay_store;

struct belay_store_ops {
    const char *name;
    void (*close)(struct belay_store *store);

    /* Read n records. Those that do not exist come back with revision 0 and their key. */
    enum belay_code (*get)(struct belay_store *store, const char *const *keys, size_t n,
                           struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err);

    /*
     * Do the whole batch or nothing. BELAY_REFUSED if a condition does not hold
     * (the first in order); BELAY_UNREACHABLE only if surely nothing happened,
     * now or later; BELAY_UNKNOWN if it may have, or yet may.
     */
    enum belay_code (*commit)(struct belay_store *store, const struct belay_batch *batch,
                              struct belay_commit *out, struct belay_error *err);

    /* Records in the order of their keys, until fn returns false. */
    enum belay_code (*scan)(struct belay_store *store, const struct belay_scan *scan, belay_record_fn fn,
                            void *context, struct belay_error *err);

    /* Events in the order of their ids. NULL: this store keeps none. */
    enum belay_code (*events)(struct belay_store *store, const struct belay_events_query *query,
                              belay_event_fn fn, void *context, struct belay_error *err);

    struct belay_store_capabilities (*capabilities)(struct belay_store *store);

    /*
     * Waiting without a missed wake-up: listen(), then look at the record, then
     * wait() with what listen() returned. wait() comes back at once if there
     * was a wake() of the same id in between, at the latest after timeout_ms,
     * and sooner as it likes. A NULL id is woken by every batch with events.
     * All three NULL: the store cannot; then who waits looks again by itself.
     */
    uint32_t (*listen)(struct belay_store *store, const char *lock_id);
    void (*wait)(struct belay_store *store, const char *lock_id, uint32_t listened, int64_t timeout_ms,
                 struct belay_cancel *cancel);
    void (*wake)(struct belay_store *store, const char *lock_id);

    /* All three NULL: this store keeps no such values. An absent one comes back with version 0. */
    enum belay_code (*item_get)(struct belay_store *store, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err);

    /*
     * One write, on disk before it is reported. BELAY_REFUSED if the version is
     * another; BELAY_UNREACHABLE and BELAY_UNKNOWN as for commit(). *out_version is 0
     * after a removal.
     */
    enum belay_code (*item_put)(struct belay_store *store, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err);

    /*
     * All items of a space in the order of their names, until fn returns false.
     * BELAY_OK means that none is missing: "nobody uses it" is decided by this.
     */
    enum belay_code (*item_list)(struct belay_store *store, const char *space, belay_item_fn fn,
                                 void *context, struct belay_error *err);

    /*
     * Have all that was committed on disk. NULL: commit() does so itself, as far
     * as the batch asks for it. A store that has it does no more in commit() than
     * what can be undone by a crash, and nobody may be told of it before. After
     * BELAY_UNKNOWN it may or may not be there, and nothing more can be done. In any
     * thread; what is committed meanwhile is for the next one.
     */
    enum belay_code (*sync)(struct belay_store *store, struct belay_error *err);
    /* With sync(): true if all that was committed is on disk. */
    bool (*is_synced)(struct belay_store *store);

    /* With sync(): commits, syncs and batches of what was synced so far. */
    void (*batches)(struct belay_store *store, struct belay_store_counts *out);

    /*
     * Write a consistent copy of all that was committed, and can be restored, to `path`, which is an empty file. In any
     * thread, for as long as it takes. NULL: such a store is backed up by other means.
     */
    enum belay_code (*backup)(struct belay_store *store, const char *path, struct belay_cancel *cancel,
                              struct belay_error *err);

    /*
     * The id of the store itself: the same through whichever URL it is reached, another
     * one for any other store. NULL: this store has none.
     */
    enum belay_code (*identity)(struct belay_store *store, char out_id[BELAY_STORE_ID_SIZE],
                                struct belay_error *err);
};

/* A store's own struct begins with this. */
struct belay_store {
    const struct belay_store_ops *ops;
};

/* A client on a store of one's own, which it closes in the end, also if this fails. */
BELAY_API enum belay_code belay_client_open_store(struct belay_store *store,
                                                  const struct belay_client_options *options,
                                                  struct belay_client **out_client, struct belay_error *err);

/*
 * For a store's wait(): true once cancelled; and while a thread sleeps on
 * `word` as a futex, have belay_cancel_request() add to it and wake it.
 */
BELAY_API bool belay_cancel_requested(const struct belay_cancel *cancel);
BELAY_API void belay_cancel_bind(struct belay_cancel *cancel, uint32_t *word);
/* The same for who sleeps in poll(): an eventfd that can be read once it is cancelled. -1: no more. */
BELAY_API void belay_cancel_bind_fd(struct belay_cancel *cancel, int fd);

#ifdef __cplusplus
}
#endif

#endif
