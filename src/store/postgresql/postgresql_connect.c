/* Connections, and what a server's answer means. */
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fnv.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

void pg_conn_close(struct pg_conn *conn)
{
    if (conn != NULL) {
        PQfinish(conn->pg);
        free(conn);
    }
}

/* That the queue of notifications fills, or that the database must be vacuumed soon, says nothing about a commit. */
static bool is_harmless(const PGresult *warning)
{
    static const char *const sources[] = { "asyncQueueFillWarning", "GetNewTransactionId",
                                           "GetNewMultiXactId" };
    const char *source = PQresultErrorField(warning, PG_DIAG_SOURCE_FUNCTION);
    bool found = false;

    for (size_t i = 0; source != NULL && i < sizeof sources / sizeof sources[0]; i++) {
        found = found || strcmp(source, sources[i]) == 0;
    }
    return found;
}

/*
 * A cancelled or terminated wait for a synchronous standby is reported as success with a warning:
 * the commit is on this server's disk, but perhaps nowhere else. Its SQLSTATE is that of any warning.
 */
static void on_notice(void *context, const PGresult *result)
{
    struct pg_conn *conn = context;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

    if (severity != NULL && strcmp(severity, "WARNING") == 0 && !is_harmless(result)) {
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

/* ---- several hosts ---- */

enum { HOST, HOSTADDR, PORT, PLACES };
enum { HOSTS_MAX = 63 }; /* a mask, too */
enum { HOST_LIST_MAX = 1 << 16 };
#define PORT_DEFAULT                                                                                         \
    "5432" /* of a host without one, if others have one: libpq does not look at PGPORT then */
static const char *const place_names[PLACES] = { "host", "hostaddr", "port" };

/* Where the server may be. */
struct hosts {
    char *lists[PLACES]; /* owned; with commas, as libpq takes them; NULL: libpq's default */
    size_t n;
    bool is_resolved; /* the lists have addresses of their names, and are to be given to libpq */
    int64_t most_ms;  /* for one of them: connect_timeout, which libpq leaves to such callers, too */
};

static size_t count_parts(const char *list)
{
    size_t n = 1;

    for (const char *at = list; (at = strchr(at, ',')) != NULL; at++) {
        n++;
    }
    return n;
}

/* One without commas is the same for all. The caller frees it; NULL: none. */
static char *part_of(const char *list, size_t i)
{
    if (list == NULL || strchr(list, ',') == NULL) {
        return list == NULL ? NULL : strdup(list);
    }
    for (; i > 0; i--) {
        list += strcspn(list, ",") + 1;
    }
    return strndup(list, strcspn(list, ","));
}

static const char *find_value(const PQconninfoOption *url, const PQconninfoOption *defaults, const char *name)
{
    const char *value = pg_option_value(url, name);

    return value != NULL ? value : pg_option_value(defaults, name);
}

static void release_hosts(struct hosts *hosts)
{
    for (size_t p = 0; p < PLACES; p++) {
        free(hosts->lists[p]);
    }
}

/* NULL: a socket in a folder, or libpq shall say what is wrong with the name. */
static struct addrinfo *find_addresses(const char *host)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    bool is_name = host != NULL && host[0] != '\0' && host[0] != '/' && host[0] != '@';

    return is_name && getaddrinfo(host, NULL, &hints, &found) == 0 ? found : NULL;
}

/* Adds the host once for each of its addresses. False: it has none, and is added without. */
static bool add_addresses(struct buf lists[PLACES], const char *host, const char *port, size_t *n)
{
    struct addrinfo *found = find_addresses(host);
    const struct addrinfo *at = found;
    bool is_found = found != NULL;

    do {
        const char *comma = (*n)++ == 0 ? "" : ",";
        char address[NI_MAXHOST] = "";

        if (at != NULL &&
            getnameinfo(at->ai_addr, at->ai_addrlen, address, sizeof address, NULL, 0, NI_NUMERICHOST) != 0) {
            address[0] = '\0'; /* libpq looks the name up */
        }
        buf_addf(&lists[HOST], "%s%s", comma, host == NULL ? "" : host);
        buf_addf(&lists[HOSTADDR], "%s%s", comma, address);
        buf_addf(&lists[PORT], "%s%s", comma, port == NULL ? "" : port);
        at = at == NULL ? NULL : at->ai_next;
    } while (at != NULL);
    if (found != NULL) {
        freeaddrinfo(found);
    }
    return is_found;
}

/*
 * libpq stays with an address of a name as it does with a host: make each of several addresses a host of its own. It
 * would also look the name up again.
 */
static void split_addresses(struct hosts *hosts)
{
    struct buf lists[PLACES] = { BUF_INIT(HOST_LIST_MAX), BUF_INIT(HOST_LIST_MAX), BUF_INIT(HOST_LIST_MAX) };
    size_t n = 0;
    bool is_found = false;

    for (size_t i = 0; i < hosts->n; i++) {
        char *host = part_of(hosts->lists[HOST], i);
        char *port = part_of(hosts->lists[PORT], i);

        is_found = add_addresses(lists, host, port, &n) || is_found;
        free(host);
        free(port);
    }
    if (is_found && n <= HOSTS_MAX && !lists[HOST].failed && !lists[HOSTADDR].failed && !lists[PORT].failed) {
        release_hosts(hosts);
        for (size_t p = 0; p < PLACES; p++) {
            hosts->lists[p] = buf_take(&lists[p]);
        }
        hosts->n = n;
        hosts->is_resolved = true;
    }
    for (size_t p = 0; p < PLACES; p++) {
        buf_release(&lists[p]);
    }
}

/* By the URL, else by the environment. What libpq refuses, or finds in a file of services, is left to it. */
static void find_hosts(const char *conninfo, struct hosts *out_hosts)
{
    PQconninfoOption *url = PQconninfoParse(conninfo, NULL);
    PQconninfoOption *defaults = PQconndefaults();
    const char *timeout = find_value(url, defaults, "connect_timeout");
    int64_t most_s = timeout == NULL ? 0 : strtoll(timeout, NULL, 10);
    struct hosts hosts = { .n = 1, .most_ms = most_s > 0 && most_s < INT_MAX ? most_s * 1000 : INT64_MAX };
    const char *counted;
    bool is_known;

    for (size_t p = 0; p < PLACES; p++) {
        const char *value = find_value(url, defaults, place_names[p]);

        hosts.lists[p] = value == NULL ? NULL : strdup(value);
    }
    counted = hosts.lists[HOSTADDR] != NULL ? hosts.lists[HOSTADDR] : hosts.lists[HOST];
    is_known = counted != NULL && pg_option_value(url, "service") == NULL;
    hosts.n = is_known ? count_parts(counted) : 1;
    for (size_t p = 0; p < PLACES; p++) {
        size_t n = hosts.lists[p] == NULL ? hosts.n : count_parts(hosts.lists[p]);

        if (hosts.n > HOSTS_MAX || (n != hosts.n && (n != 1 || p != PORT))) {
            hosts.n = 1;
            is_known = false;
        }
    }
    if (is_known && hosts.lists[HOSTADDR] == NULL) {
        split_addresses(&hosts);
    }
    PQconninfoFree(url);
    PQconninfoFree(defaults);
    *out_hosts = hosts;
}

/* ---- connecting ---- */

#define CANNOT_CONNECT "cannot connect to PostgreSQL: "
enum { MESSAGES_MAX = 1 << 16 };

/* What libpq says of each address of a host, in one line: several may fail, each in its own way. */
static void join_addresses(struct buf *out, const char *text)
{
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");

        if (len > 0 && text[0] != '\t' && text[0] != ' ' && !text_has_prefix(text, "LOCATION:")) {
            buf_addf(out, "%s%.*s", out->len == 0 ? "" : "; ", (int)len, text);
        }
        text += len + (text[len] == '\n' ? 1 : 0);
    }
}

/* libpq shows only the address if it is given one: add the name that the URL has, in the form that libpq has for it. */
static void add_host_name(struct buf *said, const PGconn *pg)
{
    const char *host = PQhost(pg);
    const char *address = PQhostaddr(pg);
    struct buf named = BUF_INIT(MESSAGES_MAX);
    char shown[NI_MAXHOST + 32];

    if (host == NULL || host[0] == '\0' || address == NULL || strcmp(host, address) == 0) {
        return;
    }
    (void)snprintf(shown, sizeof shown, "connection to server at \"%s\",", address);
    if (said->data != NULL && text_has_prefix(said->data, shown)) {
        buf_addf(&named, "connection to server at \"%s\" (%s)%s", host, address,
                 said->data + strlen(shown) - 1);
        buf_release(said);
        *said = named;
    }
}

/*
 * Settings that libpq looks at only once it connects, beyond those of pg_check_settings(): certificates, a PGPORT that
 * is no number, and lists of different lengths. The part of its text that is about the setting; NULL: it is not.
 */
static const char *find_bad_setting(const char *text)
{
    static const char *const known[] = { "certificate file \"", "private key file \"", "could not match ",
                                         "for connection option \"", "invalid port number: \"" };
    const char *failed = strstr(text, " failed: "); /* before it are the host and the port */
    const char *said = failed == NULL ? text : failed + strlen(" failed: ");

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strstr(said, known[i]) != NULL) {
            return said;
        }
    }
    return NULL;
}

/* Which server has refused which password: libpq names the server before, and its file after, what the server says. */
static enum belay_code fail_password(const PGconn *pg, const char *said, struct belay_error *err)
{
    static const char from[] = "password retrieved from file \"";
    const char *file = strstr(said, from);
    int len = (int)strcspn(said, "\n");

    file = file == NULL ? NULL : file + strlen(from);
    return file == NULL ? error_set(err, BELAY_NOT_PERMITTED, CANNOT_CONNECT "%.*s at '%.100s'",
                                    len > 300 ? 300 : len, said, PQhost(pg))
                        : error_set(err, BELAY_NOT_PERMITTED,
                                    CANNOT_CONNECT "%.*s at '%.100s', with the password in '%.*s'",
                                    len > 300 ? 300 : len, said, PQhost(pg), (int)strcspn(file, "\""), file);
}

/* Whether libpq took the name of the user, because neither the URL nor the environment names a database. */
static bool is_database_unnamed(const PGconn *pg, const char *conninfo)
{
    PQconninfoOption *parsed = PQconninfoParse(conninfo, NULL);
    const char *variable = getenv("PGDATABASE");
    bool is_named = parsed == NULL || (variable != NULL && *variable != '\0');

    for (const PQconninfoOption *one = parsed; one != NULL && one->keyword != NULL; one++) {
        is_named = is_named || (strcmp(one->keyword, "dbname") == 0 && one->val != NULL && *one->val != '\0');
    }
    PQconninfoFree(parsed);
    return !is_named && strcmp(PQdb(pg), PQuser(pg)) == 0;
}

/* Of a session that accepts no writes. A pooler may not say which of the two it is. */
static const char *read_only_advice(const PGconn *pg, bool is_one_of_several)
{
    const char *standby = PQparameterStatus(pg, "in_hot_standby");

    if (standby != NULL && strcmp(standby, "off") == 0) {
        return ": it is no standby, but default_transaction_read_only is on there, for this user or for all";
    }
    return is_one_of_several ? ": a standby accepts no writes until it is promoted"
                             : ": this is a standby; let the URL name the primary, too";
}

/* libpq gives no SQLSTATE of a connection that failed; with PQERRORS_VERBOSE it is in the text. */
static enum belay_code fail_connect(const PGconn *pg, const char *conninfo, bool is_one_of_several,
                                    struct belay_error *err)
{
    const char *text = PQerrorMessage(pg);
    const char *state = strstr(text, "FATAL:  ");
    bool refused = state != NULL && (strncmp(state + 8, "28", 2) == 0 || strncmp(state + 8, "42501", 5) == 0);
    bool absent = state != NULL && strncmp(state + 8, "3D000", 5) == 0;
    bool full = state != NULL && strncmp(state + 8, "53300", 5) == 0;
    struct buf said = BUF_INIT(MESSAGES_MAX);
    const char *advice = "";
    enum belay_code code;
    int len;

    if (PQconnectionNeedsPassword(pg) == 1) {
        return error_set(
            err, BELAY_NOT_PERMITTED,
            "PostgreSQL at '%.100s' wants the password of the user '%.60s': put it into ~/.pgpass "
            "or PGPASSWORD",
            PQhost(pg), PQuser(pg));
    }
    if (state == NULL && find_bad_setting(text) != NULL) {
        return pg_refuse_setting(conninfo, find_bad_setting(text), err);
    }
    if (state != NULL && strncmp(state + 8, "28P01", 5) == 0) {
        return fail_password(pg, state + 15, err);
    }
    join_addresses(&said, text);
    add_host_name(&said, pg);
    if (absent) {
        advice = is_database_unnamed(pg, conninfo)
                     ? ": the URL names none, so it is the user's name; write postgresql://HOST/DATABASE"
                     : ": create it, or correct the URL";
    } else if (strstr(text, "session is read-only") != NULL) {
        advice = read_only_advice(pg, is_one_of_several);
    }
    if (state != NULL && strlen(state) > 15) {
        text = state + 15; /* after the SQLSTATE and its colon */
    } else {
        text = said.data == NULL || said.failed ? text : said.data;
    }
    len = (int)strcspn(text, "\n");
    code = error_set(err,
                     refused  ? BELAY_NOT_PERMITTED
                     : absent ? BELAY_CONFIG
                     : full   ? BELAY_BUSY
                              : BELAY_UNREACHABLE,
                     CANNOT_CONNECT "%.*s%s", len > 400 ? 400 : len, text, advice);
    buf_release(&said);
    return code;
}

static enum belay_code finish_connect(PGconn *pg, const char *conninfo, bool is_one_of_several,
                                      int64_t deadline_boot_ms, struct belay_error *err)
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
    return status == PGRES_POLLING_OK ? BELAY_OK : fail_connect(pg, conninfo, is_one_of_several, err);
}

/* libpq would take the whole list of ports in place of an empty text. */
static char *host_entry(const struct hosts *hosts, size_t place, size_t i)
{
    char *part = part_of(hosts->lists[place], i);

    if (place == PORT && part != NULL && part[0] == '\0') {
        free(part);
        part = strdup(PORT_DEFAULT);
    }
    return part;
}

/* `hosts`: connect to one of them, i; NULL: to those that the URL names. */
static enum belay_code connect_once(const char *conninfo, const struct hosts *hosts, size_t i,
                                    int64_t deadline_boot_ms, struct pg_conn **out_conn,
                                    struct belay_error *err)
{
    /* Those before dbname are defaults, which the URL replaces; those behind it replace what the URL says. */
    const char *names[8 + PLACES] = { "keepalives_idle",  "keepalives_interval",
                                      "tcp_user_timeout", "fallback_application_name",
                                      "dbname",           "client_encoding" };
    const char *values[8 + PLACES] = { "10", "5", "20000", "belay", conninfo, "UTF8" };
    char *places[PLACES] = { NULL };
    struct pg_conn *conn = calloc(1, sizeof *conn);
    size_t n = 6;
    enum belay_code code;

    if (strstr(conninfo, "target_session_attrs=") == NULL && getenv("PGTARGETSESSIONATTRS") == NULL) {
        names[n] = "target_session_attrs";
        values[n++] = "read-write";
    }
    for (size_t p = 0; hosts != NULL && p < PLACES; p++) {
        places[p] = host_entry(hosts, p, i);
        if (places[p] != NULL) {
            names[n] = place_names[p];
            values[n++] = places[p];
        }
    }
    if (conn != NULL) {
        conn->pg = PQconnectStartParams(names, values, 1);
    }
    for (size_t p = 0; p < PLACES; p++) {
        free(places[p]);
    }
    if (conn == NULL || conn->pg == NULL) {
        free(conn);
        return error_no_memory(err);
    }
    (void)PQsetErrorVerbosity(conn->pg, PQERRORS_VERBOSE);
    (void)PQsetNoticeReceiver(conn->pg, on_notice, conn);
    code = finish_connect(conn->pg, conninfo, hosts != NULL && hosts->n > 1, deadline_boot_ms, err);
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

/* What was said of one of several hosts, beside what was said of others. */
static void add_host_failure(struct buf *out, const char *text)
{
    buf_addf(out, "%s%s", out->len == 0 ? "" : "; ",
             text + (text_has_prefix(text, CANNOT_CONNECT) ? strlen(CANNOT_CONNECT) : 0));
}

/*
 * libpq goes from one host to the next if one refuses, but it stays with one that does not answer, because it
 * leaves the time to a caller that does not block. So each of several has its share of the time. An error that
 * says more than that, such as a wrong password, ends it, as with libpq.
 */
enum belay_code pg_connect_or_busy(const char *conninfo, int64_t deadline_boot_ms, struct pg_conn **out_conn,
                                   struct belay_error *err)
{
    /* Which host has answered last: a hash of the URL, and in the lowest bits the place of the host. */
    static _Atomic uint64_t answered;
    uint64_t url = fnv_text(FNV_INIT, conninfo) & ~(uint64_t)HOSTS_MAX;
    uint64_t last = atomic_load(&answered);
    size_t first = (last & ~(uint64_t)HOSTS_MAX) == url ? (size_t)(last & HOSTS_MAX) : 0;
    struct hosts hosts;
    struct buf failures = BUF_INIT(MESSAGES_MAX);
    struct belay_error one = BELAY_ERROR_INIT;
    enum belay_code code = BELAY_UNREACHABLE;
    bool is_busy = false;

    find_hosts(conninfo, &hosts);
    for (size_t i = 0; code == BELAY_UNREACHABLE && i < hosts.n; i++) {
        size_t host = (first + i) % hosts.n;
        int64_t now_ms = clock_boot_ms();
        int64_t left_ms =
            (deadline_boot_ms > now_ms ? deadline_boot_ms - now_ms : 0) / (int64_t)(hosts.n - i);

        code = connect_once(conninfo, hosts.n > 1 || hosts.is_resolved ? &hosts : NULL, host,
                            now_ms + (left_ms < hosts.most_ms ? left_ms : hosts.most_ms), out_conn, &one);
        is_busy = is_busy || code == BELAY_BUSY;
        code = code == BELAY_BUSY ? BELAY_UNREACHABLE : code;
        if (code == BELAY_OK) {
            atomic_store(&answered, url | host);
        } else {
            add_host_failure(&failures, one.text);
        }
    }
    code = code == BELAY_UNREACHABLE && is_busy ? BELAY_BUSY : code;
    if ((code == BELAY_UNREACHABLE || code == BELAY_BUSY) && hosts.n > 1 && !failures.failed) {
        (void)error_set(err, code, CANNOT_CONNECT "%.600s", failures.data);
    } else if (code != BELAY_OK) {
        (void)error_set(err, code, "%s", one.text);
    }
    belay_error_release(&one);
    buf_release(&failures);
    release_hosts(&hosts);
    return code;
}

enum belay_code pg_connect(const char *conninfo, int64_t deadline_boot_ms, struct pg_conn **out_conn,
                           struct belay_error *err)
{
    enum belay_code code = pg_connect_or_busy(conninfo, deadline_boot_ms, out_conn, err);

    if (code == BELAY_BUSY && err != NULL) {
        err->code = BELAY_UNREACHABLE;
    }
    return code == BELAY_BUSY ? BELAY_UNREACHABLE : code;
}

/* ---- statements ---- */

enum { RUN_MAX = 2 << 20 /* a schema takes half of it */ };

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

bool pg_conn_consume(struct pg_conn *conn, int64_t deadline_boot_ms)
{
    return wait_for(conn->pg, POLLIN, deadline_boot_ms) && PQconsumeInput(conn->pg) == 1;
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

/*
 * A role that may create functions in another schema of the search path, as any may in `public` until PostgreSQL 15,
 * can make one whose types fit a call better than those of pg_catalog, and it would run with the rights of the caller.
 * So only pg_catalog is searched, until the end of the transaction: a pooler passes the session on.
 */
static PGresult *send_sql(struct pg_conn *conn, const char *sql)
{
    struct buf text = BUF_INIT(RUN_MAX);
    PGresult *result = NULL;

    buf_addf(&text, "SET LOCAL search_path = pg_catalog, pg_temp; %s", sql);
    if (!text.failed && PQsendQuery(conn->pg, text.data) == 1) {
        result = pg_conn_result(conn, clock_boot_ms() + conn->run_ms);
    }
    buf_release(&text);
    return result;
}

enum belay_code pg_conn_run(struct pg_conn *conn, const char *sql, PGresult **out_result,
                            struct belay_error *err)
{
    PGresult *result = send_sql(conn, sql);
    ExecStatusType status = PQresultStatus(result);

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

bool pg_is_undone(const PGresult *result)
{
    return PQresultErrorField(result, PG_DIAG_SQLSTATE) != NULL && !pg_has_state(result, "08");
}

enum belay_code pg_failed(const PGresult *result, const char *schema, struct belay_error *err)
{
    static const struct {
        const char *state;
        enum belay_code code;
    } known[] = { { "42501", BELAY_NOT_PERMITTED }, { "28", BELAY_NOT_PERMITTED },
                  { "22", BELAY_INVALID },          { "42704", BELAY_INVALID }, /* such as a role */
                  { "57", BELAY_UNREACHABLE },      { "53", BELAY_UNREACHABLE },
                  { "55P03", BELAY_UNREACHABLE },   { "40", BELAY_UNREACHABLE },
                  { "25006", BELAY_UNREACHABLE },   { "BL001", BELAY_ID_USED } }; /* commit() has to decide */
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    enum belay_code code = BELAY_UNREACHABLE;

    if (pg_has_state(result, "3F000") || pg_has_state(result, "42883") || pg_has_state(result, "42P01")) {
        return error_set(err, BELAY_CONFIG,
                         "the database has no schema '%s', or an incomplete one: create it with `belay table "
                         "create`",
                         schema);
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (pg_has_state(result, known[i].state)) {
            code = known[i].code;
            break;
        }
    }
    return error_set(err, code, "PostgreSQL says: %.300s (SQLSTATE %s)%s", text == NULL ? "" : text,
                     state == NULL ? "none" : state,
                     pg_has_state(result, "42501")
                         ? ": the schema's owner can run `belay table create --grant ROLE`"
                         : "");
}
