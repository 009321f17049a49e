#include "server/core/site.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "base/address.h"
#include "base/text.h"
#include "server/core/server.h"

/* Parse "host", "host:port" or "[v6]:port". */
static bool split_host(const char *text, char host[SITE_NAME_SIZE])
{
    const char *rest;
    size_t len;

    if (*text == '[') {
        len = strcspn(++text, "]");
        rest = text + len + (text[len] == ']');
        if (text[len] != ']' || memchr(text, ':', len) == NULL) {
            return false;
        }
    } else {
        len = strcspn(text, ":");
        rest = text + len;
    }
    if (len == 0 || len >= SITE_NAME_SIZE || (*rest != '\0' && *rest != ':') ||
        (*rest == ':' && strspn(rest + 1, "0123456789") != strlen(rest + 1))) {
        return false;
    }
    memcpy(host, text, len);
    host[len] = '\0';
    return true;
}

/* The whole text, as browsers write it: not a name that begins like an address, nor a short form of one. */
static bool is_own_address(const char *host)
{
    static const char *const own[] = { "127.0.0.0/8", "::1" };
    unsigned char bytes[sizeof(struct in6_addr)];
    struct address_range ranges[2];
    struct address address;

    if (inet_pton(strchr(host, ':') == NULL ? AF_INET : AF_INET6, host, bytes) != 1) {
        return false;
    }
    return address_range_parse(own[0], &ranges[0]) && address_range_parse(own[1], &ranges[1]) &&
           address_parse(host, &address) && address_is_within(&address, ranges, 2);
}

static bool is_own_name(const struct site_names *names, char *host)
{
    size_t len = strlen(host);

    if (len > 1 && host[len - 1] == '.') {
        host[len - 1] = '\0'; /* a name may end in a dot */
    }
    if (strcasecmp(host, "localhost") == 0) {
        return true;
    }
    for (size_t i = 0; i < names->n; i++) {
        if (strcasecmp(host, names->all[i]) == 0) {
            return true;
        }
    }
    return false;
}

void site_add_name(struct site_names *names, const char *listen)
{
    char host[SITE_NAME_SIZE];
    unsigned char bytes[sizeof(struct in6_addr)];

    if (listen == NULL || text_has_prefix(listen, "unix:") || names->n == SITE_NAMES_MAX || *listen == '[' ||
        !split_host(listen, host) || inet_pton(AF_INET, host, bytes) == 1) {
        return;
    }
    memcpy(names->all[names->n++], host, sizeof host);
}

/* Clients send the same Host again and again: the last one that passed is compared first. */
static bool is_own_host(struct site_names *names, const char *text)
{
    char host[SITE_NAME_SIZE];

    if (strcmp(text, names->last) == 0) {
        return true;
    }
    if (!split_host(text, host) || !(is_own_address(host) || is_own_name(names, host))) {
        return false;
    }
    if (strlen(text) < sizeof names->last) {
        memcpy(names->last, text, strlen(text) + 1);
    }
    return true;
}

enum site_problem site_check(struct server *server, const struct http_request *request)
{
    const char *host = http_header(request, "Host");
    const char *origin = http_header(request, "Origin");
    const char *rest;

    host = host == NULL ? "" : host;
    if (origin != NULL) {
        rest = strstr(origin, "://");
        if (rest == NULL || *host == '\0' || strcasecmp(rest + 3, host) != 0) {
            return SITE_OTHER_ORIGIN;
        }
    }
    /* A request without Host (HTTP/1.0), or through a unix socket, is not from a browser. */
    if (server->tokens->n == 0 && !server->is_insecure && !request->peer->is_unix && *host != '\0' &&
        !is_own_host(&server->names, host)) {
        return SITE_OTHER_HOST;
    }
    return SITE_FINE;
}
