#include "base/address.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { V4_AT = 12, V4_BITS = 96 };

static const unsigned char v4_prefix[V4_AT] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

static void from_v4(const void *four, struct address *out)
{
    memcpy(out->bytes, v4_prefix, sizeof v4_prefix);
    memcpy(out->bytes + V4_AT, four, 4);
}

static bool is_v4(const struct address *address)
{
    return memcmp(address->bytes, v4_prefix, sizeof v4_prefix) == 0;
}

bool address_parse(const char *text, struct address *out)
{
    struct in_addr four;

    if (inet_pton(AF_INET6, text, out->bytes) == 1) {
        return true;
    }
    /* inet_aton() ignores text behind a blank; that is not an address. */
    if (strpbrk(text, " \t\r\n") != NULL || inet_aton(text, &four) == 0) {
        return false;
    }
    from_v4(&four, out);
    return true;
}

static bool has_bits_after_prefix(const struct address_range *range)
{
    for (unsigned bit = range->bits; bit < 8 * ADDRESS_BYTES; bit++) {
        if ((range->first.bytes[bit / 8] & (0x80U >> bit % 8)) != 0) {
            return true;
        }
    }
    return false;
}

bool address_range_parse(const char *text, struct address_range *out)
{
    const char *slash = strchr(text, '/');
    char host[ADDRESS_TEXT_SIZE];
    struct address_range range = { .bits = 8 * ADDRESS_BYTES };
    size_t len = slash == NULL ? strlen(text) : (size_t)(slash - text);
    unsigned long bits;

    if (len >= sizeof host) {
        return false;
    }
    memcpy(host, text, len);
    host[len] = '\0';
    if (!address_parse(host, &range.first)) {
        return false;
    }
    if (slash != NULL) {
        bits = strtoul(slash + 1, NULL, 10);
        if (slash[1] == '\0' || strlen(slash + 1) > 3 ||
            strspn(slash + 1, "0123456789") != strlen(slash + 1)) {
            return false;
        }
        bits += strchr(host, ':') == NULL ? V4_BITS : 0;
        if (bits > 8 * ADDRESS_BYTES) {
            return false;
        }
        range.bits = (unsigned)bits;
    }
    if (has_bits_after_prefix(&range)) {
        return false;
    }
    *out = range;
    return true;
}

bool address_of_socket(const struct sockaddr *from, struct address *out)
{
    if (from->sa_family == AF_INET) {
        from_v4(&((const struct sockaddr_in *)(const void *)from)->sin_addr, out);
    } else if (from->sa_family == AF_INET6) {
        memcpy(out->bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, ADDRESS_BYTES);
    } else {
        return false;
    }
    return true;
}

static bool range_contains(const struct address *address, const struct address_range *range)
{
    unsigned whole = range->bits / 8;
    unsigned rest = range->bits % 8;
    unsigned char mask = (unsigned char)(0xff00U >> rest);

    assert(range->bits <= 8 * ADDRESS_BYTES);
    return memcmp(address->bytes, range->first.bytes, whole) == 0 &&
           (rest == 0 || ((address->bytes[whole] ^ range->first.bytes[whole]) & mask) == 0);
}

bool address_is_within(const struct address *address, const struct address_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (range_contains(address, &ranges[i])) {
            return true;
        }
    }
    return false;
}

static bool is_in_any(const struct address *address, const char *const *texts, size_t n)
{
    struct address_range range;

    for (size_t i = 0; i < n; i++) {
        if (address_range_parse(texts[i], &range) && range_contains(address, &range)) {
            return true;
        }
    }
    return false;
}

bool address_is_this_machine(const char *host)
{
    static const char *const loopback[] = { "127.0.0.0/8", "::1" };
    struct address address;

    return strcmp(host, "localhost") == 0 ||
           (address_parse(host, &address) && is_in_any(&address, loopback, 2));
}

bool address_is_public(const struct address *address)
{
    static const char *const special_v4[] = {
        "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",    "240.0.0.0/4",
    };
    /* All other IPv6 addresses are reserved: loopback, private, link-local, multicast, embedded IPv4. */
    static const char *const global_v6[] = { "2000::/3" };
    static const char *const special_v6[] = { "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20" };

    if (is_v4(address)) {
        return !is_in_any(address, special_v4, sizeof special_v4 / sizeof special_v4[0]);
    }
    return is_in_any(address, global_v6, 1) &&
           !is_in_any(address, special_v6, sizeof special_v6 / sizeof special_v6[0]);
}

void address_text(const struct address *address, char out[ADDRESS_TEXT_SIZE])
{
    const void *at = is_v4(address) ? address->bytes + V4_AT : address->bytes;

    if (inet_ntop(is_v4(address) ? AF_INET : AF_INET6, at, out, ADDRESS_TEXT_SIZE) == NULL) {
        out[0] = '\0';
    }
}

/* ---- unix sockets ---- */

static int open_folder(const char *path, const char *slash)
{
    char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    int fd = folder == NULL ? -1 : open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int saved = errno;

    free(folder);
    errno = saved;
    return fd;
}

bool unix_address(const char *path, struct sockaddr_un *out, int *out_folder)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    const char *slash = strrchr(path, '/');
    int folder = -1;
    int n;

    if (*path == '\0') {
        errno = EINVAL;
        return false;
    }
    if (strlen(path) < sizeof un.sun_path) {
        n = snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    } else if (slash == NULL) {
        errno = ENAMETOOLONG;
        return false;
    } else {
        folder = open_folder(path, slash);
        if (folder < 0) {
            return false;
        }
        n = snprintf(un.sun_path, sizeof un.sun_path, "/proc/self/fd/%d/%s", folder, slash + 1);
    }
    if (n < 0 || (size_t)n >= sizeof un.sun_path) {
        (void)close(folder);
        errno = ENAMETOOLONG;
        return false;
    }
    *out = un;
    *out_folder = folder;
    return true;
}

bool address_parse_port(const char *text, unsigned *out_port)
{
    size_t len = strlen(text);
    unsigned long port =
        len == 0 || len > 5 || strspn(text, "0123456789") != len ? ULONG_MAX : strtoul(text, NULL, 10);

    if (port > 65535) {
        return false;
    }
    *out_port = (unsigned)port;
    return true;
}
