/*
 * What libpq takes from the URL, the PG* variables and a service file, checked before the first connection: libpq
 * reports a value that it refuses in the same way as a server that is down, and callers would retry.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/postgresql/postgresql_internal.h"

enum { HOSTS_MOST = 1024, TEXT_MOST = 300 };

const char *pg_option_value(const PQconninfoOption *options, const char *name)
{
    const PQconninfoOption *option = options;

    while (option != NULL && option->keyword != NULL && strcmp(option->keyword, name) != 0) {
        option++;
    }
    return option == NULL ? NULL : option->val;
}

/* libpq names the value in quotes, or the parameter with its value. */
static bool names_part_of(const char *text, const PQconninfoOption *url)
{
    bool found = false;

    for (; !found && url != NULL && url->keyword != NULL; url++) {
        char quoted[TEXT_MOST], pair[TEXT_MOST];

        (void)snprintf(quoted, sizeof quoted, "\"%s\"", url->val == NULL ? "" : url->val);
        (void)snprintf(pair, sizeof pair, "%s=%s", url->keyword, url->val == NULL ? "" : url->val);
        found = url->val != NULL && (strstr(text, quoted) != NULL || strstr(text, pair) != NULL);
    }
    return found;
}

enum belay_code pg_refuse_setting(const char *conninfo, const char *text, struct belay_error *err)
{
    PQconninfoOption *url = PQconninfoParse(conninfo, NULL);
    bool is_elsewhere = strchr(text, '"') != NULL && !names_part_of(text, url);
    bool is_file =
        strstr(text, " file \"") != NULL; /* may be lost later: then the URL is as right as before */

    PQconninfoFree(url);
    return error_set(err, is_elsewhere || is_file ? BELAY_CONFIG : BELAY_INVALID, "libpq refuses %s: %.*s",
                     is_elsewhere ? "a PG* variable or a file" : "the store URL", (int)strcspn(text, "\n"),
                     text);
}

/* Those that libpq reads only once it connects, or, as connect_timeout, not for a caller that does not block. */
static enum belay_code check_numbers(const char *conninfo, const PQconninfoOption *options,
                                     struct belay_error *err)
{
    static const char *const names[] = { "connect_timeout",     "keepalives",       "keepalives_idle",
                                         "keepalives_interval", "keepalives_count", "tcp_user_timeout" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = pg_option_value(options, names[i]);
        char text[TEXT_MOST];
        char *end = NULL;
        long n;

        if (value == NULL || value[0] == '\0') {
            continue;
        }
        errno = 0;
        n = strtol(value, &end, 10);
        if (errno != 0 || end == value || end[strspn(end, " \t")] != '\0' || n < INT_MIN || n > INT_MAX) {
            (void)snprintf(text, sizeof text, "invalid %s value: \"%.200s\"", names[i], value);
            return pg_refuse_setting(conninfo, text, err);
        }
    }
    return BELAY_OK;
}

/* A list of n things that are no addresses. libpq tries them in place of the hosts, so it never uses the network. */
static void name_nowhere(char out[2 * HOSTS_MOST], size_t n)
{
    size_t len = 0;

    for (size_t i = 0; i < n && i < HOSTS_MOST; i++) {
        out[len++] = '-';
        out[len++] = ',';
    }
    out[len - 1] = '\0';
}

static size_t count_hosts(const PQconninfoOption *options)
{
    const char *list = pg_option_value(options, "host");
    size_t n = 1;

    for (; list != NULL && (list = strchr(list, ',')) != NULL; list++) {
        n++;
    }
    return n;
}

enum belay_code pg_check_settings(const char *conninfo, struct belay_error *err)
{
    /* With a password, libpq reads no file of passwords, and does not complain about its permissions twice. */
    static const char *const names[] = { "dbname", "password", "hostaddr", NULL };
    char nowhere[2 * HOSTS_MOST] = "-";
    const char *values[] = { conninfo, "-", nowhere, NULL };
    PGconn *pg = PQconnectStartParams(names, values, 1);
    PQconninfoOption *options = PQconninfo(pg); /* also those of a service */
    enum belay_code code = BELAY_OK;

    if (count_hosts(options) > 1) {
        name_nowhere(nowhere, count_hosts(options));
        PQfinish(pg);
        pg = PQconnectStartParams(names, values, 1);
    }
    if (pg == NULL || options == NULL) {
        code = error_no_memory(err);
    } else if (PQpingParams(names, values, 1) == PQPING_NO_ATTEMPT) {
        code = pg_refuse_setting(conninfo, PQerrorMessage(pg), err);
    } else {
        code = check_numbers(conninfo, options, err);
    }
    PQconninfoFree(options);
    PQfinish(pg);
    return code;
}
