/* Connections, and what a server's answer means. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

void pg_conn_close(struct pg_conn *conn)
{
    if (conn != NULL) {
        PQfinish(conn->pg);
        free(conn);
    }
}

/*
 * A cancelled or terminated wait for a synchronous standby is reported as success with a warning:
 * the commit is on this server's disk, but perhaps nowhere else.
 */
static void on_notice(void *context, const PGresult *result)
{
    struct pg_conn *conn = context;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

    if (severity != NULL && strcmp(severity, "WARNING") == 0) {
        conn->is_unsure = true;
    }
}

/* False: the deadline passed. */
static bool wait_for(const PGconn *pg, short events, int64_t deadline_boot_ms)
{
    for (;;) {
        struct pollfd fd = { .fd = PQsocket(pg), .events = events };
        int64_t left_ms = deadline_boot_ms - clock_boot_ms();
        int n = left_ms <= 0 ? 0 : poll(&fd, 1, left_ms > 60000 ? 60000 : (int)left_ms);

        if (n > 0 || (n < 0 && errno != EINTR)) {
            return n > 0;
        }
        if (left_ms <= 0) {
            return false;
        }
    }
}

/* ---- connecting ---- */

/* libpq gives no SQLSTATE of a connection that failed; with PQERRORS_VERBOSE it is in the text. */
static enum belay_code fail_connect(const PGconn *pg, struct belay_error *err)
{
    const char *text = PQerrorMessage(pg);
    const char *state = strstr(text, "FATAL:  ");
    bool refused = state != NULL && (strncmp(state + 8, "28", 2) == 0 || strncmp(state + 8, "42501", 5) == 0);
    bool absent = state != NULL && strncmp(state + 8, "3D000", 5) == 0;
    int len;

    text += strspn(text, "\n ");
    len = (int)strcspn(text, "\n");
    if (state != NULL && strlen(state) > 15) {
        text = state + 15; /* after the SQLSTATE and its colon */
        len = (int)strcspn(text, "\n");
    }
    return error_set(err,
                     refused  ? BELAY_NOT_PERMITTED
                     : absent ? BELAY_CONFIG
                              : BELAY_UNREACHABLE,
                     "cannot connect to PostgreSQL: %.*s", len > 400 ? 400 : len, text);
}

static enum belay_code finish_connect(PGconn *pg, int64_t deadline_boot_ms, struct belay_error *err)
{
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;

    while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED) {
        if (PQstatus(pg) == CONNECTION_BAD) {
            break;
        }
        if (!wait_for(pg, status == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline_boot_ms)) {
            return error_set(err, BELAY_UNREACHABLE, "PostgreSQL at '%.100s' did not answer in time",
                             PQhost(pg) == NULL ? "" : PQhost(pg));
        }
        status = PQconnectPoll(pg);
    }
    return status == PGRES_POLLING_OK ? BELAY_OK : fail_connect(pg, err);
}

enum belay_code pg_connect(const char *conninfo, int64_t deadline_boot_ms, struct pg_conn **out_conn,
                           struct belay_error *err)
{
    /* Those before dbname are defaults, which the URL replaces. */
    const char *names[] = {
        "keepalives_idle", "keepalives_interval", "tcp_user_timeout",     "fallback_application_name",
        "dbname",          "client_encoding",     "target_session_attrs", NULL
    };
    const char *values[] = { "10", "5", "20000", "belay", conninfo, "UTF8", "read-write", NULL };
    struct pg_conn *conn = calloc(1, sizeof *conn);
    enum belay_code code;

    if (strstr(conninfo, "target_session_attrs=") != NULL || getenv("PGTARGETSESSIONATTRS") != NULL) {
        names[6] = NULL;
    }
    if (conn == NULL || (conn->pg = PQconnectStartParams(names, values, 1)) == NULL) {
        free(conn);
        return error_no_memory(err);
    }
    (void)PQsetErrorVerbosity(conn->pg, PQERRORS_VERBOSE);
    (void)PQsetNoticeReceiver(conn->pg, on_notice, conn);
    code = finish_connect(conn->pg, deadline_boot_ms, err);
    if (code != BELAY_OK) {
        pg_conn_close(conn);
        return code;
    }
    conn->is_unsure = false;
    conn->run_ms = 6 * PG_TIMEOUT_MS; /* making a schema may wait for another process that does */
    (void)PQsetnonblocking(conn->pg, 1);
    *out_conn = conn;
    return BELAY_OK;
}

/* ---- statements ---- */

bool pg_conn_flush(struct pg_conn *conn, int64_t deadline_boot_ms)
{
    int unsent = PQflush(conn->pg);

    while (unsent > 0) {
        if (!wait_for(conn->pg, POLLIN | POLLOUT, deadline_boot_ms) || PQconsumeInput(conn->pg) != 1) {
            return false;
        }
        unsent = PQflush(conn->pg);
    }
    return true; /* what could not be sent at all, the answer shows */
}

bool pg_conn_await(struct pg_conn *conn, int64_t deadline_boot_ms)
{
    while (PQisBusy(conn->pg) == 1) {
        if (!wait_for(conn->pg, POLLIN, deadline_boot_ms) ||
            (PQconsumeInput(conn->pg) != 1 && PQisBusy(conn->pg) == 1)) {
            return false;
        }
    }
    return true;
}

PGresult *pg_conn_result(struct pg_conn *conn, int64_t deadline_boot_ms)
{
    PGresult *last = NULL;

    if (!pg_conn_flush(conn, deadline_boot_ms)) {
        return NULL;
    }
    for (;;) {
        PGresult *next;

        if (!pg_conn_await(conn, deadline_boot_ms)) {
            PQclear(last);
            return NULL;
        }
        next = PQgetResult(conn->pg);
        if (next == NULL) {
            return last;
        }
        PQclear(last);
        last = next;
    }
}

enum belay_code pg_conn_run(struct pg_conn *conn, const char *sql, PGresult **out_result,
                            struct belay_error *err)
{
    PGresult *result = NULL;
    ExecStatusType status;

    if (PQsendQuery(conn->pg, sql) == 1) {
        result = pg_conn_result(conn, clock_boot_ms() + conn->run_ms);
    }
    status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        enum belay_code code = result == NULL
                                   ? error_set(err, BELAY_UNREACHABLE, "PostgreSQL did not answer in time")
                                   : pg_failed(result, "", err);

        PQclear(result);
        return code;
    }
    if (out_result != NULL) {
        *out_result = result;
    } else {
        PQclear(result);
    }
    return BELAY_OK;
}

/* A pooler answers with a process id of its own making. */
bool pg_conn_is_pooled(struct pg_conn *conn)
{
    PGresult *result = NULL;
    bool is_pooled = pg_conn_run(conn, "SELECT pg_backend_pid()", &result, NULL) == BELAY_OK &&
                     pg_number(result, 0, 0) != PQbackendPID(conn->pg);

    PQclear(result);
    return is_pooled;
}

bool pg_has_state(const PGresult *result, const char *sqlstate)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

    return state != NULL && text_has_prefix(state, sqlstate);
}

/* An error of the server comes before the commit: nothing was changed. */
enum belay_code pg_failed(const PGresult *result, const char *schema, struct belay_error *err)
{
    static const struct {
        const char *state;
        enum belay_code code;
    } known[] = { { "42501", BELAY_NOT_PERMITTED }, { "28", BELAY_NOT_PERMITTED },
                  { "22", BELAY_INVALID },          { "57", BELAY_UNREACHABLE },
                  { "53", BELAY_UNREACHABLE },      { "55P03", BELAY_UNREACHABLE },
                  { "40", BELAY_UNREACHABLE },      { "25006", BELAY_UNREACHABLE },
                  { "BL001", BELAY_ID_USED } }; /* of functions.sql */
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    enum belay_code code = BELAY_UNREACHABLE;

    if (pg_has_state(result, "3F000") || pg_has_state(result, "42883") || pg_has_state(result, "42P01")) {
        return error_set(err, BELAY_CONFIG,
                         "the database has no schema '%s' of this belay's, or one that lacks a part: make it "
                         "with `belay table create`",
                         schema);
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (pg_has_state(result, known[i].state)) {
            code = known[i].code;
            break;
        }
    }
    return error_set(err, code, "PostgreSQL says: %.300s (SQLSTATE %s)", text == NULL ? "" : text,
                     state == NULL ? "none" : state);
}
