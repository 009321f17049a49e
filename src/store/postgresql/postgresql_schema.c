/* Making and describing the schema. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/postgresql/postgresql_internal.h"

enum {
    SQL_MAX = 1 << 20,
    MIGRATION_MS = 3600 * 1000, /* an index over a long history may take minutes */
};

char *pg_with_schema(const char *text, const char *schema)
{
    static const char mark[] = "@schema@";
    struct buf out = BUF_INIT(SQL_MAX);
    const char *at;

    while ((at = strstr(text, mark)) != NULL) {
        buf_add(&out, text, (size_t)(at - text));
        buf_addf(&out, "\"%s\"", schema);
        text = at + sizeof mark - 1;
    }
    buf_adds(&out, text);
    return buf_take(&out);
}

static enum belay_code run_with_schema(struct pg_conn *conn, const char *schema, const char *sql,
                                       PGresult **out_result, struct belay_error *err)
{
    char *text = pg_with_schema(sql, schema);
    enum belay_code code = text == NULL ? error_no_memory(err) : pg_conn_run(conn, text, out_result, err);

    free(text);
    return code;
}

/* What the function says; 0: there is none. */
static enum belay_code read_version(struct pg_conn *conn, const char *schema, const char *function,
                                    int *out_version, struct belay_error *err)
{
    char sql[PG_NAME_MAX + 96];
    PGresult *result = NULL;
    enum belay_code code;

    *out_version = 0;
    (void)snprintf(sql, sizeof sql, "SELECT to_regproc('\"%s\".%s') IS NOT NULL", schema, function);
    code = pg_conn_run(conn, sql, &result, err);
    if (code == BELAY_OK && PQgetvalue(result, 0, 0)[0] == 't') {
        PQclear(result);
        result = NULL;
        (void)snprintf(sql, sizeof sql, "SELECT version FROM \"%s\".%s() x(version)", schema, function);
        code = pg_conn_run(conn, sql, &result, err);
        *out_version = code == BELAY_OK && PQntuples(result) == 1 ? (int)pg_number(result, 0, 0) : 0;
    }
    PQclear(result);
    return code;
}

static enum belay_code check_server(struct pg_conn *conn, struct belay_error *err)
{
    const char *encoding = PQparameterStatus(conn->pg, "server_encoding");

    if (PQserverVersion(conn->pg) < 140000) {
        return error_set(err, BELAY_CONFIG, "the server is PostgreSQL %d, and belay needs 14 or later",
                         PQserverVersion(conn->pg) / 10000);
    }
    if (encoding != NULL && strcmp(encoding, "UTF8") != 0) {
        return error_set(err, BELAY_CONFIG,
                         "the database '%.60s' has the encoding %.40s, and belay needs UTF8: create one with "
                         "it",
                         PQdb(conn->pg), encoding);
    }
    return BELAY_OK;
}

/* A role that may ask for the version need not be allowed to use every part: that is not an error here. */
static enum belay_code read_part_version(struct pg_conn *conn, const char *schema, const char *function,
                                         int needed, int *out_version, struct belay_error *err)
{
    enum belay_code code = read_version(conn, schema, function, out_version, err);

    if (code == BELAY_NOT_PERMITTED) {
        *out_version = needed;
        code = BELAY_OK;
    }
    return code;
}

enum belay_code pg_schema_describe(struct pg_conn *conn, const char *schema,
                                   struct belay_postgresql_schema *out, struct belay_error *err)
{
    int version = 0;
    int functions_version = 0;
    int state_version = 0;
    enum belay_code code = read_version(conn, schema, "hello", &version, err);

    if (code == BELAY_OK && version > 0) {
        code = read_part_version(conn, schema, "functions_version", PG_FUNCTIONS_VERSION, &functions_version,
                                 err);
    }
    if (code == BELAY_OK && version > 0) {
        code = read_part_version(conn, schema, "state_version", PG_STATE_VERSION, &state_version, err);
    }
    (void)snprintf(out->name, sizeof out->name, "%s", schema);
    (void)snprintf(out->database, sizeof out->database, "%s", PQdb(conn->pg));
    (void)snprintf(out->server, sizeof out->server, "%d.%d", PQserverVersion(conn->pg) / 10000,
                   PQserverVersion(conn->pg) % 10000);
    out->version = version;
    out->version_needed = PG_SCHEMA_VERSION;
    out->functions_version = functions_version;
    out->functions_version_needed = PG_FUNCTIONS_VERSION;
    out->state_version = state_version;
    out->state_version_needed = PG_STATE_VERSION;
    return code;
}

/* What a long queue needs. */
#define ADD_WAITING                                                                                          \
    "ALTER TABLE @schema@.locks ADD COLUMN IF NOT EXISTS behind integer NOT NULL DEFAULT 0;"                 \
    "CREATE TABLE IF NOT EXISTS @schema@.waiting (key text COLLATE \"C\" NOT NULL, seq bigint NOT NULL, "    \
    "id text NOT NULL, expires_ms bigint NOT NULL, ticket jsonb NOT NULL, PRIMARY KEY (key, seq)) "          \
    "WITH (fillfactor = 70);"                                                                                \
    "CREATE UNIQUE INDEX IF NOT EXISTS waiting_of_id ON @schema@.waiting (key, id)"

/* A parameter of change_many(). */
#define ADD_ONE_CHANGE                                                                                       \
    "CREATE TYPE @schema@.one_change AS (key text, id text, acquires boolean, holds boolean, "               \
    "credential text, owner text, name text, metadata text, outcome smallint, durable boolean, "             \
    "ttl bigint, heartbeat bigint, stale_after bigint, must_be_new boolean, notes_refusal boolean, "         \
    "type text, level smallint, by text, reason text, duration bigint)"

/* From the version that is the index to the next one: what schema.sql has since, and functions that are gone. */
static const char *const steps[PG_SCHEMA_VERSION] = {
    [1] = "DROP FUNCTION IF EXISTS @schema@.one;"
          "DROP FUNCTION IF EXISTS @schema@.id_used;"
          "CREATE INDEX IF NOT EXISTS events_of_id ON @schema@.events (key, lock_id) "
          "WHERE type IN ('lock.acquired', 'lock.adopted')",
    [2] = "CREATE TABLE IF NOT EXISTS @schema@.clocks (machine text COLLATE \"C\" PRIMARY KEY, "
          "server_start timestamptz NOT NULL, server_ms bigint NOT NULL, boot_ms bigint NOT NULL);"
          "DROP TYPE IF EXISTS @schema@.brief CASCADE;" /* and what answered with it: acquire() and others */
          "DROP FUNCTION IF EXISTS @schema@.unchanged;"
          "ALTER TABLE @schema@.meta ADD COLUMN has_freezes boolean NOT NULL DEFAULT false;"
          "UPDATE @schema@.meta SET has_freezes = EXISTS (SELECT FROM @schema@.items "
          "WHERE space = 'freeze' AND name = 'list' AND value <> '[]');"
          "ALTER TABLE @schema@.events ADD COLUMN used_id text;"
          "UPDATE @schema@.events SET used_id = lock_id WHERE type IN ('lock.acquired', 'lock.adopted');"
          "DROP INDEX @schema@.events_of_id;"
          "CREATE INDEX events_of_used_id ON @schema@.events USING hash (used_id);" ADD_WAITING,
    [3] = "ALTER TABLE @schema@.locks SET (toast_tuple_target = 4000);"
          "DROP FUNCTION IF EXISTS @schema@.acquire;" /* it has more parameters */
          "DROP FUNCTION IF EXISTS @schema@.change;"  /* likewise; the next two take rows */
          "DROP FUNCTION IF EXISTS @schema@.change_many;"
          "DROP FUNCTION IF EXISTS @schema@.refuse_used;" ADD_ONE_CHANGE,
    [4] = "ALTER TABLE @schema@.meta ADD COLUMN event_base bigint NOT NULL DEFAULT 0;"
          "DROP FUNCTION IF EXISTS @schema@.settled;" /* it has a parameter, and the next one has one more */
          "DROP FUNCTION IF EXISTS @schema@.refuse_used;"
          "DROP FUNCTION IF EXISTS @schema@.acquire;" /* it has fewer parameters, as have the next two */
          "DROP FUNCTION IF EXISTS @schema@.change;"
          "DROP FUNCTION IF EXISTS @schema@.noted;"
          "DROP FUNCTION IF EXISTS @schema@.clock_jumped;", /* it says whether it did anything */
};

/*
 * What the functions of this version need, in a schema that may have it already. At which clock the events so far were
 * written is not known.
 */
static const char functions_step[] =
    "DO $$ BEGIN ALTER TABLE @schema@.meta ADD COLUMN clock_event bigint NOT NULL DEFAULT 0;"
    "UPDATE @schema@.meta SET clock_event = coalesce((SELECT max(id) FROM @schema@.events), 0);"
    "EXCEPTION WHEN duplicate_column THEN NULL; END $$;"
    "DROP FUNCTION IF EXISTS @schema@.begin_leases_again(bigint)";

/* Functions are for those roles that may execute hello(), and no others. Functions of states are not of this file. */
static const char rights[] =
    "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA @schema@ FROM PUBLIC;"
    "DO $$ DECLARE one record; BEGIN "
    "FOR one IN SELECT f.oid::regprocedure AS name, x.grantee::regrole AS role "
    "FROM pg_proc p, aclexplode(p.proacl) x, pg_proc f "
    "WHERE p.oid = '@schema@.hello'::regproc AND x.grantee NOT IN (0, p.proowner) "
    "AND f.pronamespace = p.pronamespace AND f.proname !~ '^(state|blob)_' LOOP "
    "EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', one.name, one.role); END LOOP; END $$";

/*
 * A role that may create functions in the schema can create one with the name of one of belay's and other types:
 * PostgreSQL prefers it where its types fit better, and it would run with the rights of the owner.
 */
static enum belay_code check_writers(struct pg_conn *conn, const char *schema, struct belay_error *err)
{
    char sql[PG_NAME_MAX + 512];
    PGresult *result = NULL;
    enum belay_code code;

    (void)snprintf(sql, sizeof sql,
                   "SELECT CASE WHEN x.grantee = 0 THEN 'PUBLIC' ELSE pg_get_userbyid(x.grantee) END "
                   "FROM pg_catalog.pg_namespace n, aclexplode(n.nspacl) x WHERE n.nspname = '%s' "
                   "AND x.privilege_type = 'CREATE' AND x.grantee <> n.nspowner "
                   "AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = x.grantee "
                   "AND (r.rolsuper OR r.rolname = current_user)) LIMIT 1",
                   schema);
    code = pg_conn_run(conn, sql, &result, err);
    if (code == BELAY_OK && PQntuples(result) > 0) {
        code = error_set(err, BELAY_NOT_PERMITTED,
                         "%.60s may create functions in the schema '%s', which would run with the rights of "
                         "its owner: REVOKE CREATE ON SCHEMA %s FROM %.60s, or name another schema",
                         PQgetvalue(result, 0, 0), schema, schema, PQgetvalue(result, 0, 0));
    }
    PQclear(result);
    return code;
}

/* The owner of a schema can replace what is in it, and the functions run with the rights of who makes them. */
static enum belay_code check_owner(struct pg_conn *conn, const char *schema, struct belay_error *err)
{
    char sql[PG_NAME_MAX + 384];
    PGresult *result = NULL;
    enum belay_code code;

    (void)snprintf(
        sql, sizeof sql,
        "SELECT o.rolname FROM pg_catalog.pg_namespace n, pg_catalog.pg_roles o, pg_catalog.pg_database d "
        "WHERE n.nspname = '%s' AND o.oid = n.nspowner AND d.datname = current_database() "
        "AND pg_get_userbyid(CASE WHEN o.rolname = 'pg_database_owner' THEN d.datdba ELSE o.oid END) "
        "<> current_user",
        schema);
    code = pg_conn_run(conn, sql, &result, err);
    if (code == BELAY_OK && PQntuples(result) > 0) {
        code = error_set(err, BELAY_NOT_PERMITTED,
                         "the schema '%s' belongs to the role '%.60s', who could replace belay's functions: "
                         "connect as that role, or name another schema",
                         schema, PQgetvalue(result, 0, 0));
    }
    PQclear(result);
    return code == BELAY_OK ? check_writers(conn, schema, err) : code;
}

/* From `version`, 0: none, to the one that this belay needs. */
static enum belay_code make_schema(struct pg_conn *conn, const char *schema, int version,
                                   struct belay_error *err)
{
    char sql[160];
    enum belay_code code = BELAY_OK;

    if (version == 0) {
        code = run_with_schema(conn, schema, "CREATE SCHEMA IF NOT EXISTS @schema@", NULL, err);
        if (code == BELAY_NOT_PERMITTED) {
            code =
                error_set(err, code,
                          "the user '%.60s' may not create a schema in the database '%.60s': run this as the "
                          "owner of the database",
                          PQuser(conn->pg), PQdb(conn->pg));
        }
        if (code == BELAY_OK) {
            code = check_owner(conn, schema, err); /* again: someone else may have made it meanwhile */
        }
        if (code == BELAY_OK) {
            code = run_with_schema(conn, schema, pg_schema_sql, NULL, err);
        }
    }
    for (int i = version; code == BELAY_OK && i > 0 && i < PG_SCHEMA_VERSION; i++) {
        code = run_with_schema(conn, schema, steps[i], NULL, err);
    }
    if (code == BELAY_OK) {
        code = run_with_schema(conn, schema, functions_step, NULL, err);
    }
    if (code == BELAY_OK) {
        code = run_with_schema(conn, schema, pg_functions_sql, NULL, err);
    }
    if (code == BELAY_OK) {
        (void)snprintf(sql, sizeof sql,
                       version == 0 ? "INSERT INTO @schema@.meta VALUES (true, %d, gen_random_uuid(), 0, "
                                      "@schema@.timeline(), pg_postmaster_start_time(), false)"
                                    : "UPDATE @schema@.meta SET version = %d",
                       (int)PG_SCHEMA_VERSION);
        code = run_with_schema(conn, schema, sql, NULL, err);
    }
    return code == BELAY_OK ? run_with_schema(conn, schema, rights, NULL, err) : code;
}

/*
 * A schema that was made by an earlier belay has no tables for deployment state, or earlier functions. Replacing a
 * function keeps the rights that roles have on it.
 */
static enum belay_code make_state(struct pg_conn *conn, const char *schema, struct belay_error *err)
{
    /* Of version 1: it knew no deadline. blob_put() removes, too. */
    enum belay_code code =
        run_with_schema(conn, schema, "DROP FUNCTION IF EXISTS @schema@.blob_remove", NULL, err);

    if (code == BELAY_OK) {
        code = run_with_schema(conn, schema, pg_state_sql, NULL, err);
    }
    return code == BELAY_OK
               ? run_with_schema(conn, schema,
                                 "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA @schema@ FROM PUBLIC", NULL, err)
               : code;
}

/* The functions of the port, for a role: nothing else is needed, and no right on a table. */
static enum belay_code grant(struct pg_conn *conn, const char *schema, const char *role,
                             struct belay_error *err)
{
    static const char format[] = "GRANT USAGE ON SCHEMA @schema@ TO %s;"
                                 "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA @schema@ TO %s";
    char *quoted = PQescapeIdentifier(conn->pg, role, strlen(role));
    char sql[512];
    enum belay_code code = quoted == NULL ? error_no_memory(err) : BELAY_OK;

    if (code == BELAY_OK) {
        (void)snprintf(sql, sizeof sql, format, quoted, quoted);
        code = run_with_schema(conn, schema, sql, NULL, err);
    }
    if (code == BELAY_INVALID) {
        code =
            error_set(err, code, "the database server has no role '%.60s': create it with CREATE ROLE", role);
    }
    PQfreemem(quoted);
    return code;
}

/* In one transaction, one process at a time. */
static enum belay_code create(struct pg_conn *conn, const struct pg_params *params, const char *grant_to,
                              struct belay_postgresql_schema *out, struct belay_error *err)
{
    int version = 0;
    int functions_version = 0;
    int state_version = 0;
    bool made = false;
    enum belay_code code =
        pg_conn_run(conn, "BEGIN; SELECT pg_advisory_xact_lock(hashtext('belay schema'))", NULL, err);

    if (code == BELAY_OK) {
        code = check_owner(conn, params->schema, err);
    }
    if (code == BELAY_OK) {
        code = read_version(conn, params->schema, "hello", &version, err);
    }
    if (code == BELAY_OK) {
        code = read_version(conn, params->schema, "functions_version", &functions_version, err);
    }
    if (code == BELAY_OK) {
        code = read_version(conn, params->schema, "state_version", &state_version, err);
    }
    if (code == BELAY_OK && (version > PG_SCHEMA_VERSION || state_version > PG_STATE_VERSION)) {
        code =
            error_set(err, BELAY_CONFIG,
                      "the schema '%s' has version %d (state: %d), of a newer belay; this one knows %d "
                      "(state: %d)",
                      params->schema, version, state_version, (int)PG_SCHEMA_VERSION, (int)PG_STATE_VERSION);
    }
    if (code == BELAY_OK && (version < PG_SCHEMA_VERSION || functions_version < PG_FUNCTIONS_VERSION)) {
        conn->run_ms = MIGRATION_MS;
        made = true;
        code = make_schema(conn, params->schema, version, err);
    }
    if (code == BELAY_OK && state_version < PG_STATE_VERSION) {
        made = true;
        code = make_state(conn, params->schema, err);
    }
    if (code == BELAY_OK && grant_to != NULL) {
        code = grant(conn, params->schema, grant_to, err);
    }
    if (code == BELAY_OK) {
        code = pg_conn_run(conn, "COMMIT", NULL, err);
    }
    if (code == BELAY_OK) {
        code = pg_schema_describe(conn, params->schema, out, err);
        out->created = made;
    }
    return code; /* closing the connection rolls back what was not committed */
}

enum belay_code postgresql_schema_create(const char *url, const char *grant_to,
                                         struct belay_postgresql_schema *out_schema, struct belay_error *err)
{
    struct belay_postgresql_schema schema = { 0 };
    struct pg_params params = { 0 };
    struct pg_conn *conn = NULL;
    enum belay_code code = pg_params_parse(url, &params, err);

    if (code == BELAY_OK) {
        code = pg_connect(params.conninfo, clock_boot_ms() + PG_TIMEOUT_MS, &conn, err);
    }
    if (code == BELAY_OK) {
        code = check_server(conn, err);
    }
    if (code == BELAY_OK) {
        code = create(conn, &params, grant_to, &schema, err);
    }
    if (code == BELAY_OK && out_schema != NULL) {
        *out_schema = schema;
    }
    pg_conn_close(conn);
    pg_params_release(&params);
    return code;
}

enum belay_code postgresql_schema_describe(const char *url, struct belay_postgresql_schema *out_schema,
                                           struct belay_error *err)
{
    struct belay_postgresql_schema schema = { 0 };
    struct pg_params params = { 0 };
    struct pg_conn *conn = NULL;
    enum belay_code code = pg_params_parse(url, &params, err);

    if (code == BELAY_OK) {
        code = pg_connect(params.conninfo, clock_boot_ms() + PG_TIMEOUT_MS, &conn, err);
    }
    if (code == BELAY_OK) {
        code = pg_schema_describe(conn, params.schema, &schema, err);
    }
    if (code == BELAY_OK) {
        *out_schema = schema;
    }
    pg_conn_close(conn);
    pg_params_release(&params);
    return code;
}
