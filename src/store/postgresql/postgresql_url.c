/*
 * The URL is libpq's, and so are its parameters, environment variables and files. belay takes its own
 * parameters out, because libpq rejects those that it does not know.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/store_url.h"
#include "base/suggest.h"
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

/* Other stores also take ',' before parameters. Here it may separate hosts, and so it is not read as such. */
static enum belay_code check_database(const char *conninfo, struct belay_error *err)
{
    const char *begin = strstr(conninfo, "://");
    const char *slash = begin == NULL ? NULL : strchr(begin + 3, '/');
    size_t len = slash == NULL ? 0 : strcspn(slash, "?");

    if (slash == NULL || memchr(slash, ',', len) == NULL) {
        return BELAY_OK;
    }
    if (memchr(slash, '@', len) != NULL) {
        return error_set(err, BELAY_INVALID, "the store URL has an '@' after the '/': %s", ENCODE_PASSWORD);
    }
    return error_set(err, BELAY_INVALID,
                     "the store URL has the database '%.*s': write '?' before the first parameter and '&' "
                     "before others, and %%2C for a ',' in a name",
                     len > 100 ? 100 : (int)len - 1, slash + 1);
}

/* The one of belay's or of libpq's parameters that the user may have meant; NULL: none is similar. */
static const char *suggest_param(const char *name, int len, char *out, size_t size)
{
    static const char *const own[] = { "schema", "listen", "max_clock_step", "retain_events",
                                       "retain_records" };
    PQconninfoOption *options = PQconndefaults();
    struct suggestion near;
    char typed[64];

    (void)snprintf(typed, sizeof typed, "%.*s", len, name);
    suggest_begin(&near, typed);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        suggest_add(&near, own[i]);
    }
    for (const PQconninfoOption *option = options; option != NULL && option->keyword != NULL; option++) {
        suggest_add(&near, option->keyword);
    }
    (void)snprintf(out, size, "%s", near.found == NULL ? "" : near.found);
    PQconninfoFree(options);
    return out[0] == '\0' ? NULL : out;
}

static enum belay_code refuse_unknown(const char *name, int len, struct belay_error *err)
{
    char meant[64];

    if (suggest_param(name, len, meant, sizeof meant) != NULL) {
        return error_set(err, BELAY_INVALID,
                         "the store URL has the unknown parameter \"%.*s\": did you mean '%s'?", len, name,
                         meant);
    }
    return error_set(err, BELAY_INVALID,
                     "the store URL has the parameter \"%.*s\", which neither belay (schema, listen, "
                     "max_clock_step, retain_events, retain_records) nor libpq knows",
                     len, name);
}

/* What libpq cannot read. Its text may repeat the password, so it is not shown. */
static enum belay_code refuse_url(const char *conninfo, const char *text, struct belay_error *err)
{
    static const char unknown[] = "invalid URI query parameter: \"";
    const char *query = strchr(conninfo, '?');
    const char *colon = text == NULL ? NULL : strstr(text, "URI query parameter: \"");
    const char *name = colon == NULL ? "" : strchr(colon, '"') + 1;
    int len = (int)strcspn(name, "\"");

    if (query != NULL && strchr(query, '@') != NULL) {
        return error_set(err, BELAY_INVALID, "the store URL has an '@' after the '?': %s", ENCODE_PASSWORD);
    }
    if (colon != NULL && text_has_prefix(text, unknown)) {
        return refuse_unknown(name, len, err);
    }
    if (colon != NULL) {
        return error_set(err, BELAY_INVALID,
                         "the store URL has the parameter \"%.*s\" with no '=' or with several: write "
                         "PARAMETER=VALUE, and in a value %%3D for '='",
                         len, name);
    }
    return error_set(err, BELAY_INVALID,
                     "the store URL is not one of libpq's: write "
                     "postgresql://USER@HOST:PORT/DATABASE?PARAMETER=VALUE");
}

/* libpq's own view of what is left. */
static enum belay_code check_conninfo(const char *conninfo, struct belay_error *err)
{
    char *text = NULL;
    PQconninfoOption *parsed = PQconninfoParse(conninfo, &text);
    enum belay_code code = check_authority(conninfo, err);

    if (code == BELAY_OK && parsed != NULL) {
        code = check_database(conninfo, err);
    }
    if (code == BELAY_OK && parsed == NULL) {
        code = refuse_url(conninfo, text, err);
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

/* libpq would take the last. A '?' before the '@' is part of a password, and so are the names after it. */
static enum belay_code refuse_twice(const char *url, struct belay_error *err)
{
    const char *begin = strstr(url, "://");
    const char *at = begin == NULL ? NULL : memrchr(begin, '@', 3 + strcspn(begin + 3, "/"));
    const char *query = strchr(at == NULL ? url : at, '?');

    for (const char *one = query; one != NULL && *one != '\0'; one += 1 + strcspn(one + 1, "&")) {
        size_t len = strcspn(one + 1, "=&");

        for (const char *other = query; other < one; other += 1 + strcspn(other + 1, "&")) {
            if (len > 0 && strncmp(other + 1, one + 1, len) == 0 && other[1 + len] == '=') {
                return error_set(err, BELAY_INVALID, "store parameter '%.*s' is given twice",
                                 len > 40 ? 40 : (int)len, one + 1);
            }
        }
    }
    return BELAY_OK;
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
        code = code == BELAY_OK ? BELAY_OK : error_wrap(err, "in listen=");
    }
    if (code == BELAY_OK) {
        code = refuse_twice(url, err);
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
