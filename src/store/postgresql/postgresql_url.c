/*
 * The URL is libpq's, and so are its parameters, environment variables and files. belay takes its own
 * parameters out, because libpq rejects those that it does not know.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/store_url.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

#define ENCODE_PASSWORD "in a password write '/', ':' and '@' as %2F, %3A and %40"
#define DAY_MS (24LL * 3600 * 1000)

enum { URL_MAX = 8192, STEP_DEFAULT_MS = 2000, STEP_MAX_MS = 3600 * 1000, RETAIN_MIN_MS = 3600 * 1000 };

static enum belay_code set_schema(struct pg_params *params, const char *value, struct belay_error *err)
{
    size_t n = strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789_");

    if (n == 0 || n > PG_NAME_MAX - 6 || value[n] != '\0' || (value[0] >= '0' && value[0] <= '9') ||
        text_has_prefix(value, "pg_")) {
        return error_set(err, BELAY_INVALID,
                         "store parameter schema='%.80s' must be of small letters, digits and '_', 1 to %d, "
                         "begin with a letter or '_', and not with 'pg_'",
                         value, PG_NAME_MAX - 6);
    }
    (void)snprintf(params->schema, sizeof params->schema, "%s", value);
    return BELAY_OK;
}

static enum belay_code set_clock_step(const char *value, int64_t *out_ms, struct belay_error *err)
{
    int64_t ms;

    if (!belay_parse_duration(value, &ms) || ms < 0 || ms > STEP_MAX_MS) {
        return error_set(err, BELAY_INVALID,
                         "store parameter max_clock_step='%.40s' is no duration such as 2s, of at most 1h",
                         value);
    }
    *out_ms = ms;
    return BELAY_OK;
}

/* forget() of the schema keeps whatever is younger. */
static enum belay_code set_retention(const char *name, const char *value, int64_t *out_ms,
                                     struct belay_error *err)
{
    int64_t ms;

    if (!belay_parse_duration(value, &ms) || ms < RETAIN_MIN_MS) {
        return error_set(err, BELAY_INVALID,
                         "store parameter %s='%.40s' is no duration such as 30d or 12h, of at least 1h", name,
                         value);
    }
    *out_ms = ms;
    return BELAY_OK;
}

/* BELAY_NOT_FOUND: it is libpq's. */
static enum belay_code set_param(struct pg_params *params, const char *name, const char *value,
                                 struct belay_error *err)
{
    if (strcmp(name, "schema") == 0) {
        return set_schema(params, value, err);
    }
    if (strcmp(name, "listen") == 0) {
        if (value[0] == '\0') {
            return error_set(err, BELAY_INVALID,
                             "store parameter listen='' must be the URL of a direct connection");
        }
        free(params->listen);
        params->listen = strdup(value);
        return params->listen == NULL ? error_no_memory(err) : BELAY_OK;
    }
    if (strcmp(name, "max_clock_step") == 0) {
        return set_clock_step(value, &params->clock_step_ms, err);
    }
    if (strcmp(name, "retain_events") == 0) {
        return set_retention(name, value, &params->retain_events_ms, err);
    }
    if (strcmp(name, "retain_records") == 0) {
        return set_retention(name, value, &params->retain_records_ms, err);
    }
    return BELAY_NOT_FOUND;
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* In place, as libpq decodes. */
static void decode(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; from++) {
        if (*from == '%' && hex(from[1]) >= 0 && hex(from[2]) >= 0) {
            *to++ = (char)(hex(from[1]) * 16 + hex(from[2]));
            from += 2;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
}

/* One "NAME=VALUE" of the query: belay's own, or for libpq. */
static enum belay_code take_pair(struct pg_params *params, const char *pair, size_t len, struct buf *conninfo,
                                 char *sign, struct belay_error *err)
{
    char *copy = strndup(pair, len);
    char *equals = copy == NULL ? NULL : strchr(copy, '=');
    enum belay_code code = copy == NULL ? error_no_memory(err) : BELAY_NOT_FOUND;

    if (equals != NULL) {
        *equals = '\0';
        decode(equals + 1);
        code = set_param(params, copy, equals + 1, err);
    }
    if (code == BELAY_NOT_FOUND) {
        buf_addf(conninfo, "%c%.*s", *sign, (int)len, pair);
        *sign = '&';
        code = BELAY_OK;
    }
    free(copy);
    return code;
}

static bool is_port(const char *text, size_t len)
{
    char *end = NULL;
    long n = strtol(text, &end, 10); /* as libpq: spaces around it are no mistake */

    end += strspn(end, " ");
    return end == text + len && n >= 1 && n <= 65535;
}

/*
 * libpq looks at ports only when it connects, and then it says the same as of a server that is down. A password with
 * an unencoded '/', ':' or '@' may be read as a port: show only what comes after the user.
 */
static enum belay_code check_ports(const char *conninfo, const char *ports, struct belay_error *err)
{
    const char *user = strrchr(conninfo, '@');
    size_t len;

    for (const char *port = ports; port != NULL; port = port[len] == ',' ? port + len + 1 : NULL) {
        char shown[24];

        len = strcspn(port, ",");
        if (len == 0 || is_port(port, len)) {
            continue; /* none: the default */
        }
        (void)snprintf(shown, sizeof shown, "%.*s", len < sizeof shown ? (int)len : (int)sizeof shown - 1,
                       port);
        return user == NULL || strstr(user, shown) != NULL
                   ? error_set(err, BELAY_INVALID,
                               "the store URL has the port '%s': a port is a number from 1 to 65535", shown)
                   : error_set(err, BELAY_INVALID, "the store URL has a port that is no number: %s",
                               ENCODE_PASSWORD);
    }
    return BELAY_OK;
}

/* libpq ends the password at the first '@', and would show what follows as the name of the host. */
static enum belay_code check_authority(const char *conninfo, struct belay_error *err)
{
    const char *begin = strstr(conninfo, "://");
    const char *at = begin == NULL ? NULL : memchr(begin + 3, '@', strcspn(begin + 3, "/"));

    return at != NULL && text_has_prefix(conninfo, "postgres") && at[1 + strcspn(at + 1, "/?@")] == '@'
               ? error_set(err, BELAY_INVALID, "the store URL has more than one '@' before the database: %s",
                           ENCODE_PASSWORD)
               : BELAY_OK;
}

/* libpq's own view of what is left. Its text may repeat the password, so only the parameter is named. */
static enum belay_code check_conninfo(const char *conninfo, struct belay_error *err)
{
    char *text = NULL;
    PQconninfoOption *parsed = PQconninfoParse(conninfo, &text);
    enum belay_code code = check_authority(conninfo, err);

    if (code == BELAY_OK && parsed == NULL) {
        const char *quoted = text == NULL ? NULL : strchr(text, '"');
        bool names_param = text != NULL && strstr(text, "URI query parameter") != NULL && quoted != NULL;

        code = names_param
                   ? error_set(err, BELAY_INVALID,
                               "the store URL has the parameter %.*s, which neither belay (schema, listen, "
                               "max_clock_step, retain_events, retain_records) nor libpq knows",
                               (int)strcspn(quoted, "\n"), quoted)
                   : error_set(err, BELAY_INVALID,
                               "the store URL is not one of libpq's: write "
                               "postgresql://USER@HOST:PORT/DATABASE?PARAMETER=VALUE");
    }
    for (const PQconninfoOption *option = parsed; option != NULL && option->keyword != NULL; option++) {
        if (code == BELAY_OK && strcmp(option->keyword, "port") == 0) {
            code = check_ports(conninfo, option->val, err);
        }
    }
    PQfreemem(text);
    PQconninfoFree(parsed);
    return code == BELAY_OK ? pg_check_settings(conninfo, err) : code;
}

enum belay_code pg_params_parse(const char *url, struct pg_params *out_params, struct belay_error *err)
{
    struct pg_params params = { .schema = "belay",
                                .clock_step_ms = STEP_DEFAULT_MS,
                                .retain_events_ms = 30 * DAY_MS,
                                .retain_records_ms = 30 * DAY_MS };
    struct buf conninfo = BUF_INIT(URL_MAX);
    struct buf shown = BUF_INIT(URL_MAX);
    const char *query = strchr(url, '?');
    size_t place = query == NULL ? strlen(url) : (size_t)(query - url);
    enum belay_code code = BELAY_OK;
    char sign = '?';

    buf_add(&conninfo, url, place);
    store_url_add_shown(&shown, url);
    while (code == BELAY_OK && query != NULL && query[0] != '\0') {
        size_t len = strcspn(query + 1, "&");

        code = len == 0 ? BELAY_OK : take_pair(&params, query + 1, len, &conninfo, &sign, err);
        query += 1 + len;
    }
    params.conninfo = buf_take(&conninfo);
    params.url = buf_take(&shown);
    if (code == BELAY_OK && (params.conninfo == NULL || params.url == NULL)) {
        code = error_set(err, BELAY_INVALID, "the store URL is longer than %d bytes", URL_MAX - 1);
    }
    if (code == BELAY_OK) {
        code = check_conninfo(params.conninfo, err);
    }
    if (code == BELAY_OK && params.listen != NULL) {
        code = check_conninfo(params.listen, err);
    }
    if (code != BELAY_OK) {
        pg_params_release(&params);
        return code;
    }
    *out_params = params;
    return BELAY_OK;
}

void pg_params_release(struct pg_params *params)
{
    free(params->conninfo);
    free(params->url);
    free(params->listen);
    memset(params, 0, sizeof *params);
}
