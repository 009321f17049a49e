/* `belay doctor`: what a server must have for the promises of docs/safety.md. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/diagnostics.h"
#include "store/postgresql/postgresql_internal.h"

enum { CLOCK_FAR_MS = 5000, OLD_SNAPSHOT_S = 300 };

struct checkup {
    struct pg_conn *conn;
    const struct pg_params *params;
    struct diagnostics *diagnostics;
};

/* The one value that `sql` selects; "" and a finding if it cannot. */
static void ask(const struct checkup *checkup, const char *name, const char *sql, char *out, size_t size)
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

static bool check_schema(const struct checkup *checkup)
{
    struct belay_postgresql_schema found = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    bool is_right = false;

    if (pg_schema_describe(checkup->conn, checkup->params->schema, &found, &err) != BELAY_OK) {
        diagnostics_error(checkup->diagnostics, "schema", "ask its owner for USAGE and EXECUTE", &err);
    } else if (found.version != PG_SCHEMA_VERSION) {
        diagnostics_fail(checkup->diagnostics, BELAY_CONFIG, "schema", "run `belay table create`",
                         found.version == 0 ? "the database '%s' has no schema '%s'"
                                            : "the database '%s' has the schema '%s' of another belay",
                         found.database, found.name);
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
    ask(checkup, "permissions", sql, value, sizeof value);
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
    ask(checkup, "permissions", sql, value, sizeof value);
    if (strcmp(value, "t") == 0) {
        diagnostics_warn(checkup->diagnostics, "permissions", "revoke it",
                         "this user may change the table of locks past the rules");
    } else if (strcmp(value, "f") == 0) {
        diagnostics_ok(checkup->diagnostics, "permissions", "may execute the functions of the schema");
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
    ask(checkup, "state", sql, value, sizeof value);
    if (strcmp(value, "none") == 0) {
        diagnostics_warn(checkup->diagnostics, "state", "the owner runs `belay table create`",
                         "the schema has no tables for deployment state");
    } else if (strcmp(value, "not") == 0) {
        diagnostics_warn(checkup->diagnostics, "state", "the owner runs `belay table create --grant ROLE`",
                         "this user may not execute the functions for deployment state");
    } else if (value[0] != '\0') {
        diagnostics_ok(checkup->diagnostics, "state", "can be kept in the same schema");
    }
}

static void check_durability(const struct checkup *checkup)
{
    char value[64];

    ask(checkup, "durability", "SHOW fsync", value, sizeof value);
    if (strcmp(value, "off") == 0) {
        diagnostics_fail(checkup->diagnostics, BELAY_CONFIG, "durability", "set fsync = on",
                         "fsync is off: a crash of the machine loses locks that were granted");
    }
    ask(checkup, "durability", "SHOW synchronous_commit", value, sizeof value);
    if (strcmp(value, "off") == 0 || strcmp(value, "local") == 0) {
        diagnostics_warn(checkup->diagnostics, "durability", "set synchronous_commit = on",
                         "synchronous_commit is %s: a crash or a failover loses locks that were granted",
                         value);
    } else if (value[0] != '\0') {
        diagnostics_ok(checkup->diagnostics, "durability", "synchronous_commit is %s", value);
    }
}

static void check_replication(const struct checkup *checkup)
{
    char names[128], standbys[64];

    ask(checkup, "replication", "SHOW synchronous_standby_names", names, sizeof names);
    ask(checkup, "replication", "SELECT count(*) FROM pg_stat_replication", standbys, sizeof standbys);
    if (names[0] != '\0') {
        diagnostics_ok(checkup->diagnostics, "replication", "synchronous: %s", names);
    } else if (strcmp(standbys, "0") != 0) {
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

    ask(checkup, "clock", "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint", value,
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

static void check_pooler(const struct checkup *checkup)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (checkup->params->listen != NULL) {
        struct pg_conn *direct = NULL;

        if (pg_connect(checkup->params->listen, clock_boot_ms() + PG_TIMEOUT_MS, &direct, &err) != BELAY_OK) {
            diagnostics_error(checkup->diagnostics, "wake-ups", "correct listen= in the store's URL", &err);
        } else {
            diagnostics_ok(checkup->diagnostics, "wake-ups", "by LISTEN on %s:%s", PQhost(direct->pg),
                           PQport(direct->pg));
        }
        pg_conn_close(direct);
    } else if (pg_conn_is_pooled(checkup->conn)) {
        diagnostics_warn(checkup->diagnostics, "wake-ups",
                         "add listen=URL with a direct connection to the store's URL",
                         "a pooler is between: waiters poll, because LISTEN does not work through it");
    } else {
        diagnostics_ok(checkup->diagnostics, "wake-ups", "by LISTEN");
    }
    belay_error_release(&err);
}

static void check_snapshots(const struct checkup *checkup)
{
    char sql[256], value[64];

    (void)snprintf(sql, sizeof sql,
                   "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start))::bigint, 0) FROM "
                   "pg_stat_activity WHERE backend_xmin IS NOT NULL OR backend_xid IS NOT NULL");
    ask(checkup, "transactions", sql, value, sizeof value);
    if (strtoll(value, NULL, 10) > OLD_SNAPSHOT_S) {
        diagnostics_warn(checkup->diagnostics, "transactions",
                         "end it: pg_stat_activity shows it; idle_in_transaction_session_timeout prevents it",
                         "a transaction is open for %s s: hot locks become slow, and watch shows nothing new "
                         "while it writes",
                         value);
    } else if (value[0] != '\0') {
        diagnostics_ok(checkup->diagnostics, "transactions", "none is old");
    }
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
    if (pg_connect(params.conninfo, clock_boot_ms() + PG_TIMEOUT_MS, &checkup.conn, &err) != BELAY_OK) {
        diagnostics_error(diagnostics, "connection", "the URL, PG* variables and ~/.pgpass count", &err);
    } else {
        diagnostics_ok(diagnostics, "connection", "PostgreSQL %d at %s:%s, user %s",
                       PQserverVersion(checkup.conn->pg) / 10000, PQhost(checkup.conn->pg),
                       PQport(checkup.conn->pg), PQuser(checkup.conn->pg));
        if (check_schema(&checkup)) {
            check_rights(&checkup);
            check_state(&checkup);
        }
        check_durability(&checkup);
        check_replication(&checkup);
        check_clock(&checkup);
        check_pooler(&checkup);
        check_snapshots(&checkup);
    }

done:
    belay_error_release(&err);
    pg_conn_close(checkup.conn);
    pg_params_release(&params);
}
