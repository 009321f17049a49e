/*
 * One operation on a lock, as a state machine without I/O and without a clock.
 *
 * Start one with op_start(). Then, until op->want is OP_DONE, do what it wants and
 * report the result:
 *
 *     OP_COMMIT  commit op->batch          -> op_on_commit()
 *     OP_GET     read op->keys             -> op_on_get()
 *     OP_WAIT    sleep until woken, or     -> op_on_wake()
 *                op->wait_until_ms
 *
 * An operation is run by a thread that blocks (src/client), by an event loop that
 * has many of them in progress, or by the simulator (test/sim). `now_ms` is always
 * the caller's boot clock. After a commit that succeeded, the caller reports the
 * batch's events, calls op_on_commit(), and then wakes the waiters in op->wakes.
 */
#ifndef LOCK_OP_H
#define LOCK_OP_H

#include "belay/store.h"

enum {
    OP_FEW = 1 + BELAY_ANCESTORS_MAX, /* records of a request for one key */
    OP_ANCESTORS_MAX = BELAY_KEYS_MAX * BELAY_ANCESTORS_MAX,
    OP_KEYS_MAX = BELAY_KEYS_MAX + OP_ANCESTORS_MAX,
    OP_FEW_EVENTS = 4
};

enum op_kind { OP_ACQUIRE, OP_ADOPT, OP_RENEW, OP_RELEASE, OP_FORCE };

/*
 * The keys of a request for several locks at once, and the ancestors of all of them, each
 * once. No key is an ancestor of another. The strings are borrowed.
 */
struct op_joint {
    const char *keys[BELAY_KEYS_MAX]; /* the first is request.key */
    size_t n_keys;
    const char *ancestors[OP_ANCESTORS_MAX];
    uint16_t below[OP_ANCESTORS_MAX]; /* bit i: keys[i] is below this ancestor */
    size_t n_ancestors;
};

/* The parameters of an operation. Everything is borrowed, and must outlive the operation. */
struct op_request {
    enum op_kind kind;
    const char *key;
    const char *ancestors[BELAY_ANCESTORS_MAX]; /* nearest first */
    size_t n_ancestors;
    const struct op_joint *joint; /* several keys; NULL: `key` alone, with `ancestors` */
    enum belay_mode mode;         /* of the lock. Other than to acquire, BELAY_EXCLUSIVE if it is not known:
                                     a wrong mode costs one refused write */
    int slots;                    /* with BELAY_SLOTS */
    const char *lock_id;          /* of the lock to acquire, renew, release or end */
    const char *old_id;           /* adopt: the id that lock_id replaces */
    bool id_is_fresh;             /* lock_id was made for this operation: it was never used before */
    const char *owner;
    const char *owner_name;
    const char *acquired_by; /* the credential of the caller; NULL: none */
    const struct belay_meta *metadata;
    size_t n_metadata;
    int64_t ttl_ms;
    int64_t ttl_if_unknown_ms; /* adopt and renew with ttl_ms 0, if the store does not keep the ttl: the ttl;
                                  0: then that is an error */
    int64_t heartbeat_ms;
    int64_t stale_after_ms;
    bool reentrant;
    bool durable;
    int64_t wait_ms; /* 0: do not wait; < 0: for ever */
    int attempts;    /* 0: no limit */
    bool stepped_backoff;
    enum belay_outcome outcome; /* release */
    const char *by;             /* force; release, if not by the holder; or NULL */
    bool is_own;                /* release: through its struct belay_lock, not by key and lock id */
    const char *reason;         /* force; acquire with ignore_freeze */
    bool ignore_freeze;         /* acquire even if the key is frozen */
    struct belay_store_capabilities capabilities;
    int64_t began_unix_ms; /* when the operation began; the ticket has it, for display */
    uint64_t seed;         /* of the jitter */
    int64_t began_ms;      /* boot clock: when the operation began, perhaps at another backend; 0: now */
    int attempt;           /* acquire: the number of the attempt to continue with; 0: the first */
    bool is_restart;       /* it was begun, and perhaps done, at another backend */
    int64_t rely_until_ms; /* renew: boot clock, the deadline of the lease so far; 0: not known */
};

struct op_steps; /* see step.h */
struct op_room;

/*
 * The id of an intent is made of the lock id and a hash of the key: one lock id may hold several
 * keys below one ancestor, and each can be released by itself.
 */
enum { OP_INTENT_ID_SIZE = BELAY_ID_MAX + 18 };

enum op_want { OP_COMMIT, OP_GET, OP_WAIT, OP_DONE };

struct op {
    enum op_want want;

    /* OP_COMMIT. A batch whose outcome is unknown may be sent again as it is. */
    struct belay_batch batch;
    uint64_t kept_event_id; /* not 0: there is nothing to commit, as the store has the batch's only event
                               already, with this id. See belay_batch.note_refusal */
    /* OP_GET */
    const char **keys;
    size_t n_keys;
    /* OP_WAIT */
    int64_t wait_until_ms; /* boot clock */
    bool queued;           /* we have a ticket, under request.lock_id: wake-ups are for this id */
    bool polling;          /* waiting in the queue. Still set with the OP_GET that follows: it may be
                              answered with the records that another waiter has read since */

    /* After op_on_commit(): the lock ids of the waiters whose turn it may be now. */
    const char **wakes; /* owned; the strings are those of `records` */
    size_t n_wakes;

    /* While waiting, for display. */
    struct {
        const struct belay_info *holder; /* the same as err.holder */
        size_t position;
        int attempt;
        int64_t since_ms;      /* boot clock: when the wait began, perhaps with an earlier request */
        int64_t since_unix_ms; /* the same, as it is in the ticket */
        int64_t retry_ms;      /* boot clock: the next attempt, if we are not woken */
    } waiting;
    bool is_frozen;    /* the last attempt was refused because of a freeze, which err.text names */
    bool is_described; /* err names what blocks us in `records` */
    size_t blocked;    /* the key that err.text is about, if it is BELAY_HELD or BELAY_FROZEN */

    /* OP_DONE */
    enum belay_code code;
    struct belay_error err;     /* owned; with the holder that blocks us */
    struct belay_record record; /* owned; the lock as it is now, if that is known. Of several holders, its
                                   own fields show the one with the request's lock id */
    const struct belay_record *more; /* of several keys: the locks on the others */
    size_t n_more;
    int64_t record_now_ms; /* the store's clock when the record was so */
    /* With BELAY_OK: the record as callers see it, without its lists. It borrows from the record. */
    struct belay_info info;
    int64_t sent_ms;     /* boot clock: the lease counts from here */
    int64_t deadline_ms; /* boot clock: the holder may rely on the lock until then. Acquire, adopt, renew */
    bool reentered;
    bool found_done;   /* an earlier write of this operation, whose answer was lost, had done it: its event
                          was not reported, unless the store keeps events */
    bool found_waited; /* the same for the event wait.ended */

    /* The rest is internal to the state machine. */
    struct op_request request;
    const struct op_steps *steps;
    int state; /* enum acquire_state or enum change_state */
    bool cancelled;
    int64_t asked_ms;             /* boot clock: when the step in progress was requested */
    struct belay_record *records; /* as last read: of the keys, then of their ancestors */
    int64_t records_now_ms;       /* the store's clock at that time */
    struct belay_record blocker;  /* owned; the record of the key below that an intent names */
    const char *blocker_key;      /* borrowed from `records`; not NULL while `blocker` is being read */
    int64_t first_unknown_ms;     /* boot clock before the first acquiring write whose outcome is unknown */
    bool unknown_free;            /* such a write may still acquire the lock when it becomes free */
    uint64_t unknown_revision;    /* such a write may still acquire the lock at this revision; 0: none */
    bool answered;                /* the store has answered at least once */
    bool was_unknown;             /* the outcome of a write is unknown */
    int faults;                   /* failures of the store in a row */
    int64_t faults_since_ms;      /* boot clock: when the first of them was requested */
    bool must_look;               /* read the records before each decision: BELAY_IF_OCCUPIED and
                                     BELAY_IF_NEXT cannot be used */
    bool commit_failed;           /* the last commit failed; a read that succeeds does not clear this */
    int conflicts;                /* writes in a row that were refused because a record had changed */
    int64_t next_attempt_ms;      /* boot clock */
    int64_t frozen_until_ms;      /* boot clock: when the freeze ends; INT64_MAX: no end */
    int64_t ticket_until_ms;      /* boot clock: put the ticket again before this */
    int early_looks;              /* polls at less than poll_ms since seen_holder changed */
    uint64_t seen_holder;         /* a hash of the holder at the last poll, and of our place in the queue */
    uint64_t rng;
    const char **drops;           /* owned; lock ids of the tickets, intents and holders that `writes` drop */
    uint16_t skipped;             /* release of several keys, bit i: the lock on key i had ended before */
    enum belay_code skipped_code; /* the error for the first of these; BELAY_OK: none */
    char (*intent_ids)[OP_INTENT_ID_SIZE];
    struct belay_write *writes;
    struct belay_put_intent *intents;
    struct belay_put_ticket *tickets; /* one for each key */
    struct belay_event *events;       /* owned unless they are few */
    size_t events_room;
    bool no_memory;       /* for an event: the batch is not committed */
    struct op_room *room; /* owned; the arrays above point here if there are several keys; NULL: to few_... */
    struct belay_record few_records[OP_FEW];
    /* Parts of a batch. op_start() leaves them uninitialized, which saves time. */
    const char *few_keys[OP_FEW];
    struct belay_write few_writes[OP_FEW];
    struct belay_event few_events[OP_FEW_EVENTS];
    char few_intent_ids[1][OP_INTENT_ID_SIZE];
    struct belay_put_intent few_intents[BELAY_ANCESTORS_MAX];
    struct belay_put_ticket few_tickets[1];
    struct belay_record values;
};

static inline size_t op_n_targets(const struct op_request *request)
{
    return request->joint == NULL ? 1 : request->joint->n_keys;
}

static inline size_t op_n_ancestors(const struct op_request *request)
{
    return request->joint == NULL ? request->n_ancestors : request->joint->n_ancestors;
}

/* How many records the request is about: those of its keys, then those of their ancestors. */
static inline size_t op_n_records(const struct op_request *request)
{
    return op_n_targets(request) + op_n_ancestors(request);
}

/* The key of record i. */
static inline const char *op_record_key(const struct op_request *request, size_t i)
{
    if (request->joint == NULL) {
        return i == 0 ? request->key : request->ancestors[i - 1];
    }
    return i < request->joint->n_keys ? request->joint->keys[i]
                                      : request->joint->ancestors[i - request->joint->n_keys];
}

/* The keys of the request that are below record i, an ancestor: bit t for key t. */
static inline unsigned op_below(const struct op_request *request, size_t i)
{
    return request->joint == NULL ? 1 : request->joint->below[i - request->joint->n_keys];
}

/* The keys of all records. Returns their number. */
size_t op_request_keys(const struct op_request *request, const char *out_keys[OP_KEYS_MAX]);

void op_start(struct op *op, const struct op_request *request, int64_t now_ms);

/* `sent_ms` was read before the batch was sent. May move records out of `result`. */
void op_on_commit(struct op *op, enum belay_code code, struct belay_commit *result,
                  const struct belay_error *err, int64_t sent_ms, int64_t now_ms);
/* Takes ownership of the content of `records`. */
void op_on_get(struct op *op, enum belay_code code, struct belay_record *records, int64_t store_now_ms,
               const struct belay_error *err, int64_t now_ms);
/* The same with records that were requested at `asked_ms`, perhaps by another waiter, and read at `seen_ms`. */
void op_on_look(struct op *op, enum belay_code code, struct belay_record *records, int64_t store_now_ms,
                const struct belay_error *err, int64_t asked_ms, int64_t seen_ms);
void op_on_wake(struct op *op, int64_t now_ms);

/* ---- how long an acquire waits: the same for every backend ---- */

bool op_may_wait(const struct op_request *request);
/* When it stops waiting, on the boot clock; INT64_MAX: never. */
int64_t op_give_up_ms(const struct op_request *request);
/* The time from this attempt to the next (S4.9). `rng` is the state of the jitter. */
int64_t op_backoff_ms(const struct op_request *request, int attempt, uint64_t *rng);

/*
 * After OP_DONE: how long from now the holder may rely on the lock. A remote caller counts it from
 * before its request, so never for too long. -1: the operation granted no lease.
 */
int64_t op_valid_for_ms(const struct op *op, int64_t now_ms);

/* Add the locks on the further keys to `info`, the lock on the first. NULL: no memory, and `info` is freed. */
struct belay_info *op_info(const struct op *op, struct belay_info *info);

/* End it in any state, with `code`; it may be started again at another backend. Moves the content of `err`. */
void op_stop(struct op *op, enum belay_code code, struct belay_error *err);

/* Give up as soon as the step in progress has its answer. */
void op_cancel(struct op *op);

void op_destroy(struct op *op);

#endif
