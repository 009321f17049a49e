/* Valid names of applications and databases, and valid health URLs. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "http_parse/url.h"
#include "shared_db/shared_db_internal.h"

#define LOCK_KEY_PREFIX "LOCK#DB#"
enum { INSTANCE_MIN = 4, INSTANCE_MAX = 40, HOST_MAX = 253, ADDRESS_SIZE = 64, PORT_MAX = 65535 };

bool app_name_is_valid(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@:+");

    return n > 0 && n <= BELAY_APP_NAME_MAX && name[n] == '\0' && isalnum((unsigned char)name[0]);
}

bool db_is_instance(const char *id)
{
    size_t n = text_has_prefix(id, "i-") ? strspn(id + 2, "0123456789abcdef") : 0;

    return n >= INSTANCE_MIN && n <= INSTANCE_MAX && id[2 + n] == '\0';
}

/* A port number and nothing else; 0: invalid. */
static long read_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    long port = digits > 0 && digits <= 5 && text[digits] == '\0' ? strtol(text, NULL, 10) : 0;

    return port <= PORT_MAX ? port : 0;
}

/* Letters, digits, '-' and '_' between dots. An IPv4 address passes as well. */
static bool is_host_name(const char *host, size_t n)
{
    bool begins = true;

    for (size_t i = 0; i < n; i++) {
        bool is_dot = host[i] == '.';

        if (!isalnum((unsigned char)host[i]) && !is_dot && host[i] != '-' && host[i] != '_') {
            return false;
        }
        if (begins && (is_dot || host[i] == '-')) {
            return false;
        }
        begins = is_dot;
    }
    return n > 0 && n <= HOST_MAX;
}

/* "[2001:DB8::0:1]:5432" -> "[2001:db8::1]:5432"; NULL: invalid. */
static char *address_identifier(const char *text)
{
    const char *end = strchr(text, ']');
    char address[ADDRESS_SIZE], shown[INET6_ADDRSTRLEN], out[ADDRESS_SIZE * 2];
    struct in6_addr parsed;
    long port;

    if (end == NULL || (size_t)(end - text) >= sizeof address || end[1] != ':') {
        return NULL;
    }
    (void)snprintf(address, sizeof address, "%.*s", (int)(end - text - 1), text + 1);
    port = read_port(end + 2);
    if (port == 0 || inet_pton(AF_INET6, address, &parsed) != 1 ||
        inet_ntop(AF_INET6, &parsed, shown, sizeof shown) == NULL) {
        return NULL;
    }
    if (IN6_IS_ADDR_V4MAPPED(&parsed)) { /* the same address in IPv4 */
        (void)snprintf(out, sizeof out, "%s:%ld", strrchr(shown, ':') + 1, port);
    } else {
        (void)snprintf(out, sizeof out, "[%s]:%ld", shown, port);
    }
    return strdup(out);
}

/*
 * A host whose last part is a number is an address, with one valid form: resolvers
 * also accept "10.1", "10.0.1.05" and "0xa000105", which would compare as other
 * hosts than 10.0.1.5.
 */
static bool is_odd_address(const char *host, size_t n)
{
    char text[HOST_MAX + 1], canonical[INET_ADDRSTRLEN];
    const char *last;
    struct in_addr parsed;

    (void)snprintf(text, sizeof text, "%.*s", (int)n, host);
    last = strrchr(text, '.') == NULL ? text : strrchr(text, '.') + 1;
    if (last[strspn(last, "0123456789")] != '\0' &&
        (last[0] != '0' || (last[1] | 0x20) != 'x' ||
         last[2 + strspn(last + 2, "0123456789abcdefABCDEF")] != '\0')) {
        return false;
    }
    return inet_pton(AF_INET, text, &parsed) != 1 ||
           inet_ntop(AF_INET, &parsed, canonical, sizeof canonical) == NULL || strcmp(canonical, text) != 0;
}

char *db_identifier(const char *text)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon == NULL ? 0 : (size_t)(colon - text);
    char out[HOST_MAX + 16];
    long port;

    if (db_is_instance(text)) {
        return strdup(text);
    }
    if (text[0] == '[') {
        return address_identifier(text);
    }
    if (n > 1 && text[n - 1] == '.') {
        n--; /* "db.example." is "db.example" */
    }
    port = colon == NULL ? 0 : read_port(colon + 1);
    if (port == 0 || !is_host_name(text, n) || is_odd_address(text, n)) {
        return NULL;
    }
    (void)snprintf(out, sizeof out, "%.*s:%ld", (int)n, text, port);
    for (char *at = out; *at != '\0'; at++) {
        *at = (char)tolower((unsigned char)*at);
    }
    return strdup(out);
}

/* http or https, a host and an optional port; no password, printable characters only. */
bool app_url_is_valid(const char *url)
{
    bool is_http = text_has_prefix(url, "http://") || text_has_prefix(url, "https://"); /* in lower case */
    char host[HOST_MAX + 1];
    struct in6_addr parsed;
    struct url parts;

    if (strlen(url) > BELAY_APP_URL_MAX || !url_split(url, &parts) || parts.has_user || parts.port == 0 ||
        parts.host.len > HOST_MAX || !is_http) {
        return false;
    }
    for (const char *at = url; *at != '\0'; at++) {
        if (!isgraph((unsigned char)*at)) {
            return false;
        }
    }
    (void)snprintf(host, sizeof host, "%.*s", (int)parts.host.len, parts.host.at);
    return parts.host.at[-1] == '[' ? inet_pton(AF_INET6, host, &parsed) == 1
                                    : is_host_name(host, strlen(host));
}

static bool same_name(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

bool db_is_same(const struct belay_app_database *a, const struct belay_app_database *b)
{
    return same_name(a->id, b->id) || same_name(a->host, b->id) || same_name(a->id, b->host) ||
           same_name(a->host, b->host);
}

char *db_lock_key(const char *id)
{
    char *key;

    return asprintf(&key, LOCK_KEY_PREFIX "%s", id) < 0 ? NULL : key;
}
