/* What the files of src/store/postgresql share. */
#ifndef STORE_POSTGRESQL_POSTGRESQL_INTERNAL_H
#define STORE_POSTGRESQL_POSTGRESQL_INTERNAL_H

#include <jansson.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "store/postgresql/postgresql_store.h"

enum {
    PG_SCHEMA_VERSION = 4,
    PG_STATE_VERSION = 1,     /* of state.sql, which a schema may lack */
    PG_TIMEOUT_MS = 10000,    /* of one call, if the caller names none */
    PG_POLL_MS = 500,         /* of the first waiter, whom a notification should wake; less than claim_ms */
    PG_POLL_UNWOKEN_MS = 250, /* of those that none can wake, behind a pooler */
    PG_NAME_MAX = 63,         /* of a schema, as PostgreSQL limits it */
    PG_CONNECTIONS_MAX = 16,  /* of one store */
    PG_EVENTS_MAX = 64,       /* of one transaction: functions.sql numbers them in 6 bits */
    PG_VALUES_MAX = 32,       /* of one call */
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
void pg_conn_close(struct pg_conn *conn); /* NULL does nothing */
/* Wait until what was sent has left, and an answer or its end can be read. False: late, or the connection broke. */
bool pg_conn_flush(struct pg_conn *conn, int64_t deadline_boot_ms);
bool pg_conn_await(struct pg_conn *conn, int64_t deadline_boot_ms);
/* Wait for the result of what was sent. NULL: the deadline passed or the connection broke. */
PGresult *pg_conn_result(struct pg_conn *conn, int64_t deadline_boot_ms);
/* One statement without parameters; the caller clears the result. */
enum belay_code pg_conn_run(struct pg_conn *conn, const char *sql, PGresult **out_result,
                            struct belay_error *err);
/* Whether something between passes the transactions of one client to several sessions. */
bool pg_conn_is_pooled(struct pg_conn *conn);
/* The code and the text of a result that is an error. */
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
    PG_BLOB_REMOVE,
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
    bool started;                                   /* the thread that listens */
    bool stopped;                                   /* it must end */
    int stop_fd;                                    /* an eventfd that wakes it */
    struct pg_sleeper *sleepers;                    /* those in pg_wait(), under the mutex */
    void (*fn)(void *context, const char *lock_id); /* subscribed; called with the mutex held; NULL: none */
    void *context;
    atomic_bool is_listening;
    atomic_bool is_pooled; /* LISTEN does not work here: poll */
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

struct pg_store {
    struct belay_store base;
    struct pg_params params;
    struct postgresql_options options;
    char *sql[PG_STATEMENTS];      /* owned */
    char channel[PG_NAME_MAX + 8]; /* the name of the schema is shorter than it may be */
    char here[17];                 /* names this store in the tickets of its waiters */
    atomic_bool is_unsettled;      /* a change has an unknown outcome: see pg_settle() */
    atomic_bool is_unprepared;     /* a pooler mixes up prepared statements: send unnamed ones */
    atomic_uint one_change;        /* the number of a type of the schema, in this database */

    pthread_mutex_t mutex; /* for what follows */
    pthread_cond_t returned;
    struct pg_conn *idle;
    size_t n_open; /* idle or in use */
    bool has_clock;
    int64_t clock_offset_ms; /* the server's clock minus this machine's boot clock: at least, */
    int64_t clock_most_ms;   /* and at most, by the last answer */
    int64_t jumped_to_ms;    /* the server's clock after a jump that it was not told of yet; 0: none */
    int64_t kept_boot_ms;    /* when the server was last told what this machine knows of its clock */
    char machine[128];       /* names the boot clock; "": it cannot be named */
    char store_id[64];
    uint64_t commits;

    struct pg_wake wake;
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
/* The same after a release that was handed on. BELAY_UNREACHABLE also if the server has lost it meanwhile. */
enum belay_code pg_settle_release(struct pg_store *store, const char *key, const char *lock_id,
                                  int64_t timeout_ms, struct belay_error *err);
void pg_close_idle(struct pg_store *store);

/* ---- postgresql_clock.c ---- */

/* The server's clock as far as it is known. */
int64_t pg_server_ms(struct pg_store *store);
/* The server's clock when the caller has no more use for the answer. The clock is known after pg_reach(). */
int64_t pg_deadline_ms(struct pg_store *store, int64_t left_ms);
/* An answer said what the time is. `asked_boot_ms`: when it was asked for. */
void pg_saw_clock(struct pg_store *store, int64_t now_ms, int64_t asked_boot_ms);
/* If the clock jumped forward since the answer before, begin all leases again. True: that was done. */
bool pg_mend_clock(struct pg_store *store);
/* Which boot clock clock_boot_ms() is; "" in `out` if that cannot be told. */
void pg_name_machine(char *out, size_t size);
/*
 * The first answer of a new connection, with what this machine knew of the clock before, unless `known` is
 * false: compare both, begin all leases again if it jumped since, and have the server keep what is known now.
 */
struct pg_known_clock {
    bool known;
    int64_t server_ms;
    int64_t boot_ms;
};
enum belay_code pg_meet_clock(struct pg_store *store, struct pg_conn *conn,
                              const struct pg_known_clock *before, int64_t now_ms, int64_t asked_boot_ms,
                              struct belay_error *err);
/* Have the server keep what is known of the clock, if that was not done for a while. */
void pg_keep_clock_if_due(struct pg_store *store);

/* ---- postgresql_record.c ---- */

/* The columns of a record in an answer, from `at` on. */
#define PG_RECORD_COLUMNS                                                                                    \
    "(record).key, (record).revision, (record).held, (record).lock_id, "                                     \
    "array_to_string((record).released_ids, chr(10)), "                                                      \
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
enum belay_code pg_read_meta(const char *text, struct belay_meta **out_meta, size_t *out_n,
                             struct belay_error *err);
int64_t pg_number(const PGresult *result, int row, int column);

/* ---- postgresql_batch.c ---- */

/* The batch as functions.sql takes it, for the caller to free. */
enum belay_code pg_write_batch(const struct belay_batch *batch, int64_t deadline_ms, char **out_text,
                               struct belay_error *err);

/* Metadata as it is stored, for the caller to free; NULL: it is not UTF-8, or there is no memory. */
char *pg_meta_text(const struct belay_meta *meta, size_t n);
/* The same of a ticket, with the name of the store that it waits with. */
char *pg_ticket_text(const struct belay_put_ticket *put, const char *here);
/* The parameters of acquire() or change(), if the batch is of their kind. */
enum { PG_ONE_VALUES = 23 };
struct pg_one {
    enum pg_statement statement;
    int n;
    const char *values[PG_ONE_VALUES]; /* borrow from the batch and from what follows */
    char numbers[8][24];
    char *texts[2]; /* owned */
};
bool pg_is_one(const struct belay_batch *batch);
enum belay_code pg_write_one(const struct pg_store *store, const struct belay_batch *batch,
                             int64_t deadline_ms, struct pg_one *out_one, struct belay_error *err);
void pg_one_release(struct pg_one *one);
/* The number as a text that `one` keeps, in its place i. */
const char *pg_one_number(struct pg_one *one, size_t i, int64_t value);
/* The parameters of a new holder, from the id on to PG_HOLDER_END, with numbers 2 to 4 and the first text. */
enum { PG_HOLDER_END = 13 };
bool pg_one_fill_holder(struct pg_one *one, const struct belay_batch *batch);

/* ---- postgresql_many.c ---- */

/* A batch for which pg_is_one() is true, among others. */
struct pg_item {
    const struct belay_batch *batch; /* borrowed */
    int64_t deadline_ms;
    char *answer; /* owned; NULL: send it alone */
};
/* Whether change_many() can do it, beside others. */
bool pg_can_join(const struct belay_batch *batch);
/* In one transaction; sorts `items`. BELAY_CANCELLED: nothing was changed. Else BELAY_OK or BELAY_UNKNOWN. */
enum belay_code pg_call_many(struct pg_store *store, struct pg_item *items[], size_t n);

/* ---- postgresql_answer.c ---- */

/* As commit() returns; BELAY_CANCELLED: commit() of functions.sql has to decide. The caller releases *out. */
enum belay_code pg_read_answer(const char *answer, const struct belay_batch *batch, struct belay_commit *out,
                               struct belay_error *err);

/* Whether it is of a release that was handed on, and to which waiter; such a release is not on disk yet. */
bool pg_is_handed_on(const char *answer, char out_id[BELAY_ID_MAX + 1]);

/* ---- postgresql_turn.c ---- */

/* As pg_is_one() and pg_write_one(), for queue() and claim(): a waiter's own batches. */
bool pg_is_turn(const struct belay_batch *batch);
enum belay_code pg_write_turn(const struct pg_store *store, const struct belay_batch *batch,
                              int64_t deadline_ms, struct pg_one *out_turn, struct belay_error *err);

/* ---- postgresql_group.c ---- */

/* The group of all stores of this process with these parameters; NULL: no memory. */
struct pg_group *pg_group_join(const struct pg_params *params);
void pg_group_leave(struct pg_group *group); /* NULL does nothing */
/*
 * Send a batch for which pg_is_one() is true. left_ms: for how long the caller has use for the answer, which
 * the caller frees. BELAY_CANCELLED: commit() of functions.sql has to decide.
 */
enum belay_code pg_group_call(struct pg_store *store, const struct belay_batch *batch, int64_t deadline_ms,
                              int64_t left_ms, char **out_answer, struct belay_error *err);

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
