/*
 * The HTTP API of `belay serve`, between include/belay.h and the HTTP server in src/server/http. Everything here runs
 * on the loop's thread, unless it says otherwise. For src/server only.
 */
#ifndef SERVER_CORE_SERVER_H
#define SERVER_CORE_SERVER_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "belay.h"
#include "server/core/auth.h"
#include "server/core/group_commit.h"
#include "server/core/lock_key.h"
#include "server/core/log.h"
#include "server/core/sessions.h"
#include "server/core/site.h"
#include "server/core/store_identity.h"
#include "server/core/work.h"
#include "server/http/http_server.h"

struct server {
    struct loop *loop;           /* owned */
    struct http_server *http;    /* owned */
    struct belay_client *client; /* owned */
    struct belay_config *config; /* owned; the client borrows it, so a reload does not replace it */
    struct tokens *tokens;       /* a reference; replaced on SIGHUP */
    struct delays delays;        /* delayed replies to wrong tokens */
    struct sessions sessions;    /* of dashboards */
    /* Borrowed from serve.c, as is `shared_db_counts`. */
    struct pending_acquires *pending_acquires;
    struct holders *holders; /* that wait to learn of the loss of their locks */
    struct webhooks *webhooks;
    struct notify *notify;                     /* owned */
    struct event_stream *events;               /* owned */
    struct state_pool *states;                 /* owned */
    struct shared_db_counts *shared_db_counts; /* of stops and starts, by outcome */
    struct metrics *metrics;                   /* owned */
    struct route_counts *route_counts;         /* owned; for metrics */
    struct telemetry *telemetry;               /* owned; NULL: not configured */
    struct dashboard_stream *dashboard;        /* owned */
    pthread_t thread;                          /* the loop's */
    struct log log;
    struct group_commit group_commit;
    char run[17];                   /* the prefix of request ids of this run */
    bool is_insecure;               /* --insecure */
    struct site_names names;        /* host names that the server listens on */
    struct workers *workers;        /* owned */
    struct store_identity identity; /* of the store */
    struct loop_watch store_ready; /* the client has something to poll; fd -1: it calls wake_loop() instead */
    bool is_store_local;           /* on this machine: short reads are done on the loop */
    bool is_draining;
    bool has_failed;        /* the store cannot tell what is on disk */
    char *openapi;          /* owned; made once */
    struct exchange *spare; /* owned; ended exchanges, for the next requests */
    size_t n_spare;
    size_t n_releasing; /* calls of server_release() in progress */
    struct buf line;    /* scratch: a lock as JSON */
};

enum { REQUEST_ID_SIZE = 65 };

struct exchange;
typedef void exchange_fn(struct exchange *x);

/* A read of the store that an exchange waits for (exchange_work.c). */
struct exchange_read {
    struct work work; /* pending: replies are kept */
    exchange_fn *fn;
    exchange_fn *then;       /* NULL: fn always replies */
    char *query;             /* owned; what exchange.query points to meanwhile, unless it is empty */
    int status;              /* of the reply that was kept; 0: none */
    char *line;              /* owned; its body; NULL: no memory */
    atomic_bool is_unwanted; /* the client has gone: a long read should end */
};

/* One request that is being answered. */
struct exchange {
    struct exchange *next; /* in the list of spare exchanges, or of those that wait for the same read */
    struct server *server; /* borrowed */
    struct http_request *request;    /* borrowed; NULL once the client is gone */
    int64_t began_us;                /* boot clock */
    const struct route *route;       /* NULL: none matches */
    struct tokens *tokens;           /* a reference to the table of `token`; NULL: no token was needed */
    const struct token *token;       /* borrowed from `tokens`; valid until the exchange ends */
    uint64_t session;                /* that authorized it; 0: a token did, or none was needed */
    struct pending_acquire *pending; /* borrowed; NULL: not acquiring */
    struct holder *holder;           /* borrowed; NULL: not waiting to learn of a loss */
    struct stream *stream;           /* borrowed; NULL: not a stream */
    struct lock_keys *keys; /* owned; of a request with "keys", the first of which is `key`; NULL: one */
    struct body *body;      /* borrowed, while the handler of a route that names a lock runs */
    const char *query;      /* borrowed from the request, or from read.query */
    struct exchange_read read;
    struct {
        uint64_t token; /* 0: not given; the lock id is in found_id */
        int64_t for_ms;
    } check;             /* of locks_check.c */
    uint64_t last_event; /* of event_stream.c: the newest in the store */
    int64_t hours;       /* of dashboard_stream.c: that were asked for */
    const char *allow;   /* borrowed; with a 405: the methods of this path */
    const char *reason;  /* borrowed, while a reply with a 5xx is written: for the log; NULL: none */
    enum role role;
    /* Only the first byte of these is cleared. */
    char who[AUTH_NAME_MAX + 1]; /* the token's name; "" without tokens */
    char id[REQUEST_ID_SIZE];
    char key[BELAY_KEY_MAX + 1];     /* "" until it is known */
    char more[2][BELAY_KEY_MAX + 1]; /* further names in the path */
    char found_id[BELAY_ID_MAX + 1]; /* DELETE of a lock: that of the present lock; renew, check: as given */
};

/* ---- exchange.c ---- */

/* The callbacks of the HTTP server. */
void exchange_handle(void *context, struct http_request *request);
bool exchange_admit(void *context, const struct http_request *request, size_t *max_body);
/*
 * Call the handler of x->route. If the route names a lock, x->body is read before, and it is checked that the token may
 * touch all keys of the request. Also calls a handler again, after the store was read for it.
 */
void exchange_run_handler(struct exchange *x);

/* Each replies, writes the log line and frees the exchange. */
void reply(struct exchange *x, int status, json_t *body); /* takes the body */
/* 200 and the lock with its id, or those of x->keys: for a client that named the id or was just given it. */
void reply_lock(struct exchange *x, const struct belay_info *info);
/* 200 and the locks, one for each key of the request. Takes the array; NULL: no memory. */
void reply_locks(struct exchange *x, json_t *locks);
/* Takes `line`, which is JSON; NULL: no memory. */
void reply_line(struct exchange *x, int status, char *line);
void reply_text(struct exchange *x, int status, const char *type, const char *body, size_t len);
/* With only these headers and X-Request-Id. */
void reply_with(struct exchange *x, int status, const struct http_header *headers, size_t n, const void *body,
                size_t len);
/* The same without copying the body, which is released in any case; one without `release` is copied. */
void reply_shared(struct exchange *x, int status, const struct http_header *headers, size_t n,
                  const struct http_shared *body);
/* The error of an operation, see code_of_server(). */
void reply_error(struct exchange *x, const struct belay_error *err);
/* `more` (taken; may be NULL) is an object whose members are added to the error. */
void reply_error_with(struct exchange *x, int status, const struct belay_error *err, json_t *more);
void reply_problem(struct exchange *x, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* 409: another credential queued with this id. */
void reply_not_yours(struct exchange *x, const char *lock_id);
/* Without a reply: the client is gone, or its stream has ended. */
void exchange_end(struct exchange *x, int status);
/* Free the spare exchanges. */
void exchanges_release(struct server *server);

int status_of(enum belay_code code);
/*
 * The code of an operation as a client of this server gets it. If the store denies access, such as a database with
 * another password, it denies it to the server, whatever the client's token permits. The client can only ask another
 * server, as if this one could not reach its store.
 */
enum belay_code code_of_server(enum belay_code code);

/* The name under which a change is recorded: the token's, else the client's address. */
void exchange_by(const struct exchange *x, char *out, size_t size);

/*
 * Mark a name that a client sent with its credential: "Alice (ci)". So no name can pass for that of another
 * credential. Without a credential, or if the mark is there already, the name stays as it is. BELAY_INVALID, with
 * `what` in its text, if it is no name or the result has `size` bytes or more.
 */
enum belay_code mark_name(const char *name, const char *who, const char *what, char *out, size_t size,
                          struct belay_error *err);

/*
 * The name under which a change is recorded: what the client said in "by", marked with `who`; without that, `usual`.
 * BELAY_INVALID if it is no name.
 */
enum belay_code name_change(const char *said, const char *who, const char *usual, char *out, size_t size,
                            struct belay_error *err);

/* Whether this client may change a place in the queue that the credential `who` took: its own, or as an admin. */
bool exchange_acts_for(const struct exchange *x, const char *who);

/*
 * Whether the client's token, which has `n` of something of which the server can have `most`, may have another one: a
 * quarter is left for other tokens.
 */
bool exchange_has_share(const struct exchange *x, size_t n, size_t most);

/* False, and answered, if the token's keys do not match this one. They limit reads as well as changes. */
bool exchange_may_touch(struct exchange *x, const char *key);
/* The keys of the request: x->keys, or x->key alone. Returns how many. */
size_t exchange_keys(const struct exchange *x, const char *out_keys[BELAY_KEYS_MAX]);
/* The same without a reply, for lists. In any thread that has the exchange. */
bool exchange_may_see(const struct exchange *x, const char *key);
/* Whether the token's keys match any key that this pattern does: that of a freeze, or of a profile's keys. */
bool exchange_may_see_pattern(const struct exchange *x, const char *pattern);
/* False, and answered, if the token is limited to some keys: for numbers over all keys. */
bool exchange_sees_all(struct exchange *x);

/* The options that a body asks for, except owner_name. `keys` NULL: of one key. In locks_write.c. */
enum belay_code fill_options(const struct server *server, const char *key, const struct lock_keys *keys,
                             const struct body *body, struct belay_lock_options *options,
                             struct belay_error *err);

/* Called when the client of an exchange goes away, for the part of the server that the exchange waits in. */
void pending_acquire_half_closed(struct pending_acquire *pending); /* kept_places.c */
void pending_acquire_client_gone(struct pending_acquire *pending);
void holder_answer(struct holder *holder); /* holders.c: read the lock and reply */
void holder_forget(struct holder *holder);

/* ---- routes.c: parameters of the query ---- */

/* A whole number. *out stays as it is if it is absent. BELAY_INVALID names the range. */
enum belay_code query_number(const char *query, const char *name, int64_t min, int64_t max, int64_t *out,
                             struct belay_error *err);
/* A key or the beginning of one, written to `space`. *out stays as it is if it is absent or empty. */
enum belay_code query_key(const char *query, const char *name, char space[BELAY_KEY_MAX + 1],
                          const char **out, struct belay_error *err);

/* ---- exchange_work.c: requests that read the store ---- */

/*
 * Call fn(x) as work of this class, WORK_READ, WORK_SCAN or WORK_STATS; unless it replied, and the client is still
 * there, then(x) on the loop. fn must not touch x->request.
 */
void exchange_read(struct exchange *x, enum work_class class, exchange_fn *fn, exchange_fn *then);
/* True if the reply is kept for the loop to send; takes the body then. */
bool exchange_keeps_reply(struct exchange *x, int status, json_t *body);

/* ---- server.c ---- */

/* Write a line of the log, from any thread. */
void server_log(struct server *server, enum log_level level, const char *event, const char *text);
/* Call server_on_event() with a copy of the event on the loop. From any thread. */
void server_post_event(struct server *server, const struct belay_event *event);
/*
 * Release a lock, or those on all of `keys` (NULL: one), as failed, because no client wants it. `by` is for its history;
 * NULL: the holder.
 */
void server_release(struct server *server, const char *key, const struct lock_keys *keys, const char *lock_id,
                    const char *by);
/* The client's callback for events, in any thread (serve.c). */
void server_on_event(void *context, const struct belay_event *event);

/* ---- visible_json.c: locks and events as this client may see them ---- */

/*
 * Whether a lock id may be shown: to admins, and to the credential that acquired it. Where the store does not
 * keep the credential (layouts of other programs), to admins only.
 */
bool may_see_id(enum role role, const char *who, const struct belay_info *info);
/* The waiters of `info` for `key`, or if that is NULL all that the client may see, in their order. */
json_t *waiting_for(const struct exchange *x, const struct belay_info *info, const char *key);
/* With lock ids only if this client may see them. */
json_t *lock_for(const struct exchange *x, const struct belay_info *info);
/* The same for an error, which every client that is refused gets: of many holders only the first. */
json_t *blocker_for(const struct exchange *x, const struct belay_info *info);
/* The same, with the grant of this id, one of the lock's holders, in front. NULL: it is none of them. */
json_t *grant_for(const struct exchange *x, const struct belay_info *info, const char *lock_id);
/* The grant of this id, in the lock or among its holders; NULL: none. */
const struct belay_info *grant_of(const struct belay_info *info, const char *lock_id);
/* How many hold it now. */
size_t count_active(const struct belay_info *info);
json_t *event_for(const struct exchange *x, const struct belay_event *event);
/* A copy of the error with its holder as this client may see it. */
json_t *error_for(const struct exchange *x, const struct belay_error *err);

/* ---- the handlers ---- */

typedef void route_handler(struct exchange *x);
struct job;
typedef void job_fn(struct job *job);
/* locks_write.c */
route_handler handle_acquire, handle_adopt, handle_renew, handle_release, handle_force, handle_lost;
route_handler handle_held;                    /* holders.c */
route_handler handle_check, handle_check_get; /* locks_check.c */
/* locks_read.c */
route_handler handle_get, handle_list, handle_history, handle_queue, handle_free;
route_handler handle_stats;                                   /* stats_api.c */
route_handler handle_leave;                                   /* webhook_request.c */
route_handler handle_metrics;                                 /* metrics.c */
route_handler handle_health, handle_ready, handle_openapi;    /* health.c, openapi.c */
route_handler handle_events;                                  /* event_stream.c */
route_handler handle_freezes, handle_freeze, handle_unfreeze; /* freezes_api.c */
route_handler handle_backup;                                  /* backup_api.c */
route_handler handle_dashboard_stream, handle_activity;       /* dashboard_stream.c */
route_handler handle_me, handle_tree;                         /* dashboard_api.c */
route_handler handle_session_post, handle_session_delete;     /* session_api.c */
route_handler handle_timeline;                                /* timeline.c */
route_handler handle_page, handle_asset;                      /* assets.c */
/* The jobs of these are in job.h. */
route_handler handle_job;                                                        /* job.c */
route_handler handle_app, handle_quick, handle_database, handle_database_change; /* shared_db_api.c */
route_handler handle_states, handle_state_read, handle_state_write;              /* state_api.c */
route_handler handle_tf_read, handle_tf_write;                                   /* terraform.c */

#endif
