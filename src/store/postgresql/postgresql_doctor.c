/* `belay doctor`: what a server must have for the promises of docs/safety.md. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/diagnostics.h"
#include "store/postgresql/postgresql_internal.h"

enum { CLOCK_FAR_MS = 5000, OLD_SNAPSHOT_S = 300, QUEUE_FULL_PERCENT = 50, NOTIFIED_MS = 3000 };

struct checkup {
    struct pg_conn *conn;
    const struct pg_params *params;
    struct diagnostics *diagnostics;
};

/* A server that hangs is to be reported, and not waited for as long as for a migration. */
static enum belay_code connect_briefly(const char *conninfo, struct pg_conn **out_conn,
                                       struct belay_error *err)
{
    enum belay_code code = pg_connect(conninfo, clock_boot_ms() + PG_TIMEOUT_MS, out_conn, err);

    if (code == BELAY_OK) {
        (*out_conn)->run_ms = PG_TIMEOUT_MS;
    }
    return code;
}

/* The one value that `sql` selects; "" and a finding if it cannot. */
static void query_text(const struct checkup *checkup, const char *name, const char *sql, char *out,
                       size_t size)
{
    struct belay_error err = BELAY_ERROR_INIT;
    PGresult *result = NULL;

    out[0] = '\0';
    if (pg_conn_run(checkup->conn, sql, &result, &err) != BELAY_OK) {
        diagnostics_error(checkup->diagnostics, name, NULL, &err);
    } else if (PQntuples(result) > 0) {
        (void)snprintf(out, size, "%s", PQgetvalue(result, 0, 0));
    }
    PQclear(result);
    belay_error_release(&err);
}

static void report_version(struct diagnostics *diagnostics, const struct belay_postgresql_schema *found)
{
    if (found->version == 0) {
        diagnostics_fail(diagnostics, BELAY_CONFIG, "schema", "run `belay table create`, or correct the URL",
                         "the database '%s' has no schema '%s'", found->database, found->name);
        return;
    }
    diagnostics_fail(diagnostics, BELAY_CONFIG, "schema",
                     found->version < PG_SCHEMA_VERSION ? "run `belay table create`"
                                                        : "install the newer belay here",
                     "the schema '%s' in '%s' has version %d, and this belay needs %d", found->name,
                     found->database, found->version, PG_SCHEMA_VERSION);
}

static bool check_schema(const struct checkup *checkup)
{
    struct belay_postgresql_schema found = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    bool is_right = false;

    if (pg_schema_describe(checkup->conn, checkup->params->schema, &found, &err) != BELAY_OK) {
        diagnostics_error(checkup->diagnostics, "schema", NULL, &err);
    } else if (found.version != PG_SCHEMA_VERSION) {
        report_version(checkup->diagnostics, &found);
    } else if (found.functions_version < PG_FUNCTIONS_VERSION) {
        is_right = true;
        diagnostics_warn(checkup->diagnostics, "schema", "the owner runs `belay table create`",
                         "the schema '%s' has functions of an earlier belay: they work, but lack corrections",
                         found.name);
    } else {
        is_right = true;
        diagnostics_ok(checkup->diagnostics, "schema", "'%s' in '%s', version %d", found.name, found.database,
                       found.version);
    }
    belay_error_release(&err);
    return is_right;
}

/* Least privilege: users execute functions and touch no table. */
static void check_rights(const struct checkup *checkup)
{
    char sql[512], value[64];

    (void)snprintf(sql, sizeof sql, "SELECT has_function_privilege('\"%s\".commit(jsonb)', 'execute')",
                   checkup->params->schema);
    query_text(checkup, "permissions", sql, value, sizeof value);
    if (strcmp(value, "f") == 0) {
        diagnostics_fail(checkup->diagnostics, BELAY_NOT_PERMITTED, "permissions",
                         "the owner runs `belay table create --grant ROLE`",
                         "this user may not execute the functions of the schema");
        return;
    }
    (void)snprintf(sql, sizeof sql,
                   "SELECT has_table_privilege('\"%s\".locks', 'update') AND NOT pg_has_role("
                   "(SELECT nspowner FROM pg_namespace WHERE nspname = '%s'), 'usage')",
                   checkup->params->schema, checkup->params->schema);
    query_text(checkup, "permissions", sql, value, sizeof value);
    if (strcmp(value, "t") == 0) {
        diagnostics_warn(checkup->diagnostics, "permissions", "revoke it",
                         "this user may change the table of locks past the rules");
    } else if (strcmp(value, "f") == 0) {
        diagnostics_ok(checkup->diagnostics, "permissions", "may execute the functions of the schema");
    }
}

static void check_state_version(const struct checkup *checkup)
{
    char sql[PG_NAME_MAX + 64], value[64];

    (void)snprintf(sql, sizeof sql, "SELECT \"%s\".state_version()", checkup->params->schema);
    query_text(checkup, "state", sql, value, sizeof value);
    if (value[0] != '\0' && strtol(value, NULL, 10) < PG_STATE_VERSION) {
        diagnostics_warn(checkup->diagnostics, "state", "the owner runs `belay table create`",
                         "the schema has version %.20s for deployment state, and this belay needs %d", value,
                         (int)PG_STATE_VERSION);
    } else if (value[0] != '\0') {
        diagnostics_ok(checkup->diagnostics, "state", "can be kept in the same schema");
    }
}

/* Deployment state needs tables that a schema of an earlier belay lacks, and rights that may have been given before. */
static void check_state(const struct checkup *checkup)
{
    static const char function[] =
        "blob_put(text, text, text, bigint, bytea, bigint, text, text, text, bigint)";
    char sql[512], value[64];

    (void)snprintf(
        sql, sizeof sql,
        "SELECT CASE WHEN f IS NULL THEN 'none' WHEN has_function_privilege(f, 'execute') THEN 'may' "
        "ELSE 'not' END FROM to_regprocedure('\"%s\".%s') f",
        checkup->params->schema, function);
    query_text(checkup, "state", sql, value, sizeof value);
    if (strcmp(value, "none") == 0) {
        diagnostics_warn(checkup->diagnostics, "state", "the owner runs `belay table create`",
                         "the schema has no tables for deployment state");
    } else if (strcmp(value, "not") == 0) {
        diagnostics_warn(checkup->diagnostics, "state", "the owner runs `belay table create --grant ROLE`",
                         "this user may not execute the functions for deployment state");
    } else if (value[0] != '\0') {
        check_state_version(checkup);
    }
}

static void check_durability(const struct checkup *checkup)
{
    char value[64];

    query_text(checkup, "durability", "SHOW fsync", value, sizeof value);
    if (strcmp(value, "off") == 0) {
        diagnostics_fail(checkup->diagnostics, BELAY_CONFIG, "durability", "set fsync = on",
                         "fsync is off: a crash of the machine loses locks that were granted");
    }
    query_text(checkup, "durability", "SHOW synchronous_commit", value, sizeof value);
    if (strcmp(value, "off") == 0) {
        diagnostics_fail(checkup->diagnostics, BELAY_CONFIG, "durability", "set synchronous_commit = on",
                         "synchronous_commit is off: a crash of PostgreSQL loses locks that were granted");
    } else if (strcmp(value, "local") == 0) {
        diagnostics_warn(checkup->diagnostics, "durability", "set synchronous_commit = on",
                         "synchronous_commit is local: a failover loses locks that were granted, even to a "
                         "synchronous standby");
    } else if (value[0] != '\0') {
        diagnostics_ok(checkup->diagnostics, "durability", "synchronous_commit is %s", value);
    }
    query_text(checkup, "durability", "SHOW client_min_messages", value, sizeof value);
    if (strcmp(value, "error") == 0) {
        diagnostics_fail(checkup->diagnostics, BELAY_CONFIG, "durability", PG_NO_WARNINGS_ADVICE,
                         PG_NO_WARNINGS);
    }
}

static void check_isolation(const struct checkup *checkup)
{
    char value[64];

    query_text(checkup, "isolation", "SHOW transaction_isolation", value, sizeof value);
    if (value[0] != '\0' && strcmp(value, PG_ISOLATION) != 0) {
        diagnostics_fail(checkup->diagnostics, BELAY_CONFIG, "isolation", PG_ISOLATION_ADVICE,
                         PG_BAD_ISOLATION, value);
    } else if (value[0] != '\0') {
        diagnostics_ok(checkup->diagnostics, "isolation", "%s", value);
    }
}

/* synchronous_standby_names names some; which are connected, only some users may see. */
static void check_standbys(const struct checkup *checkup, const char *names)
{
    char state[64];

    query_text(checkup, "replication",
               "SELECT CASE WHEN bool_or(sync_state IN ('sync', 'quorum')) THEN 'yes' "
               "WHEN bool_or(sync_state IS NULL) THEN 'hidden' ELSE 'no' END FROM pg_stat_replication",
               state, sizeof state);
    if (strcmp(state, "yes") == 0) {
        diagnostics_ok(checkup->diagnostics, "replication", "synchronous: %s", names);
    } else if (strcmp(state, "hidden") == 0) {
        diagnostics_warn(checkup->diagnostics, "replication", "GRANT pg_monitor to the user that runs doctor",
                         "synchronous_standby_names is '%s', but this user may not see whether a standby is "
                         "synchronous",
                         names);
    } else if (state[0] != '\0') {
        diagnostics_fail(
            checkup->diagnostics, BELAY_CONFIG, "replication",
            "start a standby whose application_name is among them, or clear the setting",
            "synchronous_standby_names is '%s', but none of them is connected: every change waits", names);
    }
}

static void check_replication(const struct checkup *checkup)
{
    char names[128], standbys[64];

    query_text(checkup, "replication", "SHOW synchronous_standby_names", names, sizeof names);
    if (names[0] != '\0') {
        check_standbys(checkup, names);
        return;
    }
    query_text(checkup, "replication", "SELECT count(*) FROM pg_stat_replication", standbys, sizeof standbys);
    if (strcmp(standbys, "0") != 0) {
        diagnostics_warn(checkup->diagnostics, "replication",
                         "set synchronous_standby_names, or protect what the lock guards with its token",
                         "asynchronous: after a failover two clients may hold a lock; tokens still grow");
    } else {
        diagnostics_ok(checkup->diagnostics, "replication", "no standby is connected");
    }
}

static void check_clock(const struct checkup *checkup)
{
    int64_t before_ms = clock_unix_ms();
    char value[64], span[CLOCK_TEXT_SIZE];
    int64_t off_ms;

    query_text(checkup, "clock", "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint", value,
               sizeof value);
    if (value[0] == '\0') {
        return;
    }
    off_ms = strtoll(value, NULL, 10) - (before_ms + (clock_unix_ms() - before_ms) / 2);
    if (off_ms > CLOCK_FAR_MS || off_ms < -CLOCK_FAR_MS) {
        diagnostics_warn(checkup->diagnostics, "clock", "run a time service on both",
                         "the server's clock is %s %s this machine's: leases count by the server's",
                         clock_format_span(span, off_ms < 0 ? -off_ms : off_ms),
                         off_ms < 0 ? "behind" : "ahead of");
    } else {
        diagnostics_ok(checkup->diagnostics, "clock", "the server's is within %d s of this machine's",
                       CLOCK_FAR_MS / 1000);
    }
}

/* Whether a notification that the store's connection sends arrives on `conn`: the only proof that LISTEN works. */
static bool hears(const struct checkup *checkup, struct pg_conn *conn)
{
    int64_t until_boot_ms;
    char channel[40], sql[160];
    uint64_t random = (uint64_t)clock_boot_us();
    bool has_arrived = false;

    (void)random_bytes(&random, sizeof random);
    (void)snprintf(channel, sizeof channel, "belay_doctor_%016" PRIx64, random);
    (void)snprintf(sql, sizeof sql, "LISTEN \"%s\"", channel);
    if (pg_conn_run(conn, sql, NULL, NULL) != BELAY_OK) {
        return false;
    }
    (void)snprintf(sql, sizeof sql, "SELECT pg_notify('%s', '')", channel);
    until_boot_ms = clock_boot_ms() + NOTIFIED_MS;
    if (pg_conn_run(checkup->conn, sql, NULL, NULL) == BELAY_OK) {
        do {
            PGnotify *note = PQnotifies(conn->pg);

            has_arrived = note != NULL;
            PQfreemem(note);
        } while (!has_arrived && pg_conn_consume(conn, until_boot_ms));
    }
    (void)snprintf(sql, sizeof sql, "UNLISTEN \"%s\"", channel); /* a pooler may keep the session */
    (void)pg_conn_run(conn, sql, NULL, NULL);
    return has_arrived;
}

static void check_listen(const struct checkup *checkup)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct pg_conn *direct = NULL;

    if (connect_briefly(checkup->params->listen, &direct, &err) != BELAY_OK) {
        diagnostics_error(checkup->diagnostics, "wake-ups", "correct listen= in the store's URL", &err);
    } else if (hears(checkup, direct)) {
        diagnostics_ok(checkup->diagnostics, "wake-ups", "by LISTEN on %s:%s", PQhost(direct->pg),
                       PQport(direct->pg));
    } else {
        diagnostics_fail(checkup->diagnostics, BELAY_CONFIG, "wake-ups",
                         "let listen= lead directly to the database of the store",
                         "listen= leads to %s, '%s' at %s:%s: no notification of the store arrives there, so "
                         "waiters poll",
                         pg_conn_is_pooled(direct) ? "a pooler" : "another database", PQdb(direct->pg),
                         PQhost(direct->pg), PQport(direct->pg));
    }
    pg_conn_close(direct);
    belay_error_release(&err);
}

/* The store listens on a connection of its own, too. */
static void check_second_connection(const struct checkup *checkup)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct pg_conn *second = NULL;

    if (connect_briefly(checkup->params->conninfo, &second, &err) != BELAY_OK) {
        diagnostics_warn(checkup->diagnostics, "wake-ups", "waiters need a second connection, or they poll",
                         "%s", err.text);
    } else if (hears(checkup, second)) {
        diagnostics_ok(checkup->diagnostics, "wake-ups", "by LISTEN");
    } else {
        diagnostics_warn(checkup->diagnostics, "wake-ups",
                         "add listen=URL with a direct connection to the store's URL",
                         "no notification arrives on a second connection: waiters poll");
    }
    pg_conn_close(second);
    belay_error_release(&err);
}

static void check_wake_ups(const struct checkup *checkup)
{
    if (checkup->params->listen != NULL) {
        check_listen(checkup);
    } else if (pg_conn_is_pooled(checkup->conn)) {
        diagnostics_warn(checkup->diagnostics, "wake-ups",
                         "add listen=URL with a direct connection to the store's URL",
                         "a pooler is between: waiters poll, because LISTEN does not work through it");
    } else {
        check_second_connection(checkup);
    }
}

/* Of the whole server. A session that LISTENs and stays in a transaction keeps it from being emptied. */
static void check_wake_up_queue(const struct checkup *checkup)
{
    char value[64];

    query_text(checkup, "wake-up queue", "SELECT floor(pg_notification_queue_usage() * 100)::integer", value,
               sizeof value);
    if (strtoll(value, NULL, 10) >= QUEUE_FULL_PERCENT) {
        diagnostics_warn(checkup->diagnostics, "wake-up queue",
                         "end the session that listens and stays in a transaction: pg_stat_activity shows it",
                         "the server's queue of notifications is %s %% full: from 90 %% on, waiters in other "
                         "processes poll",
                         value);
    } else if (value[0] != '\0') {
        diagnostics_ok(checkup->diagnostics, "wake-up queue", "%s %% full", value);
    }
}

/* Users without pg_monitor do not see how old the transactions of others are, only that there are some. */
static void check_snapshots(const struct checkup *checkup)
{
    char oldest[64], hidden[64];

    query_text(
        checkup, "transactions",
        "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - began))::bigint, 0) FROM ("
        "SELECT xact_start FROM pg_stat_activity WHERE backend_xmin IS NOT NULL OR backend_xid IS NOT NULL "
        "UNION ALL SELECT prepared FROM pg_prepared_xacts) x(began)",
        oldest, sizeof oldest);
    query_text(checkup, "transactions",
               "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NULL AND backend_type IS NULL "
               "AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)",
               hidden, sizeof hidden);
    if (strtoll(oldest, NULL, 10) > OLD_SNAPSHOT_S) {
        diagnostics_warn(checkup->diagnostics, "transactions",
                         "end it: pg_stat_activity or pg_prepared_xacts shows it; "
                         "idle_in_transaction_session_timeout prevents it",
                         "a transaction is open for %s s: hot locks become slow, and watch shows nothing new "
                         "while it writes",
                         oldest);
    } else if (strtoll(hidden, NULL, 10) > 0) {
        diagnostics_warn(checkup->diagnostics, "transactions",
                         "GRANT pg_monitor to the user that runs doctor",
                         "cannot tell whether one is old: this user may not see since when %s of other users "
                         "are open",
                         hidden);
    } else if (oldest[0] != '\0') {
        diagnostics_ok(checkup->diagnostics, "transactions", "none is old");
    }
}

/* With target_session_attrs=any, libpq takes a server that accepts no writes. */
static bool check_writable(const struct checkup *checkup)
{
    const char *host = PQhost(checkup->conn->pg);
    const char *port = PQport(checkup->conn->pg);
    char why[16];

    query_text(checkup, "connection",
               "SELECT CASE WHEN pg_is_in_recovery() THEN 'standby' "
               "WHEN current_setting('transaction_read_only')::boolean THEN 'read-only' ELSE 'no' END",
               why, sizeof why);
    if (strcmp(why, "standby") == 0) {
        diagnostics_fail(checkup->diagnostics, BELAY_CONFIG, "connection",
                         "let the URL name the primary, without target_session_attrs (or "
                         "PGTARGETSESSIONATTRS)",
                         "PostgreSQL at %s:%s is a standby, which accepts no writes", host, port);
    } else if (strcmp(why, "read-only") == 0) {
        diagnostics_fail(checkup->diagnostics, BELAY_CONFIG, "connection",
                         "set it to off for this user, in the database and the server",
                         "PostgreSQL at %s:%s accepts no writes: default_transaction_read_only is on", host,
                         port);
    } else if (why[0] != '\0') {
        diagnostics_ok(checkup->diagnostics, "connection", "PostgreSQL %d at %s:%s, user %s",
                       PQserverVersion(checkup->conn->pg) / 10000, host, port, PQuser(checkup->conn->pg));
    }
    return strcmp(why, "no") == 0;
}

void postgresql_doctor(const char *url, const char *origin, struct diagnostics *diagnostics)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct pg_params params = { 0 };
    struct checkup checkup = { NULL, &params, diagnostics };

    if (pg_params_parse(url, &params, &err) != BELAY_OK) {
        diagnostics_error(diagnostics, "store", NULL, &err);
        goto done;
    }
    diagnostics_ok(diagnostics, "store", "%s (%s)", params.url, origin);
    if (connect_briefly(params.conninfo, &checkup.conn, &err) != BELAY_OK) {
        diagnostics_error(diagnostics, "connection", "check the URL, the PG* variables and ~/.pgpass", &err);
    } else if (check_writable(&checkup)) {
        if (check_schema(&checkup)) {
            check_rights(&checkup);
            check_state(&checkup);
        }
        check_durability(&checkup);
        check_isolation(&checkup);
        check_replication(&checkup);
        check_clock(&checkup);
        check_wake_ups(&checkup);
        check_wake_up_queue(&checkup);
        check_snapshots(&checkup);
    }

done:
    belay_error_release(&err);
    pg_conn_close(checkup.conn);
    pg_params_release(&params);
}
