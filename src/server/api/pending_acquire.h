/*
 * Acquires in progress, each with the request that waits for it. A client waits in slices: one request each.
 *
 *   WAITING --granted--> reply 200
 *      |  ^ --slice is over--> reply 409, KEPT --grace is over--> LEAVING
 *      |  +-- the same lock id again -------+--the same client, another lock id--> LEAVING
 *      +--hang-up--> LEAVING (leaves the queue in this turn of the loop)
 *      +--slice is over, no place is kept, a store on the network--> LEAVING --has left--> reply 409
 *      +--slice is over, a store on the network fails--> reply 503, dropped
 *      +--SIGTERM--> dropped: the ticket stays in the store, for a client that retries with its lock id
 *
 *   On a store on the network, a request with the same lock id may arrive while the call is still LEAVING, or a request
 *   that waits while a call that does not wait asks the store. The call cannot serve it unless it is granted the lock:
 *   once the call has ended, the request is handled again (`restarts`).
 *
 *   A lock that is granted while no request waits (KEPT, LEAVING) is UNCLAIMED for a second. Then the next waiter
 *   gets it.
 */
#ifndef SERVER_API_PENDING_ACQUIRE_H
#define SERVER_API_PENDING_ACQUIRE_H

#include "belay.h"
#include "server/http/loop.h"

enum {
    PENDING_BUCKETS = 4096,
    PENDING_CLIENT_BUCKETS = 1024,
    PENDING_KEPT_MS = 3000,      /* how long a place is kept between two slices */
    PENDING_LEAVE_MAX_MS = 3000, /* how long an answer waits until the client has left the queue */
    PENDING_UNCLAIMED_MS = 1000, /* L4: a dead waiter at the head delays the queue by so much */
    PENDING_KEPT_MAX = 20000,
    PENDING_SLICES = 3 /* L6: a slice of a wait is at most the ttl divided by this */
};

enum pending_state { PENDING_WAITING, PENDING_KEPT, PENDING_LEAVING, PENDING_UNCLAIMED };

struct server;
struct exchange;

struct pending_acquire {
    struct pending_acquire *next;
    struct pending_acquire **bucket;   /* of pending_acquires.buckets */
    struct server *server;             /* borrowed */
    struct belay_async *call;          /* NULL: it has ended */
    struct exchange *x;                /* the request that waits; NULL: none */
    struct timer timer;                /* the end of the slice, of the grace, of the claim */
    uint64_t client;                   /* if it can wait: a hash of the client's identity, address and key */
    struct pending_acquire *next_kept; /* while KEPT: in the same bucket of pending_acquires.kept */
    struct pending_acquire **kept_back;
    enum pending_state state;
    bool has_id;                    /* the client chose the id: it can retry */
    bool can_wait;                  /* else the call asks the store once */
    bool restarts;                  /* the request came for a call that could not wait for it: see above */
    int64_t began_unix_ms;          /* if it can wait: its place in the queue */
    uint64_t began_turn;            /* group_commit.n_turns then */
    int64_t looked_ms;              /* how long the slice was prolonged to learn the holder */
    struct held_reply *reply;       /* owned; the answer, once it has left the queue; NULL: made then */
    char lock_id[BELAY_ID_MAX + 1]; /* "": not known yet */
    struct lock_keys *keys;         /* owned; of a request for several keys, the first of which is `key` */
    const char *key;                /* behind this struct, in the same allocation */
    const char *owner;              /* likewise */
    const char *who;                /* likewise: the credential that queued it; "": none */
};

struct pending_acquires {
    struct pending_acquire *buckets[PENDING_BUCKETS]; /* by lock id, if known */
    size_t n;
    struct pending_acquire *kept[PENDING_CLIENT_BUCKETS]; /* by client */
    size_t n_kept;
    struct belay_info *seen; /* owned; a lock with its queue, read a moment ago */
    int64_t seen_ms;
};

/*
 * Begin to acquire for `x`, with a slice of wait_ms. Takes the exchange; replies at once if it cannot.
 */
void pending_acquire_begin(struct exchange *x, const struct belay_lock_options *options, int64_t wait_ms);

/* ---- kept_places.c ---- */

/*
 * The next slice of an acquire: true if `x` has taken the place of the request before, or was answered that another
 * credential queued with this id.
 */
bool pending_acquire_resume(struct exchange *x, const char *lock_id, int64_t wait_ms);

/* Give up the acquire with this id, if `x` may change its place. */
void pending_acquire_abandon(struct exchange *x, const char *lock_id);

/* The tokens were reloaded: reply to requests whose token has lost its rights, and give up their places. */
void pending_acquires_revoke(struct server *server);
/* Reply to all that wait: the server stops. */
void pending_acquires_stop(struct server *server);
/* After the client is closed: until then, calls point to these. */
void pending_acquires_release(struct pending_acquires *all);

#endif
