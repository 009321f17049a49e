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
    LOCAL_TIMEOUT_MS = 10000,        /* how long one that holds the file may not answer */
    REMOTE_ANSWER_MS = 10000,        /* beyond what the server was asked to wait */
    REMOTE_ANSWER_SEVERAL_MS = 4000, /* the same while another front was not asked yet */
    REMOTE_URL_MAX = 8192,
    REMOTE_HEADERS = 5,
    REMOTE_FRONTS_MAX = 8
};

/* One of several servers on the same store. */
struct remote_front {
    char *url;         /* owned; without a '/' at the end */
    struct http *http; /* owned */
    bool direct;       /* this machine: past any proxy */
};

/*
 * The client asks one front, and goes over to the next when that does not answer. A request that is
 * sent again names the same lock id, so it does not matter whether the front before has done it (L5).
 */
struct remote {
    struct backend base;
    struct remote_front fronts[REMOTE_FRONTS_MAX];
    size_t n_fronts;
    atomic_size_t current;              /* the front to ask */
    atomic_bool takes_id;               /* a thread has begun to write store_id */
    atomic_bool has_id;                 /* store_id is there, and does not change */
    char store_id[BELAY_STORE_ID_SIZE]; /* of the first answer: all fronts must have this store */
    char *authorization;                /* owned; the header's value. NULL: no token */
    char *auth_file;                    /* owned; where it is from, for people. NULL: from nowhere */
    bool is_local;                      /* it owns a file, and comes and goes with it */
    bool (*moved)(void *owner);         /* NULL: it never does */
    void *owner;
    bool (*traceparent)(void *context, const char *lock_id, bool is_held, char out[BELAY_TRACEPARENT_SIZE]);
    void (*on_event)(void *context, const struct belay_event *event); /* NULL: none */
    void (*on_warning)(void *context, const char *text);              /* NULL: none */
    void *context;                                                    /* of the three callbacks */
    atomic_bool is_off; /* the server has said that its locking is switched off */
};

/* ---- remote.c ---- */

struct remote_call {
    const char *method;
    const char *path;            /* with its query, encoded */
    const json_t *body;          /* borrowed; NULL: none */
    const char *key;             /* what it is about, for errors; NULL: nothing */
    const char *lock_id;         /* the same, for traces; NULL: none */
    bool is_held;                /* it is about a lock that is ours already */
    bool is_release;             /* it ends that lock */
    bool is_read;                /* it changes nothing, although it is a POST */
    bool is_restart;             /* it was begun, and perhaps done, at another backend */
    int64_t timeout_ms;          /* 0: the usual */
    int tries;                   /* 0: REMOTE_TRIES */
    struct belay_cancel *cancel; /* NULL: none */
};

/*
 * One request. *out_body is the answer, to be given up with json_decref(); it is
 * NULL if none came that is JSON. BELAY_OK: it was done. BELAY_UNREACHABLE: it
 * surely was not, for now. BELAY_UNKNOWN: the same request may be sent again.
 */
enum belay_code remote_send(struct remote *remote, const struct remote_call *call, json_t **out_body,
                            struct belay_error *err);
/* Up to call->tries times, while it does not get through. */
enum belay_code remote_send_again(struct remote *remote, const struct remote_call *call, json_t **out_body,
                                  struct belay_error *err);
/* How long before the next try, after `faults` in a row: 0 if another front was not tried yet. */
int64_t remote_backoff_ms(const struct remote *remote, int faults);
/* Whether to try once more, after `faults` in a row since began_ms. `tries` is for each front. */
bool remote_should_retry(const struct remote *remote, int faults, int tries, int64_t began_ms);
/* The front to ask now. */
const struct remote_front *remote_front(const struct remote *remote);
/*
 * What a request to `used` that failed like this means: BELAY_REDIRECTED if the server is gone for good. If there
 * are other fronts, the next request goes to one of them.
 */
enum belay_code remote_fault(struct remote *remote, const struct remote_front *used, enum belay_code code,
                             struct belay_error *err);
/* What an answer with this status means for a request about `key` (NULL: none). Sets `err` unless it is BELAY_OK. */
enum belay_code remote_judge(const struct remote *remote, int status, const json_t *body, const char *key,
                             struct belay_error *err);
/* A descriptor to poll for the cancel, to be given up by the other; -1: none. */
int remote_watch_cancel(struct belay_cancel *cancel);
void remote_unwatch_cancel(struct belay_cancel *cancel, int fd);
/* Headers for any request; returns how many. */
size_t remote_headers(const struct remote *remote, struct http_client_header headers[REMOTE_HEADERS]);

/* "/v1/locks/KEY" and `rest`, encoded. */
void remote_add_path(struct buf *out, const char *key, const char *rest);

enum belay_code remote_say_not_belay(const struct remote *remote, struct belay_error *err);

/* ---- the operations ---- */

enum belay_code remote_acquire(struct remote *remote, struct op_request *request,
                               const struct wait_hooks *hooks, struct op_result *out_result,
                               struct belay_error *err);
/* The lock in the answer to a request that was sent at sent_ms. */
/* The body of a request: {"key"}, or {"keys"} for several. NULL: no memory. */
json_t *remote_keys_body(const struct op_request *request);
enum belay_code remote_read_result(struct remote *remote, const struct op_request *request,
                                   const json_t *lock, int64_t sent_ms, struct op_result *out_result,
                                   struct belay_error *err);
/* POST a body, which is released, and drop the answer; once, unless call->tries is set. */
enum belay_code remote_post(struct remote *remote, struct remote_call *call, json_t *body,
                            struct belay_error *err);
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
                                  struct poller *poller, int64_t *retry_ms, struct belay_error *err);
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
enum belay_code remote_credential(struct backend *base, char out_name[BELAY_OWNER_MAX + 1],
                                  struct belay_error *err);

#endif
