/*
 * Acquires under way, and who waits for them.
 *
 *   WAITING --granted--> answered 200
 *      |  ^ --slice is over--> answered 409, KEPT --grace is over--> LEAVING
 *      |  +-- the same lock id again ------------+--the same client, another lock id--> LEAVING
 *      +--hang-up--> LEAVING (the line is left in the loop's turn)
 *      +--SIGTERM--> forgotten: the ticket stays in the store, for who asks again with its lock id
 *
 *   A lock that is granted while nobody is there (KEPT, LEAVING) is UNCLAIMED
 *   for a second: then it goes to the next in line.
 */
#ifndef SERVER_API_PENDING_ACQUIRE_H
#define SERVER_API_PENDING_ACQUIRE_H

#include "belay.h"
#include "server/http/loop.h"

enum {
    PENDING_BUCKETS = 4096,
    PENDING_CLIENT_BUCKETS = 1024,
    PENDING_KEPT_MS = 3000,      /* how long a place is kept between two slices */
    PENDING_UNCLAIMED_MS = 1000, /* L4: a dead waiter at the head delays the line by so much */
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
    struct exchange *x;                /* who is to be answered; NULL: nobody is there */
    struct timer timer;                /* the end of the slice, of the grace, of the claim */
    uint64_t client;                   /* a hash of who waits, from where and for what */
    struct pending_acquire *next_kept; /* while it is KEPT: of the same bucket of pending_acquires.kept */
    struct pending_acquire **kept_back;
    enum pending_state state;
    bool has_id;                    /* the client named it: it can ask again */
    bool can_wait;                  /* else the call ends by itself in this turn */
    int64_t began_unix_ms;          /* if it can wait: then it has a place in line */
    uint64_t began_turn;            /* of the server's */
    int64_t looked_ms;              /* how long the slice was prolonged to learn who is in the way */
    char lock_id[BELAY_ID_MAX + 1]; /* "" until it is known */
    const char *key;                /* behind this struct, in the same block */
    const char *owner;              /* likewise */
    const char *who;                /* likewise: the credential whose place it is; "": none */
};

struct pending_acquires {
    struct pending_acquire *buckets[PENDING_BUCKETS]; /* by lock id, if it is known */
    size_t n;
    struct pending_acquire *kept[PENDING_CLIENT_BUCKETS]; /* by client */
    size_t n_kept;
    struct belay_info *seen; /* owned; a lock with its line, looked up a moment ago */
    int64_t seen_ms;
};

/*
 * Begin to acquire for `x`, for at most wait_ms now. Answers if it cannot be.
 * Takes over the exchange.
 */
void pending_acquire_begin(struct exchange *x, const struct belay_lock_options *options, int64_t wait_ms);

/*
 * The same acquire again: true if `x` has taken the place of who asked before, or is answered that the id has a
 * place which another credential took.
 */
bool pending_acquire_resume(struct exchange *x, const char *lock_id, int64_t wait_ms);

/* The request that waits under this id gives up, if its place is for `x` to change. */
void pending_acquire_abandon(struct exchange *x, const char *lock_id);

void pending_acquire_half_closed(struct pending_acquire *pending);
void pending_acquire_client_gone(struct pending_acquire *pending);

/* Answer those whose token has lost its rights, and give up their places: the tokens were read again. */
void pending_acquires_revoke(struct server *server);
/* Answer all who wait: the server stops. */
void pending_acquires_stop(struct server *server);
void pending_acquires_release(struct pending_acquires *all); /* after the client is closed */

#endif
