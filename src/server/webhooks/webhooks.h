/*
 * Acquires that wait without a connection: a webhook is called with the lock.
 *
 *   BEGUN --queued: reply 202--> WAITING --granted, or wait over--> PAUSED --due--> CALLING --2xx--> DELIVERED
 *    |  ^                           |                                 ^  |             |
 *    |  |                           | the store fails                 |  |             | other reply, or none
 *    |  +---------- RETRYING <------+                                 +--)-------------+
 *    v                                                                   v
 *   reply with the error                                 no attempt left: the lock is released as failed,
 *                                                        and the next waiter gets it
 *
 * A lock that is granted before the request is queued goes from BEGUN to PAUSED.
 *
 * When the wait ends without the lock, the call has is_ended set: `wait.ended` and the reason. A request that was
 * cancelled gets no call.
 *
 * With a file (webhook_file.c) requests survive the server: the lock id finds the ticket again, or the lock if it was
 * granted before (L5). So a webhook is called at least once. DELIVERED is kept for a while, so that a repeated request
 * does not start the work again.
 */
#ifndef SERVER_WEBHOOKS_WEBHOOKS_H
#define SERVER_WEBHOOKS_WEBHOOKS_H

#include <jansson.h>

#include "base/address.h"
#include "belay.h"
#include "server/core/json_body.h"
#include "server/core/lock_key.h"
#include "server/core/work.h"
#include "server/http/loop.h"
#include "server/webhooks/outgoing.h"
#include "server/webhooks/webhook_file.h"

enum {
    WEBHOOK_BUCKETS = 1024,
    WEBHOOK_DEFAULT_MAX = 1000,
    WEBHOOK_ALLOW_MAX = 64,
    WEBHOOK_URL_MAX = 2048,
    WEBHOOK_SECRET_MAX = 512,
    WEBHOOK_HOST_SIZE = 256,
    WEBHOOK_TIMEOUT_MS = 10000,
    WEBHOOK_ATTEMPTS = 4,
    WEBHOOK_PAUSE_MS = 1000,       /* before the second attempt; doubles with each further one */
    WEBHOOK_RETRY_MS = 1000,       /* before a retry after the store has failed */
    WEBHOOK_DELIVERED_MS = 600000, /* how long a repeated request gets "delivered" */
    WEBHOOK_END_MS = 60000,        /* how long calls with `wait.ended` are attempted */
    WEBHOOK_RELEASE_MS = 5000      /* how long a server that stops waits for releases to reach the store */
};
#define WEBHOOK_CANCELLED_BY "webhook cancelled" /* in the history of a lock whose webhook is not called */
#define WEBHOOK_WAIT_MAX_MS (7LL * 24 * 3600 * 1000)

enum webhook_state {
    WEBHOOK_BEGUN,
    WEBHOOK_WAITING,
    WEBHOOK_RETRYING,
    WEBHOOK_CALLING,
    WEBHOOK_PAUSED,
    WEBHOOK_DELIVERED
};

struct server;
struct exchange;

/* server.webhooks of the configuration, whose strings it borrows. */
struct webhook_settings {
    const char *allow_texts[WEBHOOK_ALLOW_MAX];
    struct address_range allow[WEBHOOK_ALLOW_MAX];
    size_t n_allow;
    size_t max;
    const char *ca_file;
    char secret[WEBHOOK_SECRET_MAX + 1]; /* "": none */
};

struct webhook {
    struct webhook *next;
    struct webhook *next_unanswered;
    struct server *server; /* borrowed */
    enum webhook_state state;
    struct belay_async *call; /* NULL: none is in progress */
    struct exchange *x;       /* waits for 202; NULL: answered */
    struct timer timer;       /* the end of the wait; the next attempt; the end of DELIVERED */
    bool is_abandoned;
    bool is_ended; /* the wait is over without the lock: the call says so */

    struct lock_keys *keys; /* owned; of a request for several keys, the first of which is `key`; NULL: one */
    json_t *record;         /* owned; as kept in the file. The strings below point into it. */
    const char *lock_id;
    const char *key;
    const char *owner;
    const char *name;
    const char *who; /* the credential that queued it; "": none */
    const char *url;
    const char *secret; /* "": calls are not signed */
    char host[WEBHOOK_HOST_SIZE];
    int64_t timeout_ms;
    int64_t until_unix_ms;

    /* After the lock is granted, or the wait has ended. */
    json_t *lock; /* owned; the body of the call */
    int64_t granted_ms;
    uint64_t lsn; /* once this is durable, the webhook may be called */
    int64_t ttl_ms;
    int attempt;

    struct work work;
    struct outgoing out; /* one call: the worker's while the work is pending */
};

struct webhooks {
    struct webhook *buckets[WEBHOOK_BUCKETS]; /* by lock id */
    struct webhook *unanswered;
    size_t n; /* without DELIVERED */
    size_t n_delivered;
    struct webhook_settings settings;
    struct webhook_file file;
    struct belay_cancel *cancel; /* owned; ends calls when the server stops */
    bool is_stopped;             /* no more calls: what is left is for the next server */
};

/* ---- webhooks.c ---- */

/* Read the configuration, and resume what an earlier server had queued. */
enum belay_code webhooks_open(struct server *server, struct belay_error *err);

/*
 * Where the queued webhooks are kept: the configured file, else one beside the database; NULL: there is neither, or no
 * memory. With a suffix ("-notify"): the file of this name beside them.
 */
char *webhooks_path(const struct server *server, const char *suffix);

/* After a sync: write new requests to the file, and reply 202 to those that are queued now. */
void webhooks_pump(struct server *server);
/* Whether webhooks_pump() would have nothing to do. */
bool webhooks_are_idle(const struct webhooks *webhooks);

/* The tokens were reloaded: remove requests whose token has lost its rights from the queue. */
void webhooks_revoke(struct server *server);
void webhooks_stop(struct server *server);  /* the server stops: reply to all */
void webhooks_end(struct server *server);   /* no more calls; before the client's last turn */
void webhooks_close(struct server *server); /* after the client is closed */

void webhook_set_state(struct webhook *webhook, enum webhook_state state);
struct webhook *webhook_find(struct webhooks *webhooks, const char *lock_id); /* NULL: none */
void webhook_add(struct webhooks *webhooks, struct webhook *webhook);
void webhook_free(struct webhook *webhook);
/* Out of the table, and free it. */
void webhook_drop(struct webhook *webhook);
/* Out of the file too. */
void webhook_forget(struct webhook *webhook);

/* ---- webhook_request.c ---- */

/* An acquire with a webhook. Replies now or later. `name` is the holder's, for people. */
void webhook_begin(struct exchange *x, const struct body *body, const struct belay_lock_options *options,
                   const char *name);

/*
 * The request with this id for x->key gives up. True if it was queued. Only the credential that queued it and admins
 * may do so; once the lock is granted, its id suffices.
 */
bool webhook_leave(struct exchange *x, const char *lock_id);

/* The keys of a request for several; null for one. */
json_t *webhook_keys(const struct webhook *webhook);
/* Takes the record. NULL, and logged, if it is not one. */
struct webhook *webhook_new(struct server *server, json_t *record);
/* Queue for the lock: the first time, after a restart, and after the store has failed. */
void webhook_start(struct webhook *webhook);
bool webhook_is_queued(const struct webhook *webhook);
/* Reply 202 if that is still to be done. */
void webhook_answer(struct webhook *webhook);
/* Give it up. True if it was queued. */
bool webhook_abandon(struct webhook *webhook);

/* ---- webhook_call.c ---- */

/* The lock is granted: call. */
void webhook_call(struct webhook *webhook, const struct belay_info *info);
void webhook_try(struct webhook *webhook);
/* The wait has ended without the lock: call with the reason. */
void webhook_call_ended(struct webhook *webhook, const char *reason);

/* ---- webhook_settings.c ---- */

enum belay_code webhook_settings_load(const struct belay_config *config, struct webhook_settings *out,
                                      struct belay_error *err);
/* BELAY_INVALID: the URL is malformed, or its address must not be called. */
enum belay_code webhook_check_url(const struct webhook_settings *settings, const char *url,
                                  char out_host[WEBHOOK_HOST_SIZE], struct belay_error *err);

#endif
