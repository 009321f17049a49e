/*
 * Acquires that wait without a connection: a webhook is called with the lock.
 *
 *   BEGUN --in line: answered 202--> WAITING --granted--> CALLING --2xx--> DONE
 *     |                              |  ^   |             |   ^
 *     |              the store fails v  |   |             v   | a pause
 *     |                            TROUBLED |            PAUSED
 *     v                                     v             |
 *   answered with the error           wait is over:       v
 *                                     CALLING says so  no more tries: the lock is released as failed,
 *                                                      and goes to the next in line
 *
 * A request whose wait ends without the lock is told by a call too, with
 * is_ended set: `wait.ended` and the reason. One that was cancelled is not.
 *
 * With a file (webhook_file.c) they survive the server: the ticket is found again
 * by its lock id, and a lock that was granted before is found by it, too (L5).
 * So a webhook is called at least once; DONE is kept for a while, so that a
 * request that is repeated does not start the work again.
 */
#ifndef SERVER_WEBHOOKS_WEBHOOKS_H
#define SERVER_WEBHOOKS_WEBHOOKS_H

#include <jansson.h>

#include "base/address.h"
#include "belay.h"
#include "server/core/json_body.h"
#include "server/core/work.h"
#include "server/http/loop.h"
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
    WEBHOOK_PAUSE_MS = 1000,   /* before the second try; twice as long before each further one */
    WEBHOOK_TROUBLE_MS = 1000, /* before a store that failed is asked again */
    WEBHOOK_DONE_MS = 600000,  /* how long a repeated request is answered "delivered" */
    WEBHOOK_END_MS = 60000,    /* how long a receiver is told that the wait has ended */
    WEBHOOK_RELEASE_MS = 5000, /* how long a server that stops waits for releases to reach the store */
    WEBHOOK_HEADERS = 4
};
#define WEBHOOK_WAIT_MAX_MS (7LL * 24 * 3600 * 1000)

enum webhook_state {
    WEBHOOK_BEGUN,
    WEBHOOK_WAITING,
    WEBHOOK_TROUBLED,
    WEBHOOK_CALLING,
    WEBHOOK_PAUSED,
    WEBHOOK_DONE
};

struct server;
struct exchange;

/* server.webhooks of the configuration, whose texts it borrows. */
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
    struct belay_async *call; /* NULL: none is under way */
    struct exchange *x;       /* who is to be told 202; NULL: told */
    struct timer timer;       /* the end of the wait; the next try; the end of DONE */
    bool is_abandoned;
    bool is_ended; /* the wait is over without the lock: that is what is called with */

    json_t *record; /* owned; what is kept in the file. The texts below point into it. */
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

    /* Once it is granted, or the wait has ended. */
    json_t *lock; /* owned; what is called with */
    int64_t granted_ms;
    uint64_t lsn; /* once this is durable, the webhook may be called */
    int64_t ttl_ms;
    int64_t expires_in_ms;
    int attempt;

    /* One call: the worker's while the work is pending. */
    struct work work;
    char *body; /* owned */
    char attempt_text[16];
    char signature[128];
    struct belay_meta headers[WEBHOOK_HEADERS];
    struct belay_http_post post;
    int status;
    enum belay_code code;
    struct belay_error err;
};

struct webhooks {
    struct webhook *buckets[WEBHOOK_BUCKETS]; /* by lock id */
    struct webhook *unanswered;
    size_t n; /* DONE not counted */
    size_t n_done;
    size_t n_releasing; /* locks that are given back */
    struct webhook_settings settings;
    struct webhook_file file;
    struct belay_cancel *cancel; /* owned; ends calls when the server stops */
    bool is_stopped;             /* no more calls: what is left is for the next server */
};

/* ---- webhooks.c ---- */

/* Read the configuration, and go on with what an earlier server had in line. */
enum belay_code webhooks_open(struct server *server, struct belay_error *err);

/* After a turn of the client: keep what is new, and answer those who are in line now. */
void webhooks_pump(struct server *server);
/* Whether that has nothing to do, whatever was synced. */
bool webhooks_are_idle(const struct webhooks *webhooks);

/* Take those out of the line whose token has lost its rights: the tokens were read again. */
void webhooks_revoke(struct server *server);
void webhooks_stop(struct server *server);  /* the server stops: who has no answer yet gets one */
void webhooks_end(struct server *server);   /* no more calls; before the client's last turn */
void webhooks_close(struct server *server); /* after the client is closed */

struct webhook *webhook_find(struct webhooks *webhooks, const char *lock_id); /* NULL: none */
void webhook_add(struct webhooks *webhooks, struct webhook *webhook);
void webhook_free(struct webhook *webhook);
/* Out of the table, and free it. */
void webhook_drop(struct webhook *webhook);
/* Out of the file too. */
void webhook_forget(struct webhook *webhook);

/* ---- webhook_request.c ---- */

/* An acquire with a webhook. Answers, or will. `name` is who holds it, for people. */
void webhook_begin(struct exchange *x, const struct body *body, const struct belay_lock_options *options,
                   const char *name);

/*
 * The request under this id for x->key gives up. True if it was in line. A place in the queue is for the credential
 * that took it and for admins; once the lock is granted, its id is enough.
 */
bool webhook_leave(struct exchange *x, const char *lock_id);

/* Takes the record. NULL, and logged, if it is not one. */
struct webhook *webhook_new(struct server *server, json_t *record);
/* Queue for the lock: the first time, after a restart, and after the store has failed. */
void webhook_start(struct webhook *webhook);
bool webhook_is_queued(const struct webhook *webhook);
/* Reply 202 if that is still to be done. */
void webhook_answer(struct webhook *webhook);
/* Give it up. True if it was queued. */
bool webhook_abandon(struct webhook *webhook);
/* Release the lock: its webhook will not be called. */
void webhook_give_back(struct webhook *webhook);

/* ---- webhook_call.c ---- */

/* It is granted: call. */
void webhook_call(struct webhook *webhook, const struct belay_info *info);
void webhook_try(struct webhook *webhook);
/* It has ended without the lock: call with the reason. */
void webhook_call_ended(struct webhook *webhook, const char *reason);

/* ---- webhook_settings.c ---- */

enum belay_code webhook_settings_load(const struct belay_config *config, struct webhook_settings *out,
                                      struct belay_error *err);
/* BELAY_INVALID says what is wrong with the URL, or that its address must not be called. */
enum belay_code webhook_check_url(const struct webhook_settings *settings, const char *url,
                                  char out_host[WEBHOOK_HOST_SIZE], struct belay_error *err);

#endif
