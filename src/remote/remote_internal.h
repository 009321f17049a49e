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
    LOCAL_PATIENCE_MS = 10000, /* how long one that holds the file may not answer */
    REMOTE_URL_MAX = 8192,
    REMOTE_HEADERS = 4
};

struct remote {
    struct client_remote base;
    struct http *http;          /* owned */
    char *url;                  /* owned; without a '/' at the end */
    char *authorization;        /* owned; the header's value. NULL: no token */
    char *auth_file;            /* owned; where it is from, for people. NULL: from nowhere */
    bool direct;                /* this machine: past any proxy */
    bool is_local;              /* it owns a file, and comes and goes with it */
    bool (*moved)(void *owner); /* NULL: it never does */
    void *owner;
    bool (*traceparent)(void *context, const char *lock_id, bool is_held, char out[BELAY_TRACEPARENT_SIZE]);
    void *trace_context;
    void (*on_warning)(void *context, const char *text); /* NULL: nobody wants to know */
    void *warn_context;
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
    bool was_begun;              /* by a server that is gone, and perhaps done */
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
/* How long before the next try, after `faults` in a row. */
int64_t remote_backoff_ms(const struct remote *remote, int faults);
/* Whether to try once more, after `faults` in a row since began_ms. */
bool remote_is_patient(const struct remote *remote, int faults, int tries, int64_t began_ms);
/* What a request that failed like this means: BELAY_REDIRECTED if the server is gone for good. */
enum belay_code remote_fault(struct remote *remote, enum belay_code code, struct belay_error *err);
/* Sleep that a cancel ends. */
void remote_sleep(int64_t ms, const struct belay_cancel *cancel);
/* What an answer with this status means, for who asked about `key` (NULL: none). Sets `err` unless it is BELAY_OK. */
enum belay_code remote_judge(const struct remote *remote, int status, const json_t *body, const char *key,
                             struct belay_error *err);
/* A descriptor to poll for the cancel, to be given up by the other; -1: none. */
int remote_watch_cancel(struct belay_cancel *cancel);
void remote_unwatch_cancel(struct belay_cancel *cancel, int fd);
/* Headers for any request; returns how many. */
size_t remote_headers(const struct remote *remote, struct http_header headers[REMOTE_HEADERS]);

/* "/v1/locks/KEY" and `rest`, encoded. */
void remote_add_path(struct buf *out, const char *key, const char *rest);

enum belay_code remote_say_not_belay(const struct remote *remote, struct belay_error *err);

/* ---- the operations ---- */

void remote_run(struct client_remote *base, struct op *op, const struct run_hooks *hooks);
void remote_acquire(struct remote *remote, struct op *op, const struct run_hooks *hooks);
/* Fill the operation from the answer and end it. */
void remote_succeed(struct remote *remote, struct op *op, const json_t *lock, int64_t sent_ms);

enum belay_code remote_get(struct client_remote *base, const char *key, struct belay_info **out_info,
                           struct belay_error *err);
enum belay_code remote_list(struct client_remote *base, const struct belay_query *query, belay_info_fn fn,
                            void *context, bool *out_more, struct belay_error *err);
enum belay_code remote_history(struct client_remote *base, const char *key, size_t limit, belay_event_fn fn,
                               void *context, struct belay_error *err);
enum belay_code remote_note_lost(struct client_remote *base, const struct belay_event *event,
                                 struct belay_error *err);
enum belay_code remote_held(struct client_remote *base, const char *key, const char *lock_id, int64_t wait_ms,
                            struct belay_cancel *cancel, struct belay_error *err);
enum belay_code remote_look_free(struct client_remote *base, const char *key, struct belay_error *err);
enum belay_code remote_item_get(struct client_remote *base, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err);
enum belay_code remote_item_put(struct client_remote *base, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err);
enum belay_code remote_backup(struct client_remote *base, const char *path, struct belay_cancel *cancel,
                              struct belay_error *err);
enum belay_code remote_item_list(struct client_remote *base, const char *space, belay_item_fn fn,
                                 void *context, bool *out_is_partial, struct belay_error *err);
enum belay_code remote_identity(struct client_remote *base, char out_id[BELAY_STORE_ID_SIZE],
                                struct belay_error *err);
enum belay_code remote_watch(struct client_remote *base, const char *prefix, uint64_t after_id,
                             belay_event_fn fn, void *context, struct belay_cancel *cancel,
                             struct belay_error *err);

#endif
