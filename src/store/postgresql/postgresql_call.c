/*
 * A call of one of the schema's functions: a connection from the pool, a deadline, and what the
 * answer or its absence means.
 *
 *     take a connection -> send -> wait -+-- answer: done
 *       ^                                +-- error before the commit: nothing was changed
 *       |                                |     (deadlock, a standby, a pooler: again)
 *       |                                +-- connection lost, or late: unknown, close it
 *       +--------------------------------+-- lost before anything was sent: again
 *
 * The first time a connection sends a statement, it sends it unnamed, which a command that makes
 * one call wants; from the second time on it is prepared.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fnv.h"
#include "store/postgresql/postgresql_internal.h"

enum { ATTEMPTS = 5 };

/* Functions have their schema: see send_sql() in postgresql_connect.c. */
static const char *const texts[PG_STATEMENTS] = {
    [PG_COMMIT] = "SELECT code, now_ms, refused, token, event_id, detail, " PG_RECORD_COLUMNS
                  " FROM @schema@.commit($1::jsonb)",
    [PG_ACQUIRE] = "SELECT @schema@.acquire($1::text, $2::bigint, $3::text, $4::text, $5::text, $6::text, "
                   "$7::text, $8::boolean, $9::bigint, $10::bigint, $11::bigint, $12::boolean, $13::boolean, "
                   "$14::boolean, $15::text)",
    [PG_CHANGE] = "SELECT @schema@.change($1::text, $2::bigint, $3::text, $4::integer, $5::bigint, "
                  "$6::smallint, $7::text, $8::text, $9::text, $10::bigint, $11::text, $12::text)",
    [PG_CHANGE_MANY] = "SELECT place, answer FROM @schema@.change_many($1::bigint, $2::boolean, $3::boolean, "
                       "$4::@schema@.one_change[])",
    [PG_QUEUE] = "SELECT @schema@.queue($1::text, $2::bigint, $3::jsonb, $4::boolean, $5::smallint, "
                 "$6::text, $7::text, $8::text)",
    [PG_CLAIM] = "SELECT @schema@.claim($1::text, $2::bigint, $3::text, $4::text, $5::text, $6::text, "
                 "$7::text, $8::boolean, $9::bigint, $10::bigint, $11::bigint, $12::boolean, $13::boolean, "
                 "$14::smallint, $15::bigint, $16::text)",
    [PG_GET] = "SELECT now_ms, " PG_RECORD_COLUMNS " FROM @schema@.get($1::text[])",
    [PG_SCAN] = "SELECT now_ms, " PG_RECORD_COLUMNS
                " FROM @schema@.scan($1::text, $2::text, $3::boolean, $4::integer)",
    [PG_EVENTS] = "SELECT * FROM @schema@.list_events($1::text, $2::text, $3::bigint, $4::integer)",
    [PG_BEFORE_LAST] = "SELECT @schema@.before_last($1::text, $2::text, $3::bigint, $4::bigint)",
    [PG_ITEM_GET] = "SELECT value, version FROM @schema@.item_get($1::text, $2::text)",
    [PG_ITEM_LIST] = "SELECT name, value, version FROM @schema@.item_list($1::text, $2::text, $3::integer)",
    [PG_ITEM_PUT] = "SELECT @schema@.item_put($1::text, $2::text, $3::text, $4::bigint)",
    [PG_FORGET] = "SELECT @schema@.forget($1::bigint, $2::bigint, $3::integer)",
    [PG_WAKE] = "SELECT pg_catalog.pg_notify($1::text, $2::text)",
    [PG_CLOCK_JUMPED] = "SELECT @schema@.clock_jumped($1::bigint)",
    [PG_KEEP_CLOCK] = "SELECT @schema@.keep_clock($1::text, $2::bigint, $3::bigint)",
    /* Unless all is on disk: writes something, so that its commit waits for the disk and the standby. */
    [PG_SETTLE] = "SELECT CASE WHEN pg_catalog.pg_current_wal_flush_lsn() < "
                  "pg_catalog.pg_current_wal_insert_lsn() OR "
                  "pg_catalog.current_setting('synchronous_standby_names') <> '' "
                  "THEN pg_catalog.pg_logical_emit_message(true, 'belay', '') END",
    [PG_SETTLE_RELEASE] = "SELECT @schema@.settle_release($1::text, $2::text)",
    [PG_HELLO] = "SELECT version, now_ms, store_id FROM @schema@.hello()",
    [PG_BLOB_PUT] = "SELECT code, now_ms, owner, owner_name, token, is_held FROM @schema@.blob_put($1::text, "
                    "$2::text, $3::text, $4::bigint, $5::bytea, $6::bigint, $7::text, $8::text, $9::text, "
                    "$10::bigint)",
    [PG_BLOB_UPLOAD] = "SELECT @schema@.blob_upload($1::text, $2::integer, $3::bytea)",
    [PG_BLOB_GET] = "SELECT tag, size, data FROM @schema@.blob_get($1::text, $2::text)",
    [PG_BLOB_PIECE] = "SELECT @schema@.blob_piece($1::text, $2::integer)",
    [PG_BLOB_LIST] = "SELECT name, size, modified_ms FROM @schema@.blob_list($1::text, $2::text, "
                     "$3::boolean, $4::integer)",
};

/*
 * A prepared statement is named by its text, which has the schema's name: a pooler may send a call to a server process
 * in which another store, or another version of belay, has prepared a statement of that name.
 */
bool pg_make_statements(struct pg_store *store)
{
    for (size_t i = 0; i < PG_STATEMENTS; i++) {
        store->sql[i] = pg_with_schema(texts[i], store->params.schema);
        if (store->sql[i] == NULL) {
            return false;
        }
        (void)snprintf(store->names[i], sizeof store->names[i], "belay_%016" PRIx64,
                       fnv_text(FNV_INIT, store->sql[i]));
    }
    return true;
}

int64_t pg_timeout_ms(const struct pg_store *store, int64_t asked_ms)
{
    int factor = store->options.timeout_factor == 0 ? 1 : store->options.timeout_factor;

    return (asked_ms > 0 && asked_ms < PG_TIMEOUT_MS ? asked_ms : PG_TIMEOUT_MS) * factor;
}

/* ---- the pool ---- */

/* Whether nothing has come in since it was put back: neither an end nor an error. */
static bool is_quiet(const struct pg_conn *conn)
{
    struct pollfd fd = { .fd = PQsocket(conn->pg), .events = POLLIN };

    return PQstatus(conn->pg) == CONNECTION_OK && poll(&fd, 1, 0) == 0;
}

void pg_drop_conn(struct pg_store *store, struct pg_conn *conn)
{
    pg_conn_close(conn);
    (void)pthread_mutex_lock(&store->mutex);
    assert(store->n_open > 0);
    store->n_open--;
    (void)(store->n_open == 0 ? pthread_cond_broadcast(&store->returned)
                              : pthread_cond_signal(&store->returned)); /* see await_returned() */
    (void)pthread_mutex_unlock(&store->mutex);
}

void pg_put_conn(struct pg_store *store, struct pg_conn *conn)
{
    (void)pthread_mutex_lock(&store->mutex);
    assert(store->n_open > 0 && conn != store->idle);
    conn->next = store->idle;
    store->idle = conn;
    (void)pthread_cond_signal(&store->returned);
    (void)pthread_mutex_unlock(&store->mutex);
}

struct pg_conn *pg_take_idle(struct pg_store *store)
{
    struct pg_conn *conn;

    do {
        (void)pthread_mutex_lock(&store->mutex);
        conn = store->idle;
        store->idle = conn == NULL ? NULL : conn->next;
        (void)pthread_mutex_unlock(&store->mutex);
        if (conn != NULL && is_quiet(conn)) {
            return conn;
        }
        if (conn != NULL) {
            pg_drop_conn(store, conn);
        }
    } while (conn != NULL);
    return NULL;
}

bool pg_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t until_boot_ms)
{
    int64_t left_ms = until_boot_ms - clock_boot_ms();
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(left_ms / 1000);
    until.tv_nsec += (long)(left_ms % 1000 * 1000000);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return left_ms > 0 && pthread_cond_timedwait(condition, mutex, &until) != ETIMEDOUT;
}

/* An idle connection, or the right to open one (*out_conn is NULL); false: neither until the deadline. */
static bool take_place(struct pg_store *store, int64_t deadline_boot_ms, struct pg_conn **out_conn)
{
    bool found = true;

    (void)pthread_mutex_lock(&store->mutex);
    while (found && store->idle == NULL && store->n_open >= PG_CONNECTIONS_MAX) {
        found = pg_wait_until(&store->returned, &store->mutex, deadline_boot_ms);
    }
    assert(store->n_open <= PG_CONNECTIONS_MAX);
    *out_conn = store->idle;
    if (found && store->idle != NULL) {
        store->idle = store->idle->next;
    } else if (found) {
        store->n_open++;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    return found;
}

/* The server permits no more connections: one that is in use will do. False: there is none, or it is too late. */
static bool await_returned(struct pg_store *store, int64_t deadline_boot_ms)
{
    bool in_time = true;
    bool found;

    (void)pthread_mutex_lock(&store->mutex);
    while (in_time && store->idle == NULL && store->n_open > 0) {
        in_time = pg_wait_until(&store->returned, &store->mutex, deadline_boot_ms);
    }
    found = store->idle != NULL;
    (void)pthread_mutex_unlock(&store->mutex);
    return found;
}

void pg_close_idle(struct pg_store *store)
{
    for (;;) {
        struct pg_conn *conn;

        (void)pthread_mutex_lock(&store->mutex);
        conn = store->idle;
        store->idle = conn == NULL ? NULL : conn->next;
        store->n_open -= conn == NULL ? 0 : 1;
        (void)pthread_mutex_unlock(&store->mutex);
        if (conn == NULL) {
            return;
        }
        pg_conn_close(conn);
    }
}

/*
 * The columns of hello(), the two of what this machine knew of the server's clock before, the number by
 * which this database knows a type, which messages it sends, and how it isolates transactions.
 */
static enum belay_code ask_hello(struct pg_store *store, struct pg_conn *conn, PGresult **out_result,
                                 struct belay_error *err)
{
    char sql[400 + 3 * PG_NAME_MAX + sizeof store->machine];
    enum belay_code code;

    (void)snprintf(sql, sizeof sql,
                   "SELECT version, now_ms, store_id, c.server_ms, c.boot_ms, "
                   "to_regtype('\"%s\".one_change')::oid, current_setting('client_min_messages'), "
                   "current_setting('transaction_isolation') "
                   "FROM \"%s\".hello() "
                   "LEFT JOIN \"%s\".known_clock('%s') c ON true",
                   store->params.schema, store->params.schema, store->params.schema, store->machine);
    code = pg_conn_run(conn, sql, out_result, err);
    /* A schema of another version may lack the second function, or the type. */
    return code == BELAY_CONFIG ? pg_conn_run(conn, store->sql[PG_HELLO], out_result, err) : code;
}

static enum belay_code check_hello(const struct pg_store *store, const PGresult *result,
                                   struct belay_error *err)
{
    int64_t version = PQntuples(result) == 1 ? pg_number(result, 0, 0) : 0;

    if (version != PG_SCHEMA_VERSION) {
        return error_set(err, BELAY_CONFIG,
                         "the schema '%s' has version %lld, and this belay needs %d: run `belay table "
                         "create` with the newer of the two",
                         store->params.schema, (long long)version, (int)PG_SCHEMA_VERSION);
    }
    if (PQnfields(result) < 8 || PQgetisnull(result, 0, 5)) {
        return error_set(
            err, BELAY_CONFIG,
            "the schema '%s' lacks a function or a type: make it again with `belay table create`",
            store->params.schema);
    }
    /* See on_notice(): without warnings, a grant that a failover can lose would look like any other. */
    if (strcmp(PQgetvalue(result, 0, 6), "error") == 0) {
        return error_set(err, BELAY_CONFIG, PG_NO_WARNINGS ": " PG_NO_WARNINGS_ADVICE);
    }
    if (strcmp(PQgetvalue(result, 0, 7), PG_ISOLATION) != 0) {
        return error_set(err, BELAY_CONFIG, PG_BAD_ISOLATION ": " PG_ISOLATION_ADVICE,
                         PQgetvalue(result, 0, 7));
    }
    return BELAY_OK;
}

/*
 * A new connection: is the schema one that this belay knows, are warnings sent, and are transactions isolated as the
 * functions need it? All of it may have changed since an earlier connection was made. The first one of a store also
 * asks for the time there.
 */
static enum belay_code say_hello(struct pg_store *store, struct pg_conn *conn, int64_t deadline_boot_ms,
                                 struct belay_error *err)
{
    int64_t asked_boot_ms = clock_boot_ms();
    PGresult *result = NULL;
    enum belay_code code = BELAY_OK;
    bool is_known;

    (void)pthread_mutex_lock(&store->mutex);
    is_known = store->has_clock;
    (void)pthread_mutex_unlock(&store->mutex);
    conn->run_ms = deadline_boot_ms - clock_boot_ms();
    code = ask_hello(store, conn, &result, err);
    if (code == BELAY_CONFIG) {
        code = error_set(err, BELAY_CONFIG,
                         "the database '%.60s' has no schema '%s': create it with `belay table create`, or "
                         "correct the URL",
                         PQdb(conn->pg), store->params.schema);
    }
    if (code == BELAY_NOT_PERMITTED) {
        code =
            error_set(err, code,
                      "permission denied: the user '%.60s' may not use the schema '%s' in '%.60s': its owner "
                      "can run `belay table create --grant ROLE`",
                      PQuser(conn->pg), store->params.schema, PQdb(conn->pg));
    }
    if (code == BELAY_OK) {
        code = check_hello(store, result, err);
    }
    if (code == BELAY_OK) {
        atomic_store(&store->one_change, (unsigned)pg_number(result, 0, 5));
    }
    if (code == BELAY_OK && !is_known) {
        struct pg_known_clock before = { !PQgetisnull(result, 0, 3), pg_number(result, 0, 3),
                                         pg_number(result, 0, 4) };

        (void)pthread_mutex_lock(&store->mutex);
        (void)snprintf(store->store_id, sizeof store->store_id, "%s", PQgetvalue(result, 0, 2));
        (void)pthread_mutex_unlock(&store->mutex);
        code = pg_meet_clock(store, conn, &before, pg_number(result, 0, 1), asked_boot_ms, err);
    }
    PQclear(result);
    return code;
}

/* An idle one, or the right to open one (*out_conn is NULL). */
static enum belay_code take_idle_or_place(struct pg_store *store, int64_t deadline_boot_ms,
                                          struct pg_conn **out_conn, struct belay_error *err)
{
    for (;;) {
        if (!take_place(store, deadline_boot_ms, out_conn)) {
            return error_set(err, BELAY_UNREACHABLE, "all %d connections to PostgreSQL are in use",
                             PG_CONNECTIONS_MAX);
        }
        if (*out_conn == NULL || is_quiet(*out_conn)) {
            return BELAY_OK;
        }
        pg_drop_conn(store, *out_conn);
    }
}

/* With the right to open one, which is given up if it cannot be done. */
static enum belay_code open_conn(struct pg_store *store, int64_t deadline_boot_ms, struct pg_conn **out_conn,
                                 struct belay_error *err)
{
    struct pg_conn *conn = NULL;
    enum belay_code code = pg_connect_or_busy(store->params.conninfo, deadline_boot_ms, &conn, err);

    if (code == BELAY_OK) {
        code = say_hello(store, conn, deadline_boot_ms, err);
    }
    if (code != BELAY_OK) {
        pg_drop_conn(store, conn);
        return code;
    }
    *out_conn = conn;
    return BELAY_OK;
}

static enum belay_code take_conn(struct pg_store *store, int64_t deadline_boot_ms, struct pg_conn **out_conn,
                                 struct belay_error *err)
{
    struct belay_error why = BELAY_ERROR_INIT;
    struct pg_conn *conn = NULL;
    enum belay_code code;

    do {
        code = take_idle_or_place(store, deadline_boot_ms, &conn, &why);
        if (code == BELAY_OK && conn == NULL) {
            code = open_conn(store, deadline_boot_ms, &conn, &why);
        }
    } while (code == BELAY_BUSY && await_returned(store, deadline_boot_ms));
    if (code != BELAY_OK) {
        code = code == BELAY_BUSY ? BELAY_UNREACHABLE : code;
        (void)error_move(err, code, &why);
        return code;
    }
    belay_error_release(&why);
    *out_conn = conn;
    return BELAY_OK;
}

enum belay_code pg_reach(struct pg_store *store, int64_t timeout_ms, struct belay_error *err)
{
    struct pg_conn *conn = NULL;
    enum belay_code code = BELAY_OK;
    bool is_known;

    (void)pthread_mutex_lock(&store->mutex);
    is_known = store->has_clock;
    (void)pthread_mutex_unlock(&store->mutex);
    if (!is_known) {
        code = take_conn(store, clock_boot_ms() + timeout_ms, &conn, err);
    }
    if (conn != NULL) {
        pg_put_conn(store, conn);
    }
    return code;
}

/* ---- a call ---- */

/* Of the values of a call: texts end in '\0' and need no length. */
struct value_forms {
    const char *values[PG_VALUES_MAX];
    int lengths[PG_VALUES_MAX];
    int formats[PG_VALUES_MAX]; /* 1: bytes */
    int answer;                 /* 1: all columns are bytes */
};

static struct value_forms forms_of(const struct pg_call *call, const struct pg_bytes *bytes)
{
    struct value_forms forms = { .answer = bytes != NULL && bytes->is_answer };

    assert(call->n <= PG_VALUES_MAX && (bytes == NULL || bytes->data == NULL || bytes->at < call->n));
    for (int i = 0; i < call->n; i++) {
        forms.values[i] = call->values[i];
        forms.lengths[i] = bytes == NULL || bytes->lengths == NULL ? 0 : bytes->lengths[i];
        forms.formats[i] = bytes != NULL && bytes->lengths != NULL;
    }
    if (bytes != NULL && bytes->data != NULL) {
        forms.values[bytes->at] = bytes->data;
        forms.lengths[bytes->at] = bytes->len;
        forms.formats[bytes->at] = 1;
    }
    return forms;
}

static bool send_unnamed(struct pg_store *store, struct pg_conn *conn, const struct pg_call *call,
                         const struct value_forms *forms)
{
    return PQsendQueryParams(conn->pg, store->sql[call->statement], call->n, NULL, forms->values,
                             forms->lengths, forms->formats, forms->answer) == 1;
}

bool pg_is_unprepared(struct pg_store *store, const struct pg_conn *conn, enum pg_statement statement)
{
    unsigned bit = 1U << statement;

    return !atomic_load(&store->is_unprepared) && (conn->used & bit) != 0 && (conn->prepared & bit) == 0;
}

bool pg_send_prepare(struct pg_store *store, struct pg_conn *conn, enum pg_statement statement)
{
    return PQsendPrepare(conn->pg, store->names[statement], store->sql[statement], 0, NULL) == 1;
}

bool pg_send(struct pg_store *store, struct pg_conn *conn, const struct pg_call *call,
             const struct pg_bytes *bytes)
{
    struct value_forms forms = forms_of(call, bytes);
    unsigned bit = 1U << call->statement;

    if (atomic_load(&store->is_unprepared) || (conn->prepared & bit) == 0) {
        conn->used |= bit;
        return send_unnamed(store, conn, call, &forms);
    }
    return PQsendQueryPrepared(conn->pg, store->names[call->statement], call->n, forms.values, forms.lengths,
                               forms.formats, forms.answer) == 1;
}

/* False: the connection broke. *out_result: an error of preparing it. */
static bool prepare(struct pg_store *store, struct pg_conn *conn, enum pg_statement statement,
                    int64_t deadline_boot_ms, PGresult **out_result)
{
    PGresult *result = NULL;

    if (pg_send_prepare(store, conn, statement)) {
        result = pg_conn_result(conn, deadline_boot_ms);
    }
    if (result == NULL || PQstatus(conn->pg) != CONNECTION_OK) {
        PQclear(result);
        return false;
    }
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        *out_result = result;
        return true;
    }
    PQclear(result);
    conn->prepared |= 1U << statement;
    return true;
}

bool pg_can_repeat(struct pg_store *store, const PGresult *result, bool *out_closes)
{
    *out_closes = false;
    if (pg_has_state(result, "26000") || pg_has_state(result, "42P05")) {
        atomic_store(&store->is_unprepared, true);
        return true;
    }
    if (pg_has_state(result, "25006") || pg_has_state(result, "57P03")) {
        *out_closes = true; /* a standby: the other host may have taken over */
        return true;
    }
    return pg_has_state(result, "40P01") || pg_has_state(result, "40001");
}

static enum belay_code lost(const struct pg_call *call, const struct pg_conn *conn, bool is_late,
                            struct belay_error *err)
{
    const char *text = PQerrorMessage(conn->pg);

    if (is_late) {
        return error_set(err, call->is_read ? BELAY_UNREACHABLE : BELAY_UNKNOWN,
                         "PostgreSQL did not answer in time");
    }
    return error_set(err, call->is_read ? BELAY_UNREACHABLE : BELAY_UNKNOWN,
                     "the connection to PostgreSQL was lost: %.*s", (int)strcspn(text, "\n"), text);
}

/* The same before it was sent. */
static enum belay_code lost_unsent(const struct pg_conn *conn, bool is_late, struct belay_error *err)
{
    const char *text = PQerrorMessage(conn->pg);

    if (is_late) {
        return error_set(err, BELAY_UNREACHABLE, "PostgreSQL did not answer in time");
    }
    (void)error_set(err, BELAY_UNREACHABLE, "the connection to PostgreSQL was lost: %.*s",
                    (int)strcspn(text, "\n"), text);
    return BELAY_CANCELLED;
}

/* One attempt. BELAY_CANCELLED: nothing was changed, and it is worth another one. */
static enum belay_code try_call(struct pg_store *store, const struct pg_call *call,
                                const struct pg_bytes *bytes, int64_t deadline_boot_ms, PGresult **out_result,
                                struct belay_error *err)
{
    struct pg_conn *conn = NULL;
    PGresult *result = NULL;
    ExecStatusType status;
    bool closes = true;
    enum belay_code code = take_conn(store, deadline_boot_ms, &conn, err);

    if (code != BELAY_OK) {
        return code;
    }
    conn->is_unsure = false;
    if (pg_is_unprepared(store, conn, call->statement) &&
        !prepare(store, conn, call->statement, deadline_boot_ms, &result)) {
        code = lost_unsent(conn, clock_boot_ms() >= deadline_boot_ms, err);
        goto done;
    }
    if (result == NULL && !pg_send(store, conn, call, bytes)) {
        code = lost(call, conn, false, err); /* some of it may have left */
        goto done;
    }
    if (result == NULL) {
        result = pg_conn_result(conn, deadline_boot_ms);
    }
    status = PQresultStatus(result);
    if (result == NULL || PQstatus(conn->pg) != CONNECTION_OK) {
        code = lost(call, conn, clock_boot_ms() >= deadline_boot_ms, err);
    } else if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK && !pg_is_undone(result)) {
        code = lost(call, conn, false, err);
    } else if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        closes = false;
        code = pg_failed(result, store->params.schema, err);
        code = pg_can_repeat(store, result, &closes) ? BELAY_CANCELLED : code;
    } else if (conn->is_unsure && (!call->is_read || call->statement == PG_EVENTS)) {
        /* Events, too: who has seen one that is then lost would skip the one that gets its id. */
        code = error_set(err, call->is_read ? BELAY_UNREACHABLE : BELAY_UNKNOWN, PG_UNSURE);
    } else {
        closes = false;
        *out_result = result;
        result = NULL;
    }

done:
    PQclear(result);
    if (closes) {
        pg_drop_conn(store, conn);
    } else {
        pg_put_conn(store, conn);
    }
    return code;
}

enum belay_code pg_call_bytes(struct pg_store *store, const struct pg_call *call,
                              const struct pg_bytes *bytes, PGresult **out_result, struct belay_error *err)
{
    int64_t deadline_boot_ms = clock_boot_ms() + pg_timeout_ms(store, call->timeout_ms);
    enum belay_code code = BELAY_CANCELLED;

    for (int i = 0; code == BELAY_CANCELLED && i < ATTEMPTS; i++) {
        code = try_call(store, call, bytes, deadline_boot_ms, out_result, err);
    }
    return code == BELAY_CANCELLED ? BELAY_UNREACHABLE : code;
}

enum belay_code pg_call(struct pg_store *store, const struct pg_call *call, PGresult **out_result,
                        struct belay_error *err)
{
    return pg_call_bytes(store, call, NULL, out_result, err);
}

static enum belay_code settle_by(struct pg_store *store, const struct pg_call *call, PGresult **out_result,
                                 struct belay_error *err)
{
    uint64_t n_known = atomic_load(&store->n_unknown); /* what becomes unknown from now on needs another */
    uint64_t n_settled;

    if (pg_call(store, call, out_result, NULL) != BELAY_OK) {
        return error_set(err, BELAY_UNREACHABLE,
                         "PostgreSQL does not say that a change is on disk and on its synchronous standby: "
                         "it may be lost if it fails over");
    }
    if (call->statement == PG_SETTLE_RELEASE && strcmp(PQgetvalue(*out_result, 0, 0), "t") != 0) {
        return BELAY_OK; /* it has found that the release is lost, and waited for nothing */
    }
    n_settled = atomic_load(&store->n_settled);
    while (n_settled < n_known && !atomic_compare_exchange_weak(&store->n_settled, &n_settled, n_known)) {
    }
    return BELAY_OK;
}

bool pg_is_unsettled(struct pg_store *store)
{
    return atomic_load(&store->n_settled) < atomic_load(&store->n_unknown);
}

enum belay_code pg_settle(struct pg_store *store, int64_t timeout_ms, struct belay_error *err)
{
    struct pg_call call = { PG_SETTLE, NULL, 0, false, timeout_ms };
    PGresult *result = NULL;
    enum belay_code code = settle_by(store, &call, &result, err);

    PQclear(result);
    return code;
}

enum belay_code pg_settle_release(struct pg_store *store, const char *key, const char *lock_id,
                                  int64_t timeout_ms, struct belay_error *err)
{
    const char *values[] = { key, lock_id };
    struct pg_call call = { PG_SETTLE_RELEASE, values, 2, false, timeout_ms };
    PGresult *result = NULL;
    enum belay_code code = settle_by(store, &call, &result, err);

    if (code == BELAY_OK && strcmp(PQgetvalue(result, 0, 0), "t") != 0) {
        code =
            error_set(err, BELAY_UNREACHABLE,
                      "PostgreSQL was started again, or failed over, and has lost the release of '%s'", key);
    }
    PQclear(result);
    return code;
}
