/* What the files of src/store/postgresql share. */
#ifndef STORE_POSTGRESQL_POSTGRESQL_INTERNAL_H
#define STORE_POSTGRESQL_POSTGRESQL_INTERNAL_H

#include <jansson.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/text.h"
#include "store/postgresql/postgresql_store.h"

enum {
    PG_SCHEMA_VERSION = 5,
    PG_FUNCTIONS_VERSION = 5, /* of functions.sql; a schema of the same version may have earlier ones */
    PG_STATE_VERSION = 2,     /* of state.sql, which a schema may lack */
    PG_TIMEOUT_MS = 10000,    /* of one call, if the caller names none */
    PG_POLL_MS = 500,         /* of the first waiter, whom a notification should wake; less than claim_ms */
    PG_POLL_UNWOKEN_MS = 250, /* of those that none can wake, behind a pooler */
    PG_NAME_MAX = 63,         /* of a schema, as PostgreSQL limits it */
    PG_CONNECTIONS_MAX = 16,  /* of one store */
    PG_EVENTS_MAX = 16384,    /* of one transaction: functions.sql numbers them in 14 bits */
    PG_VALUES_MAX = 32,       /* of one call */
    PG_FORGET_EVERY = 1000,   /* commits: then old events are deleted */
    PG_WORDS = 1024           /* that waiters sleep on */
};

/* ---- postgresql_url.c ---- */

struct pg_params {
    char *conninfo; /* owned; for libpq, without belay's own parameters */
    char *url;      /* owned; in full, but for a password */
    char *listen;   /* owned; where LISTEN works, if `conninfo` is a pooler; NULL: the same */
    char schema[PG_NAME_MAX + 1];
    int64_t clock_step_ms;
    int64_t retain_events_ms;
    int64_t retain_records_ms;
};
enum belay_code pg_params_parse(const char *url, struct pg_params *out_params, struct belay_error *err);
void pg_params_release(struct pg_params *params);

/* ---- postgresql_settings.c ---- */

/* NULL: there is no such option, or it has no value. */
const char *pg_option_value(const PQconninfoOption *options, const char *name);
/* Whether libpq would try to connect with this, the PG* variables and a service: does not use the network. */
enum belay_code pg_check_settings(const char *conninfo, struct belay_error *err);
/* libpq said this of a setting. BELAY_INVALID: the URL has it; BELAY_CONFIG: a variable has it, or it is about a file. */
enum belay_code pg_refuse_setting(const char *conninfo, const char *text, struct belay_error *err);

/* ---- postgresql_connect.c ---- */

/* One connection to the server. */
struct pg_conn {
    PGconn *pg;
    struct pg_conn *next; /* in the list of idle ones */
    unsigned prepared;    /* bit i: statement i is prepared on it */
    unsigned used;        /* bit i: statement i was sent once */
    int64_t run_ms;       /* how long pg_conn_run() waits for an answer */
    bool is_unsure;       /* a warning said that the outcome of the last statement is not what it says */
};

/* Connect until `deadline_boot_ms`. */
enum belay_code pg_connect(const char *conninfo, int64_t deadline_boot_ms, struct pg_conn **out_conn,
                           struct belay_error *err);
/* The same. BELAY_BUSY: the server has as many connections as it permits. */
enum belay_code pg_connect_or_busy(const char *conninfo, int64_t deadline_boot_ms, struct pg_conn **out_conn,
                                   struct belay_error *err);
void pg_conn_close(struct pg_conn *conn); /* NULL does nothing */
/* Wait until what was sent has left, and an answer or its end can be read. False: late, or the connection broke. */
bool pg_conn_flush(struct pg_conn *conn, int64_t deadline_boot_ms);
bool pg_conn_await(struct pg_conn *conn, int64_t deadline_boot_ms);
/* Wait for the result of what was sent. NULL: the deadline passed or the connection broke. */
PGresult *pg_conn_result(struct pg_conn *conn, int64_t deadline_boot_ms);
/* One statement without parameters, by which only pg_catalog is searched; the caller clears the result. */
enum belay_code pg_conn_run(struct pg_conn *conn, const char *sql, PGresult **out_result,
                            struct belay_error *err);
/* Wait until there is something to read, and read it. False: late, or the connection broke. */
bool pg_conn_consume(struct pg_conn *conn, int64_t deadline_boot_ms);
/* Whether something between passes the transactions of one client to several sessions. */
bool pg_conn_is_pooled(struct pg_conn *conn);
/*
 * Whether an error shows that nothing was changed: the server reports an error before it commits. An error without
 * an SQLSTATE is libpq's own, such as no memory for the answer; one of class 08 is a pooler's that lost the server.
 */
bool pg_is_undone(const PGresult *result);
/* The code and the text of such an error. */
enum belay_code pg_failed(const PGresult *result, const char *schema, struct belay_error *err);
bool pg_has_state(const PGresult *result, const char *sqlstate);

/* ---- postgresql_call.c ---- */

/* The statements that are sent often; postgresql_call.c has their texts. */
enum pg_statement {
    PG_COMMIT,
    PG_ACQUIRE,
    PG_CHANGE,
    PG_CHANGE_MANY,
    PG_QUEUE,
    PG_CLAIM,
    PG_GET,
    PG_SCAN,
    PG_EVENTS,
    PG_BEFORE_LAST,
    PG_ITEM_GET,
    PG_ITEM_LIST,
    PG_ITEM_PUT,
    PG_FORGET,
    PG_WAKE,
    PG_CLOCK_JUMPED,
    PG_KEEP_CLOCK,
    PG_SETTLE,
    PG_SETTLE_RELEASE,
    PG_HELLO,
    PG_BLOB_PUT,
    PG_BLOB_UPLOAD,
    PG_BLOB_GET,
    PG_BLOB_PIECE,
    PG_BLOB_LIST,
    PG_STATEMENTS
};
_Static_assert(PG_STATEMENTS <= 32, "a connection has a bit for each");

struct pg_wake {
    uint32_t words[PG_WORDS]; /* word 0: the NULL id; futexes of this process */
    pthread_mutex_t mutex;
    pthread_t thread;
    bool started;                /* the thread that listens */
    bool stopped;                /* it must end */
    int poke_fd;                 /* an eventfd that wakes it */
    pthread_mutex_t lending;     /* for the next two */
    int epoll_fd;                /* of the event loop that reads for the thread; -1: none */
    struct pg_conn *lent;        /* borrowed; what it reads from; NULL: the thread does */
    struct pg_sleeper *sleepers; /* those in pg_wait(), under the mutex */
    void (*fn)(void *context, const char *lock_id); /* subscribed; called with the mutex held; NULL: none */
    void *context;
    atomic_bool is_listening;
    atomic_bool is_pooled; /* LISTEN does not work here: poll */
    bool has_heard_itself; /* of whoever reads the connection that listens, as is the next */
    bool has_warned;
};

/* Changes of several threads in one transaction; see postgresql_group.c. */
struct pg_group {
    struct pg_group *next; /* in the list of all, under its mutex, as is n_stores */
    size_t n_stores;       /* that send through it */
    char *key;             /* owned; what their connections have in common: see group_key() */
    pthread_mutex_t mutex; /* for what follows */
    struct pg_member *first;
    struct pg_member **end;
    int n_queued;
    int n_out; /* groups, and changes that are sent alone */
    int n_in;  /* threads that queue, or whose change is out */
    int crowd; /* how many that were of late */
};

struct pg_loop;

/* How far the events of a prefix were read, if a client asks for those after the same one again and again. */
struct pg_tail {
    char *prefix;   /* owned; NULL: none */
    uint64_t after; /* what the client asks for */
    uint64_t read;  /* up to this id none is the prefix's */
    unsigned times; /* it has asked */
};

struct pg_store {
    struct belay_store base;
    struct pg_params params;
    struct postgresql_options options;
    char *sql[PG_STATEMENTS];      /* owned */
    char names[PG_STATEMENTS][24]; /* of the statements, when they are prepared */
    char channel[PG_NAME_MAX + 8]; /* the name of the schema is shorter than it may be */
    char here[18];                 /* names this store in the tickets of its waiters */
    _Atomic uint64_t n_unknown;    /* changes that had an unknown outcome, */
    _Atomic uint64_t n_settled;    /* and how many of them were followed by a pg_settle() */
    atomic_bool is_unprepared;     /* a pooler mixes up prepared statements: send unnamed ones */
    atomic_uint one_change;        /* the number of a type of the schema, in this database */

    pthread_mutex_t mutex;   /* for what follows */
    pthread_cond_t returned; /* a connection */
    pthread_cond_t mended;   /* is_mending has ended */
    struct pg_conn *idle;
    size_t n_open; /* idle or in use */
    bool has_clock;
    int64_t clock_offset_ms;    /* the server's clock minus this machine's boot clock, at least, */
    int64_t clock_seen_boot_ms; /* by the last answer, which was here at this time */
    int64_t clock_most_ms;      /* the same at most, */
    int64_t clock_most_boot_ms; /* as it was at this time: see most_at() */
    bool has_jumped;            /* the server's clock, and it has not begun all leases again yet */
    bool jumped_again;          /* while a thread was telling it */
    bool is_mending;            /* a thread is telling the server of it */
    int64_t mended_boot_ms;     /* when the server last had done so */
    int64_t kept_boot_ms;       /* when the server was last told what this machine knows of its clock */
    char machine[128];          /* names the boot clock; "": it cannot be named */
    char store_id[64];
    uint64_t commits;    /* see begin_counting() */
    struct pg_tail tail; /* of the last client that asked for the events of a prefix */

    struct pg_wake wake;
    struct pg_loop *loop;   /* owned; NULL: no event loop uses it */
    struct pg_group *group; /* shared with the other stores of this process on the same schema */
};

static inline struct pg_store *pg_of(struct belay_store *base)
{
    return (struct pg_store *)base;
}

bool pg_make_statements(struct pg_store *store); /* false: no memory */
/*
 * Call a statement with text parameters. BELAY_UNKNOWN: it may have been executed; with `is_read` that is
 * BELAY_UNREACHABLE. The caller clears *out_result.
 */
struct pg_call {
    enum pg_statement statement;
    const char *const *values;
    int n;
    bool is_read;
    int64_t timeout_ms; /* 0: the store's */
};
enum belay_code pg_call(struct pg_store *store, const struct pg_call *call, PGresult **out_result,
                        struct belay_error *err);
/* The same with bytes for texts. */
struct pg_bytes {
    const void *data; /* instead of the call's value `at`; NULL: none */
    int len;
    int at;
    bool is_answer;     /* all columns of the answer are bytes */
    const int *lengths; /* not NULL: all values are bytes, so many of each */
};
enum belay_code pg_call_bytes(struct pg_store *store, const struct pg_call *call,
                              const struct pg_bytes *bytes, PGresult **out_result, struct belay_error *err);
/*
 * Have a connection, and with it the server's clock, before the first change: without a deadline by that clock a
 * change that is held up on its way could happen long after its client has given it up.
 */
enum belay_code pg_reach(struct pg_store *store, int64_t timeout_ms, struct belay_error *err);
int64_t pg_timeout_ms(const struct pg_store *store, int64_t asked_ms);
/*
 * Wait until all that can be read is on disk and on the synchronous standby, too. A change whose outcome is unknown
 * may be visible without being there: the wait for the standby was cut off. So is a release that is handed on.
 */
enum belay_code pg_settle(struct pg_store *store, int64_t timeout_ms, struct belay_error *err);
/* Whether a change of this store had an unknown outcome and no pg_settle() has succeeded since. */
bool pg_is_unsettled(struct pg_store *store);
/* The same after a release that was handed on. BELAY_UNREACHABLE also if the server has lost it meanwhile. */
enum belay_code pg_settle_release(struct pg_store *store, const char *key, const char *lock_id,
                                  int64_t timeout_ms, struct belay_error *err);
void pg_close_idle(struct pg_store *store);
/* False: it is that late by the boot clock, and the condition was not signalled. */
bool pg_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t until_boot_ms);

/* The steps of a call, for postgresql_loop.c, which waits for none of them. */
struct pg_conn *pg_take_idle(struct pg_store *store); /* NULL: none is idle */
void pg_put_conn(struct pg_store *store, struct pg_conn *conn);
void pg_drop_conn(struct pg_store *store, struct pg_conn *conn); /* closes it */
/* Whether the statement is to be prepared on this connection before it is sent again. */
bool pg_is_unprepared(struct pg_store *store, const struct pg_conn *conn, enum pg_statement statement);
bool pg_send_prepare(struct pg_store *store, struct pg_conn *conn, enum pg_statement statement);
bool pg_send(struct pg_store *store, struct pg_conn *conn, const struct pg_call *call,
             const struct pg_bytes *bytes);
/* Whether the same call can be made again after this error: nothing was changed. *out_closes: elsewhere. */
bool pg_can_repeat(struct pg_store *store, const PGresult *result, bool *out_closes);

/* ---- postgresql_clock.c ---- */

/* The server's clock as far as it is known. */
int64_t pg_server_ms(struct pg_store *store);
/* The server's clock when the caller has no more use for the answer. The clock is known after pg_reach(). */
int64_t pg_deadline_ms(struct pg_store *store, int64_t left_ms);
/* An answer said what the time is. `asked_boot_ms`: when it was asked for. */
void pg_saw_clock(struct pg_store *store, int64_t now_ms, int64_t asked_boot_ms);
enum belay_code pg_ask_time(struct pg_store *store, int64_t *out_now_ms, struct belay_error *err);
/*
 * If the clock jumped forward, have the server begin all leases again. BELAY_UNREACHABLE: that was not done, and what
 * the server says of leases must not be acted on. Whatever it said before is stale: a change that relies on it is
 * refused, because every record has another revision since.
 */
enum belay_code pg_mend_clock(struct pg_store *store, int64_t until_boot_ms, struct belay_error *err);
/* Whether pg_mend_clock() has something to do; whether it was done at this time or later. */
bool pg_has_jumped(struct pg_store *store);
bool pg_was_mended_since(struct pg_store *store, int64_t boot_ms);
/* Which boot clock clock_boot_ms() is; "" in `out` if that cannot be told. */
void pg_name_machine(char *out, size_t size);
/*
 * The first answer of a new connection, with what this machine knew of the clock before, unless `known` is
 * false: compare both, note if it jumped since, and else have the server keep what is known now.
 */
struct pg_known_clock {
    bool known;
    int64_t server_ms;
    int64_t boot_ms;
};
enum belay_code pg_meet_clock(struct pg_store *store, struct pg_conn *conn,
                              const struct pg_known_clock *before, int64_t now_ms, int64_t asked_boot_ms,
                              struct belay_error *err);
/* Whether one of the two has something to do: pg_mend_clock(), or the next. */
bool pg_clock_has_upkeep(struct pg_store *store);
/* Have the server keep what is known of the clock, if that was not done for a while. */
void pg_keep_clock_if_due(struct pg_store *store);

/* The meaning of a notice that comes with the answer to a commit: see on_notice(). */
#define PG_UNSURE "PostgreSQL did not wait for its standby: the change may be lost if it fails over"
/* Without such notices there is no safe answer. */
#define PG_NO_WARNINGS                                                                                       \
    "client_min_messages is error: PostgreSQL would not say that a change is missing on its standby"
#define PG_NO_WARNINGS_ADVICE "set it to warning for this user (ALTER ROLE, or PGOPTIONS)"
/* The functions look again at what has changed while they waited for a row: at any other level they would not see it. */
#define PG_ISOLATION "read committed"
#define PG_BAD_ISOLATION                                                                                     \
    "default_transaction_isolation is %.40s: a lock could be acquired after a freeze was confirmed"
#define PG_ISOLATION_ADVICE "set it to 'read committed' for this user (ALTER ROLE, or PGOPTIONS)"

/* ---- postgresql_record.c ---- */

/* The columns of a record in an answer, from `at` on. */
#define PG_RECORD_COLUMNS                                                                                    \
    "(record).key, (record).revision, (record).held, (record).lock_id, "                                     \
    "pg_catalog.array_to_string((record).released_ids, pg_catalog.chr(10)), "                                \
    "(record).acquired_by, (record).token, (record).owner, (record).owner_name, (record).outcome, "          \
    "(record).durable, (record).stale_reported, (record).ttl_ms, (record).heartbeat_ms, "                    \
    "(record).stale_after_ms, (record).expires_ms, (record).last_heartbeat_ms, (record).locked_at_ms, "      \
    "(record).freed_ms, (record).mode, (record).slots, (record).metadata, (record).tickets, "                \
    "(record).intents, (record).holders, (record).behind"
enum { PG_RECORD_FIELDS = 26 };
/* From their texts; NULL for NULL. */
enum belay_code pg_record_of(const char *const fields[PG_RECORD_FIELDS], struct belay_record *out_record,
                             struct belay_error *err);
enum belay_code pg_read_record(const PGresult *result, int row, int at, struct belay_record *out_record,
                               struct belay_error *err);
/* Any role may have written it, and it must hide no lock and no event: what cannot be read is none. */
enum belay_code pg_read_meta(const char *text, struct belay_meta **out_meta, size_t *out_n,
                             struct belay_error *err);
int64_t pg_number(const PGresult *result, int row, int column);

/* ---- postgresql_batch.c ---- */

/* The batch as functions.sql takes it, for the caller to free. `here` names the store in tickets. */
enum belay_code pg_write_batch(const struct belay_batch *batch, const char *here, int64_t deadline_ms,
                               char **out_text, struct belay_error *err);

/* Metadata as it is stored, for the caller to free; NULL: it is not UTF-8, or there is no memory. */
char *pg_meta_text(const struct belay_meta *meta, size_t n);
/* The same of a ticket, with the name of the store that it waits with. */
char *pg_ticket_text(const struct belay_put_ticket *put, const char *here);
/* ---- postgresql_change.c ---- */

/* The parameters of acquire() or change(), if the batch is of their kind. */
enum { PG_ARGUMENTS_MAX = 16 };
struct pg_arguments {
    enum pg_statement statement;
    int n;
    const char *values[PG_ARGUMENTS_MAX]; /* borrow from the batch and from what follows */
    char numbers[8][NUMBER_TEXT_SIZE];
    char *texts[2]; /* owned */
};
bool pg_is_change(const struct belay_batch *batch);
enum belay_code pg_write_change(const struct pg_store *store, const struct belay_batch *batch,
                                int64_t deadline_ms, struct pg_arguments *out_args, struct belay_error *err);
void pg_arguments_release(struct pg_arguments *args);
/* The number as a text that `args` keeps, in its place i. */
const char *pg_argument_number(struct pg_arguments *args, size_t i, int64_t value);
/* The parameters of a new holder, from the id on to PG_HOLDER_END, with numbers 2 to 4 and the first text. */
enum { PG_HOLDER_END = 13 };
bool pg_fill_holder(struct pg_arguments *args, const struct belay_batch *batch);

/* ---- postgresql_change_many.c ---- */

/* A batch for which pg_is_change() is true, among others. */
struct pg_change {
    const struct belay_batch *batch; /* borrowed */
    int64_t deadline_ms;
    char *answer; /* owned; NULL: send it alone */
};
/* The call for several, whose order changes; false: metadata that is not UTF-8, or no memory. */
enum { PG_CHANGE_MANY_VALUES = 4 };
struct pg_change_many {
    struct pg_call call; /* borrows from what follows, as does `bytes` */
    struct pg_bytes bytes;
    struct buf buffers[PG_CHANGE_MANY_VALUES];
    const char *values[PG_CHANGE_MANY_VALUES];
    int lengths[PG_CHANGE_MANY_VALUES];
};
bool pg_write_change_many(struct pg_store *store, struct pg_change *changes[], size_t n,
                          struct pg_change_many *out_many);
void pg_change_many_release(struct pg_change_many *many);
/* Its answer, for the changes in that order. */
enum belay_code pg_read_change_many(const PGresult *result, struct pg_change *changes[], size_t n);
/* In one transaction; sorts `changes`. BELAY_CANCELLED: nothing was changed. Else BELAY_OK or BELAY_UNKNOWN. */
enum belay_code pg_call_change_many(struct pg_store *store, struct pg_change *changes[], size_t n);

/* ---- postgresql_answer.c ---- */

/* As commit() returns; BELAY_CANCELLED: commit() of functions.sql has to decide. The caller releases *out. */
enum belay_code pg_read_answer(const char *answer, const struct belay_batch *batch, struct belay_commit *out,
                               struct belay_error *err);

/* Whether it is of a release that was handed on, and to which waiter; such a release is not on disk yet. */
bool pg_is_handed_on(const char *answer, char out_id[BELAY_ID_MAX + 1]);

/* ---- postgresql_queue.c ---- */

/* As pg_is_change() and pg_write_change(), for queue() and claim(): a waiter's own batches. */
bool pg_is_queue_batch(const struct belay_batch *batch);
enum belay_code pg_write_queue_batch(const struct pg_store *store, const struct belay_batch *batch,
                                     int64_t deadline_ms, struct pg_arguments *out_args,
                                     struct belay_error *err);

/* ---- postgresql_group.c ---- */

enum {
    PG_GROUPS = 2, /* that are out at a time */
    PG_GROUP_MAX = 32,
    PG_LEAST_MS = 5000, /* a change with less time than this is sent alone */
    PG_GATHER_MS = 5,
    PG_QUEUE_MS = 200
};
/* Whether a group of n may go out: `crowd` changes came at the same time of late. */
bool pg_group_may_go(int n, int n_out, int crowd);
/* The group of all stores of this process with these parameters; NULL: no memory. */
struct pg_group *pg_group_join(const struct pg_params *params);
void pg_group_leave(struct pg_group *group); /* NULL does nothing */
/*
 * Send a batch for which pg_is_change() is true. left_ms: for how long the caller has use for the answer, which
 * the caller frees. BELAY_CANCELLED: commit() of functions.sql has to decide.
 */
enum belay_code pg_group_call(struct pg_store *store, const struct belay_batch *batch, int64_t deadline_ms,
                              int64_t left_ms, char **out_answer, struct belay_error *err);

/* The same in a statement of its own. */
enum belay_code pg_send_alone(struct pg_store *store, const struct belay_batch *batch, int64_t deadline_ms,
                              int64_t left_ms, char **out_answer, struct belay_error *err);

/* ---- postgresql_loop.c ---- */

extern const struct belay_loop_ops pg_loop_ops;
void pg_loop_free(struct pg_loop *loop); /* NULL does nothing */

/* ---- postgresql_commit.c ---- */

/*
 * A commit that the loop has sent: its code is BELAY_OK, with an answer, or BELAY_UNKNOWN, or BELAY_CANCELLED, if
 * nothing was changed; asked_ms is 0 if it was not sent. True: this is its end. False: another call is needed,
 * and pg_commit_finish() makes it.
 */
bool pg_conclude(struct pg_store *store, struct belay_pending_commit *sent, bool is_unsure);
enum belay_code pg_commit_finish(struct belay_store *base, struct belay_pending_commit *sent);

/* ---- the port ---- */

enum belay_code pg_commit(struct belay_store *base, const struct belay_batch *batch, struct belay_commit *out,
                          struct belay_error *err);
enum belay_code pg_get(struct belay_store *base, const char *const *keys, size_t n,
                       struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err);
enum belay_code pg_scan(struct belay_store *base, const struct belay_scan *scan, belay_record_fn fn,
                        void *context, struct belay_error *err);
enum belay_code pg_events(struct belay_store *base, const struct belay_events_query *query, belay_event_fn fn,
                          void *context, struct belay_error *err);
enum belay_code pg_item_get(struct belay_store *base, const char *space, const char *name,
                            struct belay_item *out_item, struct belay_error *err);
enum belay_code pg_item_put(struct belay_store *base, const struct belay_item_write *write,
                            uint64_t *out_version, struct belay_error *err);
enum belay_code pg_item_list(struct belay_store *base, const char *space, belay_item_fn fn, void *context,
                             struct belay_error *err);
enum belay_code pg_identity(struct belay_store *base, char out_id[BELAY_STORE_ID_SIZE],
                            struct belay_error *err);

/* ---- postgresql_wake.c ---- */

void pg_wake_init(struct pg_wake *wake);
void pg_wake_close(struct pg_store *store);
/* From now on an event loop reads notifications, if this descriptor is not -1. */
void pg_wake_lend(struct pg_store *store, int epoll_fd);
/* The loop's: there is something to read. Does not block. */
void pg_wake_read(struct pg_store *store, bool is_hung_up);
/* A waiter in this process, if there is one with that id: the server has told the others. */
void pg_wake_here(struct pg_store *store, const char *lock_id);
void pg_wake_watchers(struct pg_store *store);
uint32_t pg_listen(struct belay_store *base, const char *lock_id);
void pg_wait(struct belay_store *base, const char *lock_id, uint32_t listened, int64_t timeout_ms,
             struct belay_cancel *cancel);
void pg_wake(struct belay_store *base, const char *lock_id);
void pg_subscribe(struct belay_store *base, void (*fn)(void *context, const char *lock_id), void *context);

/* ---- postgresql_schema.c ---- */

/* `text` with @schema@ replaced by the quoted name; the caller frees it; NULL: no memory. */
char *pg_with_schema(const char *text, const char *schema);
enum belay_code pg_schema_describe(struct pg_conn *conn, const char *schema,
                                   struct belay_postgresql_schema *out_schema, struct belay_error *err);
extern const char pg_schema_sql[]; /* schema.sql; cmake/text_array.cmake makes it, and the next */
extern const char pg_functions_sql[];
extern const char pg_state_sql[];

#endif
