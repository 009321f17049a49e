/* For src/remote only. */
#ifndef REMOTE_REMOTE_INTERNAL_H
#define REMOTE_REMOTE_INTERNAL_H

#include <jansson.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "http_client/http.h"
#include "remote/remote.h"

enum {
    REMOTE_TRIES = 3,
    REMOTE_BACKOFF_MS = 100,
    REMOTE_BACKOFF_MAX_MS = 1000,
    LOCAL_BACKOFF_MS = 10, /* a server on this machine that starts or stops */
    LOCAL_BACKOFF_MAX_MS = 250,
    LOCAL_TIMEOUT_MS = 10000, /* how long to retry while a local server does not answer */
    REMOTE_ANSWER_MS = 10000, /* the timeout of a request, besides the time that it asks the server to wait */
    REMOTE_ANSWER_SEVERAL_MS = 4000, /* the same while there is a front that was not tried yet */
    REMOTE_CHECK_SEVERAL_MS =
        1000, /* likewise, of a check: meanwhile the lease that it asks about runs out */
    REMOTE_RENEW_SEVERAL_MIN_MS = 300, /* the least time for a renewal; see attempt_limit_ms() */
    REMOTE_URL_MAX = 8192,
    REMOTE_HEADERS = 3,      /* of every request */
    REMOTE_MORE_HEADERS = 2, /* of some */
    REMOTE_FRONTS_MAX = 8
};

/* One of several servers on the same store. */
struct remote_front {
    char *url;         /* owned; without a '/' at the end */
    struct http *http; /* owned */
    bool direct;       /* on this machine: no proxy is used */
};

/*
 * The client uses one front, and changes to the next one if that does not answer. A request that is
 * sent again has the same lock id, so it does not matter whether the first front has done it (L5).
 */
struct remote {
    struct backend base;
    struct remote_front fronts[REMOTE_FRONTS_MAX];
    size_t n_fronts;
    atomic_size_t current;              /* the index of the front in use */
    atomic_bool takes_id;               /* a thread has begun to write store_id */
    atomic_bool has_id;                 /* store_id is written, and does not change any more */
    char store_id[BELAY_STORE_ID_SIZE]; /* from the first answer: all fronts must have this store */
    char *authorization;                /* owned; the value of the header. NULL: no token */
    char *auth_file;                    /* owned; where the token is from, for messages. NULL: no token */
    bool is_local;              /* the server owns a file on this machine; remote_options.socket is set */
    bool (*moved)(void *owner); /* as in remote_options; may be NULL */
    void *owner;
    bool (*traceparent)(void *context, const char *lock_id, bool is_held, char out[BELAY_TRACEPARENT_SIZE]);
    void (*on_event)(void *context, const struct belay_event *event); /* NULL: none */
    void (*on_warning)(void *context, const char *text);              /* NULL: none */
    void *context;                                                    /* of the three callbacks */
    int tries;          /* see remote_limit(); 0: as each call has it */
    int64_t answer_ms;  /* the same */
    atomic_bool is_off; /* an answer had the header "Belay-Locking: off" */
};

/* ---- remote_send.c ---- */

struct remote_call {
    const char *method;
    const char *path;    /* with its query, encoded */
    const json_t *body;  /* borrowed; NULL: none */
    const char *key;     /* of the lock, for errors; NULL: none */
    const char *lock_id; /* of the lock, for traces; NULL: none */
    bool is_held;        /* the caller holds the lock */
    bool is_release;     /* the request releases the lock */
    bool is_read;        /* a POST that changes nothing */
    bool is_restart;     /* the operation was begun, and perhaps done, at another backend */
    int64_t timeout_ms;  /* 0: the HTTP client's own */
    int64_t
        first_timeout_ms;  /* of the first attempt at each of several fronts; 0: REMOTE_ANSWER_SEVERAL_MS */
    int64_t rely_until_ms; /* boot clock: a renewal must be answered by then; 0: not known */
    int64_t *out_sent_ms;  /* boot clock: set to when the last attempt was sent; NULL: not wanted */
    int tries;             /* 0: REMOTE_TRIES */
    struct belay_cancel *cancel; /* NULL: none */
};

/*
 * Send one request. *out_body is the JSON of the answer, which the caller releases with
 * json_decref(), or NULL. BELAY_UNREACHABLE: it was not done. BELAY_UNKNOWN: it may have been
 * done; the same request may be sent again.
 */
enum belay_code remote_send(struct remote *remote, const struct remote_call *call, json_t **out_body,
                            struct belay_error *err);
/*
 * Whether a code says what has become of the request. Any other, such as that another front does not know the token,
 * does not undo an earlier attempt that may have been done (L5).
 */
bool remote_is_answer(enum belay_code code);
/* The same, with retries: up to call->tries attempts at each front while there is no answer. */
enum belay_code remote_send_again(struct remote *remote, const struct remote_call *call, json_t **out_body,
                                  struct belay_error *err);
/* remote_send_again() of a GET. Releases `path`. */
enum belay_code remote_send_get(struct remote *remote, struct buf *path, const char *key, json_t **out_body,
                                struct belay_error *err);
/* The same, ended by `cancel` (NULL: none) with BELAY_CANCELLED. */
enum belay_code remote_send_get_until(struct remote *remote, struct buf *path, const char *key,
                                      struct belay_cancel *cancel, json_t **out_body,
                                      struct belay_error *err);
/* The time to the next attempt after `faults` failures in a row; 0: there is a front that was not tried yet. */
int64_t remote_backoff_ms(const struct remote *remote, int faults);
/* Whether to try again after `faults` failures in a row since began_ms. `tries` is for each front. */
bool remote_should_retry(const struct remote *remote, int faults, int tries, int64_t began_ms);
/* The front in use. */
const struct remote_front *remote_front(const struct remote *remote);
/*
 * After a request to `used`: if there was no answer, change to the next front. Returns `code`, or
 * BELAY_REDIRECTED if a local server is gone.
 */
enum belay_code remote_fault(struct remote *remote, const struct remote_front *used, enum belay_code code,
                             struct belay_error *err);
/* A read that may not have been answered has changed nothing: BELAY_UNKNOWN becomes BELAY_UNREACHABLE. */
enum belay_code remote_read_fault(enum belay_code code, struct belay_error *err);
/* The code of an answer to a request about `key` (NULL: none), from its status and body. Sets `err`. */
enum belay_code remote_judge(const struct remote *remote, int status, const json_t *body, const char *key,
                             struct belay_error *err);
/*
 * One HTTP request to `front`. asked->url is its path (NULL: no memory), and asked->headers are those that not every
 * request has. asked->cancel ends it at once. The caller releases the answer, and calls remote_fault().
 */
enum belay_code remote_exchange(struct remote *remote, const struct remote_front *front,
                                const struct http_client_request *asked, struct http_response *out_response,
                                struct belay_error *err);

/* "/v1/locks/KEY", with the key encoded, and `rest`. */
void remote_add_path(struct buf *out, const char *key, const char *rest);

/* Set `err`: the answer is not one of a belay server. Returns BELAY_CONFIG. */
enum belay_code remote_say_not_belay(const struct remote *remote, struct belay_error *err);

/* ---- the operations ---- */

enum belay_code remote_acquire(struct remote *remote, struct op_request *request,
                               const struct wait_hooks *hooks, struct op_result *out_result,
                               struct belay_error *err);
/* The body of a request: {"key"}, or {"keys"} for several. NULL: no memory. */
json_t *remote_keys_body(const struct op_request *request);
/* Read the lock in the answer to a request that was sent at sent_ms. */
enum belay_code remote_read_result(struct remote *remote, const struct op_request *request,
                                   const json_t *lock, int64_t sent_ms, struct op_result *out_result,
                                   struct belay_error *err);
/* POST `body`, which is released, and ignore the body of the answer. Sent once, unless call->tries is set. */
enum belay_code remote_post(struct remote *remote, struct remote_call *call, json_t *body,
                            struct belay_error *err);
/* Set a member of `body`, unless the text is NULL. */
void remote_set_text(json_t *body, const char *name, const char *text);
void remote_set_metadata(json_t *body, const struct belay_meta *metadata, size_t n);

/* See struct backend_ops. */
enum belay_code remote_run(struct backend *base, struct op_request *request, const struct wait_hooks *hooks,
                           struct op_result *out_result, struct belay_error *err);
enum belay_code remote_get(struct backend *base, const char *key, struct belay_info **out_info,
                           struct belay_error *err);
enum belay_code remote_check(struct backend *base, const struct lock_check *check,
                             struct belay_info **out_info, struct belay_error *err);
enum belay_code remote_list(struct backend *base, const struct belay_query *query, belay_info_fn fn,
                            void *context, bool *out_more, struct belay_error *err);
enum belay_code remote_events(struct backend *base, const struct belay_events_query *query, belay_event_fn fn,
                              void *context, struct belay_error *err);
enum belay_code remote_watch(struct backend *base, const char *prefix, uint64_t *after, belay_event_fn fn,
                             void *context, struct belay_cancel *cancel, struct belay_error *err);
enum belay_code remote_note(struct backend *base, const struct belay_event *event, struct belay_error *err);
enum belay_code remote_check_free(struct backend *base, const struct op_request *request,
                                  struct poller *poller, int64_t *retry_ms, struct belay_cancel *cancel,
                                  struct belay_error *err);
enum belay_code remote_await_loss(struct backend *base, const struct op_request *request, int64_t wait_ms,
                                  struct belay_cancel *cancel, struct belay_error *err);
enum belay_code remote_item_get(struct backend *base, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err);
enum belay_code remote_item_put(struct backend *base, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err);
enum belay_code remote_item_list(struct backend *base, const char *space, belay_item_fn fn, void *context,
                                 bool *out_is_partial, struct belay_error *err);
enum belay_code remote_stats(struct backend *base, const struct belay_stats_query *query,
                             struct belay_stats **out_stats, struct belay_error *err);
enum belay_code remote_past_holds(struct backend *base, const char *key, struct belay_holds *out_holds,
                                  struct belay_error *err);
enum belay_code remote_freezes(struct backend *base, const struct freeze_request *request, belay_freeze_fn fn,
                               void *context, struct belay_error *err);
enum belay_code remote_decide(struct backend *base, const struct client_decision *decision,
                              struct belay_error *err);
enum belay_code remote_backup(struct backend *base, const char *path, struct belay_cancel *cancel,
                              struct belay_error *err);
enum belay_code remote_identity(struct backend *base, char out_id[BELAY_STORE_ID_SIZE],
                                struct belay_error *err);
/* The same, ended by `cancel`. */
enum belay_code remote_identity_until(struct remote *remote, struct belay_cancel *cancel,
                                      char out_id[BELAY_STORE_ID_SIZE], struct belay_error *err);
enum belay_code remote_credential(struct backend *base, char out_name[BELAY_OWNER_MAX + 1],
                                  struct belay_error *err);

#endif
