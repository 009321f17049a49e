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
 * With a file (hook_file.c) they survive the server: the ticket is found again
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
    HOOK_BUCKETS = 1024,
    HOOK_DEFAULT_MAX = 1000,
    HOOK_ALLOW_MAX = 64,
    HOOK_URL_MAX = 2048,
    HOOK_SECRET_MAX = 512,
    HOOK_HOST_SIZE = 256,
    HOOK_TIMEOUT_MS = 10000,
    HOOK_ATTEMPTS = 4,
    HOOK_PAUSE_MS = 1000,   /* before the second try; twice as long before each further one */
    HOOK_TROUBLE_MS = 1000, /* before a store that failed is asked again */
    HOOK_DONE_MS = 600000,  /* how long a repeated request is answered "delivered" */
    HOOK_END_MS = 60000,    /* how long a receiver is told that the wait has ended */
    HOOK_RELEASE_MS = 5000, /* how long a server that stops waits for releases to reach the store */
    HOOK_HEADERS = 4
};
#define HOOK_WAIT_MAX_MS (7LL * 24 * 3600 * 1000)

enum hook_state { HOOK_BEGUN, HOOK_WAITING, HOOK_TROUBLED, HOOK_CALLING, HOOK_PAUSED, HOOK_DONE };

struct server;
struct exchange;

/* server.webhooks of the configuration, whose texts it borrows. */
struct hook_settings {
    const char *allow_texts[HOOK_ALLOW_MAX];
    struct address_range allow[HOOK_ALLOW_MAX];
    size_t n_allow;
    size_t max;
    const char *ca_file;
    char secret[HOOK_SECRET_MAX + 1]; /* "": none */
};

struct hook {
    struct hook *next;
    struct hook *next_unanswered;
    struct server *server; /* borrowed */
    enum hook_state state;
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
    char host[HOOK_HOST_SIZE];
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
    struct belay_meta headers[HOOK_HEADERS];
    struct belay_http_post post;
    int status;
    enum belay_code code;
    struct belay_error err;
};

struct hooks {
    struct hook *buckets[HOOK_BUCKETS]; /* by lock id */
    struct hook *unanswered;
    size_t n; /* DONE not counted */
    size_t n_done;
    size_t n_releasing; /* locks that are given back */
    struct hook_settings settings;
    struct hook_file file;
    struct belay_cancel *cancel; /* owned; ends calls when the server stops */
    bool is_stopped;             /* no more calls: what is left is for the next server */
};

/* ---- hooks.c ---- */

/* Read the configuration, and go on with what an earlier server had in line. */
enum belay_code hooks_open(struct server *server, struct belay_error *err);

/* An acquire with a webhook. Answers, or will. `name` is who holds it, for people. */
void hook_begin(struct exchange *x, const struct body *body, const struct belay_lock_options *options,
                const char *name);

/*
 * The request under this id for x->key gives up. True if it was in line. A place in the queue is for the credential
 * that took it and for admins; once the lock is granted, its id is enough.
 */
bool hook_leave(struct exchange *x, const char *lock_id);

/* After a turn of the client: keep what is new, and answer those who are in line now. */
void hooks_pump(struct server *server);
/* Whether that has nothing to do, whatever was synced. */
bool hooks_are_idle(const struct hooks *hooks);

/* Take those out of the line whose token has lost its rights: the tokens were read again. */
void hooks_revoke(struct server *server);
void hooks_stop(struct server *server);  /* the server stops: who has no answer yet gets one */
void hooks_end(struct server *server);   /* no more calls; before the client's last turn */
void hooks_close(struct server *server); /* after the client is closed */

void hook_drop(struct hook *hook);
/* Out of the file, then drop it. */
void hook_forget(struct hook *hook);

/* ---- hook_call.c ---- */

/* It is granted: call. */
void hook_call(struct hook *hook, const struct belay_info *info);
void hook_try(struct hook *hook);
/* It has ended without the lock: call with the reason. */
void hook_call_ended(struct hook *hook, const char *reason);

/* ---- hook_settings.c ---- */

enum belay_code hook_settings_load(const struct belay_config *config, struct hook_settings *out,
                                   struct belay_error *err);
/* BELAY_INVALID says what is wrong with the URL, or that its address must not be called. */
enum belay_code hook_check_url(const struct hook_settings *settings, const char *url,
                               char out_host[HOOK_HOST_SIZE], struct belay_error *err);

#endif
